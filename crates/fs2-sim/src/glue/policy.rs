//! A policy that does as it is told.

use fs2_block::{BlockNo, BlockRange, Extent, Nanos};
use fs2_engine::policy::{Place, Policy, PolicyKind, ReadSeen, Space};
use fs2_engine::{Head, Log};

/// Captures what it is told to, copies it where it is told, reads what it is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scripted {
    /// Reads are captured.
    pub capture: bool,
    /// A read takes a replica where there is one.
    pub prefer: bool,
    /// The next payload goes there, vacant or not.
    pub target: Option<u32>,
    /// To be evicted at the next event.
    pub evict: Option<BlockRange>,
    /// Background work may begin.
    pub eager: bool,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// The first block of the first group and the blocks of each; without, there is one group.
    pub groups: Option<(u32, u32)>,
}

impl Default for Scripted {
    /// Does nothing; blocks of 1 KiB, one group.
    fn default() -> Scripted {
        Scripted {
            capture: false,
            prefer: false,
            target: None,
            evict: None,
            eager: false,
            block_bytes: 1024,
            groups: None,
        }
    }
}

impl Policy for Scripted {
    fn kind(&self) -> PolicyKind {
        PolicyKind::None
    }

    fn choose(&mut self, _: Nanos, _: &Head, _: Extent, _: BlockNo, copies: &[BlockNo]) -> Option<usize> {
        if self.prefer { copies.len().checked_sub(1) } else { None }
    }

    fn read_seen(&mut self, seen: &ReadSeen<'_>, _: &dyn Space, log: &mut Log) {
        if !self.capture || seen.hashes.is_empty() {
            return;
        }
        let run = log.open();
        for (i, block) in seen.blocks.iter().enumerate() {
            log.push(run, block, seen.hashes[i], seen.data.block(i, self.block_bytes));
        }
        log.close(run);
    }

    fn idle(&mut self, _: Nanos, _: &mut Log) {}

    fn eager(&self) -> bool {
        self.eager
    }

    fn place(&mut self, want: u32, _: &Head, space: &dyn Space) -> Place {
        match self.target {
            Some(at) => {
                let group = |b: u32| self.groups.map_or(0, |(first, blocks)| (b - first) / blocks);
                let unknown = (group(at)..=group(at + want - 1)).find(|g| space.vacant(*g).is_none());
                unknown.map_or(Place::At(BlockRange::at(BlockNo(at), want)), Place::NeedsGroup)
            }
            None => Place::Nowhere,
        }
    }

    fn evict(&mut self) -> Option<BlockRange> {
        self.evict.take()
    }

    fn hot_region(&self) -> Option<BlockRange> {
        None
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }

    fn digest(&self) -> String {
        format!("{self:?}")
    }
}
