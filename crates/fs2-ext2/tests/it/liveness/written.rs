//! What single writes to superblock, descriptors and bitmaps say, byte by byte.

use super::*;

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
