//! Why a volume is served as a plain device, and what makes it active.

use std::fmt;

use fs2_block::BlockNo;
use fs2_ext2::Problem;
use fs2_table::{FORMAT_VERSION, TokenDiffers};

use crate::backups;

/// What is said where a table bears no mark.
pub(crate) const NO_MARK: &str = "the last session did not end cleanly, or trusted no replica itself";

/// Why a volume is served as a plain device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inactive {
    /// There is no ext2 file system. What was found instead.
    NotExt2(String),
    /// Features outside the allow-list, or another property FS2 does not support or cannot make sense of.
    Unsupported(String),
    /// Not cleanly unmounted.
    NotClean,
    /// The file system recorded errors.
    Errors,
    /// No replica table was found.
    NoTable,
    /// The table cannot be used. What is wrong with it.
    DamagedTable(String),
    /// The table is of a format version that this program does not know.
    OtherVersion(u32),
    /// No mark: the last session did not end cleanly, or trusted no replica itself.
    NoMark,
    /// The mark was written for another state of the volume. What differs.
    Token(TokenDiffers),
    /// A copy of the superblock cannot be read, and so not be compared with the mark.
    Unread {
        /// Which, and why.
        what: String,
        /// The block that begins with it.
        block: BlockNo,
        /// The block's size.
        block_bytes: u32,
    },
    /// The backing was written since the last session of this boot.
    WrittenSince,
    /// Its daemon died while it was in use.
    Orphaned,
}

impl fmt::Display for Inactive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inactive::NotExt2(what) | Inactive::Unsupported(what) | Inactive::Unread { what, .. } => {
                f.write_str(what)
            }
            Inactive::NotClean => f.write_str("the file system was not cleanly unmounted"),
            Inactive::Errors => f.write_str("the file system recorded errors"),
            Inactive::NoTable => f.write_str("there is no replica table (inode 5 is empty)"),
            Inactive::DamagedTable(what) => write!(f, "the replica table cannot be used: {what}"),
            Inactive::OtherVersion(version) => write!(
                f,
                "the replica table has format version {version}, and this FS2 ({}) knows version {FORMAT_VERSION}: \
                 serve it with the FS2 that wrote it, or make it a plain ext2 volume with that one's mkfs2 --undo",
                env!("CARGO_PKG_VERSION")
            ),
            Inactive::NoMark => f.write_str(NO_MARK),
            Inactive::Orphaned => f.write_str(
                "its daemon died while it was in use, and what the kernel has allocated since is not on the disk: to be unmounted first",
            ),
            Inactive::Token(what) => what.fmt(f),
            Inactive::WrittenSince => f.write_str(
                "the backing was written (or renamed, linked, or its mode or times changed), or taken away and brought back, since FS2 last \
                 served it",
            ),
        }
    }
}

impl Inactive {
    /// The command that makes the volume active, given its device's name and that of its table where it
    /// lives apart.
    pub fn remedy(&self, device: &str, table: Option<&str>) -> Option<String> {
        let table = table.map_or(String::new(), |t| format!("--table {t} "));
        match self {
            Inactive::Unsupported(what) if *what == journal_only() => {
                Some(format!("tune2fs -O ^has_journal {device} && mkfs2 {table}{device}"))
            }
            Inactive::NotExt2(_) | Inactive::Unsupported(_) | Inactive::OtherVersion(_) => None,
            Inactive::NoTable => Some(format!("mkfs2 {table}{device}")),
            Inactive::Unread { block, block_bytes, .. } => {
                let anew = backups::written_anew(*block, *block_bytes, device);
                Some(format!("{anew} && chkfs2 -f -p {table}{device}"))
            }
            _ => Some(format!("chkfs2 -f -p {table}{device}")),
        }
    }
}

/// How a volume is told of that has a journal and would do without.
fn journal_only() -> String {
    Problem::Unsupported { features: vec!["has_journal".into()] }.to_string()
}
