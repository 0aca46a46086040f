//! Where the model meets the product: the image is given a table, the engine is driven, a checker
//! rewrites the mark. Nothing in here judges.

mod checker;
mod ground;
mod policy;

pub use checker::{Writer, check_table, check_weakly};
pub use ground::{Checker, Ground, Setup};
pub use policy::Scripted;

use fs2_block::BlockNo;
use fs2_engine::Volume;
use fs2_table::{Trust, content_hash};

/// The hash that a table's entries carry of a block's content.
pub fn hash_of(volume_id: u64, block: &[u8]) -> u64 {
    content_hash(volume_id, block)
}

/// Where the trusted replicas of a block are.
pub fn trusted_copies(volume: &Volume, block: BlockNo) -> Vec<BlockNo> {
    let trusted = volume.table().replicas_of(block).filter(|c| c.trust == Trust::Verified);
    trusted.map(|c| c.replica).collect()
}

/// Whether two machines have the same replicas, with their trust.
pub fn same_entries(one: &Volume, other: &Volume) -> bool {
    one.table().iter().eq(other.table().iter())
}
