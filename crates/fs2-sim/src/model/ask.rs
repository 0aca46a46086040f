//! What a client may ask for.

use std::ops::Range;

use super::content::Value;
use super::kernel::Tracked;

/// Why a superblock is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A kernel mounts.
    Mount,
    /// A kernel unmounts.
    Unmount,
    /// A kernel freezes the file system (FIFREEZE): all is written, and it is marked clean.
    Freeze,
    /// A kernel thaws it.
    Thaw,
    /// A kernel remounts it read-only: as a freeze.
    ReadOnly,
    /// A kernel remounts it for writing: as a mount, with the same memory.
    Writable,
    /// `e2fsck` says that it is sound.
    Checked,
    /// `resize2fs` begins.
    Resizing,
    /// `resize2fs` ends; blocks more or fewer, in groups.
    Resized(i8),
}

impl Role {
    /// Whether a program writes it, not a kernel: the superblock alone, and not durable at once.
    pub fn is_tool(self) -> bool {
        matches!(self, Role::Checked | Role::Resizing | Role::Resized(_))
    }
}

/// Metadata that only programs write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meta {
    /// Inode 5 is cleared: the table's blocks are no one's.
    ClearTable,
    /// The descriptors, with one more group.
    Descriptors,
    /// The new group's block bitmap.
    NewBitmap,
    /// What the table's first page holds is written to a block that is to be the table's instead.
    MoveTable(Tracked),
    /// Inode 5 says so.
    TableMoved(Tracked),
}

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Read a block.
    Read(Tracked),
    /// Read one of a block's parts.
    ReadPart(Tracked, usize),
    /// Read a block and its neighbour.
    ReadTwo(Tracked),
    /// Fill a block.
    Write(Tracked, Value),
    /// Fill a block and its neighbour.
    WriteTwo(Tracked, Value, Value),
    /// Fill one of its parts.
    WritePart(Tracked, usize, Value),
    /// Write zeroes.
    Zero(Tracked),
    /// Write zeroes to one of its parts.
    ZeroPart(Tracked, usize),
    /// Discard.
    Discard(Tracked),
    /// Discard its first part.
    DiscardPart(Tracked),
    /// Discard a block and the first part of its neighbour.
    DiscardOdd(Tracked),
    /// Punch a hole: a discard.
    Punch(Tracked),
    /// Punch a hole: zeroes are wanted.
    PunchZeroes(Tracked),
    /// The block bitmap of a group, tracked bits as in the mask.
    Bitmap(u32, u16),
    /// The superblock: mount count and state.
    Super {
        /// Mount count.
        mounts: u16,
        /// State: 1 is clean.
        state: u16,
        /// Why.
        role: Role,
    },
    /// Other metadata.
    Meta(Meta),
    /// Flush.
    Flush,
}

impl Ask {
    /// The tracked blocks it is for, whole or in part.
    pub fn blocks(self) -> Range<Tracked> {
        match self {
            Ask::Read(b)
            | Ask::ReadPart(b, _)
            | Ask::Write(b, _)
            | Ask::WritePart(b, _, _)
            | Ask::Zero(b)
            | Ask::ZeroPart(b, _)
            | Ask::DiscardPart(b)
            | Ask::PunchZeroes(b)
            | Ask::Discard(b)
            | Ask::Punch(b) => b..b + 1,
            Ask::ReadTwo(b) | Ask::WriteTwo(b, _, _) | Ask::DiscardOdd(b) => b..b + 2,
            Ask::Bitmap(..) | Ask::Super { .. } | Ask::Meta(_) | Ask::Flush => 0..0,
        }
    }

    /// Whether it is for `block`.
    pub fn touches(self, block: Tracked) -> bool {
        self.blocks().contains(&block)
    }

    /// Which of its blocks `block` is, if it reads that.
    pub(super) fn reads(self, block: Tracked) -> Option<usize> {
        (self.is_read() && self.touches(block)).then(|| block - self.blocks().start)
    }

    /// Whether it is a read.
    pub(super) fn is_read(self) -> bool {
        matches!(self, Ask::Read(_) | Ask::ReadPart(..) | Ask::ReadTwo(_))
    }

    /// The parts of its blocks that it brings, if it is a read.
    pub(super) fn parts(self) -> Range<usize> {
        if let Ask::ReadPart(_, part) = self { part..part + 1 } else { 0..2 }
    }

    /// Whether it writes to `block`.
    pub fn writes(self, block: Tracked) -> bool {
        self.written().iter().any(|w| w.0 == block)
    }

    /// Whether what it covers is discarded.
    pub fn discards(self) -> bool {
        matches!(self, Ask::Discard(_) | Ask::DiscardOdd(_) | Ask::DiscardPart(_) | Ask::Punch(_))
    }

    /// Blocks, parts and values it writes.
    pub fn written(self) -> Vec<(Tracked, usize, Value)> {
        match self {
            Ask::Write(b, v) => vec![(b, 0, v), (b, 1, v)],
            Ask::WriteTwo(b, v, w) => vec![(b, 0, v), (b, 1, v), (b + 1, 0, w), (b + 1, 1, w)],
            Ask::WritePart(b, s, v) => vec![(b, s, v)],
            Ask::Zero(b) | Ask::PunchZeroes(b) => vec![(b, 0, 0), (b, 1, 0)],
            Ask::ZeroPart(b, s) => vec![(b, s, 0)],
            _ => Vec::new(),
        }
    }
}
