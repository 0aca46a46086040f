//! The index by original: runs in which original and replica count up together.
//!
//! O1: every entry of the table is in exactly one run, with its trust.
//! O2: a run lies in one granule of 64 originals, so that what covers a block begins in its granule.
//! O3: runs are ascending by (original, replica); chunks are never empty and `firsts` are their
//!     first runs.
//! O4: `lens` is empty, or has a length for each run; it is where one is longer than a block or not verified.

use crate::Trust;
use crate::pairs::Pairs;
use fs2_block::BlockRange;
use std::ops::Range;

/// Originals a run may not cross. Guess: more would make lookups among scattered runs slower,
/// fewer would cost memory in long ones.
const GRANULE: u32 = 64;
/// Runs in a chunk at most.
const CHUNK: usize = 512;
/// A chunk with fewer joins the next where both have room in one. Guess.
const JOIN_BELOW: usize = 64;
/// Room for so many more is made at a time. Guess.
const ROOM: usize = 4;
/// Room for more than this is given back. Guess.
const ROOM_MAX: usize = 48;
const UNVERIFIED: u8 = 0x80;

const _: () = assert!(GRANULE < UNVERIFIED as u32);

/// `len` blocks from `original` copied to `replica` onwards, all of one trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) original: u32,
    pub(crate) replica: u32,
    pub(crate) len: u32,
    pub(crate) trust: Trust,
}

impl Run {
    pub(crate) fn key(&self) -> (u32, u32) {
        (self.original, self.replica)
    }

    /// One past the last original. Original and replica differ, so no run reaches 2³².
    pub(crate) fn end(&self) -> u32 {
        self.original + self.len
    }

    pub(crate) fn originals(&self) -> BlockRange {
        BlockRange::new(self.original, self.end())
    }

    pub(crate) fn replicas(&self) -> BlockRange {
        BlockRange::new(self.replica, self.replica + self.len)
    }

    /// The part whose originals are in `range`.
    pub(crate) fn clip(&self, range: BlockRange) -> Run {
        let part = self.originals().intersect(range);
        Run {
            original: part.start(),
            replica: self.replica + part.start().saturating_sub(self.original),
            len: part.len(),
            trust: self.trust,
        }
    }

    fn packed_len(&self) -> u8 {
        self.len as u8 | if self.trust == Trust::Unverified { UNVERIFIED } else { 0 }
    }

    fn covers(&self, original: u32, replica: u32) -> bool {
        original >= self.original
            && original < self.end()
            && replica.wrapping_sub(self.replica) == original - self.original
    }
}

/// A run's beginning, to be compared in one step.
fn one_number((original, replica): (u32, u32)) -> u64 {
    u64::from(original) << 32 | u64::from(replica)
}

/// What [`Run::packed_len`] is of a run of one verified block.
const SINGLE: u8 = 1;

fn granule(original: u32) -> u32 {
    original & !(GRANULE - 1)
}

/// Cuts a run of any length into what [`Originals::build`] takes.
pub(crate) fn cut_at_granules(run: Run) -> impl Iterator<Item = Run> {
    let mut at = run.original;
    std::iter::from_fn(move || {
        if at >= run.end() {
            return None;
        }
        let stop = granule(at).saturating_add(GRANULE).min(run.end());
        let part = Run { original: at, replica: run.replica + (at - run.original), len: stop - at, ..run };
        at = stop;
        Some(part)
    })
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// Each run's first original and replica.
    starts: Pairs,
    /// Each run's [`Run::packed_len`] (O4).
    lens: Vec<u8>,
    unverified: u32,
}

impl Chunk {
    fn len(&self) -> usize {
        self.starts.len()
    }

    /// Where the first run begins; a chunk in the index is never empty.
    fn first(&self) -> u64 {
        one_number(self.starts.get(0).expect("O3"))
    }

    fn run(&self, i: usize) -> Run {
        self.get(i).expect("a run of the chunk")
    }

    #[inline]
    fn get(&self, i: usize) -> Option<Run> {
        let (original, replica) = self.starts.get(i)?;
        let len = self.lens.get(i).copied().unwrap_or(SINGLE);
        let trust = if len & UNVERIFIED != 0 { Trust::Unverified } else { Trust::Verified };
        Some(Run { original, replica, len: u32::from(len & !UNVERIFIED), trust })
    }

    fn insert(&mut self, i: usize, run: Run) {
        if run.packed_len() != SINGLE || !self.lens.is_empty() {
            self.name_lens();
            if self.lens.len() == self.lens.capacity() {
                self.lens.reserve_exact(ROOM);
            }
            self.lens.insert(i, run.packed_len());
        }
        self.starts.insert(i, run.key());
        self.unverified += u32::from(run.trust == Trust::Unverified);
    }

    fn remove(&mut self, i: usize) -> Run {
        let run = self.run(i);
        self.starts.remove(i..i + 1);
        if !self.lens.is_empty() {
            self.lens.remove(i);
        }
        if run.trust == Trust::Unverified {
            self.unverified -= 1;
            if self.unverified == 0 {
                self.tidy();
            }
        }
        if self.starts.room() > ROOM_MAX {
            self.shrink();
        }
        run
    }

    fn set_len(&mut self, i: usize, run: Run) {
        self.name_lens();
        self.lens[i] = run.packed_len();
    }

    /// Before a run is anything but one verified block: keeps O4.
    fn name_lens(&mut self) {
        if self.lens.is_empty() {
            self.lens = vec![SINGLE; self.len()];
        }
    }

    /// Forgets lengths that say nothing.
    fn tidy(&mut self) {
        if self.lens.iter().all(|&len| len == SINGLE) {
            self.lens = Vec::new();
        }
    }

    fn shrink(&mut self) {
        self.tidy();
        self.starts.shrink(ROOM);
        self.lens.shrink_to(self.lens.len() + ROOM);
    }

    fn count_unverified(&mut self) {
        self.unverified = self.lens.iter().filter(|&&l| l & UNVERIFIED != 0).count() as u32;
    }

    fn split_off(&mut self, at: usize) -> Chunk {
        let mut right = Chunk { starts: self.starts.split_off(at), ..Chunk::default() };
        if !self.lens.is_empty() {
            right.lens = self.lens.split_off(at);
            right.tidy();
        }
        right.count_unverified();
        self.unverified -= right.unverified;
        self.shrink();
        right
    }

    fn append(&mut self, mut other: Chunk) {
        if !self.lens.is_empty() || !other.lens.is_empty() {
            self.name_lens();
            other.name_lens();
            self.lens.reserve_exact(other.lens.len());
            self.lens.append(&mut other.lens);
        }
        self.starts = self.starts.iter().chain(other.starts.iter()).collect();
        self.unverified += other.unverified;
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Chunk>() + self.starts.memory_bytes() + self.lens.capacity()
    }
}

/// A chunk of one run.
impl From<Run> for Chunk {
    fn from(run: Run) -> Chunk {
        let mut chunk = Chunk::default();
        chunk.insert(0, run);
        chunk
    }
}

/// The runs from a place on.
struct PlacesFrom<'a> {
    all: &'a Originals,
    at: At,
}

impl Iterator for PlacesFrom<'_> {
    type Item = (At, Run);

    #[inline]
    fn next(&mut self) -> Option<(At, Run)> {
        loop {
            let at = self.at;
            let chunk = self.all.chunks.get(at.chunk)?;
            if let Some(run) = chunk.get(at.i) {
                self.at.i += 1;
                return Some((at, run));
            }
            self.at = At { chunk: at.chunk + 1, i: 0 };
        }
    }
}

/// A place among the runs.
#[derive(Clone, Copy, Debug)]
struct At {
    chunk: usize,
    i: usize,
}

/// All runs, ordered by original.
#[derive(Clone, Debug, Default)]
pub(crate) struct Originals {
    firsts: Vec<u64>,
    // Boxed, so that a new chunk in the middle moves eight bytes for each behind it.
    #[allow(clippy::vec_box)]
    chunks: Vec<Box<Chunk>>,
    runs: usize,
}

impl Originals {
    /// From runs sorted by key, each within a granule.
    pub(crate) fn build(runs: impl Iterator<Item = Run>) -> Originals {
        let mut all = Originals::default();
        // A little room, so that the first inserts after a start do not split every chunk.
        let fill = CHUNK * 7 / 8;
        let mut chunk = Chunk::default();
        for run in runs {
            if chunk.len() == fill {
                all.push_chunk(std::mem::take(&mut chunk));
            }
            let i = chunk.len();
            debug_assert!(i == 0 || chunk.run(i - 1).key() < run.key(), "runs out of order");
            chunk.insert(i, run);
        }
        if chunk.len() > 0 {
            all.push_chunk(chunk);
        }
        all
    }

    fn push_chunk(&mut self, chunk: Chunk) {
        self.runs += chunk.len();
        self.firsts.push(chunk.first());
        self.chunks.push(Box::new(chunk));
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs
    }

    /// Every run in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Run> {
        self.from(At { chunk: 0, i: 0 })
    }

    /// The runs with an original in `range`, by their first original.
    pub(crate) fn overlapping(&self, range: BlockRange) -> impl Iterator<Item = Run> {
        self.from(self.place_from(granule(range.start())))
            .take_while(move |run| run.original < range.end())
            .filter(move |run| run.end() > range.start())
    }

    /// The replicas of one original with their trust.
    pub(crate) fn copies(&self, original: u32) -> impl Iterator<Item = (u32, Trust)> {
        self.covering(original).map(move |(_, run)| (run.replica + (original - run.original), run.trust))
    }

    /// The runs that one original is in.
    pub(crate) fn runs_of(&self, original: u32) -> impl Iterator<Item = Run> {
        self.covering(original).map(|(_, run)| run)
    }

    /// Where the run lies that begins exactly so.
    pub(crate) fn starting(&self, original: u32, replica: u32) -> Option<Run> {
        self.exact(original, replica).map(|at| self.run(at))
    }

    /// The run of an entry.
    pub(crate) fn run_of(&self, original: u32, replica: u32) -> Option<Run> {
        self.find(original, replica).map(|at| self.run(at))
    }

    /// The first unverified entry from `original` on: (original, replica).
    pub(crate) fn next_unverified(&self, original: u32) -> Option<(u32, u32)> {
        let start = granule(original);
        let near = self
            .from(self.place_from(start))
            .take_while(|run| granule(run.original) == start)
            .filter(|run| run.trust == Trust::Unverified && run.end() > original)
            .map(|run| run.clip(BlockRange::new(original, run.end())))
            .map(|run| (run.original, run.replica))
            .min();
        if near.is_some() {
            return near;
        }
        let mut at = self.place_from(start.checked_add(GRANULE)?);
        while let Some(chunk) = self.chunks.get(at.chunk) {
            if chunk.unverified > 0
                && let Some(i) = (at.i..chunk.len()).find(|&i| chunk.lens[i] & UNVERIFIED != 0)
            {
                let run = chunk.run(i);
                return Some((run.original, run.replica));
            }
            at = At { chunk: at.chunk + 1, i: 0 };
        }
        None
    }

    /// Adds an entry, lengthening or joining the runs it touches.
    pub(crate) fn insert(&mut self, original: u32, replica: u32, trust: Trust) {
        let mut run = Run { original, replica, len: 1, trust };
        let inside = |o: u32| granule(o) == granule(original);
        if let (Some(o), Some(r)) = (original.checked_add(1), replica.checked_add(1))
            && inside(o)
            && let Some(at) = self.exact(o, r)
            && self.run(at).trust == trust
        {
            run.len += self.remove_at(at).len;
        }
        if let (Some(o), Some(r)) = (original.checked_sub(1), replica.checked_sub(1))
            && inside(o)
            && let Some(at) = self.find(o, r)
            && self.run(at).trust == trust
        {
            let before = self.run(at);
            self.set_len(at, Run { len: before.len + run.len, ..before });
            return;
        }
        self.insert_run(run);
    }

    /// Removes the entries of `len` originals from `original`, copied to `replica` onwards.
    pub(crate) fn remove(&mut self, original: u32, replica: u32, len: u32) {
        let mut done = 0;
        while done < len {
            let (o, r) = (original + done, replica + done);
            let at = self.find(o, r);
            let at = at.unwrap_or_else(|| panic!("entry {o} -> {r} is not in the index"));
            let run = self.run(at);
            let stop = run.end().min(original + len);
            if o == run.original {
                self.remove_at(at);
            } else {
                self.set_len(at, Run { len: o - run.original, ..run });
            }
            if stop < run.end() {
                self.insert_run(run.clip(BlockRange::new(stop, run.end())));
            }
            done = stop - original;
        }
    }

    /// Removes every entry whose replica is in `range`, in one pass over all runs.
    pub(crate) fn remove_replicas(&mut self, range: BlockRange) {
        self.remove_from_chunks(0..self.chunks.len(), |run| {
            let gone = run.replicas().intersect(range);
            (gone.start().saturating_sub(run.replica), gone.len())
        });
    }

    /// Removes every entry whose original is in `range`, in one pass over the chunks that have such.
    pub(crate) fn remove_originals(&mut self, range: BlockRange) {
        let first = self.place_from(granule(range.start())).chunk;
        let end = self.firsts.partition_point(|&first| first < one_number((range.end(), 0)));
        self.remove_from_chunks(first..end.max(first), |run| {
            let gone = run.originals().intersect(range);
            (gone.start().saturating_sub(run.original), gone.len())
        });
    }

    /// Removes of each run in these chunks what `gone` says: how far within the run it begins, and its length.
    fn remove_from_chunks(&mut self, chunks: Range<usize>, gone: impl Fn(&Run) -> (u32, u32)) {
        // What lies behind what is gone.
        let mut behind = Vec::new();
        for chunk in &mut self.chunks[chunks.clone()] {
            let mut kept = 0;
            for i in 0..chunk.len() {
                let run = chunk.run(i);
                let (skip, len) = gone(&run);
                if len == 0 || skip > 0 {
                    if kept < i {
                        chunk.starts.move_down(i, kept);
                    }
                    let left = if len == 0 { run.len } else { skip };
                    if let Some(kept) = chunk.lens.get_mut(kept) {
                        *kept = Run { len: left, ..run }.packed_len();
                    }
                    kept += 1;
                }
                let skip = skip + len;
                if len > 0 && skip < run.len {
                    let (original, replica) = (run.original + skip, run.replica + skip);
                    behind.push(Run { original, replica, len: run.len - skip, ..run });
                }
            }
            if kept < chunk.len() {
                self.runs -= chunk.len() - kept;
                chunk.starts.remove(kept..chunk.len());
                chunk.lens.truncate(kept);
                chunk.count_unverified();
                if chunk.starts.room() > ROOM_MAX {
                    chunk.shrink();
                }
            }
        }
        // With the one behind, which what is left may join.
        let chunks = chunks.start..(chunks.end + 1).min(self.chunks.len());
        let mut packed: Vec<Box<Chunk>> = Vec::with_capacity(chunks.len());
        for chunk in self.chunks.drain(chunks.clone()).filter(|c| c.len() > 0) {
            match packed.last_mut() {
                Some(last) if last.len() + chunk.len() <= CHUNK * 3 / 4 => last.append(*chunk),
                _ => packed.push(chunk),
            }
        }
        self.firsts.splice(chunks.clone(), packed.iter().map(|c| c.first()));
        self.chunks.splice(chunks.start..chunks.start, packed);
        behind.into_iter().for_each(|run| self.insert_run(run));
    }

    /// Marks every entry unverified.
    pub(crate) fn all_unverified(&mut self) {
        for chunk in &mut self.chunks {
            chunk.name_lens();
            chunk.lens.iter_mut().for_each(|l| *l |= UNVERIFIED);
            chunk.unverified = chunk.len() as u32;
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.firsts.capacity() * size_of::<u64>()
            + self.chunks.capacity() * size_of::<Box<Chunk>>()
            + self.chunks.iter().map(|c| c.memory_bytes()).sum::<usize>()
    }

    /// Asserts O2, O3 and O4.
    pub(crate) fn check(&self) {
        let mut last = None;
        let mut runs = 0;
        assert_eq!(self.firsts.len(), self.chunks.len(), "O3");
        for (first, chunk) in self.firsts.iter().zip(&self.chunks) {
            assert!(chunk.len() > 0 && chunk.len() <= CHUNK, "O3");
            assert_eq!(*first, chunk.first(), "O3");
            assert!(chunk.lens.is_empty() || chunk.len() == chunk.lens.len(), "O4");
            chunk.starts.check();
            let flagged = chunk.lens.iter().filter(|&&l| l & UNVERIFIED != 0).count();
            assert_eq!(chunk.unverified as usize, flagged, "unverified runs of a chunk");
            runs += chunk.len();
            for i in 0..chunk.len() {
                let run = chunk.run(i);
                assert!(last < Some(run.key()), "O3: {run:?}");
                assert!(run.len > 0 && granule(run.original) == granule(run.end() - 1), "O2: {run:?}");
                last = Some(run.key());
            }
        }
        assert_eq!(runs, self.runs);
    }

    fn run(&self, at: At) -> Run {
        self.chunks[at.chunk].run(at.i)
    }

    fn from(&self, at: At) -> impl Iterator<Item = Run> {
        self.places_from(at).map(|(_, run)| run)
    }

    #[inline]
    fn places_from(&self, at: At) -> PlacesFrom<'_> {
        PlacesFrom { all: self, at }
    }

    /// The first place whose run begins at `start` or behind it, which may be the end of a chunk.
    fn lower_bound(&self, start: (u32, u32)) -> At {
        let chunk = self.firsts.partition_point(|&f| f <= one_number(start)).saturating_sub(1);
        let i = self.chunks.get(chunk).map_or(0, |c| c.starts.lower_bound(start));
        At { chunk, i }
    }

    /// The first place whose run begins at this original or behind it, which may be the end of a chunk.
    #[inline]
    fn place_from(&self, original: u32) -> At {
        let start = one_number((original, 0));
        let chunk = self.firsts.partition_point(|&f| f <= start).saturating_sub(1);
        At { chunk, i: self.chunks.get(chunk).map_or(0, |c| c.starts.below(original)) }
    }

    fn exact(&self, original: u32, replica: u32) -> Option<At> {
        let at = self.lower_bound((original, replica));
        let start = self.chunks.get(at.chunk)?.starts.get(at.i);
        (start == Some((original, replica))).then_some(at)
    }

    fn find(&self, original: u32, replica: u32) -> Option<At> {
        self.exact(original, replica).or_else(|| {
            self.covering(original).find(|(_, run)| run.covers(original, replica)).map(|(at, _)| at)
        })
    }

    fn covering(&self, original: u32) -> impl Iterator<Item = (At, Run)> {
        self.places_from(self.place_from(granule(original)))
            .take_while(move |(_, run)| run.original <= original)
            .filter(move |(_, run)| run.end() > original)
    }

    fn set_len(&mut self, at: At, run: Run) {
        self.chunks[at.chunk].set_len(at.i, run);
    }

    fn insert_run(&mut self, run: Run) {
        self.runs += 1;
        let At { mut chunk, mut i } = self.lower_bound(run.key());
        if self.chunks.get(chunk).is_none_or(|_| i == CHUNK) {
            // What arrives in order leaves full chunks behind.
            (chunk, i) = ((chunk + 1).min(self.chunks.len()), 0);
            if self.chunks.get(chunk).is_none_or(|c| c.len() == CHUNK) {
                return self.insert_chunk(chunk, run.into());
            }
        }
        if self.chunks[chunk].len() == CHUNK {
            let half = self.chunks[chunk].len() / 2;
            let right = self.chunks[chunk].split_off(half);
            self.insert_chunk(chunk + 1, right);
            if i > half {
                (chunk, i) = (chunk + 1, i - half);
            }
        }
        self.chunks[chunk].insert(i, run);
        self.firsts[chunk] = self.chunks[chunk].first();
    }

    fn insert_chunk(&mut self, place: usize, chunk: Chunk) {
        self.firsts.insert(place, chunk.first());
        self.chunks.insert(place, Box::new(chunk));
    }

    fn remove_at(&mut self, at: At) -> Run {
        let run = self.chunks[at.chunk].remove(at.i);
        self.runs -= 1;
        let left = self.chunks[at.chunk].len();
        if left == 0 {
            self.chunks.remove(at.chunk);
            self.firsts.remove(at.chunk);
            return run;
        }
        self.firsts[at.chunk] = self.chunks[at.chunk].first();
        if left < JOIN_BELOW
            && let Some(next) = self.chunks.get(at.chunk + 1)
            && left + next.len() <= CHUNK * 3 / 4
        {
            let next = self.chunks.remove(at.chunk + 1);
            self.firsts.remove(at.chunk + 1);
            self.chunks[at.chunk].append(*next);
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_in_order_leaves_full_chunks_behind() {
        let mut index = Originals::default();
        (0..2000).for_each(|i| index.insert(3 * i, 2 * i + 100_000, Trust::Verified));
        index.check();
        assert_eq!(index.chunks.len(), 2000usize.div_ceil(CHUNK));
        // Between two of them one begins.
        index.insert(3 * CHUNK as u32 - 1, 7, Trust::Verified);
        index.check();
        assert!(index.chunks.iter().map(|c| c.len()).eq([CHUNK, 1, CHUNK, CHUNK, 2000 - 3 * CHUNK]));
    }

    #[test]
    fn a_run_that_begins_in_the_chunk_before_loses_its_part() {
        let full = CHUNK as u32 * 7 / 8;
        let last = GRANULE * (full - 1);
        let single = |i: u32| Run {
            original: GRANULE * i,
            replica: 1_000_000 + 2 * i,
            len: 1,
            trust: Trust::Verified,
        };
        let long = Run { len: 60, ..single(full - 1) };
        let second = Run { original: last + 10, replica: 2_000_000, len: 5, trust: Trust::Verified };
        let mut index = Originals::build((0..full - 1).map(single).chain([long, second]));
        assert_eq!(index.chunks.len(), 2);
        index.remove_originals(BlockRange::new(last + 20, last + 30));
        index.check();
        let left: Vec<Run> = index.iter().skip(full as usize - 1).collect();
        let behind = Run { original: last + 30, replica: long.replica + 30, len: 30, ..long };
        assert_eq!(left, [Run { len: 20, ..long }, second, behind]);
    }
}
