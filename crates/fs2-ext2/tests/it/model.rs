//! Volumes made here, byte by byte, against plain sets of blocks. Needs nothing.

use fs2_block::{BlockNo, BlockRange, ReadAt};
use fs2_ext2::convert::{create, plan, undo};
use fs2_ext2::{
    FreeMap, GroupDesc, Layout, Problem, SUPERBLOCK_BYTES, Superblock, TableFile, free_runs, used_runs,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
struct Shape {
    log: u32,
    blocks: u32,
    per_group: u32,
    inodes: u32,
    inode_size: u16,
    reserved: u16,
    sparse: bool,
    /// Where each group's bitmaps and table go: in the group itself, or all in the first.
    elsewhere: bool,
    noise: u64,
    /// How many of 8 free blocks are in use.
    fill: u64,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let geometry = (0u32..3, 200u32..3000, 16u32..200, 2u32..8, prop::bool::ANY, 0u16..6);
    (geometry, prop::bool::ANY, prop::bool::weighted(0.3), any::<u64>(), 0u64..8).prop_map(
        |((log, blocks, eighth, inodes, big, reserved), sparse, elsewhere, noise, fill)| Shape {
            log,
            blocks,
            per_group: eighth * 8,
            inodes: inodes * 8,
            inode_size: if big { 256 } else { 128 },
            reserved,
            sparse,
            elsewhere,
            noise,
            fill,
        },
    )
}

struct Volume {
    bytes: Vec<u8>,
    used: BTreeSet<u32>,
    fixed: BTreeSet<u32>,
    layout: Layout,
}

fn mix(seed: u64, n: u64) -> u64 {
    let mut z = seed ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

/// Groups 0, 1 and powers of 3, 5 and 7, by list.
fn has_copy(group: u32, sparse: bool) -> bool {
    !sparse || [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343].contains(&group)
}

/// Builds a volume; `None` where the shape has no room for its metadata.
fn build(shape: &Shape) -> Option<Volume> {
    let size = 1024usize << shape.log;
    let first = u32::from(shape.log == 0);
    let groups = (shape.blocks - first).div_ceil(shape.per_group);
    let mut raw = [0u8; SUPERBLOCK_BYTES];
    let mut put = |at: usize, value: u32| raw[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(0, shape.inodes * groups);
    put(4, shape.blocks);
    put(20, first);
    put(24, shape.log);
    put(28, shape.log);
    put(32, shape.per_group);
    put(40, shape.inodes);
    put(76, 1);
    put(84, 11);
    put(88, u32::from(shape.inode_size));
    put(96, 2);
    put(100, u32::from(shape.sparse));
    put(56, 0xEF53 | 1 << 16);
    raw[206..208].copy_from_slice(&shape.reserved.to_le_bytes());
    let sb = Superblock::parse(&raw).ok()?;
    let descriptor_blocks = (groups * 32).div_ceil(size as u32);
    let table_blocks = (shape.inodes * u32::from(shape.inode_size)).div_ceil(size as u32);

    let mut fixed = BTreeSet::new();
    fixed.extend((first == 1).then_some(0));
    for g in (0..groups).filter(|g| has_copy(*g, shape.sparse)) {
        let start = first + g * shape.per_group;
        for block in start..start + 1 + descriptor_blocks + u32::from(shape.reserved) {
            if block >= shape.blocks || !fixed.insert(block) {
                return None;
            }
        }
    }
    // Each group's pieces at the first room from the start of the group (or of the volume).
    let mut place = |from: u32, len: u32| -> Option<BlockNo> {
        let at = (from..shape.blocks)
            .find(|&at| (at..at + len).all(|b| b < shape.blocks && !fixed.contains(&b)))?;
        fixed.extend(at..at + len);
        Some(BlockNo(at))
    };
    let mut descs = Vec::new();
    for g in 0..groups {
        let from = if shape.elsewhere { first } else { first + g * shape.per_group };
        descs.push(GroupDesc {
            block_bitmap: place(from, 1)?,
            inode_bitmap: place(from, 1)?,
            inode_table: place(from, table_blocks)?,
            free_blocks: 0,
            free_inodes: 0,
            used_dirs: 0,
        });
    }
    let mut used: BTreeSet<u32> = fixed.clone();
    used.extend((first..shape.blocks).filter(|&b| mix(shape.noise, u64::from(b)) % 8 < shape.fill));
    let mut free = 0;
    for (g, desc) in (0..).zip(&mut descs) {
        let start = first + g * shape.per_group;
        let end = (start + shape.per_group).min(shape.blocks);
        let here = (start..end).filter(|b| !used.contains(b)).count();
        desc.free_blocks = here as u16;
        free += here as u32;
    }
    raw[12..16].copy_from_slice(&free.to_le_bytes());
    let layout = Layout::from_parts(Superblock::parse(&raw).ok()?, descs.clone()).expect("a fitting layout");

    let mut bytes: Vec<u8> = (0..shape.blocks as usize * size / 8)
        .flat_map(|i| mix(shape.noise ^ 1, i as u64).to_le_bytes())
        .collect();
    let extent = layout.descriptors_extent();
    bytes[extent.offset() as usize..extent.end() as usize].copy_from_slice(layout.descriptors_bytes());
    bytes[1024..2048].copy_from_slice(&raw);
    for (g, desc) in (0..).zip(&descs) {
        let start = first + g * shape.per_group;
        let at = desc.block_bitmap.0 as usize * size;
        for bit in 0..shape.per_group.min(shape.blocks - start) {
            let mask = 1 << (bit % 8);
            let byte = &mut bytes[at + bit as usize / 8];
            if used.contains(&(start + bit)) { *byte |= mask } else { *byte &= !mask }
        }
        let at = desc.inode_table.0 as usize * size;
        bytes[at..at + table_blocks as usize * size].fill(0);
    }
    assert_eq!(sb.group_count(), groups);
    Some(Volume { bytes, used, fixed, layout })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn layout_against_sets(shape in shapes()) {
        let Some(mut volume) = build(&shape) else { return Ok(()) };
        let layout = Layout::read(&mut volume.bytes).unwrap();
        prop_assert_eq!(&layout, &volume.layout);
        let first = layout.first_data_block();
        for block in 0..shape.blocks + 10 {
            let expected = block >= shape.blocks || volume.fixed.contains(&block);
            prop_assert_eq!(layout.is_static_metadata(BlockNo(block)), expected, "block {}", block);
            let group = layout.groups().iter().position(|d| d.block_bitmap.0 == block);
            prop_assert_eq!(layout.bitmaps_in(BlockRange::one(BlockNo(block))).next(), group.map(|g| (g as u32, BlockNo(block))));
            if (first..shape.blocks).contains(&block) {
                let g = layout.group_of(BlockNo(block));
                prop_assert!(layout.group_blocks(g).contains(BlockNo(block)));
            }
        }
        prop_assert_eq!(layout.static_metadata_blocks(), volume.fixed.len() as u64);
        for n in 0..20 {
            let a = mix(shape.noise, n) % u64::from(shape.blocks);
            let range = BlockRange::new(a as u32, (a + mix(shape.noise, n + 99) % 300) as u32);
            let ours: Vec<u32> = layout.static_metadata_in(range).flat_map(|r| r.iter().map(|b| b.0).collect::<Vec<_>>()).collect();
            let theirs: Vec<u32> = volume.fixed.range(range.start()..range.end()).copied().collect();
            prop_assert_eq!(ours, theirs);
            let mut bitmaps: Vec<(u32, BlockNo)> = (0..).zip(layout.groups()).map(|(g, d)| (g, d.block_bitmap)).filter(|(_, b)| range.contains(*b)).collect();
            bitmaps.sort_by_key(|(_, b)| *b);
            prop_assert_eq!(layout.bitmaps_in(range).collect::<Vec<_>>(), bitmaps);
        }
        let mut groups = 0;
        layout.for_each_bitmap(&mut volume.bytes, |g, bytes| {
            let range = layout.group_blocks(g);
            let map = FreeMap::new(&layout, g, bytes)?;
            let free: Vec<u32> = map.free_runs().iter().flat_map(|r| r.start()..r.end()).collect();
            assert_eq!(free, (range.start()..range.end()).filter(|b| !volume.used.contains(b)).collect::<Vec<_>>());
            let both: u32 = map.used_runs().iter().chain(&map.free_runs()).map(|r| r.len()).sum();
            assert_eq!((both, map.free_count() as usize), (range.len(), free.len()));
            assert_eq!(map.free_runs(), free_runs(&layout, g, bytes));
            assert_eq!(map.used_runs(), used_runs(&layout, g, bytes));
            assert!(range.iter().all(|b| map.is_free(b) != volume.used.contains(&b.0)));
            // Fewer bytes than the group has: what is missing is not free.
            let part = &bytes[..3.min(bytes.len())];
            assert!(free_runs(&layout, g, part).iter().all(|r| r.end() <= range.start() + 24));
            groups += 1;
            Ok(())
        }).unwrap();
        prop_assert_eq!(groups, layout.group_count());
    }

    #[test]
    fn create_and_undo_against_sets(shape in shapes(), eighths in 1u64..9, odd in 0u64..1024) {
        let Some(volume) = build(&shape) else { return Ok(()) };
        let size = volume.layout.block_size();
        let free = u64::from(volume.layout.superblock().free_blocks_count());
        let bytes = (free * u64::from(size.bytes()) * eighths / 8).saturating_sub(odd).max(1);
        let mut image = volume.bytes.clone();
        let table = match create(&mut image, bytes, 7, &mut |_, _, _| Ok(()), &mut |_, _, _| Ok(())) {
            Ok(table) => table,
            Err(problem) => {
                // Only the indirect blocks can have been too much.
                prop_assert!(eighths == 8 || free < 60, "{}", problem);
                let no_space = matches!(problem, Problem::NoSpace { .. });
                prop_assert!(no_space, "{}", problem);
                prop_assert!(image == volume.bytes);
                return Ok(());
            }
        };
        let layout = Layout::read(&mut image).unwrap();
        let found = TableFile::find(&layout, &mut image).unwrap();
        prop_assert_eq!(found.as_ref(), Some(&table));
        let taken: BTreeSet<u32> = table.blocks.iter().flat_map(|r| r.start()..r.end()).collect();
        prop_assert!(taken.is_disjoint(&volume.used));
        let data: u64 = table.data.iter().map(|r| u64::from(r.len())).sum();
        prop_assert_eq!(data, bytes.div_ceil(u64::from(size.bytes())));
        // Every byte of the file by its place, whichever way it is asked for.
        for n in 0..10 {
            let at = mix(shape.noise, n) % bytes;
            let one = table.extent_of(at, 1);
            prop_assert_eq!(one.len(), 1);
            let rest = table.extent_of(at, bytes - at);
            prop_assert_eq!(rest[0].offset(), one[0].offset());
            prop_assert_eq!(rest.iter().map(|e| e.len()).sum::<u64>(), bytes - at);
            let blocks = one[0].blocks_touched(size);
            prop_assert!(table.owns(blocks) && table.owns(BlockRange::one(blocks.first())));
        }
        for block in 0..shape.blocks {
            prop_assert_eq!(table.owns(BlockRange::one(BlockNo(block))), taken.contains(&block));
        }
        // Exactly those blocks are in use now, and the counts say so.
        let mut free_now = 0;
        layout.for_each_bitmap(&mut image.clone(), |g, bitmap| {
            let map = FreeMap::new(&layout, g, bitmap)?;
            for block in layout.group_blocks(g).iter() {
                let used = volume.used.contains(&block.0) || taken.contains(&block.0);
                assert_eq!(map.is_free(block), !used, "block {block}");
            }
            assert_eq!(map.free_count(), u32::from(layout.groups()[g as usize].free_blocks));
            free_now += map.free_count();
            Ok(())
        }).unwrap();
        prop_assert_eq!(free_now, layout.superblock().free_blocks_count());
        // Keeps C1: what was in use and is no metadata is untouched, and so is what is still free.
        let block = |image: &[u8], b: u32| image[size.bytes_of(b) as usize..size.bytes_of(b + 1) as usize].to_vec();
        for b in (0..shape.blocks).filter(|b| !volume.fixed.contains(b) && !taken.contains(b)) {
            prop_assert!(block(&image, b) == block(&volume.bytes, b), "block {} was written", b);
        }
        undo(&mut image, &mut |_, _, _| Ok(())).unwrap();
        for b in 0..shape.blocks {
            let now = block(&image, b);
            let as_before = if taken.contains(&b) { now.iter().all(|&x| x == 0) } else { now == block(&volume.bytes, b) };
            prop_assert!(as_before, "block {} after undo", b);
        }
    }

    /// A plan writes nothing and is what create does.
    #[test]
    fn plans_hold(shape in shapes(), bytes in 1u64..100_000) {
        let Some(mut volume) = build(&shape) else { return Ok(()) };
        let Ok(planned) = plan(&mut volume.bytes, bytes, 7) else { return Ok(()) };
        prop_assert_eq!(planned.table.size, bytes);
        let mut told = None;
        let table = create(&mut volume.bytes, bytes, 7, &mut |_, _, _| Ok(()), &mut |_, _, layout| {
            told = Some(layout.clone());
            Ok(())
        }).unwrap();
        prop_assert_eq!(&table, &planned.table);
        let layout = Layout::read(&mut volume.bytes).unwrap();
        prop_assert_eq!(&layout, &planned.layout);
        prop_assert_eq!(Some(layout), told);
        prop_assert!(volume.bytes.size_bytes().unwrap() > 0);
    }
}
