//! What can be wrong with a volume.

use std::fmt;
use std::io;

use crate::superblock::COPIES_MAX;
use fs2_block::BlockNo;

/// The device failed at a copy of the superblock.
#[derive(Debug, thiserror::Error)]
#[error("block {block}, copy of the superblock in group {group}, cannot be read")]
pub struct UnreadCopy {
    /// The block that begins with it, and has nothing else.
    pub block: BlockNo,
    /// The block's size in bytes.
    pub block_bytes: u32,
    /// The group that begins with it.
    pub group: u32,
    /// What the device said.
    pub source: io::Error,
}

/// Where on a volume a problem lies, in the words a message uses: `block 30721, block bitmap of
/// group 3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(pub String);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn too_short(has: u64) -> String {
    match has {
        0 => "it is empty (0 bytes), and no ext2 volume".to_owned(),
        _ => format!("{has} bytes are no ext2 volume: its superblock alone ends at byte 2048"),
    }
}

/// Why a volume, or something on it, cannot be used. The device failed ([`Problem::Io`]), the
/// content is wrong ([`Problem::Corrupt`], [`Problem::Truncated`], ...), or this is not supported
/// ([`Problem::Unsupported`]); every message says which, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The device failed.
    #[error("{what} failed")]
    Io {
        /// What was being done, and where: `reading the superblock at byte 1024`.
        what: String,
        /// What the device said.
        source: io::Error,
    },
    /// No ext2 superblock at byte 1024.
    #[error("not an ext2 volume: no magic number 0xEF53 at byte 1080")]
    NotExt2,
    /// The same, but a copy of a superblock is where ext2 keeps one.
    #[error(
        "no magic number 0xEF53 at byte 1080, but a copy of an ext2 superblock in block {block}: \
         if this was an ext2 volume, run e2fsck -b {block} -B {block_bytes}"
    )]
    NoSuperblock {
        /// The block of the copy.
        block: u64,
        /// Bytes of a block.
        block_bytes: u64,
    },
    /// The device ends before a superblock would: an image that was made and never given a size, or lost all it held.
    #[error("{}", too_short(*has))]
    TooShort {
        /// Bytes the device holds.
        has: u64,
    },
    /// The superblock claims more than the device holds.
    #[error("the volume needs {needs} bytes but the device holds {has}")]
    Truncated {
        /// Bytes the volume takes.
        needs: u64,
        /// Bytes the device holds.
        has: u64,
    },
    /// Content that no healthy ext2 volume holds.
    #[error("{at}: {what}; run e2fsck -f")]
    Corrupt {
        /// What is wrong, with the numbers.
        what: String,
        /// Where.
        at: Place,
    },
    /// Features outside the allow-list, named as dumpe2fs names them.
    #[error("unsupported: {}", features.join(" "))]
    Unsupported {
        /// Each offending feature.
        features: Vec<String>,
    },
    /// The device failed at a copy of the superblock.
    #[error(transparent)]
    UnreadCopy(#[from] UnreadCopy),
    /// Without sparse_super each group has a copy of the superblock, all of which an attach has to read.
    #[error(
        "{copies} copies of the superblock, one in each group, are more than the {COPIES_MAX} that are compared at an attach; \
         unmount it, then run tune2fs -O sparse_super and e2fsck -f"
    )]
    TooManyCopies {
        /// Copies beside the primary one.
        copies: u32,
    },
    /// The superblock's clean flag is not set: mounted, or not unmounted in order.
    #[error("the volume is not clean (mounted, or not unmounted in order); unmount it, then run e2fsck -p")]
    Dirty,
    /// The superblock says that errors were found.
    #[error("the superblock says that the file system has errors; run e2fsck -f")]
    Errors,
    /// Too few free blocks.
    #[error("{what} needs {needs} blocks but only {has} are free")]
    NoSpace {
        /// What they are needed for.
        what: String,
        /// Blocks needed.
        needs: u64,
        /// Blocks free.
        has: u64,
    },
    /// Inode 5 is taken by something that is not the file of the replica table.
    #[error("inode 5 is in use but is not the file of a replica table: {why}")]
    NotTable {
        /// In what it differs.
        why: String,
    },
    /// The volume already has a file for the replica table.
    #[error("the volume already has a replica table of {bytes} bytes on inode 5")]
    HasTable {
        /// Its size in bytes.
        bytes: u64,
    },
    /// The volume has no file for the replica table: inode 5 is empty.
    #[error("the volume has no replica table: inode 5 is empty")]
    NoTable,
    /// A path that leads nowhere.
    #[error("{path}: no such file or directory")]
    NotFound {
        /// The path, as far as it was followed.
        path: String,
    },
    /// A path through something that is no directory.
    #[error("{path}: not a directory")]
    NotDirectory {
        /// The path, as far as it was followed.
        path: String,
    },
}

impl Problem {
    /// Content that no healthy volume holds: what is wrong, and where.
    pub fn corrupt(at: impl Into<String>, what: impl Into<String>) -> Problem {
        Problem::Corrupt { what: what.into(), at: Place(at.into()) }
    }

    /// A device error during `what`.
    pub fn io(what: impl Into<String>, source: io::Error) -> Problem {
        Problem::Io { what: what.into(), source }
    }
}
