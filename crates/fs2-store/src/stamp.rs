//! Has anybody else written the backing since?

use std::fmt;
use std::path::Path;

/// What a foreign writer would have moved, told apart within one boot of the machine.
///
/// Two equal stamps say: nobody wrote through this file or this device node's device in between. Not
/// seen: writes to a partition made through the whole disk (or the other way round), to a device
/// mapper's parts behind its back (a loop device's: see [`Store::stamps_below`](crate::Store::stamps_below)), by a machine that shares the disk, and content
/// changed by who may set the clock back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// What moves on a write.
    pub of: StampOf,
}

/// What moves on a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampOf {
    /// A regular file.
    File {
        /// `st_dev`.
        dev: u64,
        /// `st_ino`.
        ino: u64,
        /// Bytes.
        size: u64,
        /// Change time, nanoseconds since 1970. A change of name, links, mode or times moves it too; it is the one that nobody sets back.
        ctime_ns: i128,
        /// Modification time, nanoseconds since 1970.
        mtime_ns: i128,
        /// When the file was made, nanoseconds since 1970; 0 where its file system does not say. Another one of the same inode number was made
        /// at another time.
        made_ns: u64,
    },
    /// A block device.
    Device {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
        /// The kernel's number of this disk (a new one for each disk plugged in, each loop device set
        /// up), 0 where it has none.
        diskseq: u64,
        /// Sectors of 512 bytes written since the device appeared.
        sectors_written: u64,
        /// Sectors of 512 bytes discarded since the device appeared.
        sectors_discarded: u64,
    },
}

impl Stamp {
    /// One line without a newline, which [`Stamp::parse`] reads.
    pub fn to_line(&self) -> String {
        self.to_string()
    }

    /// Reads a line of [`Stamp::to_line`]; `None` where it is anything else.
    pub fn parse(line: &str) -> Option<Stamp> {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some("stamp1") {
            return None;
        }
        let mut value = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=');
        let boot_id = value("boot")?.to_owned();
        let of = match value("kind")? {
            "file" => StampOf::File {
                dev: value("dev")?.parse().ok()?,
                ino: value("ino")?.parse().ok()?,
                size: value("size")?.parse().ok()?,
                ctime_ns: value("ctime_ns")?.parse().ok()?,
                mtime_ns: value("mtime_ns")?.parse().ok()?,
                // Of an FS2 of before 2026-11-28 there is none.
                made_ns: match words.next() {
                    Some(word) => word.strip_prefix("made_ns=")?.parse().ok()?,
                    None => 0,
                },
            },
            "device" => StampOf::Device {
                major: value("major")?.parse().ok()?,
                minor: value("minor")?.parse().ok()?,
                diskseq: value("diskseq")?.parse().ok()?,
                sectors_written: value("written")?.parse().ok()?,
                sectors_discarded: value("discarded")?.parse().ok()?,
            },
            _ => return None,
        };
        words.next().is_none().then_some(Stamp { boot_id, of })
    }

    pub(crate) fn new(of: StampOf) -> Option<Stamp> {
        let boot_id = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id")).ok()?;
        let boot_id = boot_id.trim();
        (!boot_id.is_empty() && !boot_id.contains(char::is_whitespace))
            .then(|| Stamp { boot_id: boot_id.to_owned(), of })
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stamp1 boot={} ", self.boot_id)?;
        match self.of {
            StampOf::File { dev, ino, size, ctime_ns, mtime_ns, made_ns } => {
                write!(
                    f,
                    "kind=file dev={dev} ino={ino} size={size} ctime_ns={ctime_ns} mtime_ns={mtime_ns}"
                )?;
                if made_ns == 0 { Ok(()) } else { write!(f, " made_ns={made_ns}") }
            }
            StampOf::Device { major, minor, diskseq, sectors_written, sectors_discarded } => write!(
                f,
                "kind=device major={major} minor={minor} diskseq={diskseq} written={sectors_written} \
                 discarded={sectors_discarded}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_line_says_it_all(file: bool, a: u64, b: u64, c: u64, t: i64, u: i64, made: u64, major: u32, minor: u32) {
            let of = if file {
                StampOf::File { dev: a, ino: b, size: c, ctime_ns: t.into(), mtime_ns: u.into(), made_ns: made }
            } else {
                StampOf::Device { major, minor, diskseq: a, sectors_written: b, sectors_discarded: c }
            };
            let stamp = Stamp { boot_id: "0aa-9".into(), of };
            let line = stamp.to_line();
            prop_assert_eq!(Stamp::parse(&line), Some(stamp));
            // A line cut short is none or, cut within the last number, another stamp: never a panic.
            for cut in 0..line.len() {
                let other = Stamp::parse(&line[..cut]);
                prop_assert_ne!(other.map(|s| s.to_line()), Some(line.clone()));
            }
        }
    }

    #[test]
    fn anything_else_is_none() {
        assert_eq!(Stamp::parse(""), None);
        assert_eq!(Stamp::parse("stamp1 boot=x kind=pipe"), None);
        let long = "stamp1 boot=x kind=file dev=1 ino=2 size=3 ctime_ns=4 mtime_ns=5";
        assert!(Stamp::parse(long).is_some());
        assert_eq!(Stamp::parse(&format!("{long} more")), None);
    }
}
