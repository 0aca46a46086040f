//! The drive's own cache: what it costs, how far it reads ahead, how many places it remembers.

use super::Stop;
use super::bench::Bench;
use super::robust::median;
use super::rotation::Turn;
use super::zones::Map;

#[derive(Clone, Debug, Default)]
pub(super) struct Buffer {
    /// A command answered from the cache, without its data; 0 where there is no cache.
    pub(super) overhead_us: f64,
    /// 10⁶ bytes a second; `None` where it cannot be seen.
    pub(super) bus_mb_s: Option<f64>,
    /// 0: no cache, or none to be seen.
    pub(super) segments: u32,
    pub(super) segment_sectors: u32,
    /// Reads on after what it was asked for.
    pub(super) reads_ahead: bool,
    pub(super) notes: Vec<String>,
}

/// Sectors beyond which nobody reads ahead: 64 MiB.
const AHEAD_MAX: u64 = 1 << 17;

/// Places read to see how many are remembered.
const PLACES: u64 = 160;

/// What a bus may seem slower than a stream over it: a stream is read in pieces, which cost more. Guess.
const BUS_OFF_MAX: f64 = 0.8;

struct Look<'b, 'a> {
    bench: &'b mut Bench<'a>,
    /// A read that took longer was not answered from the cache.
    hit_us: f64,
    sector_us: f64,
}

impl Look<'_, '_> {
    fn fresh(&mut self) -> u64 {
        let capacity = self.bench.capacity();
        self.bench.place(capacity / 64, capacity / 4)
    }

    /// Whether `distance` sectors beyond a read's start are there when the drive had time to read on.
    fn ahead(&mut self, distance: u64) -> Result<bool, Stop> {
        let mut hits = 0;
        for tries in 1..=3 {
            let at = self.fresh();
            self.bench.read(at)?;
            self.bench.pause(50_000.0 + 1.5 * distance as f64 * self.sector_us);
            hits += u32::from(self.bench.read(at + distance)?.took() < self.hit_us);
            // Two that agree.
            if hits == 2 || tries - hits == 2 {
                break;
            }
        }
        Ok(hits >= 2)
    }

    /// [`Look::limit_once`] until two of at most four agree.
    fn limit(&mut self) -> Result<u64, Stop> {
        let mut found = Vec::new();
        for _ in 0..4 {
            let limit = self.limit_once()?;
            if found.contains(&limit) {
                return Ok(limit);
            }
            found.push(limit);
        }
        Ok(self.bench.whole(median(&found.iter().map(|l| *l as f64).collect::<Vec<_>>()) as u64))
    }

    /// The sectors from a read's start that are there in the end.
    fn limit_once(&mut self) -> Result<u64, Stop> {
        let grain = self.bench.grain();
        let (mut there, mut not) = (0, 2 * grain);
        while not < AHEAD_MAX && self.ahead(not)? {
            (there, not) = (not, not * 2);
        }
        if there == 0 {
            return Ok(0);
        }
        while not - there > (not / 64).max(grain) {
            let middle = self.bench.whole(there + (not - there) / 2);
            match self.ahead(middle)? {
                true => there = middle,
                false => not = middle,
            }
        }
        Ok(roundest(there + grain, not + grain - 1))
    }

    /// How many places of those read last are still there, read again from the newest on: so no answer from the
    /// cache makes it forget another.
    fn remembered(&mut self, limit: u64) -> Result<u64, Stop> {
        let grain = self.bench.grain();
        let apart = (limit + limit / 2).max(64 * grain).next_multiple_of(grain);
        let places = PLACES.min(self.bench.capacity() / 4 / apart).max(1);
        let base = self.fresh();
        // Not in their order: that would be a stream. A step that divides their number would visit one alone.
        let step = if places.is_multiple_of(61) { 59 } else { 61 };
        let place = |i: u64| base + (i * step + 7) % places * apart;
        for i in 0..places {
            self.bench.read(place(i))?;
        }
        let (mut last_hit, mut misses) = (0, 0);
        for (n, i) in (0..places).rev().enumerate() {
            if self.bench.read(place(i))?.took() < self.hit_us {
                (last_hit, misses) = (n as u64 + 1, 0);
            } else {
                misses += 1;
            }
            if misses == 3 {
                break;
            }
        }
        Ok(last_hit)
    }
}

/// The number within `low..=high` with the most factors of two: sizes of memory are round.
fn roundest(low: u64, high: u64) -> u64 {
    let mut unit = 1u64 << 40;
    while unit > 1 && high / unit * unit < low {
        unit /= 2;
    }
    high / unit * unit
}

pub(super) fn look(bench: &mut Bench<'_>, turn: &Turn, map: &Map) -> Result<Buffer, Stop> {
    let mut buffer = Buffer::default();
    let grain = bench.grain();
    let sector_us = map.sector_us(turn, 0);
    let mut look = Look { bench, hit_us: 0.0, sector_us };
    let mut again = Vec::new();
    for _ in 0..9 {
        let at = look.fresh();
        look.bench.read(at)?;
        again.push(look.bench.read(at)?.took());
    }
    let hit = median(&again);
    // What is not cached comes round a turn later.
    if hit > turn.us / 2.0 {
        buffer
            .notes
            .push("The drive has no read cache, or none that two reads of a place would show.".into());
        return Ok(buffer);
    }
    look.hit_us = hit * 1.5 + 150.0;
    let limit = look.limit()?;
    buffer.reads_ahead = limit > 0;
    buffer.segment_sectors = limit.max(grain) as u32;
    if limit >= AHEAD_MAX {
        buffer.notes.push(format!("It reads ahead for {} MiB or more.", AHEAD_MAX >> 11));
    }
    look.bench.progress("the drive's cache", 0.52);
    let passes = look.bench.share(3, 1);
    let mut counts = Vec::with_capacity(passes);
    for _ in 0..passes {
        counts.push(look.remembered(limit)? as f64);
    }
    buffer.segments = median(&counts) as u32;
    if u64::from(buffer.segments) >= PLACES {
        buffer.notes.push(format!("Its cache remembers {PLACES} places or more."));
    }
    // The bus: a long answer against a short one.
    let long = (limit / 2).clamp(2 * grain, 1024) / grain * grain;
    let (mut longs, mut shorts) = (Vec::new(), Vec::new());
    for _ in 0..look.bench.share(25, 9) {
        let at = look.fresh();
        look.bench.read_long(at, long)?;
        longs.push(look.bench.read_long(at, long)?.took());
        shorts.push(look.bench.read(at)?.took());
    }
    let (long_us, short_us) = (median(&longs), median(&shorts));
    let per_sector = (long_us - short_us) / (long - grain) as f64;
    // Over 10 GB/s: nothing was seen. Slower than what came over it from the platters: the long ones were not in the cache.
    if per_sector > 512.0 / 1e4 && 512.0 / per_sector > map.fastest_mb_s(turn) * BUS_OFF_MAX {
        buffer.bus_mb_s = Some(512.0 / per_sector);
        buffer.overhead_us = (short_us - per_sector * grain as f64).max(0.0);
    } else {
        buffer.overhead_us = short_us;
        buffer.notes.push(
            "The rate of its bus cannot be seen: it is taken to be ten times that of the platters.".into(),
        );
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    #[test]
    fn round_sizes() {
        assert_eq!(super::roundest(505, 519), 512);
        assert_eq!(super::roundest(700, 720), 704);
        assert_eq!(super::roundest(9, 9), 9);
    }
}
