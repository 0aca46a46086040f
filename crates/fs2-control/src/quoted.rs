//! Paths in commands that people are shown.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as a shell takes it, for commands that are shown: in quotes where it would be anything else than one word.
pub fn quoted(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    // An option, were it not for the directory.
    let here = if bytes.starts_with(b"-") { "./" } else { "" };
    let is_plain = |&b: &u8| b.is_ascii_alphanumeric() || b"_-./:@%+=,".contains(&b) || b >= 0x80;
    match path.to_str() {
        Some(text) if !bytes.is_empty() && bytes.iter().all(is_plain) => format!("{here}{text}"),
        Some(text) if !text.chars().any(char::is_control) => {
            format!("'{here}{}'", text.replace('\'', r"'\''"))
        }
        // No terminal shows these, and no text has them.
        _ => {
            let mut out = format!("$'{here}");
            for &b in bytes {
                let _ = match b {
                    b'\'' | b'\\' => write!(out, "\\{}", b as char),
                    b' '..=b'~' => write!(out, "{}", b as char),
                    _ => write!(out, "\\{b:03o}"),
                };
            }
            out + "'"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_path_as_it_is() {
        for plain in ["/dev/sdb1", "disk.img", "/dev/disk/by-id/usb-A_B-0:0", "ä/+,=@%"] {
            assert_eq!(quoted(Path::new(plain)), plain);
        }
        assert_eq!(quoted(Path::new("my disk")), "'my disk'");
        for odd in [
            &b"my disk"[..],
            b"",
            b"a;b",
            b"$(x)",
            b"it's",
            b"~",
            b"#a",
            b"*",
            b"-n",
            b"- '",
            b"a\nb\\'\x1b0",
            b"\xff",
        ] {
            let path = Path::new(OsStr::from_bytes(odd));
            let line = format!("printf %s {}", quoted(path));
            let said = Command::new("bash").args(["-c", &line]).output().unwrap().stdout;
            assert_eq!(said.strip_prefix(b"./").unwrap_or(&said), odd, "{line}");
        }
        assert_eq!(quoted(Path::new("-n")), "./-n");
    }
}
