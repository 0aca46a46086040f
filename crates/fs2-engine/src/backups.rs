//! The copies of the superblock beside the primary one, as a mark has them.
//!
//! A mount by one of them (`mount -o sb=N`) writes its times, its count of mounts and its state there, and leaves the primary
//! superblock and its descriptors as they were: only these bytes tell of it.

use fs2_block::{BlockNo, ReadAt};
use fs2_ext2::{Layout, UnreadCopy};
use fs2_table::Token;

/// Hashes every copy, in order of groups.
///
/// # Errors
/// [`UnreadCopy`] of the first that cannot be read: then nobody knows whether the volume was mounted by it.
pub(crate) fn hashes(layout: &Layout, dev: &mut dyn ReadAt) -> Result<Vec<u64>, UnreadCopy> {
    let mut hashes = Vec::with_capacity(layout.copies().len());
    layout.for_each_copy(dev, |copy| hashes.push(Token::hash_copy(copy)))?;
    Ok(hashes)
}

/// What is said of one that cannot be read.
pub(crate) fn unread(copy: &UnreadCopy) -> String {
    format!("{copy}: {}; whether the volume was mounted by it (sb=) cannot be told", copy.source)
}

/// The commands that write such a one anew. tune2fs alone does not: it writes 1 KiB, and of a page that such a sector is in the kernel
/// reads the rest before. What is not read but written whole a drive can mend; nothing else is in the block.
pub(crate) fn written_anew(block: BlockNo, block_bytes: u32, device: &str) -> String {
    format!(
        "dd if=/dev/zero of={device} bs={block_bytes} seek={block} count=1 oflag=direct conv=notrunc && tune2fs -C 0 {device}"
    )
}
