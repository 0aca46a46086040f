//! What the client, and fate, do next: requests, the ends of sessions, accidents.

use super::client::{Mode, Stage, Wish};
use super::fault::Fault;
use super::{Broken, Event, World};

/// A step of a plan; each waits until it can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The kernel mounts.
    Mount,
    /// The kernel unmounts.
    Unmount,
    /// The daemon ends in order, whatever the kernel is at.
    Detach,
    /// The daemon is killed, and the kernel with it.
    Die,
    /// Power is lost.
    PowerLoss,
    /// `e2fsck -f` and `chkfs2`.
    Check,
    /// Nobody checks: the kernel takes what is there.
    Look,
    /// The volume is used without a daemon.
    Elsewhere,
    /// A daemon attaches.
    Attach,
}

/// How far a step is.
enum Far {
    Done,
    Waits,
}

/// Mounts and unmounts that fail are tried again so often.
const TRIES: u32 = 5;

impl World {
    /// The client's or fate's turn.
    pub(super) fn tick(&mut self) -> Result<(), Broken> {
        let think = self.plan.think.0;
        let mut wait = 1_000 + self.rng.below(2 * think);
        if self.rng.below(40) == 0 {
            // Nobody wants anything for a while.
            wait = 1_000_000 * (1 + self.rng.below(300));
        }
        self.at(wait, Event::Tick);
        if self.faulty && self.rng.below(4) == 0 {
            self.accident()?;
        }
        if let Some(step) = self.steps.front().copied() {
            if let Far::Done = self.take(step)?
                && self.steps.front() == Some(&step)
            {
                self.steps.pop_front();
            }
        } else if self.faulty {
            self.ordinary();
        }
        Ok(())
    }

    fn ordinary(&mut self) {
        if self.client.mode != Mode::Up {
            self.steps.push_back(Step::Mount);
            return;
        }
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            self.act();
            return;
        }
        let active = self.is_active();
        self.left = if active { self.plan.session } else { 40 };
        let steps: &[Step] = match self.rng.below(8) {
            0 => &[Step::Unmount, Step::Mount],
            1 if self.plan.odds.of(Fault::Kill) > 0 => &[Step::Detach, Step::Attach],
            2 if self.plan.odds.of(Fault::PowerLoss) > 0 => {
                &[Step::Unmount, Step::Detach, Step::PowerLoss, Step::Attach, Step::Mount]
            }
            3 if self.plan.elsewhere => {
                &[Step::Unmount, Step::Detach, Step::Elsewhere, Step::Attach, Step::Mount]
            }
            4 if self.plan.elsewhere => {
                &[Step::Unmount, Step::Detach, Step::Elsewhere, Step::Check, Step::Attach, Step::Mount]
            }
            3..6 if active => &[Step::Unmount, Step::Detach, Step::Attach, Step::Mount],
            _ => &[Step::Unmount, Step::Detach, Step::Check, Step::Attach, Step::Mount],
        };
        self.steps.extend(steps);
        self.say(|w| format!("next: {:?}", w.steps));
    }

    fn accident(&mut self) -> Result<(), Broken> {
        if self.strikes(Fault::CorruptReplica) {
            self.corrupt_replica();
        }
        if self.strikes(Fault::CorruptTable) {
            self.corrupt_table();
        }
        if self.plan.sparse
            && self.rng.below(50) == 0
            && let Some(v) = &mut self.volume
        {
            let short = self.rng.below(2) == 0;
            v.host_is_short(short);
        }
        if self.volume.is_none() || self.session.ending {
            return Ok(());
        }
        if self.strikes(Fault::PowerLoss) {
            self.power_loss()?;
            self.active_expected = false;
            self.recover();
        } else if self.strikes(Fault::Kill) {
            // A kernel that is mounted waits for the next daemon, or dies too.
            let alone = self.client.mode == Mode::Up && self.steps.is_empty() && self.rng.below(3) == 0;
            self.kill(!alone);
            if alone {
                self.steps = [Step::Attach].into();
                self.left = self.left.min(40);
            } else {
                self.recover();
            }
        } else if self.client.mode == Mode::Up && self.steps.is_empty() && self.strikes(Fault::KernelDies) {
            self.kernel_dies();
            // Until its mount is answered the daemon knows of no new kernel.
            self.steps = [Step::Mount, Step::Look].into();
            self.left = self.left.min(40);
        }
        Ok(())
    }

    fn take(&mut self, step: Step) -> Result<Far, Broken> {
        // A dead daemon's I/O holds the lock.
        let quiet = self.flying.is_empty();
        match step {
            Step::Mount => return self.mount(),
            Step::Unmount => return self.unmount(),
            Step::Detach => {
                if self.volume.is_none() {
                    return Ok(Far::Done);
                }
                if !self.session.ending {
                    self.begin_detach();
                }
                return Ok(Far::Waits);
            }
            Step::Die => self.kill(true),
            Step::PowerLoss => {
                if !quiet {
                    return Ok(Far::Waits);
                }
                let expected = self.active_expected;
                self.power_loss()?;
                self.active_expected = expected;
            }
            Step::Look => {
                // A kernel takes longer to come back than a request to end.
                if !quiet || !self.sends.is_empty() {
                    return Ok(Far::Waits);
                }
                self.look_again()?;
            }
            Step::Elsewhere if self.volume.is_some() || self.client.mode != Mode::Down || self.stuck => {}
            Step::Elsewhere if !quiet => return Ok(Far::Waits),
            Step::Elsewhere => self.elsewhere(),
            Step::Attach if self.volume.is_some() => {}
            Step::Check | Step::Attach if !quiet => return Ok(Far::Waits),
            Step::Check | Step::Attach if self.stuck => {
                // Who lost a flush for good starts the machine anew.
                self.power_loss()?;
                self.active_expected = false;
                self.steps = [Step::Check, Step::Attach, Step::Mount].into();
                return Ok(Far::Waits);
            }
            Step::Check => {
                if self.client.mode != Mode::Down {
                    self.kernel_gone();
                }
                if !self.check()? {
                    self.power_loss()?;
                    self.recover();
                    return Ok(Far::Waits);
                }
            }
            Step::Attach => {
                if !self.attach()? {
                    return Ok(Far::Waits);
                }
            }
        }
        Ok(Far::Done)
    }

    /// A mount or an unmount failed: once more, or the kernel gives up.
    fn again(&mut self) {
        self.session.unmount_failed = false;
        self.tries += 1;
        if self.tries > TRIES {
            (self.tries, self.unmounting) = (0, 0);
            self.note("unmounts given up", 1);
            self.say(|_| "the kernel gives up".into());
            self.steps = [Step::Die, Step::Check, Step::Attach, Step::Mount].into();
        }
    }

    fn mount(&mut self) -> Result<Far, Broken> {
        if self.volume.is_none() {
            self.steps.push_front(Step::Attach);
            return Ok(Far::Waits);
        }
        match self.client.mode {
            Mode::Up => {
                self.tries = 0;
                return Ok(Far::Done);
            }
            Mode::Down if self.asks.is_empty() && self.sends.is_empty() => {
                self.client.mounts += 1;
                self.client.mode = Mode::Mounting;
                self.ask(Wish::Superblock { clean: false });
            }
            Mode::Mounting if self.session.unmount_failed && self.asks.is_empty() => {
                self.again();
                self.ask(Wish::Superblock { clean: false });
            }
            _ => {}
        }
        Ok(Far::Waits)
    }

    fn unmount(&mut self) -> Result<Far, Broken> {
        if self.volume.is_none() {
            self.steps.push_front(Step::Attach);
            return Ok(Far::Waits);
        }
        if self.session.unmount_failed {
            self.again();
        }
        match self.client.mode {
            Mode::Up => self.client.mode = Mode::Leaving(Stage::Writing),
            Mode::Leaving(Stage::Writing) if self.asks.len() < 8 => {
                match self.client.rest(&mut self.rng) {
                    Some(wish) => {
                        self.unmounting += 1;
                        self.ask(wish);
                    }
                    None if self.asks.is_empty() => {
                        self.client.mode = Mode::Leaving(Stage::Flushing);
                        self.ask(Wish::Sync);
                    }
                    None => {}
                }
                // A device that takes no writes at all.
                if self.unmounting > 2_000 {
                    self.tries = TRIES;
                    self.again();
                }
            }
            Mode::Leaving(Stage::Flushing | Stage::Last) if self.asks.is_empty() => self.ask(Wish::Sync),
            Mode::Leaving(Stage::Superblock) if self.asks.is_empty() => {
                self.ask(Wish::Superblock { clean: true });
            }
            Mode::Down => {
                (self.tries, self.unmounting) = (0, 0);
                return Ok(Far::Done);
            }
            _ => {}
        }
        Ok(Far::Waits)
    }
}
