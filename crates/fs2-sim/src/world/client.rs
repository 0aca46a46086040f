//! The client: a kernel's file system, as far as a block device sees it.
//!
//! It allocates blocks in memory, writes their data and their bitmaps when it likes, frees them, discards
//! them, asks for flushes. It knows nothing of the daemon's notions.
//!
//! K1: a block is read or written only while a file has it, freed only while no request for it is outstanding,
//!     and allocated only while no discard of it is.
//! K2: one write of a bitmap, an inode table's block, the descriptors is in flight at a time.
//! K3: mounting clears the clean flag and waits for it; unmounting writes everything, flushes, sets the flag,
//!     and flushes.

use std::collections::{BTreeSet, VecDeque};

use super::image::{self, DIRECT, FIRST_FILE, File, Geometry};
use super::plan::Mix;
use crate::model::swarm::Rng;

/// What the client is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is mounted.
    Down,
    /// The superblock is being written.
    Mounting,
    /// Mounted.
    Up,
    /// On the way down; how far.
    Leaving(Stage),
}

/// How far an unmount has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Data, inodes, bitmaps.
    Writing,
    /// A flush of them.
    Flushing,
    /// The superblock, clean.
    Superblock,
    /// A flush of that.
    Last,
}

/// What it wants of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Read sectors: first block, sector in it, number of sectors.
    Read(u32, usize, usize),
    /// Write sectors, as above.
    Write(u32, usize, usize),
    /// Write zeroes over whole blocks.
    Zero(u32, u32),
    /// Discard whole blocks.
    Discard(u32, u32),
    /// Write a block of an inode table.
    Inodes(u32),
    /// Write a group's bitmap.
    Bitmap(u32),
    /// Write the descriptors.
    Descriptors,
    /// Write the superblock.
    Superblock {
        /// Unmounted in order.
        clean: bool,
    },
    /// Flush.
    Sync,
}

/// What is known of a block.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// A file has it, or it is metadata or the table's.
    pub allocated: bool,
    /// A write of it reached the device since it was allocated.
    pub landed: bool,
    /// A bitmap that says it is allocated was acknowledged since.
    pub claimed: bool,
    /// Data was sent for it since it was allocated.
    pub written: bool,
    /// Outstanding discards, and other requests.
    pub discarding: u16,
    /// Outstanding reads and writes.
    pub busy: u16,
    /// Discarded since it was last written.
    pub discarded: bool,
    /// A discard that lay unread in a socket was read since it was allocated: a bitmap's claim may be lost.
    pub loose: bool,
    /// When it was allocated, by the history's clock.
    pub since: u64,
}

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    geo: Geometry,
    /// What it is at.
    pub mode: Mode,
    /// Its files, from inode [`FIRST_FILE`] on.
    pub files: Vec<File>,
    /// Every block.
    pub blocks: Vec<Block>,
    /// Runs of blocks whose data waits in memory.
    pub late: VecDeque<(u32, u32)>,
    /// To be written: blocks of inode tables.
    pub dirty_inodes: BTreeSet<u32>,
    /// Groups whose bitmap is to be written.
    pub dirty_bitmaps: BTreeSet<u32>,
    /// The descriptors are to be written.
    pub dirty_descriptors: bool,
    /// As above, being written now.
    pub writing: BTreeSet<u32>,
    /// The history's clock, as the client was told last.
    pub clock: u64,
    /// Mounts so far.
    pub mounts: u16,
    /// Mounted with `discard`, and write-zeroes are to be had.
    pub discards: bool,
    /// As above.
    pub zeroes: bool,
    recent: VecDeque<(u32, usize, usize)>,
    freed: VecDeque<u32>,
}

impl Client {
    /// A client that has not mounted yet.
    pub fn new(geo: &Geometry, discards: bool, zeroes: bool) -> Client {
        Client {
            geo: geo.clone(),
            mode: Mode::Down,
            files: Vec::new(),
            blocks: vec![Block::default(); geo.blocks as usize],
            late: VecDeque::new(),
            dirty_inodes: BTreeSet::new(),
            dirty_bitmaps: BTreeSet::new(),
            dirty_descriptors: false,
            writing: BTreeSet::new(),
            clock: 0,
            mounts: 0,
            discards,
            zeroes,
            recent: VecDeque::new(),
            freed: VecDeque::new(),
        }
    }

    /// Nothing in memory any more; these are the files on the device, and the blocks of the table.
    pub fn reload(&mut self, files: Vec<File>, reserved: &BTreeSet<u32>, mounts: u16) {
        *self = Client { mounts, ..Client::new(&self.geo, self.discards, self.zeroes) };
        let geo = self.geo.clone();
        let fixed = (0..geo.blocks).filter(|b| geo.is_static(*b) || reserved.contains(b));
        let held: Vec<u32> = fixed.chain(files.iter().flatten().flatten().copied()).collect();
        for b in held {
            let block = &mut self.blocks[b as usize];
            (block.allocated, block.landed, block.claimed, block.written) = (true, true, true, true);
        }
        self.files = files;
    }

    /// Blocks that files have.
    pub fn data(&self) -> impl Iterator<Item = u32> + '_ {
        self.files.iter().flatten().flatten().copied()
    }

    fn sectors(&self) -> usize {
        self.geo.block / super::disk::SECTOR
    }

    /// Free blocks of each group, in memory.
    pub fn free(&self) -> Vec<u32> {
        let count = |g| {
            let (start, end) = self.geo.group(g);
            (start..end).filter(|b| !self.blocks[*b as usize].allocated).count() as u32
        };
        (0..self.geo.groups()).map(count).collect()
    }

    /// The bytes of a bitmap, now.
    pub fn bitmap(&self, g: u32) -> Vec<u8> {
        image::bitmap(&self.geo, g, |b| self.blocks[b as usize].allocated)
    }

    /// The bytes of a block of an inode table, now; `found` is what is there.
    pub fn inodes(&self, block: u32, found: &[u8]) -> Vec<u8> {
        let mut bytes = found.to_vec();
        for ino in self.geo.inodes_in(block).filter(|i| *i >= FIRST_FILE) {
            let (_, at) = self.geo.inode_at(ino);
            image::put_inode(&mut bytes[at..], &self.files[(ino - FIRST_FILE) as usize], self.geo.block);
        }
        bytes
    }

    /// What it wants next while it is mounted; `lure` is a block that an adversary would like to see taken.
    pub fn next(&mut self, mix: &Mix, rng: &mut Rng, lure: Option<u32>) -> Option<Wish> {
        let weights = mix.weights();
        let mut at = rng.below(weights.iter().sum());
        let which = weights.iter().position(|w| {
            let here = at < *w;
            at = at.saturating_sub(*w);
            here
        })?;
        match which {
            0 => self.read(rng),
            1 => self.read_again(rng),
            2 => self.overwrite(rng),
            3 => self.overwrite_part(rng),
            4 if self.zeroes => self.run(rng, 4).map(|(first, n)| Wish::Zero(first, n)),
            5 => self.create(rng, lure),
            6 => self.delete(rng),
            7 => self.write_late(),
            8 => self.write_bitmap(rng),
            9 => self.write_inodes(rng),
            10 => Some(Wish::Sync),
            11 if self.discards => self.trim(rng, lure),
            12 => Some(self.read_metadata(rng)),
            _ => None,
        }
    }

    /// A run of blocks of a file whose data was sent, at most `max`.
    fn run(&self, rng: &mut Rng, max: u32) -> Option<(u32, u32)> {
        let (n, start) = (self.files.len(), rng.below(self.files.len().max(1) as u64) as usize);
        let file = (0..n).map(|i| &self.files[(start + i) % n]).find_map(|f| f.as_ref())?;
        let from = rng.below(file.len() as u64) as usize;
        let want = 1 + rng.below(u64::from(max)) as usize;
        let run = file[from..].iter().take(want).zip(file[from]..);
        let usable = |(b, next): &(&u32, u32)| **b == *next && self.blocks[**b as usize].written;
        let n = run.take_while(usable).count() as u32;
        (n > 0).then_some((file[from], n))
    }

    fn read(&mut self, rng: &mut Rng) -> Option<Wish> {
        let (first, n) = self.run(rng, 12)?;
        let sectors = self.sectors();
        let mut read = (first, 0, n as usize * sectors);
        if rng.below(6) == 0 {
            let from = rng.below(sectors as u64) as usize;
            read = (first, from, 1 + rng.below((read.2 - from) as u64) as usize);
        }
        self.recent.push_back(read);
        if self.recent.len() > 24 {
            self.recent.pop_front();
        }
        Some(Wish::Read(read.0, read.1, read.2))
    }

    fn read_again(&mut self, rng: &mut Rng) -> Option<Wish> {
        let i = rng.below(self.recent.len().max(1) as u64) as usize;
        let (first, from, n) = *self.recent.get(i)?;
        let blocks = ((from + n).div_ceil(self.sectors())) as u32;
        let there = |b: u32| self.blocks[b as usize].allocated && self.blocks[b as usize].written;
        if (first..first + blocks).all(there) {
            return Some(Wish::Read(first, from, n));
        }
        self.recent.remove(i);
        None
    }

    fn overwrite(&mut self, rng: &mut Rng) -> Option<Wish> {
        let (first, n) = self.run(rng, 8)?;
        Some(Wish::Write(first, 0, n as usize * self.sectors()))
    }

    fn overwrite_part(&mut self, rng: &mut Rng) -> Option<Wish> {
        let (first, n) = self.run(rng, 2)?;
        let all = n as usize * self.sectors();
        let from = rng.below(self.sectors() as u64) as usize;
        Some(Wish::Write(first, from, 1 + rng.below((all - from) as u64) as usize))
    }

    fn read_metadata(&mut self, rng: &mut Rng) -> Wish {
        let g = rng.below(u64::from(self.geo.groups())) as u32;
        let table = self.geo.inode_table(g);
        let block = if rng.below(2) == 0 { self.geo.bitmap(g) } else { table.start };
        Wish::Read(block, 0, self.sectors())
    }

    fn is_free(&self, b: u32) -> bool {
        let block = &self.blocks[b as usize];
        !block.allocated && block.discarding == 0 && block.busy == 0
    }

    /// A file of some blocks: in memory at once, on the device later.
    fn create(&mut self, rng: &mut Rng, lure: Option<u32>) -> Option<Wish> {
        // What a file system keeps free: else there is nothing to see.
        if self.free().iter().sum::<u32>() < self.geo.blocks / 5 {
            return self.delete(rng);
        }
        let lately = self.freed.get(rng.below(self.freed.len().max(1) as u64) as usize).copied();
        let from = match rng.below(4) {
            0 => lately,
            1 | 2 => lure,
            _ => None,
        };
        let from = from.unwrap_or_else(|| rng.below(u64::from(self.geo.blocks)) as u32);
        self.create_from(from, rng)
    }

    fn create_from(&mut self, from: u32, rng: &mut Rng) -> Option<Wish> {
        let slot = self.files.iter().position(Option::is_none)?;
        let want = 1 + rng.below(DIRECT as u64) as usize;
        let all = (from..self.geo.blocks).chain(self.geo.first..from);
        let blocks: Vec<u32> = all.filter(|b| self.is_free(*b)).take(want).collect();
        let &first = blocks.first()?;
        let mut runs: Vec<(u32, u32)> = vec![(first, 0)];
        for &b in &blocks {
            let state = &mut self.blocks[b as usize];
            let discarded = state.discarded;
            *state = Block {
                allocated: true,
                discarded,
                loose: state.loose,
                since: self.clock,
                ..Block::default()
            };
            self.dirty_bitmaps.insert(self.geo.group_of(b));
            match runs.last_mut() {
                Some((start, n)) if *start + *n == b => *n += 1,
                _ => runs.push((b, 1)),
            }
        }
        self.late.extend(runs);
        self.files[slot] = Some(blocks);
        self.touch(slot);
        match rng.below(4) {
            0 | 1 => self.write_late(),
            // The bitmap may be on its way before any data is.
            2 => self.write_bitmap_of(self.geo.group_of(first)),
            _ => None,
        }
    }

    /// A file that begins with this block, if it is free; its data, or its bitmap, at once.
    pub fn pounce(&mut self, block: u32, rng: &mut Rng) -> Option<Wish> {
        if !self.is_free(block) {
            return None;
        }
        let wish = self.create_from(block, rng);
        if wish.is_some() { wish } else { self.write_late() }
    }

    fn touch(&mut self, slot: usize) {
        self.dirty_inodes.insert(self.geo.inode_at(FIRST_FILE + slot as u32).0);
        self.dirty_descriptors = true;
    }

    /// Data that waited is written.
    pub fn write_late(&mut self) -> Option<Wish> {
        let (first, n) = self.late.pop_front()?;
        for b in first..first + n {
            self.blocks[b as usize].written = true;
        }
        Some(Wish::Write(first, 0, n as usize * self.sectors()))
    }

    /// A file goes; its blocks are discarded, or not.
    fn delete(&mut self, rng: &mut Rng) -> Option<Wish> {
        let n = self.files.len() as u64;
        let start = rng.below(n) as usize;
        let slot = (0..self.files.len()).map(|i| (start + i) % self.files.len()).find(|i| {
            let blocks = self.files[*i].as_deref().unwrap_or_default();
            !blocks.is_empty() && blocks.iter().all(|b| self.blocks[*b as usize].busy == 0)
        })?;
        let blocks = self.files[slot].take().unwrap_or_default();
        self.touch(slot);
        for &b in &blocks {
            self.blocks[b as usize] = Block { discarded: false, ..Block::default() };
            self.dirty_bitmaps.insert(self.geo.group_of(b));
            self.freed.push_back(b);
            if self.freed.len() > 64 {
                self.freed.pop_front();
            }
        }
        self.late.retain(|(first, _)| !blocks.contains(first));
        let run = blocks.iter().zip(blocks[0]..).take_while(|(b, next)| **b == *next).count();
        (self.discards && rng.below(4) > 0).then_some(Wish::Discard(blocks[0], run as u32))
    }

    /// A stretch of free blocks is discarded.
    fn trim(&mut self, rng: &mut Rng, lure: Option<u32>) -> Option<Wish> {
        let from = lure.unwrap_or_else(|| rng.below(u64::from(self.geo.blocks)) as u32);
        let want = 1 + rng.below(64) as u32;
        let first = (from..self.geo.blocks).find(|b| self.is_free(*b))?;
        let n = (first..(first + want).min(self.geo.blocks)).take_while(|b| self.is_free(*b)).count();
        Some(Wish::Discard(first, n as u32))
    }

    fn write_bitmap(&mut self, rng: &mut Rng) -> Option<Wish> {
        if self.dirty_descriptors && rng.below(4) == 0 && self.writing.insert(self.geo.descriptors()) {
            self.dirty_descriptors = false;
            return Some(Wish::Descriptors);
        }
        let idle = |g: &u32| !self.writing.contains(&self.geo.bitmap(*g));
        let all: Vec<u32> = self.dirty_bitmaps.iter().copied().filter(idle).collect();
        let g = *all.get(rng.below(all.len().max(1) as u64) as usize)?;
        self.write_bitmap_of(g)
    }

    fn write_bitmap_of(&mut self, g: u32) -> Option<Wish> {
        if !self.dirty_bitmaps.contains(&g) || !self.writing.insert(self.geo.bitmap(g)) {
            return None;
        }
        self.dirty_bitmaps.remove(&g);
        Some(Wish::Bitmap(g))
    }

    fn write_inodes(&mut self, rng: &mut Rng) -> Option<Wish> {
        let idle = |b: &u32| !self.writing.contains(b);
        let all: Vec<u32> = self.dirty_inodes.iter().copied().filter(idle).collect();
        let b = *all.get(rng.below(all.len().max(1) as u64) as usize)?;
        self.dirty_inodes.remove(&b);
        self.writing.insert(b);
        Some(Wish::Inodes(b))
    }

    /// The next thing to write before everything is on the device.
    pub fn rest(&mut self, rng: &mut Rng) -> Option<Wish> {
        let wish = self.write_late().or_else(|| self.write_inodes(rng)).or_else(|| self.write_bitmap(rng));
        wish.or_else(|| {
            let due = self.dirty_descriptors && self.writing.insert(self.geo.descriptors());
            self.dirty_descriptors &= !due;
            due.then_some(Wish::Descriptors)
        })
    }
}
