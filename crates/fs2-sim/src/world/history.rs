//! What each block may hold, by version: every write a client sent, when it was sent and when it ended.
//!
//! H1: a read may bring what a write wrote unless another write, begun after that one had ended, was
//!     acknowledged before the read began.
//! H2: after a loss of power a sector may hold what a write wrote unless another, begun after that one had
//!     ended, was acknowledged before a flush began that succeeded, or with force unit access.
//! H3: a discard is a write of nobody knows what; so is never having been written.
//!
//! Times are those of a clock that ticks with each event. Nothing in here knows what the daemon thinks.

use std::sync::Arc;

use super::disk::SECTOR;

/// What a write brings.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nobody knows.
    Any,
    /// Zeroes.
    Zero,
    /// Each sector filled with the version and its own number.
    Version(u32),
    /// The block's bytes.
    Raw(Arc<[u8]>),
}

/// Names a write of a block.
pub type WriteId = u64;

/// Still in flight.
const OPEN: u64 = u64::MAX;

#[derive(Clone, Debug)]
struct Write {
    id: WriteId,
    value: Value,
    /// Sectors it wrote, and those of them that reads may still bring (a read that brought another value
    /// while nothing was in flight has settled it).
    sectors: u8,
    readable: u8,
    sent: u64,
    ended: u64,
    ok: bool,
    /// Acknowledged with force unit access.
    forced: bool,
}

impl Write {
    fn covers(&self, s: usize) -> bool {
        self.sectors >> s & 1 == 1
    }
}

/// The history of every block.
#[derive(Clone, Debug)]
pub struct History {
    blocks: Vec<Vec<Write>>,
    sectors: usize,
    clock: u64,
    next: WriteId,
    /// When the latest flush began that succeeded.
    flushed: u64,
}

/// Fills a block's sectors `from..to` with a version.
pub fn fill(version: u32, block: u32, sectors_per_block: usize, from: usize, to: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((to - from) * SECTOR);
    for s in from..to {
        let tag = tag(version, block, sectors_per_block, s).to_le_bytes();
        for _ in 0..SECTOR / 8 {
            bytes.extend_from_slice(&tag);
        }
    }
    bytes
}

fn tag(version: u32, block: u32, sectors_per_block: usize, s: usize) -> u64 {
    u64::from(version) << 32 | (u64::from(block) * sectors_per_block as u64 + s as u64)
}

impl History {
    /// Blocks of which nothing is known, of so many bytes.
    pub fn new(blocks: u32, block: usize) -> History {
        let sectors = block / SECTOR;
        let mut h =
            History { blocks: vec![Vec::new(); blocks as usize], sectors, clock: 1, next: 0, flushed: 0 };
        for b in 0..blocks {
            h.reset(b, Value::Any);
        }
        h
    }

    /// All sectors of a block.
    pub fn all(&self) -> u8 {
        ((1u16 << self.sectors) - 1) as u8
    }

    /// Sectors `from..to`.
    pub fn mask(from: usize, to: usize) -> u8 {
        ((1u16 << to) - (1u16 << from)) as u8
    }

    /// Something happened. The time before.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock - 1
    }

    /// A block holds this, durably; nothing else is possible.
    pub fn reset(&mut self, block: u32, value: Value) {
        let (id, at) = (self.next, self.tick());
        self.next += 1;
        let sectors = self.all();
        let write =
            Write { id, value, sectors, readable: sectors, sent: at, ended: at, ok: true, forced: false };
        self.blocks[block as usize] = vec![write];
    }

    /// A write of sectors of a block is sent.
    pub fn write(&mut self, block: u32, sectors: u8, value: Value, oldest_read: u64) -> WriteId {
        self.prune(block, oldest_read);
        let (id, sent) = (self.next, self.tick());
        self.next += 1;
        let write =
            Write { id, value, sectors, readable: sectors, sent, ended: OPEN, ok: false, forced: false };
        self.blocks[block as usize].push(write);
        id
    }

    /// A write ended: acknowledged or failed; one that failed may have been carried out.
    pub fn ended(&mut self, block: u32, id: WriteId, ok: bool) {
        let now = self.tick();
        if let Some(w) = self.blocks[block as usize].iter_mut().find(|w| w.id == id && w.ended == OPEN) {
            (w.ended, w.ok) = (now, ok);
        }
    }

    /// A write that was acknowledged is durable by itself.
    pub fn forced(&mut self, block: u32, id: WriteId) {
        if let Some(w) = self.blocks[block as usize].iter_mut().find(|w| w.id == id && w.ok) {
            w.forced = true;
        }
    }

    /// Every write in flight ends; each may have been carried out.
    pub fn cut_off(&mut self) {
        let now = self.tick();
        for w in self.blocks.iter_mut().flatten().filter(|w| w.ended == OPEN) {
            (w.ended, w.ok) = (now, false);
        }
    }

    /// A flush that was sent then succeeded.
    pub fn flushed(&mut self, sent: u64) {
        self.flushed = self.flushed.max(sent);
    }

    fn superseded(&self, x: &Write, s: usize, before: u64, all: &[Write]) -> bool {
        all.iter().any(|w| w.ok && w.ended < before && w.covers(s) && w.sent > x.ended)
    }

    /// No loss of power brings `x` back (H2).
    fn outlived(&self, x: &Write, s: usize, all: &[Write]) -> bool {
        self.superseded(x, s, self.flushed, all)
            || all.iter().any(|w| w.forced && w.covers(s) && w.sent > x.ended)
    }

    /// Forgets what neither a read nor a loss of power can bring any more.
    fn prune(&mut self, block: u32, oldest_read: u64) {
        let writes = &self.blocks[block as usize];
        if writes.len() < 6 {
            return;
        }
        let before = self.flushed.min(oldest_read);
        let dead =
            |x: &Write| (0..self.sectors).all(|s| !x.covers(s) || self.superseded(x, s, before, writes));
        let keep: Vec<bool> = writes.iter().map(|x| !dead(x)).collect();
        let mut keep = keep.iter();
        self.blocks[block as usize].retain(|_| *keep.next().expect("one for each"));
    }

    fn holds(&self, w: &Write, block: u32, s: usize, bytes: &[u8]) -> bool {
        let filled = |tag: u64| bytes.chunks_exact(8).all(|c| c == tag.to_le_bytes());
        match &w.value {
            Value::Any => true,
            Value::Zero => filled(0),
            Value::Version(v) => filled(tag(*v, block, self.sectors, s)),
            Value::Raw(raw) => raw[s * SECTOR..][..SECTOR] == *bytes,
        }
    }

    /// A read of a block's sectors from `first` on, sent then, brought these bytes. `oldest_read` is when the
    /// oldest read was sent that is still out: what this one settles does not bind that.
    ///
    /// # Errors
    /// Where a sector holds what it cannot.
    pub fn read(
        &mut self,
        block: u32,
        first: usize,
        sent: u64,
        bytes: &[u8],
        oldest_read: u64,
    ) -> Result<(), String> {
        for (s, sector) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            let writes = &self.blocks[block as usize];
            let legal =
                |w: &&Write| w.covers(s) && w.readable >> s & 1 == 1 && !self.superseded(w, s, sent, writes);
            let found = writes.iter().filter(legal).rfind(|w| self.holds(w, block, s, sector));
            let Some(found) = found else {
                return Err(self.wrong("a read", block, s, sector, &|w| legal(&w)));
            };
            let quiet = writes.iter().all(|w| !w.covers(s) || w.ended < sent.min(oldest_read));
            if quiet && !matches!(found.value, Value::Any) {
                let id = found.id;
                for w in self.blocks[block as usize].iter_mut().filter(|w| w.id != id) {
                    w.readable &= !(1 << s);
                }
            }
        }
        Ok(())
    }

    /// Power was lost, and a block that counts holds this: its history begins anew.
    ///
    /// # Errors
    /// Where that is neither what was flushed nor anything written since.
    pub fn after_power_loss(&mut self, block: u32, bytes: &[u8]) -> Result<(), String> {
        for (s, sector) in bytes.chunks_exact(SECTOR).enumerate() {
            let writes = &self.blocks[block as usize];
            let legal = |w: &&Write| w.covers(s) && !self.outlived(w, s, writes);
            if !writes.iter().filter(legal).any(|w| self.holds(w, block, s, sector)) {
                return Err(self.wrong("a loss of power", block, s, sector, &|w| legal(&w)));
            }
        }
        self.reset(block, Value::Raw(bytes.into()));
        Ok(())
    }

    /// Whoever reads a block now finds this; nothing is in flight. A loss of power may still bring back what
    /// it could before.
    ///
    /// # Errors
    /// Where it cannot hold that.
    pub fn adopt(&mut self, block: u32, bytes: &[u8]) -> Result<(), String> {
        let now = self.tick();
        let unknown = |w: &Write| matches!(w.value, Value::Any);
        self.read(block, 0, now, bytes, u64::MAX)?;
        let (id, sectors) = (self.next, self.all());
        let writes = &mut self.blocks[block as usize];
        let open: u8 = writes.iter().filter(|w| unknown(w)).map(|w| w.readable).fold(0, |a, b| a | b);
        if open > 0 {
            self.next += 1;
            writes.iter_mut().filter(|w| unknown(w)).for_each(|w| w.readable = 0);
            let value = Value::Raw(bytes.into());
            writes.push(Write {
                id,
                value,
                sectors,
                readable: sectors & open,
                sent: now,
                ended: now,
                ok: false,
                forced: false,
            });
        }
        Ok(())
    }

    /// A block belongs to no file: whatever it holds from now on is right.
    pub fn forget(&mut self, block: u32) {
        let id = self.write(block, self.all(), Value::Any, self.clock);
        self.ended(block, id, true);
    }

    /// Whether it would be right for a block to hold anything: nobody has written it since it was free.
    pub fn is_unknown(&self, block: u32) -> bool {
        let writes = &self.blocks[block as usize];
        let legal = |w: &Write, s| {
            w.covers(s) && w.readable >> s & 1 == 1 && !self.superseded(w, s, self.clock, writes)
        };
        (0..self.sectors).all(|s| writes.iter().any(|w| matches!(w.value, Value::Any) && legal(w, s)))
    }

    fn wrong(
        &self,
        what: &str,
        block: u32,
        s: usize,
        bytes: &[u8],
        legal: &dyn Fn(&Write) -> bool,
    ) -> String {
        let word = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("eight bytes"));
        let first = word(&bytes[..8]);
        let uniform = bytes.chunks_exact(8).all(|c| word(c) == first);
        let n = self.sectors as u64;
        let found = match (uniform, first) {
            (true, 0) => "zeroes".into(),
            (true, t) => {
                let at = t & 0xffff_ffff;
                format!("version {} of sector {} of block {}", t >> 32, at % n, at / n)
            }
            (false, t) => format!("other bytes, beginning with {t:#x}"),
        };
        let said = |w: &Write| {
            let value = match &w.value {
                Value::Any => "anything".into(),
                Value::Zero => "zeroes".into(),
                Value::Version(v) => format!("version {v}"),
                Value::Raw(b) => format!("{:#x}...", word(&b[s * SECTOR..][..8])),
            };
            let end = if w.ended == OPEN { "in flight".into() } else { format!("ended {}", w.ended) };
            let ok = if w.ok { "" } else { ", not acknowledged" };
            format!("{value} (sent {}, {end}{ok})", w.sent)
        };
        let writes = self.blocks[block as usize].iter();
        let legal: Vec<String> = writes.filter(|w| legal(w)).map(said).collect();
        format!("{what} brought, in sector {s} of block {block}, {found}; possible: {}", legal.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(version: u32) -> Vec<u8> {
        fill(version, 3, 2, 0, 2)
    }

    fn put(h: &mut History, version: u32, ok: bool) {
        let all = h.all();
        let id = h.write(3, all, Value::Version(version), u64::MAX);
        h.ended(3, id, ok);
    }

    #[test]
    fn a_read_brings_the_last_acknowledged_or_one_in_flight() {
        let mut h = History::new(8, 1024);
        put(&mut h, 1, true);
        let sent = h.tick();
        assert!(h.clone().read(3, 0, sent, &bytes(1), u64::MAX).is_ok());
        let two = h.write(3, 3, Value::Version(2), u64::MAX);
        for v in [1, 2] {
            assert!(h.clone().read(3, 0, sent, &bytes(v), u64::MAX).is_ok(), "{v} while 2 is in flight");
        }
        h.ended(3, two, true);
        assert!(
            h.clone().read(3, 0, sent, &bytes(1), u64::MAX).is_ok(),
            "the read began before 2 was acknowledged"
        );
        let sent = h.tick();
        assert!(
            h.read(3, 0, sent, &bytes(1), u64::MAX).is_err()
                && h.read(3, 0, sent, &bytes(2), u64::MAX).is_ok()
        );
        assert!(h.read(3, 0, sent, &fill(2, 4, 2, 0, 2), u64::MAX).is_err(), "the content of another block");
    }

    #[test]
    fn what_a_quiet_read_brought_stays() {
        let mut h = History::new(8, 1024);
        put(&mut h, 1, true);
        put(&mut h, 2, false);
        let sent = h.tick();
        assert!(h.read(3, 0, sent, &bytes(1), u64::MAX).is_ok());
        let sent = h.tick();
        assert!(h.read(3, 0, sent, &bytes(2), u64::MAX).is_err());
    }

    #[test]
    fn what_a_read_settles_does_not_bind_one_that_was_sent_before() {
        let mut h = History::new(8, 1024);
        put(&mut h, 1, true);
        let two = h.write(3, 3, Value::Version(2), u64::MAX);
        let early = h.tick();
        h.ended(3, two, true);
        let sent = h.tick();
        assert!(h.read(3, 0, sent, &bytes(2), early).is_ok());
        assert!(h.read(3, 0, early, &bytes(1), u64::MAX).is_ok());
    }

    #[test]
    fn what_was_flushed_survives() {
        let mut h = History::new(8, 1024);
        put(&mut h, 1, true);
        let flush = h.tick();
        h.flushed(flush);
        put(&mut h, 2, true);
        assert!(h.clone().after_power_loss(3, &bytes(1)).is_ok());
        assert!(h.clone().after_power_loss(3, &bytes(2)).is_ok());
        let flush = h.tick();
        h.flushed(flush);
        assert!(h.clone().after_power_loss(3, &bytes(1)).is_err());
    }

    /// Worlds force one write in sixteen, and took none of them for durable.
    #[test]
    fn what_was_forced_survives_without_a_flush() {
        let mut h = History::new(8, 1024);
        put(&mut h, 1, true);
        let half = h.write(3, 1, Value::Version(2), u64::MAX);
        h.forced(3, half);
        let lost = [bytes(1), fill(2, 3, 2, 0, 1)].map(|b| [&b[..512], &bytes(1)[512..]].concat());
        assert!(lost.iter().all(|b| h.clone().after_power_loss(3, b).is_ok()), "it is in flight");
        h.ended(3, half, true);
        assert!(lost.iter().all(|b| h.clone().after_power_loss(3, b).is_ok()), "nobody forced it");
        h.forced(3, half);
        assert!(h.clone().after_power_loss(3, &lost[0]).is_err());
        assert!(h.clone().after_power_loss(3, &lost[1]).is_ok());
        put(&mut h, 3, true);
        for left in [&lost[1], &bytes(3)] {
            assert!(h.clone().after_power_loss(3, left).is_ok(), "what came later may be lost");
        }
    }

    #[test]
    fn a_free_block_may_hold_anything_until_it_is_written() {
        let mut h = History::new(8, 1024);
        assert!(h.is_unknown(3));
        let half = h.write(3, 1, Value::Version(1), u64::MAX);
        h.ended(3, half, true);
        assert!(!h.is_unknown(3));
        h.forget(3);
        assert!(h.is_unknown(3));
    }

    #[test]
    fn pruning_changes_nothing_that_can_be_seen() {
        let mut h = History::new(8, 1024);
        for v in 1..50 {
            put(&mut h, v, true);
            let sent = h.tick();
            if v % 5 == 0 {
                h.flushed(sent);
            }
            assert!(h.read(3, 0, sent, &bytes(v), u64::MAX).is_ok());
            assert!(v < 2 || h.clone().read(3, 0, sent, &bytes(v - 1), u64::MAX).is_err());
            let flushed = v - v % 5;
            assert!(h.clone().after_power_loss(3, &bytes(flushed.max(1))).is_ok());
            assert!(flushed < 2 || h.clone().after_power_loss(3, &bytes(flushed - 1)).is_err());
        }
        assert!(h.blocks[3].len() < 20);
    }
}
