//! Inodes, as they lie in a group's inode table.

use crate::layout::Layout;
use crate::problem::Problem;
use crate::raw::{le16, le32, put16, put32};
use fs2_block::{BlockNo, ReadAt};

/// Bytes of an inode that every revision has.
pub(crate) const INODE_BYTES: usize = 128;
/// The root directory.
pub const ROOT_INO: u32 = 2;
/// The inode reserved for a boot loader; it holds the replica table.
pub const TABLE_INO: u32 = 5;
/// The inode that owns the blocks reserved for growing.
pub const RESIZE_INO: u32 = 7;
/// File type bits of a mode.
pub const MODE_TYPE: u16 = 0o170_000;
/// A regular file.
pub const MODE_REGULAR: u16 = 0o100_000;
/// A directory.
pub const MODE_DIRECTORY: u16 = 0o040_000;
/// A symbolic link.
pub const MODE_SYMLINK: u16 = 0o120_000;
/// Direct pointers in an inode.
pub(crate) const DIRECT: usize = 12;

const MODE: usize = 0;
const SIZE: usize = 4;
const ATIME: usize = 8;
const CTIME: usize = 12;
const MTIME: usize = 16;
const DTIME: usize = 20;
const LINKS: usize = 26;
const BLOCKS: usize = 28;
const FLAGS: usize = 32;
const BLOCK: usize = 40;
const FILE_ACL: usize = 104;
const SIZE_HIGH: usize = 108;

/// An inode as read: nothing in it is validated but the sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub ino: u32,
    /// Type and permission bits.
    pub mode: u16,
    /// Bytes in the file. Only regular files have the upper 32 bits.
    pub size: u64,
    /// Last access, seconds since 1970.
    pub atime: u32,
    /// Last change of the inode, seconds since 1970.
    pub ctime: u32,
    /// Last change of the content, seconds since 1970.
    pub mtime: u32,
    /// Deletion, seconds since 1970; 0 for a file in use.
    pub dtime: u32,
    /// Links.
    pub links: u16,
    /// Sectors of 512 bytes the file takes, indirect blocks and attributes included.
    pub blocks: u32,
    /// Flags.
    pub flags: u32,
    /// Twelve direct pointers, then single, double and triple indirect.
    pub block: [u32; 15],
    /// The block of its extended attributes, or 0.
    pub file_acl: u32,
}

impl Inode {
    /// Reads inode `ino`.
    ///
    /// # Errors
    /// [`Problem::Corrupt`] where the volume has no such inode; [`Problem::Io`].
    pub fn read(layout: &Layout, dev: &mut dyn ReadAt, ino: u32) -> Result<Inode, Problem> {
        let mut raw = [0; INODE_BYTES];
        let offset = offset_of(layout, ino)?;
        dev.read_at(offset, &mut raw)
            .map_err(|e| Problem::io(format!("reading inode {ino} at byte {offset}"), e))?;
        Ok(Inode::parse(ino, &raw))
    }

    pub(crate) fn parse(ino: u32, raw: &[u8; INODE_BYTES]) -> Inode {
        let mode = le16(raw, MODE);
        let high = if mode & MODE_TYPE == MODE_REGULAR { u64::from(le32(raw, SIZE_HIGH)) } else { 0 };
        let mut block = [0; 15];
        for (i, pointer) in block.iter_mut().enumerate() {
            *pointer = le32(raw, BLOCK + 4 * i);
        }
        Inode {
            ino,
            mode,
            size: high << 32 | u64::from(le32(raw, SIZE)),
            atime: le32(raw, ATIME),
            ctime: le32(raw, CTIME),
            mtime: le32(raw, MTIME),
            dtime: le32(raw, DTIME),
            links: le16(raw, LINKS),
            blocks: le32(raw, BLOCKS),
            flags: le32(raw, FLAGS),
            block,
            file_acl: le32(raw, FILE_ACL),
        }
    }

    /// Writes the fields over `raw`, leaving every other byte of the inode as it is.
    pub(crate) fn put(&self, raw: &mut [u8]) {
        put16(raw, MODE, self.mode);
        put32(raw, SIZE, self.size as u32);
        put32(raw, ATIME, self.atime);
        put32(raw, CTIME, self.ctime);
        put32(raw, MTIME, self.mtime);
        put32(raw, DTIME, self.dtime);
        put16(raw, LINKS, self.links);
        put32(raw, BLOCKS, self.blocks);
        put32(raw, FLAGS, self.flags);
        for (i, pointer) in self.block.iter().enumerate() {
            put32(raw, BLOCK + 4 * i, *pointer);
        }
        put32(raw, FILE_ACL, self.file_acl);
        put32(raw, SIZE_HIGH, (self.size >> 32) as u32);
    }

    /// Whether it is a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & MODE_TYPE == MODE_REGULAR
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.mode & MODE_TYPE == MODE_DIRECTORY
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.mode & MODE_TYPE == MODE_SYMLINK
    }

    /// Whether nobody uses it: no type, no link, no size, no block.
    pub fn is_empty(&self) -> bool {
        self.mode == 0
            && self.links == 0
            && self.size == 0
            && self.blocks == 0
            && self.flags == 0
            && self.file_acl == 0
            && self.block == [0; 15]
    }
}

/// The byte offset of inode `ino`.
pub(crate) fn offset_of(layout: &Layout, ino: u32) -> Result<u64, Problem> {
    let sb = layout.superblock();
    if ino == 0 || ino > sb.inodes_count() {
        return Err(Problem::corrupt(
            format!("inode {ino}"),
            format!("the volume has inodes 1 to {}", sb.inodes_count()),
        ));
    }
    let group = (ino - 1) / sb.inodes_per_group();
    let index = (ino - 1) % sb.inodes_per_group();
    let table = layout.groups()[group as usize].inode_table;
    Ok(table.extent(layout.block_size()).offset() + u64::from(index) * u64::from(sb.inode_size()))
}

/// The block that holds inode `ino`, and the inode's byte in it.
pub(crate) fn place_of(layout: &Layout, ino: u32) -> Result<(BlockNo, usize), Problem> {
    let offset = offset_of(layout, ino)?;
    let size = u64::from(layout.block_size().bytes());
    Ok((BlockNo((offset / size) as u32), (offset % size) as usize))
}
