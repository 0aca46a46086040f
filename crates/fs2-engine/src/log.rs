//! Payloads that wait to be copied, in the order in which they were read.
//!
//! Invariants:
//!
//! - I1: a block is in the log at most once, and its payload is what the block holds: whoever changes
//!   the block kills it here first.
//! - I2: the payloads take at most the bytes given at the start.
//! - I3: the order within a run is the order in which the blocks were read.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

use fs2_block::{BlockNo, BlockRange};

/// Names a run of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(u64);

/// What a block holds: its bytes, or, where nobody has any (a trace), how many there would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The block's bytes.
    Bytes(&'a [u8]),
    /// So many bytes, unseen.
    Unseen(usize),
}

impl Payload<'_> {
    /// Bytes it stands for.
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Unseen(len) => *len,
        }
    }

    /// Whether it stands for no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Payload<'a> {
        Payload::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(bytes: &'a [u8; N]) -> Payload<'a> {
        Payload::Bytes(bytes)
    }
}

/// A payload that is kept; unseen ones count as if they were there.
#[derive(Clone, Debug)]
enum Kept {
    Bytes(Box<[u8]>),
    Unseen(usize),
}

impl Kept {
    fn len(&self) -> usize {
        match self {
            Kept::Bytes(bytes) => bytes.len(),
            Kept::Unseen(len) => *len,
        }
    }
}

#[derive(Clone, Debug)]
struct LogBlock {
    original: BlockNo,
    hash: u64,
    /// `None` once the block changed, was copied or was dropped.
    data: Option<Kept>,
}

#[derive(Clone, Debug)]
struct Run {
    id: RunId,
    open: bool,
    blocks: VecDeque<LogBlock>,
    /// Blocks taken from the front so far: the index counts from the run's beginning.
    taken: usize,
}

/// Part of a run on its way to its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Originals and the hashes of their contents, in order.
    pub blocks: Vec<(BlockNo, u64)>,
    /// Their contents, one after the other; empty where they are unseen.
    pub data: Vec<u8>,
}

/// Payloads waiting to be copied. See the module.
#[derive(Clone, Debug)]
pub struct Log {
    runs: VecDeque<Run>,
    index: BTreeMap<u32, (RunId, usize)>,
    next: u64,
    bytes: usize,
    bytes_max: usize,
    dropped: u64,
}

impl Log {
    /// An empty log for at most `bytes_max` bytes of payload.
    pub fn new(bytes_max: usize) -> Log {
        Log { runs: VecDeque::new(), index: BTreeMap::new(), next: 0, bytes: 0, bytes_max, dropped: 0 }
    }

    /// Opens a run behind all others.
    pub fn open(&mut self) -> RunId {
        let id = RunId(self.next);
        self.next += 1;
        self.runs.push_back(Run { id, open: true, blocks: VecDeque::new(), taken: 0 });
        id
    }

    /// Closes a run: it may be copied.
    pub fn close(&mut self, id: RunId) {
        if let Some(r) = self.run_mut(id) {
            r.open = false;
        }
        self.drop_finished();
    }

    /// Closes every run.
    pub fn close_all(&mut self) {
        for r in &mut self.runs {
            r.open = false;
        }
        self.drop_finished();
    }

    /// Adds a block to the end of an open run. Refused where the block waits already, the run is
    /// closed or gone, or the log is full.
    pub fn push<'a>(
        &mut self,
        id: RunId,
        original: BlockNo,
        hash: u64,
        data: impl Into<Payload<'a>>,
    ) -> bool {
        let data = data.into();
        if self.bytes + data.len() > self.bytes_max {
            self.dropped += 1;
            return false;
        }
        if self.index.contains_key(&original.0) {
            return false;
        }
        let Some(run) = self.run_mut(id).filter(|r| r.open) else { return false };
        let at = run.taken + run.blocks.len();
        let kept = match data {
            Payload::Bytes(bytes) => Kept::Bytes(bytes.into()),
            Payload::Unseen(len) => Kept::Unseen(len),
        };
        run.blocks.push_back(LogBlock { original, hash, data: Some(kept) });
        self.index.insert(original.0, (id, at));
        self.bytes += data.len();
        true
    }

    /// Whether `block` waits here.
    pub fn contains(&self, block: BlockNo) -> bool {
        self.index.contains_key(&block.0)
    }

    /// The blocks of `range` changed: their payloads are void. Says how many there were.
    pub fn kill(&mut self, range: BlockRange) -> usize {
        if self.index.is_empty() {
            return 0;
        }
        let dead: Vec<_> = self.index.range(range.start()..range.end()).map(|(&o, &at)| (o, at)).collect();
        for &(original, (id, at)) in &dead {
            self.index.remove(&original);
            let run = self.run_mut(id).expect("the index names runs that are here");
            let block = &mut run.blocks[at - run.taken];
            let len = block.data.take().map_or(0, |d| d.len());
            self.bytes -= len;
        }
        if !dead.is_empty() {
            self.drop_finished();
        }
        dead.len()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.index.clear();
        self.bytes = 0;
    }

    /// Blocks that wait in closed runs.
    pub fn ready_blocks(&self) -> usize {
        self.runs
            .iter()
            .filter(|r| !r.open)
            .map(|r| r.blocks.iter().filter(|b| b.data.is_some()).count())
            .sum()
    }

    /// How many blocks the next batch would hold at most: those left of the first closed run.
    pub fn next_len(&self) -> usize {
        let first = self.runs.iter().find(|r| !r.open);
        first.map_or(0, |r| r.blocks.iter().filter(|b| b.data.is_some()).count())
    }

    /// Takes up to `n` blocks from the front of the first closed run.
    pub fn take(&mut self, n: usize) -> Option<Batch> {
        let run = self.runs.iter_mut().find(|r| !r.open)?;
        let mut batch = Batch { blocks: Vec::new(), data: Vec::new() };
        while batch.blocks.len() < n
            && let Some(block) = run.blocks.pop_front()
        {
            run.taken += 1;
            if let Some(data) = block.data {
                self.bytes -= data.len();
                self.index.remove(&block.original.0);
                batch.blocks.push((block.original, block.hash));
                if let Kept::Bytes(bytes) = &data {
                    batch.data.extend_from_slice(bytes);
                }
            }
        }
        self.drop_finished();
        (!batch.blocks.is_empty()).then_some(batch)
    }

    /// Bytes of payload held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Blocks refused for want of room since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether nothing waits, in open runs or closed ones.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    fn run_mut(&mut self, id: RunId) -> Option<&mut Run> {
        let at = self.runs.binary_search_by_key(&id, |r| r.id).ok()?;
        Some(&mut self.runs[at])
    }

    fn drop_finished(&mut self) {
        self.runs.retain(|r| r.open || r.blocks.iter().any(|b| b.data.is_some()));
    }

    /// Feeds what waits here, in order, without the runs' names.
    pub(crate) fn digest(&self, h: &mut impl Hasher) {
        for run in &self.runs {
            (run.open, run.blocks.len()).hash(h);
            for b in &run.blocks {
                (b.original, b.hash, b.data.is_some()).hash(h);
            }
        }
    }

    /// Asserts the invariants.
    pub fn check(&self) {
        let mut bytes = 0;
        let mut n = 0;
        for run in &self.runs {
            for (i, b) in run.blocks.iter().enumerate() {
                if let Some(d) = &b.data {
                    bytes += d.len();
                    n += 1;
                    assert_eq!(self.index.get(&b.original.0), Some(&(run.id, run.taken + i)), "log index");
                }
            }
        }
        assert_eq!((bytes, n), (self.bytes, self.index.len()), "log bytes and blocks");
        assert!(self.bytes <= self.bytes_max, "log of {} bytes", self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_kill_and_bound() {
        let mut log = Log::new(40);
        let (a, b) = (log.open(), log.open());
        assert!(log.push(a, BlockNo(5), 50, &[5; 10]));
        assert!(log.push(b, BlockNo(9), 90, &[9; 10]));
        assert!(log.push(a, BlockNo(2), 20, &[2; 10]));
        assert!(!log.push(b, BlockNo(5), 50, &[5; 10]), "waits already");
        assert!(log.push(a, BlockNo(7), 70, &[7; 10]));
        assert!(!log.push(a, BlockNo(8), 80, &[8; 10]), "full");
        assert_eq!(log.take(9), None, "open runs are not copied");
        log.close(a);
        log.check();
        assert_eq!(log.kill(BlockRange::new(2, 3)), 1);
        log.check();
        let first = log.take(1).unwrap();
        assert_eq!((first.blocks, first.data), (vec![(BlockNo(5), 50)], vec![5; 10]));
        log.check();
        assert_eq!(log.kill(BlockRange::new(7, 8)), 1);
        assert_eq!(log.take(1), None);
        log.close_all();
        assert_eq!(log.take(8).unwrap().blocks, [(BlockNo(9), 90)]);
        assert!(log.is_empty() && log.bytes() == 0);
    }
}
