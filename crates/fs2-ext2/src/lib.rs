//! All ext2 knowledge: layout, free blocks, liveness, the reserved inode that holds the replica
//! table. The main type is [`Layout`], read from a device through [`fs2_block::ReadAt`]. What the
//! table's bytes mean, which copies to make and how bytes reach a device is left to others.
//!
//! ```no_run
//! # fn main() -> Result<(), fs2_ext2::Problem> {
//! use fs2_ext2::{Layout, TableFile, free_runs};
//! let mut volume: Vec<u8> = std::fs::read("volume.img").unwrap();
//! let layout = Layout::read(&mut volume)?;
//! layout.check_usable()?;
//! let bitmap = layout.read_bitmap(&mut volume, 0)?;
//! println!("free in group 0: {:?}", free_runs(&layout, 0, &bitmap));
//! println!("table: {:?}", TableFile::find(&layout, &mut volume)?);
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
pub use liveness::{EDGE_BYTES, Freeze, Liveness, Seen, bit_runs};
pub use problem::{Place, Problem};
pub use superblock::{DESCRIPTOR_BYTES, STATE_ERROR, STATE_VALID, SUPERBLOCK_BYTES, Superblock};
pub use table_file::{TABLE_MODE, TableFile};
