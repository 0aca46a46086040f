//! What is believed about the drive's head, fed by completions only.

use fs2_block::{Extent, Nanos, Op, SECTOR_BYTES, Sector};
use fs2_disk::{DriveProfile, Knowledge};

use self::nearby::Nearby;

mod nearby;

/// The belief. Without a drive profile it knows addresses only.
#[derive(Clone, Debug)]
pub struct Head {
    model: Option<fs2_disk::Head>,
    /// One past the last sector touched.
    last: Sector,
    /// Others are at the drive, which serves them in its own order.
    in_company: bool,
    /// What of these are reads.
    beside: Vec<Extent>,
    /// Without a profile: share of late writes that took less than [`CACHED_WRITE`].
    quick_writes: f64,
    /// What a read lately took without copies, in ms.
    plain_ms: f64,
    /// What the drive's cache may have that nobody told of.
    nearby: Nearby,
    /// When the last access ended.
    ended: Nanos,
}

/// Without a profile: a write that took less is in the drive's cache. A guess: a tenth of a turn at 7200 rpm.
const CACHED_WRITE: Nanos = Nanos(800_000);
/// Weight of a write in their share (guess).
const QUICK_RATE: f64 = 1.0 / 16.0;

/// Without a profile: what an access to the far end of a volume is taken to cost, in ms. A guess in
/// the middle of the drives of `fs2-disk`; only the order of candidates depends on it.
const FULL_STROKE_MS: f64 = 20.0;

/// Without a profile: positioning at the least, in ms. Half a turn at 7200 rpm.
const LEAST_MS: f64 = 4.17;

/// Without a profile: sectors of a full stroke, a 1 TB drive.
const FULL_STROKE_SECTORS: f64 = 2e9;

impl Head {
    /// Nothing known yet about where the head is.
    pub fn new(profile: Option<DriveProfile>) -> Head {
        Head::with_knowledge(profile, Knowledge::Full)
    }

    /// The same with a profile that may be believed only so far.
    pub fn with_knowledge(profile: Option<DriveProfile>, knowledge: Knowledge) -> Head {
        Head {
            model: profile.map(|p| fs2_disk::Head::new(p, knowledge)),
            last: Sector(0),
            in_company: false,
            beside: Vec::new(),
            quick_writes: 0.0,
            plain_ms: f64::INFINITY,
            nearby: Nearby::new(),
            ended: Nanos(0),
        }
    }

    /// Where the next access goes, the drive has these others to serve: with any, nobody knows from where it will be served.
    pub fn goes_beside(&mut self, others: impl Iterator<Item = (Op, Extent)>) {
        self.in_company = false;
        self.beside.clear();
        for (op, extent) in others {
            self.in_company = true;
            if op == Op::Read {
                self.beside.push(extent);
            }
        }
    }

    /// See [`Head::goes_beside`].
    pub fn in_company(&self) -> bool {
        self.in_company
    }

    /// Whether one of the reads that the drive has to serve lies within so many bytes of `sector`.
    pub fn joins(&self, sector: Sector, within: u64) -> bool {
        let at = sector.0 * SECTOR_BYTES;
        self.beside.iter().any(|read| at + within >= read.offset() && at <= read.end() + within)
    }

    /// One past the sector touched last.
    pub fn last(&self) -> Sector {
        self.last
    }

    /// Whether somebody described the drive, so that its platters' angle can be learnt.
    pub fn is_described(&self) -> bool {
        self.model.as_ref().is_some_and(|m| m.knowledge() == Knowledge::Full)
    }

    /// Sectors from the head to `sector`.
    pub fn distance(&self, sector: Sector) -> u64 {
        self.last.0.abs_diff(sector.0)
    }

    /// A device access ended. Says what was predicted of it: seek, rotation, transfer with overhead; `None`
    /// without a profile.
    pub fn completed(
        &mut self,
        op: Op,
        sector: Sector,
        bytes: u64,
        dispatched: Nanos,
        completed: Nanos,
    ) -> Option<fs2_disk::Service> {
        let sectors = bytes.div_ceil(SECTOR_BYTES).max(1) as u32;
        let in_a_row = self.last == sector;
        self.last = Sector(sector.0 + u64::from(sectors));
        let took = completed.since(dispatched.max(self.ended));
        self.ended = completed;
        if op == Op::Write {
            let quick = f64::from(u8::from(completed.since(dispatched) < CACHED_WRITE));
            self.quick_writes += (quick - self.quick_writes) * QUICK_RATE;
        }
        let predicted = self.model.as_mut().map(|m| m.completed(op, sector, sectors, dispatched, completed));
        if op == Op::Read {
            let missed = !in_a_row && predicted.is_none_or(|p| p.positioning() > Nanos(0));
            let expected = predicted.map_or(LEAST_MS, |p| p.total().as_millis_f64());
            let share = (took.as_millis_f64() / expected).min(1.0);
            self.nearby.read(sector, u64::from(sectors), missed.then_some(share));
        } else {
            self.nearby.written(sector);
        }
        predicted
    }

    /// A device access failed.
    pub fn failed(&mut self, op: Op, sector: Sector, bytes: u64, dispatched: Nanos, failed: Nanos) {
        let sectors = bytes.div_ceil(SECTOR_BYTES).max(1) as u32;
        self.last = Sector(sector.0 + u64::from(sectors));
        if let Some(m) = &mut self.model {
            m.failed(op, sector, sectors, dispatched, failed);
        }
    }

    /// A flush of the device ended.
    pub fn flushed(&mut self, dispatched: Nanos, completed: Nanos) {
        if let Some(m) = &mut self.model {
            m.flushed(dispatched, completed);
        }
    }

    /// Whether the drive mostly answers writes before they are on its platters.
    pub fn caches_writes(&self) -> bool {
        self.model.as_ref().map_or(self.quick_writes > 0.5, fs2_disk::Head::caches_writes)
    }

    /// Predicted service time of a read, in ms.
    pub fn read_cost_ms(&self, now: Nanos, sector: Sector, bytes: u64) -> f64 {
        let sectors = bytes.div_ceil(SECTOR_BYTES).max(1) as u32;
        match &self.model {
            Some(m) => m.predict(now, Op::Read, sector, sectors).total().as_millis_f64(),
            None if self.last == sector => 0.1,
            None => LEAST_MS + FULL_STROKE_MS * (self.distance(sector) as f64 / FULL_STROKE_SECTORS).min(1.0),
        }
    }

    /// The same where the drive's cache may have more than the profile says, by how lately something nearby was read.
    pub fn read_cost_nearby_ms(&self, now: Nanos, sector: Sector, bytes: u64) -> f64 {
        let share = self.nearby.share(sector);
        let sectors = bytes.div_ceil(SECTOR_BYTES).max(1) as u32;
        match &self.model {
            Some(m) => {
                let predicted = m.predict(now, Op::Read, sector, sectors);
                let missed = predicted.positioning() > Nanos(0);
                predicted.total().as_millis_f64() * if missed { share } else { 1.0 }
            }
            None if self.last == sector => self.read_cost_ms(now, sector, bytes),
            None => self.read_cost_ms(now, sector, bytes) * share,
        }
    }

    /// The same of any access, and the head goes on from there as if it had come out so.
    pub fn suppose_ms(&mut self, now: Nanos, op: Op, sector: Sector, bytes: u64) -> f64 {
        let sectors = bytes.div_ceil(SECTOR_BYTES).max(1) as u32;
        let Some(m) = &mut self.model else {
            let cost = self.read_cost_ms(now, sector, bytes);
            self.last = Sector(sector.0 + u64::from(sectors));
            return cost;
        };
        m.suppose(now, op, sector, sectors).total().as_millis_f64()
    }

    /// Takes over what another belief has learnt of the drive meanwhile; arm and cache stay as they are believed here.
    pub fn learn_from(&mut self, other: &Head) {
        self.quick_writes = other.quick_writes;
        if let (Some(model), Some(other)) = (&mut self.model, &other.model) {
            model.learn_from(other);
        }
    }

    /// Predicted service time of an access, in ms.
    pub fn cost_ms(&self, now: Nanos, op: Op, sector: Sector, bytes: u64) -> f64 {
        let sectors = bytes.div_ceil(SECTOR_BYTES).max(1) as u32;
        match &self.model {
            Some(m) => m.predict(now, op, sector, sectors).total().as_millis_f64(),
            None => self.read_cost_ms(now, sector, bytes),
        }
    }

    /// Predicted seek and rotation of an access, in ns; without a profile, what orders accesses by
    /// distance.
    pub fn positioning_ns(&self, now: Nanos, op: Op, sector: Sector, bytes: u64) -> u64 {
        let sectors = bytes.div_ceil(SECTOR_BYTES).max(1) as u32;
        match &self.model {
            Some(m) => m.predict(now, op, sector, sectors).positioning().0,
            None => self.distance(sector),
        }
    }

    /// Seek time over a distance, in ms.
    pub fn seek_ms(&self, sectors: u64) -> f64 {
        match &self.model {
            Some(m) => m.profile().seek_time(sectors, Op::Read).as_millis_f64(),
            None => FULL_STROKE_MS * (sectors as f64 / FULL_STROKE_SECTORS).min(1.0),
        }
    }

    /// Bytes of a segment of the drive's read-ahead cache; 0 where it has none or nothing is known of it.
    pub fn segment_bytes(&self) -> u64 {
        self.model.as_ref().map_or(0, |m| m.profile().read_ahead().1)
    }

    /// A turn of the drive's platters, in ms; 0 where nothing is known of it.
    pub fn turn_ms(&self) -> f64 {
        self.model.as_ref().map_or(0.0, |m| m.profile().turn().as_millis_f64())
    }

    /// Bytes that pass the drive's heads in a ms, at the volume's beginning; 0 where nothing is known of it.
    pub fn media_bytes_a_ms(&self) -> f64 {
        let profile = self.model.as_ref().map(|m| m.profile());
        let zone = profile.and_then(|p| Some((p, p.zones().first()?)));
        zone.map_or(0.0, |(p, zone)| {
            f64::from(zone.sectors_per_track) * SECTOR_BYTES as f64 / p.turn().as_millis_f64()
        })
    }

    /// What so many bytes take to pass them there; 0 where nothing is known of it.
    pub fn transfer(&self, bytes: u64) -> Nanos {
        let rate = self.media_bytes_a_ms();
        if rate > 0.0 { Nanos::from_millis_f64(bytes as f64 / rate) } else { Nanos(0) }
    }

    /// What the drive needs to write what it has cached of one write, in ms: what positioning took lately, and a turn at the least, for
    /// appends with gaps between them lose one each.
    pub fn write_back_ms(&self) -> f64 {
        self.mean_positioning_ms().max(self.turn_ms())
    }

    /// What a read lately took at the drive without copies, as a model of it says, in ms.
    pub fn takes_without_copies(&mut self, ms: f64) {
        self.plain_ms = ms;
    }

    /// See [`Head::takes_without_copies`]; without end where no model says it.
    pub fn plain_read_ms(&self) -> f64 {
        self.plain_ms
    }

    /// What an access of so many bytes takes at the most, unless the drive slept or tried again: see [`fs2_disk::Head::slowest`], and inner
    /// tracks pass no less than a quarter as many bytes. Without a profile nothing is too long.
    pub fn slowest(&self, bytes: u64) -> Nanos {
        self.model.as_ref().map_or(Nanos(u64::MAX), |m| m.slowest() + Nanos(4 * self.transfer(bytes).0))
    }

    /// Running mean of the positioning time of misses, in ms.
    pub fn mean_positioning_ms(&self) -> f64 {
        match &self.model {
            Some(m) => m.mean_positioning().as_millis_f64(),
            None => LEAST_MS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first sector of a MiB.
    const MIB: u64 = 999_424;

    /// So many reads there, from the last sector back: nobody's model has them. Each took next to nothing, and one elsewhere came behind it.
    fn quick_back(head: &mut Head, now: &mut Nanos, count: u64) {
        for i in 0..count {
            head.completed(Op::Read, Sector(MIB + 230 - i % 25 * 9), 4096, *now, *now + Nanos(150_000));
            *now += Nanos::from_millis(40);
            head.completed(Op::Read, Sector(90_000_000 + i * 50_000), 4096, *now, *now + Nanos(9_000_000));
            *now += Nanos::from_millis(40);
        }
    }

    #[test]
    fn what_comes_quickly_though_it_was_expected_to_miss_is_in_the_cache() {
        for profile in [None, DriveProfile::builtin("wd800-repaired").ok()] {
            let (mut head, mut now) = (Head::new(profile), Nanos(0));
            let costs = |head: &Head, now, at| {
                (head.read_cost_nearby_ms(now, Sector(at), 4096), head.read_cost_ms(now, Sector(at), 4096))
            };
            let (near, plain) = costs(&head, now, MIB);
            assert_eq!(near, plain);
            quick_back(&mut head, &mut now, 100);
            let (near, plain) = costs(&head, now, MIB);
            assert!(near < plain / 4.0, "{near} {plain}");
            let (near, plain) = costs(&head, now, MIB + (1 << 20));
            assert_eq!(near, plain);
            // What was expected to be quick, for it was just read, says nothing of that.
            for i in 0..100 {
                head.completed(Op::Read, Sector(MIB), 4096, now, now + Nanos(150_000));
                now += Nanos::from_millis(40);
                head.completed(Op::Read, Sector(50_000_000 + i * 50_000), 4096, now, now + Nanos(9_000_000));
                now += Nanos::from_millis(40);
            }
            let (near, plain) = costs(&head, now, MIB + 100);
            assert!(near < plain / 4.0, "{near} {plain}");
            head.completed(Op::Write, Sector(MIB + 50), 4096, now, now + Nanos(9_000_000));
            let (near, plain) = costs(&head, now, MIB + 100);
            assert_eq!(near, plain, "something was written there");
        }
    }

    #[test]
    fn who_waited_for_another_at_the_drive_took_no_longer_for_that() {
        let (mut head, mut now) = (Head::new(None), Nanos(0));
        for i in 0..100 {
            let far = Sector(90_000_000 + i * 50_000);
            head.completed(Op::Read, far, 4096, now, now + Nanos(9_000_000));
            head.completed(Op::Read, Sector(MIB + 230 - i % 25 * 9), 4096, now, now + Nanos(9_150_000));
            now += Nanos::from_millis(40);
        }
        head.completed(Op::Read, Sector(90_000_000), 4096, now, now + Nanos(9_000_000));
        let place = Sector(MIB);
        assert!(head.read_cost_nearby_ms(now, place, 4096) < head.read_cost_ms(now, place, 4096) / 4.0);
    }

    #[test]
    fn what_goes_on_in_a_row_is_no_sign_of_a_cache() {
        let (mut head, mut now) = (Head::new(None), Nanos(0));
        for i in 0..200 {
            head.completed(Op::Read, Sector(MIB + i * 8), 4096, now, now + Nanos(150_000));
            now += Nanos::from_millis(40);
        }
        let place = Sector(MIB + 1590);
        assert_eq!(head.read_cost_nearby_ms(now, place, 4096), head.read_cost_ms(now, place, 4096));
    }
}
