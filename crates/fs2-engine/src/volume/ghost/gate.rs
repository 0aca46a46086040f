//! The gate: whether copies are read, by what reads take with them and what plain ext2 takes (rules in [`super`]).

use crate::stats::ReplicaGate;

/// The gate closes when reads lost so much, in ms. Measured with up to 32 clients: 500 stops real traces that gain, 1000 lets a crowd
/// with too little room lose 6 % of a pass, this 2 %.
const LIMIT: f64 = 700.0;

/// Or so many reads' time without copies, where that is less: where the drive's cache has most of them there is little to gain, and what is
/// lost for nothing stands out sooner. Measured on recorded programs: without, a backup by hard links takes a quarter longer as it was
/// recorded, with 350 a tenth; with 175 git gains a tenth less.
const LIMIT_READS: f64 = 260.0;

/// That many times as much may be lost as requests are outstanding, by so many: the model serves them in another order. Measured.
const COMPANY: f64 = 5.0;

/// No more than that many: a trace that overloads its drive has thousands, and the order of the model is the drive's for any few of
/// them. Measured up to here.
const COMPANY_MAX: f64 = 32.0;

/// Share of what was gained lately that may be lost besides. Measured on made-up mixtures: with a tenth, passages that lose close it in
/// workloads that gain most of all; from 0.2 to 0.6 they are alike.
const CREDIT: f64 = 0.3;

/// The model is taken to be slower by this: what is never known of its scale. EVALUATION's target: never more than 1 % worse.
const DOUBT: f64 = 0.01;

/// And by this over the square root of the reads that the scale comes from: a guess at how much it scatters. Measured on made-up mixtures:
/// without, whoever reads copies from nearly the beginning on is compared with the chance of some ten reads; 0.5 to 3 are alike.
const SCATTER: f64 = 1.0;

/// As if there were so many at least: who reads nothing but copies is to be stopped, too. Guess.
const KNOWN_MIN: f64 = 16.0;

/// What a read takes by the requests outstanding counts for no more, in ms of the model. Measured with eight clients on a drive with a
/// write cache: without, the gate closes on most traces; 20 does as well, 100 nearly so.
pub(super) const SHARE_MAX: f64 = 50.0;

/// Reads for which the gate is closed at first, and at the most; for fewer where less was lost ([`LIMIT_READS`]). Measured on made-up
/// mixtures beside 1,024, 2,048 and 8,192: with less, what loses is tried too often; with more, what would gain waits for too long.
const CLOSED: (u64, u64) = (4096, 1 << 20);

/// Reads after which a trial may open the gate, for the first time. Measured on made-up mixtures; see docs/experiments.md.
pub(super) const TRIED: u64 = 256;

/// Each further trial may lose half as much as the one before, and no less than this share of the first, until much was gained: who never
/// wins pays for every opening. Measured on recorded programs: what is lost above 1 % is two fifths less than without, and all of them
/// together win alike.
const BELIEVED: f64 = 0.25;

/// So many times its limit was gained: the gate was closed for nothing. Guess.
const GAINED: f64 = 4.0;

/// Requests since the last read of a copy, after which neither arm nor cache are as it left them. A guess: more than drives'
/// caches have segments.
pub(super) const CLEAN: u32 = 64;

/// Reads by which the scale is learnt, requests by which the company is, and reads by which gains are forgotten, a trial's as well. Guesses.
pub(super) const LEARN: (f64, f64, f64) = (4096.0, 256.0, 8192.0);

/// Reads by which the scale is learnt that there is lately. Measured on made-up mixtures: 256 is as good; with that of 4,096 alone, reads of
/// a drive whose profile is a guess seem to lose wherever they come in another way than before.
const LATELY: f64 = 512.0;

/// How far from its profile a drive may be for the model to be scaled by: one that others use too is far slower. A guess.
const SCALE: std::ops::RangeInclusive<f64> = 0.1..=100.0;

/// Who is passed over is looked after where copies gained so much lately, in ms: it costs what the drive's order saves, a twentieth of a crowd's
/// gain. Measured with eight clients: without, first passes lose 0.7 to 2.5 % of the mean.
const GAIN: f64 = 1000.0;

/// What reads took in both, in ms; older ones weigh less.
#[derive(Clone, Copy, Debug, Default)]
struct Scale {
    real: f64,
    model: f64,
}

impl Scale {
    fn add(&mut self, real: f64, model: f64, reads: f64) {
        let keep = 1.0 - 1.0 / reads;
        (self.real, self.model) = (self.real * keep + real, self.model * keep + model);
    }

    /// What the drive takes for what takes the model so long.
    fn value(&self) -> f64 {
        let scale = if self.model > 0.0 { self.real / self.model } else { 1.0 };
        scale.clamp(*SCALE.start(), *SCALE.end())
    }
}

/// Whether copies are read, by what reads took in both.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    /// Requests since the last read of a copy.
    clean: u32,
    /// What reads took while there was none, for long and lately.
    scale: Scale,
    lately: Scale,
    /// Reads that the former comes from.
    known: f64,
    /// Requests outstanding, a running mean.
    company: f64,
    /// What reads lost, and what they gained lately less what they lost, since the gate opened, in ms.
    lost: f64,
    gained: f64,
    /// Reads for which it is closed, and for which it will be next.
    closed: u64,
    next: u64,
    /// How much of its limit may be lost until then.
    believed: f64,
    closings: u64,
    /// What a read took in the mean then, in ms.
    access: f64,
    /// Reads after which a trial may open it.
    tried: u64,
}

impl Gate {
    pub(super) fn new() -> Gate {
        Gate {
            // None was read yet.
            clean: CLEAN + 1,
            scale: Scale::default(),
            lately: Scale::default(),
            known: 0.0,
            company: 1.0,
            lost: 0.0,
            gained: 0.0,
            closed: 0,
            next: CLOSED.0,
            believed: 1.0,
            closings: 0,
            access: 0.0,
            tried: TRIED,
        }
    }

    /// What reads took in both, in ms. Says by how much less that is than in the model, where a copy was read lately.
    pub(super) fn add(&mut self, real: f64, model: f64) -> f64 {
        let more = -self.gain(real, model);
        // Keeps G6.
        let (real, model) = (real.min(SHARE_MAX * self.scale()), model.min(SHARE_MAX));
        if self.clean > CLEAN {
            // Keeps G1. What tells nothing of reads makes none of them forgotten: behind a backup's writes one read would be the scale.
            if real > 0.0 || model > 0.0 {
                self.scale.add(real, model, LEARN.0);
                self.lately.add(real, model, LATELY);
                self.known = (self.known + 1.0).min(LEARN.0);
            }
            return 0.0;
        }
        let expected = model * self.scale();
        // Keeps G3.
        self.lost = (self.lost + more / self.allowance()).max(0.0);
        self.gained += expected * (1.0 + DOUBT) - real;
        expected - real
    }

    /// What a request took in both, in ms: by how much less that is than the model's, which is taken to be as slow as its scale may be.
    pub(super) fn gain(&self, real: f64, model: f64) -> f64 {
        // Keeps G6.
        let (real, model) = (real.min(SHARE_MAX * self.scale()), model.min(SHARE_MAX));
        // Keeps G1.
        let doubt = DOUBT + SCATTER / self.known.max(KNOWN_MIN).sqrt();
        model * self.scale().max(self.lately.value()) * (1.0 + doubt) - real
    }

    /// So much more may be lost by so many, for the model serves them in another order.
    fn allowance(&self) -> f64 {
        (self.company.min(COMPANY_MAX) / COMPANY).max(1.0)
    }

    /// A request was answered, and so many were outstanding; a read without copies takes so many ms lately.
    pub(super) fn answered(&mut self, reads: bool, outstanding: f64, access: f64) {
        self.clean = self.clean.saturating_add(1);
        self.company += (outstanding - self.company) / LEARN.1;
        if reads {
            self.gained *= 1.0 - 1.0 / LEARN.2;
        }
        let credit = self.gained.max(0.0) * CREDIT;
        let least = LIMIT.min(LIMIT_READS * access);
        let limit = least * self.believed + credit / self.allowance();
        self.closed = self.closed.saturating_sub(u64::from(reads));
        if self.gained > GAINED * LIMIT * self.allowance() {
            (self.next, self.believed, self.tried) = (CLOSED.0, 1.0, TRIED);
        }
        if self.lost > limit {
            // Keeps G4.
            self.closed = (self.next as f64 * least / LIMIT) as u64;
            self.next = (self.next * 2).min(CLOSED.1);
            self.believed = (self.believed / 2.0).max(BELIEVED);
            (self.lost, self.gained) = (0.0, 0.0);
            self.closings += 1;
            self.access = access;
        }
    }

    /// Whether a trial tells enough: of so many reads, or of as much time as they would have taken as it closed. Where that was for reads that
    /// take next to nothing, of which each closes it again, a few that are dear tell more.
    pub(super) fn has_tried(&self, reads: u64, without: f64) -> bool {
        let tried = self.tried as f64;
        reads as f64 >= tried || without * self.scale() >= tried * self.access
    }

    /// A trial says that copies gain. The next has to last for twice as long: it may be wrong where the profile is.
    pub(super) fn opens(&mut self) {
        self.closed = 0;
        self.tried *= 2;
    }

    pub(super) fn is_open(&self) -> bool {
        self.closed == 0
    }

    /// Whether copies were read lately, and much was gained.
    pub(super) fn gains(&self) -> bool {
        self.clean <= CLEAN && self.gained > GAIN
    }

    /// What the drive takes for what takes the model so long.
    pub(super) fn scale(&self) -> f64 {
        self.scale.value()
    }

    /// A copy is read.
    pub(super) fn redirected(&mut self) {
        self.clean = 0;
    }

    /// What there is to tell.
    pub(super) fn told(&self) -> ReplicaGate {
        ReplicaGate { closed_for: self.closed, closings: self.closings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many reads, which took so long in both; whether each was of a copy.
    fn reads(gate: &mut Gate, count: u64, (real, model): (f64, f64), copies: bool) {
        for _ in 0..count {
            if copies {
                gate.redirected();
            }
            gate.add(real, model);
            gate.answered(true, 1.0, 5.0);
        }
    }

    /// A gate that knows its scale as well as it ever will.
    fn scaled() -> Gate {
        let mut gate = Gate::new();
        reads(&mut gate, LEARN.0 as u64, (5.0, 5.0), false);
        gate
    }

    #[test]
    fn it_closes_where_copies_are_slower_and_for_longer_each_time() {
        let mut gate = scaled();
        reads(&mut gate, 800, (6.0, 5.0), true);
        assert_eq!((gate.closed, gate.closings), (0, 0));
        reads(&mut gate, 50, (6.0, 5.0), true);
        assert!((4046..4096).contains(&gate.closed) && gate.closings == 1, "{gate:?}");
        reads(&mut gate, 4096, (5.0, 5.0), false);
        assert_eq!(gate.closed, 0);
        // Each further trial may lose half as much, and no less than a quarter.
        for (less, closed, closings) in [(330, 8192, 2), (140, 16_384, 3), (140, 32_768, 4)] {
            reads(&mut gate, less, (6.0, 5.0), true);
            assert_eq!((gate.closed, gate.closings), (0, closings - 1));
            reads(&mut gate, 70, (6.0, 5.0), true);
            assert!((closed - 70..closed).contains(&gate.closed) && gate.closings == closings, "{gate:?}");
            reads(&mut gate, closed, (5.0, 5.0), false);
        }
        // Much is gained, 8 s of which three tenths may be lost.
        reads(&mut gate, 2000, (1.0, 5.0), true);
        reads(&mut gate, 2000, (6.0, 5.0), true);
        assert_eq!((gate.closed, gate.closings), (0, 4));
        reads(&mut gate, 300, (6.0, 5.0), true);
        assert!(
            (3796..4096).contains(&gate.closed) && gate.closings == 5,
            "no longer and for no less than at first: {gate:?}"
        );
    }

    #[test]
    fn it_closes_sooner_where_the_drives_cache_has_most_reads() {
        let lost = |access: f64| {
            let mut gate = scaled();
            for _ in 0..200 {
                gate.redirected();
                gate.add(6.0, 5.0);
                gate.answered(true, 1.0, access);
            }
            (gate.closings, gate.closed)
        };
        // 190 ms are lost, less what is never known of the scale. It opens again the sooner.
        assert_eq!((lost(0.5).0, lost(1.0).0), (1, 0));
        assert!((600..761).contains(&lost(0.5).1), "{}", lost(0.5).1);
    }

    /// The chance of a dozen reads is no scale; but nobody has to read an original for ever to be stopped.
    #[test]
    fn few_reads_of_originals_say_little_of_the_scale() {
        let mut gate = Gate::new();
        reads(&mut gate, 12, (4.2, 5.0), false);
        gate.redirected();
        reads(&mut gate, 10_000, (5.1, 5.0), true);
        assert_eq!(gate.closings, 0, "{gate:?}");
        reads(&mut gate, 700, (6.5, 5.0), true);
        assert_eq!(gate.closings, 1, "{gate:?}");
    }

    /// A drive of which the profile is a guess: the arm's way takes as long, what the drive reads ahead three times as long.
    #[test]
    fn what_is_read_in_another_way_lately_has_a_scale_of_its_own() {
        let mut gate = scaled();
        reads(&mut gate, 4000, (3.0, 1.0), false);
        reads(&mut gate, 10_000, (2.9, 1.0), true);
        assert_eq!(gate.closings, 0, "{gate:?}");
        // Back again: the scale for long is the larger one now, and that is asked.
        reads(&mut gate, 3000, (5.0, 5.0), false);
        reads(&mut gate, 5000, (5.1, 5.0), true);
        assert_eq!(gate.closings, 0, "{gate:?}");
        reads(&mut gate, 5000, (8.0, 5.0), true);
        assert!(gate.closings > 0, "{gate:?}");
    }

    #[test]
    fn what_copies_save_is_measured_against_what_the_drive_takes() {
        let mut gate = Gate::new();
        assert_eq!(gate.add(6.0, 4.0), 0.0, "no copy was read");
        gate.answered(true, 1.0, 5.0);
        gate.redirected();
        assert!((gate.add(1.0, 4.0) - 5.0).abs() < 1e-9, "it takes half as long again as the model");
        assert!((gate.add(9.0, 4.0) + 3.0).abs() < 1e-9);
    }

    /// Found: behind a backup's writes the first read was the scale, for as long as copies were read then.
    #[test]
    fn writes_make_no_read_forgotten() {
        let mut gate = Gate::new();
        // Half as fast as its profile.
        reads(&mut gate, LEARN.0 as u64, (10.0, 5.0), false);
        for _ in 0..100_000 {
            gate.add(0.0, 0.0);
            gate.answered(false, 1.0, 10.0);
        }
        // The drive's cache had it, and the model's had not.
        reads(&mut gate, 1, (0.1, 5.0), false);
        assert!((1.99..2.0).contains(&gate.scale()), "{gate:?}");
        reads(&mut gate, 1000, (8.0, 5.0), true);
        assert!(gate.gained > 1500.0 && gate.closings == 0, "{gate:?}");
    }

    #[test]
    fn a_profile_that_is_too_fast_is_no_harm() {
        let mut gate = Gate::new();
        reads(&mut gate, 1000, (7.5, 5.0), false);
        reads(&mut gate, 10_000, (7.4, 5.0), true);
        assert_eq!(gate.closings, 0);
        reads(&mut gate, 2500, (8.2, 5.0), true);
        assert_eq!(gate.closings, 1);
    }

    #[test]
    fn a_drive_that_others_use_too_is_slow_with_copies_and_without() {
        let mut gate = Gate::new();
        reads(&mut gate, 40, (100.0, 5.0), false);
        assert_eq!((gate.lost, gate.closings), (0.0, 0), "no copy was read yet");
        reads(&mut gate, 2000, (99.0, 5.0), true);
        assert_eq!(gate.closings, 0);
    }

    /// Eight wait 3.4 s in both, but not at the same time: when the model's do nobody reads copies any more.
    #[test]
    fn one_stall_closes_nothing() {
        let mut gate = Gate::new();
        reads(&mut gate, 1000, (5.0, 5.0), false);
        reads(&mut gate, 500, (4.9, 5.0), true);
        reads(&mut gate, 8, (430.0, 5.0), true);
        reads(&mut gate, 500, (5.0, 5.0), false);
        reads(&mut gate, 8, (5.0, 430.0), false);
        assert!(gate.closings == 0 && (0.9..1.1).contains(&gate.scale()), "{gate:?}");
    }

    #[test]
    fn a_crowd_is_given_more_time() {
        let mut gate = Gate::new();
        (0..2000).for_each(|_| gate.answered(true, 32.0, 5.0));
        let lose = |gate: &mut Gate| {
            for _ in 0..4000 {
                gate.redirected();
                gate.add(2.0, 1.0);
                gate.answered(true, 32.0, 5.0);
            }
        };
        lose(&mut gate);
        assert_eq!(gate.closings, 0, "{gate:?}");
        lose(&mut gate);
        assert_eq!(gate.closings, 1);
    }

    /// It closed over reads of a tenth of a ms, four times: 2,048 of these tell whether copies gain, or 0.2 seconds of others.
    #[test]
    fn dear_reads_tell_sooner_that_copies_would_gain() {
        let mut gate = scaled();
        (0..3).for_each(|_| gate.opens());
        gate.lost = 1e6;
        gate.answered(true, 1.0, 0.1);
        assert_eq!((gate.closings, gate.tried), (1, 2048));
        assert!(!gate.has_tried(2047, 204.0) && gate.has_tried(2048, 0.0));
        assert!(!gate.has_tried(50, 200.0) && gate.has_tried(50, 205.0));
        // The drive takes twice as long as its model.
        gate.scale.real *= 2.0;
        assert!(!gate.has_tried(25, 102.0) && gate.has_tried(25, 103.0));
    }
}
