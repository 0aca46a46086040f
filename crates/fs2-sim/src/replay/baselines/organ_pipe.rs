//! The organ pipe: the disk's units by how often they are used, the hottest in the middle, the next ones to both
//! sides in turn.
//!
//! C. K. Wong, "Algorithmic Studies in Mass Storage Systems", 1983 (optimal for independent accesses); Paul
//! Vongsathorn and Scott D. Carson, "A System for Adaptive Disk Rearrangement", Software: Practice and Experience 20(3),
//! 1990: cylinders are counted and put in that order at the end of each day; Chris Ruemmler and John Wilkes, "Disk
//! Shuffling", Hewlett-Packard report HPL-CSP-91-30, 1991. Units change places, so no free space is used; requests, writes too, go where their
//! unit is, and one that reaches over its unit's end goes on in the next one's place.
//!
//! Parameters: units of 1 MiB, about a cylinder of the paper's drive; counts begin anew each day. On equal terms the
//! space budget is what is rearranged: so many of the hottest units are put in order around the middle, and whoever
//! was there takes the places they leave. An exchange is two reads and two writes.

use std::collections::{BTreeMap, VecDeque};

use fs2_block::{BlockSize, Extent, Nanos, Op};

use super::abr::from_the_middle;
use super::area::{Days, NIGHT};
use super::mover::{begin_of, pieces_of};
use crate::replay::redirect::{OwnIo, Redirect};

/// Blocks of a unit: 1 MiB.
const UNIT_BLOCKS: u32 = 256;

/// See the module.
#[derive(Clone)]
pub(super) struct OrganPipe {
    block_size: BlockSize,
    units: u32,
    /// Units to put in order at most.
    hot_max: usize,
    days: Days,
    counts: BTreeMap<u32, u32>,
    /// Place of each unit that is not in its own, and whose unit each such place holds.
    place: BTreeMap<u32, u32>,
    holds: BTreeMap<u32, u32>,
    /// Exchanges of the night that are left: places.
    todo: VecDeque<(u32, u32)>,
    /// Accesses of the exchange under way, and its places: they change hands with the last of them.
    exchange: VecDeque<OwnIo>,
    places: Option<(u32, u32)>,
}

impl OrganPipe {
    /// For a volume of so many blocks, of which `room` may be rearranged.
    pub(super) fn new(block_size: BlockSize, blocks: u32, room: u32) -> OrganPipe {
        OrganPipe {
            block_size,
            units: blocks / UNIT_BLOCKS,
            hot_max: (room / UNIT_BLOCKS) as usize,
            days: Days::default(),
            counts: BTreeMap::new(),
            place: BTreeMap::new(),
            holds: BTreeMap::new(),
            todo: VecDeque::new(),
            exchange: VecDeque::new(),
            places: None,
        }
    }

    fn place_of(&self, unit: u32) -> u32 {
        self.place.get(&unit).copied().unwrap_or(unit)
    }

    /// Where a block is.
    fn block_at(&self, block: u32) -> u32 {
        self.place_of(block / UNIT_BLOCKS) * UNIT_BLOCKS + block % UNIT_BLOCKS
    }

    /// Who is in a place.
    fn unit_in(&self, place: u32) -> u32 {
        self.holds.get(&place).copied().unwrap_or(place)
    }

    /// The exchange under way has ended, if its last access has.
    fn settle(&mut self) {
        if self.exchange.is_empty()
            && let Some((a, b)) = self.places.take()
        {
            let (unit_a, unit_b) = (self.unit_in(a), self.unit_in(b));
            self.put(unit_a, b);
            self.put(unit_b, a);
        }
    }

    fn put(&mut self, unit: u32, place: u32) {
        if unit == place {
            self.place.remove(&unit);
            self.holds.remove(&place);
        } else {
            self.place.insert(unit, place);
            self.holds.insert(place, unit);
        }
    }

    fn plan(&mut self) {
        self.days.begin();
        let mut hottest: Vec<(u32, u32)> = std::mem::take(&mut self.counts).into_iter().collect();
        hottest.retain(|&(unit, _)| unit < self.units);
        hottest.sort_by_key(|&(unit, n)| (std::cmp::Reverse(n), unit));
        hottest.truncate(self.hot_max);
        // As it will be after the exchanges planned so far.
        let (mut place, mut holds) = (self.place.clone(), self.holds.clone());
        // Positions around the middle of the volume, as many as there are hot units.
        let first = self.units / 2 - (hottest.len() / 2) as u32;
        for ((unit, _), i) in hottest.iter().zip(from_the_middle(hottest.len())) {
            let to = first + i as u32;
            let from = place.get(unit).copied().unwrap_or(*unit);
            if from == to {
                continue;
            }
            let other = holds.get(&to).copied().unwrap_or(to);
            self.todo.push_back((from, to));
            place.insert(*unit, to);
            holds.insert(to, *unit);
            place.insert(other, from);
            holds.insert(from, other);
        }
    }

    fn access(&self, op: Op, place: u32) -> OwnIo {
        let bytes = self.block_size.bytes_of(UNIT_BLOCKS);
        OwnIo { op, extent: Extent::new(u64::from(place) * bytes, bytes) }
    }

    /// Units that are not in their own place: place and unit, by place.
    #[cfg(test)]
    pub(super) fn layout(&self) -> Vec<(u32, u32)> {
        self.holds.iter().map(|(&place, &unit)| (place, unit)).collect()
    }
}

impl Redirect for OrganPipe {
    fn place(&mut self, _: Nanos, op: Op, extent: Extent, pieces: &mut Vec<Extent>) {
        self.settle();
        if extent.is_empty() || !matches!(op, Op::Read | Op::Write | Op::WriteZeroes) {
            return;
        }
        // An exchange that a request interrupts begins again: what it has read may be old.
        if let Some(places) = self.places.take() {
            self.todo.push_front(places);
            self.exchange.clear();
        }
        self.days.request();
        let blocks = extent.blocks_touched(self.block_size);
        for unit in blocks.start() / UNIT_BLOCKS..=(blocks.end() - 1) / UNIT_BLOCKS {
            *self.counts.entry(unit).or_default() += 1;
        }
        pieces_of(extent, self.block_size, |block| self.block_at(block), pieces);
    }

    fn begins(&self, extent: Extent) -> u64 {
        begin_of(extent, self.block_size, |block| self.block_at(block))
    }

    fn own(&mut self, now: Nanos, idle_since: Nanos) -> Option<OwnIo> {
        self.settle();
        if now < idle_since + NIGHT {
            return None;
        }
        if self.exchange.is_empty() {
            if self.todo.is_empty() && self.days.is_over() {
                self.plan();
            }
            let (a, b) = self.todo.pop_front()?;
            self.places = Some((a, b));
            self.exchange = [(Op::Read, a), (Op::Read, b), (Op::Write, a), (Op::Write, b)]
                .map(|(op, place)| self.access(op, place))
                .into();
        }
        self.exchange.pop_front()
    }

    fn wake_up(&self, idle_since: Nanos) -> Option<Nanos> {
        let work = self.places.is_some() || !self.todo.is_empty() || self.days.is_over();
        work.then_some(idle_since + NIGHT)
    }

    fn boxed_clone(&self) -> Box<dyn Redirect> {
        Box::new(self.clone())
    }
}
