//! What mount(8), umount(8), fsck(8) and mkfs(8) call for a file system of type `fs2`: the program `fs2` under the names
//! `mount.fs2`, `umount.fs2`, `fsck.fs2` and `mkfs.fs2`. The main function is [`run_by_name`]; what is done to volumes is left to
//! the modules that `fs2`, `chkfs2` and `mkfs2` call.

mod fsck;
mod mkfs;
mod mount;
mod options;
mod umount;

use std::ffi::OsString;
use std::path::Path;

/// Runs what the first argument names; `None` where it is no such name. Otherwise the exit code, as the caller of such a program
/// expects it.
pub fn run_by_name(args: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let mut args = args.into_iter();
    let first = args.next()?;
    let name = Path::new(&first).file_name()?.to_str()?;
    let (run, help): (fn(Vec<OsString>) -> u8, &str) = match name {
        "mount.fs2" => (mount::run, mount::HELP),
        "umount.fs2" => (umount::run, umount::HELP),
        "fsck.fs2" => (fsck::run, fsck::HELP),
        "mkfs.fs2" => (mkfs::run, mkfs::HELP),
        _ => return None,
    };
    let args: Vec<OsString> = args.collect();
    // Beside others each letter is whatever it is to that program.
    let is_asked =
        |letter: &str, word: &str| args.as_slice() == [letter] || args.iter().any(|arg| arg == word);
    if is_asked("-h", "--help") {
        println!("{help}");
    } else if is_asked("-V", "--version") {
        println!("{name} {}", env!("CARGO_PKG_VERSION"));
    } else {
        return Some(run(args));
    }
    Some(0)
}

/// Exit code of mount(8) and umount(8): the command line makes no sense.
const USAGE: u8 = 1;

/// Arguments as mount(8) and umount(8) give them to helpers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Helper {
    /// What stands without a dash: the source, then the directory.
    places: Vec<OsString>,
    /// Letters without a value.
    flags: String,
    /// After each `-o`.
    options: Vec<String>,
    /// After `-N`.
    namespace: Option<OsString>,
}

impl Helper {
    fn parse(args: Vec<OsString>) -> Result<Helper, String> {
        let mut helper = Helper::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let text = arg.to_str().unwrap_or_default();
            let Some(letters) = text.strip_prefix('-').filter(|l| !l.is_empty()) else {
                helper.places.push(arg);
                continue;
            };
            for (at, letter) in letters.char_indices() {
                if !"oNt".contains(letter) {
                    helper.flags.push(letter);
                    continue;
                }
                let rest = &letters[at + 1..];
                let value = if rest.is_empty() { args.next() } else { Some(rest.into()) };
                let value = value.ok_or(format!("-{letter} needs a value"))?;
                match letter {
                    'o' => {
                        let options = value.into_string();
                        helper.options.push(options.map_err(|o| format!("-o {}: no UTF-8", o.display()))?);
                    }
                    'N' => helper.namespace = Some(value),
                    // The subtype says nothing that is not known.
                    _ => {}
                }
                break;
            }
        }
        Ok(helper)
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }

    /// The first flag that is not among `known`, in words; and namespaces, which a daemon would be started in the wrong one of.
    fn odd(&self, known: &str) -> Result<(), String> {
        if let Some(flag) = self.flags.chars().find(|f| !known.contains(*f)) {
            return Err(format!("there is no option -{flag}"));
        }
        match &self.namespace {
            Some(ns) => Err(format!(
                "-N {}: the daemon belongs into the namespace of its mount; use nsenter --mount",
                ns.display()
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Helper, String> {
        Helper::parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn helpers_arguments() {
        // As util-linux 2.38 gives them.
        let h = parse("/dev/sdb1 /srv -v -o ro,policy=fs2").unwrap();
        assert_eq!(h.places, ["/dev/sdb1", "/srv"]);
        assert_eq!((h.flags.as_str(), h.options.as_slice()), ("v", &["ro,policy=fs2".to_string()][..]));
        let h = parse("-sfnv /dev/sdb1 /srv -oro -t fs2.x -N /proc/1/ns/mnt").unwrap();
        assert_eq!((h.flags.as_str(), h.options.len(), h.places.len()), ("sfnv", 1, 2));
        assert!(h.odd("sfnv").unwrap_err().contains("nsenter"));
        assert!(parse("a -z").unwrap().odd("sfnv").unwrap_err().contains("-z"));
        assert!(parse("a -o").is_err());
    }

    #[test]
    fn only_its_names_are_taken() {
        for other in ["fs2", "/usr/sbin/fs2", "mount.ext2", ""] {
            assert_eq!(run_by_name([OsString::from(other)]), None, "{other}");
        }
        assert_eq!(run_by_name([]), None);
    }
}
