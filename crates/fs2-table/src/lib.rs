//! The replica table: which block is copied where, in memory and on disk.
//!
//! The main type is [`ReplicaTable`]; [`Header`] with its [`Mark`], [`Geometry`] and [`Recovery`]
//! are its bytes on disk, laid out in `docs/format.md`. What may be copied, when a page is written
//! and whether a mark's token is equal to the volume is left to the engine and the tools, and so
//! are all reading and writing.
//!
//! ```
//! use fs2_block::{BlockNo, BlockRange};
//! use fs2_table::{Replica, ReplicaTable, Trust, content_hash};
//!
//! let mut table = ReplicaTable::new(1000, 1);
//! for k in 0..4 {
//!     table.insert(Replica {
//!         original: BlockNo(500 + k),
//!         replica: BlockNo(9000 + k),
//!         hash: content_hash(42, b"what the block holds"),
//!         trust: Trust::Verified,
//!     })?;
//! }
//! // A read of blocks 501 to 503 may be served from 9001 to 9003.
//! let copy = table.copy_of_run(BlockRange::new(501, 504)).next().unwrap();
//! assert_eq!(copy.first, BlockNo(9001));
//! // A write to 502 leaves no copy of all three.
//! table.remove_by_original(BlockRange::one(BlockNo(502)));
//! assert!(table.copy_of_run(BlockRange::new(501, 504)).next().is_none());
//! # Ok::<(), fs2_table::InsertRefused>(())
//! ```
#![forbid(unsafe_code)]

mod filter;
mod geometry;
mod header;
mod leaf;
mod originals;
mod page;
mod pairs;
mod recovery;
mod table;
mod vacated;
pub mod value;

use fs2_block::BlockNo;

pub use geometry::Geometry;
pub use header::{
    BitmapChecksums, ChecksumsDamage, Damage, FORMAT_VERSION, Header, HeaderReport, Mark, MarkRefused,
    Recovered, Token, TokenDiffers,
};
pub use page::{PAGE_BYTES, PAGE_ENTRIES, PageDamage, page_number};
pub use recovery::{Limits, Recovery, Report};
pub use table::{EncodedPage, InsertRefused, PageInMemory, PageVersion, ReplicaTable, RunCopy, Stretch};
pub use vacated::Vacated;

/// xxh3-64 of a block's content, seeded with the volume's key ([`Header::volume_id`]).
pub fn content_hash(key: u64, block: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(block, key)
}

/// Whether bytes of a table's file, from a multiple of [`PAGE_BYTES`] on, begin as a header slot or an entry page does, be it whole, torn
/// or of another version.
pub fn begins_as_ours(bytes: &[u8]) -> bool {
    bytes
        .first_chunk()
        .is_some_and(|first| [header::MAGIC, page::MAGIC].contains(&u32::from_le_bytes(*first)))
}

/// Whether an entry may be used for a read as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// The original was seen to hold what the hash says, in this session or in one that ended with
    /// a mark.
    Verified,
    /// A read goes to the original; if its hash is equal the entry becomes verified.
    Unverified,
}

/// One entry: a block and one copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    /// The block copied.
    pub original: BlockNo,
    /// The block holding the copy; no two entries name the same.
    pub replica: BlockNo,
    /// [`content_hash`] of both.
    pub hash: u64,
    /// Whether it may be used as it is.
    pub trust: Trust,
}
