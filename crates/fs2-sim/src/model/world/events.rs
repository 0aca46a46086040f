//! Mounts, ends, crashes, attaches, checks.

use super::*;
use crate::model::swarm::Rng;

/// What of the caches survives a loss of power.
pub(super) enum Survivors {
    /// Writes with their bit.
    Writes(u64),
    /// Sectors, as a seed has it.
    Sectors(u64),
}

impl World {
    pub(super) fn mount(&mut self) -> Result<(), Violation> {
        let mounts = u16::from_le_bytes(self.mnt_count());
        self.send(Ask::Super { mounts: mounts + 1, state: 0, role: Role::Mount });
        Ok(())
    }

    pub(super) fn mnt_count(&self) -> [u8; 2] {
        let bytes = self.superblock_now();
        [bytes[image::MNT_COUNT], bytes[image::MNT_COUNT + 1]]
    }

    /// A kernel finds on the device what belongs to files and what is in use.
    pub(super) fn reload(&mut self) -> Result<(), Violation> {
        let refs = self.refs_on_disk();
        let used = |b: &Tracked| self.bit_on_disk(*b);
        let bits: u16 = DATA.into_iter().filter(used).map(|b| 1 << b).sum();
        self.kernel.bitmap = bits;
        self.kernel.allocated = refs | bits | 1 << P | self.kernel.allocated & TABLE_BITS;
        self.kernel.landed = refs | 1 << P | self.kernel.landed & TABLE_BITS;
        for b in DATA.into_iter().chain([P]) {
            if self.kernel.is_live(b) {
                let found = self.devices[0].block(self.blocks[b]).cells();
                let wrong = |Wrong(what)| violation(Oracle::Crash, what);
                self.kernel.found(b, found).map_err(wrong)?;
            } else {
                self.kernel.forget(b);
            }
        }
        Ok(())
    }

    /// Whether a block's bit is set on the device.
    pub(super) fn bit_on_disk(&self, b: Tracked) -> bool {
        let plan = self.plan();
        let bitmap = self.devices[0].block(plan.bitmap(self.group_of(b))).bytes(plan.grain);
        plan.bit(&bitmap, self.blocks[b])
    }

    pub(super) fn unmount(&mut self) -> Result<(), Violation> {
        self.write_all()?;
        self.send(Ask::Super { mounts: self.mounts, state: 1, role: Role::Unmount });
        self.drain()?;
        self.send(Ask::Flush);
        self.drain()
    }

    pub(super) fn killed(&mut self) {
        self.volume = None;
        self.policy = policy(self.plan());
        self.hang_up();
        for q in &mut self.queue {
            q.io = None;
            q.client = None;
        }
        // Reads of a dead daemon change nothing.
        self.queue.retain(|q| q.op != IoOp::Read);
    }

    pub(super) fn cut_off(&mut self) {
        self.kernel.cut_off();
        self.kernel.ghosts.clear();
        self.buffers.clear();
        self.unread.clear();
        self.sockets.clear();
        self.bitmap_sent.clear();
        self.claiming = None;
        self.quiet = false;
        self.tool = None;
        self.died = true;
    }

    pub(super) fn power_loss(&mut self, survivors: Survivors) -> Result<(), Violation> {
        self.killed();
        self.cut_off();
        self.queue.clear();
        match survivors {
            Survivors::Writes(keep) => {
                let n = self.devices[0].cached();
                self.devices[0].power_loss(keep);
                self.devices[1].power_loss(keep.checked_shr(n as u32).unwrap_or(0));
            }
            Survivors::Sectors(seed) => {
                let mut rng = Rng(seed);
                for d in &mut self.devices {
                    d.power_loss_torn(&mut || rng.draw().is_multiple_of(2));
                }
            }
        }
        self.doubt = true;
        let refs = self.refs_on_disk() | 1 << P;
        self.judge_differential(refs)?;
        for b in DATA.into_iter().chain([P]).filter(|b| refs >> b & 1 == 1) {
            let found = self.devices[0].block(self.blocks[b]).cells();
            let wrong = |Wrong(what)| violation(Oracle::Crash, what);
            self.kernel.after_power_loss(b, found).map_err(wrong)?;
        }
        Ok(())
    }

    pub(super) fn attach(&mut self) -> Result<(), Violation> {
        self.judge_mark()?;
        // Inode 5 still names its blocks: in the new session they are the table's again.
        TABLE.into_iter().for_each(|b| self.kernel.free(b));
        self.table_moved();
        if self.died {
            self.reload()?;
            self.died = false;
        }
        // What is free now the new session may use.
        for b in DATA {
            if !self.kernel.is_allocated(b) {
                self.kernel.forget(b);
            }
        }
        let [volume, table] = &self.devices;
        let (volume, table) = (&mut Reader(volume), &mut Reader(table));
        let table: Option<&mut dyn fs2_block::ReadAt> = if self.ground.apart { Some(table) } else { None };
        let attached = Volume::attach(volume, table, self.setup.config(), &AttachOptions::default());
        let (volume, report) =
            attached.map_err(|e| violation(Oracle::Answer, format!("the attach failed: {e}")))?;
        self.volume = Some(volume);
        self.sessions += 1;
        self.trusted = report.verified;
        self.went_on = false;
        self.foreign = false;
        self.failed = false;
        self.kernel_died = false;
        self.resized = false;
        self.set_policy();
        self.send_all_again();
        Ok(())
    }

    /// Nothing is in flight. What the next process needs is read by it from bytes, as between processes.
    pub(super) fn hand_over(&mut self) -> Result<(), Violation> {
        let mut old = self.volume.clone().expect("it is served");
        old.begin_leaving(NOW);
        if !old.has_left() {
            // A request waits in it for what the device has not been asked for yet.
            return Ok(());
        }
        let Ok(bytes) = old.left(b"note") else {
            self.killed();
            return Ok(());
        };
        let broken = |what: String| violation(Oracle::Answer, format!("the hand-over failed: {what}"));
        let given = HandOver::decode(&bytes).map_err(|e| broken(e.into()))?;
        let (volume, table) = (&mut Reader(&self.devices[0]), &mut Reader(&self.devices[1]));
        let table: Option<&mut dyn fs2_block::ReadAt> = if self.ground.apart { Some(table) } else { None };
        match Volume::take_over(volume, table, self.setup.config(), given) {
            Ok((next, _)) => {
                if !same_entries(&next, &old) {
                    return Err(broken("the next process has other entries".into()));
                }
                self.volume = Some(next);
                self.sessions += 1;
                self.trusted = 0;
                self.went_on = true;
                self.set_policy();
                Ok(())
            }
            // What a write that failed left undone, nobody knows.
            Err(_) if self.failed => {
                self.killed();
                Ok(())
            }
            Err(e) => Err(broken(e)),
        }
    }

    pub(super) fn check(&mut self) -> Result<(), Violation> {
        // e2fsck -f: the bitmap becomes what the files say, the counts what the bitmap says, the volume clean.
        let refs = self.refs_on_disk();
        let plan = self.plan();
        let bitmaps: Vec<Vec<u8>> = (0..plan.groups()).map(|g| self.bitmap(g, refs)).collect();
        let mounts = u16::from_le_bytes(self.mnt_count());
        let mut superblock = self.superblock(mounts, 1);
        let descriptors_at = self.extent_of_block(plan.descriptors());
        let mut descriptors = self.devices[0].read(descriptors_at);
        plan.count_free(&bitmaps, &mut superblock, &mut descriptors);
        for (group, bitmap) in (0..).zip(&bitmaps) {
            let at = self.extent_of_block(plan.bitmap(group));
            self.devices[0].write_through(at.offset(), bitmap);
        }
        self.devices[0].write_through(image::SUPERBLOCK, &superblock);
        self.devices[0].write_through(descriptors_at.offset(), &descriptors);
        // It ends with a flush.
        for d in &mut self.devices {
            d.flushed(d.flush_covers());
        }
        match self.setup.checker {
            Checker::Weak => check_weakly(&self.ground, &mut self.devices),
            checker => {
                let (quick, plants) = (checker == Checker::Quick, &self.setup.plants);
                check_table(&self.ground, &mut self.devices, quick, plants)
                    .map_err(|e| violation(Oracle::Answer, format!("the check failed: {e}")))?;
            }
        }
        // Entries survive whose replicas were written while nobody looked.
        self.doubt = true;
        self.died = true;
        Ok(())
    }

    /// Mounted by the superblock, or by its copy in a group.
    pub(super) fn elsewhere_writes(&mut self, b: Tracked, copy: Option<u32>) {
        let v = self.kernel.fresh_value(b);
        let mask = self.refs_on_disk() | 1 << b;
        let grain = self.grain();
        self.devices[0].write_through(self.extent(b).offset(), &Content::of(v).bytes(grain));
        let refs = Content::of(REFS | mask);
        self.devices[0].write_through(self.extent(P).offset(), &refs.bytes(grain));
        for group in self.groups() {
            let at = self.extent_of_block(self.plan().bitmap(group));
            let bitmap = self.bitmap(group, mask);
            self.devices[0].write_through(at.offset(), &bitmap);
        }
        if let Some(group) = copy {
            let at = self.plan().backup(group);
            let mut bytes = self.devices[0].read(Extent::new(at, 1024));
            bytes[image::MNT_COUNT] = bytes[image::MNT_COUNT].wrapping_add(1);
            self.devices[0].write_through(at, &bytes);
        } else {
            let mounts = u16::from_le_bytes(self.mnt_count());
            let superblock = self.superblock(mounts + 1, 1);
            self.devices[0].write_through(image::SUPERBLOCK, &superblock);
        }
        self.kernel.rewritten(b, v);
        self.kernel.rewritten(P, REFS | mask);
        self.died = true;
        self.doubt = true;
    }
}
