//! What deserves a copy but has no payload in the log: addresses only, read again when the volume rests.
//!
//! Two kinds: what found no room in the log (`late`), and what was written since it was copied (`updates`). They are
//! read a lot at a time, in the order of their addresses. What was late is written in the order in which clients read
//! it; an update goes back to the place its copy had, so that the order around it stays.
//!
//! - B1: a lot's copies are written when all of it was read; before that only where others take the log's room, or a client reads.
//! - B2: what was not read by then goes back to the front.

use std::collections::{BTreeMap, HashMap, VecDeque};

use fs2_block::{BlockNo, BlockRange, Nanos};
use fs2_table::Replica;

use super::unused::Unused;
use crate::config::{COPY_BLOCKS_MAX, LONG_REST, WRITE_BLOCKS_MAX};
use crate::io::Brought;
use crate::log::{Captured, Log, RunId};
use crate::policy::{Fetch, Shape, Space};

/// Stretches kept at most: 2 MiB of them.
const STRETCHES_MAX: usize = 1 << 18;

/// A lot holds at most so many bytes.
const LOT_BYTES: u64 = 64 << 20;

/// One read of a lot is at most this long: a client that arrives waits for it.
const READ_BYTES: u64 = 256 << 10;

/// What lies between two stretches is read too where it is no longer than this. Measured on real traces.
const BRIDGE_BYTES: u64 = 32 << 10;

/// Updates that wait at most: 2 MiB of them.
const UPDATES_MAX: usize = 1 << 16;

/// Updates made together. Guess: what a short pause has time for.
const UPDATES_LOT: usize = 256;

/// Blocks of a stretch at most: what its length has room for beside the worth.
const STRETCH_BLOCKS_MAX: u32 = (1 << 24) - 1;

/// For a lot so many times its blocks are looked at, at the most: who reads meanwhile waits for it. What was read again and again while the log
/// was full is there as often, and was all looked at for one lot, for seconds. Guess.
const LOOKS: usize = 4;

/// What an update is worth where there is no room: its copy was there before it was written. Guess: 4 ms a block.
const UPDATE_WORTH: u8 = 72;

/// What is remembered of a stretch, in 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    start: u32,
    /// Length, and in the highest 8 bits what each block is worth.
    packed: u32,
}

impl Stretch {
    fn new(start: u32, len: u32, worth: u8) -> Stretch {
        Stretch { start, packed: len | u32::from(worth) << 24 }
    }

    fn len(self) -> u32 {
        self.packed & STRETCH_BLOCKS_MAX
    }

    fn worth(self) -> u8 {
        (self.packed >> 24) as u8
    }

    fn end(self) -> u32 {
        self.start + self.len()
    }

    /// Its first blocks, and what comes between these and another number of them.
    fn split(self, first: u32, until: u32) -> (Stretch, Option<Stretch>) {
        let then = Stretch::new(self.start + first, until - first, self.worth());
        (Stretch::new(self.start, first, self.worth()), (first < until).then_some(then))
    }
}

/// Where a block comes in the order of copies, and what it is worth.
type Rank = (u32, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Late,
    Update,
}

#[derive(Clone, Debug)]
struct Lot {
    kind: Kind,
    /// Where what was read waits; none before the first read.
    run: Option<RunId>,
    /// By original, its place in the order in which copies are written.
    rank: HashMap<u32, Rank>,
    /// The stretches in that order, for B2.
    stretches: Vec<Stretch>,
    reads: VecDeque<BlockRange>,
    /// It ends with the next rest.
    interrupted: bool,
}

impl Lot {
    fn new(kind: Kind, rank: HashMap<u32, Rank>, stretches: Vec<Stretch>, block_bytes: u32) -> Option<Lot> {
        let blocks_of = |bytes: u64| (bytes / u64::from(block_bytes)) as u32;
        let (longest, bridge) = (blocks_of(READ_BYTES).max(1), blocks_of(BRIDGE_BYTES));
        let mut blocks: Vec<u32> = rank.keys().copied().collect();
        blocks.sort_unstable();
        let mut reads: VecDeque<BlockRange> = VecDeque::new();
        for b in blocks {
            match reads.back_mut() {
                Some(r) if b - r.end() <= bridge && b + 1 - r.start() <= longest => {
                    *r = BlockRange::new(r.start(), b + 1);
                }
                _ => reads.push_back(BlockRange::new(b, b + 1)),
            }
        }
        (!reads.is_empty()).then_some(Lot { kind, run: None, rank, stretches, reads, interrupted: false })
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    late: VecDeque<Stretch>,
    /// Nothing in `late` is there twice, and nearly all of it is taken.
    late_is_full: bool,
    /// Original by the place of the copy it had.
    updates: BTreeMap<u32, u32>,
    unused: Unused,
    lot: Option<Lot>,
    /// The last lot of updates: by original, where its copy was.
    homes: BTreeMap<u32, u32>,
    /// The same the other way round, and the run that holds what was read of it.
    at_home: BTreeMap<u32, u32>,
    homes_run: Option<RunId>,
    /// Where the log's next blocks had their copies.
    next_home: Option<BlockRange>,
    /// How many of the log's next blocks may be placed anew together, if not all.
    homeless: Option<u32>,
}

/// What is read at once is as valuable as its most valuable block.
fn worth_of(row: &[Stretch]) -> u8 {
    row.iter().map(|s| s.worth()).max().unwrap_or(0)
}

/// What `map` has by these blocks, taken out of it.
fn take_range(map: &mut BTreeMap<u32, u32>, blocks: BlockRange) -> Vec<(u32, u32)> {
    let taken: Vec<_> = map.range(blocks.start()..blocks.end()).map(|(&k, &v)| (k, v)).collect();
    taken.iter().for_each(|(key, _)| {
        map.remove(key);
    });
    taken
}

/// Whether a block is in no file any more.
fn is_freed(block: u32, space: &dyn Space) -> bool {
    space.first_vacant(BlockRange::one(BlockNo(block)), 1, 1).is_some()
}

impl Backlog {
    /// Behind all others, each block worth so much; where there are too many, repeated ones are lost, then the newest.
    pub(super) fn push(&mut self, stretches: impl IntoIterator<Item = BlockRange>, worth: u8) {
        for s in stretches {
            if let Some(last) = self.late.back_mut()
                && last.end() == s.start()
                && last.worth() == worth
                && last.len() + s.len() <= STRETCH_BLOCKS_MAX
            {
                *last = Stretch::new(last.start, last.len() + s.len(), worth);
                continue;
            }
            if self.late.len() == STRETCHES_MAX && !self.late_is_full {
                self.leave_out_repeated();
            }
            if self.late.len() < STRETCHES_MAX {
                self.late.push_back(Stretch::new(s.start(), s.len().min(STRETCH_BLOCKS_MAX), worth));
            }
        }
    }

    /// The file system took these blocks, and with them these copies, ascending by place: they are made again, in the order in which they lay, and
    /// among them those that were void and had their places there.
    pub(super) fn displaced(
        &mut self,
        taken: BlockRange,
        copies: &[Replica],
        worth: Option<u8>,
        log: &mut Log,
    ) {
        // Half of the room is for what has no copy yet.
        if self.late.len() >= STRETCHES_MAX / 2 {
            return;
        }
        let worth = worth.unwrap_or_default();
        let mut row: Vec<_> = copies.iter().map(|r| (r.replica.0, r.original.0, worth)).collect();
        row.extend(self.evicted_homes(taken, log).into_iter().map(|(home, o)| (home, o, UPDATE_WORTH)));
        row.sort_unstable();
        for (_, original, worth) in row {
            self.push([BlockRange::one(BlockNo(original))], worth);
        }
    }

    /// The updates that cannot go home to these blocks, by home: no longer on their way there.
    fn evicted_homes(&mut self, taken: BlockRange, log: &mut Log) -> Vec<(u32, u32)> {
        let mut evicted = take_range(&mut self.updates, taken);
        for (home, original) in take_range(&mut self.at_home, taken) {
            self.homes.remove(&original);
            let block = BlockRange::one(BlockNo(original));
            let lot = self.lot.as_mut().filter(|l| l.kind == Kind::Update);
            let unread = lot.filter(|l| l.reads.iter().any(|read| read.overlaps(block)));
            // Others may have captured it since it went home.
            let waits = self.homes_run.is_some_and(|run| log.is_in(run, block.first()));
            if waits {
                log.kill(block);
            }
            if unread.is_some_and(|l| l.rank.remove(&original).is_some()) || waits {
                evicted.push((home, original));
            }
        }
        evicted
    }

    /// Of the same stretches the first stays, worth what the last is.
    fn leave_out_repeated(&mut self) {
        let late = self.late.make_contiguous();
        let mut by_stretch: Vec<u32> = (0..late.len() as u32).collect();
        let place = |s: Stretch| (s.start, s.len());
        by_stretch.sort_unstable_by_key(|&i| (place(late[i as usize]), i));
        let mut kept = vec![None; late.len()];
        for same in by_stretch.chunk_by(|&a, &b| place(late[a as usize]) == place(late[b as usize])) {
            kept[same[0] as usize] = same.last().map(|&last| late[last as usize].worth());
        }
        let mut kept = kept.into_iter();
        self.late.retain_mut(|s| {
            let worth = kept.next().flatten();
            *s = Stretch::new(s.start, s.len(), worth.unwrap_or_default());
            worth.is_some()
        });
        // Looking again for less than a quarter would cost too much.
        self.late_is_full = self.late.len() > STRETCHES_MAX / 4 * 3;
    }

    /// Nothing of it can be copied.
    pub(super) fn clear(&mut self) {
        *self = Backlog::default();
    }

    /// Blocks were written, which made the copies `lost` void, ascending by original.
    pub(super) fn written(&mut self, blocks: BlockRange, lost: &[Replica]) {
        self.outdated(lost);
        // What was read of them to be copied again is void too.
        while let Some((&original, &home)) = self.homes.range(blocks.start()..blocks.end()).next() {
            self.homes.remove(&original);
            self.at_home.remove(&home);
            // What was written home since is a copy like others.
            if lost.binary_search_by_key(&original, |r| r.original.0).is_err() {
                self.updates.insert(home, original);
            }
        }
    }

    /// Copies are missing here.
    pub(super) fn outdated(&mut self, places: &[Replica]) {
        let mut before = None;
        for r in places {
            // A second copy comes right behind the first: it is made again when it is missed again.
            let second = before.replace(r.original) == Some(r.original);
            if !second && self.unused.void(r.replica.0, r.original.0) && self.updates.len() < UPDATES_MAX {
                self.updates.insert(r.replica.0, r.original.0);
            }
        }
    }

    /// These were read, from wherever.
    pub(super) fn read(&mut self, blocks: BlockRange) {
        self.unused.read(blocks);
    }

    /// When to be asked for reads: updates in any pause, of what nobody reads in its own, `late` only in long ones, a lot that was begun to its end.
    pub(super) fn fetch_at(&self, idle_since: Nanos, late: bool) -> Option<Nanos> {
        let late = late || !self.late.is_empty();
        match self.lot.as_ref().filter(|l| !l.interrupted).map(|l| l.kind) {
            Some(Kind::Late) => Some(idle_since + LONG_REST),
            Some(Kind::Update) => Some(idle_since),
            None if !self.updates.is_empty() => Some(idle_since),
            None => {
                let rests = [late.then_some(LONG_REST), self.unused.rest()];
                rests.into_iter().flatten().min().map(|rest| idle_since + rest)
            }
        }
    }

    /// What to read next, after so long a rest.
    pub(super) fn fetch(&mut self, rested: Nanos, block_bytes: u32, space: &dyn Space) -> Fetch {
        if self.lot.is_none() {
            self.updates.extend(self.unused.rested(rested));
            self.lot = self.next_updates(block_bytes, space);
        }
        if self.lot.is_none() && rested >= LONG_REST {
            self.lot = self.next_late(block_bytes, space);
        }
        let lot = self.lot.as_ref().filter(|l| l.kind == Kind::Update || rested >= LONG_REST);
        lot.and_then(|l| l.reads.front()).map_or(Fetch::Nothing, |read| Fetch::Read(*read))
    }

    fn next_updates(&mut self, block_bytes: u32, space: &dyn Space) -> Option<Lot> {
        if self.updates.is_empty() {
            return None;
        }
        self.homes.clear();
        self.at_home.clear();
        self.homes_run = None;
        while self.homes.len() < UPDATES_LOT
            && let Some((home, original)) = self.updates.pop_first()
        {
            if !is_freed(original, space) && space.copies(BlockNo(original)) == 0 {
                self.homes.insert(original, home);
                self.at_home.insert(home, original);
                self.unused.made_again(original);
            }
        }
        let rank = self.homes.iter().map(|(&o, &h)| (o, (h, UPDATE_WORTH))).collect();
        Lot::new(Kind::Update, rank, Vec::new(), block_bytes)
    }

    fn next_late(&mut self, block_bytes: u32, space: &dyn Space) -> Option<Lot> {
        let most = (LOT_BYTES / u64::from(block_bytes)) as usize;
        let (mut rank, mut stretches, mut looks) = (HashMap::new(), Vec::new(), 0);
        self.late_is_full = false;
        while rank.len() < most
            && looks < LOOKS * most
            && let Some(row) = self.next_row()
        {
            let (len, worth) = (row.iter().map(|s| s.len()).sum::<u32>() as usize, worth_of(&row));
            let mut left = space.room_for(worth).saturating_sub(rank.len());
            if left < len {
                // Half of what is read at once is no use; the rest finds no place.
                left -= left % COPY_BLOCKS_MAX as usize;
            }
            let mut later = Vec::new();
            for stretch in row {
                let now = stretch.len().min(left as u32);
                left -= now as usize;
                let (now, then) = stretch.split(now.min(most.saturating_sub(rank.len()) as u32), now);
                later.extend(then);
                looks += now.len() as usize;
                space.lacking(BlockRange::at(BlockNo(now.start), now.len()), &mut |part| {
                    stretches.push(Stretch::new(part.start(), part.len(), now.worth()));
                    for b in part.iter().filter(|b| !is_freed(b.0, space)) {
                        let next = rank.len() as u32;
                        let (_, most) = rank.entry(b.0).or_insert((next, now.worth()));
                        *most = now.worth().max(*most);
                    }
                });
            }
            later.into_iter().rev().for_each(|s| self.late.push_front(s));
        }
        Lot::new(Kind::Late, rank, stretches, block_bytes)
    }

    /// The next stretches that lie in a row, as many as are written at a time.
    fn next_row(&mut self) -> Option<Vec<Stretch>> {
        let mut row = vec![self.late.pop_front()?];
        let mut len = row[0].len();
        while len < COPY_BLOCKS_MAX
            && let Some(next) =
                self.late.pop_front_if(|next| row.last().is_some_and(|s| s.end() == next.start))
        {
            len += next.len();
            row.push(next);
        }
        Some(row)
    }

    /// What was read, or could not be.
    pub(super) fn fetched(
        &mut self,
        blocks: BlockRange,
        data: Brought<'_>,
        hashes: &[u64],
        block_bytes: u32,
        log: &mut Log,
    ) {
        let Some(lot) = self.lot.as_mut().filter(|l| l.reads.front() == Some(&blocks)) else { return };
        // What was read into a run that the log has dropped is gone with it.
        let run = match lot.run.filter(|&run| log.takes(run)) {
            Some(run) => run,
            None => log.gather(lot.kind == Kind::Late),
        };
        lot.run = Some(run);
        if lot.kind == Kind::Update {
            self.homes_run = Some(run);
        }
        if !data.is_nothing() {
            let wanted = || (0..).zip(blocks.iter()).filter(|(_, b)| lot.rank.contains_key(&b.0));
            if !log.has_room(wanted().count() * block_bytes as usize) {
                self.give_back(log);
                return;
            }
            for (i, block) in wanted() {
                let worth = lot.rank.get(&block.0).map_or(1, |r| r.1);
                let captured = Captured { original: block, hash: hashes[i], worth };
                log.push_captured(run, captured, data.block(i, block_bytes as usize));
            }
        }
        lot.reads.pop_front();
        if lot.reads.is_empty() {
            self.give_back(log);
        }
    }

    /// A client reads, so that the lot would have to wait for the next long rest: what was read of it need not. Updates are read in any pause.
    pub(super) fn interrupted(&mut self, log: &mut Log) {
        let begun = self.lot.as_mut().filter(|l| l.kind == Kind::Late);
        if let Some((lot, run)) = begun.and_then(|l| l.run.map(|run| (l, run))) {
            log.release(run);
            lot.interrupted = true;
        }
    }

    /// The volume rests: there is time to put in order what was read of an interrupted lot.
    pub(super) fn idle(&mut self, log: &mut Log) {
        if self.lot.as_ref().is_some_and(|l| l.interrupted) {
            self.give_back(log);
        }
    }

    /// The lot ends: what was read of it may be copied, the rest waits (B2).
    fn give_back(&mut self, log: &mut Log) {
        let Some(lot) = self.lot.take() else { return };
        if let Some(run) = lot.run {
            log.sort_by_key(run, |b| lot.rank.get(&b.0).copied());
            log.close(run);
        }
        // Reads ascend: all blocks before the next one were read.
        let Some(next) = lot.reads.front().map(|r| r.start()) else { return };
        match lot.kind {
            Kind::Update => {
                for (original, home) in self.homes.split_off(&next) {
                    self.at_home.remove(&home);
                    self.updates.insert(home, original);
                }
            }
            Kind::Late => {
                for stretch in lot.stretches.iter().rev() {
                    let from = stretch.start.max(next);
                    if from < stretch.end() {
                        self.late.push_front(Stretch::new(from, stretch.end() - from, stretch.worth()));
                    }
                }
            }
        }
    }

    /// Looks where the log's next blocks had their copies.
    pub(super) fn look(&mut self, log: &Log) {
        self.look_away();
        if self.homes.is_empty() {
            return;
        }
        for (i, original) in (0..).zip(log.next_blocks().take(WRITE_BLOCKS_MAX as usize)) {
            match (self.homes.get(&original.0), &mut self.next_home) {
                (Some(&home), None) if i == 0 => self.next_home = Some(BlockRange::new(home, home + 1)),
                (Some(_), None) => {
                    self.homeless = Some(i);
                    return;
                }
                (None, None) => {}
                (Some(&home), Some(next)) if next.end() == home => {
                    *next = BlockRange::new(next.start(), home + 1);
                }
                (_, Some(_)) => return,
            }
        }
    }

    /// The log's next blocks go anywhere.
    pub(super) fn look_away(&mut self) {
        (self.next_home, self.homeless) = (None, None);
    }

    /// `want` of the log's next blocks, or those before one that has a place of its own.
    pub(super) fn homeless(&self, want: u32) -> u32 {
        self.homeless.map_or(want, |n| n.min(want))
    }

    /// Whether updates that were read again are still to be written.
    pub(super) fn updates_wait(&self, log: &Log) -> bool {
        self.homes_run.is_some_and(|run| log.has_run(run))
    }

    /// The place that the log's next blocks come from, as far as nothing else took it.
    pub(super) fn home(&mut self, want: u32, shape: &Shape, space: &dyn Space) -> Option<BlockRange> {
        let next = self.next_home.take()?;
        self.homeless = Some(next.len());
        let group = shape.group_range(shape.group_of(next.first()));
        let next =
            BlockRange::new(next.start(), next.end().min(next.start().saturating_add(want)).min(group.end()));
        let one = BlockRange::one(next.first());
        [next, one].into_iter().find(|&r| space.first_vacant(r, r.len(), r.len()) == Some(r))
    }
}

#[cfg(test)]
mod tests;
