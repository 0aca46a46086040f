//! Traces made up: for tests, benches, and to try a policy where no trace is at hand.
//!
//! A trace is a function of its [`Workload`], its [`Shape`] and a seed, by integer arithmetic alone, so it
//! is the same on every machine. Memory does not grow with its length: [`Workload::Mixed`] holds its phase.
//!
//! ```
//! use fs2_trace::synth::{Shape, Workload};
//!
//! let shape = Shape { requests: 1000, ..Shape::default() };
//! let records: Vec<_> = Workload::Uniform { write_permille: 200 }.generate(shape, 7).collect();
//! assert_eq!(records.len(), 1000);
//! assert!(records.is_sorted_by_key(|r| r.at));
//! ```

mod mixed;

use fs2_block::{Extent, Nanos, Op};
use mixed::Mixed;

use crate::record::Record;

/// Bytes of a block: every request begins and ends on blocks.
const BLOCK: u64 = 4096;
/// Longest request, 128 KiB: the read-ahead of a kernel.
const REQUEST_MAX: u64 = 128 << 10;

/// Largest volume: 8 EiB less a byte, what a request can reach.
const SPAN_MAX: u64 = i64::MAX as u64;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Like `cvs update`: a 4 KiB read of metadata at a tenth of the span, then a read of 4 to 64 KiB of
    /// a file beyond its half, and so on through all files; then the same again.
    Cvs {
        /// How often the same is read; the requests are divided among the runs. At least 1.
        runs: u64,
        /// Idle time between two runs, nanoseconds.
        idle_ns: u64,
        /// In a thousand requests, how many of a repeated run go elsewhere.
        noise_permille: u64,
    },
    /// Whole files of 4 to 128 KiB, the nth most popular with a weight of 1/n.
    Zipf {
        /// Number of files; 8 bytes of memory each. At least 1.
        files: u32,
        /// In a thousand requests, how many write.
        write_permille: u64,
    },
    /// From the beginning to the end of the span in requests of 128 KiB, and again.
    Sequential {
        /// Read or write.
        op: Op,
    },
    /// Writes of 4 to 64 KiB all over the span, a flush after every 64th, a few reads of 4 KiB.
    WriteHeavy {
        /// In a thousand requests, how many read.
        read_permille: u64,
    },
    /// Writes and reads in turn, 4 KiB each; what is read was written `distance` writes before.
    ReadAfterWrite {
        /// In writes.
        distance: u64,
    },
    /// Single blocks, each as likely as any other.
    Uniform {
        /// In a thousand requests, how many write.
        write_permille: u64,
    },
    /// Phases of many kinds, drawn by the seed: the same files again in the same order or in reverse, popular files, sequential
    /// readers, backups, strides, logs, bursts; pauses of up to two minutes between them, and sometimes two at a time.
    Mixed {
        /// In a thousand requests of popular files and of blocks anywhere, how many write; logs and rewrites write besides.
        write_permille: u64,
    },
}

/// How long, how large and how fast a trace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of requests.
    pub requests: u64,
    /// Bytes of the volume, at least 16 MiB and below 8 EiB (what is beyond is cut); requests lie within.
    pub span_bytes: u64,
    /// Mean time from one arrival to the next, nanoseconds; each is evenly distributed from 0 to twice
    /// as much.
    pub gap_ns: u64,
}

impl Default for Shape {
    /// 100,000 requests over 8 GiB, 5 ms apart: a busy drive of its time.
    fn default() -> Shape {
        Shape { requests: 100_000, span_bytes: 8 << 30, gap_ns: 5_000_000 }
    }
}

impl Workload {
    /// The requests of a trace.
    pub fn generate(self, shape: Shape, seed: u64) -> Synth {
        let shape = Shape { span_bytes: shape.span_bytes.clamp(16 << 20, SPAN_MAX), ..shape };
        let weights = match self {
            Workload::Zipf { files, .. } => zipf(files),
            _ => Vec::new(),
        };
        let mut rng = Rng(seed);
        let mixed = match self {
            Workload::Mixed { write_permille } => {
                Some(Mixed::new(shape.span_bytes, write_permille, &mut rng))
            }
            _ => None,
        };
        Synth { workload: self, shape, seed, weights, mixed, rng, next: 0, time: 0, at_once: false }
    }
}

/// The requests of a made-up trace, in order of arrival.
#[derive(Clone, Debug)]
pub struct Synth {
    workload: Workload,
    shape: Shape,
    seed: u64,
    /// Sums of the files' weights, the most popular first.
    weights: Vec<u64>,
    mixed: Option<Mixed>,
    rng: Rng,
    next: u64,
    time: u64,
    /// The request comes together with the one before.
    at_once: bool,
}

/// Sums of the weights 1/n, of which the first is 2³².
fn zipf(files: u32) -> Vec<u64> {
    let mut sum = 0;
    (1..=u64::from(files.max(1)))
        .map(|n| {
            sum += (1 << 32) / n;
            sum
        })
        .collect()
}

impl Synth {
    /// Bytes of the volume.
    pub fn volume_bytes(&self) -> u64 {
        self.shape.span_bytes
    }

    /// A place for `len` bytes, the same for the same `what`, between these permille of the span.
    fn place(&self, what: u64, len: u64, from: u64, to: u64) -> Extent {
        let span = self.shape.span_bytes / 1000;
        let blocks = (span * (to - from)).saturating_sub(len) / BLOCK;
        let at = span * from / BLOCK + mix(self.seed ^ mix(what)) % blocks.max(1);
        Extent::new(at * BLOCK, len)
    }

    /// Blocks from 1 to `most` of them, the same for the same `what`.
    fn size(&self, what: u64, most: u64) -> u64 {
        (1 + mix(mix(what) ^ self.seed.rotate_left(32)) % most) * BLOCK
    }

    fn cvs(&mut self, i: u64, runs: u64, idle_ns: u64, noise_permille: u64) -> (Op, Extent) {
        let per_run = self.shape.requests.div_ceil(runs.max(1)).max(1);
        let (run, mut step) = (i / per_run, i % per_run);
        if step == 0 && run > 0 {
            self.time = self.time.saturating_add(idle_ns);
        }
        if run > 0 && self.rng.permille(noise_permille) {
            step += (1 + run) << 40;
        }
        let file = step / 2;
        let extent = if step.is_multiple_of(2) {
            // Inodes and directories of neighbours lie together: sixteen files to a block.
            self.place(file / 16, BLOCK, 100, 120)
        } else {
            self.place(file | 1 << 63, self.size(file, 16), 550, 850)
        };
        (Op::Read, extent)
    }

    fn zipf(&mut self, write_permille: u64) -> (Op, Extent) {
        let total = self.weights.last().copied().unwrap_or(1);
        let at = self.rng.below(total);
        let file = self.weights.partition_point(|sum| *sum <= at) as u64;
        let op = self.write(write_permille);
        (op, self.place(file, self.size(file, REQUEST_MAX / BLOCK), 0, 1000))
    }

    fn write(&mut self, permille: u64) -> Op {
        if self.rng.permille(permille) { Op::Write } else { Op::Read }
    }

    fn request(&mut self, i: u64) -> (Op, Extent) {
        let anywhere = i ^ 1 << 62;
        match self.workload {
            Workload::Cvs { runs, idle_ns, noise_permille } => self.cvs(i, runs, idle_ns, noise_permille),
            Workload::Zipf { write_permille, .. } => self.zipf(write_permille),
            Workload::Sequential { op } => {
                let requests = self.shape.span_bytes / REQUEST_MAX;
                (op, Extent::new(i % requests * REQUEST_MAX, REQUEST_MAX))
            }
            Workload::WriteHeavy { .. } if i % 65 == 64 => (Op::Flush, Extent::new(0, 0)),
            Workload::WriteHeavy { read_permille } => {
                if self.rng.permille(read_permille) {
                    (Op::Read, self.place(anywhere, BLOCK, 0, 1000))
                } else {
                    (Op::Write, self.place(anywhere, self.size(i, 16), 0, 1000))
                }
            }
            Workload::ReadAfterWrite { distance } => {
                let pair = i / 2;
                if i.is_multiple_of(2) {
                    (Op::Write, self.place(pair, BLOCK, 0, 1000))
                } else {
                    (Op::Read, self.place(pair.saturating_sub(distance), BLOCK, 0, 1000))
                }
            }
            Workload::Mixed { .. } => {
                let mixed = self.mixed.as_mut().expect("a mixed workload has one");
                let wanted = mixed.next(&mut self.rng);
                self.time = self.time.saturating_add(wanted.idle_ns);
                self.at_once = wanted.at_once;
                (wanted.op, wanted.extent)
            }
            Workload::Uniform { write_permille } => {
                (self.write(write_permille), self.place(anywhere, BLOCK, 0, 1000))
            }
        }
    }
}

impl Iterator for Synth {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.next == self.shape.requests {
            return None;
        }
        let i = self.next;
        self.next += 1;
        let (op, extent) = self.request(i);
        if i > 0 && !self.at_once {
            let gap = self.rng.below(self.shape.gap_ns.saturating_mul(2).saturating_add(1));
            self.time = self.time.saturating_add(gap);
        }
        Some(Record::new(Nanos(self.time), op, extent))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.shape.requests - self.next).ok();
        (left.unwrap_or(usize::MAX), left)
    }
}

/// SplitMix64: a counter, well mixed. (Steele, Lea and Flood, OOPSLA 2014.)
#[derive(Clone, Copy, Debug)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `n`, which is not 0.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    fn permille(&mut self, n: u64) -> bool {
        self.below(1000) < n
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
