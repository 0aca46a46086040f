//! The table's place on disk, who owns it (R7), and the mark that stands in its header.

use std::sync::Arc;

use fs2_block::{BlockRange, BlockSize, Extent};
use fs2_ext2::TableInode;
use fs2_table::{Geometry, Header};

use super::{IoData, IoOp, Plant, Purpose, Target, Urgent, Volume};

/// The mark's erasure is tried so often in a row, each slot twice, before what wanted to change is refused;
/// what comes next tries again. A guess: a fault that passes costs time only, one that stays costs little of it.
pub(super) const ERASE_TRIES: u8 = 4;

/// Where the table's bytes are.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) target: Target,
    /// Bytes of the file, bytes of the target, in file order.
    pub(super) extents: Arc<Vec<(u64, Extent)>>,
    /// The blocks of the volume it occupies, its file's map included, in ascending order; none where it lives
    /// apart.
    pub(super) blocks: Arc<Vec<BlockRange>>,
    /// Inode 5; none where it lives apart.
    pub(super) inode: Option<TableInode>,
    pub(super) geometry: Geometry,
    /// Entry pages, as its header has them.
    pub(super) pages: u32,
    pub(super) volume_id: u64,
    /// Generation and slot of the header that stands.
    pub(super) generation: u64,
    pub(super) slot: usize,
    /// Added to the next generation: the slot that could not be read may hold a header with a higher one than what was.
    pub(super) jump: u64,
    /// The other slot holds what is no header: a client may have written it in a session that was killed (R7).
    pub(super) sole: bool,
    /// R7: no client has touched the table's blocks in this session, nor made another file of inode 5.
    pub(super) owned: bool,
}

impl Home {
    /// The stretches of the target that hold `len` bytes of the file from `offset`.
    pub(super) fn stretches(&self, offset: u64, len: u64) -> Vec<Extent> {
        let (mut out, mut at, end) = (Vec::new(), offset, offset + len);
        let first = self.extents.partition_point(|(from, e)| from + e.len() <= offset);
        for (from, e) in &self.extents[first..] {
            if at >= end {
                break;
            }
            let skip = at - from;
            let n = (e.len() - skip).min(end - at);
            out.push(Extent::new(e.offset() + skip, n));
            at += n;
        }
        out
    }

    /// Whether `range` has one of the table's blocks in it.
    pub(super) fn touches(&self, range: BlockRange) -> bool {
        touches(&self.blocks, range)
    }

    /// A header without a mark, for `slot`.
    pub(super) fn unmarked(&self, generation: u64, block_size: BlockSize) -> Header {
        Header { volume_id: self.volume_id, generation, block_size, pages: self.pages, mark: None }
    }
}

/// Whether `range` has a block of these in it, which ascend.
pub(crate) fn touches(blocks: &[BlockRange], range: BlockRange) -> bool {
    // The last that begins before the range's end.
    let at = blocks.partition_point(|b| b.start() < range.end());
    blocks[..at].last().is_some_and(|b| b.overlaps(range))
}

/// The mark on disk: while it stands, nothing on the volume may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkState {
    /// There is no table that could bear one.
    Gone,
    /// It stands, or it does not but what was read may be in a cache only (a flush may even have failed):
    /// a loss of power could bring back the one before.
    Stands,
    /// A header without it is being written; `failed` once a piece of it could not be.
    Erasing { failed: bool },
    /// And being flushed.
    Flushing,
    /// Erased in this session; the slot that held it may still be overwritten.
    Erased { old_slot: bool },
    /// It stands, and could not be erased so far.
    Stuck,
}

impl MarkState {
    pub(super) fn is_gone(self) -> bool {
        matches!(self, MarkState::Gone | MarkState::Erased { .. } | MarkState::Stuck)
    }

    pub(super) fn erase_failed(self) -> bool {
        self == MarkState::Stuck
    }
}

impl Volume {
    /// Something wants to change: the mark's erasure begins, if it stands. The one table write that
    /// stays allowed after the table's blocks are lost.
    pub(super) fn want_mark_erased(&mut self) {
        // Nothing has changed since it got stuck: what failed then may be had now.
        let again = self.mark == MarkState::Stuck && self.detach.is_none() && !self.flush_failed;
        if !(again || self.mark == MarkState::Stands) || self.planted(Plant::MarkKept) {
            return;
        }
        if self.planted(Plant::LostTableKeepsMark) && self.home.as_ref().is_some_and(|h| !h.owned) {
            self.mark = MarkState::Gone;
            return;
        }
        self.erase_tries = 0;
        self.write_unmarked();
    }

    /// Writes a header without a mark over the slot that does not stand, if it is ours; after a failure that is the other. Over the one that
    /// stands it may be torn, which costs the table.
    fn write_unmarked(&mut self) {
        self.mark = MarkState::Erasing { failed: false };
        let Some(home) = &mut self.home else { return };
        home.generation += 1 + std::mem::take(&mut home.jump);
        if !home.sole {
            home.slot = 1 - home.slot;
        }
        let header = home.unmarked(home.generation, self.block_size);
        let offset = home.geometry.header_slot_offset(home.slot);
        self.urge_table_write(offset, &header.encode(), || Purpose::EraseMark);
    }

    /// Writing the header without a mark, or the flush behind it, failed: once more, or not for now.
    pub(super) fn erase_failed(&mut self) {
        self.erase_tries += 1;
        if self.erase_tries < ERASE_TRIES {
            self.write_unmarked();
        } else {
            self.mark = MarkState::Stuck;
        }
    }

    /// Queues a write to the table's file ahead of everything else.
    pub(super) fn urge_table_write(&mut self, offset: u64, bytes: &[u8], purpose: impl Fn() -> Purpose) {
        let Some(home) = &self.home else { return };
        let mut at = 0;
        for extent in home.stretches(offset, bytes.len() as u64) {
            let part: Arc<[u8]> = bytes[at..at + extent.len() as usize].into();
            at += extent.len() as usize;
            self.urgent.push_back(Urgent {
                target: home.target,
                op: IoOp::Write { fua: false },
                extent,
                data: IoData::Engine(part),
                purpose: purpose(),
            });
        }
    }

    /// A client touches `range`: the table is the daemon's no more if one of its blocks is in it (R7).
    pub(super) fn table_touched(&mut self, range: BlockRange) {
        if let Some(home) = &mut self.home
            && home.owned
            && home.touches(range)
        {
            home.owned = false;
        }
    }

    /// A client writes `payload` (`None`: zeroes, or what a discard may leave) to `extent`: the table's blocks are another file's, or nobody's,
    /// once that changes inode 5 (R7).
    pub(super) fn table_inode_seen(&mut self, extent: Extent, payload: Option<&[u8]>) {
        if let Some(Home { owned, inode: Some(inode), .. }) = &mut self.home
            && inode.changed_by(extent, payload)
        {
            *owned = false;
        }
    }

    /// Whether table pages may be written now: the table is ours, nobody else wrote to the volume, and
    /// the mark is gone.
    pub(super) fn table_write_possible(&self) -> bool {
        let owned = self.home.as_ref().is_some_and(|h| h.owned || self.planted(Plant::TableLossIgnored));
        owned && !self.distrusted && self.mark.is_gone() && !self.mark.erase_failed()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A table's file of pieces of 1, 3 and 2 KiB, none where it would be expected.
    pub(in crate::volume) fn in_pieces() -> Home {
        let extents = [(0, 5000, 1024), (1024, 9000, 3072), (4096, 1000, 2048)];
        Home {
            target: Target::Volume,
            extents: Arc::new(extents.map(|(from, at, len)| (from, Extent::new(at, len))).to_vec()),
            blocks: Arc::new([3, 7].map(|b| BlockRange::new(b, b + 2)).to_vec()),
            inode: None,
            geometry: Geometry::new(6144, 1, BlockSize::B1024),
            pages: 0,
            volume_id: 7,
            generation: 1,
            slot: 0,
            jump: 0,
            sole: false,
            owned: true,
        }
    }

    #[test]
    fn stretches_are_the_bytes_of_the_file_in_order() {
        let home = in_pieces();
        let place = |byte: u64| {
            let (from, e) = home.extents.iter().find(|(from, e)| (*from..from + e.len()).contains(&byte))?;
            Some(e.offset() + byte - from)
        };
        for offset in (0..6144).step_by(256) {
            for len in (256..=8192).step_by(256) {
                let got: Vec<u64> = home
                    .stretches(offset, len)
                    .iter()
                    .flat_map(|e| (e.offset()..e.end()).step_by(256))
                    .collect();
                // What lies behind the file's end is nowhere.
                let want: Vec<u64> = (offset..offset + len).step_by(256).map_while(place).collect();
                assert_eq!(got, want, "{len} from {offset}");
            }
        }
        assert!(home.stretches(6144, 1).is_empty() && home.stretches(10, 0).is_empty());
        assert_eq!(home.stretches(1000, 100), [Extent::new(6000, 24), Extent::new(9000, 76)]);
    }

    #[test]
    fn its_blocks_are_touched_at_either_end() {
        let home = in_pieces();
        let touched: Vec<u32> = (0..12).filter(|&b| home.touches(BlockRange::new(b, b + 1))).collect();
        assert_eq!(touched, [3, 4, 7, 8]);
        let two: Vec<u32> = (0..12).filter(|&b| home.touches(BlockRange::new(b, b + 2))).collect();
        assert_eq!(two, [2, 3, 4, 6, 7, 8]);
        let three: Vec<u32> = (0..12).filter(|&b| home.touches(BlockRange::new(b, b + 3))).collect();
        assert_eq!(three, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(home.touches(BlockRange::new(0, 100)) && !home.touches(BlockRange::EMPTY));
    }
}
