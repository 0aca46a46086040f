//! The engine's belief about a real drive, fed by completions only.
//!
//! * H1: what it says follows from the profile and the completions it was told, nothing else.
//! * H2: an expected rotational wait is half a turn until completions have shown where the
//!   platter is: a wrong geometry or speed never looks like knowledge.
//! * H3: a completion that contradicts the belief corrects it; belief about the drive's cache
//!   gives way to the time an access took.
//! * H4: where most writes far from the arm, or just behind it, end sooner than the platters could, they are in a write cache, whatever the
//!   profile says, and show neither arm nor platter. Once one may have been written the arm is somewhere else, and half a turn is expected until it is seen again.

use fs2_block::{Nanos, Op, Sector};

use crate::disk::{Disk, Effect, Medium};
use crate::profile::DriveProfile;
use crate::service::Service;
use crate::spindle::Spindle;

/// How much of the profile may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// All of it: the platter's angle is learned from completions.
    Full,
    /// The seek curve and the transfer rates only: rotation is always expected at half a turn.
    SeekOnly,
}

/// Where the head is believed to be, what the drive's cache is believed to hold, and what the
/// next access would cost.
#[derive(Clone, Debug)]
pub struct Head {
    belief: Disk,
    knowledge: Knowledge,
    spindle: Spindle,
    /// Running mean positioning time of misses, nanoseconds.
    mean_positioning: f64,
    /// See [`Head::slowest`].
    slowest: Nanos,
    /// Share of a seek by which the profile is expected to be wrong.
    seek_doubt: f64,
    hits: u64,
    misses: u64,
    /// Share of late writes far from the arm, or just behind it, that ended before the platters could have had them.
    cached_writes: f64,
    /// One past the last sector that is in the drive's write cache as far as is known, where the profile has none.
    unwritten: Option<u64>,
    /// The drive has written what its cache held since the arm was seen last.
    adrift: bool,
}

/// So many sectors from where the arm was seen, 32 MiB, no access is without a seek on any drive of today.
const FAR: u64 = 1 << 16;
/// What begins no more than so many sectors behind the arm, 64 KiB and less than a fifth of a track, has nearly a turn to wait where it
/// follows at once, and any part of one where it comes later (guess).
const BEHIND: u64 = 128;
/// Weight of a write in the share of those the drive's cache takes (guess).
const CACHED_RATE: f64 = 1.0 / 16.0;
/// A write cache is written after so long a rest (guess; drives differ).
const WRITTEN_AFTER: Nanos = Nanos::from_millis(50);

/// Weight of a miss in the running mean. Guess: some hundred misses make a mean.
const MEAN_RATE: f64 = 1.0 / 128.0;

/// Share of a seek by which a profile is expected to be wrong, before anything was seen (guess).
const SEEK_DOUBT: f64 = 0.05;
/// What that share may become.
const SEEK_DOUBT_RANGE: (f64, f64) = (0.002, 0.2);
/// How fast it follows what is seen (guess: some hundred misses).
const SEEK_DOUBT_RATE: f64 = 0.3;

/// A wait for the platter, in turns, with the chances that it comes out a turn longer or shorter.
#[derive(Clone, Copy)]
struct Wait {
    turns: f64,
    /// The arm arrives too late.
    missed: f64,
    /// The arm arrives before the sector that seemed just gone.
    early: f64,
}

impl Head {
    /// Belief before the first completion: head at sector 0, angle unknown, mean positioning time
    /// half the mean random seek and half a turn (guess: files are not spread at random).
    pub fn new(profile: DriveProfile, knowledge: Knowledge) -> Head {
        let mean_positioning = (profile.mean_seek() + profile.turn()).0 as f64 / 2.0;
        let full_stroke = profile.seek_time(profile.capacity_sectors(), Op::Write);
        let slowest = full_stroke + profile.turn() + profile.turn();
        let belief = Disk::new(profile);
        let turns_per_second = belief.fixed.geometry.as_ref().map_or(0.0, |g| g.turns_per_ns() * 1e9);
        Head {
            belief,
            knowledge,
            spindle: Spindle::new(turns_per_second),
            mean_positioning,
            slowest,
            seek_doubt: SEEK_DOUBT,
            hits: 0,
            misses: 0,
            cached_writes: 0.0,
            unwritten: None,
            adrift: false,
        }
    }

    /// The profile believed in.
    pub fn profile(&self) -> &DriveProfile {
        self.belief.profile()
    }

    /// Where the head is believed to be at `now`.
    pub fn position(&self, now: Nanos) -> Sector {
        self.belief.position(now)
    }

    /// Expected positioning time of a read at `sector` that reaches the drive at `now`: seek and
    /// rotation, 0 where the drive's cache is expected to have it.
    pub fn predict_positioning(&self, now: Nanos, sector: Sector) -> Nanos {
        self.predict(now, Op::Read, sector, 1).positioning()
    }

    /// Expected service of an access that reaches the drive at `now`.
    pub fn predict(&self, now: Nanos, op: Op, sector: Sector, sectors: u32) -> Service {
        if self.belief.has_background() {
            let mut then = self.clone();
            then.belief.wait_for(now, op, sector, sectors);
            then.belief.forget_background();
            return then.predict(now, op, sector, sectors);
        }
        let start = now.max(self.belief.free_at());
        let (mut service, effect) = self.belief.plan(now, op, sector, sectors, self.spindle.phase(start));
        self.expect(&mut service, effect);
        service
    }

    /// The same, and what is believed of arm and cache goes on from there as if the access had come out so.
    pub fn suppose(&mut self, now: Nanos, op: Op, sector: Sector, sectors: u32) -> Service {
        self.belief.wait_for(now, op, sector, sectors);
        let start = now.max(self.belief.free_at());
        let (mut service, effect) = self.belief.plan(now, op, sector, sectors, self.spindle.phase(start));
        self.expect(&mut service, effect);
        if matches!(effect, Effect::Written { .. }) && self.caches_writes() {
            let (first, end) = crate::disk::span(sector, sectors);
            // Keeps H4.
            self.adrift = self.is_adrift(start);
            self.unwritten = Some(end);
            self.write_held(first, end);
        } else {
            self.adrift &= !matches!(effect, Effect::Read { .. } | Effect::Written { .. });
            self.belief.apply(effect);
        }
        self.belief.free_at = service.end();
        if sectors > 0 && matches!(op, Op::Read | Op::Write | Op::WriteZeroes) {
            self.belief.after_read = op == Op::Read;
        }
        service
    }

    /// Makes of what is planned what is expected.
    fn expect(&self, service: &mut Service, effect: Effect) {
        match effect {
            Effect::Written { .. } if self.caches_writes() => {
                (service.seek, service.rotation) = (Nanos(0), Nanos(0));
            }
            Effect::Read { .. } | Effect::Written { .. } => {
                service.rotation = self.expected_rotation(service);
            }
            _ => {}
        }
    }

    /// Whether the drive mostly answers writes before they are on its platters, by their times or by its profile.
    pub fn caches_writes(&self) -> bool {
        self.cached_writes > 0.5 || self.profile().caches_writes()
    }

    /// Whether the arm may have been elsewhere since it was seen.
    fn is_adrift(&self, now: Nanos) -> bool {
        self.adrift || self.unwritten.is_some() && now.since(self.belief.free_at()) > WRITTEN_AFTER
    }

    /// The mean of the wait over what is not known of the angle.
    fn expected_rotation(&self, service: &Service) -> Nanos {
        let turn = self.profile().turn().0;
        match self.wait(service) {
            Some(w) => Nanos(((w.turns + w.missed - w.early) * turn as f64) as u64),
            None => Nanos(turn / 2),
        }
    }

    /// The wait in a planned access to the platters; `None` where the angle is not known.
    fn wait(&self, service: &Service) -> Option<Wait> {
        if self.knowledge == Knowledge::SeekOnly || self.is_adrift(service.start) {
            return None;
        }
        let turn = self.profile().turn().0 as f64;
        let seek_doubt = service.seek.0 as f64 / turn * self.seek_doubt;
        let deviation = self.spindle.deviation(service.start, seek_doubt)?;
        // A uniform error of that standard deviation: ± √3 of it.
        let half = 1.732 * deviation + 1e-9;
        let turns = service.rotation.0 as f64 / turn;
        Some(Wait {
            turns,
            missed: ((half - turns) / (2.0 * half)).clamp(0.0, 1.0),
            early: ((half - (1.0 - turns)) / (2.0 * half)).clamp(0.0, 1.0),
        })
    }

    /// A miss came out: were turns lost or won as often as the doubt about seeks says?
    fn learn_seek_doubt(&mut self, planned: &Service, taken: Nanos) {
        let Some(wait) = self.wait(planned) else { return };
        let half_turn = self.profile().turn().0 / 2;
        let surprised = taken.0.abs_diff(planned.positioning().0) > half_turn;
        let off = f64::from(u8::from(surprised)) - (wait.missed + wait.early);
        let (least, most) = SEEK_DOUBT_RANGE;
        self.seek_doubt = (self.seek_doubt * (1.0 + SEEK_DOUBT_RATE * off)).clamp(least, most);
    }

    /// How far the profile is believed.
    pub fn knowledge(&self) -> Knowledge {
        self.knowledge
    }

    /// Whether the platter's angle is known well enough to be used at `now`.
    pub fn knows_angle(&self, now: Nanos) -> bool {
        self.knowledge == Knowledge::Full
            && self.spindle.deviation(now, 0.0).is_some()
            && self.profile().rotational()
    }

    /// An access was dispatched and has completed; call in order of completion. Returns what
    /// [`Head::predict`] would have said of it.
    pub fn completed(
        &mut self,
        op: Op,
        sector: Sector,
        sectors: u32,
        dispatched_at: Nanos,
        completed_at: Nanos,
    ) -> Service {
        let start = dispatched_at.max(self.belief.free_at());
        let completed_at = completed_at.max(start);
        self.belief.wait_for(start, op, sector, sectors);
        let phase = self.spindle.phase(start);
        let (planned, effect) = self.belief.plan(start, op, sector, sectors, phase);
        let mut predicted = planned;
        self.expect(&mut predicted, effect);
        let adrift = self.is_adrift(start);
        self.belief.free_at = completed_at;
        let moves = matches!(op, Op::Read | Op::Write | Op::WriteZeroes) && sectors > 0;
        if self.belief.fixed.geometry.is_none() || !moves {
            return predicted;
        }
        self.belief.after_read = op == Op::Read;
        if let Effect::Buffered { .. } = effect {
            // Its completion says nothing of the platters.
            self.belief.apply(effect);
            return predicted;
        }
        let (first, end) = crate::disk::span(sector, sectors);
        let media = match effect {
            Effect::Read { .. } | Effect::Written { .. } => planned,
            _ => self.belief.plan_read(start, first, end),
        };
        // What the access took beyond overhead and transfer: seek and rotation, if it was a miss.
        let taken = completed_at.since(start + media.overhead + media.transfer);
        let soon = planned.end() + Nanos(self.profile().turn().0 / 32);
        let as_planned = matches!(effect, Effect::Answered { .. }) && completed_at <= soon;
        if op == Op::Read && (as_planned || taken < self.least_miss(&media)) {
            self.hits += 1;
            match effect {
                Effect::Answered { ahead, segment, .. } => {
                    let coming = ahead.is_some_and(|a| a.segment == segment);
                    self.belief.apply(effect);
                    // Else it says nothing of what is read ahead elsewhere meanwhile.
                    if coming && (planned.transfer > media.transfer || self.belief.position(start).0 < end) {
                        self.belief.cache.anchor(end, completed_at);
                    }
                }
                // A miss was expected. A read that goes on where the head is was a hit only in name.
                // Then what it read has passed by now, whatever was planned.
                Effect::Read { ahead, reuse, start, end, since, medium } if media.seek == Nanos(0) => {
                    let since = since.min(completed_at);
                    self.belief.apply(Effect::Read { ahead, reuse, start, end, since, medium });
                }
                _ if media.seek == Nanos(0) => self.belief.apply(effect),
                _ => self.belief.cache.learn(first, end),
            }
            return predicted;
        }
        let mut unseen = false;
        if let Effect::Written { .. } = effect {
            // One near the arm may be as quick, above all where the profile has tracks that the drive has not.
            let quick = taken.0 < self.profile().turn().0 / 32;
            let head = self.belief.head;
            if first.abs_diff(head) >= FAR || (1..=BEHIND).contains(&head.saturating_sub(first)) {
                self.cached_writes += (f64::from(u8::from(quick)) - self.cached_writes) * CACHED_RATE;
            }
            if self.caches_writes() {
                // Keeps H4. One that waited for room in the cache shows as little.
                self.adrift = adrift || !quick;
                self.unwritten = Some(end);
                self.write_held(first, end);
                return predicted;
            }
            unseen = quick && media.seek > Nanos(0);
        }
        if unseen {
            // Perhaps in a cache: it shows neither arm nor platter.
            self.belief.apply(effect);
            return predicted;
        }
        self.misses += 1;
        if matches!(effect, Effect::Read { .. } | Effect::Written { .. }) && !adrift {
            self.learn_seek_doubt(&planned, taken);
        }
        // The arm is seen; what the cache holds may be written later.
        self.adrift = false;
        let effect = match op {
            Op::Read => {
                let reuse = if let Effect::Read { reuse, .. } = effect { reuse } else { None };
                let medium = Medium {
                    begin: start,
                    seek: media.seek,
                    rotation: media.rotation,
                    transfer: media.transfer,
                };
                let ahead = self.belief.ahead(start);
                // Keeps H3. What is read ahead ends here anyhow.
                if let Effect::Answered { segment, .. } = effect
                    && ahead.is_none_or(|a| a.segment != segment)
                {
                    self.belief.cache.lacks(segment, first);
                }
                Effect::Read { ahead, reuse, start: first, end, since: completed_at, medium }
            }
            _ => effect,
        };
        self.belief.apply(effect);
        let positioned = taken.min(self.slowest);
        self.mean_positioning += (positioned.0 as f64 - self.mean_positioning) * MEAN_RATE;
        if let Some(g) = &self.belief.fixed.geometry {
            // The last sector has just passed the head.
            let phase = g.sector_end_angle(end - 1).wrapping_sub(g.angle_at(completed_at));
            self.spindle.observe(completed_at, phase);
        }
        predicted
    }

    /// A write is in the drive's cache, and takes the place of what it had read there, as in a drive whose profile says that it caches writes.
    fn write_held(&mut self, first: u64, end: u64) {
        self.belief.cache.written(first, end);
        self.belief.cache.hold(first, end);
    }

    /// Takes over what another belief about the same drive has learnt of it meanwhile: its speed and angle, how far its profile may be
    /// believed, whether it caches writes. Where the arm is and what the drive's cache holds stay as they are believed here.
    pub fn learn_from(&mut self, other: &Head) {
        self.spindle = other.spindle.clone();
        self.mean_positioning = other.mean_positioning;
        self.seek_doubt = other.seek_doubt;
        self.cached_writes = other.cached_writes;
    }

    /// An access was dispatched and has failed: how long the drive tried says nothing of seeks and turns, and where the arm is since
    /// then, nobody knows.
    pub fn failed(&mut self, op: Op, sector: Sector, sectors: u32, dispatched_at: Nanos, failed_at: Nanos) {
        let start = dispatched_at.max(self.belief.free_at());
        let failed_at = failed_at.max(start);
        self.belief.wait_for(start, op, sector, sectors);
        // While it tries, it reads nothing ahead elsewhere.
        let ahead = self.belief.ahead(start);
        self.belief.cache.stop(ahead);
        self.belief.free_at = failed_at;
        self.belief.head = crate::disk::span(sector, sectors).0;
        self.adrift = true;
    }

    /// A flush was dispatched and has completed: the arm is where the drive wrote last.
    pub fn flushed(&mut self, dispatched_at: Nanos, completed_at: Nanos) {
        let start = dispatched_at.max(self.belief.free_at());
        let completed_at = completed_at.max(start);
        let waited = self.belief.wait_for(start, Op::Flush, Sector(0), 0);
        self.belief.free_at = completed_at;
        let least = Nanos(self.profile().turn().0 / 32);
        if let Some(end) = self.unwritten.take() {
            let ahead = self.belief.ahead(completed_at);
            self.belief.cache.stop(ahead);
            // In which order it wrote is not known: where the last write was is a guess.
            self.belief.head = end;
            self.adrift = true;
        } else if waited > Nanos(0) || completed_at.since(start) > least {
            self.adrift = true;
        }
    }

    /// A read that took less than this beyond overhead and transfer did not move the arm: half
    /// the seek (the paper takes what lies below the seek curve for cached), but no less than a
    /// 32nd of a turn (guess: interrupts come late).
    fn least_miss(&self, media: &Service) -> Nanos {
        Nanos((media.seek.0 / 2).max(self.profile().turn().0 / 32))
    }

    /// What positioning takes at the most: a full stroke, a turn, and one that was missed. What takes longer waits for something else: a
    /// drive that slept, tried a sector again, or has others to serve.
    pub fn slowest(&self) -> Nanos {
        self.slowest
    }

    /// Running mean positioning time of misses: what a read that continues in the drive's cache
    /// saves.
    pub fn mean_positioning(&self) -> Nanos {
        Nanos(self.mean_positioning as u64)
    }

    /// Reads measured to have come from the drive's cache, and all other accesses.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }
}
