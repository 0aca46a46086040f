//! The volume while no daemon serves it: made, undone, checked, given replicas by hand.
//!
//! What `mkfs2` and `chkfs2` do, without I/O of its own: [`create`], [`undo`], [`check`], [`replicate`]
//! over [`Devices`]. Opening
//! and locking devices, running e2fsck and talking to people is left to the programs.
//!
//! Invariants:
//!
//! - O1: nothing is written before everything that can refuse has been asked.
//! - O2: a mark that stands is erased, durably, before anything it vouches for changes, and written
//!   only after everything it vouches for is durable: pages, flush, checksums of the bitmaps, flush,
//!   header, flush.
//! - O3: a page is flagged verified under a new mark only if both blocks of each of its entries were
//!   hashed in this run, or the mark that stood before vouched for it.
//! - O4: a block is scrubbed or filled only if the block bitmap calls it free, and a valid mark vouches for that bitmap or all of the
//!   volume was checked.
//! - O5: a first mark is written only for bitmaps that were checked after the volume was last mounted and its superblock last
//!   written: one that calls a file's block free costs ext2 nothing until it gives that block away, and FS2 copies into it.
//!
//! ```
//! use fs2_engine::offline::{CreateOptions, Devices, OfflineError, create};
//! // Zeroes are no ext2 volume: refused, and nothing written.
//! let mut image = vec![0u8; 1 << 20];
//! let options = CreateOptions { volume_id: 42, ..CreateOptions::default() };
//! let refused = create(&mut Devices::new(&mut image, None), &options, &mut |_| {});
//! assert!(matches!(refused, Err(OfflineError::Volume(_))));
//! assert!(image.iter().all(|&byte| byte == 0));
//! ```

mod check;
mod create;
mod mark;
mod place;
mod replicate;
#[cfg(test)]
mod tests;
mod undo;

use std::io;

use fs2_block::{BlockNo, WriteAt};
use fs2_ext2::Problem;
use fs2_table::FORMAT_VERSION;

use crate::io::{EDQUOT, EIO, ENOSPC};

pub use check::{CheckOptions, CheckReport, check};
pub use create::{CreateOptions, Created, create, table_bytes};
pub use mark::{Look, MarkFound, Unmarked, look, mark_again, unmark};
pub use replicate::{ReplicateOptions, Replicated, replicate};
pub(crate) use undo::other_volume;
pub use undo::{UndoOptions, Undone, undo};

/// The volume's device and, where the table lives apart, the table's.
pub struct Devices<'a> {
    volume: &'a mut (dyn WriteAt + 'a),
    table: Option<&'a mut (dyn WriteAt + 'a)>,
}

impl<'a> Devices<'a> {
    /// A volume with its table on inode 5, or at the beginning of `table`.
    pub fn new(volume: &'a mut (dyn WriteAt + 'a), table: Option<&'a mut (dyn WriteAt + 'a)>) -> Devices<'a> {
        Devices { volume, table }
    }

    /// The device the table's bytes are on.
    fn home(&mut self) -> &mut (dyn WriteAt + 'a) {
        match &mut self.table {
            Some(table) => &mut **table,
            None => &mut *self.volume,
        }
    }

    /// Makes both durable.
    fn flush(&mut self) -> Result<(), OfflineError> {
        self.volume.flush().map_err(OfflineError::io("flushing the volume"))?;
        match &mut self.table {
            Some(table) => table.flush().map_err(OfflineError::io("flushing the table")),
            None => Ok(()),
        }
    }
}

/// What is being done, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A pass of e2fsck; counted in what it likes. No function here has it.
    Check(u8),
    /// Reading the block bitmaps; counted in groups.
    Bitmaps,
    /// Writing the table; counted in pages.
    Table,
    /// Overwriting replicas; counted in blocks.
    Scrub,
    /// Writing copies; counted in blocks.
    Copy,
    /// Reading originals; counted in blocks.
    Originals,
    /// Reading replicas; counted in blocks.
    Replicas,
}

/// How far a phase has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Units done.
    pub done: u64,
    /// Units in all.
    pub total: u64,
}

/// Why nothing, or not everything, was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfflineError {
    /// The volume cannot be worked on, or its device failed.
    #[error(transparent)]
    Volume(#[from] Problem),
    /// Reading or writing failed.
    #[error("{what} failed: {source}")]
    Io {
        /// What was being done, and where.
        what: String,
        /// What the device said.
        source: io::Error,
    },
    /// The place given for the table is too small.
    #[error("the table needs {needs} bytes but its place has {has}")]
    TableTooSmall {
        /// Bytes needed.
        needs: u64,
        /// Bytes there.
        has: u64,
    },
    /// The place given for the table holds a table already.
    #[error("the place given for the table holds a replica table already")]
    TableThere,
    /// The place given for the table holds something else.
    #[error("the place given for the table holds something else: its first 128 KiB are not all zero")]
    NotEmpty,
    /// There is a table on inode 5 and another was given.
    #[error("the volume has its replica table on inode 5, not in the place given")]
    TableOnInode,
    /// The table in the place given is of another volume.
    #[error("the table in the place given is of another volume (UUID {0})")]
    OtherVolume(String),
    /// Both header slots are unreadable, or say what cannot be.
    #[error("the replica table cannot be used: {0}")]
    Damaged(String),
    /// Inode 5 is the table's file, by its header, and damaged.
    #[error("inode 5 is the file of the replica table, but damaged: {0}")]
    Remains(String),
    /// The volume's bitmaps may be wrong without anybody having noticed.
    #[error(
        "the volume was mounted or written since it was last checked: its bitmaps may call free what files have"
    )]
    Unchecked,
    /// The volume would not be served active.
    #[error("the volume is not marked as good: {0}")]
    NotMarked(MarkFound),
    /// A block that may not or cannot be copied.
    #[error("block {block} cannot be copied: {why}")]
    NotToCopy {
        /// Which.
        block: BlockNo,
        /// Why.
        why: &'static str,
    },
    /// There is nothing to copy.
    #[error("every block asked for is free: there is nothing to copy")]
    NothingToCopy,
    /// More blocks than the table has entries left.
    #[error("{needs} blocks are to be copied but the table has room for {has} more")]
    TableFull {
        /// Blocks to copy.
        needs: u64,
        /// Entries left.
        has: u64,
    },
    /// Too few free blocks for the copies.
    #[error("{needs} blocks are to be copied but only {has} are free and hold no other copy")]
    NoRoom {
        /// Blocks to copy.
        needs: u64,
        /// Blocks that may take copies.
        has: u64,
    },
    /// Written by a later version of FS2.
    #[error("the replica table has format version {0}; this program knows version {FORMAT_VERSION}")]
    Newer(u32),
}

const ENODATA: i32 = 61;
const EILSEQ: i32 = 84;

/// Whether an error says that the device fails there. A disk's bad sector is ENODATA to who reads it past the page cache.
fn is_medium(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(EIO | ENODATA | EILSEQ))
}

/// The command by which e2fsck finds blocks that fail as `what` did, and gives them to no file any more, the table's neither.
fn leave_out(what: &str, device: &str) -> String {
    // What can be read and not written is found only by writing it.
    let writes = ["writing", "zeroing", "scrubbing", "copying"].iter().any(|w| what.starts_with(w));
    format!("e2fsck -f {} -y {device}", if writes { "-c -c" } else { "-c" })
}

/// What tune2fs takes away again from a volume that mke2fs made an ext2 one: tried with each, e2fsprogs 1.47.0. (64bit is resize2fs's,
/// casefold is refused by earlier ones.)
const CLEARED_BY_TUNE2FS: [&str; 13] = [
    "has_journal",
    "fast_commit",
    "mmp",
    "flex_bg",
    "metadata_csum_seed",
    "huge_file",
    "uninit_bg",
    "dir_nlink",
    "extra_isize",
    "quota",
    "metadata_csum",
    "read-only",
    "project",
];

/// How tune2fs is told to take these features away, where it can.
fn without(features: &[String]) -> Option<String> {
    if !features.iter().all(|name| CLEARED_BY_TUNE2FS.contains(&name.as_str())) {
        return None;
    }
    let mut names: Vec<String> = features.iter().map(|name| format!("^{name}")).collect();
    // The one leaves the other behind.
    if names.iter().any(|name| name == "^metadata_csum") && !names.iter().any(|name| name == "^uninit_bg") {
        names.push("^uninit_bg".into());
    }
    Some(names.join(","))
}

/// What helps where `what` could not be read or written, as far as something does.
pub fn below_remedy(what: &str, e: &io::Error, device: &str, table: Option<&str>) -> Option<String> {
    let table = table.map_or(String::new(), |path| format!(" --table {path}"));
    let check = format!("chkfs2 -f -p{table} {device}");
    let fails = "the device fails there, its kernel's log says how";
    match e.raw_os_error() {
        Some(ENOSPC | EDQUOT) => Some(format!("make room in the file system that holds it, then: {check}")),
        _ if !is_medium(e) => None,
        // No program mends these in place: what e2fsck takes from a copy of them it cannot write.
        _ if what.contains("superblock") || what.contains("descriptors") => Some(format!(
            "{fails}; copy what can be read to another disk (ddrescue), and check that: chkfs2 says how its superblock is had back"
        )),
        _ => Some(format!(
            "{fails}; to leave bad sectors of a disk out: {}, then: {check}",
            leave_out(what, device)
        )),
    }
}

impl OfflineError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> OfflineError {
        let what = what.into();
        move |source| OfflineError::Io { what, source }
    }

    /// The command that leaves out of use what the device fails at, if that is what happened.
    pub fn leaves_out(&self, device: &str) -> Option<String> {
        match self {
            OfflineError::Io { what, source } | OfflineError::Volume(Problem::Io { what, source }) => {
                is_medium(source).then(|| leave_out(what, device))
            }
            _ => None,
        }
    }

    /// Whether what holds the device's bytes, or the table's, has no room for more.
    pub fn is_no_room(&self) -> bool {
        match self {
            OfflineError::Io { source, .. } | OfflineError::Volume(Problem::Io { source, .. }) => {
                matches!(source.raw_os_error(), Some(ENOSPC | EDQUOT))
            }
            _ => false,
        }
    }

    /// What to do next where the message does not say it, given the device's name and, where the table
    /// lives apart, its option.
    pub fn remedy(&self, device: &str, table: Option<&str>) -> Option<String> {
        let path = table;
        let table = table.map_or(String::new(), |path| format!(" --table {path}"));
        Some(match self {
            OfflineError::Io { what, source } | OfflineError::Volume(Problem::Io { what, source }) => {
                return below_remedy(what, source, device, path);
            }
            OfflineError::Volume(Problem::NotExt2) => {
                format!("check the path; to make an ext2 volume (this erases it): mke2fs -t ext2 {device}")
            }
            OfflineError::Volume(Problem::NoSuperblock { block, block_bytes }) => {
                format!("e2fsck -b {block} -B {block_bytes} {device}, then: chkfs2 -f -p{table} {device}")
            }
            OfflineError::Volume(Problem::TooShort { .. }) => format!(
                "check the path, and restore what it held; to make a new volume of an image: truncate -s SIZE {device}; mke2fs -t ext2 {device}"
            ),
            OfflineError::Volume(Problem::Truncated { .. }) => {
                format!("restore the missing part, or run e2fsck -f {device}")
            }
            OfflineError::Volume(Problem::Unsupported { features }) => {
                let helps = match without(features) {
                    Some(options) if features.iter().eq(["has_journal"]) => {
                        format!("remove the journal: tune2fs -O {options} {device}")
                    }
                    Some(options) => format!("remove what ext2 has not: tune2fs -O {options} {device}"),
                    None => "FS2 takes volumes as mke2fs -t ext2 makes them".into(),
                };
                format!("{helps}; to check it as it is: e2fsck -f {device}")
            }
            OfflineError::Volume(Problem::UnreadCopy(copy)) => {
                let anew = crate::backups::written_anew(copy.block, copy.block_bytes, device);
                format!("have it written anew, which a drive may mend: {anew}")
            }
            OfflineError::Volume(Problem::NoSpace { .. }) => {
                "free some space, ask for less with --space, or put the table elsewhere with --table".into()
            }
            OfflineError::Volume(Problem::HasTable { .. }) => {
                format!(
                    "it is an FS2 volume already; if mkfs2 was interrupted: chkfs2 -f -p {device}; to undo it: mkfs2 --undo {device}"
                )
            }
            OfflineError::Volume(Problem::NotTable { .. }) => {
                format!(
                    "no table of FS2's is found there; e2fsck -f {device} mends a damaged one as far as can be; where it finds nothing and \
                     nobody needs the file: debugfs -w -R 'clri <5>' {device}; e2fsck -fy {device}; and beside something else the table \
                     goes elsewhere: mkfs2 --table PATH {device}"
                )
            }
            OfflineError::Remains(_) => {
                format!(
                    "take away what is left of it, and make it anew: mkfs2 --undo {device} && mkfs2 {device}"
                )
            }
            OfflineError::Volume(Problem::NoTable) => format!("to make it an FS2 volume: mkfs2 {device}"),
            OfflineError::TableTooSmall { .. } => "ask for less with --space, or give a larger place".into(),
            OfflineError::TableThere => {
                format!("if mkfs2 was interrupted: chkfs2 -f -p{table} {device}; to undo it: mkfs2 --undo{table} {device}")
            }
            OfflineError::NotEmpty => {
                "give a new file or an empty device; to empty a place: dd if=/dev/zero of=PLACE bs=64K count=2 conv=notrunc".to_string()
            }
            OfflineError::TableOnInode => format!("leave --table out: chkfs2 -f -p {device}"),
            OfflineError::OtherVolume(_) => {
                format!(
                    "give the volume it belongs to; if this one's UUID was changed since, remove the table's file (of a \
                     device zero the first 128 KiB), then: mkfs2{table} {device}"
                )
            }
            OfflineError::Damaged(_) if table.is_empty() => {
                format!("make it anew: mkfs2 --undo {device} && mkfs2 {device}")
            }
            OfflineError::Damaged(_) => {
                format!("if it is this volume's table, empty its place by hand, then: mkfs2{table} {device}")
            }
            OfflineError::Unchecked => format!("check it first: e2fsck -f {device}"),
            OfflineError::NotMarked(_) => format!("check it first: chkfs2 -f -p{table} {device}"),
            OfflineError::NotToCopy { .. } | OfflineError::NothingToCopy => {
                "give blocks that files use; debugfs -R \"blocks PATH\" names a file's".into()
            }
            OfflineError::TableFull { .. } => {
                "copy fewer blocks, or make the table anew with a larger --space".into()
            }
            OfflineError::NoRoom { .. } => "copy fewer blocks".into(),
            OfflineError::Newer(_) => {
                "use the FS2 that wrote it; its mkfs2 --undo makes a plain ext2 volume of it".into()
            }
            _ => return None,
        })
    }
}
