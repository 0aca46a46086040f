//! Where a scheme's reserved space is, and when its nights are.

use fs2_block::{BlockRange, Nanos};
use fs2_engine::policy::Shape;

/// Without a request for so long, it is night: the papers rearrange once a day, and a replay lets a minute
/// pass between runs. A guess.
pub(super) const NIGHT: Nanos = Nanos::from_millis(10_000);

/// A day has at least so many requests: a gap within an hour's trace is no night. A guess.
pub(super) const DAY_REQUESTS: u64 = 100;

/// Free runs at least this long make up a reserved area, while there are enough of them; then runs half as
/// long, and so on: papers reserve whole cylinders. 1 MiB of 4 KiB blocks.
const RUN_BLOCKS: u32 = 256;

/// Which free blocks a scheme takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Around {
    /// Those nearest to this block.
    Block(u32),
    /// The first of the volume.
    Beginning,
}

impl Around {
    /// The middle of a volume.
    pub(super) fn middle(shape: &Shape) -> Around {
        Around::Block(shape.first_block + (shape.blocks - shape.first_block) / 2)
    }
}

/// `room` blocks out of these free runs, ascending.
pub(super) fn reserve(free: &[BlockRange], room: u32, around: Around) -> Vec<BlockRange> {
    let mut least = RUN_BLOCKS;
    let enough = |least: u32| {
        let sum: u64 = free.iter().filter(|r| r.len() >= least).map(|r| u64::from(r.len())).sum();
        sum >= u64::from(room)
    };
    while least > 1 && !enough(least) {
        least /= 2;
    }
    let mut runs: Vec<BlockRange> = free.iter().copied().filter(|r| r.len() >= least).collect();
    let distance = |r: &BlockRange| match around {
        Around::Beginning => r.start(),
        Around::Block(b) if b < r.start() => r.start() - b,
        Around::Block(b) => b.saturating_sub(r.end() - 1),
    };
    runs.sort_by_key(|r| (distance(r), r.start()));
    let mut left = room;
    let mut area = Vec::new();
    for run in runs {
        if left == 0 {
            break;
        }
        let len = run.len().min(left);
        // The end that lies nearer.
        let start = match around {
            Around::Block(b) if b >= run.end() => run.end() - len,
            Around::Block(b) if b > run.start() => (b - (len / 2).min(b)).clamp(run.start(), run.end() - len),
            _ => run.start(),
        };
        area.push(BlockRange::new(start, start + len));
        left -= len;
    }
    area.sort();
    area
}

/// Every block of these runs.
pub(super) fn slots(area: &[BlockRange]) -> Vec<u32> {
    area.iter().flat_map(|r| r.start()..r.end()).collect()
}

/// Days and nights, as seen by a scheme that rearranges at night.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Days {
    /// Requests since the last night's plan.
    requests: u64,
}

impl Days {
    /// A request of the day.
    pub(super) fn request(&mut self) {
        self.requests += 1;
    }

    /// Whether there is something to plan for the next night.
    pub(super) fn is_over(&self) -> bool {
        self.requests >= DAY_REQUESTS
    }

    /// The plan is made: a new day begins.
    pub(super) fn begin(&mut self) {
        self.requests = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_made_of_the_nearest_large_runs() {
        let r = BlockRange::new;
        let free = [r(0, 300), r(400, 500), r(1000, 1600), r(2000, 2300)];
        // Around 1300, large runs only: the middle of the run that holds it.
        assert_eq!(reserve(&free, 200, Around::Block(1300)), [r(1200, 1400)]);
        // It does not do alone: 2000 is 700 away, the end of the first run 1001.
        assert_eq!(reserve(&free, 700, Around::Block(1300)), [r(1000, 1600), r(2000, 2100)]);
        assert_eq!(reserve(&free, 310, Around::Beginning), [r(0, 300), r(1000, 1010)]);
        // More than the large runs hold: the small one counts too.
        assert_eq!(reserve(&free, 1250, Around::Beginning).iter().map(|r| r.len()).sum::<u32>(), 1250);
        assert_eq!(reserve(&free, 5000, Around::Beginning), free);
        assert_eq!(slots(&[r(3, 5), r(9, 10)]), [3, 4, 9]);
    }
}
