//! The end of a world: faults cease, and everything must come right within bounded time.

use fs2_block::BlockNo;
use fs2_engine::{PolicyKind, Standing};

use super::client::{Mode, Wish};
use super::disk::SECTOR;
use super::steps::Step;
use super::{Broken, World};
use crate::glue::Scripted;

/// Virtual time in which a world without faults comes to rest, in ns: a request may wait behind some whose
/// I/O takes 80 s.
const BOUND: u64 = 4_000_000_000_000;

/// Files read to see copying go on, and half the blocks read three ways.
const SAMPLE: usize = 24;

/// Events in that time.
const EVENTS: u64 = 400_000;

impl World {
    /// Faults cease; the world heals.
    pub(super) fn heal(&mut self) -> Result<(), Broken> {
        self.say(|_| "faults cease".into());
        self.faulty = false;
        if let Some(v) = &mut self.volume {
            v.host_is_short(false);
        }
        self.rest("after the faults")?;
        // A check makes replicas usable again whatever was.
        self.follow(&[Step::Unmount, Step::Detach, Step::Check, Step::Attach, Step::Mount])?;
        if !self.is_active() {
            // A session that could not end in order has ended otherwise.
            self.follow(&[Step::Unmount, Step::Detach, Step::Check, Step::Attach, Step::Mount])?;
        }
        if !self.is_active() {
            let standing = self.volume.as_ref().map(|v| v.standing().clone());
            return Err(format!("heal: after a check the volume is not active: {standing:?}"));
        }
        self.copying_resumes()?;
        self.follow(&[Step::Unmount, Step::Detach])?;
        if !self.active_expected {
            return Err("heal: a clean detach left no mark".into());
        }
        self.follow(&[Step::Attach])?;
        let v = self.volume.as_ref().ok_or("heal: there is no daemon")?;
        let (standing, here) = (v.standing().clone(), v.table().len());
        if standing != Standing::Active || (here == 0) != (self.left_behind == 0) {
            return Err(format!("heal: {standing:?} with {here} replicas, not {}", self.left_behind));
        }
        self.three_ways()?;
        self.follow(&[Step::Detach])?;
        self.note("worlds healed", 1);
        Ok(())
    }

    /// Lets things happen until nothing is asked for and no step is left.
    fn rest(&mut self, when: &str) -> Result<(), Broken> {
        let (time, events) = (self.now.saturating_add(BOUND), self.events + EVENTS);
        while !(self.asks.is_empty()
            && self.steps.is_empty()
            && self.flying.is_empty()
            && self.sends.is_empty())
        {
            if self.now > time || self.events > events {
                let asks: Vec<&Wish> = self.asks.values().map(|a| &a.wish).collect();
                return Err(format!(
                    "heal: {when} it never comes to rest: asked {asks:?}, to do {:?}, {} I/Os, {} sends",
                    self.steps,
                    self.flying.len(),
                    self.sends.len()
                ));
            }
            self.one()?;
        }
        Ok(())
    }

    fn follow(&mut self, steps: &[Step]) -> Result<(), Broken> {
        self.steps.extend(steps);
        self.rest(&format!("with {steps:?}"))
    }

    /// Time passes.
    fn pass(&mut self, ns: u64) -> Result<(), Broken> {
        let until = self.now + ns;
        while self.now < until {
            self.one()?;
        }
        Ok(())
    }

    /// Files are read, and copies made of them.
    fn copying_resumes(&mut self) -> Result<(), Broken> {
        let sectors = self.plan.geometry.block / SECTOR;
        let before = self.volume.as_ref().map_or(0, |v| v.stats().copies_written);
        let entries = self.volume.as_ref().map_or(0, |v| v.table().len());
        for _ in 0..2 {
            let mut runs = self.runs();
            let many = runs.len().saturating_sub(SAMPLE);
            runs.drain(..self.rng.below(many as u64 + 1) as usize);
            runs.truncate(SAMPLE);
            for (first, n) in runs {
                self.ask(Wish::Read(first, 0, n as usize * sectors));
                self.rest("reading")?;
            }
            self.pass(1_000_000_000)?;
        }
        let Some(v) = &self.volume else { return Err("heal: the daemon is gone".into()) };
        let roomy = v.free_share() > v.config().watermarks.high() && self.runs().len() > 4;
        // fs2-2005 and fs2 copy what they think is worth it; torture copies what it can.
        if self.plan.engine.policy == PolicyKind::Torture
            && roomy
            && entries == 0
            && v.stats().copies_written == before
        {
            return Err("heal: nothing is copied any more".into());
        }
        let copied = v.stats().copies_written - before;
        let table_reads = v.stats().reads_from_replica;
        self.note("copies published while healing", copied);
        self.note("reads from replicas while healing", table_reads);
        Ok(())
    }

    fn runs(&self) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for file in self.client.files.iter().flatten() {
            for (i, &b) in file.iter().enumerate() {
                match runs.last_mut() {
                    Some((first, n)) if i > 0 && *first + *n == b => *n += 1,
                    _ => runs.push((b, 1)),
                }
            }
        }
        runs.retain(|(first, n)| (*first..*first + *n).all(|b| self.client.blocks[b as usize].written));
        runs
    }

    /// Every block of a file from the device, as an original, and from a replica: one content, and right.
    fn three_ways(&mut self) -> Result<(), Broken> {
        if self.client.mode != Mode::Down {
            return Err("heal: the volume is mounted still".into());
        }
        let sectors = self.plan.geometry.block / SECTOR;
        let all: Vec<u32> = self.client.data().collect();
        let v = self.volume.as_ref().ok_or("heal: the daemon is gone")?;
        let (mut with, mut without): (Vec<u32>, Vec<u32>) =
            all.into_iter().partition(|b| v.table().has_replica(BlockNo(*b)));
        for blocks in [&mut with, &mut without] {
            let turn = self.rng.below(blocks.len().max(1) as u64) as usize;
            blocks.rotate_left(turn);
            blocks.truncate(SAMPLE);
        }
        // Entries that are unverified are verified by the reads of their originals.
        for (prefer, strict) in [(true, false), (false, false), (true, true)] {
            let policy = Scripted { prefer, ..Scripted::default() };
            let before = match &mut self.volume {
                Some(v) => {
                    v.set_policy(Box::new(policy));
                    let closed = v.replica_gate().map_or(0, |gate| gate.closed_for);
                    (v.stats().reads_from_replica, v.stats().hash_mismatches, closed)
                }
                None => return Err("heal: the daemon is gone".into()),
            };
            for &b in with.iter().chain(&without) {
                self.ask(Wish::Read(b, 0, sectors));
                self.rest("reading three ways")?;
                if self.last_read[..] != self.disks[0].block(b)[..] {
                    let how = if prefer { "a replica" } else { "the original" };
                    return Err(format!("heal: block {b} from {how} is not what the device holds"));
                }
            }
            let v = self.volume.as_ref().ok_or("heal: the daemon is gone")?;
            let served = v.stats().reads_from_replica - before.0;
            // One that power took is found out when it is read first.
            let lost = v.stats().hash_mismatches - before.1;
            let here = with.iter().filter(|b| v.table().has_replica(BlockNo(**b))).count() as u64;
            // With a control sample some reads are sent to originals, and all of them while copies lose: now, or for as many reads as at
            // the beginning were still to come.
            let closed = v.replica_gate().is_some_and(|gate| gate.closed_for > 0);
            if strict && served + lost + before.2 < here && self.plan.engine.control == 0 && !closed {
                return Err(format!("heal: {served} of {here} replicas are served"));
            }
            self.note("reads three ways with the gate closed", if strict { before.2.min(here) } else { 0 });
            self.note("blocks read three ways", if strict { served } else { 0 });
        }
        Ok(())
    }
}
