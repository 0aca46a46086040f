//! Reads with their times, and where to read.

use fs2_block::Nanos;

use super::robust::quantile;
use super::{Options, Oracle, Stop};

/// A read; microseconds since the first read began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) begin: f64,
    pub(super) end: f64,
}

impl Sample {
    pub(super) fn took(&self) -> f64 {
        self.end - self.begin
    }
}

/// Reads at random places, microseconds.
pub(super) struct Scattered(pub(super) Vec<f64>);

impl Scattered {
    /// A quarter of a disk's reads wait a quarter of a turn less than the middle one, a quarter wait a quarter
    /// more: at least 2 ms between them at 15,000 rpm. A fixed latency and its noise stay far below 1 ms.
    pub(super) fn varies(&self) -> bool {
        quantile(&self.0, 0.75) - quantile(&self.0, 0.25) > 1000.0
    }
}

pub(super) struct Bench<'a> {
    oracle: &'a mut dyn Oracle,
    pub(super) options: Options,
    random: u64,
    origin: Option<Nanos>,
    last: Nanos,
    pub(super) reads: u64,
}

impl<'a> Bench<'a> {
    pub(super) fn new(oracle: &'a mut dyn Oracle, options: Options) -> Bench<'a> {
        Bench { oracle, options, random: options.seed, origin: None, last: Nanos(0), reads: 0 }
    }

    pub(super) fn progress(&mut self, what: &'static str, done: f64) {
        self.oracle.progress(what, done);
    }

    /// Sectors of the smallest read.
    pub(super) fn grain(&self) -> u64 {
        u64::from(self.options.grain)
    }

    pub(super) fn capacity(&self) -> u64 {
        self.options.capacity_sectors / self.grain() * self.grain()
    }

    pub(super) fn elapsed(&self) -> Nanos {
        self.last.since(self.origin.unwrap_or(self.last))
    }

    /// A number of places or tries, fewer where a minute is not allowed.
    pub(super) fn share(&self, full: usize, least: usize) -> usize {
        let share = (self.options.budget.as_secs_f64() / 60.0).min(1.0);
        ((full as f64 * share) as usize).max(least)
    }

    /// Nine tenths of the time are gone: nothing more that would only be finer.
    pub(super) fn hurry(&self) -> bool {
        self.elapsed().0 > self.options.budget.0 / 10 * 9
    }

    pub(super) fn whole(&self, sector: u64) -> u64 {
        sector / self.grain() * self.grain()
    }

    pub(super) fn read_long(&mut self, sector: u64, sectors: u64) -> Result<Sample, Stop> {
        let sectors = sectors.clamp(self.grain(), 1 << 16) / self.grain() * self.grain();
        let at = self.whole(sector).min(self.capacity() - sectors);
        let timed = self.oracle.read(at, sectors as u32)?;
        let origin = *self.origin.get_or_insert(timed.begin);
        self.last = timed.end;
        self.reads += 1;
        let us = |t: Nanos| t.since(origin).0 as f64 / 1000.0;
        Ok(Sample { begin: us(timed.begin), end: us(timed.end) })
    }

    pub(super) fn read(&mut self, sector: u64) -> Result<Sample, Stop> {
        self.read_long(sector, self.grain())
    }

    pub(super) fn pause(&mut self, us: f64) {
        self.oracle.pause(Nanos((us * 1000.0) as u64));
    }

    /// Uniform below `n`; 0 of 0. SplitMix64 (Steele et al., 2014).
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * u128::from(n)) >> 64) as u64
    }

    /// A place within `from..to`.
    pub(super) fn place(&mut self, from: u64, to: u64) -> u64 {
        let at = from + self.below(to.saturating_sub(from));
        self.whole(at)
    }

    pub(super) fn scattered(&mut self, n: usize) -> Result<Scattered, Stop> {
        let mut all = Vec::with_capacity(n);
        for _ in 0..n {
            let at = self.place(0, self.capacity() - self.grain());
            all.push(self.read(at)?.took());
        }
        Ok(Scattered(all))
    }
}
