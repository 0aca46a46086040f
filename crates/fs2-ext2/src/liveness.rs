//! Which blocks the daemon may use: the set F, inferred from below the file system.
//!
//! Invariants, kept through every call:
//!
//! - I1: F holds no block of static metadata, of the table, or of the first and last MiB.
//! - I2: a block that was written, zeroed or touched in part since the attach is in F only if a
//!   discard that covers it whole came after the write, over the connection of the block's last writer.
//! - I3: a block whose bit was seen set in a bitmap write is in F only if such a discard came after.
//! - I4: once frozen, F is empty and stays so (`freeze.rs`).
//! - I5: a block that was written, zeroed or touched in part while the superblock called the volume unmounted is
//!   in doubt (`unannounced`, `told`) until a bitmap write has its bit set, one before it and a superblock after both
//!   tell of it, or a discard may free it (`doubt.rs`).
//!
//! "Bit 0 frees" appears nowhere: the bitmap in flight may be half a minute old, and the block may be
//! allocated again already.

mod doubt;
mod freeze;
mod parts;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, BlockSize, ConnectionId, Extent};
use roaring::RoaringBitmap;

pub use doubt::Doubt;
pub use freeze::Freeze;
pub use parts::LivenessParts;

use crate::Layout;
use crate::block_map::merge;
use crate::superblock::DESCRIPTOR_BYTES;
use freeze::{mnt_count, state};

/// What a metadata write told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Blocks whose bit is 1 in a bitmap write: they have left F, and no replica may stay in them.
    pub claimed: Vec<BlockRange>,
    /// Those of them that were in F.
    pub allocated: Vec<BlockRange>,
    /// The write ends all trust in F. The caller freezes.
    pub freeze: Option<Freeze>,
}

/// The set F and what it is inferred from.
#[derive(Clone)]
pub struct Liveness {
    layout: Arc<Layout>,
    /// Ascending; none touch.
    excluded: Vec<BlockRange>,
    free: RoaringBitmap,
    /// Blocks in `free`: counting them takes a step for each 65,536 blocks of the volume.
    free_count: u64,
    /// By the connection over which a block was last written, or taken out of F by a bitmap.
    written: BTreeMap<ConnectionId, RoaringBitmap>,
    /// The same over connections that are gone, or nobody knows over which.
    orphaned: RoaringBitmap,
    /// What else was written over connections that are gone, at most [`DEPARTED_MAX`] sets: to join them takes time for each run of blocks.
    departed: Vec<RoaringBitmap>,
    /// Bits seen set in writes to bitmaps that are not loaded yet, of blocks not written since.
    set_unloaded: RoaringBitmap,
    loaded: RoaringBitmap,
    /// Groups below this are loaded: who looks for the next need not begin at the first.
    loaded_below: u32,
    /// What the descriptors call free in groups not loaded, beyond what of each is in F: a discard of all that is free (fstrim) tells
    /// of the same blocks.
    unloaded_free: u64,
    superblock: Box<[u8; 1024]>,
    at_attach: Box<[u8; 1024]>,
    descriptors: Vec<u8>,
    mounted: bool,
    /// While VALID was clear, something changed what only a check does.
    mended: bool,
    /// Invariant I5. Who wrote them may have died before its bitmaps.
    unannounced: RoaringBitmap,
    /// Such blocks that a superblock came after, which a tool writes last, and whose bits were not set by then: the superblock is a later
    /// tool's.
    told: RoaringBitmap,
    /// Bits seen set in bitmaps written while the superblock called the volume unmounted, and no superblock since.
    set_unannounced: RoaringBitmap,
    /// Groups whose bitmap was written while the superblock called the volume unmounted, and no superblock since.
    bitmaps_unannounced: RoaringBitmap,
    frozen: Option<Freeze>,
}

impl fmt::Debug for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liveness")
            .field("free", &self.free)
            .field("written", &self.written)
            .field("orphaned", &self.all_orphaned())
            .field("set_unloaded", &self.set_unloaded)
            .field("loaded", &self.loaded)
            .field("mnt_count", &mnt_count(&self.superblock))
            .field("state", &state(&self.superblock))
            .field("mounted", &self.mounted)
            .field("mended", &self.mended)
            .field("unannounced", &self.unannounced)
            .field("told", &self.told)
            .field("set_unannounced", &self.set_unannounced)
            .field("bitmaps_unannounced", &self.bitmaps_unannounced)
            .field("frozen", &self.frozen)
            .finish_non_exhaustive()
    }
}

/// Feeds everything that decides what may join F or leave it; the layout is left out.
impl Hash for Liveness {
    fn hash<H: Hasher>(&self, h: &mut H) {
        for set in [&self.free, &self.all_orphaned(), &self.set_unloaded, &self.loaded] {
            hash_set(set, h);
        }
        for set in [&self.unannounced, &self.told, &self.set_unannounced, &self.bitmaps_unannounced] {
            hash_set(set, h);
        }
        for (connection, set) in self.written.iter().filter(|(_, set)| !set.is_empty()) {
            connection.hash(h);
            hash_set(set, h);
        }
        (self.unloaded_free, &self.superblock, &self.at_attach, &self.descriptors).hash(h);
        (self.mounted, self.mended, self.frozen.as_ref().map(Freeze::to_string)).hash(h);
    }
}

fn hash_set(set: &RoaringBitmap, h: &mut impl Hasher) {
    let mut runs = set.iter();
    while let Some(run) = runs.next_range() {
        (*run.start(), *run.end()).hash(h);
    }
    u32::MAX.hash(h);
}

/// The first and the last MiB of a volume hold no replica: boot blocks, partition tables and RAID
/// superblocks live there.
pub const EDGE_BYTES: u64 = 1 << 20;

impl Liveness {
    /// F of a volume whose layout was read while it was clean. Empty until groups are loaded.
    /// `table` is the blocks that hold the replica table and the map of its file.
    pub fn new(layout: Arc<Layout>, table: &[BlockRange]) -> Liveness {
        let bs = layout.block_size();
        let edge = (EDGE_BYTES / u64::from(bs.bytes())) as u32;
        let blocks = layout.blocks();
        let mut excluded =
            vec![BlockRange::new(0, edge), BlockRange::new(blocks.saturating_sub(edge), blocks)];
        excluded.extend_from_slice(table);
        // Where the table lies in an edge ranges overlap, any number of them.
        let excluded = merge(excluded);
        let superblock = Box::new(*layout.superblock().raw());
        Liveness {
            excluded,
            unloaded_free: layout.groups().iter().map(|g| u64::from(g.free_blocks)).sum(),
            descriptors: layout.descriptors_bytes().to_vec(),
            at_attach: superblock.clone(),
            superblock,
            layout,
            free: RoaringBitmap::new(),
            free_count: 0,
            written: BTreeMap::new(),
            orphaned: RoaringBitmap::new(),
            departed: Vec::new(),
            set_unloaded: RoaringBitmap::new(),
            loaded: RoaringBitmap::new(),
            loaded_below: 0,
            mounted: false,
            mended: false,
            unannounced: RoaringBitmap::new(),
            told: RoaringBitmap::new(),
            set_unannounced: RoaringBitmap::new(),
            bitmaps_unannounced: RoaringBitmap::new(),
            frozen: None,
        }
    }

    /// The volume's layout.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Why F is no longer trusted, if so.
    pub fn frozen(&self) -> Option<&Freeze> {
        self.frozen.as_ref()
    }

    /// Empties F for the rest of the session.
    pub fn freeze(&mut self, why: Freeze) {
        if self.frozen.is_none() {
            self.frozen = Some(why);
        }
        self.free.clear();
        self.free_count = 0;
        self.unloaded_free = 0;
    }

    /// F.
    pub fn free(&self) -> &RoaringBitmap {
        &self.free
    }

    /// Blocks known to be free; of each group not loaded yet what is known or what its descriptor says, whichever is more. The truth may be
    /// more still, up to both together: a discard does not say whether the descriptor knew of its blocks.
    pub fn free_estimate(&self) -> u64 {
        self.free_count + self.unloaded_free
    }

    /// Whether `block` is in F.
    pub fn is_free(&self, block: BlockNo) -> bool {
        self.free.contains(block.0)
    }

    /// Whether the group's bitmap has joined F.
    pub fn is_loaded(&self, group: u32) -> bool {
        self.loaded.contains(group)
    }

    /// Blocks of a group that are in F, or may join it when its bitmap is loaded: what its descriptor says of them at the most.
    pub fn free_at_most(&self, group: u32) -> u64 {
        let blocks = self.layout.group_blocks(group);
        let unloaded = !self.is_loaded(group) && self.frozen.is_none();
        let joining = if unloaded { self.layout.groups()[group as usize].free_blocks } else { 0 };
        self.free.range_cardinality(blocks.start()..blocks.end()) + u64::from(joining)
    }

    /// Groups whose bitmap is not loaded.
    pub fn unloaded_groups(&self) -> impl Iterator<Item = u32> + '_ {
        (self.loaded_below..self.layout.group_count()).filter(|&g| !self.loaded.contains(g))
    }

    /// Number of groups not loaded.
    pub fn unloaded_count(&self) -> u32 {
        self.layout.group_count() - self.loaded.len() as u32
    }

    /// Whether `block` may ever be in F.
    pub fn in_universe(&self, block: BlockNo) -> bool {
        block.0 >= self.layout.first_data_block()
            && block.0 < self.layout.blocks()
            && !self.is_excluded(block)
            && !self.layout.is_static_metadata(block)
    }

    /// What of `range` may ever be in F, ascending: what [`Self::in_universe`] says of each block, without a look at each.
    pub fn universe_in(&self, range: BlockRange) -> Vec<BlockRange> {
        let range = range.intersect(BlockRange::new(self.layout.first_data_block(), self.layout.blocks()));
        let (mut from, mut parts) = (range.start(), Vec::new());
        for never in merge(self.excluded_in(range).chain(self.layout.static_metadata_in(range)).collect()) {
            if from < never.start() {
                parts.push(BlockRange::new(from, never.start()));
            }
            from = never.end();
        }
        if from < range.end() {
            parts.push(BlockRange::new(from, range.end()));
        }
        parts
    }

    fn is_excluded(&self, block: BlockNo) -> bool {
        let at = self.excluded.partition_point(|r| r.start() <= block.0);
        self.excluded[..at].last().is_some_and(|r| r.contains(block))
    }

    /// What of `range` is excluded. One binary search: a table may lie in a hundred thousand pieces.
    fn excluded_in(&self, range: BlockRange) -> impl Iterator<Item = BlockRange> {
        let from = self.excluded.partition_point(|r| r.end() <= range.start());
        self.excluded[from..]
            .iter()
            .take_while(move |r| r.start() < range.end())
            .map(move |r| r.intersect(range))
    }

    fn block_size(&self) -> BlockSize {
        self.layout.block_size()
    }

    /// A write, write-zeroes or partial operation touching `range` arrives over `connection` (R1).
    pub fn written(&mut self, range: BlockRange, connection: ConnectionId) {
        if range.is_empty() {
            return;
        }
        if !self.mounted {
            self.unannounced.insert_range(range.start()..range.end());
        }
        self.taken(range, connection);
    }

    /// `range` leaves F, and its last writer is `connection`.
    fn taken(&mut self, range: BlockRange, connection: ConnectionId) {
        self.leave(range);
        for (c, set) in &mut self.written {
            if *c != connection {
                take_out(set, range);
            }
        }
        for set in [&mut self.orphaned, &mut self.set_unloaded].into_iter().chain(&mut self.departed) {
            take_out(set, range);
        }
        self.written.entry(connection).or_default().insert_range(range.start()..range.end());
    }

    /// Those of `range` that are in F leave it, as if they had been written over `connection`: a discard
    /// that was left in a dead connection's socket does not bring them back. `left` gets them.
    fn claimed(&mut self, range: BlockRange, connection: ConnectionId, left: &mut Vec<BlockRange>) {
        let mut free = self.free.range(range.start()..range.end());
        let before = left.len();
        while let Some(run) = free.next_range() {
            left.push(BlockRange::new(*run.start(), *run.end() + 1));
        }
        drop(free);
        for &run in &left[before..] {
            self.taken(run, connection);
        }
    }

    /// `range` leaves F though nobody wrote it: copies there fail. Nothing brings it back but a write and a discard after that.
    pub fn withdraw(&mut self, range: BlockRange) {
        self.leave(range);
        self.orphaned.insert_range(range.start()..range.end());
    }

    /// The connection is gone: no discard over it can come any more.
    pub fn connection_gone(&mut self, connection: ConnectionId) {
        let Some(set) = self.written.remove(&connection) else { return };
        self.departed.push(set);
        if self.departed.len() > DEPARTED_MAX {
            // The two that are joined soonest.
            self.departed.sort_by_cached_key(|set| std::cmp::Reverse(set.serialized_size()));
            if let Some(least) = self.departed.pop()
                && let Some(next) = self.departed.last_mut()
            {
                *next |= &least;
            }
        }
    }

    /// All that was last written over connections that are gone, or nobody knows over which.
    fn all_orphaned(&self) -> RoaringBitmap {
        self.departed.iter().fold(self.orphaned.clone(), |all, set| all | set)
    }

    /// Whether all of `extent` lies in blocks of the file system that it may free: none beyond its end, none of metadata that
    /// never moves.
    pub fn may_be_freed(&self, extent: Extent) -> bool {
        let touched = extent.blocks_touched(self.block_size());
        let end = self.block_size().bytes_of(self.layout.blocks());
        extent.end() <= end
            && touched.start() >= self.layout.first_data_block()
            && self.layout.static_metadata_in(touched).next().is_none()
    }

    /// Blocks of `range` that a discard over `connection` may put into F (R2): in the universe, and
    /// neither written nor claimed in this session, or so last over the same connection. Joins them and
    /// says how many.
    pub fn discarded(&mut self, range: BlockRange, connection: ConnectionId, any_writer: bool) -> u64 {
        if self.frozen.is_some() {
            return 0;
        }
        let range = range.intersect(BlockRange::new(self.layout.first_data_block(), self.layout.blocks()));
        if range.is_empty() {
            return 0;
        }
        let mut joining = RoaringBitmap::new();
        joining.insert_range(range.start()..range.end());
        for never in self.excluded_in(range).chain(self.layout.static_metadata_in(range)) {
            joining.remove_range(never.start()..never.end());
        }
        if !any_writer {
            for (c, set) in &self.written {
                if *c != connection {
                    joining -= set;
                }
            }
            for set in [&self.orphaned, &self.set_unloaded].into_iter().chain(&self.departed) {
                joining -= set;
            }
        }
        for set in [&mut self.unannounced, &mut self.told] {
            // A difference goes through all of the set.
            if set.range_cardinality(range.start()..range.end()) > 0 {
                *set -= &joining;
            }
        }
        self.join(&joining)
    }

    /// Joins F; says how many did not belong to it. Run by run: a union, and a count, look at all of F, which with each group of a large
    /// volume took minutes.
    fn join(&mut self, joining: &RoaringBitmap) -> u64 {
        let (mut runs, mut joined) = (joining.iter(), 0);
        while let Some(run) = runs.next_range() {
            if self.is_all_loaded() {
                joined += self.free.insert_range(run);
                continue;
            }
            let mut rest = BlockRange::new(*run.start(), *run.end() + 1);
            while let Some((group, part)) = self.take_group(&mut rest) {
                let before = self.free_in(group);
                let new = self.free.insert_range(part.start()..part.end());
                self.unloaded_free -= self.told_twice(group, before, new);
                joined += new;
            }
        }
        self.free_count += joined;
        joined
    }

    /// `range` leaves F, as far as it is in it.
    fn leave(&mut self, mut range: BlockRange) {
        if self.is_all_loaded() {
            self.free_count -= take_out(&mut self.free, range);
            return;
        }
        while let Some((group, part)) = self.take_group(&mut range) {
            let left = take_out(&mut self.free, part);
            self.free_count -= left;
            if left > 0 {
                self.unloaded_free += self.told_twice(group, self.free_in(group), left);
            }
        }
    }

    fn is_all_loaded(&self) -> bool {
        self.loaded_below == self.layout.group_count()
    }

    /// The part of `rest` that lies in its first block's group, which `rest` has no more; what lies behind the last group counts to that.
    fn take_group(&self, rest: &mut BlockRange) -> Option<(u32, BlockRange)> {
        let part = *rest;
        if part.is_empty() {
            return None;
        }
        let group = self.layout.group_of(BlockNo(part.start()));
        let end = self.layout.group_blocks(group).end();
        let end = if end > part.start() { end.min(part.end()) } else { part.end() };
        *rest = BlockRange::new(end, part.end());
        Some((group, BlockRange::new(part.start(), end)))
    }

    /// What F takes of `unloaded_free` by `n` blocks of a group that are in it, beside `others`.
    fn told_twice(&self, group: u32, others: u64, n: u64) -> u64 {
        if n == 0 || self.loaded.contains(group) {
            return 0;
        }
        self.says_free(group).saturating_sub(others).min(n)
    }

    /// What the descriptor calls free.
    fn says_free(&self, group: u32) -> u64 {
        u64::from(self.layout.groups()[group as usize].free_blocks)
    }

    /// What the descriptor of a group not loaded calls free beyond what of it is in F.
    fn unloaded_free_of(&self, group: u32) -> u64 {
        self.says_free(group).saturating_sub(self.free_in(group))
    }

    /// Blocks of a group not loaded that are in F; of one that is loaded nobody asks.
    fn free_in(&self, group: u32) -> u64 {
        if self.loaded.contains(group) {
            return 0;
        }
        let blocks = self.layout.group_blocks(group);
        self.free.range_cardinality(blocks.start()..blocks.end())
    }

    /// A bitmap was read (R0): its zero bits, minus everything written and every bit seen set since
    /// the attach, join F. `None` where the group is loaded already or F is not trusted.
    pub fn load_group(&mut self, group: u32, bitmap: &[u8]) -> Option<()> {
        if self.frozen.is_some() || !self.insert_loaded(group) {
            return None;
        }
        let blocks = self.layout.group_blocks(group);
        let mut joining = RoaringBitmap::new();
        joining.insert_range(blocks.start()..blocks.end());
        for used in bit_runs(bitmap, blocks, true) {
            joining.remove_range(used.start()..used.end());
        }
        for never in self.excluded_in(blocks).chain(self.layout.static_metadata_in(blocks)) {
            joining.remove_range(never.start()..never.end());
        }
        for set in self.written.values().chain(&self.departed) {
            joining -= set;
        }
        joining -= &self.orphaned;
        // Claimed since the attach; over which connection, nobody noted.
        self.orphaned |= &joining & &self.set_unloaded;
        joining -= &self.set_unloaded;
        take_out(&mut self.set_unloaded, blocks);
        self.join(&joining);
        Some(())
    }

    /// Whether it was not. What its descriptor says counts no more.
    fn insert_loaded(&mut self, group: u32) -> bool {
        let says = if self.frozen.is_none() { self.unloaded_free_of(group) } else { 0 };
        let new = self.loaded.insert(group);
        self.unloaded_free -= if new { says } else { 0 };
        self.pass_loaded();
        new
    }

    fn pass_loaded(&mut self) {
        while self.loaded.contains(self.loaded_below) {
            self.loaded_below += 1;
        }
    }

    /// A group's bitmap cannot be had: it adds nothing to F in this session.
    pub fn lose_group(&mut self, group: u32) {
        self.insert_loaded(group);
    }

    /// Whether a write to `extent` carries metadata that must be looked at.
    pub fn is_telling(&self, extent: Extent) -> bool {
        let touched = extent.blocks_touched(self.block_size());
        extent.overlaps(self.layout.superblock_extent())
            || extent.overlaps(self.layout.descriptors_extent())
            || self.layout.bitmaps_in(touched).next().is_some()
    }

    /// A write of `payload` to `extent` arrives over `connection` (`None`: zeroes). Bits that are 1 take
    /// blocks out of F (R3); the superblock and the descriptors may end all trust (R4). Call after [`Self::written`].
    pub fn payload_seen(&mut self, extent: Extent, payload: Option<&[u8]>, connection: ConnectionId) -> Seen {
        let mut seen = Seen::default();
        let bs = self.block_size();
        let bitmaps: Vec<_> = self.layout.bitmaps_in(extent.blocks_touched(bs)).collect();
        if !self.mounted {
            self.bitmaps_unannounced.extend(bitmaps.iter().map(|(group, _)| group));
        }
        if let Some(payload) = payload {
            for (group, block) in bitmaps {
                if extent.intersect(block.extent(bs)) == Some(block.extent(bs)) {
                    let all = self.layout.group_blocks(group);
                    take_out(&mut self.set_unannounced, all);
                }
                for used in self.bits_set(group, block, extent, payload) {
                    self.claimed(used, connection, &mut seen.allocated);
                    if !self.loaded.contains(group) {
                        self.set_unloaded.insert_range(used.start()..used.end());
                    }
                    for set in [&mut self.unannounced, &mut self.told] {
                        take_out(set, used);
                    }
                    if !self.mounted {
                        self.set_unannounced.insert_range(used.start()..used.end());
                    }
                    seen.claimed.push(used);
                }
            }
        }
        let before = extent.overlaps(self.layout.superblock_extent()).then(|| self.superblock.clone());
        if overlay(self.layout.superblock_extent(), &mut self.superblock[..], extent, payload) {
            let changed = before.is_some_and(|before| before != self.superblock);
            seen.freeze = seen.freeze.or(self.superblock_seen(changed));
        }
        if let Some(group) = self.descriptors_seen(extent, payload) {
            seen.freeze = seen.freeze.or(Some(Freeze::Descriptor(group)));
        }
        seen
    }

    /// The first group whose bitmap or inode table a write moves. Looks at the descriptors that it touches: all of a large volume are
    /// megabytes, and come block by block.
    fn descriptors_seen(&mut self, extent: Extent, payload: Option<&[u8]>) -> Option<u32> {
        let at = self.layout.descriptors_extent();
        let part = extent.intersect(at)?;
        let each = u64::from(DESCRIPTOR_BYTES);
        let (first, end) = ((part.offset() - at.offset()) / each, (part.end() - at.offset()).div_ceil(each));
        let touched = (first * each) as usize..(end * each) as usize;
        let before = self.descriptors[touched.clone()].to_vec();
        overlay(at, &mut self.descriptors, extent, payload);
        // Bytes 0 to 11 of each: block bitmap, inode bitmap, inode table.
        let each = each as usize;
        let mut pairs = self.descriptors[touched].chunks(each).zip(before.chunks(each));
        pairs.position(|(a, b)| a[..12] != b[..12]).map(|moved| first as u32 + moved as u32)
    }

    /// Blocks whose bit is 1 in what a write brings of a group's bitmap.
    fn bits_set(&self, group: u32, block: BlockNo, extent: Extent, payload: &[u8]) -> Vec<BlockRange> {
        let here = block.extent(self.block_size());
        let Some(part) = extent.intersect(here) else { return Vec::new() };
        let bytes = &payload[(part.offset() - extent.offset()) as usize..][..part.len() as usize];
        let blocks = self.layout.group_blocks(group);
        // The bits of a part-written bitmap begin further on.
        let skip = ((part.offset() - here.offset()) * 8).min(u64::from(blocks.len())) as u32;
        bit_runs(bytes, BlockRange::new(blocks.start() + skip, blocks.end()), true)
    }

    /// The superblock as the client last wrote it, or as it was at the attach.
    pub fn superblock(&self) -> &[u8; 1024] {
        &self.superblock
    }

    /// The descriptor table as the client last wrote it, or as it was at the attach.
    pub fn descriptors(&self) -> &[u8] {
        &self.descriptors
    }

    /// Whether a kernel mount was seen in this session and no unmount since: only then is a punched
    /// hole a discard (R2).
    pub fn is_mounted(&self) -> bool {
        self.mounted
    }
}

/// Sets of what was written over connections that are gone. A guess: each write looks at all of them, for some ns.
const DEPARTED_MAX: usize = 16;

/// Of so many blocks each is taken out of a set by itself. A guess: what a large write touches.
const TAKEN_SINGLY: u64 = 1024;

/// Takes `range` out of a set; says how many of it were there. [`RoaringBitmap::remove_range`] goes through all of the set, for which each
/// write would wait: 0.1 ms where it reaches over the largest volume.
fn take_out(set: &mut RoaringBitmap, range: BlockRange) -> u64 {
    let there = set.range_cardinality(range.start()..range.end());
    if there > TAKEN_SINGLY {
        return set.remove_range(range.start()..range.end());
    }
    if there > 0 {
        for block in set.range(range.start()..range.end()).collect::<Vec<_>>() {
            set.remove(block);
        }
    }
    there
}

/// Copies what `extent` brings onto `shadow`, which mirrors `at`. Says whether anything did.
pub(crate) fn overlay(at: Extent, shadow: &mut [u8], extent: Extent, payload: Option<&[u8]>) -> bool {
    let Some(part) = extent.intersect(at) else { return false };
    let to = &mut shadow[(part.offset() - at.offset()) as usize..][..part.len() as usize];
    match payload {
        Some(p) => {
            to.copy_from_slice(&p[(part.offset() - extent.offset()) as usize..][..part.len() as usize])
        }
        None => to.fill(0),
    }
    true
}

/// The runs of `blocks` whose bit in `bits` is `value`; bit 0 belongs to the first block. Blocks
/// beyond the bits' end are in no run.
pub fn bit_runs(bits: &[u8], blocks: BlockRange, value: bool) -> Vec<BlockRange> {
    let mut runs = Vec::new();
    let n = (bits.len() as u64 * 8).min(u64::from(blocks.len())) as u32;
    let whole = if value { 0xff } else { 0x00 };
    let mut open: Option<u32> = None;
    let mut i = 0;
    while i < n {
        let byte = bits[(i / 8) as usize];
        // A shortcut. In the last byte it may go beyond the end, which is where the last run ends.
        if i.is_multiple_of(8) && (byte == whole || byte == !whole) {
            match (byte == whole, open) {
                (true, None) => open = Some(i),
                (false, Some(from)) => {
                    runs.push(BlockRange::new(blocks.start() + from, blocks.start() + i));
                    open = None;
                }
                _ => {}
            }
            i += 8;
            continue;
        }
        let is = (byte >> (i % 8) & 1 == 1) == value;
        match (is, open) {
            (true, None) => open = Some(i),
            (false, Some(from)) => {
                runs.push(BlockRange::new(blocks.start() + from, blocks.start() + i));
                open = None;
            }
            _ => {}
        }
        i += 1;
    }
    if let Some(from) = open {
        runs.push(BlockRange::new(blocks.start() + from, blocks.start() + n));
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_taken_out_is_gone_and_nothing_else(
            runs in proptest::collection::vec((prop_oneof![0u32..300_000, u32::MAX - 9000..u32::MAX - 6000], 1u32..6000), 0..12),
            start in prop_oneof![0u32..300_000, u32::MAX - 9000..=u32::MAX],
            len in prop_oneof![0u32..9000, any::<u32>()],
        ) {
            let mut set = RoaringBitmap::new();
            for (from, len) in runs {
                set.insert_range(from..from.saturating_add(len));
            }
            let range = BlockRange::new(start, start.saturating_add(len));
            let (before, mut plain) = (set.len(), set.clone());
            plain.remove_range(range.start()..range.end());
            prop_assert_eq!(take_out(&mut set, range), before - plain.len());
            prop_assert_eq!(set, plain);
        }

        #[test]
        fn bit_runs_agree_with_bits(bits in proptest::collection::vec(prop_oneof![Just(0u8), Just(255u8), any::<u8>()], 0..40), start in 0u32..100, len in 0u32..400, value: bool) {
            let blocks = BlockRange::new(start, start + len);
            let mut plain = Vec::new();
            for (i, b) in blocks.iter().enumerate() {
                if let Some(byte) = bits.get(i / 8) && (byte >> (i % 8) & 1 == 1) == value {
                    plain.push(b);
                }
            }
            let runs = bit_runs(&bits, blocks, value);
            let flat: Vec<_> = runs.iter().flat_map(|r| r.iter()).collect();
            prop_assert_eq!(flat, plain);
            prop_assert!(runs.windows(2).all(|w| w[0].end() < w[1].start()));
        }
    }
}
