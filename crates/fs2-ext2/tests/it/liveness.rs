//! The set F against a plain notion of it: one struct per block, looked at one by one. Needs nothing.
//!
//! The plain side knows the volume from the numbers below, not from `Layout`.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, BlockSize, ConnectionId, Extent};
use fs2_ext2::{Doubt, Freeze, GroupDesc, Layout, Liveness, Seen, Superblock};
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
        let known = self.blocks.iter().filter(|b| b.free).count() as u64;
        let unloaded = (0..GROUPS).filter(|&g| !self.loaded[g as usize]);
        known + if self.frozen { 0 } else { unloaded.map(|g| u64::from(100 + g)).sum() }
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
            prop_assert_eq!(ours.is_loaded(g), self.loaded[g as usize]);
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

fn whole(raw: &[u8; 1024]) -> Option<Freeze> {
    liveness().payload_seen(Extent::new(1024, 1024), Some(raw), ConnectionId(0)).freeze
}

#[test]
fn every_byte_of_the_superblock() {
    // Offset, bytes, what is said of a change; what is not named here changes in a running mount.
    let fixed: [(usize, usize, &str); 9] = [
        (4, 4, "block count"),
        (20, 4, "first data block"),
        (24, 4, "block size"),
        (32, 4, "blocks per group"),
        (40, 4, "inodes per group"),
        (56, 2, "magic number"),
        (76, 4, "revision"),
        (88, 2, "inode size"),
        (104, 16, "UUID"),
    ];
    assert_eq!(whole(&raw_superblock()), None);
    for at in 0..1024 {
        let mut raw = raw_superblock();
        raw[at] ^= 0x80;
        let name = fixed.iter().find(|(from, len, _)| (*from..from + len).contains(&at)).map(|f| f.2);
        let feature = (92..104).contains(&at).then_some(Freeze::Feature);
        let expected = name.map(Freeze::Superblock).or(feature);
        assert_eq!(whole(&raw), expected, "byte {at}");
        // The same in a write of that byte alone, and in one that begins before the superblock.
        let one =
            liveness().payload_seen(Extent::new(1024 + at as u64, 1), Some(&raw[at..=at]), ConnectionId(0));
        assert_eq!(one.freeze, expected, "byte {at} alone");
        let wide = [&[7; 1024][..], &raw].concat();
        assert_eq!(
            liveness().payload_seen(Extent::new(0, 2048), Some(&wide[..]), ConnectionId(0)).freeze,
            expected
        );
    }
}

/// What kernels and programs write, one after the other: state, mount count, time of the last check.
#[test]
fn a_check_after_a_mount_that_did_not_end() {
    let end_of = |writes: &[(u8, u8, u8)]| {
        let mut ours = liveness();
        let seen = writes.iter().map(|(state, mounts, checked)| {
            let mut raw = raw_superblock();
            (raw[58], raw[52], raw[64]) = (*state, *mounts, raw[64].wrapping_add(*checked));
            ours.payload_seen(Extent::new(1024, 1024), Some(&raw), ConnectionId(0)).freeze
        });
        seen.collect::<Vec<_>>().into_iter().flatten().collect::<Vec<_>>()
    };
    // raw_superblock: clean, mounted 5 times.
    assert_eq!(end_of(&[(0, 6, 0), (1, 6, 0), (0, 7, 0), (1, 7, 0)]), [], "mounts that end");
    assert_eq!(end_of(&[(1, 0, 1), (0, 1, 1), (1, 1, 1)]), [], "a check of a clean volume");
    assert_eq!(end_of(&[(0, 6, 0), (1, 6, 0), (0, 6, 0)]), [], "frozen and thawed");
    assert_eq!(end_of(&[(0, 6, 0), (1, 0, 1)]), [Freeze::Checked]);
    assert_eq!(end_of(&[(0, 6, 0), (1, 6, 1)]), [Freeze::Checked], "without the count");
    assert_eq!(end_of(&[(0, 6, 0), (0, 0, 0), (1, 0, 0)]), [Freeze::Checked], "field by field");
}

/// The count has 16 bits: after 65,535 the kernel goes on with 0, which is no lower count.
#[test]
fn a_second_mount_whose_count_begins_anew() {
    let mut ours = liveness();
    ours.load_group(4, &[0; 32]).unwrap();
    let mut seen = |valid: bool, mounts: u16| {
        let mut raw = raw_superblock();
        raw[52..54].copy_from_slice(&mounts.to_le_bytes());
        raw[58] = u8::from(valid);
        ours.payload_seen(Extent::new(1024, 1024), Some(&raw), ConnectionId(0)).freeze
    };
    assert_eq!(seen(true, u16::MAX), None, "tune2fs -C");
    assert_eq!(seen(false, 0), None, "mounted once");
    assert_eq!(seen(true, 0), None, "and unmounted");
    assert_eq!(seen(true, u16::MAX - 1), None);
    assert_eq!(seen(false, u16::MAX), None, "mounted, and the kernel dies");
    assert_eq!(seen(false, 0), Some(Freeze::SecondMount));
}

#[test]
fn every_feature_bit_and_every_state_bit() {
    // compat: dir_prealloc, ext_attr, resize_inode, dir_index; incompat: filetype; ro_compat:
    // sparse_super, large_file.
    let allowed: [(usize, &[u32]); 3] = [(92, &[0, 3, 4, 5]), (96, &[1]), (100, &[0, 1])];
    for (at, bits) in allowed {
        for bit in 0..32 {
            let mut raw = raw_superblock();
            raw[at + bit as usize / 8] |= 1 << (bit % 8);
            let expected = (!bits.contains(&bit)).then_some(Freeze::Feature);
            assert_eq!(whole(&raw), expected, "bit {bit} of the word at {at}");
            // Gone again is nothing.
            let mut cleared = raw_superblock();
            cleared[at..at + 4].fill(0);
            assert_eq!(whole(&cleared), None);
        }
    }
    for bit in 0..16 {
        let mut raw = raw_superblock();
        raw[58] = 1;
        raw[58 + bit / 8] |= 1 << (bit % 8);
        let mut ours = liveness();
        let seen = ours.payload_seen(Extent::new(1024, 1024), Some(&raw), ConnectionId(0));
        assert_eq!(seen.freeze, (bit == 1).then_some(Freeze::Errors), "state bit {bit}");
        assert_eq!(ours.is_clean(), bit != 1, "state bit {bit}");
    }
    // Errors recorded while it is mounted.
    let mut raw = raw_superblock();
    raw[58] = 2;
    let mut ours = liveness();
    assert_eq!(
        ours.payload_seen(Extent::new(1024, 1024), Some(&raw), ConnectionId(0)).freeze,
        Some(Freeze::Errors)
    );
    assert!(!ours.is_clean());
}

#[test]
fn zeroes_over_the_superblock_freeze_and_over_descriptors_too() {
    let mut ours = liveness();
    let seen = ours.payload_seen(Extent::new(0, 2048), None, ConnectionId(0));
    assert_eq!(seen.freeze, Some(Freeze::Superblock("magic number")));
    assert_eq!(ours.superblock(), &[0; 1024]);
    let mut ours = liveness();
    let seen = ours.payload_seen(Extent::new(2048 + 64, 32), None, ConnectionId(0));
    assert_eq!(seen.freeze, Some(Freeze::Descriptor(2)));
    assert_eq!(ours.descriptors()[64..96], [0; 32]);
    assert_ne!(ours.descriptors()[32..64], [0; 32]);
    // What the superblock says comes first where one write tells both.
    let mut both = liveness();
    assert_eq!(
        both.payload_seen(Extent::new(0, 4096), None, ConnectionId(0)).freeze,
        Some(Freeze::Superblock("magic number"))
    );
    assert_eq!(both.descriptors(), [0; 32 * GROUPS as usize]);
}

#[test]
fn every_byte_of_a_descriptor() {
    let bytes = liveness().descriptors().to_vec();
    assert_eq!(bytes.len(), 32 * GROUPS as usize);
    for at in 0..bytes.len() {
        let mut now = bytes.clone();
        now[at] ^= 1;
        let mut ours = liveness();
        let padded = [&[9; 100][..], &now, &[9; 5]].concat();
        let seen =
            ours.payload_seen(Extent::new(2048 - 100, padded.len() as u64), Some(&padded), ConnectionId(0));
        // The 100 bytes before are the superblock's end, which nothing depends on.
        let expected = (at % 32 < 12).then_some(Freeze::Descriptor(at as u32 / 32));
        assert_eq!((seen.freeze, seen.claimed), (expected, vec![]), "byte {at}");
        assert_eq!(ours.descriptors(), now);
    }
    // Counters may change and change again; then one moves.
    let mut ours = liveness();
    assert_eq!(ours.payload_seen(Extent::new(2048 + 12, 4), Some(&[1; 4]), ConnectionId(0)).freeze, None);
    assert_eq!(
        ours.payload_seen(Extent::new(2048 + 32, 1), Some(&[99]), ConnectionId(0)).freeze,
        Some(Freeze::Descriptor(1))
    );
    // Bytes behind the last descriptor are nobody's.
    assert_eq!(
        ours.payload_seen(Extent::new(2048 + 352, 10), Some(&[99; 10]), ConnectionId(0)),
        Seen::default()
    );
}

#[test]
fn which_writes_are_telling() {
    let ours = liveness();
    let telling: BTreeMap<&str, Extent> = [
        ("the superblock's first byte", Extent::new(1024, 1)),
        ("the superblock's last byte", Extent::new(2047, 1)),
        ("before and into the superblock", Extent::new(0, 1025)),
        ("the first descriptor", Extent::new(2048, 1)),
        ("the last byte of the descriptors", Extent::new(2048 + 351, 1)),
        ("a bitmap's first byte", Extent::new(1030 * SIZE, 1)),
        ("a bitmap's last byte", Extent::new(1033 * SIZE - 1, 1)),
        ("group 0's bitmap", Extent::new(3 * SIZE, SIZE)),
    ]
    .into();
    for (what, extent) in telling {
        assert!(ours.is_telling(extent), "{what}");
    }
    for extent in [(0, 1024), (2048 + 352, 600), (1029 * SIZE, SIZE), (1033 * SIZE, 100 * SIZE)] {
        assert!(!ours.is_telling(Extent::new(extent.0, extent.1)), "{extent:?}");
    }
}

#[test]
fn frozen_for_the_first_reason_and_empty_for_ever() {
    let mut ours = liveness();
    ours.load_group(4, &[0; 32]).unwrap();
    assert!(ours.free_estimate() > 0 && ours.frozen().is_none());
    ours.freeze(Freeze::SecondMount);
    ours.freeze(Freeze::Errors);
    assert_eq!(ours.frozen(), Some(&Freeze::SecondMount));
    assert_eq!((ours.free_estimate(), ours.free().len()), (0, 0));
    assert_eq!(ours.load_group(5, &[0; 32]), None);
    assert_eq!(ours.discarded(BlockRange::new(1200, 1210), ConnectionId(0), true), 0);
    assert_eq!(ours.layout().block_size(), BlockSize::B1024);
}

#[test]
fn each_reason_has_its_words() {
    let all = [
        (Freeze::Superblock("UUID"), "the superblock's UUID was changed"),
        (Freeze::Feature, "a feature FS2 does not support was switched on"),
        (Freeze::Errors, "the file system recorded errors"),
        (Freeze::Descriptor(7), "the descriptor of block group 7 was moved"),
        (Freeze::SecondMount, "the volume was mounted again without an orderly unmount"),
        (Freeze::Checked, "the volume was checked after a mount that had not ended"),
        (Freeze::ForeignWriter, "the backing was written behind the daemon's back"),
        (Freeze::BrokenInvariant("x"), "broken invariant: x"),
    ];
    for (freeze, words) in all {
        assert_eq!(freeze.to_string(), words);
    }
}

/// The model tells states apart by this hash: what changes F later must change it.
#[test]
fn states_that_differ_hash_differently() {
    let hash = |l: &Liveness| {
        let mut h = DefaultHasher::new();
        l.hash(&mut h);
        h.finish()
    };
    let mut loaded = liveness();
    loaded.load_group(4, &[0; 32]).unwrap();
    let with = |change: &dyn Fn(&mut Liveness)| {
        let mut l = loaded.clone();
        change(&mut l);
        l
    };
    let one = |b: u32| BlockRange::new(b, b + 1);
    let states = [
        loaded.clone(),
        with(&|l| l.written(one(1200), ConnectionId(0))),
        with(&|l| l.written(one(1200), ConnectionId(1))),
        with(&|l| l.written(one(1201), ConnectionId(1))),
        with(&|l| {
            l.written(one(1200), ConnectionId(0));
            l.connection_gone(ConnectionId(0));
        }),
        with(&|l| assert!(l.load_group(5, &[0; 32]).is_some())),
        with(&|l| l.lose_group(5)),
        with(&|l| drop(l.payload_seen(Extent::new(1030 * SIZE, 1), Some(&[4]), ConnectionId(0)))),
        with(&|l| drop(l.payload_seen(Extent::new(1030 * SIZE, 1), Some(&[8]), ConnectionId(0)))),
        with(&|l| drop(l.payload_seen(Extent::new(1024 + 52, 1), Some(&[9]), ConnectionId(0)))),
        with(&|l| drop(l.payload_seen(Extent::new(1024 + 58, 1), Some(&[0]), ConnectionId(0)))),
        with(&|l| l.freeze(Freeze::Errors)),
        with(&|l| l.freeze(Freeze::SecondMount)),
    ];
    for (i, a) in states.iter().enumerate() {
        for (j, b) in states.iter().enumerate() {
            assert_eq!(hash(a) == hash(b), i == j, "states {i} and {j}");
        }
    }
    // A connection that wrote nothing that counts any more is no difference.
    let mut emptied = with(&|l| l.written(one(1200), ConnectionId(0)));
    emptied.written(one(1200), ConnectionId(1));
    assert_eq!(hash(&emptied), hash(&states[2]));
    let said = format!("{loaded:?}");
    for field in ["free", "written", "orphaned", "set_unloaded", "loaded", "mnt_count: 5", "state: 1"] {
        assert!(said.contains(field), "{said}");
    }
}

/// What a tool that never says "mounted" leaves of a bitmap, whole or not.
#[test]
fn what_a_tool_had_not_finished_is_in_doubt() {
    let one = |b: u32| BlockRange::new(b, b + 1);
    let mut raw = raw_superblock();
    // Group 4 begins at 1025; its bitmap is block 1031.
    let bit = |b: u32| {
        let mut bits = vec![0u8; 32];
        bits[(b - start_of(4)) as usize / 8] |= 1 << ((b - start_of(4)) % 8);
        bits
    };
    let (block, bitmap_at) = (1200, 1031 * SIZE);
    let superblock = |l: &mut Liveness, raw: &[u8; 1024]| {
        assert_eq!(l.payload_seen(Extent::new(1024, 1024), Some(raw), ConnectionId(0)).freeze, None);
    };
    let mut l = liveness();
    l.written(one(block), ConnectionId(0));
    assert_eq!(l.doubtful_groups().iter().collect::<Vec<_>>(), [4]);
    assert_eq!(l.doubt(4, &bit(1201), false), Some(Doubt::Block(BlockNo(block))));
    assert_eq!(l.doubt(4, &bit(block), false), None, "it was in use before");
    // Blocks that never hold a replica are in nobody's way.
    l.written(one(1104), ConnectionId(0));
    l.written(one(100), ConnectionId(0));
    assert_eq!(l.doubt(4, &bit(block), false), None);
    // Its own superblock does not tell of the block, nor does a mount that comes and goes.
    raw[12] ^= 1;
    superblock(&mut l, &raw);
    for state in [0, 1] {
        raw[58] = state;
        superblock(&mut l, &raw);
    }
    assert_eq!(l.doubt(4, &[0; 32], true), Some(Doubt::Block(BlockNo(block))));
    // What the page cache writes beside a block in use: the tool's end tells of it, and until then it is in doubt.
    let beside = |told: bool| {
        let (mut l, mut raw) = (liveness(), raw_superblock());
        l.written(BlockRange::new(1196, 1200), ConnectionId(0));
        if told {
            raw[12] ^= 1;
            superblock(&mut l, &raw);
        }
        l
    };
    assert_eq!(beside(false).doubt(4, &bit(1198), false), Some(Doubt::Block(BlockNo(1196))));
    assert_eq!(beside(true).doubt(4, &bit(1198), false), None);
    for elsewhere in [1195, 1200] {
        assert_eq!(beside(true).doubt(4, &bit(elsewhere), false), Some(Doubt::Block(BlockNo(1196))));
    }
    let mut l = liveness();
    l.written(BlockRange::new(1196, 1200), ConnectionId(0));
    l.payload_seen(Extent::new(bitmap_at, 32), Some(&bit(1198)), ConnectionId(0));
    assert_eq!(l.doubt(4, &[0; 32], false), Some(Doubt::Block(BlockNo(1196))), "before its superblock");
    let mut told = raw_superblock();
    told[12] ^= 1;
    superblock(&mut l, &told);
    assert_eq!(l.doubt(4, &[0; 32], false), None, "removed since");
    // The page cache writes in the order of addresses: bitmaps come first.
    let mut l = liveness();
    l.payload_seen(Extent::new(bitmap_at, 32), Some(&bit(1198)), ConnectionId(0));
    l.written(BlockRange::new(1196, 1204), ConnectionId(0));
    assert_eq!(l.doubt(4, &[0; 32], false), Some(Doubt::Block(BlockNo(1196))));
    superblock(&mut l, &told);
    assert_eq!(l.doubt(4, &[0; 32], false), Some(Doubt::Block(BlockNo(1200))), "another page");
    // Another tool's bitmap is no word for what comes after it, nor is one that was written again.
    l.written(BlockRange::new(1196, 1200), ConnectionId(0));
    told[12] ^= 2;
    superblock(&mut l, &told);
    assert_eq!(l.doubt(4, &[0; 32], false), Some(Doubt::Block(BlockNo(1196))));
    let mut l = liveness();
    for bits in [bit(1198), bit(1150)] {
        let block = [bits, vec![0; SIZE as usize - 32]].concat();
        l.payload_seen(Extent::new(bitmap_at, SIZE), Some(&block), ConnectionId(0));
    }
    l.written(BlockRange::new(1196, 1200), ConnectionId(0));
    superblock(&mut l, &told);
    assert_eq!(l.doubt(4, &[0; 32], false), Some(Doubt::Block(BlockNo(1196))));
    let mut l = liveness();
    l.written(one(block), ConnectionId(0));
    raw = raw_superblock();
    // What is written under a mount is in a bitmap before the unmount.
    let mut mounted = liveness();
    raw[58] = 0;
    superblock(&mut mounted, &raw);
    mounted.written(one(block), ConnectionId(0));
    mounted.payload_seen(Extent::new(bitmap_at, 32), Some(&[0; 32]), ConnectionId(0));
    assert!(mounted.doubtful_groups().is_empty());
    // The bit: seen once, it may be cleared again. The bitmap itself waits for the superblock.
    l.payload_seen(Extent::new(bitmap_at, 32), Some(&bit(block)), ConnectionId(0));
    l.payload_seen(Extent::new(bitmap_at, 32), Some(&[0; 32]), ConnectionId(0));
    assert_eq!(l.doubt(4, &[0; 32], true), Some(Doubt::Bitmap(4)));
    assert_eq!(l.doubt(4, &[0; 32], false), None, "it is what it was");
    assert_eq!(l.doubt(5, &[0; 32], true), None);
    let mut next = l.clone();
    raw[58] = 1;
    superblock(&mut l, &raw);
    assert_eq!(l.doubt(4, &[0; 32], true), Some(Doubt::Bitmap(4)), "the same superblock tells nothing");
    raw[12] ^= 3;
    superblock(&mut l, &raw);
    assert!(l.doubtful_groups().is_empty(), "{:?}", l.doubtful_groups());
    assert_eq!(l.doubt(4, &[0; 32], true), None);
    // A mount's unmount does not tell of what came before the mount.
    for state in [0, 1] {
        raw[58] = state;
        superblock(&mut next, &raw);
    }
    assert_eq!(next.doubt(4, &[0; 32], true), Some(Doubt::Bitmap(4)));
    assert!(
        Doubt::Block(BlockNo(7)).to_string().contains("block 7")
            && Doubt::Bitmap(3).to_string().contains("group 3")
    );
}
