//! Payloads that wait to be copied, in the order in which they were read.
//!
//! Invariants:
//!
//! - I1: a block is in the log at most once, and its payload is what the block holds: whoever changes
//!   the block kills it here first.
//! - I2: the payloads take at most the bytes given at the start.
//! - I3: the order within a run is the order in which the blocks were read, or the one a policy put them in.
//! - I4: memory of payloads that are gone, `SPARE_BYTES` of it at most, is kept for later ones.
//! - I5: of blocks that are gone a run remembers no more than of others it ever had, and `GONE` more: what is read and written in turns
//!   is killed and comes again, for as long as the run is open.
//! - I6: a block that was written since it was read keeps its turn before others ([`Batch::outdated`]), so that the order around it stays.
//!   Of closed runs of which nothing but turns is left there are `GONE` at most, and none where no payload waits.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use fs2_block::{BlockNo, BlockRange};

use crate::worth::UNAPPRAISED;

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

/// See I4. Single blocks are put there: the first use of a page that the kernel gives takes longer than copying 4 KiB into it. What is read in
/// a row is not: such pages are in the processor's cache once they are cleared, and these are not. A guess: a few hundred short reads.
const SPARE_BYTES: usize = 4 << 20;

/// See I5. A guess: 40 KiB of memory.
const GONE: usize = 1 << 10;

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
    worth: u8,
    /// `None` once the block changed, was copied or was dropped.
    data: Option<Kept>,
    /// See I6.
    outdated: bool,
}

#[derive(Clone, Debug)]
struct Run {
    id: RunId,
    open: bool,
    /// Not to be closed by who did not open it.
    gathers: bool,
    /// A block that was written keeps its turn (I6).
    turns: bool,
    blocks: VecDeque<LogBlock>,
    /// Blocks taken from the front so far: the index counts from the run's beginning.
    taken: usize,
    /// Blocks that still have a payload.
    live: usize,
}

impl Run {
    /// Whether nothing of it is of use, not even turns (I6).
    fn is_over(&self) -> bool {
        !self.open && self.live == 0 && !self.blocks.iter().any(|b| b.outdated)
    }

    fn has_turns_only(&self) -> bool {
        !self.open && self.live == 0
    }

    /// Whether something of it may be copied.
    fn is_ready(&self) -> bool {
        !self.open && self.live > 0
    }
}

/// A block on its way to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The block that was read.
    pub original: BlockNo,
    /// The hash of its contents.
    pub hash: u64,
    /// What a copy of it is worth ([`worth`](crate::worth)), or [`UNAPPRAISED`].
    pub worth: u8,
}

/// Parts of one or more runs on their way to their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its blocks, in order.
    pub blocks: Vec<Captured>,
    /// Their contents, one after the other; empty where they are unseen.
    pub data: Vec<u8>,
    /// Which of its blocks, ascending, were written since they were read (I6): zeros stand for them.
    pub outdated: Vec<usize>,
}

/// Block numbers as they are, spread by a multiplication: the index is asked for every block that is read.
/// Nobody can choose them so as to do harm: the log holds at most `bytes_max` bytes of blocks. The index is
/// walked for what ends all the same, so its order shows nowhere.
#[derive(Clone, Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        let x = (self.0 ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 32);
    }
}

/// Payloads waiting to be copied. See the module.
#[derive(Clone, Debug)]
pub struct Log {
    runs: VecDeque<Run>,
    index: HashMap<u32, (RunId, usize), BuildHasherDefault<Spread>>,
    next: u64,
    bytes: usize,
    bytes_max: usize,
    dropped: u64,
    /// Open runs.
    open: usize,
    gathering: Option<RunId>,
    /// See I4.
    spare: Vec<Box<[u8]>>,
    /// The block that was pushed last.
    last: BlockNo,
    /// The row of which blocks were taken last: where it began, and the block behind.
    row: (u32, u32),
}

/// See [`Log::next_rows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRows {
    /// What the first row is worth: as much as the most valuable block of it.
    pub worth: u8,
    /// Blocks of the first row.
    pub first: usize,
    /// Blocks of it and of those behind it that are worth as much or more.
    pub all: usize,
}

impl Log {
    /// An empty log for at most `bytes_max` bytes of payload.
    pub fn new(bytes_max: usize) -> Log {
        Log {
            runs: VecDeque::new(),
            index: HashMap::default(),
            next: 0,
            bytes: 0,
            bytes_max,
            dropped: 0,
            open: 0,
            gathering: None,
            spare: Vec::new(),
            last: BlockNo(0),
            row: (0, 0),
        }
    }

    /// Opens a run behind all others.
    pub fn open(&mut self) -> RunId {
        self.open_run(false, true)
    }

    /// The same, a run that [`Log::close_all`] leaves open: it is of no use before it is whole. One at a time. Without `turns` a block
    /// that is written meanwhile is gone: each has a place of its own to be copied to, and leaves no gap to others.
    pub fn gather(&mut self, turns: bool) -> RunId {
        debug_assert_eq!(self.gathered(), 0);
        let id = self.open_run(true, turns);
        self.gathering = Some(id);
        id
    }

    fn open_run(&mut self, gathers: bool, turns: bool) -> RunId {
        let id = RunId(self.next);
        self.next += 1;
        self.open += 1;
        let blocks = VecDeque::new();
        self.runs.push_back(Run { id, open: true, gathers, turns, blocks, taken: 0, live: 0 });
        id
    }

    /// A run that gathers is one as any other from now on.
    pub fn release(&mut self, id: RunId) {
        if self.gathering == Some(id) {
            self.gathering = None;
            if let Ok(at) = self.find(id) {
                self.runs[at].gathers = false;
            }
        }
    }

    /// Blocks in a run that gathers.
    fn gathered(&self) -> usize {
        let run = self.gathering.and_then(|id| self.find(id).ok()).map(|at| &self.runs[at]);
        run.filter(|r| r.open).map_or(0, |r| r.live)
    }

    /// Whether there is anything to copy once runs that may be closed are closed.
    pub fn has_work(&self) -> bool {
        self.waiting() > 0
    }

    /// How many blocks there are then.
    pub fn waiting(&self) -> usize {
        self.index.len() - self.gathered()
    }

    /// Bytes of payload that there may be.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether a run has blocks left, or is open.
    pub fn has_run(&self, id: RunId) -> bool {
        self.find(id).is_ok()
    }

    /// Closes a run: it may be copied.
    pub fn close(&mut self, id: RunId) {
        if let Ok(at) = self.find(id) {
            self.open -= usize::from(self.runs[at].open);
            self.runs[at].open = false;
            if self.runs[at].is_over() {
                self.runs.remove(at);
            }
            self.forget_turns();
        }
    }

    /// Closes every run.
    pub fn close_all(&mut self) {
        if self.open == 0 {
            return;
        }
        let mut finished = false;
        self.open = self.runs.iter().filter(|r| r.open && r.gathers).count();
        for r in self.runs.iter_mut().filter(|r| r.open && !r.gathers) {
            r.open = false;
            finished |= r.live == 0;
        }
        if finished {
            self.drop_finished();
        }
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
        self.push_captured(id, Captured { original, hash, worth: UNAPPRAISED }, data)
    }

    /// The same, with what it is worth.
    pub fn push_captured<'a>(&mut self, id: RunId, block: Captured, data: impl Into<Payload<'a>>) -> bool {
        let Captured { original, hash, worth } = block;
        let data = data.into();
        if !self.has_room(data.len()) {
            self.dropped += 1;
            return false;
        }
        if self.index.contains_key(&original.0) {
            return false;
        }
        let goes_on = original.0 == self.last.0.wrapping_add(1);
        let Some(place) = self.find(id).ok().filter(|&at| self.runs[at].open) else { return false };
        // Keeps I5.
        if self.runs[place].blocks.len() > 2 * self.runs[place].live + GONE {
            self.forget_gone(place, true);
        }
        let run = &mut self.runs[place];
        let at = run.taken + run.blocks.len();
        let kept = match data {
            Payload::Bytes(bytes) => {
                Kept::Bytes(match self.spare.pop_if(|s| !goes_on && s.len() == bytes.len()) {
                    Some(mut spare) => {
                        spare.copy_from_slice(bytes);
                        spare
                    }
                    None => bytes.into(),
                })
            }
            Payload::Unseen(len) => Kept::Unseen(len),
        };
        self.last = original;
        run.live += 1;
        run.blocks.push_back(LogBlock { original, hash, worth, data: Some(kept), outdated: false });
        self.index.insert(original.0, (id, at));
        self.bytes += data.len();
        true
    }

    /// Whether a payload of so many bytes would be taken.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes <= self.bytes_max
    }

    /// Whether `block` waits here.
    pub fn contains(&self, block: BlockNo) -> bool {
        self.index.contains_key(&block.0)
    }

    /// Whether `block` waits in this run.
    pub fn is_in(&self, run: RunId, block: BlockNo) -> bool {
        self.index.get(&block.0).is_some_and(|(id, _)| *id == run)
    }

    /// The blocks of `range` are not to be copied. Says how many there were.
    pub fn kill(&mut self, range: BlockRange) -> usize {
        self.end(range, false)
    }

    /// The blocks of `range` changed: their payloads are void, and their turns are kept (I6).
    pub fn outdate(&mut self, range: BlockRange) {
        self.end(range, true);
    }

    fn end(&mut self, range: BlockRange, outdated: bool) -> usize {
        if self.index.is_empty() {
            return 0;
        }
        let (mut dead, mut finished) = (0, false);
        let mut end = |log: &mut Log, block: BlockNo| {
            let Some((id, at)) = log.index.remove(&block.0) else { return };
            let run = log.run_mut(id).expect("the index names runs that are here");
            let block = &mut run.blocks[at - run.taken];
            let data = block.data.take();
            block.outdated = outdated && run.turns;
            run.live -= 1;
            finished |= run.live == 0 && !run.open;
            log.bytes -= data.as_ref().map_or(0, Kept::len);
            data.into_iter().for_each(|d| keep(&mut log.spare, d));
            dead += 1;
        };
        if range.len() as usize <= self.index.len() {
            range.iter().for_each(|block| end(self, block));
        } else {
            // A discard of much: what waits is less. Not the runs are gone through, which may have any number of turns besides.
            let here = self.index.keys().map(|&block| BlockNo(block)).filter(|&b| range.contains(b));
            here.collect::<Vec<_>>().into_iter().for_each(|block| end(self, block));
        }
        if finished || self.index.is_empty() {
            self.drop_finished();
        }
        dead
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        let gone = self.runs.drain(..).flat_map(|r| r.blocks).filter_map(|b| b.data);
        gone.for_each(|d| keep(&mut self.spare, d));
        self.index.clear();
        (self.bytes, self.open) = (0, 0);
    }

    /// Blocks that wait in closed runs.
    pub fn ready_blocks(&self) -> usize {
        self.runs.iter().filter(|r| !r.open).map(|r| r.live).sum()
    }

    /// How many blocks the next batch would hold: those of the first closed run, `most` at the most, and of the runs behind it until
    /// there are `merged`.
    pub fn next_len(&self, most: usize, merged: usize) -> usize {
        let mut runs = self.runs.iter().filter(|r| r.is_ready()).map(|r| r.live);
        let first = runs.next().unwrap_or(0).min(most);
        let merged = merged.max(first);
        let mut len = first;
        while len < merged
            && let Some(more) = runs.next()
        {
            len = (len + more).min(merged);
        }
        len
    }

    /// Says what each block of a run is worth, in the order of reading.
    pub fn appraise(&mut self, id: RunId, mut worth: impl FnMut(BlockNo) -> u8) {
        if let Some(run) = self.run_mut(id) {
            run.blocks.iter_mut().filter(|b| b.data.is_some()).for_each(|b| b.worth = worth(b.original));
        }
    }

    /// What [`Log::take`] would take next, a row being what was read in a row: all of the first, and with those behind it `most` blocks.
    pub fn next_rows(&self, most: usize) -> Option<NextRows> {
        let mut blocks = self.next_of_first().map(|b| (b.original.0, b.worth)).peekable();
        let mut row = || {
            let (mut last, mut worth) = blocks.next()?;
            let mut len = 1;
            while let Some((next, more)) = blocks.next_if(|b| b.0 == last + 1) {
                (last, worth, len) = (next, worth.max(more), len + 1);
            }
            Some((len, worth))
        };
        let (first, worth) = row()?;
        let mut all = first;
        while all < most
            && let Some((len, other)) = row()
            && other >= worth
            && all + len <= most
        {
            all += len;
        }
        Some(NextRows { worth, first, all })
    }

    /// The most of the next blocks, up to `most`, that end where a row ends; 0 where already the first row is longer than that.
    pub fn next_whole(&self, most: usize) -> usize {
        let blocks: Vec<u32> =
            self.next_of_first().take(most.saturating_add(1)).map(|b| b.original.0).collect();
        if blocks.len() <= most {
            return blocks.len();
        }
        blocks.windows(2).rposition(|pair| pair[1] != pair[0] + 1).map_or(0, |i| i + 1)
    }

    /// The most of the blocks that [`Log::take`] would take next, up to `n`, behind which hardly any read goes on: where a row ends, or a
    /// multiple of `piece` blocks of it. 0 where already the first such part is longer.
    pub fn next_pieces(&self, n: usize, piece: u32) -> usize {
        let blocks = self.runs.iter().filter(|r| !r.open).flat_map(|r| &r.blocks);
        let mut blocks = blocks.filter(|b| b.data.is_some() || b.outdated).map(|b| b.original.0);
        let (mut start, mut next) = self.row;
        let mut most = 0;
        for len in 0..=n {
            let Some(block) = blocks.next() else { return len };
            if block != next {
                start = block;
            }
            next = block.wrapping_add(1);
            if (block - start).is_multiple_of(piece) {
                most = len;
            }
        }
        most
    }

    /// What is left of the first closed run.
    fn next_of_first(&self) -> impl Iterator<Item = &LogBlock> {
        let first = self.runs.iter().find(|r| r.is_ready());
        first.into_iter().flat_map(|r| &r.blocks).filter(|b| b.data.is_some())
    }

    /// Drops the next `n` blocks: not worth their place.
    pub fn refuse(&mut self, n: usize) {
        for _ in 0..n {
            let Some(place) = self.runs.iter().position(Run::is_ready) else { break };
            let run = &mut self.runs[place];
            while let Some(block) = run.blocks.pop_front() {
                run.taken += 1;
                let Some(data) = block.data else { continue };
                run.live -= 1;
                self.bytes -= data.len();
                self.index.remove(&block.original.0);
                keep(&mut self.spare, data);
                self.dropped += 1;
                break;
            }
            if self.runs[place].is_over() {
                self.runs.remove(place);
            }
            self.forget_turns();
        }
    }

    /// The blocks that [`Log::take`] would take, in order.
    pub fn next_blocks(&self) -> impl Iterator<Item = BlockNo> + '_ {
        let blocks = self.runs.iter().filter(|r| !r.open).flat_map(|r| &r.blocks);
        blocks.filter(|b| b.data.is_some()).map(|b| b.original)
    }

    /// Puts an open run's blocks into the order of their keys.
    pub fn sort_by_key<K: Ord>(&mut self, id: RunId, mut key: impl FnMut(BlockNo) -> K) {
        let Ok(at) = self.find(id) else { return };
        if self.runs[at].open {
            self.runs[at].blocks.make_contiguous().sort_by_cached_key(|b| key(b.original));
            self.forget_gone(at, false);
        }
    }

    /// Leaves an open run's blocks that are gone out, also their turns or not, and finds the others where they are then.
    fn forget_gone(&mut self, place: usize, turns: bool) {
        let run = &mut self.runs[place];
        run.blocks.retain(|b| b.data.is_some() || b.outdated && !turns);
        for (i, b) in run.blocks.iter().enumerate().filter(|(_, b)| b.data.is_some()) {
            self.index.insert(b.original.0, (run.id, run.taken + i));
        }
    }

    /// Takes up to `n` blocks from the front of the closed runs, one behind the other, the turns of outdated ones before others included.
    pub fn take(&mut self, n: usize) -> Option<Batch> {
        let mut batch = Batch { blocks: Vec::new(), data: Vec::new(), outdated: Vec::new() };
        while batch.blocks.len() < n
            && let Some(place) = self.runs.iter().position(|r| !r.open)
        {
            self.take_of(place, n, &mut batch);
        }
        self.forget_turns();
        (!batch.blocks.is_empty()).then_some(batch)
    }

    /// The same of one run, which is gone then or of which more waits.
    fn take_of(&mut self, place: usize, n: usize, batch: &mut Batch) {
        while batch.blocks.len() < n
            && let Some(block) = self.runs[place].blocks.pop_front()
        {
            let run = &mut self.runs[place];
            run.taken += 1;
            let LogBlock { original, hash, worth, data, outdated } = block;
            let Some(data) = data else {
                let first = batch.outdated.len() == batch.blocks.len();
                let fits = !first || batch.blocks.len() + 1 < n;
                if outdated && fits && self.ready_from(place) && !self.index.contains_key(&original.0) {
                    // As long as the one before; those before the first as long as that.
                    let bytes = batch.data.len() / batch.blocks.len().max(1);
                    batch.outdated.push(batch.blocks.len());
                    batch.blocks.push(Captured { original, hash, worth });
                    batch.data.resize(batch.data.len() + bytes, 0);
                }
                continue;
            };
            run.live -= 1;
            let start = if self.row.1 == original.0 { self.row.0 } else { original.0 };
            self.row = (start, original.0.wrapping_add(1));
            self.bytes -= data.len();
            self.index.remove(&original.0);
            batch.blocks.push(Captured { original, hash, worth });
            if let Kept::Bytes(bytes) = &data {
                if batch.data.is_empty() {
                    batch.data.resize(batch.outdated.len() * bytes.len(), 0);
                }
                batch.data.extend_from_slice(bytes);
            }
            keep(&mut self.spare, data);
        }
        if self.runs[place].is_over() {
            self.runs.remove(place);
        }
    }

    /// Whether payloads wait in closed runs from this place on.
    fn ready_from(&self, place: usize) -> bool {
        self.runs.iter().skip(place).any(Run::is_ready)
    }

    /// Keeps I6.
    fn forget_turns(&mut self) {
        // Each other run has a payload or is open.
        if self.index.is_empty() || self.runs.len() > self.index.len() + self.open + GONE {
            self.runs.retain(|r| !r.has_turns_only());
        }
    }

    /// Bytes of payload held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Blocks refused since the start for want of room, here or on the volume.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether nothing waits, in open runs or closed ones.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    fn run_mut(&mut self, id: RunId) -> Option<&mut Run> {
        let at = self.find(id).ok()?;
        Some(&mut self.runs[at])
    }

    /// Whether this run still takes blocks: [`Log::clear`] ends all.
    pub fn takes(&self, id: RunId) -> bool {
        self.find(id).is_ok_and(|at| self.runs[at].open)
    }

    fn find(&self, id: RunId) -> Result<usize, usize> {
        // Runs end in the order of their beginning, mostly.
        match self.runs.front() {
            Some(first) if first.id == id => Ok(0),
            _ => self.runs.binary_search_by_key(&id, |r| r.id),
        }
    }

    fn drop_finished(&mut self) {
        self.runs.retain(|r| !r.is_over());
        self.forget_turns();
    }

    /// Feeds what waits here, in order, without the runs' names; what was taken matters only for rows longer than a piece.
    pub(crate) fn digest(&self, h: &mut impl Hasher) {
        for run in &self.runs {
            (run.open, run.blocks.len()).hash(h);
            for b in &run.blocks {
                (b.original, b.hash, b.worth, b.data.is_some(), b.outdated).hash(h);
            }
        }
    }

    /// Asserts the invariants.
    pub fn check(&self) {
        let (mut bytes, mut n, mut turns) = (0, 0, 0);
        for run in &self.runs {
            let live = run.blocks.iter().filter(|b| b.data.is_some()).count();
            assert_eq!(run.live, live, "payloads of a run");
            assert!(run.open || live > 0 || run.blocks.iter().any(|b| b.outdated), "a run of nothing");
            turns += usize::from(run.has_turns_only());
            for (i, b) in run.blocks.iter().enumerate() {
                if let Some(d) = &b.data {
                    bytes += d.len();
                    n += 1;
                    assert_eq!(self.index.get(&b.original.0), Some(&(run.id, run.taken + i)), "log index");
                }
            }
        }
        assert_eq!((bytes, n), (self.bytes, self.index.len()), "log bytes and blocks");
        assert_eq!(self.runs.iter().filter(|r| r.open).count(), self.open, "open runs");
        assert!(turns <= if n == 0 { 0 } else { GONE + self.open }, "{turns} runs of turns");
        assert!(self.bytes <= self.bytes_max, "log of {} bytes", self.bytes);
        assert!(self.spare.iter().map(|s| s.len()).sum::<usize>() <= SPARE_BYTES, "spare memory");
    }
}

/// Keeps I4.
fn keep(spare: &mut Vec<Box<[u8]>>, data: Kept) {
    if let Kept::Bytes(bytes) = data
        && (spare.len() + 1) * bytes.len() <= SPARE_BYTES
    {
        spare.push(bytes);
    }
}

#[cfg(test)]
mod tests;
