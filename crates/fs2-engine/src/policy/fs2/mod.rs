//! The default policy: whole read runs in visit order, large free runs near the heat, choice by
//! predicted positioning time with lookahead.
//!
//! `docs/policy.md` says how it works and what each part is worth on real traces, `docs/constants.md` where its constants come from,
//! `docs/experiments.md` what was tried.

mod admission;
mod backlog;
mod batches;
mod chain;
mod chances;
mod frontiers;
mod onward;
mod placement;
mod places;
mod returns;
mod second;
mod sightings;
mod slow;
mod streams;
mod trail;
mod unused;

use std::collections::HashSet;

use fs2_block::{BlockNo, BlockRange, Nanos, SECTOR_BYTES, Sector};
use fs2_table::Replica;

use self::admission::Admission;
use self::backlog::Backlog;
use self::batches::Batches;
use self::chain::Chain;
use self::chances::Chances;
use self::onward::Onward;
use self::placement::Placement;
use self::returns::Returns;
use self::sightings::{Sighting, Sightings};
use self::slow::SlowPlaces;
use self::streams::{Stream, Streams, is_read_ahead};
use self::trail::{Reading, Trails};
use super::{Asked, Fetch, Place, Policy, PolicyKind, ReadSeen, Shape, Space};
use crate::config::COPY_BLOCKS_MAX;
use crate::head::Head;
use crate::io::Brought;
use crate::log::{Log, RunId};
use crate::part::{Part, Without};
use crate::worth;

/// Read runs that may be open at once. Measured: 4; 16 makes the repeats of a cvs update 40 % slower.
const OPEN_RUNS: usize = 4;

/// Longer runs are sequential reading, which gains nothing. Measured on the same traces.
const RUN_BYTES_MAX: u64 = 8 << 20;

/// Stretches of a run that found no room. More than the blocks of a run of 1 KiB blocks: only what is read again and
/// again exceeds it.
const LATE_MAX: usize = 1 << 13;

/// How fast the chance of continuation is learnt. Measured: 0.02 to 0.1 are alike.
const LEARN: f64 = 0.05;

/// So many blocks are taken to be in the drive's cache behind a read. From a simulation before anything was built.
const READS_AHEAD: u32 = 64;

/// A read continues another if it begins this many blocks before or after the other's end. From that simulation, too.
const CONTINUES: std::ops::RangeInclusive<i64> = -2..=READS_AHEAD as i64;

/// Start of the chance that a copy goes on, until others tell: one half. Measured.
const COPY_GOES_ON: u8 = 128;

/// Where the next read goes on it saves a positioning, but no more than this many times what reads take without copies: where the drive's
/// cache has most of them, there is little to save. Measured on made-up mixtures (docs/experiments.md, item 5): with 1 and 2 less is won,
/// with 8 more lost.
const GOING_ON: f64 = 4.0;

/// A crowd is among the copies where more of its requests than this are reads of what has one. Measured on real traces: 0.25 to 0.75
/// are alike; with none, the crowd of a database that writes has its reads 49 % later.
const AMONG_COPIES: f64 = 0.5;

/// A crowd goes to the originals where reads go on from there by so much more often: where they do from both, it went to and fro. Measured on
/// real and made-up traces: with 0 reads at random among what was read in strides take up to 30 % longer than without copies, with 0.1 still 18 %;
/// with 0.4 they take 46 % less, but shops by eight clients 2.7 % longer.
const RATHER: f64 = 0.2;

/// Weight of a request in such shares. Guess.
const CROWD_RATE: f64 = 1.0 / 256.0;

/// A read whose time is more than this part of a mean positioning moved the arm. Measured on real traces: 1/6 to 1/2.
const MISS_SHARE: f64 = 1.0 / 3.0;

/// In a crowd, a copy of what is read between originals saves less than its way by this part of a positioning: the arm has to come for it, too.
/// Measured: with 0 a cvs update by eight, with room for a quarter of what it reads, has nothing left of its gain after six repeats, with a half
/// to a whole most of it after twelve. For one client a half and more make what is read later wait a repeat longer.
const APART: f64 = 0.5;

/// Copies are made beside open requests where this share of what is read without a copy had been read before. Measured on real traces: from
/// 0 to 0.5 alike, for what is read over and over; it is there for what is not.
const COMES_AGAIN: f64 = 0.3;

/// Blocks of a copy beside open requests: all wait for it, and most of that is the way there. Measured: with 64 crowds take a repeat longer,
/// with 1,024 they are as fast.
const BESIDE_BLOCKS: usize = 256;

#[derive(Clone, Debug)]
struct OpenRun {
    id: RunId,
    start: u32,
    end: u32,
    /// What found no room in the log, in order; at most [`LATE_MAX`].
    late: Vec<BlockRange>,
    /// What its reads took that no copy served, and the blocks they brought that have none.
    took: Nanos,
    /// What of that passing the drive's heads takes, at the volume's beginning.
    transfer: Nanos,
    captured: u32,
    /// All that these brought.
    brought: u32,
    /// What was no first reading: it has a copy, or was read again while it waits.
    known: HashSet<u32>,
    /// What reads of copies took for which the arm had to come back from here.
    back: Nanos,
    /// What copies of this would not save, since what was read before has none.
    apart: Nanos,
    /// It is sequential reading: nothing of it waits.
    left: bool,
}

/// Where a read ended, and whether the next one begins there: the place whose chance is learnt next.
#[derive(Clone, Copy, Debug)]
struct Ended {
    first: BlockNo,
    end: BlockNo,
}

impl Ended {
    /// So many blocks from `first` on, which the largest volume may not have: only the first is known to be a copy.
    fn after(first: BlockNo, len: u32) -> Ended {
        Ended { first, end: BlockNo(first.0.saturating_add(len)) }
    }

    fn goes_on_at(self, at: BlockNo) -> bool {
        CONTINUES.contains(&(i64::from(at.0) - i64::from(self.end.0)))
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Fs2 {
    shape: Shape,
    without: Without,
    open: Vec<OpenRun>,
    /// Chance that the next read goes on where a copy ends, by place of the copy.
    copies_go_on: Chances,
    /// Chance that the next read goes on where an original ends, by place of the original.
    originals_go_on: Chances,
    returns: Returns,
    onward: Onward,
    chain: Chain,
    /// The last read's first copy, if it had one, and the last read.
    last_copy: Option<Ended>,
    last_original: Option<Ended>,
    /// Blocks that may be copied a second time now, and so that what is read at once lies in one place.
    second_room: f64,
    whole_room: f64,
    placement: Placement,
    backlog: Backlog,
    batches: Batches,
    sightings: Sightings,
    admission: Admission,
    /// Replicas that there may be and that there is room for, at the last read.
    capacity: usize,
    room: usize,
    trails: Trails,
    /// Share of the requests that are reads of what has a copy, lately.
    copied: f64,
    /// Share of the reads that left nothing open, lately, and of those that the drive served at once.
    alone: f64,
    at_once: f64,
    /// Where reads take longer than predicted.
    slow: SlowPlaces,
    /// What the last choice of a copy saves, predicted.
    saving: Nanos,
    /// The same of its own read, as a share of a mean positioning; below 0 where it costs.
    at_once_share: f64,
    /// The last read, if a second copy of it waits in the log: its blocks, and where its first copy ends.
    second: Option<(BlockRange, Ended)>,
    /// What the last choice went by: longer reads were misses, how the drive reads on, and whether somebody described it.
    miss: Nanos,
    reading: Reading,
    described: bool,
    /// The run of the last read, if no copy served it.
    last_run: Option<RunId>,
    streams: Streams,
}

impl Fs2 {
    /// For a volume of this shape.
    pub fn new(shape: &Shape) -> Fs2 {
        Fs2 {
            open: Vec::new(),
            copies_go_on: Chances::new(shape.blocks, COPY_GOES_ON),
            originals_go_on: Chances::new(shape.blocks, 0),
            returns: Returns::new(shape.blocks),
            onward: Onward::new(shape),
            chain: Chain::default(),
            last_copy: None,
            last_original: None,
            second_room: 0.0,
            whole_room: 0.0,
            placement: Placement::new(shape),
            backlog: Backlog::default(),
            batches: Batches::default(),
            sightings: Sightings::default(),
            admission: Admission::new(shape.block_bytes),
            capacity: 0,
            room: 0,
            trails: Trails::new(shape.blocks),
            copied: 0.0,
            alone: 1.0,
            at_once: 1.0,
            slow: SlowPlaces::new(shape.blocks),
            saving: Nanos(0),
            at_once_share: 0.0,
            second: None,
            miss: Nanos(u64::MAX),
            reading: Reading::default(),
            described: false,
            last_run: None,
            streams: Streams::default(),
            shape: shape.clone(),
            without: Without::default(),
        }
    }

    /// The same with these parts left out.
    pub(crate) fn without(mut self, without: Without) -> Fs2 {
        self.without = without;
        if without.has(Part::Heat) {
            self.placement.ignore_heat();
        }
        if without.has(Part::Trials) {
            self.trails.always();
        }
        self
    }

    /// A request came that is a read of what has a copy, or not.
    fn request(&mut self, copied: bool) {
        self.copied += (f64::from(u8::from(copied)) - self.copied) * CROWD_RATE;
    }

    /// Whether most requests are for what has a copy, so that who serves them all is among the copies.
    fn among_copies(&self) -> bool {
        self.copied > AMONG_COPIES && !self.without.has(Part::Crowds)
    }

    /// The chance that reads go on from this copy, or come back to its place.
    fn goes_on(&self, copy: BlockNo) -> f64 {
        let comes_back = if self.without.has(Part::Returns) { 0.0 } else { self.returns.of(copy) };
        if self.without.has(Part::Lookahead) { 0.0 } else { self.copies_go_on.of(copy).max(comes_back) }
    }

    /// The same of an original.
    fn original_goes_on(&self, first: BlockNo) -> f64 {
        let without = self.without.has(Part::Lookahead) || self.without.has(Part::OriginalsChance);
        if without { 0.0 } else { self.originals_go_on.of(first) }
    }

    /// What the next read costs by this one, of what begins at `first`, being served at `place`, in ms: it saves `going_on` where it goes on, else the
    /// arm has to go on from there. A drive that has others to serve chooses who is next by where the arm is.
    fn ahead(&self, first: BlockNo, place: BlockNo, goes_on: f64, going_on: f64, head: &Head) -> f64 {
        let unknown = head.in_company() || self.without.has(Part::Onward);
        let onward = if unknown { 0.0 } else { self.onward.seek_ms(first, place) };
        (1.0 - goes_on) * onward - goes_on * going_on
    }

    /// Of several places the one beside reads that the drive has to serve, so that it serves them at once: a copy, by its number, or the
    /// original. `None` where that is no place, or the original as well as a copy.
    fn joined(
        &self,
        head: &Head,
        original: Option<Sector>,
        mut copies: impl Iterator<Item = Sector>,
    ) -> Option<Option<usize>> {
        if !head.in_company() || self.without.has(Part::Joins) {
            return None;
        }
        let within = u64::from(READS_AHEAD) * u64::from(self.shape.block_bytes);
        let joins = |place| head.joins(place, within);
        match (original.is_some_and(joins), copies.position(joins)) {
            (true, None) => Some(None),
            (false, Some(i)) => Some(Some(i)),
            _ => None,
        }
    }

    /// Whether reads go on where the ones before them ended.
    fn learn(&mut self, seen: &ReadSeen<'_>) {
        if let Some(last) = self.last_copy {
            let places = [seen.copy, seen.first_copy];
            let came_true = places.into_iter().flatten().any(|c| last.goes_on_at(c));
            self.copies_go_on.learn(last.first, came_true, LEARN);
        }
        if let Some(last) = self.last_original {
            self.originals_go_on.learn(last.first, last.goes_on_at(seen.touched.first()), LEARN);
        }
        let ended = |first: BlockNo| Ended::after(first, seen.touched.len());
        let copy = seen.copy.or(seen.first_copy);
        self.last_copy = copy.map(ended);
        self.last_original = Some(ended(seen.touched.first()));
        if !self.without.has(Part::Returns) {
            self.returns.read(seen.touched, copy);
        }
    }

    /// The run that a read extends: it starts inside it or at its end; else a new one, and the oldest is closed.
    fn run_of(&mut self, blocks: BlockRange, log: &mut Log) -> usize {
        let (start, end) = (blocks.start(), blocks.end());
        if let Some(i) = self.open.iter().position(|r| (r.start..=r.end).contains(&start)) {
            self.open[i].end = self.open[i].end.max(end);
            return i;
        }
        if self.open.len() == OPEN_RUNS {
            let oldest = self.open.remove(0);
            self.close(oldest, log);
        }
        self.open.push(OpenRun {
            id: log.open(),
            start,
            end,
            late: Vec::new(),
            took: Nanos(0),
            transfer: Nanos(0),
            captured: 0,
            brought: 0,
            known: HashSet::new(),
            back: Nanos(0),
            apart: Nanos(0),
            left: false,
        });
        self.open.len() - 1
    }

    /// Whether a read belongs to a stream among others. What was captured of that goes where it begins to be one, nothing more comes.
    fn is_among_others(&mut self, seen: &ReadSeen<'_>, log: &mut Log) -> bool {
        match self.streams.ended(seen.touched, seen.served, self.shape.block_bytes, seen.positioning) {
            Stream::No => false,
            Stream::GoesOn => true,
            Stream::Begins(all) => {
                log.kill(all);
                let parts = self.open.iter_mut().filter(|r| (all.start()..all.end()).contains(&r.start));
                parts.for_each(|r| r.late.clear());
                true
            }
        }
    }

    fn push(&self, seen: &ReadSeen<'_>, part: BlockRange, at: usize, log: &mut Log) {
        let bytes = self.shape.block_bytes as usize;
        for block in part.iter() {
            let i = (block.0 - seen.touched.start()) as usize;
            log.push(self.open[at].id, block, seen.hashes[i], seen.data.block(i, bytes));
        }
    }

    fn close(&mut self, run: OpenRun, log: &mut Log) {
        let gain = worth(Nanos((run.took + run.back).0.saturating_sub(run.apart.0)), run.captured);
        let waiting = log.bytes() / self.shape.block_bytes as usize;
        let full = self.room == 0 || self.room < waiting;
        let Fs2 { sightings, admission, backlog, capacity, .. } = self;
        let open = self.without.has(Part::Admission) || admission.is_open();
        // What a copy of a block is worth, and whether it came before.
        let mut met = |block: BlockNo| {
            let Sighting { value, again } = sightings.read(block.0, gain, *capacity, full);
            Met { block, value, again: again || run.known.contains(&block.0) }
        };
        // Whether a row is copied: whole, for half of what is read at once is no use.
        let mut admit = |row: &[Met]| {
            let copied = open || 2 * row.iter().filter(|m| m.again).count() >= row.len();
            // Where it is full, only what is worth more than others is.
            row.iter().filter(|m| !m.again).for_each(|m| admission.first(m.block.0, copied && !full));
            copied
        };
        let mut captured = Vec::new();
        log.appraise(run.id, |block| {
            captured.push(met(block));
            captured.last().map_or(0, |m| m.value)
        });
        for row in rows(&captured).filter(|row| !admit(row)).collect::<Vec<_>>() {
            log.kill(BlockRange::at(row[0].block, row.len() as u32));
        }
        log.close(run.id);
        let late: Vec<Met> = run.late.iter().flat_map(|part| part.iter()).map(met).collect();
        for row in rows(&late).filter(|row| admit(row)).collect::<Vec<_>>() {
            row.iter().for_each(|m| backlog.push([BlockRange::one(m.block)], m.value));
        }
        sightings.end();
    }
}

/// Whether what it touches came whole: what did not is read again, so that a row's copies lie in a row.
fn is_whole(seen: &ReadSeen<'_>) -> bool {
    !seen.data.is_nothing() && seen.blocks == seen.touched
}

/// A block of a run that ends.
#[derive(Clone, Copy, Debug)]
struct Met {
    block: BlockNo,
    value: u8,
    again: bool,
}

/// What was read in a row, as much as is written at a time.
fn rows(met: &[Met]) -> impl Iterator<Item = &[Met]> {
    let rows = met.chunk_by(|a, b| b.block.0 == a.block.0 + 1);
    rows.flat_map(|row| row.chunks(COPY_BLOCKS_MAX as usize))
}

impl Policy for Fs2 {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Fs2
    }

    /// What a read costs, less what the next ones save that go on from there, if it is known which they are, or else if they do, for
    /// copies and original alike, or what later ones do that come back, for copies. Where the drive has others to serve, what one of
    /// these lies beside; if there is no such place, or copies and original both are, and most requests are among the copies, the
    /// nearest copy, unless reads rather go on from the original.
    fn choose(&mut self, now: Nanos, head: &Head, asked: &Asked<'_>) -> Option<usize> {
        let Asked { original, first, copies, only_copies, behind } = *asked;
        let block_bytes = u64::from(self.shape.block_bytes);
        // Of a copy whole blocks are read.
        let whole = original.end().next_multiple_of(block_bytes) - u64::from(first.0) * block_bytes;
        let positioning = head.mean_positioning_ms();
        let going_on = positioning.min(head.plain_read_ms() * GOING_ON);
        self.onward.reckon(head);
        let known = self.known_ahead(behind, going_on, positioning);
        let slow = !self.without.has(Part::SlowPlaces);
        let more = |block: BlockNo| if slow { self.slow.more(block) } else { 0.0 };
        let nearby = !self.without.has(Part::Nearby);
        let takes = |place: Sector, bytes: u64| match nearby {
            true => head.read_cost_nearby_ms(now, place, bytes),
            false => head.read_cost_ms(now, place, bytes),
        };
        let plain = takes(original.sector(), original.len()) + more(first);
        let sector = |copy: BlockNo| Sector(u64::from(copy.0) * block_bytes / SECTOR_BYTES);
        let cost = |copy: BlockNo| takes(sector(copy), whole) + more(copy);
        if !self.without.has(Part::Returns) {
            self.returns.asked(first, copies);
        }
        let mut choice = None;
        let home = Some(original.sector()).filter(|_| !only_copies);
        if let Some(joined) = self.joined(head, home, copies.iter().map(|&c| sector(c))) {
            choice = joined.map(|i| (i, cost(copies[i])));
        } else if head.in_company() && self.among_copies() {
            let nearest = (0..copies.len()).min_by_key(|&i| head.distance(sector(copies[i])));
            let nearest = nearest.filter(|&i| only_copies || self.prefers_copy(first, copies[i]));
            choice = nearest.map(|i| (i, cost(copies[i])));
        } else {
            let blocks = (whole / block_bytes) as u32;
            let ahead = |place: BlockNo, goes_on: f64| match known {
                true => -self.chain.saves_ms(Ended::after(place, blocks), positioning),
                false => self.ahead(first, place, goes_on, going_on, head),
            };
            let original = plain + ahead(first, self.original_goes_on(first));
            let mut best = if only_copies { f64::INFINITY } else { original };
            for (i, &copy) in copies.iter().enumerate() {
                let cost = cost(copy);
                let ahead = cost + ahead(copy, self.goes_on(copy));
                if ahead < best {
                    (best, choice) = (ahead, Some((i, cost)));
                }
            }
        }
        if let Some((_, cost)) = choice {
            self.saving = Nanos::from_millis_f64((plain - cost).max(0.0));
            self.at_once_share = (plain - cost) / positioning;
        }
        self.miss = Nanos::from_millis_f64(positioning * MISS_SHARE);
        self.described = head.is_described();
        // Three quarters: the read that the trail follows is in the segment too.
        self.reading = Reading {
            turn_ms: head.turn_ms(),
            bytes_a_ms: head.media_bytes_a_ms(),
            bytes_max: head.segment_bytes() / 4 * 3,
        };
        choice.map(|(i, _)| i)
    }

    fn prefers_copy(&self, first: BlockNo, copy: BlockNo) -> bool {
        self.among_copies() && self.goes_on(copy) + RATHER >= self.original_goes_on(first)
    }

    fn saving(&self) -> Nanos {
        self.saving
    }

    fn saves_at_once(&self) -> Option<f64> {
        Some(self.at_once_share)
    }

    fn read_came(&mut self, touched: BlockRange) {
        if !touched.is_empty() && !self.without.has(Part::Streams) {
            self.streams.came(touched);
        }
    }

    fn read_seen(&mut self, seen: &ReadSeen<'_>, space: &dyn Space, log: &mut Log) {
        self.backlog.interrupted(log);
        self.batches.came(log);
        if seen.touched.is_empty() {
            return;
        }
        self.backlog.read(seen.touched);
        let before = self.second.take();
        (self.capacity, self.room) = (space.capacity(), space.room());
        self.request(seen.first_copy.is_some());
        self.alone += (f64::from(u8::from(seen.alone)) - self.alone) * CROWD_RATE;
        self.at_once += (f64::from(u8::from(seen.at_once)) - self.at_once) * CROWD_RATE;
        self.admission.read(seen.touched);
        self.placement.read(seen.copy.unwrap_or(seen.touched.first()), seen.measured);
        self.learn(seen);
        let (first, moved) = (seen.touched.first(), seen.measured > self.miss);
        self.onward.read(first, seen.copy.unwrap_or(first), moved, seen.first_copy.is_some());
        if let Some(expected) = seen.expected {
            self.slow.took(seen.copy.unwrap_or(seen.touched.first()), seen.measured, expected);
        }
        self.trails.read(seen.now.since(seen.arrived));
        if let Some(copy) = seen.copy {
            let blocks = BlockRange::at(copy, seen.touched.len());
            let missed = seen.measured > self.miss;
            self.trails.copy_read(blocks, missed, seen.alone, self.reading, self.shape.block_bytes);
        }
        let last_run = self.last_run.take();
        if seen.copy.is_some()
            && seen.measured > self.miss
            && let Some(run) = self.open.iter_mut().find(|r| Some(r.id) == last_run)
        {
            run.back += seen.served;
        }
        if !self.without.has(Part::Streams) && self.is_among_others(seen, log) {
            return;
        }
        // What may not be copied belongs to no run.
        if !seen.wanted {
            return;
        }
        let at = self.run_of(seen.touched, log);
        let run = &mut self.open[at];
        if seen.copy.is_none() {
            // In a crowd nine tenths of the rest are others' accesses, which copies of these would not save.
            run.took += seen.served;
            run.transfer += seen.transfer;
            run.brought = run.brought.saturating_add(seen.touched.len());
            if last_run.is_some() && !seen.alone && seen.measured > self.miss {
                run.apart += Nanos((seen.served.min(seen.positioning).0 as f64 * APART) as u64);
            }
            self.last_run = Some(run.id);
        }
        let block_bytes = u64::from(self.shape.block_bytes);
        let bytes = |blocks: u32| u64::from(blocks) * block_bytes;
        let left = std::mem::replace(
            &mut run.left,
            bytes(run.end - run.start) > RUN_BYTES_MAX
                || !self.without.has(Part::Streams)
                    && is_read_ahead(bytes(run.brought), run.took, run.transfer, seen.positioning),
        );
        if run.left {
            // Sequential reading: what was captured goes, nothing more comes.
            if !left {
                log.kill(BlockRange::new(run.start, run.end));
                run.late.clear();
            }
            return;
        }
        self.second_copy(seen, before, space, at, log);
        if self.is_copied_whole(seen, space, at, log) {
            return;
        }
        // What finds no room whole is read again, so that its copies lie in a row.
        let whole = is_whole(seen) && log.has_room(bytes(seen.touched.len()) as usize);
        space.lacking(seen.touched, &mut |part| {
            self.open[at].captured += part.len();
            if whole {
                // What waits was read before.
                for waits in part.iter().filter(|&b| log.contains(b)) {
                    self.sightings.came(true);
                    self.open[at].known.insert(waits.0);
                }
                self.push(seen, part, at, log);
            } else if self.open[at].late.len() < LATE_MAX && !self.without.has(Part::Backlog) {
                self.open[at].late.push(part);
            }
        });
    }

    fn trail(&mut self) -> Option<BlockRange> {
        self.trails.take().filter(|_| !self.without.has(Part::Trails))
    }

    fn trail_read(&mut self, bytes: u64, took: Nanos) {
        self.trails.took(bytes, took);
    }

    fn written(&mut self, blocks: BlockRange, lost: &[Replica]) {
        self.request(false);
        self.onward.written(blocks.first());
        if !self.without.has(Part::Updates) {
            self.backlog.written(blocks, lost);
        }
    }

    fn keeps_turns(&self) -> bool {
        !self.without.has(Part::Updates)
    }

    fn keeps_reads_whole(&self) -> bool {
        !self.without.has(Part::Pieces)
    }

    fn outdated(&mut self, places: &[Replica]) {
        self.backlog.outdated(places);
    }

    fn allocated(&mut self, blocks: BlockRange) {
        if !self.without.has(Part::Foresight) {
            self.placement.allocated(blocks);
        }
    }

    fn displaced(&mut self, taken: BlockRange, copies: &[Replica], worth: Option<u8>, log: &mut Log) {
        if !self.without.has(Part::Remaking) {
            self.backlog.displaced(taken, copies, worth, log);
        }
    }

    fn copies_beside(&self) -> Option<usize> {
        (self.sightings.share_again() >= COMES_AGAIN).then_some(BESIDE_BLOCKS)
    }

    fn beside(&mut self) {
        self.backlog.look_away();
    }

    fn ages(&mut self) -> bool {
        self.sightings.age(self.capacity)
    }

    fn idle(&mut self, _: Nanos, log: &mut Log) {
        for run in std::mem::take(&mut self.open) {
            self.close(run, log);
        }
        self.backlog.idle(log);
        self.backlog.look(log);
        self.batches.copied(log, self.shape.block_bytes);
    }

    fn too_few(&self, log: &Log) -> bool {
        let may_wait = !self.without.has(Part::Batches) && !self.backlog.updates_wait(log);
        may_wait && self.batches.too_few(log, self.shape.block_bytes)
    }

    fn fetch_at(&self, idle_since: Nanos) -> Option<Nanos> {
        self.backlog.fetch_at(idle_since, self.open.iter().any(|r| !r.late.is_empty()))
    }

    fn fetch(&mut self, rested: Nanos, space: &dyn Space) -> Fetch {
        self.backlog.fetch(rested, self.shape.block_bytes, space)
    }

    fn fetched(&mut self, blocks: BlockRange, data: Brought<'_>, hashes: &[u64], log: &mut Log) {
        self.backlog.fetched(blocks, data, hashes, self.shape.block_bytes, log);
    }

    fn place(&mut self, want: u32, head: &Head, space: &dyn Space) -> Place {
        if let Some(home) = self.backlog.home(want, &self.shape, space) {
            return Place::At(home);
        }
        let place = self.placement.place(self.backlog.homeless(want), head, space);
        if place == Place::Nowhere {
            self.backlog.clear();
        }
        place
    }

    fn hot_region(&self) -> Option<BlockRange> {
        self.placement.hot_region()
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests;
