//! Free and used blocks of one group, from its bitmap.

use crate::layout::Layout;
use crate::problem::Problem;
use fs2_block::{BlockNo, BlockRange};

/// One group's block bitmap, checked: every block of static metadata in the group is in use.
#[derive(Clone, Copy, Debug)]
pub struct FreeMap<'a> {
    blocks: BlockRange,
    bytes: &'a [u8],
}

impl<'a> FreeMap<'a> {
    /// The map of group `group` from the bytes of its bitmap block.
    ///
    /// # Errors
    /// [`Problem::Corrupt`] where there are too few bytes, or static metadata is marked free.
    pub fn new(layout: &Layout, group: u32, bytes: &'a [u8]) -> Result<FreeMap<'a>, Problem> {
        let blocks = layout.group_blocks(group);
        let at = || format!("block bitmap of group {group}");
        if bytes.len() < blocks.len().div_ceil(8) as usize {
            return Err(Problem::corrupt(at(), format!("{} bytes for {} blocks", bytes.len(), blocks.len())));
        }
        let map = FreeMap { blocks, bytes };
        for fixed in layout.static_metadata_in(blocks) {
            if let Some(free) = map.find(fixed, true).next() {
                return Err(Problem::corrupt(at(), format!("static metadata at {free} is marked free")));
            }
        }
        Ok(map)
    }

    /// The blocks it speaks of.
    pub fn blocks(&self) -> BlockRange {
        self.blocks
    }

    /// Whether `block` is free; `false` outside the group.
    pub fn is_free(&self, block: BlockNo) -> bool {
        self.blocks.contains(block) && {
            let bit = block.0 - self.blocks.start();
            self.bytes[bit as usize / 8] & (1 << (bit % 8)) == 0
        }
    }

    /// Free ranges in block order; neither touch.
    pub fn free_runs(&self) -> Vec<BlockRange> {
        self.find(self.blocks, true).collect()
    }

    /// Used ranges in block order; neither touch.
    pub fn used_runs(&self) -> Vec<BlockRange> {
        self.find(self.blocks, false).collect()
    }

    /// Number of free blocks.
    pub fn free_count(&self) -> u32 {
        let bits = self.blocks.len();
        let (whole, rest) = self.bytes.split_at(bits as usize / 8);
        let last = rest.first().map_or(0, |byte| (!byte & ((1 << (bits % 8)) - 1)).count_ones());
        whole.iter().map(|byte| byte.count_zeros()).sum::<u32>() + last
    }

    /// Runs of free (or used) blocks inside `within`, itself inside the group.
    fn find(&self, within: BlockRange, free: bool) -> impl Iterator<Item = BlockRange> + use<'a> {
        let FreeMap { blocks, bytes } = *self;
        let mut from = within.start();
        std::iter::from_fn(move || {
            let bit = |block: u32| block - blocks.start();
            let start = next(bytes, bit(from), bit(within.end()), !free);
            let end = next(bytes, start, bit(within.end()), free);
            from = blocks.start() + end;
            (start < end).then(|| BlockRange::new(blocks.start() + start, blocks.start() + end))
        })
    }
}

/// The first bit from `from` on whose value is `value`, `end` where there is none.
fn next(bytes: &[u8], mut from: u32, end: u32, value: bool) -> u32 {
    let skip = if value { 0 } else { u64::MAX };
    while from < end {
        // Up to 64 bits at a time, from any bit on.
        let (rest, shift) = (&bytes[from as usize / 8..], from % 8);
        let mut chunk = [0; 8];
        let len = rest.len().min(8);
        chunk[..len].copy_from_slice(&rest[..len]);
        let known = 8 * len as u32 - shift;
        let found = ((u64::from_le_bytes(chunk) ^ skip) >> shift).trailing_zeros();
        if found < known {
            return (from + found).min(end);
        }
        from += known;
    }
    end
}

/// Free ranges of group `group` from its bitmap bytes; bits beyond the group's end are ignored, and
/// so is everything beyond the bytes given (it counts as used).
pub fn free_runs(layout: &Layout, group: u32, bytes: &[u8]) -> Vec<BlockRange> {
    clipped(layout, group, bytes).free_runs()
}

/// Used ranges of group `group`, as [`free_runs`].
pub fn used_runs(layout: &Layout, group: u32, bytes: &[u8]) -> Vec<BlockRange> {
    clipped(layout, group, bytes).used_runs()
}

fn clipped<'a>(layout: &Layout, group: u32, bytes: &'a [u8]) -> FreeMap<'a> {
    let blocks = layout.group_blocks(group);
    let known = u32::try_from(bytes.len()).unwrap_or(u32::MAX).saturating_mul(8).min(blocks.len());
    FreeMap { blocks: BlockRange::new(blocks.start(), blocks.start() + known), bytes }
}

/// Sets (or clears) the bits of `range`, which lies in the group that begins at block `start`.
pub(crate) fn mark(bytes: &mut [u8], start: u32, range: BlockRange, used: bool) {
    for block in range.iter() {
        let bit = block.0 - start;
        let mask = 1 << (bit % 8);
        if used { bytes[bit as usize / 8] |= mask } else { bytes[bit as usize / 8] &= !mask }
    }
}
