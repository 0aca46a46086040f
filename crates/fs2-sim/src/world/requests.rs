//! Requests: from the client's wish to the daemon and back, once or more often.

use std::sync::Arc;

use fs2_block::{ConnectionId, Extent, Flags, Op, Request, RequestId};
use fs2_engine::{DiscardMode, EOPNOTSUPP, Standing};

use super::client::{Mode, Stage, Wish};
use super::disk::SECTOR;
use super::fault::Fault;
use super::history::{self, History, Value, WriteId};
use super::{Broken, Event, World, image};

/// A client sends again after so long: the default of `nbd-client -timeout` in use is of this size.
const PATIENCE: u64 = 30_000_000_000;

/// Sent again so often, a request is taken to be stuck.
const TRIES: u32 = 40;

/// Beyond the end of a connection so much later its last discard is read.
const STALE: u64 = 2_000_000_000;

/// Refused because the daemon is about to end.
const ESHUTDOWN: i32 = 108;

/// What the client asked for, until it has its answer.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) wish: Wish,
    op: Op,
    extent: Extent,
    payload: Arc<[u8]>,
    /// The writes of blocks that it is.
    writes: Vec<(u32, WriteId)>,
    /// When it was sent first, and, of a bitmap, when it was last read from the kernel's memory.
    sent: u64,
    captured: u64,
    pub(super) send: u64,
    connection: usize,
    tries: u32,
    /// It was sent last with force unit access.
    forced: bool,
}

/// A request on its way to, or in, the daemon.
#[derive(Clone, Debug)]
pub(super) struct Send {
    /// Who waits for it; nobody, where the client has given it up.
    pub(super) ask: Option<u64>,
    pub(super) request: Request,
    pub(super) payload: Arc<[u8]>,
    session: u32,
    pub(super) arrived: bool,
    /// It lies unread in a socket until then, in ns.
    unread: u64,
    /// An I/O failed that is this request's own.
    pub(super) hurt: bool,
}

impl World {
    fn new_name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    /// When the oldest read was sent that is still out.
    fn oldest_read(&self) -> u64 {
        self.reads.first().map_or(u64::MAX, |r| r.0)
    }

    /// The client asks for something.
    pub(super) fn ask(&mut self, wish: Wish) {
        let geo = self.plan.geometry.clone();
        let (bs, sectors) = (geo.block as u64, geo.block / SECTOR);
        let whole = |first: u32, n: u32| Extent::new(u64::from(first) * bs, u64::from(n) * bs);
        let sectors_at = |first: u32, from: usize, n: usize| {
            Extent::new(u64::from(first) * bs + (from * SECTOR) as u64, (n * SECTOR) as u64)
        };
        let sent = self.history.tick();
        let oldest = self.oldest_read();
        let mut payload = Vec::new();
        let mut writes = Vec::new();
        let all = self.history.all();
        let (op, extent) = match wish {
            Wish::Read(first, from, n) => (Op::Read, sectors_at(first, from, n)),
            Wish::Write(first, from, n) => {
                self.versions += 1;
                let (mut block, mut s, mut left) = (first, from, n);
                while left > 0 {
                    let to = (s + left).min(sectors);
                    payload.extend(history::fill(self.versions, block, sectors, s, to));
                    let value = Value::Version(self.versions);
                    writes.push((block, self.history.write(block, History::mask(s, to), value, oldest)));
                    (block, left, s) = (block + 1, left - (to - s), 0);
                }
                (Op::Write, sectors_at(first, from, n))
            }
            Wish::Zero(first, n) => {
                for b in first..first + n {
                    writes.push((b, self.history.write(b, all, Value::Zero, oldest)));
                }
                (Op::WriteZeroes, whole(first, n))
            }
            Wish::Discard(first, n) => {
                for b in first..first + n {
                    self.client.blocks[b as usize].discarding += 1;
                    writes.push((b, self.history.write(b, all, Value::Any, oldest)));
                }
                (if self.plan.punches { Op::Punch } else { Op::Discard }, whole(first, n))
            }
            Wish::Inodes(block) => {
                payload = self.client.inodes(block, self.disks[0].block(block));
                (Op::Write, whole(block, 1))
            }
            // The bytes are taken when it is read from the kernel's memory.
            Wish::Bitmap(g) => (Op::Write, whole(geo.bitmap(g), 1)),
            Wish::Descriptors => {
                payload = image::descriptors(&geo, &self.client.free());
                (Op::Write, whole(geo.descriptors(), 1))
            }
            Wish::Superblock { clean } => {
                let free = self.client.free().iter().sum();
                payload = image::superblock(&geo, free, self.client.mounts, clean);
                (Op::Write, Extent::new(geo.superblock_at(), 1024))
            }
            Wish::Sync => (Op::Flush, Extent::default()),
        };
        match wish {
            Wish::Inodes(b) => self.raw_write(b, 0, &payload, oldest, &mut writes),
            Wish::Descriptors => self.raw_write(geo.descriptors(), 0, &payload, oldest, &mut writes),
            Wish::Superblock { .. } => {
                let at = (geo.superblock_at() % bs) as usize / SECTOR;
                self.raw_write(geo.superblock(), at, &payload, oldest, &mut writes);
            }
            _ => {}
        }
        let name = self.new_name();
        if op == Op::Read {
            self.reads.insert((sent, name));
        }
        let connection = self.rng.below(self.connections.len() as u64) as usize;
        for b in extent.blocks_touched(self.plan.geometry_block()).iter() {
            self.client.blocks[b.0 as usize].busy += 1;
        }
        let ask = Ask {
            wish,
            op,
            extent,
            payload: payload.into(),
            writes,
            sent,
            captured: sent,
            send: 0,
            connection,
            tries: 0,
            forced: false,
        };
        self.asks.insert(name, ask);
        self.send(name);
    }

    fn raw_write(
        &mut self,
        block: u32,
        from: usize,
        bytes: &[u8],
        oldest: u64,
        writes: &mut Vec<(u32, WriteId)>,
    ) {
        let mut whole = self.disks[0].block(block).to_vec();
        whole[from * SECTOR..][..bytes.len()].copy_from_slice(bytes);
        let mask = History::mask(from, from + bytes.len() / SECTOR);
        writes.push((block, self.history.write(block, mask, Value::Raw(whole.into()), oldest)));
    }

    /// Sends what was asked for, for the first time or again.
    pub(super) fn send(&mut self, name: u64) {
        let send = self.new_name();
        let fua = self.rng.below(16) == 0;
        let ask = self.asks.get_mut(&name).expect("it was asked");
        ask.forced = fua && ask.op == Op::Write;
        ask.send = send;
        ask.tries += 1;
        let request = Request {
            id: RequestId(send),
            connection: ConnectionId(self.connections[ask.connection]),
            op: ask.op,
            extent: ask.extent,
            flags: Flags { fua: ask.forced, no_hole: false },
        };
        let (payload, again) = (ask.payload.clone(), ask.tries > 1);
        let session = self.sessions;
        self.sends.insert(
            send,
            Send { ask: Some(name), request, payload, session, arrived: false, unread: 0, hurt: false },
        );
        self.note("requests sent again", u64::from(again));
        self.say(|w| format!("send {send}: {:?} over {}", w.asks[&name].wish, request.connection.0));
        let transit = if self.rng.below(4) == 0 { self.rng.below(200_000) } else { self.rng.below(5_000) };
        self.at(transit, Event::Arrive(send));
        self.at(PATIENCE, Event::Late(send));
    }

    /// A request is read by the daemon.
    pub(super) fn arrive(&mut self, send: u64) -> Result<(), Broken> {
        let Some(s) = self.sends.get(&send).cloned() else { return Ok(()) };
        if s.arrived || self.now < s.unread {
            return Ok(());
        }
        if self.volume.is_none() || s.session != self.sessions {
            self.sends.remove(&send);
            return Ok(());
        }
        let mut payload = s.payload;
        if let Some(name) = s.ask
            && let Some(Wish::Bitmap(g)) = self.asks.get(&name).map(|a| a.wish.clone())
        {
            // K2: what the bitmap holds when it is read.
            let bytes = self.client.bitmap(g);
            let captured = self.history.tick();
            payload = bytes.clone().into();
            let block = self.plan.geometry.bitmap(g);
            let oldest = self.oldest_read();
            let id = self.history.write(block, self.history.all(), Value::Raw(bytes.into()), oldest);
            let ask = self.asks.get_mut(&name).expect("it was asked");
            ask.writes.push((block, id));
            ask.payload = payload.clone();
            ask.captured = captured;
            self.count_claims(g, &payload);
        }
        let s = self.sends.get_mut(&send).expect("it is there");
        (s.arrived, s.payload) = (true, payload.clone());
        let request = s.request;
        if s.ask.is_none() && request.op == Op::Discard {
            self.note("discards read late", 1);
            // R2 says "last write": of what was last written over the same connection, it may free what a
            // bitmap alone claims since. What anybody wrote after it was sent, it may not.
            for b in request.extent.blocks_covered(self.plan.geometry_block()).iter() {
                if self.last_writer.get(&b.0) == Some(&request.connection.0) {
                    self.client.blocks[b.0 as usize].loose = true;
                    self.note("discards read late of what the same connection wrote", 1);
                }
            }
        }
        if matches!(request.op, Op::Write | Op::WriteZeroes) {
            for b in request.extent.blocks_touched(self.plan.geometry_block()).iter() {
                self.last_writer.insert(b.0, request.connection.0);
            }
        }
        self.digest(send ^ request.extent.offset() << 20);
        self.say(|_| format!("  {send} arrives: {:?} {}", request.op, request.extent));
        self.count_arrival(&request);
        let now = self.nanos();
        let Some(volume) = &mut self.volume else { return Ok(()) };
        volume.submit(now, request, (request.op == Op::Write).then_some(&payload[..]));
        Ok(())
    }

    /// The daemon has answered.
    pub(super) fn answered(&mut self, send: u64, result: Result<(), i32>) -> Result<(), Broken> {
        let s = self.sends.remove(&send).filter(|s| s.arrived);
        let Some(s) = s else {
            return Err(format!("answer: to request {send}, which nobody awaits"));
        };
        self.digest(send << 8 ^ result.err().unwrap_or(0) as u64);
        self.say(|_| format!("  {send} is answered: {result:?}"));
        if let Err(errno) = result {
            let latched = self.session.flush_failed && s.request.op != Op::Read;
            let ending = errno == ESHUTDOWN && self.session.ending;
            let stuck = self.session.mark_stuck() && s.request.op.changes_content();
            self.note("writes refused: the mark cannot be erased", u64::from(stuck && !s.hurt && !latched));
            let trusted = self.volume.as_ref().is_some_and(|v| *v.standing() == Standing::Active);
            let punch = errno == EOPNOTSUPP && s.request.op == Op::Punch && !trusted;
            self.note("punches refused: nobody vouches for what is free", u64::from(punch));
            if !(s.hurt || latched || ending || stuck || punch) {
                return Err(format!(
                    "answer: {:?} {} failed with {errno}, and nothing had failed below",
                    s.request.op, s.request.extent
                ));
            }
        }
        let Some(ask) = s.ask.filter(|a| self.asks.get(a).is_some_and(|a| a.send == send)) else {
            self.buffers.remove(&send);
            return Ok(());
        };
        let data = self.buffers.remove(&send);
        let transit = if self.rng.below(4) == 0 { self.rng.below(200_000) } else { 0 };
        self.at(transit, Event::Reply { ask, send, result, data });
        Ok(())
    }

    /// The client has its answer.
    pub(super) fn replied(
        &mut self,
        name: u64,
        send: u64,
        result: Result<(), i32>,
        data: Option<Vec<u8>>,
    ) -> Result<(), Broken> {
        if self.asks.get(&name).is_none_or(|a| a.send != send) {
            return Ok(());
        }
        if result == Err(ESHUTDOWN) {
            // The next daemon will be asked.
            self.asks.get_mut(&name).expect("it is there").send = 0;
            return Ok(());
        }
        let ask = self.asks.remove(&name).expect("it is there");
        let ok = result.is_ok();
        for b in ask.extent.blocks_touched(self.plan.geometry_block()).iter() {
            let busy = &mut self.client.blocks[b.0 as usize].busy;
            *busy = busy.saturating_sub(1);
        }
        for (b, id) in &ask.writes {
            self.history.ended(*b, *id, ok);
            if ok && ask.forced {
                self.history.forced(*b, *id);
            }
        }
        self.note("writes with force unit access", u64::from(ok && ask.forced));
        match ask.wish {
            Wish::Read(first, from, _) => {
                self.reads.remove(&(ask.sent, name));
                if ok {
                    let data = data.ok_or_else(|| format!("answer: read {send} brought nothing"))?;
                    self.judge_read(first, from, ask.sent, &data)?;
                    self.last_read = data;
                }
            }
            Wish::Discard(first, n) => {
                for b in first..first + n {
                    let block = &mut self.client.blocks[b as usize];
                    block.discarding = block.discarding.saturating_sub(1);
                    block.discarded = true;
                }
            }
            Wish::Write(..) | Wish::Zero(..) => {}
            Wish::Bitmap(g) => {
                self.client.writing.remove(&self.plan.geometry.bitmap(g));
                if ok {
                    self.claimed(g, &ask.payload, ask.captured);
                } else {
                    self.client.dirty_bitmaps.insert(g);
                }
            }
            Wish::Inodes(b) => {
                self.client.writing.remove(&b);
                if !ok {
                    self.client.dirty_inodes.insert(b);
                }
            }
            Wish::Descriptors => {
                self.client.writing.remove(&self.plan.geometry.descriptors());
                self.client.dirty_descriptors |= !ok;
            }
            Wish::Superblock { clean } => self.superblock_written(clean, ok),
            Wish::Sync => {
                if ok {
                    self.history.flushed(ask.sent);
                }
                match (self.client.mode, ok) {
                    (Mode::Leaving(Stage::Flushing), true) => {
                        self.client.mode = Mode::Leaving(Stage::Superblock);
                    }
                    (Mode::Leaving(Stage::Last), true) => self.client.mode = Mode::Down,
                    (Mode::Leaving(_), false) => self.session.unmount_failed = true,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn superblock_written(&mut self, clean: bool, ok: bool) {
        match (self.client.mode, clean, ok) {
            (Mode::Mounting, false, true) => self.client.mode = Mode::Up,
            (Mode::Mounting, false, false) => self.session.unmount_failed = true,
            (Mode::Leaving(Stage::Superblock), true, true) => self.client.mode = Mode::Leaving(Stage::Last),
            (Mode::Leaving(Stage::Superblock), true, false) => self.session.unmount_failed = true,
            _ => {}
        }
    }

    /// Checks what a read brought, block by block.
    pub(super) fn judge_read(
        &mut self,
        first: u32,
        from: usize,
        sent: u64,
        data: &[u8],
    ) -> Result<(), Broken> {
        let sectors = self.plan.geometry.block / SECTOR;
        let oldest = self.oldest_read();
        let (mut block, mut s, mut rest) = (first, from, data);
        while !rest.is_empty() {
            let (part, left) = rest.split_at(((sectors - s) * SECTOR).min(rest.len()));
            if self.client.blocks[block as usize].allocated {
                self.history.read(block, s, sent, part, oldest).map_err(|what| format!("read: {what}"))?;
            }
            (block, s, rest) = (block + 1, 0, left);
        }
        Ok(())
    }

    /// R3: what an acknowledged bitmap says is in use, is, unless it was allocated again since it was read.
    fn claimed(&mut self, g: u32, bitmap: &[u8], captured: u64) {
        let geo = self.plan.geometry.clone();
        for b in image::bits(&geo, g, bitmap) {
            let block = &mut self.client.blocks[b as usize];
            block.claimed |= block.allocated && !block.loose && block.since < captured;
        }
    }

    /// The client has waited long.
    pub(super) fn late(&mut self, send: u64) -> Result<(), Broken> {
        let Some(ask) = self.sends.get(&send).and_then(|s| s.ask) else { return Ok(()) };
        let Some(a) = self.asks.get(&ask).filter(|a| a.send == send) else { return Ok(()) };
        let (connection, tries) = (a.connection, a.tries);
        if self.volume.is_none() {
            return Ok(());
        }
        if self.flying.is_empty() || tries > TRIES {
            return Err(format!("answer: request {send}, {:?}, is never answered", self.asks[&ask].wish));
        }
        if self.plan.punches {
            self.at(PATIENCE, Event::Late(send));
        } else {
            self.reconnect(connection);
        }
        Ok(())
    }

    /// A connection breaks: what was asked over it is asked again over another.
    pub(super) fn reconnect(&mut self, connection: usize) {
        let old = std::mem::replace(&mut self.connections[connection], self.next_connection);
        self.next_connection += 1;
        self.say(|w| format!("connection {old} breaks, {} comes", w.next_connection - 1));
        let theirs: Vec<u64> = self
            .asks
            .iter()
            .filter(|(_, a)| a.connection == connection && a.send > 0)
            .map(|(n, _)| *n)
            .collect();
        for name in theirs {
            let send = self.asks[&name].send;
            if let Some(s) = self.sends.get_mut(&send) {
                s.ask = None;
                let stale = s.request.op == Op::Discard && self.plan.engine.discard == DiscardMode::Memory;
                if !s.arrived && stale && self.rng.below(2) == 0 {
                    let soon = self.rng.below(2) == 0;
                    let after = self.rng.below(if soon { STALE / 100 } else { STALE });
                    self.baits.push((s.request.extent.offset() / self.plan.geometry.block as u64) as u32);
                    s.unread = self.now + after;
                    self.at(after, Event::Arrive(send));
                } else if !s.arrived {
                    self.sends.remove(&send);
                }
            }
            self.send(name);
        }
        self.at(STALE + self.rng.clone().below(STALE), Event::Gone(self.sessions, old));
    }

    /// Nobody waits for anything any more.
    pub(super) fn kernel_gone(&mut self) {
        self.asks.clear();
        self.reads.clear();
        for s in self.sends.values_mut() {
            s.ask = None;
        }
        self.sends.retain(|_, s| s.arrived);
        self.history.cut_off();
        self.client.mode = Mode::Down;
        for b in &mut self.client.blocks {
            (b.busy, b.discarding) = (0, 0);
        }
        self.client.writing.clear();
    }

    /// The client takes just this block.
    pub(super) fn pounce(&mut self, block: u32) {
        self.client.clock = self.history.tick();
        if self.client.mode == Mode::Up
            && self.steps.is_empty()
            && self.faulty
            && self.asks.len() < 16
            && let Some(wish) = self.client.pounce(block, &mut self.rng)
        {
            self.note("blocks taken from under the daemon", 1);
            self.ask(wish);
        }
    }

    /// The client's next request, if it has a mind to.
    pub(super) fn act(&mut self) {
        if self.asks.len() >= 16 || self.volume.is_none() {
            return;
        }
        if self.strikes(Fault::Reconnect) {
            let which = self.rng.below(self.connections.len() as u64) as usize;
            self.reconnect(which);
        }
        let lure = self.lure();
        self.client.clock = self.history.tick();
        let mix = self.plan.mix;
        if let Some(wish) = self.client.next(&mix, &mut self.rng, lure) {
            let discard = matches!(wish, Wish::Discard(..));
            self.ask(wish);
            // The worst moment for a connection to break: a discard is on its way.
            if discard && self.plan.odds.of(Fault::Reconnect) > 0 && self.rng.below(4) == 0 {
                let which = self.asks.last_key_value().map_or(0, |(_, a)| a.connection);
                self.note(Fault::Reconnect.name(), 1);
                self.reconnect(which);
            }
        }
    }
}
