//! What an action does.

use super::events::Survivors;
use super::*;

impl World {
    /// Does one action.
    ///
    /// # Errors
    /// What must never happen.
    pub fn step(&mut self, action: Action) -> Result<(), Violation> {
        let kind = |a: Action| match a {
            Action::Fail(_) => Action::Fail(0),
            Action::PowerLoss(_) => Action::PowerLoss(0),
            Action::PowerLossTorn(_) => Action::PowerLossTorn(0),
            other => other,
        };
        if let Some(i) = self.menu.iter().position(|m| kind(m.0) == kind(action)) {
            self.used[i] += 1;
        }
        self.act(action)?;
        self.pump()?;
        self.judge_trust()
    }

    pub(super) fn act(&mut self, action: Action) -> Result<(), Violation> {
        match action {
            Action::Read(b, from) | Action::ReadFree(b, from) | Action::ReadTwo(b, from) => {
                self.policy.prefer = from == From::Replica;
                self.policy.capture = from == From::Original;
                self.set_policy();
                let two = matches!(action, Action::ReadTwo(..));
                self.send(if two { Ask::ReadTwo(b) } else { Ask::Read(b) });
            }
            Action::Write(b) | Action::WriteToo(b) => {
                let v = self.kernel.fresh_value(b);
                self.send(Ask::Write(b, v));
            }
            Action::WriteTwo(b) => {
                let (v, w) = (self.kernel.fresh_value(b), self.kernel.fresh_value(b + 1));
                self.send(Ask::WriteTwo(b, v, w));
            }
            Action::DiscardOdd(b) => {
                self.kernel.forget(b);
                self.kernel.forget(b + 1);
                self.send(Ask::DiscardOdd(b));
            }
            Action::WritePart(b, sector) => {
                let v = self.kernel.fresh_value(b);
                self.send(Ask::WritePart(b, sector, v));
            }
            Action::Zero(b) => self.send(Ask::Zero(b)),
            Action::Alloc(b) => self.kernel.allocate(b),
            Action::Free(b) => self.kernel.free(b),
            Action::Discard(b) | Action::DiscardToo(b) => {
                self.kernel.forget(b);
                self.send(Ask::Discard(b));
            }
            Action::Punch(b) => {
                self.kernel.forget(b);
                self.send(Ask::Punch(b));
            }
            Action::GiveUp(b) => {
                let is = |a: Ask| matches!(a, Ask::Discard(d) | Ask::Punch(d) if d == b);
                self.kernel.outstanding.values_mut().filter(|o| is(o.ask)).for_each(|o| o.given_up = true);
            }
            Action::SendBitmap => self.bitmap_sent = Some(self.kernel.bitmap),
            Action::BitmapArrives => {
                let mask = self.bitmap_sent.take().expect("it was sent");
                self.send(Ask::Bitmap(mask));
            }
            Action::Claim(b) => {
                self.claiming = Some(b);
                self.send(Ask::Bitmap(self.kernel.bitmap | 1 << b));
            }
            Action::WriteRefs => {
                let refs = REFS | self.refs();
                self.send(Ask::Write(P, refs));
            }
            Action::PunchZeroes(b) => self.send(Ask::PunchZeroes(b)),
            Action::Flush | Action::FlushToo => self.send(Ask::Flush),
            Action::Mount => self.mount()?,
            Action::Unmount => self.unmount()?,
            Action::KernelDies => {
                self.kernel.cut_off();
                self.sockets.clear();
                self.bitmap_sent = None;
                self.claiming = None;
                self.died = true;
                self.kernel_died = true;
            }
            Action::Reconnect => self.reconnect(),
            Action::SendDiscard(b) => {
                self.kernel.forget(b);
                let id = self.kernel.send(Ask::Discard(b), self.connection, &[]);
                self.sockets.entry(self.connection).or_default().push((id, b));
            }
            Action::Receive(c) => {
                let (id, b) = self.sockets.get_mut(&c).expect("it was looked at").remove(0);
                self.sockets.retain(|_, s| !s.is_empty());
                self.submit(id, Ask::Discard(b), c);
            }
            Action::Target(b) => {
                self.policy.target = Some(self.blocks[b]);
                self.set_policy();
            }
            Action::Evict(b) => {
                self.policy.evict = Some(BlockRange::one(BlockNo(self.blocks[b])));
                self.set_policy();
                if let Some(v) = &mut self.volume {
                    v.handle_timeout(NOW);
                }
                self.policy.evict = None;
                self.set_policy();
            }
            Action::Expect(_) => {}
            Action::Background => self.background(),
            Action::Land(i) => self.land(i, false)?,
            Action::Fail(i) => {
                self.failed = true;
                self.land(i, true)?;
            }
            Action::Kill => {
                self.killed();
                self.cut_off();
            }
            Action::KillAlone => self.killed(),
            Action::PowerLoss(keep) => self.power_loss(Survivors::Writes(keep))?,
            Action::PowerLossTorn(seed) => self.power_loss(Survivors::Sectors(seed))?,
            Action::Attach => self.attach()?,
            Action::Detach | Action::DetachBusy => {
                self.volume.as_mut().expect("it is served").begin_detach(NOW)
            }
            Action::Check => self.check()?,
            Action::ElsewhereWrites(b) => self.elsewhere_writes(b),
            Action::ForeignWrites(b) => {
                let v = self.kernel.fresh_value(b);
                self.devices[0].write_through(self.extent(b).offset(), &Content::of(v).bytes());
                self.kernel.rewritten(b, v);
                self.kernel.forget(b);
                self.foreign = true;
                self.unnoticed = true;
            }
            Action::ForeignTakes(b) => {
                let v = self.kernel.fresh_value(b);
                self.devices[0].write_through(self.extent(b).offset(), &Content::of(v).bytes());
                let mounts = u16::from_le_bytes(self.mnt_count());
                let superblock = self.superblock(mounts + 1, 0);
                self.devices[0]
                    .write_through(u64::from(image::SUPERBLOCK) * BLOCK as u64, &superblock.bytes());
                self.foreign_owns = Some(b);
                self.foreign = true;
                self.unnoticed = true;
            }
            Action::ForeignNoticed => {
                self.unnoticed = false;
                self.queue.iter_mut().for_each(|q| q.excused = true);
                if let Some(b) = self.foreign_owns {
                    self.kernel.rewritten(b, 0);
                    self.kernel.forget(b);
                }
                self.volume.as_mut().expect("it is served").foreign_writer(NOW);
                for b in DATA {
                    if !self.kernel.is_live(b) {
                        continue;
                    }
                    if let Some([v, _]) = self.devices[0].block(self.blocks[b]).cells() {
                        self.kernel.rewritten(b, v);
                    }
                }
            }
        }
        Ok(())
    }

    /// The client sends a request over its connection; it arrives at once.
    pub(super) fn send(&mut self, ask: Ask) {
        let now: Vec<_> = ask.blocks().map(|b| self.devices[0].block(self.blocks[b]).cells()).collect();
        let id = self.kernel.send(ask, self.connection, &now);
        self.submit(id, ask, self.connection);
    }

    pub(super) fn submit(&mut self, id: u64, ask: Ask, connection: u32) {
        let (op, extent, payload) = self.request(ask);
        let request = Request {
            id: RequestId(id),
            connection: ConnectionId(connection),
            op,
            extent,
            flags: Flags { fua: matches!(ask, Ask::Super { .. }), no_hole: false },
        };
        if let Some(bytes) = &payload {
            self.buffers.insert(id, bytes[..].into());
        }
        let volume = self.volume.as_mut().expect("requests are sent while it is served");
        volume.submit(NOW, request, payload.as_deref());
    }

    pub(super) fn request(&self, ask: Ask) -> (Op, Extent, Option<Vec<u8>>) {
        let at = |block: u32| BlockNo(block).extent(BlockSize::B1024);
        match ask {
            Ask::Read(b) => (Op::Read, self.extent(b), None),
            Ask::ReadTwo(b) => (Op::Read, self.extent_of_two(b), None),
            Ask::WriteTwo(b, v, w) => {
                let bytes = [Content::of(v).bytes(), Content::of(w).bytes()].concat();
                (Op::Write, self.extent_of_two(b), Some(bytes))
            }
            Ask::DiscardOdd(b) => {
                let len = (BLOCK + SECTOR) as u64;
                (Op::Discard, Extent::new(self.extent(b).offset(), len), None)
            }
            Ask::Write(b, v) => (Op::Write, self.extent(b), Some(Content::of(v).bytes().to_vec())),
            Ask::WritePart(b, sector, v) => {
                let at = self.extent(b).offset() + (sector * SECTOR) as u64;
                let bytes = Content::of(v).bytes()[..SECTOR].to_vec();
                (Op::Write, Extent::new(at, SECTOR as u64), Some(bytes))
            }
            Ask::Zero(b) => (Op::WriteZeroes, self.extent(b), None),
            Ask::Discard(b) => (Op::Discard, self.extent(b), None),
            Ask::Punch(b) | Ask::PunchZeroes(b) => (Op::Punch, self.extent(b), None),
            Ask::Bitmap(mask) => (Op::Write, at(image::BITMAP), Some(self.bitmap(mask).bytes().to_vec())),
            Ask::Super { mounts, state } => {
                let bytes = self.superblock(mounts, state).bytes().to_vec();
                (Op::Write, at(image::SUPERBLOCK), Some(bytes))
            }
            Ask::Flush => (Op::Flush, Extent::default(), None),
        }
    }
}
