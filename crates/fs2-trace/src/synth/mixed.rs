//! Phases of eleven kinds behind one another, sometimes two at a time: what nobody thought of when the policy was made.

use std::collections::VecDeque;

use fs2_block::{Extent, Op};

use super::{BLOCK, REQUEST_MAX, Rng, zipf};

/// Blocks of the longest request.
const LONGEST: u64 = REQUEST_MAX / BLOCK;
/// Blocks of the longest file.
const FILE_MAX: u64 = 256;
const SECOND: u64 = 1_000_000_000;

/// One request, and how it comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) op: Op,
    pub(super) extent: Extent,
    /// Idle time before it, nanoseconds.
    pub(super) idle_ns: u64,
    /// Together with the one before.
    pub(super) at_once: bool,
}

/// First block and number of blocks.
type File = (u64, u64);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Mixed {
    blocks: u64,
    /// Directories of files that are read in most phases.
    areas: Vec<Vec<File>>,
    write_permille: u64,
    /// What is left of the present phase.
    phase: VecDeque<Wanted>,
}

#[derive(Clone, Copy)]
enum Kind {
    /// The same files in the same order again, some elsewhere.
    Tour,
    /// Every other time in the reverse order.
    ThereAndBack,
    /// The nth most popular with a weight of 1/n.
    Popular,
    Anywhere,
    /// Several sequential readers.
    Streams,
    /// All files by address, as in a backup.
    Scan,
    Stride,
    /// Reads of a database, and a log it appends to.
    Log,
    /// Half of what is read is written back.
    Rewrite,
    Backwards,
    /// Many files at once.
    Burst,
}

const KINDS: [Kind; 11] = [
    Kind::Tour,
    Kind::ThereAndBack,
    Kind::Popular,
    Kind::Anywhere,
    Kind::Streams,
    Kind::Scan,
    Kind::Stride,
    Kind::Log,
    Kind::Rewrite,
    Kind::Backwards,
    Kind::Burst,
];

/// The requests of a phase.
struct Phase<'a> {
    rng: &'a mut Rng,
    out: Vec<Wanted>,
    idle_ns: u64,
    at_once: bool,
}

impl Phase<'_> {
    fn any<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        of[self.rng.below(N as u64) as usize]
    }

    fn push(&mut self, op: Op, at: u64, blocks: u64) {
        let extent = Extent::new(at * BLOCK, blocks * BLOCK);
        let idle_ns = std::mem::take(&mut self.idle_ns);
        self.out.push(Wanted { op, extent, idle_ns, at_once: self.at_once });
    }

    fn whole(&mut self, (at, blocks): File) {
        for from in (0..blocks).step_by(LONGEST as usize) {
            self.push(Op::Read, at + from, LONGEST.min(blocks - from));
        }
    }

    fn start(&mut self, (at, blocks): File) {
        self.push(Op::Read, at, blocks.min(LONGEST));
    }

    fn shuffled(&mut self, area: &[File], most: usize) -> Vec<File> {
        let mut files = area.to_vec();
        for i in (1..files.len()).rev() {
            files.swap(i, self.rng.below(i as u64 + 1) as usize);
        }
        files.truncate(most);
        files
    }
}

impl Mixed {
    pub(super) fn new(span_bytes: u64, write_permille: u64, rng: &mut Rng) -> Mixed {
        let blocks = span_bytes / BLOCK;
        let area = |rng: &mut Rng| {
            let files = [200, 1000, 4000][rng.below(3) as usize];
            let longest = [4, 32, FILE_MAX][rng.below(3) as usize];
            let wide = (blocks / [200, 20, 2][rng.below(3) as usize]).max(1);
            let base = rng.below(blocks);
            let file = |rng: &mut Rng| {
                // Twice as long is half as likely.
                let len = (1 << rng.next().trailing_zeros().min(8)) + rng.below(4);
                let len = len.min(longest);
                ((base + rng.below(wide)) % (blocks - longest), len)
            };
            (0..files).map(|_| file(rng)).collect()
        };
        let areas = (0..3).map(|_| area(rng)).collect();
        Mixed { blocks, areas, write_permille, phase: VecDeque::new() }
    }

    pub(super) fn next(&mut self, rng: &mut Rng) -> Wanted {
        loop {
            if let Some(wanted) = self.phase.pop_front() {
                return wanted;
            }
            self.phase = self.draw(rng);
        }
    }

    fn draw(&mut self, rng: &mut Rng) -> VecDeque<Wanted> {
        let idle_ns = [0, 0, 3, 30, 120][rng.below(5) as usize] * SECOND;
        let mut first = VecDeque::from(self.one(rng));
        if rng.permille(300) {
            let mut second = VecDeque::from(self.one(rng));
            let mut both = VecDeque::with_capacity(first.len() + second.len());
            while !(first.is_empty() || second.is_empty()) {
                both.extend(if rng.permille(500) { first.pop_front() } else { second.pop_front() });
            }
            both.extend(first);
            both.extend(second);
            first = both;
        }
        if let Some(wanted) = first.front_mut() {
            wanted.idle_ns += idle_ns;
        }
        first
    }

    fn one(&self, rng: &mut Rng) -> Vec<Wanted> {
        let kind = KINDS[rng.below(KINDS.len() as u64) as usize];
        let area = &self.areas[rng.below(self.areas.len() as u64) as usize];
        let mut p = Phase { rng, out: Vec::new(), idle_ns: 0, at_once: false };
        match kind {
            Kind::Tour => {
                let most = p.any([200, 600, 1500]);
                let files = p.shuffled(area, most);
                let (noise, idle) = (p.any([0, 20, 300]), p.any([0, 2, 30]));
                for _ in 0..p.any([2, 4]) {
                    for &file in &files {
                        let elsewhere = p.rng.permille(noise);
                        let other = files[p.rng.below(files.len() as u64) as usize];
                        p.whole(if elsewhere { other } else { file });
                    }
                    p.idle_ns = idle * SECOND;
                }
            }
            Kind::ThereAndBack => {
                let most = p.any([200, 1000]);
                let mut files = p.shuffled(area, most);
                let idle = p.any([0, 5]);
                for _ in 0..p.any([2, 3]) {
                    files.iter().for_each(|&f| p.start(f));
                    files.reverse();
                    p.idle_ns = idle * SECOND;
                }
            }
            Kind::Popular => {
                let weights = zipf(area.len() as u32);
                for _ in 0..p.any([1000, 3000]) {
                    let at = p.rng.below(weights.last().copied().unwrap_or(1));
                    let (at, blocks) = area[weights.partition_point(|sum| *sum <= at)];
                    let op = self.op(p.rng);
                    p.push(op, at, blocks.min(LONGEST));
                }
            }
            Kind::Anywhere => {
                let base = p.rng.below(self.blocks / 2);
                let wide = (self.blocks / p.any([100, 2])).max(8) - 4;
                for _ in 0..p.any([500, 2000]) {
                    let (op, blocks) = (self.op(p.rng), p.any([1, 2, 4]));
                    let at = base + p.rng.below(wide);
                    p.push(op, at, blocks);
                }
            }
            Kind::Streams => {
                let (count, most) = (p.any([1, 2, 4, 8]), p.any([500, 2000]));
                // Each goes on from the volume's beginning where it ends.
                let requests = self.blocks / LONGEST;
                let mut at: Vec<u64> = (0..count).map(|_| p.rng.below(requests)).collect();
                for _ in 0..most {
                    let i = p.rng.below(count) as usize;
                    p.push(Op::Read, at[i] % requests * LONGEST, LONGEST);
                    at[i] += 1;
                }
            }
            Kind::Scan => {
                let mut files = area.clone();
                files.sort_unstable();
                files.iter().take(1500).for_each(|&f| p.whole(f));
            }
            Kind::Stride => {
                let (base, by) = (p.rng.below(self.blocks / 2), p.any([3, 17, 200, 5000]));
                (0..p.any([500, 1500])).for_each(|i| p.push(Op::Read, (base + i * by) % self.blocks, 1));
            }
            Kind::Log => {
                let most = p.any([1000, 2000]);
                let mut end = p.rng.below(self.blocks);
                for _ in 0..most {
                    if p.rng.permille(500) {
                        let (at, blocks) = area[p.rng.below(area.len() as u64) as usize];
                        p.push(Op::Read, at, blocks.min(4));
                    } else {
                        let blocks = p.any([1, 2, 4]);
                        p.push(Op::Write, end % (self.blocks - 4), blocks);
                        end += 4;
                    }
                }
            }
            Kind::Rewrite => {
                let most = p.any([200, 600]);
                for (at, blocks) in p.shuffled(area, most) {
                    p.start((at, blocks));
                    if p.rng.permille(500) {
                        p.push(Op::Write, at, blocks.min(LONGEST));
                    }
                }
            }
            Kind::Backwards => {
                let most = p.any([100, 400]);
                let from = most * 8 + p.rng.below(self.blocks - most * 8 - 8);
                (0..most).for_each(|i| p.push(Op::Read, from - i * 8, 8));
            }
            Kind::Burst => {
                let mut files = p.shuffled(area, area.len());
                if p.rng.permille(500) {
                    files.sort_unstable();
                }
                let together = p.any([20, 100]);
                for _ in 0..p.any([5, 20]) {
                    let from = p.rng.below(files.len() as u64) as usize;
                    for (i, &f) in files.iter().skip(from).take(together).enumerate() {
                        p.at_once = i > 0;
                        p.start(f);
                    }
                    p.idle_ns = 3 * SECOND;
                }
            }
        }
        p.out
    }

    fn op(&self, rng: &mut Rng) -> Op {
        if rng.permille(self.write_permille) { Op::Write } else { Op::Read }
    }
}
