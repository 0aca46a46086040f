//! How much there is to win: what no placement of copies can beat, and what one may hope for.
//!
//! For each read, in the order of the trace, with the drive that judges:
//!
//! ```text
//! B0          transfer only
//! B1          transfer and a command's overhead: the read is served where the head is
//! B2 reuse    B1 for a read whose blocks were all read before and not written or discarded since; else as it is
//! B2 reuse-w  the same where read or written before, and not discarded since, will do
//! B2o         as B2 reuse, but free only if at its last sighting the read came within 8 reads after
//!             the present predecessor; else one short seek and a third of a turn
//! ```
//!
//! What is not free is served by the drive in the order of the trace; what is free leaves the head where it
//! is. The strict form of B2 prices what follows a free read from the nearest possible head position: the
//! shortest seek and no wait for the platter.
//!
//! Requests are where a replay has them, on the stretched volume; those beyond its end, which it refuses, are in no bound.
//!
//! Memory: a number for each block touched, in pages, two sets of blocks, and the volume's map.

use std::ops::Range;

use fs2_block::{BlockRange, Nanos, Op, Sector};
use fs2_disk::{Disk, DriveProfile};
use fs2_trace::Record;
use roaring::RoaringBitmap;

use super::{FreeMap, Pace, Secrets};

/// So many reads later than the predecessor still counts as following it. From the method that the bound
/// comes from.
const FOLLOWS: u64 = 8;

/// Blocks of a page of sightings.
const PAGE: usize = 1024;

/// The read at which each block was seen last, 0 where it was not or was written or discarded since.
#[derive(Clone, Debug, Default)]
struct Sightings {
    pages: Vec<Option<Box<[u32; PAGE]>>>,
}

impl Sightings {
    fn get(&self, block: u32) -> u32 {
        let page = self.pages.get(block as usize / PAGE).and_then(Option::as_ref);
        page.map_or(0, |p| p[block as usize % PAGE])
    }

    fn all(&self, blocks: BlockRange) -> bool {
        pieces(blocks).all(|(page, part)| {
            let page = self.pages.get(page).and_then(Option::as_ref);
            page.is_some_and(|p| p[part].iter().all(|&seen| seen != 0))
        })
    }

    fn set(&mut self, blocks: BlockRange, value: u32) {
        for (at, part) in pieces(blocks) {
            if value == 0 && self.pages.get(at).is_none_or(Option::is_none) {
                continue;
            }
            if at >= self.pages.len() {
                self.pages.resize(at + 1, None);
            }
            self.pages[at].get_or_insert_with(|| Box::new([0; PAGE]))[part].fill(value);
        }
    }
}

/// Pages that blocks lie in, and which of each page.
fn pieces(blocks: BlockRange) -> impl Iterator<Item = (usize, Range<usize>)> {
    let (start, end) = (blocks.start() as usize, blocks.end() as usize);
    (start / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let first = page * PAGE;
        (page, start.max(first) - first..end.min(first + PAGE) - first)
    })
}

/// What a run of reads costs at least: sums over `reads`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Reads.
    pub reads: u64,
    /// Reads whose blocks were all read before and not written or discarded since.
    pub reused: u64,
    /// Reads whose blocks were all read or written before, and not discarded since.
    pub reused_w: u64,
    /// Of the reused, those that came in the order of their last sighting.
    pub in_order: u64,
    /// Transfer only.
    pub b0: Nanos,
    /// Head-following.
    pub b1: Nanos,
    /// Limited by reuse.
    pub b2_reuse: Nanos,
    /// The same, strict.
    pub b2_reuse_strict: Nanos,
    /// Limited by reuse, written blocks counted.
    pub b2_reuse_w: Nanos,
    /// The same, strict.
    pub b2_reuse_w_strict: Nanos,
    /// Limited by reuse and order: what the share of a policy refers to.
    pub b2_order: Nanos,
}

impl Bound {
    /// A sum as a mean of the reads, ms.
    pub fn mean_ms(&self, sum: Nanos) -> f64 {
        sum.as_millis_f64() / self.reads.max(1) as f64
    }
}

/// One drive that serves what is not free, and its clock.
#[derive(Clone)]
struct Lane {
    disk: Disk,
    secrets: Secrets,
    now: Nanos,
    after_free: bool,
}

impl Lane {
    /// The request's time, and its strict price.
    fn serve(&mut self, r: &Record, free: Option<Nanos>, shortest: Nanos) -> (Nanos, Nanos) {
        if let Some(time) = free {
            self.now += time;
            self.after_free = true;
            return (time, time);
        }
        let (sector, sectors) = (r.extent.sector(), r.extent.sectors() as u32);
        // A bound is of the drive, not of who sees its answers.
        let (s, _) = self.secrets.serve(&mut self.disk, self.now, r.op, sector, sectors);
        let time = s.end().since(self.now);
        self.now = s.end();
        let strict = if self.after_free && !s.cache_hit {
            s.total().since(s.positioning()) + shortest.min(s.seek)
        } else {
            s.total()
        };
        self.after_free = false;
        (time, strict)
    }

    fn wait_until(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }
}

/// The bounds of a trace, run after run. See the module.
pub struct Bounds {
    map: FreeMap,
    stretch: u32,
    end_bytes: u64,
    pace: Pace,
    /// Never serves: what an access to the platters costs beside positioning.
    blank: Disk,
    /// Cost of a read from the drive's cache, in ns: fixed, and of 1024 sectors. `None` without a cache.
    hit: Option<(u64, u64)>,
    shortest: Nanos,
    third: Nanos,
    seen: Sightings,
    touched: RoaringBitmap,
    number: u64,
    /// Last sighting, before the present one, of the read before; 0: none.
    predecessor: u64,
    reuse: Lane,
    reuse_w: Lane,
    order: Lane,
    last: Option<Record>,
}

impl Bounds {
    /// Nothing seen yet of this volume, stretched so many times, over a drive at rest.
    pub fn new(drive: &DriveProfile, map: &FreeMap, stretch: u32, pace: Pace) -> Bounds {
        let blank = Disk::new(drive.clone());
        let lane = Lane { disk: blank.clone(), secrets: Secrets::NONE, now: Nanos(0), after_free: false };
        Bounds {
            map: map.clone(),
            stretch,
            end_bytes: map.stretched_bytes(stretch),
            pace,
            hit: hit_cost(&blank),
            blank,
            shortest: if drive.rotational() { drive.seek_time(1, Op::Read) } else { Nanos(0) },
            third: if drive.rotational() { Nanos(drive.turn().0 / 3) } else { Nanos(0) },
            seen: Sightings::default(),
            touched: RoaringBitmap::new(),
            number: 0,
            predecessor: 0,
            reuse: lane.clone(),
            reuse_w: lane.clone(),
            order: lane,
            last: None,
        }
    }

    /// The drive has what its profile does not say, too.
    pub fn keep(&mut self, secrets: Secrets) {
        self.lanes(|lane| lane.secrets = secrets);
    }

    /// The next run of the trace. Between runs a minute passes.
    ///
    /// # Errors
    /// The trace's.
    pub fn run<E>(&mut self, trace: impl IntoIterator<Item = Result<Record, E>>) -> Result<Bound, E> {
        let mut bound = Bound::default();
        let begin = self.reuse.now.max(self.reuse_w.now).max(self.order.now) + Nanos::from_millis(60_000);
        self.lanes(|lane| lane.now = begin);
        self.last = None;
        let mut first = None;
        for record in trace {
            let record = record?;
            match self.pace {
                Pace::Open => {
                    let at = begin + record.at.since(*first.get_or_insert(record.at));
                    self.lanes(|lane| lane.wait_until(at));
                }
                Pace::Closed { .. } => {
                    let think = self.pace.think(self.last.as_ref(), &record);
                    self.lanes(|lane| lane.now += think);
                }
            }
            self.last = Some(record);
            let extent = self.map.stretch_extent(record.extent, self.stretch);
            if extent.end() > self.end_bytes {
                continue;
            }
            let record = Record { extent, ..record };
            match record.op {
                Op::Read if !record.extent.is_empty() => self.read(&record, &mut bound),
                Op::Write | Op::WriteZeroes if !record.extent.is_empty() => self.write(&record),
                // Nobody has it mounted, and so a hole is zeroes.
                Op::Punch if !record.extent.is_empty() => {
                    self.write(&Record { op: Op::WriteZeroes, ..record });
                }
                Op::Discard => self.discard(&record),
                _ => {}
            }
        }
        Ok(bound)
    }

    fn lanes(&mut self, mut each: impl FnMut(&mut Lane)) {
        [&mut self.reuse, &mut self.reuse_w, &mut self.order].into_iter().for_each(&mut each);
    }

    /// What is discarded was neither read nor written before whoever reads it next. It takes the drive no time.
    fn discard(&mut self, r: &Record) {
        let blocks = r.extent.blocks_covered(self.map.block_size);
        self.seen.set(blocks, 0);
        self.touched.remove_range(blocks.start()..blocks.end());
    }

    fn write(&mut self, r: &Record) {
        let blocks = r.extent.blocks_touched(self.map.block_size);
        self.seen.set(blocks, 0);
        self.touched.insert_range(blocks.start()..blocks.end());
        let shortest = self.shortest;
        self.lanes(|lane| {
            lane.serve(r, None, shortest);
        });
    }

    fn read(&mut self, r: &Record, bound: &mut Bound) {
        self.number += 1;
        let blocks = r.extent.blocks_touched(self.map.block_size);
        let last = u64::from(self.seen.get(blocks.start()));
        let reused = self.seen.all(blocks);
        let reused_w = self.touched.contains_range(blocks.start()..blocks.end());
        // Numbers wrap where a trace has more reads than 32 bits count; 0 stays "never".
        self.seen.set(blocks, (self.number % u64::from(u32::MAX)) as u32 + 1);
        if !reused_w {
            self.touched.insert_range(blocks.start()..blocks.end());
        }

        let (transfer, whole) = self.least(r);
        let in_order =
            reused && self.predecessor != 0 && last >= self.predecessor && last - self.predecessor <= FOLLOWS;
        self.predecessor = last;
        let ordered = if in_order { whole } else { whole + self.shortest + self.third };

        bound.reads += 1;
        bound.reused += u64::from(reused);
        bound.reused_w += u64::from(reused_w);
        bound.in_order += u64::from(in_order);
        bound.b0 += transfer;
        bound.b1 += whole;
        let shortest = self.shortest;
        let (natural, strict) = self.reuse.serve(r, reused.then_some(whole), shortest);
        bound.b2_reuse += natural;
        bound.b2_reuse_strict += strict;
        let (natural, strict) = self.reuse_w.serve(r, reused_w.then_some(whole), shortest);
        bound.b2_reuse_w += natural;
        bound.b2_reuse_w_strict += strict;
        bound.b2_order += self.order.serve(r, reused.then_some(ordered), shortest).0;
    }

    /// Transfer, and transfer with overhead, over the platters or from the cache, whichever is less.
    fn least(&self, r: &Record) -> (Nanos, Nanos) {
        let sectors = r.extent.sectors();
        let media = self.blank.predict(Nanos(0), Op::Read, r.extent.sector(), sectors as u32);
        let (mut transfer, mut whole) = (media.transfer, media.transfer + media.overhead);
        if let Some((fixed, per_1024)) = self.hit {
            let bus = Nanos(sectors * per_1024 / 1024);
            transfer = transfer.min(bus);
            whole = whole.min(bus + Nanos(fixed));
        }
        (transfer, whole)
    }
}

/// What a read from the cache costs on this drive, measured on one of its kind.
fn hit_cost(blank: &Disk) -> Option<(u64, u64)> {
    let mut disk = blank.clone();
    let far = Sector(disk.profile().capacity_sectors() / 2);
    let first = disk.serve(Nanos(0), Op::Read, far, 64);
    let hit = |n| disk.predict(first.end(), Op::Read, far, n);
    let (a, b) = (hit(32), hit(64));
    (a.cache_hit && b.cache_hit).then(|| (a.overhead.0, b.transfer.0 * 16))
}
