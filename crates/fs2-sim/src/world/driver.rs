//! Between the engine and the devices: dispatch, what becomes of an I/O, completion, the timer. And what the
//! world must know of the engine to count what it has met.

use std::sync::Arc;

use fs2_block::{BlockNo, Extent, Op, Request};
use fs2_engine::{Io, IoData, IoOp, Outcome, Standing, Target, Volume};

use super::disk::SECTOR;
use super::fault::Fault;
use super::session::look_at_mark;
use super::{Broken, Event, World, image};

/// A timeout's I/O takes so long, and up to twice that.
const LONG: u64 = 40_000_000_000;

/// Wakes that brought nothing, with the timer in the past: the daemon would spin.
const SPINS: u32 = 100;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Whose an I/O is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Read,
    ReplicaRead,
    Write,
    Zeroes,
    Discard,
    Punch,
    Copy,
    Table,
    OwnRead,
    Flush,
}

/// An I/O at the device.
#[derive(Clone, Debug)]
pub(super) struct Flying {
    io: Io,
    pub(super) kind: Kind,
    device: usize,
    session: u32,
    pub(super) landed: bool,
    /// How it ends.
    result: Result<(), i32>,
    /// Sectors that a failed write carries out: all, none or some.
    partly: u64,
    misdirected: bool,
    bytes: Arc<[u8]>,
    covers: u64,
    read: Vec<u8>,
}

impl World {
    /// Takes everything the engine has to say.
    pub(super) fn pump(&mut self) -> Result<(), Broken> {
        loop {
            self.take_answers()?;
            let now = self.nanos();
            let Some(volume) = &mut self.volume else { return Ok(()) };
            if self.at_device >= self.plan.depth {
                return Ok(());
            }
            match volume.poll_dispatch(now) {
                Some(io) => self.dispatch(io)?,
                None => break,
            }
        }
        // A dispatch that needs no I/O answers at once.
        self.take_answers()?;
        let Some(volume) = &self.volume else { return Ok(()) };
        if let Some(report) = volume.detached() {
            return self.session_ended(&report);
        }
        if self.at_device == 0
            && let Some(at) = volume.poll_timeout()
        {
            let late = at.0 <= self.now;
            self.woken_in_vain += u32::from(late);
            if self.woken_in_vain > SPINS {
                return Err("answer: the timer is always due and nothing is done".into());
            }
            self.wakes += 1;
            let wait = if late { 100_000 } else { at.0 - self.now };
            let n = self.wakes;
            self.at(wait, Event::Wake(n));
        }
        Ok(())
    }

    fn take_answers(&mut self) -> Result<(), Broken> {
        while let Some(reply) = self.volume.as_mut().and_then(Volume::poll_reply) {
            self.woken_in_vain = 0;
            self.answered(reply.request.0, reply.result)?;
        }
        Ok(())
    }

    pub(super) fn wake(&mut self, n: u64) {
        let now = self.nanos();
        if n == self.wakes
            && self.at_device == 0
            && let Some(v) = &mut self.volume
        {
            v.handle_timeout(now);
        }
    }

    fn kind(&self, io: &Io) -> Kind {
        let ours = |e: Extent| {
            let first = e.offset() / self.block_size();
            io.target == Target::Table || self.reserved.contains(&(first as u32))
        };
        match (&io.op, &io.data) {
            (IoOp::Flush, _) => Kind::Flush,
            (IoOp::Read, IoData::Client(id)) => {
                let asked = self.sends.get(&id.0).map(|s| s.request.extent);
                if asked == Some(io.extent) { Kind::Read } else { Kind::ReplicaRead }
            }
            (IoOp::Read, IoData::Around { .. }) => Kind::ReplicaRead,
            (IoOp::Read, _) => Kind::OwnRead,
            (IoOp::Write { .. }, IoData::Client(_)) => Kind::Write,
            (IoOp::Write { .. }, _) if ours(io.extent) => Kind::Table,
            (IoOp::Write { .. }, _) => Kind::Copy,
            (IoOp::WriteZeroes { .. }, _) => Kind::Zeroes,
            (IoOp::Discard, _) => {
                let same = |r: &Request| matches!(r.op, Op::Discard | Op::Punch) && r.extent == io.extent;
                if self.sends.values().any(|s| s.arrived && same(&s.request)) {
                    Kind::Discard
                } else {
                    Kind::Punch
                }
            }
        }
    }

    fn dispatch(&mut self, io: Io) -> Result<(), Broken> {
        self.woken_in_vain = 0;
        let kind = self.kind(&io);
        let device = usize::from(io.target == Target::Table);
        if io.extent.end() > self.disks[device].size() {
            return Err(format!("live: {kind:?} {} is outside its device", io.extent));
        }
        let bytes: Arc<[u8]> = match &io.data {
            IoData::Engine(bytes) => bytes.clone(),
            IoData::Client(id) if kind == Kind::Write => self
                .sends
                .get(&id.0)
                .map(|s| s.payload.clone())
                .ok_or_else(|| format!("answer: request {} is done after its answer", id.0))?,
            _ => Arc::new([]),
        };
        let result = self.fate(kind);
        let misdirected = kind == Kind::Copy && self.strikes(Fault::MisdirectedCopy);
        let partly = match self.rng.below(3) {
            0 => 0,
            1 => u64::MAX,
            _ => self.rng.draw(),
        };
        if result.is_err() {
            self.session.failed(kind, device);
            let forced = matches!(io.op, IoOp::Write { fua: true } | IoOp::WriteZeroes { fua: true, .. });
            // A client's is a flush as well.
            self.session.flush_failed |= forced && matches!(kind, Kind::Write | Kind::Zeroes);
            self.hurt(kind, &io);
        }
        let takes = self.takes(kind);
        let lands = self.rng.below(takes);
        let (covers, session) = (self.disks[device].covers(), self.sessions);
        let name = self.names + 1;
        self.names = name;
        self.digest(kind as u64 ^ io.extent.offset() << 8 ^ takes << 32);
        self.say(|_| {
            let how = if result.is_ok() { String::new() } else { format!(", will fail with {result:?}") };
            format!("    {kind:?} {} on {:?}, io {name}{how}", io.extent, io.target)
        });
        if matches!(kind, Kind::Copy | Kind::Punch | Kind::ReplicaRead) && self.rng.below(10) == 0 {
            // An adversary's kernel allocates just this block just now.
            let block = (io.extent.offset() / self.block_size()) as u32;
            let when = self.rng.below(takes);
            self.at(when, Event::Pounce(block));
        }
        let flying = Flying {
            io,
            kind,
            device,
            session,
            landed: false,
            result,
            partly,
            misdirected,
            bytes,
            covers,
            read: Vec::new(),
        };
        self.flying.insert(name, flying);
        self.at_device += 1;
        self.at(lands, Event::Land(name));
        self.at(takes, Event::Done(name));
        Ok(())
    }

    /// How long an I/O takes.
    fn takes(&mut self, kind: Kind) -> u64 {
        if self.now >= self.slow_until && self.strikes(Fault::SlowDevice) {
            self.slow_until = self.now + 1_000_000_000;
        }
        let (least, more) = self.plan.service;
        let mut takes = least.0 + self.rng.below(more.0);
        if self.faulty && self.now < self.slow_until {
            takes *= 50;
        }
        let client =
            matches!(kind, Kind::Read | Kind::ReplicaRead | Kind::Write | Kind::Zeroes | Kind::Discard);
        if client && self.strikes(Fault::Timeout) {
            takes = LONG + self.rng.below(LONG);
        }
        takes
    }

    fn fate(&mut self, kind: Kind) -> Result<(), i32> {
        let fault = match kind {
            Kind::Read => Fault::Read,
            Kind::ReplicaRead => Fault::ReplicaRead,
            Kind::Write | Kind::Zeroes | Kind::Discard => Fault::Write,
            Kind::Copy if self.plan.sparse && self.strikes(Fault::NoSpace) => return Err(ENOSPC),
            Kind::Copy | Kind::Punch => Fault::Copy,
            Kind::Table => Fault::TableWrite,
            Kind::OwnRead => Fault::OwnRead,
            Kind::Flush => Fault::Flush,
        };
        if self.strikes(fault) { Err(EIO) } else { Ok(()) }
    }

    /// The request whose I/O fails may fail; a replica's failure is no one's.
    fn hurt(&mut self, kind: Kind, io: &Io) {
        match (kind, &io.data) {
            (Kind::Read | Kind::Write, IoData::Client(id)) => {
                if let Some(s) = self.sends.get_mut(&id.0) {
                    s.hurt = true;
                }
            }
            (Kind::Zeroes | Kind::Discard, _) => {
                let same = |r: &Request| {
                    matches!(r.op, Op::WriteZeroes | Op::Discard | Op::Punch) && r.extent == io.extent
                };
                self.sends.values_mut().filter(|s| s.arrived && same(&s.request)).for_each(|s| s.hurt = true);
            }
            _ => {}
        }
    }

    /// The device does what it was told, or a part of it.
    pub(super) fn land(&mut self, name: u64) -> Result<(), Broken> {
        let Some(mut f) = self.flying.get(&name).filter(|f| !f.landed).cloned() else { return Ok(()) };
        f.landed = true;
        let fails = f.result.is_err();
        match f.io.op {
            IoOp::Flush => {
                if !fails {
                    self.disks[f.device].flushed(f.covers);
                } else {
                    self.note("flushes that failed", 1);
                    if f.partly & 1 == 1 {
                        self.disks[f.device].flush_failed(f.covers);
                        self.stuck = true;
                    }
                }
            }
            IoOp::Read => {
                if !fails {
                    f.read = self.disks[f.device].read(f.io.extent);
                }
            }
            IoOp::Write { fua } => {
                self.judge_live(&f)?;
                self.judge_mark(&f)?;
                let mut at = f.io.extent.offset();
                if f.misdirected {
                    at = self.misses(f.io.extent).unwrap_or(at);
                    self.say(|_| format!("    io {name} lands at {at}"));
                    self.doubt = true;
                    self.session.misdirected = true;
                }
                self.carry_out(&f, at, &f.bytes.clone(), fua);
            }
            IoOp::WriteZeroes { fua, .. } => {
                self.judge_live(&f)?;
                self.judge_mark(&f)?;
                let zeroes = vec![0; f.io.extent.len() as usize];
                self.carry_out(&f, f.io.extent.offset(), &zeroes, fua);
            }
            IoOp::Discard => {
                self.judge_live(&f)?;
                self.judge_mark(&f)?;
                // What a discarded block reads as is the device's choice.
                let rubbish = vec![if f.partly & 2 == 0 { 0 } else { 0xd5 }; f.io.extent.len() as usize];
                if f.partly & 4 == 0 {
                    self.carry_out(&f, f.io.extent.offset(), &rubbish, false);
                }
            }
        }
        if self.flying.contains_key(&name) {
            self.flying.insert(name, f);
        }
        Ok(())
    }

    /// Nothing changes while a loss of power could leave a mark that would be believed.
    fn judge_mark(&mut self, f: &Flying) -> Result<(), Broken> {
        if f.kind == Kind::Table || f.session != self.sessions {
            return Ok(());
        }
        // The first change tells, and some of the others.
        if self.session.changed && self.rng.below(64) > 0 {
            return Ok(());
        }
        self.session.changed = true;
        let mut durable = self.disks.each_ref().map(super::disk::Disk::durable);
        if look_at_mark(&mut durable, self.plan.apart) {
            return Err(format!("mark: {:?} {} lands while a mark stands", f.kind, f.io.extent));
        }
        Ok(())
    }

    fn carry_out(&mut self, f: &Flying, at: u64, bytes: &[u8], fua: bool) {
        if f.result.is_ok() {
            self.disks[f.device].write(at, bytes, fua);
        } else {
            for (i, sector) in bytes.chunks(SECTOR).enumerate() {
                if f.partly >> (i % 64) & 1 == 1 {
                    self.disks[f.device].write(at + (i * SECTOR) as u64, sector, false);
                }
            }
        }
        if f.device == 0 && matches!(f.kind, Kind::Write | Kind::Zeroes) {
            for b in f.io.extent.blocks_touched(self.plan.geometry_block()).iter() {
                let block = &mut self.client.blocks[b.0 as usize];
                block.landed |= block.allocated;
                block.loose = false;
                block.discarded = false;
            }
        }
    }

    /// The daemon writes to no block that counts, and no discard lands on one.
    fn judge_live(&mut self, f: &Flying) -> Result<(), Broken> {
        let what = match f.kind {
            Kind::Copy => "a copy",
            Kind::Punch => "a punch",
            Kind::Discard => "a discard",
            Kind::Table if f.device == 0 => {
                let blocks = f.io.extent.blocks_touched(self.plan.geometry_block());
                if let Some(b) = blocks.iter().find(|b| !self.reserved.contains(&b.0)) {
                    return Err(format!("live: a table write lands on block {b}, which is not the table's"));
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        for b in f.io.extent.blocks_touched(self.plan.geometry_block()).iter() {
            let block = &self.client.blocks[b.0 as usize];
            let live = block.allocated && (block.landed || block.claimed && !block.loose);
            if live || !self.history.is_unknown(b.0) {
                return Err(format!("live: {what} lands on block {b}, which counts ({block:?})"));
            }
        }
        Ok(())
    }

    /// Free blocks, for a copy that misses its place.
    fn misses(&mut self, wanted: Extent) -> Option<u64> {
        let n = wanted.len() / self.block_size();
        let from = self.rng.below(u64::from(self.plan.geometry.blocks)) as u32;
        let free = |b: u32| {
            let block = &self.client.blocks[b as usize];
            !block.allocated && block.discarding == 0 && self.history.is_unknown(b)
        };
        let fits = |b: u32| (b..b + n as u32).all(free);
        let at = (from..self.plan.geometry.blocks - n as u32).take(200).find(|b| fits(*b))?;
        Some(u64::from(at) * self.block_size())
    }

    /// The daemon hears that an I/O ended.
    pub(super) fn done(&mut self, name: u64) -> Result<(), Broken> {
        self.land(name)?;
        let Some(f) = self.flying.remove(&name) else { return Ok(()) };
        if f.session != self.sessions || self.volume.is_none() {
            return Ok(());
        }
        self.at_device -= 1;
        if let (Some(id), IoOp::Read, Ok(())) = (f.io.data.request(), f.io.op, f.result)
            && let Some(len) = self.sends.get(&id.0).map(|s| s.request.extent.len())
        {
            let asked = f.io.data.asked_of(&f.read, len as usize).to_vec();
            self.note("reads of parts of blocks from replicas", u64::from(asked.len() < f.read.len()));
            self.buffers.insert(id.0, asked);
        }
        self.digest(name);
        self.say(|_| format!("    io {name} ends: {:?}", f.result));
        let now = self.nanos();
        if let Some(volume) = &mut self.volume {
            volume.complete(now, f.io.id, Outcome { result: f.result, data: &f.read });
        }
        self.judge_trust()
    }

    /// Trust ends only where there is a reason, and so does a replica's hash.
    pub(super) fn judge_trust(&self) -> Result<(), Broken> {
        let Some(v) = &self.volume else { return Ok(()) };
        if let Standing::Frozen(why) = v.standing()
            && !self.session.may_freeze()
        {
            return Err(format!("trust: the session was frozen without a reason: {why}"));
        }
        if v.stats().hash_mismatches > 0 && !self.doubt {
            return Err("trust: a replica failed its hash, and nothing had happened to it".into());
        }
        Ok(())
    }

    fn flying_on(&self, kind: Kind, e: Extent) -> bool {
        self.flying.values().any(|f| f.kind == kind && f.io.extent.overlaps(e))
    }

    /// What a request meets on its arrival.
    pub(super) fn count_arrival(&mut self, r: &Request) {
        if !matches!(r.op, Op::Write | Op::WriteZeroes) {
            return;
        }
        let blocks = r.extent.blocks_touched(self.plan.geometry_block());
        let Some(v) = &self.volume else { return };
        let held = blocks.iter().any(|b| v.table().by_replica(b).is_some());
        let copying = self.flying_on(Kind::Copy, r.extent);
        let pinned = self.flying_on(Kind::ReplicaRead, r.extent);
        let reused = blocks.iter().any(|b| self.client.blocks[b.0 as usize].discarded);
        self.note("writes on held replicas", u64::from(held));
        self.note("writes on replicas being copied", u64::from(copying));
        self.note("writes on pinned replicas", u64::from(pinned));
        self.note("discarded blocks reused", u64::from(reused));
    }

    /// What a bitmap meets on its arrival.
    pub(super) fn count_claims(&mut self, g: u32, bitmap: &[u8]) {
        let Some(v) = &self.volume else { return };
        let geo = &self.plan.geometry;
        let claims = image::bits(geo, g, bitmap).any(|b| v.table().by_replica(BlockNo(b)).is_some());
        self.note("bitmaps that claim a replica (R3)", u64::from(claims));
    }

    /// A free block in which something of the daemon's is, or is about to be.
    pub(super) fn lure(&mut self) -> Option<u32> {
        let bs = self.block_size();
        let block = |e: Extent| (e.offset() / bs) as u32;
        if self.rng.below(2) == 0
            && let Some(bait) = self.baits.pop()
        {
            return Some(bait);
        }
        let mut all: Vec<u32> = self
            .flying
            .values()
            .filter(|f| matches!(f.kind, Kind::Copy | Kind::ReplicaRead | Kind::Punch))
            .map(|f| block(f.io.extent))
            .collect();
        if all.is_empty()
            && let Some(v) = &self.volume
        {
            let n = v.table().len().max(1) as u64;
            let nth = self.rng.below(n) as usize;
            all.extend(v.table().iter().nth(nth).map(|e| e.replica.0));
        }
        let i = self.rng.below(all.len().max(1) as u64) as usize;
        all.get(i).copied()
    }

    /// The medium spoils a replica.
    pub(super) fn corrupt_replica(&mut self) {
        let Some(v) = &self.volume else { return };
        let n = v.table().len() as u64;
        if n == 0 {
            return;
        }
        let nth = self.rng.below(n) as usize;
        let Some(block) = v.table().iter().nth(nth).map(|e| e.replica.0) else { return };
        if self.client.blocks[block as usize].allocated || !self.history.is_unknown(block) {
            return;
        }
        let at = u64::from(block) * self.block_size() + self.rng.below(self.block_size());
        self.disks[0].corrupt(at, 1 + self.rng.below(255) as u8);
        self.doubt = true;
        self.note(Fault::CorruptReplica.name(), 1);
        self.say(|_| format!("the medium spoils byte {at}, in a replica"));
    }

    /// The medium spoils the table.
    pub(super) fn corrupt_table(&mut self) {
        let (device, at) = if self.plan.apart {
            (1, self.rng.below(self.disks[1].size().min(64 << 10)))
        } else {
            let nth = self.rng.below(self.reserved.len() as u64) as usize;
            let Some(&block) = self.reserved.iter().nth(nth) else { return };
            // The map of its file is not the table.
            if self.map.contains(&block) {
                return;
            }
            (0, u64::from(block) * self.block_size() + self.rng.below(self.block_size()))
        };
        self.disks[device].corrupt(at, 1 + self.rng.below(255) as u8);
        self.table_spoilt = true;
        self.active_expected = false;
        self.note(Fault::CorruptTable.name(), 1);
        self.say(|_| format!("the medium spoils byte {at} of the table"));
    }

    /// Numbers of a session that has ended, or goes on.
    pub(super) fn tally(&mut self) {
        let Some(v) = &self.volume else { return };
        let s = v.stats().clone();
        let frozen = u64::from(matches!(v.standing(), Standing::Frozen(_)));
        for (what, n) in [
            ("copies published", s.copies_written),
            ("copies in vain", s.copies_void),
            ("own work begun beside requests", s.beside),
            ("reads from replicas", s.reads_from_replica),
            ("replicas invalidated", s.invalidated),
            ("replicas reclaimed", s.reclaimed),
            ("fallbacks: replica changed", s.hash_mismatches),
            ("fallbacks: replica unreadable", s.replica_errors),
            ("fallbacks: original unreadable", s.original_errors),
            ("entries verified", s.verified),
            ("entries refuted", s.refuted),
            ("table pages written", s.table_pages_written),
            ("table writes that failed", s.table_errors),
            ("blocks freed by discards", s.discarded_blocks),
            ("bitmaps that waited for a copy (R3)", s.claims_waited),
            ("freezes", frozen),
        ] {
            self.note(what, n);
        }
    }
}
