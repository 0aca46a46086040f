//! Plain ext2 beside the volume: the same requests on a modelled drive whose reads are never redirected, and a gate that closes
//! where copies make reads slower than that.
//!
//! The model has a clock of its own. A request comes to it when it comes to the volume, and for each that the volume answers the
//! model serves one, whichever its schedulers take, the volume's and the drive's own: as many are outstanding in both, and both rest for
//! as long. What reads take from arrival to answer, by the requests outstanding, is compared.
//!
//! - G1: the model is scaled by what both took where no copy was read for a while ([`CLEAN`]), for long or lately, whichever is more: a
//!   wrong profile, which is by as much wrong only for the same kind of reading, is no harm done. As long as few such reads came, that much
//!   less is known of the scale.
//! - G2: waits behind the engine's own work are not the copies' doing and are left out; `disturbance` has them.
//! - G3: the sum never falls below nothing (CUSUM; Page, Continuous inspection schemes, 1954); of what was gained lately three tenths
//!   may be lost again.
//! - G4: a gate that closed opens again, each time after twice as many reads and for half as much to lose, unless much was gained meanwhile;
//!   sooner where little had to be lost for it, and where the same requests are served sooner on a second modelled drive, which reads copies
//!   ([`Trial`]).
//! - G5: while copies gain, no request at the drive is passed over for longer than the slowest hundredth would have been without
//!   copies ([`Ghost::longest_wait`]): the drive serves what is near, and copies are near each other. One in sixteen, at most, goes
//!   first for that ([`Overdue`](fs2_disk::Overdue)): in a burst all are older, and copies are not in order of arrival.
//! - G6: no read counts for more than the longest access ([`SHARE_MAX`]). What stalls for longer stalls in both, but not at the same
//!   request: a drive that caches writes serves a burst of them before any read.
//! - G7: nothing is safer or less safe for it: an original is always right.

use fs2_block::{Extent, Nanos, Op, Sector};
use fs2_disk::{DriveProfile, Scheduler};
use smallvec::SmallVec;

use self::model::Model;
use super::tail::Percentile;
use crate::stats::ReplicaGate;

mod model;

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
const SHARE_MAX: f64 = 50.0;

/// Reads for which the gate is closed at first, and at the most; for fewer where less was lost ([`LIMIT_READS`]). Measured on made-up mixtures beside 1,024, 2,048 and 8,192: with less, what
/// loses is tried too often; with more, what would gain waits for too long.
const CLOSED: (u64, u64) = (4096, 1 << 20);

/// Reads after which the gate opens where a model that reads copies gained, for the first time, and by what share of what the model without
/// takes. Measured on made-up mixtures; see docs/experiments.md.
const TRIED: (u64, f64) = (256, 0.2);

/// Each further trial may lose half as much as the one before, and no less than this share of the first, until much was gained: who never
/// wins pays for every opening. Measured on recorded programs: what is lost above 1 % is two fifths less than without, and all of them
/// together win alike.
const BELIEVED: f64 = 0.25;

/// So many times its limit was gained: the gate was closed for nothing. Guess.
const GAINED: f64 = 4.0;

/// Requests since the last read of a copy, after which neither arm nor cache are as it left them. A guess: more than drives'
/// caches have segments.
const CLEAN: u32 = 64;

/// Reads by which the scale is learnt, requests by which the company is, and reads by which gains are forgotten, a trial's as well. Guesses.
const LEARN: (f64, f64, f64) = (4096.0, 256.0, 8192.0);

/// Reads by which the scale is learnt that there is lately. Measured on made-up mixtures: 256 is as good; with that of 4,096 alone, reads of
/// a drive whose profile is a guess seem to lose wherever they come in another way than before.
const LATELY: f64 = 512.0;

/// How far from its profile a drive may be for the model to be scaled by: one that others use too is far slower. A guess.
const SCALE: std::ops::RangeInclusive<f64> = 0.1..=100.0;

/// A write cache that nobody told of, and the rest after which it is written. Guesses: a drive of 2005.
const WRITE_CACHE_KIB: u32 = 8 << 10;
const WRITE_CACHE_IDLE_MS: f64 = 50.0;

/// Reads by which it is learnt what one takes without copies. Measured on made-up mixtures: 50 to 256 are alike.
const ACCESS: f64 = 256.0;

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
struct Gate {
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
    fn new() -> Gate {
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
            tried: TRIED.0,
        }
    }

    /// What reads took in both, in ms. Says by how much less that is than in the model, where a copy was read lately.
    fn add(&mut self, real: f64, model: f64) -> f64 {
        // Keeps G6.
        let (real, model) = (real.min(SHARE_MAX * self.scale.value()), model.min(SHARE_MAX));
        if self.clean > CLEAN {
            // Keeps G1. What tells nothing of reads makes none of them forgotten: behind a backup's writes one read would be the scale.
            if real > 0.0 || model > 0.0 {
                self.scale.add(real, model, LEARN.0);
                self.lately.add(real, model, LATELY);
                self.known = (self.known + 1.0).min(LEARN.0);
            }
            return 0.0;
        }
        let expected = model * self.scale.value();
        let slowest = model * self.scale.value().max(self.lately.value());
        // Keeps G1 and G3.
        let doubt = DOUBT + SCATTER / self.known.max(KNOWN_MIN).sqrt();
        let more = real - slowest * (1.0 + doubt);
        self.lost = (self.lost + more / self.allowance()).max(0.0);
        self.gained += expected * (1.0 + DOUBT) - real;
        expected - real
    }

    /// So much more may be lost by so many, for the model serves them in another order.
    fn allowance(&self) -> f64 {
        (self.company.min(COMPANY_MAX) / COMPANY).max(1.0)
    }

    /// A request was answered, and so many were outstanding; a read without copies takes so many ms lately.
    fn answered(&mut self, reads: bool, outstanding: f64, access: f64) {
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
            (self.next, self.believed, self.tried) = (CLOSED.0, 1.0, TRIED.0);
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
    fn has_tried(&self, trial: &Trial) -> bool {
        let tried = self.tried as f64;
        trial.reads as f64 >= tried || trial.without * self.scale.value() >= tried * self.access
    }

    /// A trial says that copies gain. The next has to last for twice as long: it may be wrong where the profile is.
    fn opens(&mut self) {
        self.closed = 0;
        self.tried *= 2;
    }
}

/// What copies would be worth while the gate is closed: the same requests on a second modelled drive, which reads them.
#[derive(Clone, Debug)]
struct Trial {
    model: Model,
    /// What reads took without copies and with them lately, by the requests outstanding, in ms.
    without: f64,
    with: f64,
    reads: u64,
}

impl Trial {
    /// As the model without copies is now.
    fn new(plain: &Model) -> Trial {
        Trial { model: plain.clone(), without: 0.0, with: 0.0, reads: 0 }
    }

    /// One was answered, while the drive had so many; in the model without copies a read took so many ms by the requests outstanding.
    fn answered(&mut self, reads: bool, given: usize, without: f64) {
        let outstanding = self.model.outstanding();
        let keep = 1.0 - f64::from(u8::from(reads)) / LEARN.2;
        (self.without, self.with) = (self.without * keep + without.min(SHARE_MAX), self.with * keep);
        if let Some(served) = self.model.serve(given)
            && served.op == Op::Read
        {
            self.with += (served.response.as_millis_f64() / outstanding).min(SHARE_MAX);
        }
        self.reads += u64::from(reads);
    }

    fn gains(&self) -> bool {
        self.with < self.without * (1.0 - TRIED.1)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Ghost {
    plain: Model,
    /// While the gate is closed.
    trial: Option<Box<Trial>>,
    gate: Gate,
    responses: Percentile,
    /// What a read takes the model's drive, in ms, and how many that comes from.
    access: (f64, f64),
}

impl Ghost {
    /// Plain ext2 on this drive.
    pub(super) fn new(profile: &DriveProfile, scheduler: Scheduler, age_max: Nanos) -> Ghost {
        Ghost {
            plain: Model::new(profile, scheduler, age_max),
            trial: None,
            gate: Gate::new(),
            responses: Percentile::new(),
            access: (0.0, 0.0),
        }
    }

    /// The drive turned out to have a write cache, of which its profile may say nothing.
    pub(super) fn writes_are_cached(&mut self) {
        if !self.plain.profile().caches_writes() {
            let profile = self.plain.profile().clone();
            self.plain.becomes(profile.with_write_cache(WRITE_CACHE_KIB, WRITE_CACHE_IDLE_MS));
            self.trial = None;
        }
    }

    /// How long a request may have waited before the drive gets nothing else; `None` where copies gain little, or none were read
    /// lately.
    pub(super) fn longest_wait(&self) -> Option<Nanos> {
        let gains = self.gate.clean <= CLEAN && self.gate.gained > GAIN;
        self.slowest().filter(|_| gains)
    }

    /// What a hundredth of the responses would have exceeded without copies.
    pub(super) fn slowest(&self) -> Option<Nanos> {
        Some(Nanos((self.responses.value()?.0 as f64 * self.gate.scale.value()) as u64))
    }

    /// What a read lately took at the drive without copies, its waits left out, in ms; `None` before the first.
    pub(super) fn access_ms(&self) -> Option<f64> {
        (self.access.1 > 0.0).then(|| self.access.0 * self.gate.scale.value())
    }

    /// Whether copies may be read.
    pub(super) fn is_open(&self) -> bool {
        self.gate.closed == 0
    }

    /// A read or a write arrives, after nothing was outstanding for so long; copies of what it reads lie there.
    pub(super) fn arrived(&mut self, rested: Nanos, op: Op, extent: Extent, copies: &[Sector]) {
        let sectors = extent.sectors().min(u64::from(u32::MAX)) as u32;
        self.plain.arrived(rested, op, &[extent.sector()], sectors);
        if let Some(trial) = &mut self.trial {
            let mut places: SmallVec<[Sector; 4]> = SmallVec::from_slice(&[extent.sector()]);
            places.extend_from_slice(copies);
            trial.model.arrived(rested, op, &places, sectors);
        }
    }

    /// A copy is read.
    pub(super) fn redirected(&mut self) {
        self.gate.clean = 0;
    }

    /// One that had arrived was answered, so long after that or after the engine's own work that it waited for, or failed; with it the drive
    /// had so many. Says by how many ms all that are outstanding are served sooner than in the model, because copies were read lately.
    pub(super) fn answered(&mut self, reads: bool, took: Option<Nanos>, given: usize) -> f64 {
        let outstanding = self.plain.outstanding();
        let Some(next) = self.plain.serve(given) else { return 0.0 };
        if next.op == Op::Read {
            let (mean, reads) = &mut self.access;
            *reads = (*reads + 1.0).min(ACCESS);
            *mean += (next.service.as_millis_f64() - *mean) / *reads;
        }
        self.responses.add(next.response);
        let share = |reads: bool, took: Nanos| if reads { took.as_millis_f64() / outstanding } else { 0.0 };
        let model = share(next.op == Op::Read, next.response);
        let saved = took.map_or(0.0, |took| self.gate.add(share(reads, took), model));
        self.gate.answered(reads, outstanding, self.access.0 * self.gate.scale.value());
        if self.is_open() {
            self.trial = None;
        } else {
            // Keeps G4.
            let trial = self.trial.get_or_insert_with(|| Box::new(Trial::new(&self.plain)));
            trial.answered(reads, given, model);
            if self.gate.has_tried(trial) && trial.gains() {
                self.gate.opens();
                self.trial = None;
            }
        }
        saved * outstanding
    }

    /// What there is to tell.
    pub(super) fn told(&self) -> ReplicaGate {
        let Gate { closed, closings, .. } = self.gate;
        ReplicaGate { closed_for: closed, closings }
    }
}

#[cfg(test)]
mod tests {
    use fs2_disk::{Disk, Queue};

    use super::*;

    /// So many reads, which took so long in both; whether each was of a copy.
    fn reads(gate: &mut Gate, count: u64, (real, model): (f64, f64), copies: bool) {
        for _ in 0..count {
            if copies {
                gate.clean = 0;
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
                gate.clean = 0;
                gate.add(6.0, 5.0);
                gate.answered(true, 1.0, access);
            }
            (gate.closings, gate.closed)
        };
        // 190 ms are lost, less what is never known of the scale. It opens again the sooner.
        assert_eq!((lost(0.5).0, lost(1.0).0), (1, 0));
        assert!((600..761).contains(&lost(0.5).1), "{}", lost(0.5).1);
    }

    #[test]
    fn what_failed_is_no_read_that_took_nothing() {
        let profile = DriveProfile::builtin("wd800-repaired").unwrap();
        let mut ghost = Ghost::new(&profile, Scheduler::Fcfs, Nanos::from_millis(2000));
        let mut read = |at: u64, took: Option<u64>| {
            ghost.arrived(Nanos(0), Op::Read, Extent::new(at * 997 % 16_000_000 * 4096, 4096), &[]);
            ghost.redirected();
            ghost.answered(true, took.map(Nanos::from_millis), 1)
        };
        assert_ne!(read(7919, Some(5)), 0.0);
        assert_eq!(read(104_729, None), 0.0);
        let gained = |ghost: &Ghost| (ghost.gate.gained, ghost.gate.lost);
        let before = gained(&ghost);
        ghost.arrived(Nanos(0), Op::Read, Extent::new(4096, 4096), &[]);
        ghost.answered(true, None, 1);
        assert!(gained(&ghost).0 <= before.0 && gained(&ghost).1 == before.1, "{before:?}");
    }

    /// The chance of a dozen reads is no scale; but nobody has to read an original for ever to be stopped.
    #[test]
    fn few_reads_of_originals_say_little_of_the_scale() {
        let mut gate = Gate::new();
        reads(&mut gate, 12, (4.2, 5.0), false);
        gate.clean = 0;
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
        gate.clean = 0;
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
        assert!((1.99..2.0).contains(&gate.scale.value()), "{gate:?}");
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
        assert!(gate.closings == 0 && (0.9..1.1).contains(&gate.scale.value()), "{gate:?}");
    }

    #[test]
    fn a_crowd_is_given_more_time() {
        let mut gate = Gate::new();
        (0..2000).for_each(|_| gate.answered(true, 32.0, 5.0));
        for _ in 0..4000 {
            gate.clean = 0;
            gate.add(2.0, 1.0);
            gate.answered(true, 32.0, 5.0);
        }
        assert_eq!(gate.closings, 0, "{gate:?}");
        (0..4000).for_each(|_| {
            gate.clean = 0;
            gate.add(2.0, 1.0);
            gate.answered(true, 32.0, 5.0);
        });
        assert_eq!(gate.closings, 1);
    }

    #[test]
    fn nobody_is_passed_over_for_long_while_copies_gain() {
        let profile = DriveProfile::builtin("wd800-repaired").unwrap();
        let mut ghost = Ghost::new(&profile, Scheduler::Fcfs, Nanos::from_millis(2000));
        let mut random = 1u64;
        let mut answer = |ghost: &mut Ghost, took: Nanos| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ghost.arrived(Nanos(0), Op::Read, Extent::new((random >> 33) % 16_000_000 * 4096, 4096), &[]);
            ghost.answered(true, Some(took), 1);
        };
        let ms = Nanos::from_millis;
        (0..1000).for_each(|_| answer(&mut ghost, ms(20)));
        assert_eq!(ghost.longest_wait(), None, "no copy was read");
        for _ in 0..1000 {
            ghost.redirected();
            answer(&mut ghost, ms(2));
        }
        // The model's slowest take two thirds of a full seek and a turn, and this drive half as long again.
        let longest = ghost.longest_wait().unwrap();
        assert!(longest > ms(22) && longest < ms(50), "{longest:?}");
        (0..=u64::from(CLEAN)).for_each(|_| answer(&mut ghost, ms(20)));
        assert_eq!(ghost.longest_wait(), None, "not lately");
        for _ in 0..2000 {
            ghost.redirected();
            answer(&mut ghost, ms(30));
        }
        assert_eq!(ghost.longest_wait(), None, "nothing is gained");
    }

    #[test]
    fn what_a_read_takes_without_copies_is_known() {
        let profile = DriveProfile::builtin("wd800-repaired").unwrap();
        let mut ghost = Ghost::new(&profile, Scheduler::Fcfs, Nanos::from_millis(2000));
        let mut answer = |op, block: u64, took: u64| {
            ghost.arrived(Nanos(0), op, Extent::new(block * 4096, 4096), &[]);
            ghost.answered(op == Op::Read, Some(Nanos::from_millis(took)), 1);
            ghost.access_ms()
        };
        assert_eq!(answer(Op::Write, 7, 12), None, "no read came");
        let anywhere = |i: u64| (i.wrapping_mul(6_364_136_223_846_793_005) >> 33) % 16_000_000;
        for i in 0..2000 {
            answer(Op::Write, 3_000_000 + i, 12);
            answer(Op::Read, anywhere(i), 12);
        }
        let scattered = answer(Op::Read, 5_000_000, 12).unwrap();
        assert!((9.0..15.0).contains(&scattered), "{scattered}");
        // On a drive that takes twice as long as its profile says.
        for i in 0..20_000 {
            answer(Op::Read, anywhere(i), 24);
        }
        let slower = answer(Op::Read, 5_000_000, 24).unwrap();
        assert!((22.0..26.0).contains(&slower), "{slower}");
        let in_a_row: Vec<_> = (0..2000).map(|i| answer(Op::Read, 1_000_000 + i, 0).unwrap()).collect();
        assert!(in_a_row[1999] < 0.5 && in_a_row[50] > 5.0, "{in_a_row:?}");
    }

    /// A workload whose copies lie in a row, or where they are no nearer; what was lost before closed the gate.
    fn closed_beside(nearer: bool, reads: u64) -> Ghost {
        let profile = DriveProfile::builtin("wd800-repaired").unwrap();
        let mut ghost = Ghost::new(&profile, Scheduler::Fcfs, Nanos::from_millis(2000));
        let ms = Nanos::from_millis;
        let read = |ghost: &mut Ghost, of_copy: bool, i: u64, took: Nanos| {
            let anywhere = |i: u64| (i.wrapping_mul(6_364_136_223_846_793_005) >> 33) % 16_000_000;
            let copy = if nearer { 1_000_000 + i } else { anywhere(i + 100_000) };
            let copies: &[Sector] = if ghost.is_open() { &[] } else { &[Sector(copy * 8)] };
            ghost.arrived(Nanos(0), Op::Read, Extent::new(anywhere(i) * 4096, 4096), copies);
            if of_copy {
                ghost.redirected();
            }
            ghost.answered(true, Some(took), 1);
        };
        (0..2000).for_each(|i| read(&mut ghost, false, i, ms(12)));
        let mut i = 2000;
        while ghost.is_open() {
            read(&mut ghost, true, i, ms(20));
            i += 1;
        }
        (0..reads).for_each(|n| read(&mut ghost, false, i + n, ms(12)));
        ghost
    }

    #[test]
    fn it_opens_sooner_where_copies_would_gain_by_the_model() {
        assert!(!closed_beside(true, TRIED.0 - 2).is_open(), "too few reads to tell");
        let ghost = closed_beside(true, TRIED.0);
        assert!(ghost.is_open() && ghost.trial.is_none() && ghost.gate.closings == 1);
        assert_eq!(ghost.gate.tried, 2 * TRIED.0, "the next one takes longer");
    }

    #[test]
    fn it_stays_closed_where_copies_would_gain_little_by_the_model() {
        // The nearer one of two places anywhere is some per cent nearer.
        let ghost = closed_beside(false, 2000);
        let trial = ghost.trial.as_ref().unwrap();
        assert!(!ghost.is_open() && trial.reads >= 2000 && trial.with < trial.without, "{trial:?}");
    }

    /// It closed over reads of a tenth of a ms, four times: 2,048 of these tell whether copies gain, or 0.2 seconds of others.
    #[test]
    fn dear_reads_tell_sooner_that_copies_would_gain() {
        let mut gate = scaled();
        (0..3).for_each(|_| gate.opens());
        gate.lost = 1e6;
        gate.answered(true, 1.0, 0.1);
        assert_eq!((gate.closings, gate.tried), (1, 2048));
        let profile = DriveProfile::builtin("wd800-repaired").unwrap();
        let model = Model::new(&profile, Scheduler::Fcfs, Nanos::from_millis(2000));
        let trial = |reads, without| Trial { reads, without, ..Trial::new(&model) };
        assert!(!gate.has_tried(&trial(2047, 204.0)) && gate.has_tried(&trial(2048, 0.0)));
        assert!(!gate.has_tried(&trial(50, 200.0)) && gate.has_tried(&trial(50, 205.0)));
        // The drive takes twice as long as its model.
        gate.scale.real *= 2.0;
        assert!(!gate.has_tried(&trial(25, 102.0)) && gate.has_tried(&trial(25, 103.0)));
    }

    /// A drive just like the model, read at random places by so many clients, and each read of a copy, all but the first five hundred,
    /// answered so many ms late.
    fn beside(clients: u64, late: u64, own: u64) -> Ghost {
        let profile = DriveProfile::builtin("wd800-repaired").unwrap();
        let mut drive = Disk::new(profile.clone());
        let mut ghost = Ghost::new(&profile, Scheduler::Fcfs, Nanos::from_millis(2000));
        let (mut now, mut random) = (Nanos(0), 1u64);
        let mut open = std::collections::VecDeque::new();
        let mut came = |ghost: &mut Ghost, now: Nanos, rested: Nanos| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let extent = Extent::new((random >> 33) % 16_000_000 * 4096, 4096);
            ghost.arrived(rested, Op::Read, extent, &[]);
            (now, extent, Nanos(0))
        };
        (0..clients).for_each(|_| open.push_back(came(&mut ghost, now, Nanos(0))));
        for n in 0..3500 {
            let (arrived, extent, mut behind_own) = open.pop_front().unwrap();
            let of_copy = n >= 500;
            let late = Nanos::from_millis(if of_copy { late } else { 0 });
            now = drive.serve(now, Op::Read, extent.sector(), 8).end() + late;
            if own > 0 {
                // All waited for the engine first.
                let own = Nanos::from_millis(own);
                now += own;
                behind_own += own;
                open.iter_mut().for_each(|(.., behind)| *behind += own);
            }
            if of_copy {
                ghost.redirected();
            }
            ghost.answered(true, Some(now.since(arrived + behind_own)), 1);
            open.push_back(came(&mut ghost, now, Nanos(0)));
        }
        ghost
    }

    #[test]
    fn a_drive_like_the_model_loses_nothing() {
        for clients in [1, 8] {
            assert_eq!(beside(clients, 0, 0).told(), ReplicaGate::default(), "{clients}");
            assert_eq!(beside(clients, 0, 3).told(), ReplicaGate::default(), "{clients}");
            assert!(beside(clients, 3, 0).told().closings > 0, "{clients}");
        }
    }

    /// Bursts at a drive that takes eight of them at a time, and the volume's scheduler chooses which, before the drive knows where its head
    /// will be then: slower by a third than if it had all.
    #[test]
    fn bursts_at_a_drive_that_takes_few_lose_nothing() {
        let profile = DriveProfile::builtin("wd800-repaired").unwrap();
        let age_max = Nanos::from_millis(2000);
        let mut drive = fs2_disk::Device::new(Disk::new(profile.clone()), 8);
        let mut ghost = Ghost::new(&profile, Scheduler::Sptf, age_max);
        let (mut now, mut random) = (Nanos(0), 1u64);
        let (mut took, mut modelled) = (Nanos(0), Nanos(0));
        for _ in 0..20 {
            let mut waiting = Queue::new(Scheduler::Sptf, Some(age_max));
            let began = (now, ghost.plain.clock());
            for id in 0..100 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let extent = Extent::new((random >> 33) % 1_000_000 * 4096, 4096);
                ghost.arrived(Nanos(0), Op::Read, extent, &[]);
                waiting.push(id, Op::Read, &[extent.sector()], 8, now);
            }
            let mut open = 0;
            let mut next = waiting.pop(now, drive.disk());
            while let Some(c) = next.filter(|_| drive.room(now) > 0) {
                drive.submit(now, c.id, c.op, c.sector, c.sectors);
                open += 1;
                next = waiting.pop(now, drive.disk());
            }
            while let Some((_, service)) = drive.start(now) {
                if let Some(c) = next.take_if(|_| drive.room(now) > 0) {
                    drive.submit(now, c.id, c.op, c.sector, c.sectors);
                    open += 1;
                }
                now = service.end();
                ghost.redirected();
                ghost.answered(true, Some(now.since(began.0)), open);
                open -= 1;
                next = next.or_else(|| waiting.pop(now, drive.disk()));
            }
            took += now.since(began.0);
            modelled += ghost.plain.clock().since(began.1);
        }
        let slower = took.0 as f64 / modelled.0 as f64;
        assert!((0.9..1.1).contains(&slower), "{slower}");
        assert_eq!(ghost.told(), ReplicaGate::default());
    }
}
