//! A device with a volatile cache: what was written since the last completed flush may be lost, whole or in
//! part, when power is.
//!
//! V1: a write that landed before a flush began survives once that flush has succeeded; any other survives a
//!     loss of power, or does not, or in some of its sectors.
//! V2: of two writes to one sector that both survive, the later counts.
//! V3: what a failed flush covered stays readable and never becomes durable, unless the failure is of the
//!     passing kind.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use fs2_block::{Extent, ReadAt, WriteAt};

/// Bytes of a sector: written whole or not at all.
pub const SECTOR: usize = 512;

/// What becomes of a cached write when power is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It survives.
    Kept,
    /// It is lost.
    Lost,
    /// Each sector for itself.
    Torn,
}

#[derive(Clone, Debug)]
struct Cached {
    seq: u64,
    block: u32,
    /// First byte in the block.
    at: usize,
    bytes: Arc<[u8]>,
    stuck: bool,
}

/// A device.
#[derive(Clone, Debug)]
pub struct Disk {
    block: usize,
    now: Vec<Arc<[u8]>>,
    durable: Vec<Arc<[u8]>>,
    cache: VecDeque<Cached>,
    next: u64,
}

impl Disk {
    /// A device that holds `bytes`, durably, in blocks of `block` bytes.
    ///
    /// # Panics
    /// Where that is not of whole blocks.
    pub fn new(bytes: &[u8], block: usize) -> Disk {
        assert!(bytes.len().is_multiple_of(block), "a device of whole blocks");
        let zero: Arc<[u8]> = vec![0; block].into();
        let of = |b: &[u8]| if b.iter().all(|x| *x == 0) { zero.clone() } else { b.into() };
        let now: Vec<Arc<[u8]>> = bytes.chunks_exact(block).map(of).collect();
        Disk { block, durable: now.clone(), now, cache: VecDeque::new(), next: 0 }
    }

    /// What a block holds.
    pub fn block(&self, block: u32) -> &Arc<[u8]> {
        &self.now[block as usize]
    }

    /// What a read brings.
    pub fn read(&self, extent: Extent) -> Vec<u8> {
        let mut out = Vec::with_capacity(extent.len() as usize);
        let (mut at, end) = (extent.offset() as usize, extent.end() as usize);
        while at < end {
            let (block, byte) = (at / self.block, at % self.block);
            let n = (self.block - byte).min(end - at);
            out.extend_from_slice(&self.now[block][byte..byte + n]);
            at += n;
        }
        out
    }

    /// Writes whole sectors: into the cache, or durably.
    pub fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) {
        let mut at = offset as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (block, byte) = (at / self.block, at % self.block);
            let (part, left) = rest.split_at((self.block - byte).min(rest.len()));
            let part: Arc<[u8]> = part.into();
            put(&mut self.now[block], byte, &part);
            self.cache.push_back(Cached {
                seq: self.next,
                block: block as u32,
                at: byte,
                bytes: part,
                stuck: false,
            });
            at += rest.len() - left.len();
            rest = left;
        }
        self.next += 1;
        if fua {
            let written = self.next - 1;
            self.destage(|c| c.seq == written);
        }
    }

    /// What a flush that begins now will cover.
    pub fn covers(&self) -> u64 {
        self.next
    }

    /// A flush that covers so much has succeeded.
    pub fn flushed(&mut self, covers: u64) {
        self.destage(|c| c.seq < covers && !c.stuck);
    }

    /// A flush failed for good (V3).
    pub fn flush_failed(&mut self, covers: u64) {
        self.cache.iter_mut().filter(|c| c.seq < covers).for_each(|c| c.stuck = true);
    }

    fn destage(&mut self, which: impl Fn(&Cached) -> bool) {
        let mut left = VecDeque::new();
        for c in std::mem::take(&mut self.cache) {
            if !which(&c) {
                left.push_back(c);
                continue;
            }
            put(&mut self.durable[c.block as usize], c.at, &c.bytes);
            // V2: what is older and still cached is over, where this covers it.
            let over = |old: &Cached| {
                old.block == c.block && old.at >= c.at && old.at + old.bytes.len() <= c.at + c.bytes.len()
            };
            left.retain(|old| !over(old));
            for old in left.iter_mut().filter(|old| old.block == c.block) {
                let (from, to) = (old.at.max(c.at), (old.at + old.bytes.len()).min(c.at + c.bytes.len()));
                if from < to {
                    put(&mut old.bytes, from - old.at, &c.bytes[from - c.at..to - c.at]);
                }
            }
        }
        self.cache = left;
    }

    /// Writes in the cache.
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Power is lost; `fate` is asked for each write in the cache, then `keep` for each sector of a torn one.
    pub fn power_loss(&mut self, mut fate: impl FnMut() -> Fate, mut keep: impl FnMut() -> bool) {
        for c in std::mem::take(&mut self.cache) {
            let to = &mut self.durable[c.block as usize];
            match fate() {
                Fate::Kept => put(to, c.at, &c.bytes),
                Fate::Lost => {}
                Fate::Torn => {
                    for (i, sector) in c.bytes.chunks(SECTOR).enumerate() {
                        if keep() {
                            put(to, c.at + i * SECTOR, sector);
                        }
                    }
                }
            }
        }
        self.now = self.durable.clone();
    }

    /// The device as it would be if power were lost and nothing in the cache survived.
    pub fn durable(&self) -> Disk {
        Disk { now: self.durable.clone(), cache: VecDeque::new(), ..self.clone() }
    }

    /// The medium itself changes a byte; what is cached of it changes too, or a flush would mend it.
    pub fn corrupt(&mut self, offset: u64, with: u8) {
        let (block, byte) = (offset as usize / self.block, offset as usize % self.block);
        for c in self.cache.iter_mut().filter(|c| c.block as usize == block && c.at <= byte) {
            if let Some(value) = c.bytes.get(byte - c.at).copied() {
                put(&mut c.bytes, byte - c.at, &[value ^ with]);
            }
        }
        for copy in [&mut self.now[block], &mut self.durable[block]] {
            let value = copy[byte] ^ with;
            put(copy, byte, &[value]);
        }
    }

    /// Bytes it holds.
    pub fn size(&self) -> u64 {
        (self.now.len() * self.block) as u64
    }
}

/// Overwrites a part of `block`, or all of it.
fn put(block: &mut Arc<[u8]>, at: usize, bytes: &[u8]) {
    if bytes.len() == block.len() {
        *block = bytes.into();
    } else {
        Arc::make_mut(block)[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// A device as a program without a daemon uses it. Reads of what `fails` says fail; so does everything after
/// `budget` writes and flushes.
pub struct Handle<'a> {
    /// The device.
    pub disk: &'a mut Disk,
    /// Which reads fail.
    pub fails: &'a mut dyn FnMut(Extent) -> bool,
    /// Writes and flushes left before the program is interrupted.
    pub budget: u64,
}

impl Handle<'_> {
    fn spend(&mut self) -> io::Result<()> {
        self.budget = self.budget.checked_sub(1).ok_or(io::ErrorKind::Interrupted)?;
        Ok(())
    }
}

impl ReadAt for Handle<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|&e| e <= self.disk.size());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let extent = Extent::new(offset, end - offset);
        if (self.fails)(extent) {
            return Err(io::Error::from_raw_os_error(5));
        }
        buf.copy_from_slice(&self.disk.read(extent));
        Ok(())
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        Ok(self.disk.size())
    }
}

impl WriteAt for Handle<'_> {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.spend()?;
        self.disk.write(offset, buf, false);
        Ok(())
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; len as usize])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.spend()?;
        self.disk.flushed(self.disk.covers());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_landed_before_it_began() {
        let mut d = Disk::new(&[0; 8192], 1024);
        d.write(0, &[1; 1024], false);
        let covers = d.covers();
        d.write(1024, &[2; 1024], false);
        d.flushed(covers);
        d.power_loss(|| Fate::Lost, || false);
        assert_eq!((d.block(0)[0], d.block(1)[0]), (1, 0));
    }

    #[test]
    fn a_stuck_write_is_read_until_power_goes_and_a_later_one_replaces_it() {
        let mut d = Disk::new(&[0; 8192], 1024);
        d.write(0, &[1; 1024], false);
        d.write(1024, &[1; 1024], false);
        d.flush_failed(d.covers());
        d.write(1024, &[2; 1024], false);
        d.flushed(d.covers());
        assert_eq!((d.block(0)[0], d.block(1)[0], d.cached()), (1, 2, 1));
        d.power_loss(|| Fate::Lost, || false);
        assert_eq!((d.block(0)[0], d.block(1)[0]), (0, 2));
    }

    #[test]
    fn a_torn_write_keeps_some_sectors() {
        let mut d = Disk::new(&[0; 8192], 4096);
        d.write(512, &[3; 1024], false);
        let mut first = true;
        d.power_loss(|| Fate::Torn, || std::mem::replace(&mut first, false));
        assert_eq!((d.block(0)[511], d.block(0)[512], d.block(0)[1024]), (0, 3, 0));
    }

    #[test]
    fn an_older_write_that_stays_cached_does_not_come_back_over_a_newer_one() {
        let mut d = Disk::new(&[0; 8192], 1024);
        d.write(0, &[1; 1024], false);
        d.write(512, &[2; 512], true);
        d.power_loss(|| Fate::Kept, || true);
        assert_eq!((d.block(0)[0], d.block(0)[512]), (1, 2));
    }

    #[test]
    fn what_the_medium_changes_no_flush_mends() {
        let mut d = Disk::new(&[0; 8192], 1024);
        d.write(512, &[1; 512], false);
        d.corrupt(600, 4);
        d.flushed(d.covers());
        assert_eq!(d.block(0)[600], 5);
        d.power_loss(|| Fate::Kept, || true);
        assert_eq!(d.block(0)[600], 5);
    }

    #[test]
    fn fua_is_durable_at_once() {
        let mut d = Disk::new(&[0; 8192], 1024);
        d.write(0, &[1; 512], false);
        d.write(0, &[2; 512], true);
        d.power_loss(|| Fate::Kept, || true);
        assert_eq!(d.block(0)[0], 2);
    }
}
