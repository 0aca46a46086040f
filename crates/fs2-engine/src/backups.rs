//! The copies of the superblock beside the primary one, as a mark has them.
//!
//! A mount by one of them (`mount -o sb=N`) writes its times, its count of mounts and its state there, and leaves the primary
//! superblock and its descriptors as they were: only these bytes tell of it.

use fs2_block::ReadAt;
use fs2_ext2::{Layout, Problem};
use fs2_table::Token;

/// Hashes every copy, in order of groups.
///
/// # Errors
/// [`Problem::UnreadCopy`] of the first that cannot be read: then nobody knows whether the volume was mounted by it.
pub(crate) fn hashes(layout: &Layout, dev: &mut dyn ReadAt) -> Result<Vec<u64>, Problem> {
    let mut hashes = Vec::with_capacity(layout.copies().len());
    layout.for_each_copy(dev, |copy| hashes.push(Token::hash_copy(copy)))?;
    Ok(hashes)
}

/// What is said of one that cannot be read.
pub(crate) fn unread(problem: &Problem) -> String {
    let cause = std::error::Error::source(problem).map(|e| format!(": {e}")).unwrap_or_default();
    format!("{problem}{cause}; whether the volume was mounted by it (sb=) cannot be told")
}
