//! Which actions make sense in a state.

use super::*;

impl World {
    /// Everything that may happen next.
    pub fn enabled(&self) -> Vec<Action> {
        let mut all: Vec<Action> = (0..self.queue.len()).map(Action::Land).collect();
        for a in [Action::BitmapArrives, Action::OtherBitmapArrives] {
            if self.is_enabled(a) {
                all.push(a);
            }
        }
        all.extend((0..self.setup.queues).map(Action::Arrives).filter(|a| self.is_enabled(*a)));
        for ((action, most), used) in self.menu.iter().zip(&self.used) {
            if used >= most {
                continue;
            }
            match action {
                Action::Fail(_) => all.extend((0..self.queue.len()).map(Action::Fail)),
                Action::PowerLoss(_) => all.extend(self.power_losses()),
                other => all.extend(self.is_enabled(*other).then_some(*other)),
            }
        }
        all
    }

    /// Which of the writes in the caches survive: every set of up to five, else none, all, each alone and
    /// all but each.
    pub(super) fn power_losses(&self) -> Vec<Action> {
        let n = self.devices.iter().map(Device::cached).sum::<usize>();
        let all = (1u64 << n) - 1;
        let sets: Vec<u64> = if n <= 5 {
            (0..=all).collect()
        } else {
            let one = (0..n).flat_map(|i| [1 << i, all & !(1 << i)]);
            one.chain([0, all]).collect()
        };
        sets.into_iter().map(Action::PowerLoss).collect()
    }

    pub(super) fn served(&self) -> bool {
        self.volume.as_ref().is_some_and(|v| !v.is_detaching())
    }

    /// Whether the next tracked block is a block's neighbour.
    pub(super) fn neighbours(&self, b: Tracked) -> bool {
        self.blocks[b + 1] == self.blocks[b] + 1
    }

    /// Whether the kernel waits for nothing that must end before it goes on.
    pub(super) fn mounting(&self) -> bool {
        self.kernel.waits_for(|o| matches!(o.ask, Ask::Super { .. }) && !o.late)
    }

    /// Whether an action makes sense now.
    pub fn is_enabled(&self, action: Action) -> bool {
        let k = &self.kernel;
        let client = self.served() && !self.mounting() && self.tool.is_none();
        let writer = client && !self.quiet;
        let gone = self.volume.is_none();
        let unclaimed = |b: Tracked| self.claiming != Some(b);
        let sends_bitmap = |group: u32| {
            let waits = k.waits_for(|o| matches!(o.ask, Ask::Bitmap(g, _) if g == group && !o.late));
            writer && !waits && !self.bitmap_sent.contains_key(&group) && self.claiming.is_none()
        };
        match action {
            Action::Read(b, _) | Action::ReadPart(b, ..) => client && (k.is_live(b) || TABLE.contains(&b)),
            Action::ReadFree(..) => client,
            Action::ReadTwo(b, _) => client && self.neighbours(b) && k.is_live(b) && k.is_live(b + 1),
            Action::WriteTwo(b) => {
                let may = |b| k.is_allocated(b) && !k.busy(b);
                writer && self.neighbours(b) && may(b) && may(b + 1)
            }
            Action::DiscardOdd(b) => {
                let free = |b| !k.is_allocated(b) && !k.busy(b) && unclaimed(b);
                writer && self.neighbours(b) && free(b) && free(b + 1)
            }
            Action::Write(b) | Action::WritePart(b, _) | Action::Zero(b) | Action::ZeroPart(b, _) => {
                writer && (k.is_allocated(b) || TABLE.contains(&b)) && !k.busy(b)
            }
            Action::WriteToo(b) => writer && k.is_allocated(b),
            Action::Alloc(b) => writer && !k.is_allocated(b) && !k.discarding(b) && unclaimed(b),
            Action::Free(b) => writer && k.is_allocated(b) && !k.busy(b),
            Action::Discard(b) | Action::Punch(b) | Action::SendDiscard(b) | Action::DiscardPart(b) => {
                writer && !k.is_allocated(b) && !k.busy(b) && unclaimed(b)
            }
            Action::DiscardToo(b) => writer && !k.is_allocated(b),
            Action::GiveUp(b) => k.discarding(b),
            Action::SendBitmap => sends_bitmap(self.group_of(R)),
            Action::SendOtherBitmap => self.group_of(S) != self.group_of(R) && sends_bitmap(self.group_of(S)),
            Action::BitmapArrives => self.served() && self.bitmap_sent.contains_key(&self.group_of(R)),
            Action::OtherBitmapArrives => {
                let (this, other) = (self.group_of(R), self.group_of(S));
                this != other && self.served() && self.bitmap_sent.contains_key(&other)
            }
            Action::Claim(b) => {
                let free = !k.is_allocated(b) && !k.discarding(b) && k.ghosts.is_empty();
                free && sends_bitmap(self.group_of(b))
            }
            Action::WriteRefs => writer && k.mounted && !k.busy(P),
            Action::PunchZeroes(b) => writer && k.is_live(b) && !k.mounted && !k.busy(b),
            Action::FlushToo => client,
            Action::Flush => client && !k.waits_for(|o| o.ask == Ask::Flush && !o.late),
            Action::Mount | Action::Run(_) => {
                let at_rest = k.is_idle() && k.ghosts.is_empty() && self.claiming.is_none();
                client && !k.mounted && at_rest && self.may_run(action)
            }
            Action::Unmount | Action::FreezeFs | Action::ReadOnly => {
                writer && k.mounted && k.is_idle() && self.claiming.is_none()
            }
            Action::Thaw | Action::Writable => client && k.mounted && self.quiet,
            Action::KernelDies => self.served() && k.mounted,
            Action::Reconnect => client,
            Action::Receive(c) => self.served() && self.sockets.contains_key(&c),
            Action::Notice(c) => c < self.connection && self.sockets.contains_key(&c),
            Action::Route(n) => client && n < self.setup.queues && n != self.route,
            Action::Arrives(n) => self.served() && self.sockets.contains_key(&(self.connection + n)),
            Action::Target(b) => self.served() && self.policy.target != Some(self.blocks[b]),
            Action::Evict(b) | Action::Expect(b) => {
                let replica = |v: &Volume| v.table().by_replica(BlockNo(self.blocks[b])).is_some();
                self.volume.as_ref().is_some_and(replica)
            }
            Action::Background | Action::Fetch(_) => self.served(),
            Action::Land(i) | Action::Fail(i) => i < self.queue.len(),
            Action::Kill | Action::KillAlone => !gone && !self.unnoticed,
            // A foreign writer shows in the backing's stamp, which is the daemon's affair.
            Action::HandOver => {
                let active = |v: &Volume| *v.standing() == Standing::Active && !v.is_detaching();
                let mine = self.volume.as_ref().is_some_and(active);
                mine && self.queue.is_empty() && !self.foreign && self.tool.is_none()
            }
            Action::PowerLoss(_) | Action::PowerLossTorn(_) => true,
            // R0: the lock is free only when the last I/O of the former daemon has ended.
            Action::Attach => gone && (self.queue.is_empty() || self.setup.no_lock_wait),
            // What nobody ever notices is outside the fault model.
            Action::DetachBusy => self.served() && !self.unnoticed && self.tool.is_none(),
            Action::Detach => {
                self.served() && !self.unnoticed && self.tool.is_none() && k.outstanding.is_empty()
            }
            Action::ElsewhereByCopy(b) => {
                self.plan().groups() > 1 && self.is_enabled(Action::ElsewhereWrites(b))
            }
            Action::Check | Action::ElsewhereWrites(_) => {
                let waits = k.mounted || !k.outstanding.is_empty();
                gone && !waits && (self.queue.is_empty() || self.setup.no_lock_wait)
            }
            Action::ForeignWrites(_) | Action::ForeignTakes(_) => self.served(),
            Action::ForeignNoticed => self.foreign && !gone,
        }
    }

    /// Whether the volume is one for a program.
    fn may_run(&self, action: Action) -> bool {
        let several = self.plan().shape == Shape::Groups;
        match action {
            Action::Run(Tool::Grow) => several && self.setup.room,
            Action::Run(Tool::Shrink) => {
                several && !self.ground.apart && !self.kernel.is_allocated(S) && !self.kernel.discarding(S)
            }
            _ => true,
        }
    }
}
