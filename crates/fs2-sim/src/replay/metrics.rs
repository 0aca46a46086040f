//! What a run of a trace cost; `docs/evaluation.md` says what each figure means.

use fs2_block::Nanos;
use fs2_disk::Split;

/// Times by quantile: 512 steps an octave from 1 µs, right within 0.2 %.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
}

/// Steps of an octave, as a power of two.
const STEP_BITS: u32 = 9;

/// Octaves: up to 2^40 µs.
const OCTAVES: u32 = 40;

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; ((OCTAVES + 1) << STEP_BITS) as usize], count: 0 }
    }
}

impl Histogram {
    /// Adds one.
    pub fn add(&mut self, time: Nanos) {
        // Units of 2^-9 µs: every octave from 1 µs up has its steps.
        let units = (time.0 >> 1).max(1 << STEP_BITS);
        let octave = units.ilog2() - STEP_BITS;
        let slot = (octave << STEP_BITS) as usize + (units >> octave) as usize - (1 << STEP_BITS);
        let last = self.counts.len() - 1;
        self.counts[slot.min(last)] += 1;
        self.count += 1;
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
    }

    /// How many were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The times that were added, ascending: each step's upper end, and how many lie in it, never 0.
    pub fn steps(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        let filled = (0u64..).zip(&self.counts).filter(|(_, n)| **n > 0);
        filled.map(|(slot, n)| (upper_end(slot), *n))
    }

    /// The time that `permille` of them do not exceed, rounded up to a step; 0 of none.
    pub fn quantile(&self, permille: u64) -> Nanos {
        let rank = (self.count * permille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (slot, &n) in (0u64..).zip(&self.counts) {
            seen += n;
            if seen >= rank {
                return upper_end(slot);
            }
        }
        Nanos(0)
    }
}

/// The upper end of a step.
fn upper_end(slot: u64) -> Nanos {
    let (octave, step) = (slot >> STEP_BITS, slot & ((1 << STEP_BITS) - 1));
    Nanos((((1 << STEP_BITS) + step + 1) << octave) << 1)
}

/// How a time goes on in a run: sums over stretches of as many each, as they come. Memory: [`STRETCHES`] sums.
#[derive(Clone, Debug)]
pub struct Course {
    /// How many a stretch has.
    each: u64,
    /// Of each stretch; the last one may have fewer.
    sums: Vec<Nanos>,
    count: u64,
}

/// Where there would be more stretches, two at a time become one. A guess: a tenth of the run is three of them at least.
const STRETCHES: usize = 64;

impl Default for Course {
    fn default() -> Course {
        Course { each: 1, sums: Vec::new(), count: 0 }
    }
}

impl Course {
    /// Adds the next one.
    pub fn add(&mut self, time: Nanos) {
        if self.count == self.each * self.sums.len() as u64 {
            if self.sums.len() == STRETCHES {
                self.sums = self.sums.chunks(2).map(|two| two[0] + two[1]).collect();
                self.each *= 2;
            }
            self.sums.push(Nanos(0));
        }
        if let Some(sum) = self.sums.last_mut() {
            *sum += time;
        }
        self.count += 1;
    }

    /// The means of about the first and the last tenth; `None` of fewer than 20.
    pub fn ends(&self) -> Option<[Nanos; 2]> {
        if self.count < 20 {
            return None;
        }
        let whole = &self.sums[..(self.count / self.each) as usize];
        let tenth = whole.len().div_ceil(10);
        let mean =
            |some: &[Nanos]| Nanos(some.iter().map(|sum| sum.0 / self.each).sum::<u64>() / tenth as u64);
        Some([mean(&whole[..tenth]), mean(&whole[whole.len() - tenth..])])
    }
}

/// A run's sums.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Requests of the trace.
    pub requests: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Of these, served from a copy.
    pub reads_from_copies: u64,
    /// Requests that failed: the engine refused them.
    pub failed: u64,
    /// From the run's begin to the end of its last request.
    pub elapsed: Nanos,
    /// Of that, what came after the last request's arrival.
    pub behind: Nanos,
    /// Requests outstanding at a time, at the most; where that is [`crate::replay::Settings::queue_max`], more may have waited in the trace.
    pub queue_max: u64,
    /// The device's accesses for requests.
    pub split: Split,
    /// Those of them that were reads.
    pub reads_split: Split,
    /// Accesses of requests, T_A.
    pub access: Histogram,
    /// Accesses of reads.
    pub access_reads: Histogram,
    /// Responses: arrival to answer.
    pub response: Histogram,
    /// Sum of the responses.
    pub response_total: Nanos,
    /// The responses as they came.
    pub response_course: Course,
    /// Sum of the responses of reads.
    pub response_reads_total: Nanos,
    /// Waits of arriving requests for an I/O of the engine's own to end.
    pub wait_behind_copies: Nanos,
    /// The engine's own accesses during the run.
    pub own: Split,
    /// Of these and those in the idle time after the run: sectors written as copies.
    pub copy_sectors: u64,
    /// Sectors the engine read for itself, in the same time.
    pub own_read_sectors: u64,
    /// Sectors of the replica table and mark that were written, in the same time.
    pub table_sectors: u64,
    /// The engine's own accesses in the idle time after the run.
    pub own_idle: Split,
    /// Sectors of requests.
    pub sectors: u64,
    /// Energy of requests' accesses, joules.
    pub request_joules: f64,
    /// Energy of the engine's own accesses, joules, in the run and the idle time after it.
    pub own_joules: f64,
    /// Energy of doing nothing during the run, spun down and spinning up again included, joules.
    pub idle_joules: f64,
    /// Energy of what the drive wrote from its write cache with nobody waiting, joules, in the run and the idle time after it.
    pub background_joules: f64,
    /// Replicas at the end of the idle time after the run.
    pub replicas: u64,
}

fn ms(total: Nanos, of: u64) -> f64 {
    total.as_millis_f64() / of.max(1) as f64
}

impl Run {
    /// Mean wait of a request, ms: all responses less all accesses, by the number of requests, flushes among them.
    pub fn wait_ms(&self) -> f64 {
        ms(self.response_total.since(self.split.total()), self.requests)
    }

    /// Mean response of a request, ms.
    pub fn response_ms(&self) -> f64 {
        ms(self.response_total, self.requests)
    }

    /// Mean response of a read, ms.
    pub fn response_reads_ms(&self) -> f64 {
        ms(self.response_reads_total, self.reads)
    }

    /// Mean T_A over requests' accesses, ms: there may be more of them than requests, or fewer.
    pub fn t_a_ms(&self) -> f64 {
        ms(self.split.total(), self.split.count)
    }

    /// Mean T_A of reads, ms.
    pub fn t_a_reads_ms(&self) -> f64 {
        ms(self.reads_split.total(), self.reads_split.count)
    }

    /// Mean T_s, ms.
    pub fn t_s_ms(&self) -> f64 {
        ms(self.split.seek, self.split.count)
    }

    /// Mean T_r, ms.
    pub fn t_r_ms(&self) -> f64 {
        ms(self.split.rotation, self.split.count)
    }

    /// Mean T_t, with the command's overhead, ms.
    pub fn t_t_ms(&self) -> f64 {
        ms(self.split.transfer + self.split.overhead, self.split.count)
    }

    /// Mean T_s, T_r and T_t (with overhead) of reads, ms.
    pub fn parts_reads_ms(&self) -> [f64; 3] {
        let s = &self.reads_split;
        [s.seek, s.rotation, s.transfer + s.overhead].map(|sum| ms(sum, s.count))
    }

    /// Share of reads that the drive's cache answered, percent.
    pub fn cache_hit_percent(&self) -> f64 {
        100.0 * self.reads_split.hits as f64 / self.reads_split.count.max(1) as f64
    }

    /// Share of the run in which the drive worked, percent.
    pub fn busy_percent(&self) -> f64 {
        let busy = self.split.total() + self.own.total();
        100.0 * busy.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Mean energy of a request's access, mJ.
    pub fn energy_mj_per_access(&self) -> f64 {
        1000.0 * self.request_joules / self.split.count.max(1) as f64
    }

    /// Energy of the run, joules: accesses, idle time, the engine's own accesses and the drive's writes in the
    /// background, those in the idle time after the run included.
    pub fn energy_total_j(&self) -> f64 {
        self.request_joules + self.own_joules + self.idle_joules + self.background_joules
    }

    /// Sectors written as copies in percent of requests' sectors.
    pub fn copy_percent(&self) -> f64 {
        100.0 * self.copy_sectors as f64 / self.sectors.max(1) as f64
    }
}
