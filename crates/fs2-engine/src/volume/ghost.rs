//! Plain ext2 beside the volume: the same requests on a modelled drive whose reads are never redirected, and a gate that closes
//! where copies make reads slower than that.
//!
//! The model has a clock of its own. A request comes to it when it comes to the volume, and for each that the volume answers the
//! model serves one, whichever its schedulers take, the volume's and the drive's own: as many are outstanding in both, and both rest for
//! as long. What reads take from arrival to answer, by the requests outstanding, is compared.
//!
//! - G1: the model is scaled by what both took where no copy was read for a while (`gate::CLEAN`), for long or lately, whichever is more: a
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
//! - G6: no read counts for more than the longest access (`gate::SHARE_MAX`). What stalls for longer stalls in both, but not at the same
//!   request: a drive that caches writes serves a burst of them before any read.
//! - G7: a copy that the arm would have to leave the originals for is not read where that saves about as much at once as what turned out
//!   to lose, anywhere or at that place (`ghost/excursions.rs`).
//! - G8: nothing is safer or less safe for it: an original is always right.

use fs2_block::{Extent, Nanos, Op, Sector};
use fs2_disk::{DriveProfile, Scheduler};
use smallvec::SmallVec;

use self::excursions::Excursions;
use self::gate::Gate;
use self::model::Model;
use self::trial::Trial;
use super::tail::Percentile;
use crate::stats::ReplicaGate;

mod excursions;
mod gate;
mod model;
mod trial;

/// A write cache that nobody told of, and the rest after which it is written. Guesses: a drive of 2005.
const WRITE_CACHE_KIB: u32 = 8 << 10;
const WRITE_CACHE_IDLE_MS: f64 = 50.0;

/// Reads by which it is learnt what one takes without copies. Measured on made-up mixtures: 50 to 256 are alike.
const ACCESS: f64 = 256.0;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Ghost {
    plain: Model,
    /// While the gate is closed.
    trial: Option<Box<Trial>>,
    gate: Gate,
    excursions: Excursions,
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
            excursions: Excursions::new(),
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
        self.slowest().filter(|_| self.gate.gains())
    }

    /// What a hundredth of the responses would have exceeded without copies.
    pub(super) fn slowest(&self) -> Option<Nanos> {
        Some(Nanos((self.responses.value()?.0 as f64 * self.gate.scale()) as u64))
    }

    /// What a read lately took at the drive without copies, its waits left out, in ms; `None` before the first.
    pub(super) fn access_ms(&self) -> Option<f64> {
        (self.access.1 > 0.0).then(|| self.access.0 * self.gate.scale())
    }

    /// Whether copies may be read.
    pub(super) fn is_open(&self) -> bool {
        self.gate.is_open()
    }

    /// A copy of what lies at `original` was chosen that saves so much at once, as a share of a mean positioning, which takes so many ms. Whether it
    /// is read; it has to be where the original may not.
    pub(super) fn lets_go(
        &mut self,
        original: Sector,
        saves: f64,
        positioning: f64,
        only_copies: bool,
    ) -> bool {
        // Keeps G7.
        self.excursions.goes(original, saves, positioning, only_copies)
    }

    /// A read or a write arrives, after nothing was outstanding for so long; copies of what it reads lie there.
    pub(super) fn arrived(&mut self, rested: Nanos, op: Op, extent: Extent, copies: &[Sector]) {
        let sectors = extent.sectors().min(u64::from(u32::MAX)) as u32;
        self.plain.arrived(rested, op, &[extent.sector()], sectors);
        if let Some(trial) = &mut self.trial {
            let mut places: SmallVec<[Sector; 4]> = SmallVec::from_slice(&[extent.sector()]);
            places.extend_from_slice(copies);
            trial.arrived(rested, op, &places, sectors);
        }
    }

    /// A copy is read.
    pub(super) fn redirected(&mut self) {
        self.gate.redirected();
    }

    /// One that had arrived was answered, from a copy or not, so long after that or after the engine's own work that it waited for, or failed;
    /// with it the drive had so many. Says by how many ms all that are outstanding are served sooner than in the model, because copies were read
    /// lately.
    pub(super) fn answered(
        &mut self,
        reads: bool,
        from_copy: bool,
        took: Option<Nanos>,
        given: usize,
    ) -> f64 {
        let outstanding = self.plain.outstanding();
        let Some(next) = self.plain.serve(given) else { return 0.0 };
        if next.op == Op::Read {
            let (mean, reads) = &mut self.access;
            *reads = (*reads + 1.0).min(ACCESS);
            *mean += (next.service.as_millis_f64() - *mean) / *reads;
        }
        self.responses.add(next.response);
        let of = |took: Nanos| took.as_millis_f64() / outstanding;
        let gained = took.map_or(0.0, |took| self.gate.gain(of(took), of(next.response)));
        self.excursions.answered(from_copy, took.filter(|_| reads).map(Nanos::as_millis_f64), gained);
        let share = |reads: bool, took: Nanos| if reads { of(took) } else { 0.0 };
        let model = share(next.op == Op::Read, next.response);
        let saved = took.map_or(0.0, |took| self.gate.add(share(reads, took), model));
        self.gate.answered(reads, outstanding, self.access.0 * self.gate.scale());
        if self.is_open() {
            self.trial = None;
        } else {
            // Keeps G4.
            let trial = self.trial.get_or_insert_with(|| Box::new(Trial::new(&self.plain)));
            trial.answered(reads, given, model);
            let (reads, without) = trial.so_far();
            if self.gate.has_tried(reads, without) && trial.gains() {
                self.gate.opens();
                self.trial = None;
            }
        }
        saved * outstanding
    }

    /// What there is to tell.
    pub(super) fn told(&self) -> ReplicaGate {
        self.gate.told()
    }
}

#[cfg(test)]
mod tests {
    use fs2_disk::{Disk, Queue};

    use super::gate::{CLEAN, TRIED};
    use super::*;

    #[test]
    fn what_failed_is_no_read_that_took_nothing() {
        let profile = DriveProfile::builtin("wd800-repaired").unwrap();
        let mut ghost = Ghost::new(&profile, Scheduler::Fcfs, Nanos::from_millis(2000));
        let mut read = |at: u64, took: Option<u64>| {
            ghost.arrived(Nanos(0), Op::Read, Extent::new(at * 997 % 16_000_000 * 4096, 4096), &[]);
            ghost.redirected();
            ghost.answered(true, false, took.map(Nanos::from_millis), 1)
        };
        assert_ne!(read(7919, Some(5)), 0.0);
        assert_eq!(read(104_729, None), 0.0);
    }

    #[test]
    fn nobody_is_passed_over_for_long_while_copies_gain() {
        let profile = DriveProfile::builtin("wd800-repaired").unwrap();
        let mut ghost = Ghost::new(&profile, Scheduler::Fcfs, Nanos::from_millis(2000));
        let mut random = 1u64;
        let mut answer = |ghost: &mut Ghost, took: Nanos| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ghost.arrived(Nanos(0), Op::Read, Extent::new((random >> 33) % 16_000_000 * 4096, 4096), &[]);
            ghost.answered(true, false, Some(took), 1);
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
            ghost.answered(op == Op::Read, false, Some(Nanos::from_millis(took)), 1);
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
            ghost.answered(true, false, Some(took), 1);
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
        assert!(!closed_beside(true, TRIED - 2).is_open(), "too few reads to tell");
        let ghost = closed_beside(true, TRIED);
        assert!(ghost.trial.is_none());
        assert_eq!(ghost.told(), ReplicaGate { closed_for: 0, closings: 1 });
    }

    #[test]
    fn it_stays_closed_where_copies_would_gain_little_by_the_model() {
        // The nearer one of two places anywhere is some per cent nearer.
        let ghost = closed_beside(false, 2000);
        let trial = ghost.trial.as_ref().unwrap();
        assert!(!ghost.is_open() && trial.so_far().0 >= 2000 && !trial.gains(), "{trial:?}");
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
            ghost.answered(true, false, Some(now.since(arrived + behind_own)), 1);
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
                ghost.answered(true, false, Some(now.since(began.0)), open);
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
