//! All ext2 knowledge: layout, free blocks, liveness, the reserved inode that holds the replica
//! table. The main type is [`Layout`], read from a device through [`fs2_block::ReadAt`]. What the
//! table's bytes mean, which copies to make and how bytes reach a device is left to others.
//!
//! ```
//! # fn main() -> Result<(), fs2_ext2::Problem> {
//! use fs2_block::{BlockNo, BlockRange};
//! use fs2_ext2::{Layout, TableFile, free_runs};
//! # let mut volume = vec![0u8; 64 * 1024];
//! # for (at, value) in [
//! #     (0, 16u32), (4, 64), (12, 57), (20, 1), (32, 8192), (40, 16), (56, 0x1_EF53), (76, 1), (84, 11), (88, 128),
//! # ] {
//! #     volume[1024 + at..1024 + at + 4].copy_from_slice(&value.to_le_bytes());
//! # }
//! # for (at, value) in [(0, 3u32), (4, 4), (8, 5), (12, 57)] {
//! #     volume[2048 + at..2048 + at + 4].copy_from_slice(&value.to_le_bytes());
//! # }
//! # volume[3 * 1024] = 0b11_1111;
//! // `volume` holds 64 blocks of 1 KiB: a new ext2 volume of one group.
//! let layout = Layout::read(&mut volume)?;
//! layout.check_usable()?;
//! assert!(layout.is_static_metadata(BlockNo(6)));
//! let bitmap = layout.read_bitmap(&mut volume, 0)?;
//! assert_eq!(free_runs(&layout, 0, &bitmap), [BlockRange::new(7, 64)]);
//! // Give it a file for a table of 20 KiB: one indirect block, 20 blocks of data.
//! let table = fs2_ext2::convert::create(&mut volume, 20 * 1024, 0, &mut |_, _, _| Ok(()), &mut |_, _, _| Ok(()))?;
//! assert_eq!(table.blocks, [BlockRange::new(7, 28)]);
//! assert_eq!(TableFile::find(&layout, &mut volume)?, Some(table));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod block_map;
pub mod convert;
mod dir;
mod features;
mod free;
mod inode;
mod layout;
mod liveness;
mod problem;
mod raw;
mod superblock;
mod table_file;

pub use block_map::BlockMap;
pub use dir::{DirEntry, lookup, read_dir, read_file};
pub use features::*;
pub use free::{FreeMap, free_runs, used_runs};
pub use inode::{
    Inode, MODE_DIRECTORY, MODE_REGULAR, MODE_SYMLINK, MODE_TYPE, RESIZE_INO, ROOT_INO, TABLE_INO,
};
pub use layout::{GroupDesc, Layout};
pub use liveness::{Doubt, EDGE_BYTES, Freeze, Liveness, LivenessParts, Seen, bit_runs};
pub use problem::{Place, Problem, UnreadCopy};
pub use superblock::{
    COPIES_MAX, DESCRIPTOR_BYTES, STATE_ERROR, STATE_VALID, SUPERBLOCK_BYTES, Superblock, clear_clean_flag,
    uuid_text,
};
pub use table_file::{TABLE_MODE, TableFile, TableInode};
