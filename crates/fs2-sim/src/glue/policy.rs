//! A policy that does as it is told.

use fs2_block::{BlockNo, BlockRange, Nanos};
use fs2_engine::policy::{Asked, Fetch, Place, Policy, PolicyKind, ReadSeen, Space};
use fs2_engine::{Brought, Head, Log};

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
    /// To be read for the policy's own sake, and captured.
    pub fetch: Option<u32>,
    /// Background work may begin.
    pub eager: bool,
    /// So many blocks are copied beside open requests.
    pub beside: Option<usize>,
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
            fetch: None,
            eager: false,
            beside: None,
            block_bytes: 1024,
            groups: None,
        }
    }
}

impl Policy for Scripted {
    fn kind(&self) -> PolicyKind {
        PolicyKind::None
    }

    fn choose(&mut self, _: Nanos, _: &Head, asked: &Asked<'_>) -> Option<usize> {
        let Asked { copies, .. } = *asked;
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

    fn copies_beside(&self) -> Option<usize> {
        self.beside
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

    fn fetch_at(&self, idle_since: Nanos) -> Option<Nanos> {
        self.fetch.map(|_| idle_since)
    }

    fn fetch(&mut self, _: Nanos, _: &dyn Space) -> Fetch {
        self.fetch.map_or(Fetch::Nothing, |b| Fetch::Read(BlockRange::one(BlockNo(b))))
    }

    fn fetched(&mut self, blocks: BlockRange, data: Brought<'_>, hashes: &[u64], log: &mut Log) {
        self.fetch = None;
        if data.is_nothing() {
            return;
        }
        let run = log.open();
        for (i, block) in blocks.iter().enumerate() {
            log.push(run, block, hashes[i], data.block(i, self.block_bytes));
        }
        log.close(run);
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
