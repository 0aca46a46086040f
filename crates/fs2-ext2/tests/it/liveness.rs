//! The set F against a plain notion of it: one struct per block, looked at one by one. Needs nothing.
//!
//! The plain side knows the volume from the numbers below, not from `Layout`.

mod written;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, BlockSize, ConnectionId, Extent};
use fs2_ext2::{Doubt, Freeze, GroupDesc, Layout, Liveness, LivenessParts, Seen, Superblock};
use proptest::prelude::*;

const SIZE: u64 = 1024;
const BLOCKS: u32 = 2700;
const PER_GROUP: u32 = 256;
const GROUPS: u32 = 11;
/// Blocks in the first and in the last MiB.
const EDGE: u32 = 1024;
/// The block bitmaps of groups 4, 5 and 6 are neighbours, not in the order of their groups.
const BITMAPS: [(u32, u32); 3] = [(1030, 5), (1031, 4), (1032, 6)];
/// The table: across the first MiB's end, in the middle, one block, across the last MiB's start, and in pieces in both, as where
/// resize2fs moved it.
const TABLE: [(u32, u32); 11] = [
    (1500, 1501),
    (1020, 1030),
    (1100, 1110),
    (1670, 1680),
    (1104, 1112),
    (100, 101),
    (200, 202),
    (300, 301),
    (1900, 1901),
    (2100, 2101),
    (2300, 2302),
];

fn start_of(group: u32) -> u32 {
    1 + group * PER_GROUP
}

fn blocks_of(group: u32) -> BlockRange {
    BlockRange::new(start_of(group), (start_of(group) + PER_GROUP).min(BLOCKS))
}

/// Where group `group` has its block bitmap; inode bitmap and inode table follow at fixed places.
fn bitmap_of(group: u32) -> u32 {
    BITMAPS.iter().find(|b| b.1 == group).map_or(start_of(group) + 2, |b| b.0)
}

fn raw_superblock() -> [u8; 1024] {
    let mut raw = [0u8; 1024];
    let mut put = |at: usize, value: u32| raw[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(0, 8 * GROUPS);
    put(4, BLOCKS);
    put(20, 1);
    put(32, PER_GROUP);
    put(40, 8);
    put(52, 5);
    put(56, 0xEF53 | 1 << 16);
    put(76, 1);
    put(84, 11);
    put(88, 128);
    put(92, 0x38);
    put(96, 2);
    put(104, 0x1234_5678);
    raw
}

fn descriptors() -> Vec<GroupDesc> {
    let desc = |group: u32| GroupDesc {
        block_bitmap: BlockNo(bitmap_of(group)),
        inode_bitmap: BlockNo(start_of(group) + 3),
        inode_table: BlockNo(start_of(group) + 4),
        free_blocks: 100 + group as u16,
        free_inodes: 1,
        used_dirs: 1,
    };
    (0..GROUPS).map(desc).collect()
}

fn liveness() -> Liveness {
    let superblock = Superblock::parse(&raw_superblock()).unwrap();
    let layout = Layout::from_parts(superblock, descriptors()).unwrap();
    Liveness::new(Arc::new(layout), &TABLE.map(|(a, b)| BlockRange::new(a, b)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Nobody,
    Over(u32),
    Gone,
}

/// What is known of one block.
#[derive(Clone, Copy, Debug)]
struct Plain {
    free: bool,
    writer: Writer,
    /// Its bit was seen set while its group was not loaded.
    seen: bool,
    universe: bool,
    /// It was written, and its bit was not seen set since. Nobody mounts anything here.
    unannounced: bool,
}

struct Model {
    blocks: Vec<Plain>,
    loaded: [bool; GROUPS as usize],
    frozen: bool,
}

impl Model {
    fn new() -> Model {
        let universe = |b: u32| {
            let in_group = (b.max(1) - 1) % PER_GROUP;
            let group = (b.max(1) - 1) / PER_GROUP;
            // Every group has a copy of superblock and descriptors (no sparse_super): two blocks.
            let metadata = b == 0
                || in_group < 2
                || in_group == 3
                || in_group == 4
                || (0..GROUPS).any(|g| bitmap_of(g) == b);
            assert!(group < GROUPS);
            (EDGE..BLOCKS - EDGE).contains(&b)
                && !metadata
                && !TABLE.iter().any(|&(from, to)| (from..to).contains(&b))
        };
        let plain = |b| Plain {
            free: false,
            writer: Writer::Nobody,
            seen: false,
            universe: universe(b),
            unannounced: false,
        };
        Model { blocks: (0..BLOCKS).map(plain).collect(), loaded: [false; GROUPS as usize], frozen: false }
    }

    fn each(&mut self, range: BlockRange) -> impl Iterator<Item = &mut Plain> {
        let (from, to) = (range.start().min(BLOCKS), range.end().min(BLOCKS));
        self.blocks[from as usize..to as usize].iter_mut()
    }

    fn estimate(&self) -> u64 {
        let free_in = |range: BlockRange| {
            self.blocks[range.start() as usize..range.end() as usize].iter().filter(|b| b.free).count() as u64
        };
        let known = free_in(BlockRange::new(0, BLOCKS));
        let unloaded = (0..GROUPS).filter(|&g| !self.loaded[g as usize]);
        // Those that a discard has told of are not told of twice.
        let told = |g: u32| u64::from(100 + g).saturating_sub(free_in(blocks_of(g)));
        known + if self.frozen { 0 } else { unloaded.map(told).sum() }
    }

    fn compare(&self, ours: &Liveness) -> Result<(), TestCaseError> {
        for (n, plain) in (0..).zip(&self.blocks) {
            prop_assert_eq!(ours.is_free(BlockNo(n)), plain.free, "block {} {:?}", n, plain);
            prop_assert_eq!(ours.in_universe(BlockNo(n)), plain.universe, "block {}", n);
        }
        let free: Vec<u32> = (0..BLOCKS).filter(|&b| self.blocks[b as usize].free).collect();
        prop_assert_eq!(ours.free().iter().collect::<Vec<_>>(), free);
        prop_assert!(!ours.in_universe(BlockNo(BLOCKS)) && !ours.is_free(BlockNo(BLOCKS)));
        prop_assert_eq!(ours.free_estimate(), self.estimate());
        let unloaded: Vec<u32> = (0..GROUPS).filter(|&g| !self.loaded[g as usize]).collect();
        prop_assert_eq!(ours.unloaded_count() as usize, unloaded.len());
        prop_assert_eq!(ours.unloaded_groups().collect::<Vec<_>>(), unloaded);
        for g in 0..GROUPS {
            let loaded = self.loaded[g as usize];
            prop_assert_eq!(ours.is_loaded(g), loaded);
            let free =
                (0..BLOCKS).filter(|&b| self.blocks[b as usize].free && (b.max(1) - 1) / PER_GROUP == g);
            let joining = if loaded || self.frozen { 0 } else { u64::from(100 + g) };
            prop_assert_eq!(ours.free_at_most(g), free.count() as u64 + joining, "group {}", g);
        }
        prop_assert_eq!(ours.frozen().is_some(), self.frozen);
        if let Some(parts) = ours.parts() {
            let unannounced = (0..BLOCKS).filter(|&b| self.blocks[b as usize].unannounced);
            assert!(parts.told.is_empty());
            let within = parts.unannounced.iter().filter(|&b| b < BLOCKS);
            prop_assert_eq!(within.collect::<Vec<_>>(), unannounced.collect::<Vec<_>>());
        }
        Ok(())
    }

    /// The same event through both.
    fn step(&mut self, ours: &mut Liveness, event: &Event) -> Result<(), TestCaseError> {
        match event {
            Event::Written(range, over) => {
                ours.written(*range, ConnectionId(*over));
                for b in self.each(*range) {
                    (b.free, b.seen, b.writer) = (false, false, Writer::Over(*over));
                    b.unannounced = true;
                }
            }
            Event::Gone(over) => {
                ours.connection_gone(ConnectionId(*over));
                for b in &mut self.blocks {
                    if b.writer == Writer::Over(*over) {
                        b.writer = Writer::Gone;
                    }
                }
            }
            Event::Discarded(range, over, any) => {
                let joined = ours.discarded(*range, ConnectionId(*over), *any);
                let (mut count, frozen) = (0, self.frozen);
                for b in self.each(*range) {
                    let may =
                        *any || !b.seen && (b.writer == Writer::Nobody || b.writer == Writer::Over(*over));
                    b.unannounced &= !(may && b.universe && !frozen);
                    if may && b.universe && !frozen && !b.free {
                        b.free = true;
                        count += 1;
                    }
                }
                prop_assert_eq!(joined, count);
            }
            Event::Loaded(group, bits) => {
                let bits = pattern(*bits, 32);
                let expected = (!self.frozen && !self.loaded[*group as usize]).then_some(());
                prop_assert_eq!(ours.load_group(*group, &bits), expected);
                if expected.is_some() {
                    self.loaded[*group as usize] = true;
                    for (i, b) in self.each(blocks_of(*group)).enumerate() {
                        let used = bits[i / 8] >> (i % 8) & 1 == 1;
                        let joins = !used && b.universe && b.writer == Writer::Nobody;
                        b.free |= joins && !b.seen;
                        if joins && b.seen {
                            b.writer = Writer::Gone;
                        }
                        b.seen = false;
                    }
                }
            }
            Event::Lost(group) => {
                ours.lose_group(*group);
                self.loaded[*group as usize] = true;
            }
            Event::Seen(extent, bits, over) => {
                let payload = pattern(*bits, extent.len() as usize);
                let Seen { claimed, allocated, freeze } =
                    ours.payload_seen(*extent, Some(&payload), ConnectionId(*over));
                prop_assert_eq!(freeze, None);
                let (mut told, mut free) = (vec![false; BLOCKS as usize], vec![false; BLOCKS as usize]);
                for (i, byte) in payload.iter().enumerate() {
                    let at = extent.offset() + i as u64;
                    let Some(&(_, group)) = BITMAPS.iter().find(|b| u64::from(b.0) == at / SIZE) else {
                        continue;
                    };
                    for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
                        let n = at % SIZE * 8 + bit;
                        if n < u64::from(PER_GROUP) {
                            let b = start_of(group) + n as u32;
                            told[b as usize] = true;
                            let unloaded = !self.loaded[group as usize];
                            let plain = &mut self.blocks[b as usize];
                            free[b as usize] |= plain.free;
                            if plain.free {
                                // As a write of it would: what was seen before counts no more.
                                (plain.free, plain.seen, plain.writer) = (false, false, Writer::Over(*over));
                            }
                            plain.seen |= unloaded;
                            plain.unannounced = false;
                        }
                    }
                }
                for b in 0..BLOCKS {
                    let ours = claimed.iter().any(|r| r.contains(BlockNo(b)));
                    prop_assert_eq!(ours, told[b as usize], "block {} claimed", b);
                    let ours = allocated.iter().any(|r| r.contains(BlockNo(b)));
                    prop_assert_eq!(ours, free[b as usize], "block {} allocated", b);
                }
            }
            Event::Zeroed(extent) => {
                let seen = ours.payload_seen(*extent, None, ConnectionId(0));
                prop_assert_eq!(seen, Seen::default());
            }
            Event::Frozen => {
                ours.freeze(Freeze::ForeignWriter);
                self.frozen = true;
                self.blocks.iter_mut().for_each(|b| b.free = false);
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Event {
    Written(BlockRange, u32),
    Gone(u32),
    Discarded(BlockRange, u32, bool),
    Loaded(u32, u64),
    Lost(u32),
    Seen(Extent, u64, u32),
    Zeroed(Extent),
    Frozen,
}

/// Bytes of which many are all ones or all zeroes.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..len).map(|_| if next() % 3 == 0 { next() as u8 } else { [0, 0xff][(next() % 2) as usize] }).collect()
}

fn ranges() -> impl Strategy<Value = BlockRange> {
    // Mostly where something can be free, now and then anywhere and beyond the end.
    let near = (1000u32..1700, 0u32..40);
    let far = (0u32..BLOCKS + 50, 0u32..3000);
    prop_oneof![8 => near, 1 => far].prop_map(|(from, len)| BlockRange::new(from, from + len))
}

fn extents() -> impl Strategy<Value = Extent> {
    // Around the three bitmaps: their first 32 bytes are what counts.
    let whole = (1029u64..1034, 1u64..4).prop_map(|(block, blocks)| Extent::new(block * SIZE, blocks * SIZE));
    let part = (1030u64..1033, 0u64..40, 1u64..40).prop_map(|(b, from, n)| Extent::new(b * SIZE + from, n));
    let across =
        (1030u64..1033, 0u64..30, 1u64..1100).prop_map(|(b, back, n)| Extent::new(b * SIZE - back, n));
    prop_oneof![whole, part, across]
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (ranges(), 0u32..3).prop_map(|(r, c)| Event::Written(r, c)),
        1 => (0u32..3).prop_map(Event::Gone),
        6 => (ranges(), 0u32..3, prop::bool::weighted(0.2)).prop_map(|(r, c, any)| Event::Discarded(r, c, any)),
        4 => (3u32..7, any::<u64>()).prop_map(|(g, bits)| Event::Loaded(g, bits)),
        1 => (0u32..GROUPS, any::<u64>()).prop_map(|(g, bits)| Event::Loaded(g, bits)),
        1 => (0u32..GROUPS).prop_map(Event::Lost),
        5 => (extents(), any::<u64>(), 0u32..3).prop_map(|(e, bits, c)| Event::Seen(e, bits, c)),
        1 => extents().prop_map(Event::Zeroed),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn free_blocks_against_plain_ones(
        before in prop::collection::vec(events(), 0..40),
        freezes: bool,
        after in prop::collection::vec(events(), 0..8),
    ) {
        let (mut model, mut ours) = (Model::new(), liveness());
        model.compare(&ours)?;
        let freeze = freezes.then_some(Event::Frozen);
        for event in before.iter().chain(&freeze).chain(&after) {
            model.step(&mut ours, event)?;
            model.compare(&ours)?;
        }
    }

    #[test]
    fn the_universe_by_ranges_is_that_by_blocks(a in 0..BLOCKS + 300, b in 0..BLOCKS + 300) {
        let (model, ours) = (Model::new(), liveness());
        let range = BlockRange::new(a.min(b), a.max(b));
        let parts = ours.universe_in(range);
        prop_assert!(parts.windows(2).all(|pair| pair[0].end() < pair[1].start()), "{:?}", parts);
        let blocks: Vec<BlockNo> = parts.iter().flat_map(|part| part.iter()).collect();
        let plain = |b: &BlockNo| model.blocks.get(b.0 as usize).is_some_and(|plain| plain.universe);
        prop_assert_eq!(blocks, range.iter().filter(plain).collect::<Vec<_>>());
    }

    /// Mounts, unmounts and counts in any order, the superblock written whole or field by field.
    #[test]
    fn mounts_against_a_plain_state(states in prop::collection::vec((prop::bool::ANY, 4u16..8, prop::bool::ANY), 1..12)) {
        let mut ours = liveness();
        let (mut was_valid, mut count, mut mended) = (true, 5, false);
        for (valid, mounts, apart) in states {
            let mut raw = raw_superblock();
            raw[52..54].copy_from_slice(&mounts.to_le_bytes());
            raw[58] = u8::from(valid) | 8;
            let seen = if apart {
                let seen = ours.payload_seen(Extent::new(1024 + 52, 2), Some(&raw[52..54]), ConnectionId(0));
                let then = ours.payload_seen(Extent::new(1024 + 58, 2), Some(&raw[58..60]), ConnectionId(0));
                // The count comes while the state is still the old one.
                let first = !was_valid && mounts > count;
                prop_assert_eq!(seen.freeze, first.then_some(Freeze::SecondMount));
                mended |= !was_valid && mounts < count;
                count = mounts;
                then
            } else {
                ours.payload_seen(Extent::new(1024, 1024), Some(&raw), ConnectionId(0))
            };
            let again = !was_valid && mounts > count;
            mended |= !was_valid && mounts < count;
            let checked = valid && mended;
            mended &= !valid;
            let why = if again { Some(Freeze::SecondMount) } else { checked.then_some(Freeze::Checked) };
            prop_assert_eq!(&seen.freeze, &why);
            if why.is_none() {
                prop_assert_eq!(ours.is_mounted(), !valid);
            }
            prop_assert_eq!(ours.is_clean(), valid);
            prop_assert_eq!(&ours.superblock()[52..60], &raw[52..60]);
            (was_valid, count) = (valid, mounts);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A tool's superblock, against a look at each block: what shares a page of 4 KiB with a bit that was set is announced.
    #[test]
    fn what_a_superblock_announces(
        steps in prop::collection::vec((ranges(), prop::option::weighted(0.2, (1030u32..1033, 0u64..1000))), 1..30),
    ) {
        let mut ours = liveness();
        for (range, bitmap) in steps {
            ours.written(range.intersect(BlockRange::new(0, BLOCKS)), ConnectionId(0));
            if let Some((block, seed)) = bitmap {
                let extent = Extent::new(u64::from(block) * SIZE, SIZE);
                ours.payload_seen(extent, Some(&pattern(seed, SIZE as usize)), ConnectionId(0));
            }
        }
        let before = ours.parts().unwrap();
        let mut raw = raw_superblock();
        raw[44] ^= 1;
        ours.payload_seen(Extent::new(1024, 1024), Some(&raw), ConnectionId(0));
        let after = ours.parts().unwrap();
        let silent = |b: &u32| !(b / 4 * 4..b / 4 * 4 + 4).any(|b| before.set_unannounced.contains(b));
        let told: Vec<u32> =
            (0..BLOCKS).filter(|b| before.told.contains(*b) || before.unannounced.contains(*b) && silent(b)).collect();
        prop_assert_eq!(after.told.iter().collect::<Vec<_>>(), told);
        prop_assert!(after.unannounced.is_empty() && after.set_unannounced.is_empty());
    }

    /// More connections than sets are kept for: what was last written over one that is gone stays so, until it is written over another.
    #[test]
    fn what_many_connections_wrote_that_are_gone(
        steps in prop::collection::vec((ranges(), 0u32..60, prop::bool::weighted(0.6)), 60..200),
    ) {
        let mut ours = liveness();
        let mut last = vec![None; BLOCKS as usize];
        for (range, connection, ends) in steps {
            let range = range.intersect(BlockRange::new(0, BLOCKS));
            ours.written(range, ConnectionId(connection));
            range.iter().for_each(|b| last[b.0 as usize] = Some(connection));
            if ends {
                ours.connection_gone(ConnectionId(connection));
                // Whoever has its number later is another.
                last.iter_mut().filter(|by| **by == Some(connection)).for_each(|by| *by = Some(u32::MAX));
            }
        }
        let parts = ours.parts().unwrap();
        let orphaned: Vec<u32> = (0..BLOCKS).filter(|&b| last[b as usize] == Some(u32::MAX)).collect();
        prop_assert_eq!(parts.orphaned.iter().collect::<Vec<_>>(), orphaned);
        let all = BlockRange::new(0, BLOCKS);
        ours.discarded(all, ConnectionId(1), false);
        for block in all.iter() {
            let mine = last[block.0 as usize].is_none_or(|by| by == 1);
            prop_assert_eq!(ours.is_free(block), mine && ours.in_universe(block), "{}", block);
        }
    }
}

/// What another process left is no better than what it claims to have seen.
#[test]
fn what_contradicts_the_volume_is_not_taken_over() {
    let mut ours = liveness();
    ours.load_group(4, &[0; 32]).unwrap();
    ours.payload_seen(Extent::new(1032 * SIZE, 1), Some(&[4]), ConnectionId(0));
    let take = |change: &dyn Fn(&mut LivenessParts)| {
        let mut parts = ours.parts().unwrap();
        change(&mut parts);
        let table = TABLE.map(|(a, b)| BlockRange::new(a, b));
        Liveness::from_parts(ours.layout().clone(), &table, parts)
    };
    let same = take(&|_| ()).unwrap();
    assert_eq!(same.parts(), ours.parts());
    assert_eq!(same.free_estimate(), ours.free_estimate());
    // One block of each kind that F never holds.
    let never = [0, 1, EDGE - 1, BLOCKS - EDGE, BLOCKS - 1, bitmap_of(4), start_of(4), start_of(5) + 1];
    for block in never.into_iter().chain(TABLE.iter().flat_map(|&(from, to)| [from, to - 1])) {
        assert!(!ours.in_universe(BlockNo(block)));
        let refused = take(&|p| _ = p.free.insert(block)).unwrap_err();
        assert_eq!(refused, "blocks that are never free", "{block}");
    }
    assert_eq!(ours.parts().unwrap().set_unloaded.len(), 1);
    let of = |change: &dyn Fn(&mut LivenessParts)| take(change).unwrap_err();
    assert_eq!(of(&|p| p.free |= p.set_unloaded.clone()), "free blocks that were claimed");
    assert_eq!(
        of(&|p| p.superblock[12] ^= 1),
        "the superblock on the volume is not the one the client wrote"
    );
    assert_eq!(
        of(&|p| p.descriptors[12] ^= 1),
        "the descriptors on the volume are not those the client wrote"
    );
    assert_eq!(of(&|p| p.at_attach[104] ^= 1), "another volume was attached");
    let beyond: [fn(&mut LivenessParts); 8] = [
        |p| _ = p.free.insert(BLOCKS),
        |p| _ = p.orphaned.insert(BLOCKS),
        |p| _ = p.set_unloaded.insert(BLOCKS),
        |p| _ = p.unannounced.insert(BLOCKS),
        |p| _ = p.told.insert(BLOCKS),
        |p| _ = p.set_unannounced.insert(BLOCKS),
        |p| _ = p.loaded.insert(GROUPS),
        |p| _ = p.bitmaps_unannounced.insert(GROUPS),
    ];
    for change in beyond {
        assert_eq!(of(&change), "blocks beyond the volume's end");
    }
    let written = |p: &mut LivenessParts| p.written.push((ConnectionId(7), [BLOCKS].into_iter().collect()));
    assert_eq!(of(&written), "blocks beyond the volume's end");
}
