//! `fsck.fs2 [-apynfrv] [-C FD] DEVICE`: what fsck(8) calls. It is `chkfs2`; a plain ext2 volume is checked as one. Where the
//! replica table is kept apart, the volume's line in fstab says.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use fs2_ext2::{Layout, TableFile};
use fs2_store::StoreIo;

use super::options::split;
use crate::kernel::unescape;
use crate::programs::command;

/// Exit code of fsck: it could not be looked at.
const OPERATIONAL: u8 = 8;

pub(super) const HELP: &str = "\
usage: fsck.fs2 [-apynfrv] [-C FD] [--table PATH] DEVICE; fsck(8) calls it
It is chkfs2; a plain ext2 volume is checked by e2fsck. A table kept apart is found by the line in /etc/fstab.

EXAMPLES:
  fsck.fs2 -p /dev/sdb1
  fsck -A -a                as when the machine starts

EXIT CODES: those of fsck(8): 0 clean, 1 mended, 4 left as it is, 8 failed, 16 wrong usage";

pub(super) fn run(args: Vec<OsString>) -> u8 {
    let args = without_r_and_v(args);
    let told = args.iter().any(|a| a.as_encoded_bytes().starts_with(b"--table"));
    let plain = args.last().filter(|_| !told).map(Path::new).filter(|d| is_plain(d));
    let table = plain.and_then(table_by_fstab);
    if let Some(device) = plain.filter(|_| table.is_none()) {
        println!("{}: a plain ext2 volume", device.display());
        let _ = std::io::stdout().flush();
        return match command("e2fsck").args(&args).status() {
            Ok(status) => status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(OPERATIONAL),
            Err(e) => {
                eprintln!("fsck.fs2: e2fsck: {e}; install e2fsprogs");
                OPERATIONAL
            }
        };
    }
    let table = table.into_iter().flat_map(|path| [OsString::from("--table"), path.into_os_string()]);
    let args = std::iter::once(OsString::from("fsck.fs2")).chain(table).chain(args);
    let code =
        crate::chkfs2::run(args, &mut crate::output::Words::new(), &mut crate::output::Complaints::new());
    u8::try_from(code).unwrap_or(OPERATIONAL)
}

/// -r asks questions, as is done without; -v would have e2fsck say more. fsck(8) hands letters on as they come: `-fv` is one word.
fn without_r_and_v(args: Vec<OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        let letters = bytes.strip_prefix(b"-").filter(|l| !l.is_empty() && !l.starts_with(b"-"));
        // What stands behind -C is its value.
        let valued = letters.and_then(|l| l.iter().position(|&b| b == b'C'));
        let (word, value) = match letters {
            None => (arg.clone(), bytes == b"--table"),
            Some(letters) => {
                let (flags, rest) = letters.split_at(valued.unwrap_or(letters.len()));
                let flags = flags.iter().filter(|b| !b"rv".contains(b));
                let word: Vec<u8> = b"-".iter().chain(flags).chain(rest).copied().collect();
                (OsString::from_vec(word), rest == b"C")
            }
        };
        let all = bytes == b"--";
        if letters.is_none() || word != "-" {
            kept.push(word);
        }
        if all {
            kept.extend(args);
            break;
        }
        kept.extend(value.then(|| args.next()).flatten());
    }
    kept
}

/// Whether there is an ext2 volume without a replica table on inode 5.
fn is_plain(device: &Path) -> bool {
    let Ok(volume) = crate::mkfs2::open(device, false) else { return false };
    let mut io = StoreIo::new(&volume);
    let Ok(layout) = Layout::read(&mut io) else { return false };
    matches!(TableFile::find(&layout, &mut io), Ok(None))
}

/// What `table=` says in the device's line of fstab. fsck(8) takes another file by the same variable.
fn table_by_fstab(device: &Path) -> Option<PathBuf> {
    let file = std::env::var_os("FSTAB_FILE").unwrap_or_else(|| "/etc/fstab".into());
    table_in(&std::fs::read(file).ok()?, device)
}

fn table_in(fstab: &[u8], device: &Path) -> Option<PathBuf> {
    let device = device.canonicalize().ok()?;
    fstab.split(|&b| b == b'\n').find_map(|line| {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|f| !f.is_empty());
        let source = fields.next().filter(|f| !f.starts_with(b"#"))?;
        let (kind, options) = (fields.nth(1)?, fields.next()?);
        if kind != b"fs2" || source_of(source).canonicalize().ok()? != device {
            return None;
        }
        // As the mount takes it: what is quoted may hold a comma, and the last counts.
        let options = split(&String::from_utf8(unescape(options)).ok()?);
        let path = options.iter().rev().find_map(|o| o.strip_prefix("table="))?;
        Some(PathBuf::from(path.trim_matches('"')))
    })
}

/// Where a line's first field leads: a path, or a tag by udev's links.
fn source_of(field: &[u8]) -> PathBuf {
    let tags: [(&[u8], &str); 4] = [
        (b"UUID=", "by-uuid"),
        (b"LABEL=", "by-label"),
        (b"PARTUUID=", "by-partuuid"),
        (b"PARTLABEL=", "by-partlabel"),
    ];
    for (tag, links) in tags {
        if let Some(value) = field.strip_prefix(tag) {
            let value = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
            return Path::new("/dev/disk").join(links).join(OsStr::from_bytes(&link_name(&unescape(value))));
        }
    }
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// A tag's value as udev has it in the name of a link: what is neither a letter, a digit nor one of a few signs as a backslash, x and two
/// hexadecimal digits, but for letters of other alphabets.
fn link_name(value: &[u8]) -> Vec<u8> {
    let is_text = std::str::from_utf8(value).is_ok();
    let mut name = Vec::new();
    for &byte in value {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => name.push(byte),
            _ if b"#+-.:=@_".contains(&byte) || is_text && !byte.is_ascii() => name.push(byte),
            _ => name.extend(format!("\\x{byte:02x}").into_bytes()),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `fsck -fv` of a volume was wrong usage, and nothing was checked.
    #[test]
    fn letters_that_say_nothing_here_are_left_out_of_every_word() {
        for (line, kept) in [
            ("-fv d", "-f d"),
            ("-vp -r -v d", "-p d"),
            ("-avf -rv d", "-af d"),
            ("-rC -1 -y d", "-C -1 -y d"),
            ("-vC0 -vfC5 d", "-C0 -fC5 d"),
            ("--table -v -v d", "--table -v d"),
            ("--table=/v -f d", "--table=/v -f d"),
            ("-v -- -rv", "-- -rv"),
            ("-fn - d", "-fn - d"),
        ] {
            let args = line.split(' ').map(OsString::from).collect();
            assert_eq!(
                without_r_and_v(args),
                kept.split(' ').map(OsString::from).collect::<Vec<_>>(),
                "{line}"
            );
        }
    }

    /// A table named in quotes, or of a volume named by a label with a blank in it, was not found, and e2fsck alone checked the volume.
    #[test]
    fn the_line_of_the_device_says_where_its_table_is() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two, three) =
            (dir.path().join("one disk"), dir.path().join("two"), dir.path().join("three"));
        std::fs::write(&one, "").unwrap();
        std::fs::write(&two, "").unwrap();
        std::fs::write(&three, "").unwrap();
        let at = dir.path().display();
        let fstab = format!(
            "# {at}/two /a fs2 table=/no\n\n{at}/two /b ext2 table=/no 0 0\n{at}/gone /c fs2 table=/no\nUUID=\"none\" /d fs2 table=/no\n\
             {at}/one\\040disk\t/srv fs2  nofail,table=/ssd/a\\040b.fs2,ro 0 2\n{at}/two /e fs2 defaults 0 2\nshort\n\
             {at}/three /f fs2 table=/no,x-a=\"b,table=/no\",table=\"/ssd/a,b.fs2\" 0 2\n"
        );
        let found = |device: &Path| table_in(fstab.as_bytes(), device);
        assert_eq!(found(&one), Some(PathBuf::from("/ssd/a b.fs2")));
        assert_eq!(found(&two), None);
        assert_eq!(found(&three), Some(PathBuf::from("/ssd/a,b.fs2")), "as mount.fs2 takes it");
        assert_eq!(found(Path::new("/nowhere")), None);
        assert_eq!(source_of(b"LABEL=my\\040disk"), Path::new("/dev/disk/by-label/my\\x20disk"));
        assert_eq!(
            source_of("LABEL=a/b\\134$\u{e9}_1".as_bytes()),
            Path::new("/dev/disk/by-label/a\\x2fb\\x5c\\x24\u{e9}_1")
        );
        assert_eq!(source_of(b"UUID=\"1-2\""), Path::new("/dev/disk/by-uuid/1-2"));
    }
}
