//! From one attach to the next: what a session has met, how it ends, what is left on the devices.

use std::collections::BTreeMap;

use fs2_block::WriteAt;
use fs2_engine::offline::{CheckOptions, Devices, MarkFound, check, look};
use fs2_engine::{AttachOptions, DetachReport, Standing, Volume};

use super::client::Mode;
use super::client::Wish;
use super::disk::{Disk, Fate, Handle};
use super::driver::Kind;
use super::fault::Fault;
use super::history::Value;
use super::steps::Step;
use super::{Broken, World, image};

/// A table's fault costs speed only, unless so many in a row keep the mark from being erased.
const ERASE_TRIES: u32 = 4;

/// What a session has met so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    /// It was active from its attach on.
    active: bool,
    /// A flush of the volume failed: the engine latches.
    pub(super) flush_failed: bool,
    /// So many of the table's own device did.
    table_flush_failed: u32,
    /// The daemon was asked to end.
    pub(super) ending: bool,
    /// A mount or unmount failed, and is to be tried again.
    pub(super) unmount_failed: bool,
    /// The kernel died in it.
    kernel_died: bool,
    /// Something was changed on the volume.
    pub(super) changed: bool,
    /// A copy landed on another free block, which may be an original to the daemon: of what is freed and not discarded nobody tells it.
    pub(super) misdirected: bool,
    failures: BTreeMap<Kind, u32>,
}

impl Session {
    /// An I/O failed.
    pub(super) fn failed(&mut self, kind: Kind, device: usize) {
        *self.failures.entry(kind).or_default() += 1;
        self.flush_failed |= kind == Kind::Flush && device == 0;
        self.table_flush_failed += u32::from(kind == Kind::Flush && device == 1);
    }

    fn of(&self, kind: Kind) -> u32 {
        self.failures.get(&kind).copied().unwrap_or(0)
    }

    /// The mark may be one that cannot be erased: its slots, or the flush behind them, failed again and again.
    pub(super) fn mark_stuck(&self) -> bool {
        self.of(Kind::Table) + self.table_flush_failed >= ERASE_TRIES || self.flush_failed
    }

    /// There is a reason for the end of trust.
    pub(super) fn may_freeze(&self) -> bool {
        self.kernel_died || self.misdirected || self.of(Kind::Write) > 0
    }

    /// It may leave no mark.
    fn must_lack_mark(&self) -> bool {
        !self.active || self.flush_failed
    }

    /// There is a reason for the lack of a mark.
    fn may_lack_mark(&self) -> bool {
        let any = [Kind::Write, Kind::Zeroes, Kind::Table, Kind::OwnRead].iter().any(|k| self.of(*k) > 0);
        any || !self.active
            || self.flush_failed
            || self.table_flush_failed > 0
            || self.kernel_died
            || self.misdirected
    }
}

/// Whether a mark that would be believed stands on these devices.
pub(super) fn look_at_mark(disks: &mut [Disk; 2], apart: bool) -> bool {
    let [volume, table] = disks;
    let (mut never, mut never_too) = (|_| false, |_| false);
    let mut v = Handle { disk: volume, fails: &mut never, budget: 0 };
    let mut t = Handle { disk: table, fails: &mut never_too, budget: 0 };
    let table: Option<&mut dyn WriteAt> = if apart { Some(&mut t) } else { None };
    // A volume that is not clean is not served active, whatever its mark.
    look(&mut Devices::new(&mut v, table))
        .is_ok_and(|l| l.mark == Ok(MarkFound::Valid) && l.layout.is_clean())
}

impl World {
    /// The daemon has detached.
    pub(super) fn session_ended(&mut self, report: &DetachReport) -> Result<(), Broken> {
        self.say(|_| format!("detached: {report:?}"));
        self.tally();
        if let Some((id, s)) = self.sends.iter().find(|(_, s)| s.arrived) {
            return Err(format!("answer: request {id}, {:?}, was not answered before the end", s.request.op));
        }
        let clean = self.client.mode == Mode::Down;
        self.note("clean detaches with a mark", u64::from(report.marked));
        if !report.marked && clean && !self.session.may_lack_mark() {
            return Err(format!("mark: a clean detach left none: {:?}", report.why_not));
        }
        let failed = self.session.of(Kind::Write) + self.session.of(Kind::Zeroes);
        if report.marked && self.session.changed && (!clean || self.session.must_lack_mark() || failed > 0) {
            return Err(format!("mark: a session left one that may not: {:?}", self.session));
        }
        self.active_expected = report.marked;
        self.left_behind = report.replicas;
        self.end_session();
        Ok(())
    }

    fn end_session(&mut self) {
        self.volume = None;
        self.sessions += 1;
        self.at_device = 0;
        self.sends.clear();
        self.buffers.clear();
    }

    /// The daemon is killed; its I/O in the kernel is not.
    pub(super) fn kill(&mut self, kernel_too: bool) {
        self.say(|_| {
            format!("the daemon is killed{}", if kernel_too { ", and the kernel dies" } else { "" })
        });
        if self.volume.is_some() {
            self.tally();
            self.note("kills", 1);
        }
        self.active_expected = false;
        self.doubt = true;
        self.end_session();
        if kernel_too {
            self.kernel_gone();
        }
    }

    /// The kernel dies, and comes back; the daemon lives.
    pub(super) fn kernel_dies(&mut self) {
        self.say(|_| "the kernel dies".into());
        self.session.kernel_died = true;
        self.kernel_gone();
    }

    /// Power is lost.
    pub(super) fn power_loss(&mut self) -> Result<(), Broken> {
        self.say(|w| {
            format!("power is lost, {} and {} writes cached", w.disks[0].cached(), w.disks[1].cached())
        });
        self.tally();
        self.note("power losses", 1);
        let ios: Vec<u64> = self.flying.iter().filter(|(_, f)| !f.landed).map(|(n, _)| *n).collect();
        for io in ios {
            if self.rng.below(2) == 0 {
                self.land(io)?;
            }
        }
        self.flying.clear();
        self.end_session();
        self.kernel_gone();
        let (loses, tears) =
            (self.plan.odds.of(Fault::LostWrite) > 0, self.plan.odds.of(Fault::TornWrite) > 0);
        // Sometimes nearly all survives, sometimes nearly nothing.
        let survival = 1 + self.rng.below(9);
        let mut counts = [0u64; 2];
        for disk in &mut self.disks {
            let (mut rng, mut torn) = (self.rng.clone(), self.rng.clone());
            disk.power_loss(
                || match rng.below(20) {
                    0..3 if tears => {
                        counts[1] += 1;
                        Fate::Torn
                    }
                    n if loses && n / 2 >= survival => {
                        counts[0] += 1;
                        Fate::Lost
                    }
                    _ => Fate::Kept,
                },
                || torn.below(2) == 0,
            );
            self.rng.draw();
        }
        self.note(Fault::LostWrite.name(), counts[0]);
        self.note(Fault::TornWrite.name(), counts[1]);
        self.doubt = true;
        self.stuck = false;
        let (files, counting) = self.counting();
        for b in 0..self.plan.geometry.blocks {
            if self.reserved.contains(&b) {
                continue;
            }
            if counting.contains(&b) {
                let bytes = self.disks[0].block(b).clone();
                self.history.after_power_loss(b, &bytes).map_err(|what| format!("crash: {what}"))?;
            } else {
                self.history.reset(b, Value::Any);
            }
        }
        self.reload(files);
        Ok(())
    }

    /// The files on the device, and the blocks that count: theirs, and metadata.
    fn counting(&self) -> (Vec<image::File>, std::collections::BTreeSet<u32>) {
        let geo = &self.plan.geometry;
        let files = image::files(geo, |b| self.disks[0].block(b).to_vec());
        let fixed = (0..geo.blocks).filter(|b| geo.is_static(*b));
        let all =
            files.iter().flatten().flatten().copied().filter(|b| *b < geo.blocks).chain(fixed).collect();
        (files, all)
    }

    fn reload(&mut self, files: Vec<image::File>) {
        let geo = self.plan.geometry.clone();
        let at = geo.superblock_at();
        let sb = self.disks[0].read(fs2_block::Extent::new(at, 1024));
        let (_, mounts) = image::state(&sb);
        self.client.reload(files, &self.reserved, mounts);
        // Without a check, what a bitmap says is in use is left alone.
        for g in 0..geo.groups() {
            let bytes = self.disks[0].block(geo.bitmap(g)).clone();
            for b in image::bits(&geo, g, &bytes) {
                self.client.blocks[b as usize].allocated = true;
            }
        }
    }

    /// A kernel looks at the device after its predecessor's end: without a check, nothing is flushed.
    pub(super) fn look_again(&mut self) -> Result<(), Broken> {
        let (files, counting) = self.counting();
        for b in 0..self.plan.geometry.blocks {
            if counting.contains(&b) {
                let bytes = self.disks[0].block(b).clone();
                self.history.adopt(b, &bytes).map_err(|what| format!("crash: {what}"))?;
            } else if !self.reserved.contains(&b) {
                self.history.forget(b);
            }
        }
        let mode = self.client.mode;
        self.reload(files);
        self.client.mode = mode;
        Ok(())
    }

    /// `e2fsck -f`, then `chkfs2`: `false` where it was interrupted.
    pub(super) fn check(&mut self) -> Result<bool, Broken> {
        let geo = self.plan.geometry.clone();
        // What the check finds is what a kernel would find.
        let (_, counting) = self.counting();
        for b in counting {
            let bytes = self.disks[0].block(b).clone();
            self.history.adopt(b, &bytes).map_err(|what| format!("crash: {what}"))?;
        }
        let read = |b: u32| self.disks[0].block(b).to_vec();
        let image::Checked { writes, superblock, files } = image::checked(&geo, read, &self.reserved);
        for (b, bytes) in writes {
            if self.disks[0].block(b)[..] != bytes[..] {
                self.disks[0].write(u64::from(b) * geo.block as u64, &bytes, false);
            }
        }
        self.disks[0].write(geo.superblock_at(), &superblock, false);
        self.disks[0].flushed(self.disks[0].covers());
        self.reload(files);
        for b in (0..geo.blocks).filter(|b| !self.reserved.contains(b)) {
            let counts = self.client.blocks[b as usize].allocated;
            let value = if counts { Value::Raw(self.disks[0].block(b).clone()) } else { Value::Any };
            self.history.reset(b, value);
        }
        let interrupted = self.faulty && self.plan.odds.of(Fault::PowerLoss) > 0 && self.rng.below(4) == 0;
        let budget = if interrupted { self.rng.below(12) } else { u64::MAX };
        let quick = self.plan.quick;
        let new_volume_id = self.rng.draw() | 1;
        let plants = self.plan.engine.plants.clone();
        let [volume, table] = &mut self.disks;
        let (mut never, mut never_too) = (|_| false, |_| false);
        let mut v = Handle { disk: volume, fails: &mut never, budget };
        let mut t = Handle { disk: table, fails: &mut never_too, budget };
        let apart: Option<&mut dyn WriteAt> = if self.plan.apart { Some(&mut t) } else { None };
        let how =
            CheckOptions { checked: true, quick, new_volume_id, plants: &plants, ..CheckOptions::default() };
        let result = check(&mut Devices::new(&mut v, apart), &how, &mut |_| true, &mut |_| {});
        self.say(|_| format!("checked: {result:?}"));
        match result {
            Ok(report) if report.marked => {
                self.note("checks", 1);
                self.active_expected = true;
                self.table_spoilt = false;
                Ok(true)
            }
            Err(_) if interrupted => {
                self.note("checks interrupted", 1);
                self.active_expected = false;
                Ok(false)
            }
            // A table on a device of its own whose headers are gone is the user's to make anew.
            Err(_) if self.table_spoilt && self.plan.apart => {
                self.note("tables lost", 1);
                self.remake()?;
                Ok(true)
            }
            other => Err(format!("mark: a check of a sound volume left none: {other:?}")),
        }
    }

    /// A table apart that cannot be used is emptied and made anew.
    fn remake(&mut self) -> Result<(), Broken> {
        use fs2_engine::offline::{CreateOptions, create};
        let [volume, table] = &mut self.disks;
        let zeroes = vec![0; table.size() as usize];
        table.write(0, &zeroes, false);
        let (mut never, mut never_too) = (|_| false, |_| false);
        let mut v = Handle { disk: volume, fails: &mut never, budget: u64::MAX };
        let mut t = Handle { disk: table, fails: &mut never_too, budget: u64::MAX };
        let how = CreateOptions {
            space: self.plan.space,
            volume_id: self.rng.draw() | 1,
            now_secs: 0,
            checked: true,
        };
        create(&mut Devices::new(&mut v, Some(&mut t)), &how, &mut |_| {})
            .map_err(|e| format!("mark: no table can be made: {e}"))?;
        self.active_expected = true;
        self.table_spoilt = false;
        Ok(())
    }

    /// A daemon attaches. `false` where it could not, and is to be started again.
    pub(super) fn attach(&mut self) -> Result<bool, Broken> {
        let reads = self.faulty;
        let (odds, mut rng) = (self.plan.odds.clone(), self.rng.clone());
        self.rng.draw();
        let mut failed = 0u64;
        let mut failed_too = 0u64;
        let inside = !self.plan.apart;
        let (reserved, block) = (self.reserved.clone(), self.block_size());
        let mut rng_too = rng.clone();
        let mut volume_fails = |e: fs2_block::Extent| {
            let table = inside && reserved.contains(&((e.offset() / block) as u32));
            let fails = reads && table && odds.strikes(Fault::TableRead, &mut rng);
            failed += u64::from(fails);
            fails
        };
        let mut table_fails = |_: fs2_block::Extent| {
            let fails = reads && odds.strikes(Fault::TableRead, &mut rng_too);
            failed_too += u64::from(fails);
            fails
        };
        let [volume, table] = &mut self.disks;
        let mut v = Handle { disk: volume, fails: &mut volume_fails, budget: 0 };
        let mut t = Handle { disk: table, fails: &mut table_fails, budget: 0 };
        let apart: Option<&mut dyn fs2_block::ReadAt> = if inside { None } else { Some(&mut t) };
        let attached = Volume::attach(&mut v, apart, self.plan.engine.clone(), &AttachOptions::default());
        let failed = failed + failed_too;
        self.note(Fault::TableRead.name(), failed);
        self.last_writer.clear();
        let (volume, report) = match attached {
            Ok(attached) => attached,
            Err(e) => {
                self.say(|_| format!("no attach: {e}"));
                if failed > 0 {
                    // Its administrator tries again.
                    self.note("attaches refused", 1);
                    return Ok(false);
                }
                return Err(format!("answer: the volume cannot be served at all: {e}"));
            }
        };
        self.say(|_| {
            format!(
                "attached: {:?}, {} entries trusted, {} not",
                volume.standing(),
                report.verified,
                report.unverified
            )
        });
        let active = *volume.standing() == Standing::Active;
        if self.active_expected && !active && failed == 0 && !self.table_spoilt {
            return Err(format!("mark: the volume should be active, but {:?}", volume.standing()));
        }
        // What a client writes past the table, the table's entries do not hold; a check leaves them unverified.
        self.doubt |= !active;
        self.note(if active { "attaches, active" } else { "attaches, inactive" }, 1);
        self.note("attaches with entries trusted at once", u64::from(report.verified > 0));
        self.volume = Some(volume);
        self.session = Session { active, ..Session::default() };
        self.connections = (0..self.plan.connections).collect();
        self.next_connection = self.plan.connections;
        if active {
            // What no file has is the daemon's now.
            for b in 0..self.plan.geometry.blocks {
                if !self.client.blocks[b as usize].allocated {
                    self.history.forget(b);
                }
            }
        }
        let waiting: Vec<u64> = self.asks.keys().copied().collect();
        for ask in waiting {
            self.send(ask);
        }
        Ok(true)
    }

    /// Between two sessions the volume is mounted elsewhere, without a daemon: files are written, made and
    /// deleted, and everything is flushed.
    pub(super) fn elsewhere(&mut self) {
        let geo = self.plan.geometry.clone();
        self.say(|_| "the volume is mounted elsewhere".into());
        self.note("mounts elsewhere", 1);
        let mix = self.plan.mix;
        self.client.mounts += 1;
        let mut wishes = Vec::new();
        for _ in 0..20 {
            wishes.extend(self.client.next(&mix, &mut self.rng, None));
        }
        while let Some(wish) = self.client.rest(&mut self.rng) {
            wishes.push(wish);
        }
        for wish in wishes {
            let all = geo.block / super::disk::SECTOR;
            match wish {
                // In memory a later file may have taken the block; then its data counts.
                Wish::Write(first, from, n) => {
                    for s in from..from + n {
                        let (b, s) = (first + (s / all) as u32, s % all);
                        self.versions += 1;
                        let bytes = super::history::fill(self.versions, b, all, s, s + 1);
                        let at = u64::from(b) * geo.block as u64 + (s * super::disk::SECTOR) as u64;
                        self.disks[0].write(at, &bytes, false);
                    }
                }
                Wish::Zero(first, n) => {
                    let at = u64::from(first) * geo.block as u64;
                    self.disks[0].write(at, &vec![0; n as usize * geo.block], false);
                }
                _ => {}
            }
        }
        for g in 0..geo.groups() {
            for b in geo.inode_table(g) {
                let bytes = self.client.inodes(b, self.disks[0].block(b));
                self.disks[0].write(u64::from(b) * geo.block as u64, &bytes, false);
            }
            let bytes = self.client.bitmap(g);
            self.disks[0].write(u64::from(geo.bitmap(g)) * geo.block as u64, &bytes, false);
        }
        let free = self.client.free();
        let at = u64::from(geo.descriptors()) * geo.block as u64;
        self.disks[0].write(at, &image::descriptors(&geo, &free), false);
        let sb = image::superblock(&geo, free.iter().sum(), self.client.mounts, true);
        self.disks[0].write(geo.superblock_at(), &sb, false);
        self.disks[0].flushed(self.disks[0].covers());
        let (files, counting) = self.counting();
        for b in (0..geo.blocks).filter(|b| !self.reserved.contains(b)) {
            let counts = counting.contains(&b);
            let value = if counts { Value::Raw(self.disks[0].block(b).clone()) } else { Value::Any };
            self.history.reset(b, value);
        }
        self.reload(files);
        self.active_expected = false;
        // Entries that a check leaves unverified are of another time.
        self.doubt = true;
    }

    /// Whether the session keeps replicas.
    pub(super) fn is_active(&self) -> bool {
        self.volume.as_ref().is_some_and(|v| *v.standing() == Standing::Active)
    }

    /// The daemon is asked to end.
    pub(super) fn begin_detach(&mut self) {
        self.say(|_| "the daemon is asked to end".into());
        self.session.ending = true;
        let now = self.nanos();
        if let Some(v) = &mut self.volume {
            v.begin_detach(now);
        }
    }

    /// What follows a loss of power or a kill.
    pub(super) fn recover(&mut self) {
        let mut steps = vec![Step::Check, Step::Attach, Step::Mount];
        if self.rng.below(5) == 0 {
            // Nobody checks at first.
            steps = vec![Step::Look, Step::Attach, Step::Mount];
        }
        self.steps = steps.into();
    }
}
