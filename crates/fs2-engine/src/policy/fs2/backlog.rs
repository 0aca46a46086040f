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

    /// Blocks were written, which made the copies `lost` void.
    pub(super) fn written(&mut self, blocks: BlockRange, lost: &[Replica]) {
        self.outdated(lost);
        // What was read of them to be copied again is void too.
        while let Some((&original, &home)) = self.homes.range(blocks.start()..blocks.end()).next() {
            self.homes.remove(&original);
            self.at_home.remove(&home);
            self.updates.insert(home, original);
        }
    }

    /// Copies are missing here.
    pub(super) fn outdated(&mut self, places: &[Replica]) {
        let mut before = None;
        for r in places {
            // A second copy comes right behind the first: it is made again when it is missed again.
            if before.replace(r.original) != Some(r.original) && self.updates.len() < UPDATES_MAX {
                self.updates.insert(r.replica.0, r.original.0);
            }
        }
    }

    /// When to be asked for reads: updates in any pause, `late` only in long ones, a lot that was begun to its end.
    pub(super) fn fetch_at(&self, idle_since: Nanos, late: bool) -> Option<Nanos> {
        let late = late || !self.late.is_empty();
        match self.lot.as_ref().filter(|l| !l.interrupted).map(|l| l.kind) {
            Some(Kind::Late) => Some(idle_since + LONG_REST),
            Some(Kind::Update) => Some(idle_since),
            None if !self.updates.is_empty() => Some(idle_since),
            None => late.then_some(idle_since + LONG_REST),
        }
    }

    /// What to read next, after so long a rest.
    pub(super) fn fetch(&mut self, rested: Nanos, block_bytes: u32, space: &dyn Space) -> Fetch {
        if self.lot.is_none() {
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
            }
        }
        let rank = self.homes.iter().map(|(&o, &h)| (o, (h, UPDATE_WORTH))).collect();
        Lot::new(Kind::Update, rank, Vec::new(), block_bytes)
    }

    fn next_late(&mut self, block_bytes: u32, space: &dyn Space) -> Option<Lot> {
        let most = (LOT_BYTES / u64::from(block_bytes)) as usize;
        let (mut rank, mut stretches) = (HashMap::new(), Vec::new());
        self.late_is_full = false;
        while rank.len() < most
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
mod tests {
    use super::*;

    const BLOCK: u32 = 4096;

    /// Copies of `copied`; everything from 1,000 on is free.
    #[derive(Default)]
    struct Ground {
        copied: Vec<u32>,
        taken: Vec<u32>,
        /// What is worth less than this finds no place.
        least: u8,
    }

    impl Space for Ground {
        fn vacant(&self, _: u32) -> Option<Vec<BlockRange>> {
            None
        }
        fn is_known(&self, _: u32) -> bool {
            true
        }
        fn first_vacant(&self, within: BlockRange, least: u32, enough: u32) -> Option<BlockRange> {
            let from = within.start().max(1000);
            let free = BlockRange::new(from, within.end().max(from).min(from + enough));
            let taken = free.iter().any(|b| self.taken.contains(&b.0));
            (free.len() >= least && !taken).then_some(free)
        }
        fn vacated(&self, _: BlockRange) -> u64 {
            0
        }
        fn has_replica(&self, block: BlockNo) -> bool {
            self.copied.contains(&block.0)
        }
        fn copies(&self, block: BlockNo) -> usize {
            usize::from(self.copied.contains(&block.0))
        }
        fn room(&self) -> usize {
            1000
        }
        fn room_for(&self, worth: u8) -> usize {
            if worth >= self.least { 1000 } else { 0 }
        }
    }

    fn shape() -> Shape {
        Shape { blocks: 8000, group_blocks: 4000, first_block: 0, block_bytes: BLOCK, seed: 0 }
    }

    /// Reads all that is asked for, and says what.
    fn read(b: &mut Backlog, rested: Nanos, ground: &Ground, log: &mut Log) -> Vec<(u32, u32)> {
        let mut reads = Vec::new();
        while let Fetch::Read(r) = b.fetch(rested, BLOCK, ground) {
            reads.push((r.start(), r.end()));
            let data = vec![0; (r.len() * BLOCK) as usize];
            let hashes: Vec<u64> = r.iter().map(|b| u64::from(b.0)).collect();
            b.fetched(r, Brought::Bytes(&data), &hashes, BLOCK, log);
        }
        reads
    }

    fn written_in(log: &mut Log) -> Vec<u32> {
        std::iter::from_fn(|| log.take(100)).flat_map(|b| b.blocks).map(|b| b.original.0).collect()
    }

    fn at(start: u32, end: u32) -> BlockRange {
        BlockRange::new(start, end)
    }

    fn copy(original: u32, replica: u32) -> Replica {
        let (original, replica) = (BlockNo(original), BlockNo(replica));
        Replica { original, replica, hash: 0, trust: fs2_table::Trust::Verified }
    }

    #[test]
    fn late_blocks_are_read_by_address_and_written_as_they_were_visited() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        let ground = Ground { copied: vec![401], taken: Vec::new(), least: 0 };
        b.push([at(500, 502), at(400, 402), at(700, 701), at(500, 501), at(1200, 1203)], 1);
        let soon = Nanos::from_millis(500);
        assert_eq!(b.fetch_at(Nanos(5), false), Some(LONG_REST + Nanos(5)));
        assert_eq!(b.fetch(soon, BLOCK, &ground), Fetch::Nothing, "no long rest");
        assert_eq!(read(&mut b, LONG_REST, &ground, &mut log), [(400, 401), (500, 502), (700, 701)]);
        assert_eq!(written_in(&mut log), [500, 501, 400, 700], "what is copied or freed is not");
        assert_eq!(b.fetch_at(Nanos(5), false), None);
        log.check();
    }

    #[test]
    fn what_lost_its_place_is_read_again_and_written_as_it_lay() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        // 502 has another copy.
        let ground = Ground { copied: vec![502], taken: Vec::new(), least: 0 };
        let lay = [700, 502, 400, 401];
        let copies: Vec<_> = (0..).zip(lay).map(|(i, original)| copy(original, 3000 + i)).collect();
        b.displaced(at(3000, 3004), &copies, Some(3), &mut log);
        assert_eq!(read(&mut b, LONG_REST, &ground, &mut log), [(400, 402), (700, 701)]);
        assert_eq!(written_in(&mut log), [700, 400, 401]);
    }

    /// A file's first block was written, then a new file took the place of its copies: it came elsewhere than the others, and who read the file
    /// whole was served from no copy.
    #[test]
    fn what_was_void_when_its_place_was_taken_is_written_among_its_neighbours() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        let lay: Vec<_> = (0..4).map(|i| copy(400 + i, 3000 + i)).collect();
        b.written(at(400, 401), &lay[..1]);
        b.written(at(402, 403), &lay[2..3]);
        b.written(at(700, 701), &[copy(700, 3100)]);
        b.displaced(at(3000, 3002), &lay[1..2], Some(3), &mut log);
        // Here none was left.
        b.displaced(at(3002, 3003), &[], None, &mut log);
        b.displaced(at(3003, 3004), &lay[3..], Some(3), &mut log);
        let ground = Ground::default();
        assert_eq!(read(&mut b, Nanos(0), &ground, &mut log), [(700, 701)], "at home");
        assert_eq!(written_in(&mut log), [700]);
        assert_eq!(read(&mut b, LONG_REST, &ground, &mut log), [(400, 404)]);
        assert_eq!(written_in(&mut log), [400, 401, 402, 403]);
    }

    /// The same while they are on their way home, read or not yet.
    #[test]
    fn updates_on_their_way_to_a_place_that_is_taken_turn_round() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        let lay = [copy(400, 3000), copy(401, 3001), copy(500, 3002), copy(600, 3003)];
        lay.iter().for_each(|r| b.written(BlockRange::one(r.original), &[*r]));
        let ground = Ground::default();
        let Fetch::Read(first) = b.fetch(Nanos(0), BLOCK, &ground) else { panic!() };
        assert_eq!(first, at(400, 402));
        b.fetched(first, Brought::Bytes(&[0; 2 * BLOCK as usize]), &[0; 2], BLOCK, &mut log);
        b.displaced(at(3001, 3003), &[], None, &mut log);
        assert!(!log.contains(BlockNo(401)));
        read(&mut b, Nanos(0), &ground, &mut log);
        assert_eq!(written_in(&mut log), [400, 600]);
        // What went home is no update any more.
        b.displaced(at(3000, 3001), &[lay[0]], Some(3), &mut log);
        assert_eq!(read(&mut b, LONG_REST, &ground, &mut log), [(400, 402), (500, 501)]);
        assert_eq!(written_in(&mut log), [401, 500, 400]);
        log.check();
    }

    /// Others' payloads and turns are not theirs to end: of what went home long ago nothing is told.
    #[test]
    fn what_went_home_is_no_update_when_its_place_is_taken() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.written(at(400, 401), &[copy(400, 3000)]);
        b.written(at(401, 402), &[copy(401, 3001)]);
        let ground = Ground::default();
        read(&mut b, Nanos(0), &ground, &mut log);
        assert_eq!(written_in(&mut log), [400, 401]);
        // A client reads both again, their copies having given way to others'; one is in a lot of what is late by then.
        let client = log.open();
        assert!(log.push(client, BlockNo(400), 0, &[0; BLOCK as usize]));
        b.push([at(401, 403)], 1);
        let Fetch::Read(late) = b.fetch(LONG_REST, BLOCK, &ground) else { panic!() };
        b.displaced(at(3000, 3002), &[], None, &mut log);
        assert!(log.contains(BlockNo(400)));
        b.fetched(late, Brought::Bytes(&[0; 2 * BLOCK as usize]), &[0; 2], BLOCK, &mut log);
        assert_eq!(b.fetch(LONG_REST, BLOCK, &ground), Fetch::Nothing);
        log.close(client);
        assert_eq!(written_in(&mut log), [400, 401, 402]);
    }

    /// Among copies that are worth little it keeps its own worth.
    #[test]
    fn an_update_without_a_place_is_worth_what_it_was() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.written(at(401, 402), &[copy(401, 3001)]);
        b.written(at(401, 402), &[]);
        b.displaced(at(3000, 3003), &[copy(400, 3000), copy(402, 3002)], Some(3), &mut log);
        assert_eq!(read(&mut b, LONG_REST, &Ground::default(), &mut log), [(400, 403)]);
        log.close_all();
        let worths: Vec<_> = log.take(8).unwrap().blocks.iter().map(|c| (c.original.0, c.worth)).collect();
        assert_eq!(worths, [(400, 3), (401, UPDATE_WORTH), (402, 3)]);
    }

    #[test]
    fn what_has_a_place_goes_there_and_takes_no_others_along() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.homes = BTreeMap::from([(7, 1007), (8, 1008), (9, 1100)]);
        for run in [&[50, 51][..], &[7, 8], &[9]] {
            let id = log.open();
            run.iter().for_each(|&n| assert!(log.push(id, BlockNo(n), 0, &[0; 10])));
            log.close(id);
        }
        let shape = Shape { blocks: 8000, group_blocks: 4000, first_block: 0, block_bytes: BLOCK, seed: 0 };
        let mut next = |log: &mut Log, ground: &Ground| {
            b.look(log);
            let home = b.home(64, &shape, ground);
            let len = home.map_or(b.homeless(64), BlockRange::len);
            (home, log.take(len as usize).unwrap().blocks.iter().map(|c| c.original.0).collect::<Vec<_>>())
        };
        let full = Ground { taken: vec![1100], ..Ground::default() };
        assert_eq!(next(&mut log, &full), (None, vec![50, 51]));
        assert_eq!(next(&mut log, &full), (Some(at(1007, 1009)), vec![7, 8]));
        assert_eq!(next(&mut log, &full), (None, vec![9]), "taken meanwhile");
    }

    #[test]
    fn what_would_find_no_place_is_not_read_again() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.push([at(500, 502)], 20);
        b.push([at(510, 511)], 9);
        b.push([at(400, 402)], 127);
        let ground = Ground { least: 20, ..Ground::default() };
        assert_eq!(read(&mut b, LONG_REST, &ground, &mut log), [(400, 402), (500, 502)]);
        let worths: Vec<u8> = log.take(9).unwrap().blocks.iter().map(|c| c.worth).collect();
        assert_eq!(worths, [20, 20, 127, 127], "in the order of reading");
        assert_eq!(b.fetch_at(Nanos(0), false), None);
    }

    #[test]
    fn gaps_are_bridged_and_reads_are_short() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.push([at(100, 103), at(108, 110), at(130, 131), at(200, 300)], 1);
        let reads = read(&mut b, LONG_REST, &Ground::default(), &mut log);
        assert_eq!(reads, [(100, 110), (130, 131), (200, 264), (264, 300)]);
        assert_eq!(written_in(&mut log).len(), 3 + 2 + 1 + 100);
    }

    /// B2: the log has room for half of it.
    #[test]
    fn what_finds_no_room_comes_later() {
        let (mut b, mut log) = (Backlog::default(), Log::new(3 * BLOCK as usize));
        b.push([at(500, 502), at(400, 402), at(600, 601)], 1);
        let Fetch::Read(first) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
        b.fetched(first, Brought::Bytes(&[0; 2 * BLOCK as usize]), &[0, 0], BLOCK, &mut log);
        let Fetch::Read(next) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
        b.fetched(next, Brought::Bytes(&[0; 2 * BLOCK as usize]), &[0, 0], BLOCK, &mut log);
        assert_eq!(written_in(&mut log), [400, 401]);
        let rest = Ground { copied: vec![400, 401], taken: Vec::new(), least: 0 };
        assert_eq!(read(&mut b, LONG_REST, &rest, &mut log), [(500, 502), (600, 601)]);
        assert_eq!(written_in(&mut log), [500, 501, 600]);
    }

    /// B1 and B2: a client reads before all of it was.
    #[test]
    fn what_was_read_of_an_interrupted_lot_is_written_and_the_rest_comes_later() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.push([at(500, 502), at(400, 402), at(600, 601), at(300, 301)], 1);
        let read_next = |b: &mut Backlog, log: &mut Log| {
            let Fetch::Read(r) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
            b.fetched(r, Brought::Bytes(&vec![0; (r.len() * BLOCK) as usize]), &[0, 0], BLOCK, log);
        };
        // Nothing was read yet.
        let _ = b.fetch(LONG_REST, BLOCK, &Ground::default());
        b.interrupted(&mut log);
        b.idle(&mut log);
        (0..3).for_each(|_| read_next(&mut b, &mut log));
        b.idle(&mut log);
        assert!(!log.has_work());
        b.interrupted(&mut log);
        assert!(log.has_work(), "in any pause");
        assert_eq!(written_in(&mut log), [], "not yet in order");
        b.idle(&mut log);
        assert_eq!(written_in(&mut log), [500, 501, 400, 401, 300], "as they were visited");
        assert_eq!(b.fetch(Nanos(0), BLOCK, &Ground::default()), Fetch::Nothing, "no long rest");
        read_next(&mut b, &mut log);
        assert_eq!(written_in(&mut log), [600]);
        log.check();
    }

    #[test]
    fn updates_need_not_wait_for_an_interrupted_lot_and_are_not_interrupted() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.push([at(500, 501), at(400, 401)], 1);
        let Fetch::Read(first) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
        b.fetched(first, Brought::Bytes(&[0; BLOCK as usize]), &[0], BLOCK, &mut log);
        b.written(at(10, 11), &[copy(10, 2000)]);
        b.written(at(90, 91), &[copy(90, 3000)]);
        assert_eq!(b.fetch_at(Nanos(7), false), Some(LONG_REST + Nanos(7)), "the lot comes first");
        b.interrupted(&mut log);
        assert_eq!(b.fetch_at(Nanos(7), false), Some(Nanos(7)));
        b.idle(&mut log);
        assert_eq!(written_in(&mut log), [400]);
        assert_eq!(b.fetch(Nanos(0), BLOCK, &Ground::default()), Fetch::Read(at(10, 11)));
        b.fetched(at(10, 11), Brought::Bytes(&[0; BLOCK as usize]), &[0], BLOCK, &mut log);
        b.interrupted(&mut log);
        assert!(!log.has_work());
        assert_eq!(read(&mut b, Nanos(0), &Ground::default(), &mut log), [(90, 91)]);
        assert_eq!(written_in(&mut log), [10, 90]);
        assert_eq!(read(&mut b, LONG_REST, &Ground::default(), &mut log), [(500, 501)]);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.push([at(500, 502)], 1);
        let Fetch::Read(r) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
        b.fetched(at(1, 2), Brought::NOTHING, &[], BLOCK, &mut log);
        b.fetched(r, Brought::NOTHING, &[], BLOCK, &mut log);
        assert_eq!((b.fetch_at(Nanos(0), false), log.is_empty()), (None, true));
        log.check();
    }

    #[test]
    fn an_update_goes_home_unless_its_place_is_taken() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.written(at(10, 12), &[copy(10, 2001), copy(11, 2000)]);
        b.written(at(50, 51), &[copy(50, 3000)]);
        assert_eq!(b.fetch_at(Nanos(7), false), Some(Nanos(7)), "in any pause");
        let ground = Ground { copied: Vec::new(), taken: vec![3000], least: 0 };
        assert_eq!(read(&mut b, Nanos(0), &ground, &mut log), [(10, 12), (50, 51)]);
        b.look(&log);
        assert_eq!(b.home(64, &shape(), &ground), Some(at(2000, 2002)));
        assert_eq!(log.take(2).map(|t| t.blocks[0].original), Some(BlockNo(11)), "as they lay");
        b.look(&log);
        assert_eq!(b.home(64, &shape(), &ground), None, "taken");
        assert_eq!(written_in(&mut log), [50]);
        // Written again while it waited in the log: read again.
        b.written(at(10, 12), &[copy(10, 2001)]);
        read(&mut b, Nanos(0), &ground, &mut log);
        log.kill(at(10, 11));
        b.written(at(10, 11), &[]);
        assert_eq!(read(&mut b, Nanos(0), &ground, &mut log), [(10, 11)]);
    }

    /// One that is written again before it is written home leaves no gap that the others would move into.
    #[test]
    fn updates_go_to_their_own_homes_whatever_becomes_of_one() {
        let lost = |original: u32| copy(original, 2000 + original);
        // Less than what waits, and more.
        for written in [at(8, 9), at(0, 9)] {
            let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
            b.written(at(8, 11), &[lost(8), lost(9), lost(10)]);
            let ground = Ground::default();
            assert_eq!(read(&mut b, Nanos(0), &ground, &mut log), [(8, 11)]);
            log.outdate(written);
            b.written(written, &[]);
            b.look(&log);
            let home = b.home(64, &shape(), &ground).unwrap();
            assert_eq!(home, at(2009, 2011));
            let batch = log.take(home.len() as usize).unwrap();
            assert_eq!(batch.blocks.iter().map(|b| b.original.0).collect::<Vec<_>>(), [9, 10]);
            assert_eq!(read(&mut b, Nanos(0), &ground, &mut log), [(8, 9)]);
        }
    }

    /// What is copied in the order in which it came has a place for what was written meanwhile (the log's I6).
    #[test]
    fn what_is_written_amid_a_lot_keeps_its_turn() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.push([at(400, 403)], 1);
        assert_eq!(read(&mut b, LONG_REST, &Ground::default(), &mut log), [(400, 403)]);
        log.outdate(at(401, 402));
        assert_eq!(written_in(&mut log), [400, 401, 402]);
    }

    /// The log was cleared amid a lot: the rest of it is read into another run.
    #[test]
    fn a_lot_outlives_the_log() {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.push([at(500, 501), at(400, 401), at(700, 701)], 1);
        let Fetch::Read(first) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
        b.fetched(first, Brought::Bytes(&[0; BLOCK as usize]), &[0], BLOCK, &mut log);
        log.clear();
        assert_eq!(read(&mut b, LONG_REST, &Ground::default(), &mut log), [(500, 501), (700, 701)]);
        assert_eq!(written_in(&mut log), [500, 700]);
        log.check();
    }

    #[test]
    fn memory_is_bounded() {
        let mut b = Backlog::default();
        b.push((0..STRETCHES_MAX as u32 + 100).map(|i| at(2 * i, 2 * i + 1)), 1);
        assert_eq!(b.late.len(), STRETCHES_MAX);
        assert!(std::mem::size_of::<Stretch>() * STRETCHES_MAX <= 2 << 20);
    }

    #[test]
    fn repeated_stretches_make_room_for_new_ones() {
        let mut b = Backlog::default();
        let some = |from: u32| (from..from + 1000).map(|i| at(3 * i, 3 * i + 1));
        // Worth more each time.
        for time in 0..STRETCHES_MAX / 1000 + 1 {
            b.push(some(0), time.min(100) as u8);
        }
        b.push(some(5000), 1);
        let first: Vec<u32> = b.late.iter().take(1000).map(|s| s.start / 3).collect();
        assert_eq!(first, (0..1000).collect::<Vec<u32>>(), "in the order in which they came first");
        assert!(b.late.iter().take(1000).all(|s| s.worth() == 100));
        assert!(b.late.len() < 3000 && b.late.contains(&Stretch::new(3 * 5999, 1, 1)), "{}", b.late.len());
    }
}
