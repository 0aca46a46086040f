//! A device with a volatile cache: what was written since the last completed flush may be lost in part.
//!
//! V1: a write that was completed before a flush began survives once that flush has completed; any
//!     other write in the cache survives a loss of power or does not, each for itself.
//! V2: of two writes to one block that both survive, the later counts.
//! V3: a failed flush leaves what it covered in the cache for ever: readable, never durable.
//! V4: a drive that lies about flushes says that they are done, and V1 holds for none of them.
//! V5: beside what there is, a device may keep what there would be without the daemon's own writes.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use fs2_block::{Extent, ReadAt};

use super::content::{Content, Grain, SECTOR};

/// One write in the cache: the blocks it changed.
#[derive(Clone, Debug)]
struct Cached {
    seq: u32,
    /// The bytes it wrote: of a block that it wrote in part the rest is not its own, and not kept with it (V1).
    extent: Extent,
    /// What a read brings of them while it is the latest.
    blocks: Vec<(u32, Content)>,
    stuck: bool,
    /// V5: the same over what there would be; nothing for the daemon's own.
    plain: Vec<(u32, Content)>,
}

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    base: Arc<Vec<u8>>,
    grain: Grain,
    durable: BTreeMap<u32, Content>,
    cache: Vec<Cached>,
    next: u32,
    /// States after each change, while they are recorded.
    history: Option<Vec<Device>>,
    /// V4: and what it said to be durable: writes before this one.
    lies: Option<u32>,
    /// V5: what would be durable.
    plain: Option<BTreeMap<u32, Content>>,
}

impl Device {
    /// A device that holds `base`, durably.
    ///
    /// # Panics
    /// Where that is not of whole blocks.
    pub fn new(base: Arc<Vec<u8>>, grain: Grain) -> Device {
        assert!(base.len().is_multiple_of(grain.block()), "a device of whole blocks");
        Device {
            base,
            grain,
            durable: BTreeMap::new(),
            cache: Vec::new(),
            next: 0,
            history: None,
            lies: None,
            plain: None,
        }
    }

    /// What a read of `block` brings.
    pub fn block(&self, block: u32) -> Content {
        let cached = self.cache.iter().rev().find_map(|c| c.blocks.iter().find(|b| b.0 == block));
        match cached.map(|b| &b.1).or_else(|| self.durable.get(&block)) {
            Some(content) => content.clone(),
            None => self.at_first(block),
        }
    }

    fn at_first(&self, block: u32) -> Content {
        let size = self.grain.block();
        Content::from_bytes(&self.base[block as usize * size..][..size], self.grain)
    }

    /// The drive lies about flushes from now on (V4).
    pub fn lie(&mut self) {
        self.lies = Some(self.next);
    }

    /// Whether it lies.
    pub fn lies(&self) -> bool {
        self.lies.is_some()
    }

    /// Whether a drive that does not lie could leave this of the cache.
    pub fn is_honest(&self, keep: u64) -> bool {
        let promised = self.lies.unwrap_or(0);
        self.cache
            .iter()
            .enumerate()
            .all(|(i, c)| c.seq >= promised || c.stuck || keep.checked_shr(i as u32).unwrap_or(0) & 1 == 1)
    }

    /// Keeps, beside what there is, what there would be without the daemon's own writes (V5).
    pub fn keep_plain(&mut self) {
        assert!(self.cache.is_empty(), "from a device at rest");
        self.plain = Some(self.durable.clone());
    }

    /// What a read of `block` would bring without the daemon's own writes; `None` where that is not kept.
    pub fn plain_block(&self, block: u32) -> Option<Content> {
        let durable = self.plain.as_ref()?;
        let cached = self.cache.iter().rev().find_map(|c| c.plain.iter().find(|b| b.0 == block));
        let found = cached.map(|b| &b.1).or_else(|| durable.get(&block)).cloned();
        Some(found.unwrap_or_else(|| self.at_first(block)))
    }

    /// What a read of `extent` brings.
    ///
    /// # Panics
    /// Where it is not inside the device.
    pub fn read(&self, extent: Extent) -> Vec<u8> {
        let (from, len, size) = (extent.offset() as usize, extent.len() as usize, self.grain.block());
        let first = from / size;
        let end = (from + len).div_ceil(size);
        let mut bytes = vec![0; (end - first) * size];
        for (block, to) in (first as u32..).zip(bytes.chunks_exact_mut(size)) {
            self.block(block).put(to, self.grain);
        }
        bytes[from - first * size..][..len].to_vec()
    }

    /// Writes whole sectors into the cache.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.write_as(offset, bytes, false);
    }

    /// The same, as the daemon's own or not (V5).
    pub fn write_as(&mut self, offset: u64, bytes: &[u8], own: bool) {
        let blocks = self.merged(offset, bytes);
        let plain = if own { Vec::new() } else { self.merged_plain(offset, bytes) };
        let extent = Extent::new(offset, bytes.len() as u64);
        self.cache.push(Cached { seq: self.next, extent, blocks, stuck: false, plain });
        self.next += 1;
        self.remember();
    }

    /// Keeps its state after each write and flush from now on.
    pub fn record(&mut self) {
        self.history = Some(Vec::new());
    }

    /// The states kept.
    pub fn recorded(&mut self) -> Vec<Device> {
        self.history.take().unwrap_or_default()
    }

    fn remember(&mut self) {
        if let Some(mut history) = self.history.take() {
            history.push(self.clone());
            self.history = Some(history);
        }
    }

    /// Writes whole sectors, durable at once: FUA, or who writes with no daemon attached and waits.
    pub fn write_through(&mut self, offset: u64, bytes: &[u8]) {
        let (blocks, plain) = (self.merged(offset, bytes), self.merged_plain(offset, bytes));
        let extent = Extent::new(offset, bytes.len() as u64);
        let write = Cached { seq: self.next, extent, blocks, stuck: false, plain };
        let mut older = std::mem::take(&mut self.cache);
        self.destage(write, &mut older);
        self.cache = older;
    }

    /// A write becomes durable, and no more than it; `older` are those in the cache that it came after.
    fn destage(&mut self, c: Cached, older: &mut Vec<Cached>) {
        let grain = self.grain;
        // What is older is over where this covers it.
        for old in older.iter_mut() {
            cover(&mut old.blocks, old.extent, &c.blocks, c.extent, grain);
            cover(&mut old.plain, old.extent, &c.plain, c.extent, grain);
        }
        older.retain(|old| !old.blocks.is_empty());
        for (block, content) in c.blocks {
            let was = self.durable.get(&block).cloned().unwrap_or_else(|| self.at_first(block));
            self.durable.insert(block, over(was, &content, block, c.extent, grain));
        }
        for (block, content) in c.plain {
            let was = self.plain.as_ref().and_then(|p| p.get(&block)).cloned();
            let was = was.unwrap_or_else(|| self.at_first(block));
            if let Some(durable) = &mut self.plain {
                durable.insert(block, over(was, &content, block, c.extent, grain));
            }
        }
    }

    /// V5, as [`Device::merged`].
    fn merged_plain(&self, offset: u64, bytes: &[u8]) -> Vec<(u32, Content)> {
        let (size, grain) = (self.grain.block(), self.grain);
        let merge = |block: u32, now: Content| {
            let here = Extent::new(u64::from(block) * size as u64, size as u64);
            let part = here.intersect(Extent::new(offset, bytes.len() as u64)).expect("it is touched");
            let mut now = now.bytes(grain);
            now[(part.offset() - here.offset()) as usize..][..part.len() as usize]
                .copy_from_slice(&bytes[(part.offset() - offset) as usize..][..part.len() as usize]);
            (block, Content::from_bytes(&now, grain))
        };
        let blocks = offset as usize / size..(offset as usize + bytes.len()).div_ceil(size);
        blocks.filter_map(|b| Some(merge(b as u32, self.plain_block(b as u32)?))).collect()
    }

    fn merged(&self, offset: u64, bytes: &[u8]) -> Vec<(u32, Content)> {
        let extent = Extent::new(offset, bytes.len() as u64);
        let (size, grain) = (self.grain.block(), self.grain);
        let first = offset as usize / size;
        let end = (extent.end() as usize).div_ceil(size);
        let whole = Extent::new((first * size) as u64, ((end - first) * size) as u64);
        let mut now = self.read(whole);
        now[offset as usize - first * size..][..bytes.len()].copy_from_slice(bytes);
        (first as u32..).zip(now.chunks_exact(size).map(|b| Content::from_bytes(b, grain))).collect()
    }

    /// What a flush that begins now will cover.
    pub fn flush_covers(&self) -> u32 {
        self.next
    }

    /// A flush that covers what [`Device::flush_covers`] said is done.
    pub fn flushed(&mut self, covers: u32) {
        if let Some(promised) = &mut self.lies {
            *promised = covers.max(*promised);
            return self.remember();
        }
        let (done, mut left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.cache).into_iter().partition(|c| c.seq < covers && !c.stuck);
        for c in done {
            // Those that are stuck, and those that came after.
            let mut newer = left.split_off(left.partition_point(|old| old.seq < c.seq));
            self.destage(c, &mut left);
            left.append(&mut newer);
        }
        self.cache = left;
        self.remember();
    }

    /// A flush failed (V3).
    pub fn flush_failed(&mut self, covers: u32) {
        self.cache.iter_mut().filter(|c| c.seq < covers).for_each(|c| c.stuck = true);
    }

    /// What is left if power fails now and nothing in the cache survives.
    pub fn durable(&self) -> Device {
        Device { cache: Vec::new(), ..self.clone() }
    }

    /// Writes in the cache.
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Power is lost; of the writes in the cache those with their bit in `keep` survive.
    pub fn power_loss(&mut self, keep: u64) {
        for (i, c) in std::mem::take(&mut self.cache).into_iter().enumerate() {
            if keep.checked_shr(i as u32).unwrap_or(0) & 1 == 1 {
                self.destage(c, &mut Vec::new());
            }
        }
    }

    /// Power is lost; of the sectors written in the cache those survive that `keep` says, asked one after
    /// the other. A block of two parts is torn between them: what its parts hold is what is told apart.
    pub fn power_loss_torn(&mut self, keep: &mut dyn FnMut() -> bool) {
        for c in std::mem::take(&mut self.cache) {
            let grain = self.grain;
            for (block, content) in c.blocks {
                let kept: Vec<bool> = (0..grain.block() / SECTOR).map(|_| keep()).collect();
                let torn = |was: Content, new: &Content| {
                    let new = over(was.clone(), new, block, c.extent, grain);
                    self.torn(&was, &new, &kept)
                };
                let left = torn(self.block(block), &content);
                let plain = c.plain.iter().find(|b| b.0 == block);
                let plain = plain.and_then(|(_, new)| Some(torn(self.plain_block(block)?, new)));
                if let (Some(durable), Some(plain)) = (&mut self.plain, plain) {
                    durable.insert(block, plain);
                }
                self.durable.insert(block, left);
            }
        }
    }

    fn torn(&self, was: &Content, new: &Content, kept: &[bool]) -> Content {
        if let (Some(old), Some(new)) = (was.cells(), new.cells()) {
            return Content::Cells([0, 1].map(|part| if kept[part] { new[part] } else { old[part] }));
        }
        let (mut now, new) = (was.bytes(self.grain), new.bytes(self.grain));
        for ((to, new), kept) in now.chunks_exact_mut(SECTOR).zip(new.chunks_exact(SECTOR)).zip(kept) {
            if *kept {
                to.copy_from_slice(new);
            }
        }
        Content::from_bytes(&now, self.grain)
    }

    /// Everything it holds, as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = self.base.to_vec();
        for (block, content) in self.durable.iter().chain(
            self.cache
                .iter()
                .flat_map(|c| c.blocks.iter().map(|(b, content)| (b, content)).collect::<Vec<_>>()),
        ) {
            let size = self.grain.block();
            content.put(&mut all[*block as usize * size..][..size], self.grain);
        }
        all
    }
}

impl Hash for Device {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.durable.hash(h);
        for c in &self.cache {
            (&c.blocks, c.extent, c.stuck).hash(h);
        }
    }
}

/// The bytes of `extent` that lie in a block, counted from its beginning.
fn part_of(block: u32, extent: Extent, grain: Grain) -> Range<usize> {
    let size = grain.block() as u64;
    let start = u64::from(block) * size;
    let at = |byte: u64| byte.clamp(start, start + size).wrapping_sub(start) as usize;
    at(extent.offset())..at(extent.end())
}

/// What a block holds after it was written in `extent`, where `new` is what it would hold if all of it were.
fn over(was: Content, new: &Content, block: u32, extent: Extent, grain: Grain) -> Content {
    let part = part_of(block, extent, grain);
    if part.len() == grain.block() {
        return new.clone();
    }
    let mut now = was.bytes(grain);
    now[part.clone()].copy_from_slice(&new.bytes(grain)[part]);
    Content::from_bytes(&now, grain)
}

/// Of an older write's blocks those are left that a newer one has not written over, with what it has written.
fn cover(
    old: &mut Vec<(u32, Content)>,
    extent: Extent,
    new: &[(u32, Content)],
    written: Extent,
    grain: Grain,
) {
    old.retain_mut(|(block, content)| {
        let Some((_, newer)) = new.iter().find(|n| n.0 == *block) else { return true };
        let (here, there) = (part_of(*block, extent, grain), part_of(*block, written, grain));
        if there.start <= here.start && here.end <= there.end {
            return false;
        }
        *content = over(content.clone(), newer, *block, written, grain);
        true
    });
}

/// A device as a new daemon or a checker reads it.
pub struct Reader<'a>(pub &'a Device);

impl ReadAt for Reader<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|&e| e <= self.0.base.len() as u64);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(&self.0.read(Extent::new(offset, end - offset)));
        Ok(())
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        Ok(self.0.base.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn device() -> Device {
        Device::new(Arc::new(vec![0; 8 * 1024]), Grain::SMALL)
    }

    #[test]
    fn a_flush_covers_what_was_written_before_it_began() {
        let mut d = device();
        d.write(0, &Content::of(1).bytes(Grain::SMALL));
        let covers = d.flush_covers();
        d.write(1024, &Content::of(2).bytes(Grain::SMALL));
        d.flushed(covers);
        d.power_loss(0);
        assert_eq!((d.block(0), d.block(1)), (Content::of(1), Content::of(0)));
    }

    #[test]
    fn a_failed_flush_is_never_made_good() {
        let mut d = device();
        d.write(0, &Content::of(1).bytes(Grain::SMALL));
        d.flush_failed(d.flush_covers());
        d.flushed(d.flush_covers());
        assert_eq!(d.block(0), Content::of(1));
        d.power_loss(0);
        assert_eq!(d.block(0), Content::of(0));
    }

    #[test]
    fn a_drive_that_lies_keeps_nothing_it_promised() {
        let mut d = device();
        d.lie();
        d.write(0, &Content::of(1).bytes(Grain::SMALL));
        d.flushed(d.flush_covers());
        d.write(1024, &Content::of(2).bytes(Grain::SMALL));
        assert!(d.is_honest(0b01) && d.is_honest(0b11) && !d.is_honest(0b10));
        d.power_loss(0b10);
        assert_eq!((d.block(0), d.block(1)), (Content::of(0), Content::of(2)));
    }

    #[test]
    fn what_there_would_be_without_the_daemon() {
        let mut d = device();
        d.keep_plain();
        d.write_as(0, &Content::of(1).bytes(Grain::SMALL), true);
        d.write(512, &[2; 512]);
        d.write(1024, &Content::of(3).bytes(Grain::SMALL));
        assert_eq!(d.block(0), Content::Cells([1, 0x0202]));
        assert_eq!(d.plain_block(0), Some(Content::Cells([0, 0x0202])));
        d.power_loss(0b101);
        assert_eq!(d.plain_block(0), Some(Content::of(0)));
        assert_eq!(d.plain_block(1), Some(Content::of(3)));
    }

    /// Two writes of one block's parts in the cache were one: the first could not be lost without the second.
    #[test]
    fn a_part_of_a_block_survives_for_itself() {
        let written = || {
            let mut d = device();
            d.keep_plain();
            d.write(0, &[1; 512]);
            d.write(512, &[2; 512]);
            d
        };
        for (keep, left) in
            [(0b00, [0, 0]), (0b01, [0x0101, 0]), (0b10, [0, 0x0202]), (0b11, [0x0101, 0x0202])]
        {
            let mut d = written();
            d.power_loss(keep);
            assert_eq!((d.block(0), d.plain_block(0).unwrap()), (Content::Cells(left), Content::Cells(left)));
        }
        let mut all = BTreeSet::new();
        for drawn in 0..16 {
            let (mut d, mut at) = (written(), 0..4);
            d.power_loss_torn(&mut || drawn >> at.next().unwrap() & 1 == 1);
            all.insert(d.block(0).cells().unwrap());
        }
        assert_eq!(all, BTreeSet::from([[0, 0], [0x0101, 0], [0, 0x0202], [0x0101, 0x0202]]));
    }

    #[test]
    fn what_makes_a_part_durable_leaves_the_rest_as_it_is() {
        let mut d = device();
        d.keep_plain();
        d.write(0, &[1; 512]);
        d.flush_failed(d.flush_covers());
        d.write(512, &[2; 512]);
        d.flushed(d.flush_covers());
        assert_eq!((d.block(0), d.cached()), (Content::Cells([0x0101, 0x0202]), 1));
        // Over what is stuck, without all of it.
        d.write(1024, &Content::of(3).bytes(Grain::SMALL));
        d.flush_failed(d.flush_covers());
        d.write_through(1024, &[4; 512]);
        assert_eq!((d.block(1), d.cached()), (Content::Cells([0x0404, 3]), 2));
        d.power_loss(0);
        for block in [d.block(0), d.plain_block(0).unwrap()] {
            assert_eq!(block, Content::Cells([0, 0x0202]));
        }
        for block in [d.block(1), d.plain_block(1).unwrap()] {
            assert_eq!(block, Content::Cells([0x0404, 0]));
        }
    }

    #[test]
    fn parts_of_blocks_are_merged() {
        let mut d = device();
        d.write(512, &[1; 512]);
        assert_eq!(d.block(0), Content::Cells([0, 0x0101]));
        assert_eq!(d.read(Extent::new(512, 1024))[..512], [1; 512]);
    }
}
