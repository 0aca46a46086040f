//! A control sample: of the reads that have a copy, one short run in so many is read where the file system put it, whatever the
//! policy would choose. What the two kinds of runs take, side by side, is what copies gain, measured and not predicted.
//!
//! - C1: which runs they are follows from the seed and from how many reads had a copy; from no time and no address.
//! - C2: in each stretch of so many runs there is one, at a place drawn anew for each: a workload that repeats itself is not
//!   compared with itself at one place only. The first stretch has none, so that a short session gives nothing away.
//! - C3: the read with which a kind of run begins after one of the other kind is not counted: it pays the head's way
//!   between copies and originals, which without a control sample nobody would go.
//! - C4: nothing is safer or less safe for it: an original is always right.

use fs2_block::Nanos;

use crate::stats::{Control as Told, Sample};

/// Reads of a run. A guess: short, so that few users see one that is slow, and longer than what C3 leaves out.
const RUN: u64 = 8;

/// Which kind of run a read belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// Served as the policy chooses.
    Chosen,
    /// Served from the original.
    Home,
}

/// The sample of a volume.
#[derive(Clone, Debug, Default)]
pub(super) struct Control {
    /// One run in so many is for the originals; 0: none.
    every: u16,
    seed: u64,
    /// Reads that had a copy.
    seen: u64,
    arms: [Sums; 2],
}

impl Control {
    /// One run in `every`, 0 for none; which ones follows from `seed`.
    pub(super) fn new(every: u16, seed: u64) -> Control {
        Control { every, seed, ..Control::default() }
    }

    fn arm_of(&self, run: u64) -> Arm {
        let every = u64::from(self.every);
        if every == 0 {
            return Arm::Chosen;
        }
        let (stretch, at) = (run / every, run % every);
        // Keeps C1 and C2.
        let drawn = mixed(self.seed ^ stretch.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % every;
        if stretch > 0 && at == drawn { Arm::Home } else { Arm::Chosen }
    }

    /// Whether the next read that has a copy will be read from its original.
    pub(super) fn sends_home(&self) -> bool {
        self.every > 0 && self.arm_of(self.seen / RUN) == Arm::Home
    }

    /// A read that has a copy is dispatched; how it is to be served, and whether it counts.
    pub(super) fn next(&mut self) -> (Arm, bool) {
        if self.every == 0 {
            return (Arm::Chosen, false);
        }
        let (run, at) = (self.seen / RUN, self.seen % RUN);
        self.seen += 1;
        let arm = self.arm_of(run);
        let turned = run > 0 && self.arm_of(run - 1) != arm;
        if at == 0 {
            self.arms[arm as usize].close();
        }
        // Keeps C3.
        (arm, !(at == 0 && turned))
    }

    /// A read that counts took so long from its dispatch to its end.
    pub(super) fn took(&mut self, arm: Arm, time: Nanos) {
        self.arms[arm as usize].add(time.as_millis_f64());
    }

    /// What there is to tell.
    pub(super) fn told(&self) -> Told {
        let [chosen, home] = self.arms.each_ref().map(Sums::sample);
        Told { every: self.every, chosen, home }
    }
}

/// SplitMix64's last step.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Runs of one kind: reads of one run are like one another, so the interval is that of a mean over clusters.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Of the run that goes on.
    reads: f64,
    ms: f64,
    /// Of those that ended.
    runs: u64,
    all_reads: f64,
    all_ms: f64,
    ms_squared: f64,
    ms_by_reads: f64,
    reads_squared: f64,
}

impl Sums {
    fn add(&mut self, ms: f64) {
        self.reads += 1.0;
        self.ms += ms;
    }

    fn close(&mut self) {
        if self.reads > 0.0 {
            self.runs += 1;
            self.all_reads += self.reads;
            self.all_ms += self.ms;
            self.ms_squared += self.ms * self.ms;
            self.ms_by_reads += self.ms * self.reads;
            self.reads_squared += self.reads * self.reads;
            (self.reads, self.ms) = (0.0, 0.0);
        }
    }

    /// A ratio's mean and its interval, over clusters (Cochran, Sampling Techniques, 3rd ed., 2.11 and 6.4).
    fn sample(&self) -> Sample {
        let mean = self.all_ms / self.all_reads;
        let runs = self.runs as f64;
        let residuals = self.ms_squared - 2.0 * mean * self.ms_by_reads + mean * mean * self.reads_squared;
        // Rounding may leave less than nothing of equal times.
        let error = (runs / (runs - 1.0) * residuals.max(0.0)).sqrt() / self.all_reads;
        Sample {
            reads: self.all_reads as u64,
            mean_ms: (self.runs > 0).then_some(mean),
            error_ms: (self.runs > 1).then(|| error * student(self.runs - 1)),
        }
    }
}

/// Student's t that 95 % stay within, by degrees of freedom.
fn student(freedom: u64) -> f64 {
    const T: [f64; 12] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];
    match freedom {
        0 => f64::INFINITY,
        1..=12 => T[freedom as usize - 1],
        // Within 0.01 of the table.
        n => 1.96 + 2.4 / n as f64 + 2.8 / (n * n) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arms(control: &mut Control, reads: usize) -> Vec<(Arm, bool)> {
        (0..reads).map(|_| control.next()).collect()
    }

    #[test]
    fn off_means_off() {
        let mut control = Control::new(0, 7);
        assert!(arms(&mut control, 10_000).iter().all(|a| *a == (Arm::Chosen, false)));
        assert!(!control.sends_home());
        assert_eq!(control.told().home.reads, 0);
    }

    #[test]
    fn one_run_in_so_many_goes_home_in_each_stretch_but_the_first() {
        for (every, seed) in [(2u16, 1), (16, 2), (256, 3)] {
            let mut control = Control::new(every, seed);
            let stretch = usize::from(every) * RUN as usize;
            let all = arms(&mut control, 20 * stretch);
            let home = |s: usize| all[s * stretch..][..stretch].iter().filter(|a| a.0 == Arm::Home).count();
            assert_eq!(home(0), 0);
            assert!((1..20).all(|s| home(s) == RUN as usize), "1/{every}");
            // Not always at one place.
            let place = |s: usize| all[s * stretch..][..stretch].iter().position(|a| a.0 == Arm::Home);
            assert!(every == 2 || (2..20).any(|s| place(s) != place(1)));
            // The same again from the same seed.
            assert_eq!(arms(&mut Control::new(every, seed), 20 * stretch), all);
        }
    }

    #[test]
    fn the_turns_are_not_counted_and_are_foretold() {
        let mut control = Control::new(4, 9);
        let mut last = Arm::Chosen;
        for n in 0..2000 {
            let home = control.sends_home();
            let (arm, counts) = control.next();
            assert_eq!(home, arm == Arm::Home);
            assert_eq!(counts, arm == last, "read {n}");
            last = arm;
        }
    }

    /// Beside the formula for equal clusters: the mean of the runs' means, and Student's interval of these.
    #[test]
    fn means_and_intervals_are_right() {
        let mut sums = Sums::default();
        let runs = [[4.0, 6.0], [5.0, 7.0], [3.0, 9.0], [8.0, 2.0]];
        assert_eq!(sums.sample(), Sample { reads: 0, mean_ms: None, error_ms: None });
        for run in runs {
            run.iter().for_each(|t| sums.add(*t));
            sums.close();
            sums.close();
        }
        let told = sums.sample();
        let means = runs.map(|r| (r[0] + r[1]) / 2.0);
        let mean = means.iter().sum::<f64>() / 4.0;
        let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / 3.0;
        assert_eq!(told.reads, 8);
        assert!((told.mean_ms.unwrap() - mean).abs() < 1e-12);
        let error = 3.182 * (variance / 4.0).sqrt();
        assert!((told.error_ms.unwrap() - error).abs() < 1e-9, "{told:?} {error}");
        let mut one = Sums::default();
        one.add(5.0);
        one.close();
        assert_eq!(one.sample(), Sample { reads: 1, mean_ms: Some(5.0), error_ms: None });
        // All alike: an interval of nothing, and no NaN.
        let mut alike = Sums::default();
        for _ in 0..1000 {
            alike.add(0.1);
            alike.close();
        }
        assert!(alike.sample().error_ms.unwrap() < 1e-6);
    }

    #[test]
    fn students_t_is_near_the_table() {
        for (freedom, t) in
            [(13, 2.160), (20, 2.086), (30, 2.042), (60, 2.000), (120, 1.980), (100_000, 1.960)]
        {
            assert!((student(freedom) - t).abs() < 0.01, "{freedom}: {}", student(freedom));
        }
    }
}
