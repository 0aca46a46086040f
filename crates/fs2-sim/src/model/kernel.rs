//! The client: a file system's kernel, or a tool, and what it may see.
//!
//! It knows which blocks it has allocated, what it wrote and what was acknowledged, and from that which
//! values a read may bring. It shares nothing with the daemon's notion of free blocks.
//!
//! K1: a block is written, read or freed only while it is allocated, and allocated only while it is free
//!     and no discard of it is outstanding (unless the client has given the discard up).
//! K2: one block bitmap is in flight at a time; its content is any that the bitmap had since it was sent.
//! K3: a request is answered once.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Range;

pub use super::ask::{Ask, Meta, Role};
use super::content::Value;

/// A block the model speaks of, as an index into its list.
pub type Tracked = usize;

/// A request that is not answered yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outstanding {
    /// What.
    pub ask: Ask,
    /// Over which connection.
    pub connection: u32,
    /// A read or write: candidates and flags for each sector of each block.
    sectors: [[Sector; 2]; 2],
    /// A read: what each block held on the device since it was asked.
    held: [BTreeSet<Content0>; 2],
    /// The client no longer waits for it.
    pub given_up: bool,
    /// Its client has sent it again over another connection: the answer is no one's, but the daemon does it.
    pub late: bool,
    /// A flush: what it makes durable.
    snapshot: Vec<[Snapshot; 2]>,
    order: u32,
}

/// Values of a block's two sectors.
pub type Content0 = [Value; 2];

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Sector {
    /// A read: values it may bring. A write: values settled when it was asked. `None`: anything.
    values: Option<BTreeSet<Value>>,
    /// A read: no write was in flight since it was asked.
    quiet: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Snapshot {
    settled: Option<BTreeSet<Value>>,
    in_flight: Vec<Value>,
    written: u32,
    era: u32,
}

/// What may stand in a sector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Cell {
    /// If nothing were in flight; `None`: anything (the block is free, or was never written).
    settled: Option<BTreeSet<Value>>,
    in_flight: Vec<Value>,
    /// After a loss of power, beside what was written since.
    durable: Option<BTreeSet<Value>>,
    since: Vec<(u32, Value)>,
    /// Writes sent so far.
    written: u32,
    /// Times it was forgotten, and the last flush that told of it.
    era: u32,
    flush: u32,
}

impl Cell {
    fn of(value: Option<Value>) -> Cell {
        let set = value.map(|v| BTreeSet::from([v]));
        Cell { settled: set.clone(), durable: set, ..Cell::default() }
    }

    fn possible(&self) -> Option<BTreeSet<Value>> {
        let mut set = self.settled.clone()?;
        set.extend(&self.in_flight);
        Some(set)
    }
}

/// What a client saw that it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

/// A client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Blocks it speaks of.
    names: &'static [&'static str],
    /// A kernel's mount, or a tool that needs none.
    pub mounted: bool,
    /// Bit n: block n is allocated, in memory: a file's, or marked used.
    pub allocated: u16,
    /// Bit n: its bit in the bitmap is set, in memory. After a crash without a check files may have
    /// blocks whose bit is not.
    pub bitmap: u16,
    /// Bit n: a client's write to block n reached the device since it was allocated.
    pub landed: u16,
    cells: Vec<[Cell; 2]>,
    /// By request.
    pub outstanding: BTreeMap<u64, Outstanding>,
    /// Requests whose client is gone: answers to them are no one's.
    pub ghosts: BTreeSet<u64>,
    next_value: Vec<Value>,
    flushes: u32,
}

impl Hash for Kernel {
    fn hash<H: Hasher>(&self, h: &mut H) {
        (self.mounted, self.allocated, self.bitmap, self.landed, &self.cells).hash(h);
        (&self.outstanding, &self.ghosts, &self.next_value, self.flushes).hash(h);
    }
}

impl Kernel {
    /// A client that finds these values in blocks; `None` for a free block.
    pub fn new(names: &'static [&'static str], found: &[Option<Value>]) -> Kernel {
        let bits = found.iter().enumerate().filter(|(_, v)| v.is_some());
        let allocated = bits.map(|(i, _)| 1 << i).sum();
        Kernel {
            names,
            mounted: false,
            allocated,
            bitmap: allocated,
            landed: allocated,
            cells: found.iter().map(|v| [Cell::of(*v), Cell::of(*v)]).collect(),
            outstanding: BTreeMap::new(),
            ghosts: BTreeSet::new(),
            flushes: 0,
            next_value: (0..found.len()).map(|i| ((i as Value + 1) << 8) + 1).collect(),
        }
    }

    /// Whether a block is allocated.
    pub fn is_allocated(&self, block: Tracked) -> bool {
        self.allocated >> block & 1 == 1
    }

    /// Whether the daemon must leave a block alone: it is allocated and what it holds counts.
    pub fn is_live(&self, block: Tracked) -> bool {
        self.is_allocated(block) && self.landed >> block & 1 == 1
    }

    /// Allocates a block, in memory.
    pub fn allocate(&mut self, block: Tracked) {
        self.allocated |= 1 << block;
        self.bitmap |= 1 << block;
        self.landed &= !(1 << block);
    }

    /// A tool claims a block as it is: what it holds counts from the acknowledgement on.
    pub fn claim(&mut self, block: Tracked) {
        self.allocated |= 1 << block;
        self.bitmap |= 1 << block;
        self.landed |= 1 << block;
        self.forget(block);
    }

    /// Frees a block, in memory.
    pub fn free(&mut self, block: Tracked) {
        self.allocated &= !(1 << block);
        self.bitmap &= !(1 << block);
        self.landed &= !(1 << block);
    }

    /// Whatever a block holds, it is no one's.
    pub fn forget(&mut self, block: Tracked) {
        for cell in &mut self.cells[block] {
            *cell = Cell { era: cell.era + 1, ..Cell::default() };
        }
        for o in self.outstanding.values_mut() {
            if let Some(i) = o.ask.reads(block) {
                o.sectors[i].iter_mut().for_each(|s| s.values = None);
            }
        }
    }

    /// Outstanding requests of this kind.
    pub fn waits_for(&self, what: impl Fn(&Outstanding) -> bool) -> bool {
        self.outstanding.values().any(what)
    }

    /// Whether a discard or punch of a block is awaited.
    pub fn discarding(&self, block: Tracked) -> bool {
        self.waits_for(|o| o.ask.discards() && o.ask.touches(block) && !o.given_up)
    }

    /// Whether the client waits for nothing.
    pub fn is_idle(&self) -> bool {
        !self.waits_for(|o| !o.late)
    }

    /// Whether any request for a block is outstanding.
    pub fn busy(&self, block: Tracked) -> bool {
        self.waits_for(|o| o.ask.touches(block) && !o.given_up)
    }

    /// The next value to write to a block, never used before.
    pub fn fresh_value(&mut self, block: Tracked) -> Value {
        let v = self.next_value[block];
        self.next_value[block] += 1;
        v
    }

    /// Sends a request under the smallest free number. `now` is what the blocks it is for hold on the device,
    /// where they are made of values.
    pub fn send(&mut self, ask: Ask, connection: u32, now: &[Option<Content0>]) -> u64 {
        let taken = |id: &u64| self.outstanding.contains_key(id) || self.ghosts.contains(id);
        let id = (0..).find(|id| !taken(id)).expect("numbers never end");
        self.begin(id, ask, connection, now);
        id
    }

    /// The client sends a request again under another number; the daemon has not read the old one yet.
    pub fn lose(&mut self, id: u64) {
        if let Some(o) = self.outstanding.remove(&id) {
            self.withdraw(&o);
            self.ghosts.insert(id);
        }
    }

    /// As [`Kernel::lose`], but the daemon has read the old one: it will be done, now or later.
    pub fn send_again_later(&mut self, id: u64) {
        if let Some(o) = self.outstanding.get_mut(&id) {
            (o.given_up, o.late) = (true, true);
        }
    }

    /// The daemon reads, from a dead connection's socket, a request that was sent again since: what it does
    /// happens now, as below any server.
    pub fn arrives_late(&mut self, id: u64, ask: Ask, connection: u32, now: &[Option<Content0>]) {
        self.ghosts.remove(&id);
        self.begin(id, ask, connection, now);
        self.send_again_later(id);
    }

    /// The daemon is gone with what it had read of dead connections: it may have been done.
    pub fn forget_late(&mut self) {
        let late: Vec<u64> = self.outstanding.iter().filter(|(_, o)| o.late).map(|(id, _)| *id).collect();
        for id in late {
            let o = self.outstanding.remove(&id).expect("it was there");
            self.write_answered(&o, false);
        }
        self.ghosts.clear();
    }

    /// It was never done and never will be.
    fn withdraw(&mut self, o: &Outstanding) {
        for (block, sector, value) in o.ask.written() {
            let cell = &mut self.cells[block][sector];
            if let Some(at) = cell.in_flight.iter().position(|v| *v == value) {
                cell.in_flight.remove(at);
            }
        }
    }

    fn begin(&mut self, id: u64, ask: Ask, connection: u32, now: &[Option<Content0>]) {
        let mut o = Outstanding {
            ask,
            connection,
            sectors: Default::default(),
            held: Default::default(),
            given_up: false,
            late: false,
            snapshot: Vec::new(),
            order: 0,
        };
        for (held, now) in o.held.iter_mut().zip(now) {
            held.extend(*now);
        }
        match ask {
            _ if ask.is_read() => {
                for (block, sectors) in ask.blocks().zip(&mut o.sectors) {
                    for (s, cell) in sectors.iter_mut().zip(&self.cells[block]) {
                        *s = Sector { values: cell.possible(), quiet: cell.in_flight.is_empty() };
                    }
                }
            }
            Ask::Flush => {
                self.flushes += 1;
                o.order = self.flushes;
                let of = |c: &Cell| Snapshot {
                    settled: c.settled.clone(),
                    in_flight: c.in_flight.clone(),
                    written: c.written,
                    era: c.era,
                };
                o.snapshot = self.cells.iter().map(|[a, b]| [of(a), of(b)]).collect();
            }
            _ => {
                for (block, sector, value) in ask.written() {
                    let first = ask.blocks().start;
                    let cell = &mut self.cells[block][sector];
                    o.sectors[block - first][sector].values = cell.settled.clone();
                    cell.in_flight.push(value);
                    cell.since.push((cell.written, value));
                    cell.written += 1;
                    self.read_may_bring(block, sector, value);
                }
            }
        }
        self.outstanding.insert(id, o);
    }

    /// A write is in flight: reads of the block may bring what it writes.
    fn read_may_bring(&mut self, block: Tracked, sector: usize, value: Value) {
        for r in self.outstanding.values_mut() {
            if let Some(i) = r.ask.reads(block) {
                let s = &mut r.sectors[i][sector];
                s.quiet = false;
                if let Some(values) = &mut s.values {
                    values.insert(value);
                }
            }
        }
    }

    /// A block's content on the device changed: reads in flight may bring it.
    pub fn content_changed(&mut self, block: Tracked, to: Option<Content0>) {
        for o in self.outstanding.values_mut() {
            if let Some(i) = o.ask.reads(block) {
                o.held[i].extend(to);
            }
        }
    }

    /// A request is answered; `data` is what a read brought, block by block: of a part, in its place.
    ///
    /// # Errors
    /// What is wrong with the answer.
    pub fn answered(&mut self, id: u64, ok: bool, data: &[Option<Content0>]) -> Result<Option<Ask>, Wrong> {
        if self.ghosts.remove(&id) {
            return Ok(None);
        }
        let Some(o) = self.outstanding.remove(&id) else {
            return Err(Wrong(format!("an answer to request {id}, which nobody awaits")));
        };
        match o.ask {
            _ if o.ask.is_read() && o.late => {}
            _ if o.ask.is_read() && ok => {
                for (i, block) in o.ask.blocks().enumerate() {
                    let got = data.get(i).copied().flatten();
                    self.read_answered(block, o.ask.parts(), &o.sectors[i], &o.held[i], got)?;
                }
            }
            Ask::Flush if ok => self.flush_answered(&o),
            _ => self.write_answered(&o, ok),
        }
        Ok(if o.late { None } else { Some(o.ask) })
    }

    fn read_answered(
        &mut self,
        block: Tracked,
        parts: Range<usize>,
        sectors: &[Sector; 2],
        held: &BTreeSet<Content0>,
        got: Option<Content0>,
    ) -> Result<(), Wrong> {
        let name = self.names[block];
        if !self.is_live(block) || sectors[parts.clone()].iter().all(|s| s.values.is_none()) {
            return Ok(());
        }
        let Some(got) = got else {
            return Err(Wrong(format!("a read of {name} brought what nobody wrote")));
        };
        if !held.iter().any(|h| h[parts.clone()] == got[parts.clone()]) {
            return Err(Wrong(format!("a read of {name} brought {got:x?}, but it held {held:x?}")));
        }
        for s in parts {
            let value = got[s];
            let cell = &mut self.cells[block][s];
            let allowed = if sectors[s].quiet { &cell.settled } else { &sectors[s].values };
            if let Some(allowed) = allowed
                && !allowed.contains(&value)
            {
                return Err(Wrong(format!("a read of {name} brought {value:x}, not one of {allowed:x?}")));
            }
            if sectors[s].quiet && cell.in_flight.is_empty() && cell.settled.is_some() {
                cell.settled = Some(BTreeSet::from([value]));
            }
        }
        Ok(())
    }

    fn write_answered(&mut self, o: &Outstanding, ok: bool) {
        for (block, sector, value) in o.ask.written() {
            let before = o.sectors[block - o.ask.blocks().start][sector].values.clone();
            let cell = &mut self.cells[block][sector];
            if let Some(at) = cell.in_flight.iter().position(|v| *v == value) {
                cell.in_flight.remove(at);
            }
            match (&mut cell.settled, ok) {
                (Some(settled), true) => {
                    if let Some(before) = before {
                        settled.retain(|v| !before.contains(v));
                    }
                    settled.insert(value);
                }
                // Nothing was known: now it is this, or what was written at the same time.
                (none, true) => *none = Some(BTreeSet::from([value])),
                // A failed write may have been carried out.
                (Some(settled), false) => {
                    settled.insert(value);
                }
                (None, false) => {}
            }
        }
    }

    fn flush_answered(&mut self, o: &Outstanding) {
        for (cells, snapshots) in self.cells.iter_mut().zip(&o.snapshot) {
            for (cell, s) in cells.iter_mut().zip(snapshots) {
                if cell.era != s.era || cell.flush >= o.order {
                    continue;
                }
                cell.flush = o.order;
                cell.durable = s.settled.clone();
                cell.since.retain(|(n, v)| *n >= s.written || s.in_flight.contains(v));
            }
        }
    }

    /// Nobody answers any more: what was in flight may have happened.
    pub fn cut_off(&mut self) {
        self.ghosts.extend(std::mem::take(&mut self.outstanding).into_keys());
        self.mounted = false;
        for cell in self.cells.iter_mut().flatten() {
            let maybe = std::mem::take(&mut cell.in_flight);
            if let Some(settled) = &mut cell.settled {
                settled.extend(maybe);
            }
        }
    }

    /// Power was lost; the device holds `found` in a block that is still referred to.
    ///
    /// # Errors
    /// Where that is neither what was flushed nor anything written since.
    pub fn after_power_loss(&mut self, block: Tracked, found: Option<Content0>) -> Result<(), Wrong> {
        let name = self.names[block];
        for s in 0..2 {
            let cell = &mut self.cells[block][s];
            let Some(durable) = &cell.durable else {
                cell.settled = None;
                continue;
            };
            let mut legal = durable.clone();
            legal.extend(cell.since.iter().map(|w| w.1));
            let found = found.map(|f| f[s]);
            match found.filter(|v| legal.contains(v)) {
                Some(v) => *cell = Cell::of(Some(v)),
                None => {
                    return Err(Wrong(format!(
                        "after the loss of power {name} holds {found:x?}, not one of {legal:x?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Whether a block's content is defined after a loss of power: it was written since it was discarded.
    pub fn is_defined(&self, block: Tracked) -> bool {
        self.cells[block].iter().all(|c| c.durable.is_some())
    }

    /// A new session finds `found` in a block that is referred to; nothing is in flight.
    ///
    /// # Errors
    /// Where that is nothing it may hold.
    pub fn found(&mut self, block: Tracked, found: Option<Content0>) -> Result<(), Wrong> {
        let name = self.names[block];
        for s in 0..2 {
            let cell = &mut self.cells[block][s];
            let Some(settled) = &cell.settled else {
                // Never written: whatever is there is its content from now on, until power fails.
                cell.settled = found.map(|f| BTreeSet::from([f[s]]));
                continue;
            };
            match found.map(|f| f[s]).filter(|v| settled.contains(v) || cell.in_flight.contains(v)) {
                Some(v) if cell.in_flight.is_empty() => cell.settled = Some(BTreeSet::from([v])),
                Some(_) => {}
                None => {
                    return Err(Wrong(format!("{name} holds {found:x?}, not one of {settled:x?}")));
                }
            }
        }
        Ok(())
    }

    /// Somebody else wrote a block.
    pub fn rewritten(&mut self, block: Tracked, value: Value) {
        self.cells[block] = [Cell::of(Some(value)), Cell::of(Some(value))];
        self.allocated |= 1 << block;
        self.landed |= 1 << block;
    }
}
