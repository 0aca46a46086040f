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
        self.tool_goes_on()?;
        self.part_with_the_left();
        self.judge_trust()
    }

    pub(super) fn act(&mut self, action: Action) -> Result<(), Violation> {
        match action {
            Action::Read(b, from)
            | Action::ReadFree(b, from)
            | Action::ReadPart(b, _, from)
            | Action::ReadTwo(b, from) => {
                self.policy.prefer = from == From::Replica;
                self.policy.capture = from == From::Original;
                self.set_policy();
                self.send(match action {
                    Action::ReadTwo(..) => Ask::ReadTwo(b),
                    Action::ReadPart(_, part, _) => Ask::ReadPart(b, part),
                    _ => Ask::Read(b),
                });
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
            Action::ZeroPart(b, part) => self.send(Ask::ZeroPart(b, part)),
            Action::DiscardPart(b) => {
                self.kernel.forget(b);
                self.send(Ask::DiscardPart(b));
            }
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
            Action::SendBitmap | Action::SendOtherBitmap => {
                let group = self.group_of(if action == Action::SendBitmap { R } else { S });
                self.bitmap_sent.insert(group, self.kernel.bitmap);
            }
            Action::BitmapArrives | Action::OtherBitmapArrives => {
                let group = self.group_of(if action == Action::BitmapArrives { R } else { S });
                let mask = self.bitmap_sent.remove(&group).expect("it was sent");
                self.send(Ask::Bitmap(group, mask));
            }
            Action::Claim(b) => {
                self.claiming = Some(b);
                self.send(Ask::Bitmap(self.group_of(b), self.kernel.bitmap | 1 << b));
            }
            Action::WriteRefs => {
                let refs = REFS | self.refs();
                self.send(Ask::Write(P, refs));
            }
            Action::PunchZeroes(b) => self.send(Ask::PunchZeroes(b)),
            Action::Flush | Action::FlushToo => self.send(Ask::Flush),
            Action::Mount => self.mount()?,
            Action::Unmount => self.unmount()?,
            Action::FreezeFs => self.falls_quiet(Role::Freeze)?,
            Action::ReadOnly => self.falls_quiet(Role::ReadOnly)?,
            Action::Thaw => self.wakes(Role::Thaw),
            Action::Writable => self.wakes(Role::Writable),
            Action::Run(tool) => self.tool = Some((tool, 0)),
            Action::KernelDies => {
                self.kernel.cut_off();
                self.sockets.clear();
                self.quiet = false;
                self.bitmap_sent.clear();
                self.claiming = None;
                self.died = true;
                self.kernel_died = true;
            }
            Action::Reconnect => self.reconnect(),
            Action::Notice(c) => {
                self.sockets.remove(&c);
            }
            Action::Route(n) => self.route = n,
            Action::Arrives(n) => self.receive(self.connection + n),
            Action::SendDiscard(b) => {
                self.kernel.forget(b);
                let id = self.kernel.send(Ask::Discard(b), self.connection, &[]);
                self.sockets.entry(self.connection).or_default().push((id, Ask::Discard(b)));
            }
            Action::Receive(c) => self.receive(c),
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
            Action::Fetch(b) => {
                self.policy.fetch = Some(self.blocks[b]);
                self.set_policy();
                self.background();
                self.policy.fetch = None;
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
            Action::HandOver => self.hand_over()?,
            Action::PowerLoss(keep) => self.power_loss(Survivors::Writes(keep))?,
            Action::PowerLossTorn(seed) => self.power_loss(Survivors::Sectors(seed))?,
            Action::Attach => self.attach()?,
            Action::Detach | Action::DetachBusy => {
                self.volume.as_mut().expect("it is served").begin_detach(NOW)
            }
            Action::Check => self.check()?,
            Action::ElsewhereWrites(b) => self.elsewhere_writes(b, None),
            Action::ElsewhereByCopy(b) => self.elsewhere_writes(b, Some(1)),
            Action::ForeignWrites(b) => {
                let v = self.kernel.fresh_value(b);
                self.devices[0].write_through(self.extent(b).offset(), &Content::of(v).bytes(self.grain()));
                self.kernel.rewritten(b, v);
                self.kernel.forget(b);
                self.foreign = true;
                self.unnoticed = true;
            }
            Action::ForeignTakes(b) => {
                let v = self.kernel.fresh_value(b);
                self.devices[0].write_through(self.extent(b).offset(), &Content::of(v).bytes(self.grain()));
                let mounts = u16::from_le_bytes(self.mnt_count());
                let superblock = self.superblock(mounts + 1, 0);
                self.devices[0].write_through(image::SUPERBLOCK, &superblock);
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

    pub(super) fn submit(&mut self, id: u64, ask: Ask, connection: u32) {
        let (op, extent, payload) = self.request(ask);
        let request = Request {
            id: RequestId(id),
            connection: ConnectionId(connection),
            op,
            extent,
            flags: Flags { fua: matches!(ask, Ask::Super { role, .. } if !role.is_tool()), no_hole: false },
        };
        if let Some(bytes) = &payload {
            self.buffers.insert(id, bytes[..].into());
        }
        let volume = self.volume.as_mut().expect("requests arrive while it is served");
        volume.submit(NOW, request, payload.as_deref());
    }

    pub(super) fn request(&self, ask: Ask) -> (Op, Extent, Option<Vec<u8>>) {
        let grain = self.grain();
        let part = |b: Tracked, part: usize| {
            let (at, len) = grain.part(part);
            Extent::new(self.extent(b).offset() + at as u64, len as u64)
        };
        let write = |extent: Extent, bytes: Vec<u8>| (Op::Write, extent, Some(bytes));
        match ask {
            Ask::Read(b) => (Op::Read, self.extent(b), None),
            Ask::ReadPart(b, which) => (Op::Read, part(b, which), None),
            Ask::ReadTwo(b) => (Op::Read, self.extent_of_two(b), None),
            Ask::WriteTwo(b, v, w) => write(
                self.extent_of_two(b),
                [Content::of(v).bytes(grain), Content::of(w).bytes(grain)].concat(),
            ),
            Ask::DiscardOdd(b) => {
                let len = (grain.block() + grain.first) as u64;
                (Op::Discard, Extent::new(self.extent(b).offset(), len), None)
            }
            Ask::DiscardPart(b) => (Op::Discard, part(b, 0), None),
            Ask::Write(b, v) => write(self.extent(b), Content::of(v).bytes(grain)),
            Ask::WritePart(b, which, v) => {
                let (at, len) = grain.part(which);
                write(part(b, which), Content::of(v).bytes(grain)[at..at + len].to_vec())
            }
            Ask::Zero(b) => (Op::WriteZeroes, self.extent(b), None),
            Ask::ZeroPart(b, which) => (Op::WriteZeroes, part(b, which), None),
            Ask::Discard(b) => (Op::Discard, self.extent(b), None),
            Ask::Punch(b) | Ask::PunchZeroes(b) => (Op::Punch, self.extent(b), None),
            Ask::Bitmap(group, mask) => {
                write(self.extent_of_block(self.plan().bitmap(group)), self.bitmap(group, mask))
            }
            Ask::Super { mounts, state, role } => {
                let (extent, bytes) = self.superblock_for(mounts, state, role);
                write(extent, bytes)
            }
            Ask::Meta(meta) => {
                let (extent, bytes) = self.meta(meta);
                write(extent, bytes)
            }
            Ask::Flush => (Op::Flush, Extent::default(), None),
        }
    }
}
