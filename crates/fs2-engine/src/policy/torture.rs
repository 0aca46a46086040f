//! For tests: makes as much happen to replicas as can.

use fs2_block::{BlockRange, Nanos};

use super::{Asked, Fetch, Place, Policy, PolicyKind, ReadSeen, Shape, Space};
use crate::head::Head;
use crate::io::Brought;
use crate::log::Log;
use fs2_table::Replica;

/// Copies every read at once to a place drawn at random, reads copies wherever it can, evicts a stretch of
/// replicas every few reads. Unless its seed is 0 it has other blocks read for it, to copy them too.
#[derive(Clone, Debug)]
pub struct Torture {
    shape: Shape,
    state: u64,
    reads: u64,
    placed: Vec<BlockRange>,
    /// Reads since the last fetch, as far as they count, and what is to be fetched next.
    fetches: u64,
    written: u32,
    wanted: Option<BlockRange>,
}

/// Fetch once in so many reads.
const FETCH_EVERY: u64 = 2;

/// Blocks of a fetch at most.
const FETCH_BLOCKS: u64 = 8;

/// Evict once in so many reads.
const EVICT_EVERY: u64 = 16;

impl Torture {
    /// For a volume of this shape.
    pub fn new(shape: &Shape) -> Torture {
        Torture {
            shape: shape.clone(),
            state: shape.seed | 1,
            reads: 0,
            placed: Vec::new(),
            fetches: 0,
            written: 0,
            wanted: None,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        // xorshift64*
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below.max(1)
    }
}

impl Policy for Torture {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Torture
    }

    fn choose(&mut self, _: Nanos, _: &Head, asked: &Asked<'_>) -> Option<usize> {
        asked.copies.len().checked_sub(1)
    }

    fn read_seen(&mut self, seen: &ReadSeen<'_>, space: &dyn Space, log: &mut Log) {
        self.reads += 1;
        if self.shape.seed != 0 {
            self.fetches = (self.fetches + 1).min(FETCH_EVERY);
        }
        if seen.data.is_nothing() {
            return;
        }
        let run = log.open();
        let bytes = self.shape.block_bytes as usize;
        for (i, block) in seen.blocks.iter().enumerate() {
            if !space.has_replica(block) {
                log.push(run, block, seen.hashes[i], seen.data.block(i, bytes));
            }
        }
        log.close(run);
    }

    fn written(&mut self, blocks: BlockRange, _: &[Replica]) {
        self.written = blocks.start();
    }

    fn idle(&mut self, _: Nanos, log: &mut Log) {
        log.close_all();
    }

    fn eager(&self) -> bool {
        true
    }

    fn copies_beside(&self) -> Option<usize> {
        Some(1)
    }

    fn place(&mut self, want: u32, _: &Head, space: &dyn Space) -> Place {
        let groups = u64::from(self.shape.groups());
        let from = self.draw(groups);
        for g in 0..groups {
            let group = ((from + g) % groups) as u32;
            let Some(runs) = space.vacant(group) else { return Place::NeedsGroup(group) };
            if runs.is_empty() {
                continue;
            }
            let run = runs[self.draw(runs.len() as u64) as usize];
            let len = want.min(run.len());
            let slack = u64::from(run.len() - len);
            let at = run.start() + self.draw(slack + 1) as u32;
            let place = BlockRange::new(at, at + len);
            if self.placed.len() < 64 {
                self.placed.push(place);
            } else {
                let i = self.draw(64) as usize;
                self.placed[i] = place;
            }
            return Place::At(place);
        }
        Place::Nowhere
    }

    fn fetch_at(&self, idle_since: Nanos) -> Option<Nanos> {
        (self.wanted.is_some() || self.fetches >= FETCH_EVERY).then_some(idle_since)
    }

    fn fetch(&mut self, _: Nanos, space: &dyn Space) -> Fetch {
        if self.wanted.is_none() && self.fetches >= FETCH_EVERY {
            self.fetches = 0;
            // Around what was written last: it may be written again.
            let len = 1 + self.draw(FETCH_BLOCKS) as u32;
            let at = self.written.saturating_sub(self.draw(u64::from(len)) as u32);
            self.wanted = Some(BlockRange::new(at, at + len));
        }
        let fresh = self.wanted.filter(|w| w.iter().all(|b| !space.has_replica(b)));
        self.wanted = fresh;
        fresh.map_or(Fetch::Nothing, Fetch::Read)
    }

    fn fetched(&mut self, blocks: BlockRange, data: Brought<'_>, hashes: &[u64], log: &mut Log) {
        self.wanted = None;
        if data.is_nothing() {
            return;
        }
        let run = log.open();
        let bytes = self.shape.block_bytes as usize;
        for (i, block) in blocks.iter().enumerate() {
            log.push(run, block, hashes[i], data.block(i, bytes));
        }
        log.close(run);
    }

    fn evict(&mut self) -> Option<BlockRange> {
        if self.reads < EVICT_EVERY || self.placed.is_empty() {
            return None;
        }
        self.reads = 0;
        let i = self.draw(self.placed.len() as u64) as usize;
        Some(self.placed.swap_remove(i))
    }

    fn hot_region(&self) -> Option<BlockRange> {
        None
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }

    fn digest(&self) -> String {
        format!(
            "{} {} {:?} {} {} {:?}",
            self.state, self.reads, self.placed, self.fetches, self.written, self.wanted
        )
    }
}
