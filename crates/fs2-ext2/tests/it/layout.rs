//! Superblock, descriptors, static metadata and free blocks against dumpe2fs.
//! Needs e2fsprogs, no root.

use fs2_block::{BlockNo, BlockRange, BlockSize, Extent};
use fs2_ext2::{Features, FreeMap, Layout, Problem, Superblock, free_runs, used_runs};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::{self, Dump, FileDev, joined, mke2fs, need_e2fsprogs, small_content};

/// Compares everything.
fn compare(image: &Path, options: &str) -> Layout {
    let dump = Dump::of(image);
    let mut dev = FileDev::open(image);
    let layout = Layout::read(&mut dev).unwrap_or_else(|e| panic!("{options}: {e}"));
    let sb = layout.superblock();
    let n = |key| dump.number(key);
    assert_eq!(n("Block count"), u64::from(sb.blocks_count()), "{options}");
    assert_eq!(n("Inode count"), u64::from(sb.inodes_count()), "{options}");
    assert_eq!(n("Free blocks"), u64::from(sb.free_blocks_count()), "{options}");
    assert_eq!(n("Free inodes"), u64::from(sb.free_inodes_count()), "{options}");
    assert_eq!(n("First block"), u64::from(sb.first_data_block()), "{options}");
    assert_eq!(n("Block size"), u64::from(sb.block_size().bytes()), "{options}");
    assert_eq!(n("Blocks per group"), u64::from(sb.blocks_per_group()), "{options}");
    assert_eq!(n("Inodes per group"), u64::from(sb.inodes_per_group()), "{options}");
    assert_eq!(n("Inode blocks per group"), sb.inode_table_blocks(), "{options}");
    assert_eq!(n("Mount count"), u64::from(sb.mnt_count()), "{options}");
    assert_eq!(n("Filesystem revision #"), u64::from(sb.rev_level()), "{options}");
    if sb.rev_level() > 0 {
        assert_eq!(n("Inode size"), u64::from(sb.inode_size()), "{options}");
        assert_eq!(n("First inode"), u64::from(sb.first_ino()), "{options}");
        let features = &dump.header["Filesystem features"];
        let mut theirs: Vec<&str> = features.split_whitespace().collect();
        let mut ours = sb.features().names();
        theirs.sort_unstable();
        ours.sort_unstable();
        assert_eq!(theirs, ours, "{options}");
    }
    let reserved = dump.header.get("Reserved GDT blocks").map_or(0, |v| v.parse().unwrap());
    assert_eq!(sb.reserved_gdt_blocks(), reserved, "{options}");
    assert_eq!(dump.header["Filesystem state"] == "clean", sb.is_clean() && !sb.has_errors(), "{options}");

    assert_eq!(dump.groups.len(), layout.group_count() as usize, "{options}");
    let mut fixed = Vec::new();
    for (g, (theirs, ours)) in (0..).zip(dump.groups.iter().zip(layout.groups())) {
        assert_eq!(theirs.blocks, layout.group_blocks(g), "{options}: group {g}");
        assert_eq!(theirs.block_bitmap, ours.block_bitmap.0, "{options}: group {g}");
        assert_eq!(theirs.inode_bitmap, ours.inode_bitmap.0, "{options}: group {g}");
        assert_eq!(theirs.inode_table.start(), ours.inode_table.0, "{options}: group {g}");
        assert_eq!(theirs.free_blocks, u32::from(ours.free_blocks), "{options}: group {g}");
        assert_eq!(theirs.free_inodes, u32::from(ours.free_inodes), "{options}: group {g}");
        assert_eq!(theirs.directories, u32::from(ours.used_dirs), "{options}: group {g}");
        assert_eq!(layout.group_of(theirs.blocks.first()), g);
        assert_eq!(layout.group_of(BlockNo(theirs.blocks.end() - 1)), g);
        fixed.extend(theirs.copies.iter().copied());
        fixed.extend([
            BlockRange::one(ours.block_bitmap),
            BlockRange::one(ours.inode_bitmap),
            theirs.inode_table,
        ]);
    }
    fixed.extend((sb.first_data_block() == 1).then_some(BlockRange::new(0, 1)));
    let fixed = joined(fixed);
    let theirs: Vec<(u32, u64)> = (0..)
        .zip(&dump.groups)
        .skip(1)
        .filter_map(|(g, d)| Some((g, u64::from(d.copies.first()?.start()))))
        .collect();
    let at = |group: u32| layout.copy_extent(group).offset();
    let size = u64::from(layout.block_size().bytes());
    let ours: Vec<(u32, u64)> = layout.copies().iter().map(|&g| (g, at(g) / size)).collect();
    assert_eq!(ours, theirs, "{options}: copies of the superblock");
    let mut read = 0;
    layout
        .for_each_copy(&mut dev, |copy| {
            // Its magic, and the group it is in.
            let group = layout.copies()[read] as u16;
            assert_eq!(copy[56..58], [0x53, 0xef], "{options}");
            assert_eq!(copy[90..92], group.to_le_bytes(), "{options}");
            read += 1;
        })
        .unwrap();
    assert_eq!(read, theirs.len(), "{options}");
    for &group in layout.copies() {
        let (from, to) = (at(group), at(group) + 1024);
        let touched = |offset: u64, len: u64| layout.copies_in(Extent::new(offset, len)).collect::<Vec<_>>();
        assert_eq!((touched(from, 1), touched(to - 1, 1)), (vec![group], vec![group]), "{options}");
        assert_eq!((touched(from - 512, 512), touched(to, 512)), (vec![], vec![]), "{options}");
    }
    let all = Extent::new(0, size * u64::from(layout.blocks()));
    assert_eq!(layout.copies_in(all).collect::<Vec<_>>(), layout.copies(), "{options}");
    let all = BlockRange::new(0, layout.blocks());
    let ours: Vec<BlockRange> = layout.static_metadata_in(all).collect();
    assert_eq!(ours, fixed, "{options}: static metadata");
    assert_eq!(layout.static_metadata_blocks(), fixed.iter().map(|r| u64::from(r.len())).sum::<u64>());
    for range in &fixed {
        for block in [range.start(), range.end() - 1] {
            assert!(layout.is_static_metadata(BlockNo(block)), "{options}: block {block}");
        }
        let outside = [range.start().checked_sub(1), (range.end() < layout.blocks()).then_some(range.end())];
        for block in outside.into_iter().flatten() {
            assert!(!layout.is_static_metadata(BlockNo(block)), "{options}: block {block}");
        }
    }

    let mut groups = 0;
    layout
        .for_each_bitmap(&mut dev, |g, bytes| {
            let theirs = &dump.groups[g as usize];
            assert_eq!(free_runs(&layout, g, bytes), theirs.free, "{options}: free blocks of group {g}");
            let map = FreeMap::new(&layout, g, bytes).unwrap();
            assert_eq!(map.free_runs(), theirs.free);
            assert_eq!(map.free_count(), theirs.free_blocks, "{options}: group {g}");
            let both = [theirs.free.clone(), used_runs(&layout, g, bytes)].concat();
            assert_eq!(joined(both), [theirs.blocks], "{options}: free and used are the whole of group {g}");
            groups += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(groups, layout.group_count());
    layout
}

#[test]
fn every_option_set() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let content = small_content(dir.path());
    // Sizes in KiB: one group, a whole number of groups, a last group of few blocks, odd ones.
    let sizes = ["3000", "8193", "24577", "9999", "16385", "33333"];
    let mut sets = 0;
    for block in [1024, 2048, 4096] {
        for inode in [128, 256] {
            for sparse in ["", "^"] {
                for resize in ["", "^"] {
                    let options = format!(
                        "-b {block} -I {inode} -O none,ext_attr,dir_index,filetype,large_file,{sparse}sparse_super,{resize}resize_inode"
                    )
                    .replace(",^sparse_super", "")
                    .replace(",^resize_inode", "");
                    // Without sparse_super mke2fs refuses resize_inode.
                    if sparse == "^" && resize.is_empty() {
                        continue;
                    }
                    let size = sizes[sets % sizes.len()];
                    let image = mke2fs(dir.path(), "v", &options, &format!("{size}k"), Some(&content));
                    let layout = compare(&image, &format!("{options} {size}k"));
                    layout.check_usable().unwrap();
                    sets += 1;
                }
            }
        }
    }
    assert_eq!(sets, 18);
}

#[test]
fn special_shapes() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let sets = [
        ("-b 1024 -g 256 -N 64 -O none,sparse_super", "5000k"),
        ("-b 1024 -g 256 -N 64 -O none,filetype", "4999k"),
        ("-b 1024 -g 512 -N 3000", "20001k"),
        ("-b 2048 -g 1024", "30002k"),
        ("-b 4096 -g 256 -N 700 -O none,sparse_super,filetype", "60004k"),
        ("-b 4096 -g 8192", "250000k"),
        ("-b 1024 -r 0", "9000k"),
        ("-b 4096 -r 0", "9000k"),
        ("-b 1024 -I 512", "9000k"),
        ("-b 4096 -I 1024", "9000k"),
        ("-b 1024 -E stride=16", "40000k"),
        ("-b 1024 -E resize=4000000", "40000k"),
        ("-b 1024 -m 0 -N 16", "100k"),
        ("-b 4096 -m 0 -N 16", "400k"),
    ];
    for (options, size) in sets {
        let image = mke2fs(dir.path(), "v", options, size, None);
        compare(&image, options).check_usable().unwrap();
    }
}

#[test]
fn grown_and_shrunk() {
    need_e2fsprogs!();
    if !common::has("resize2fs") {
        println!("skipped: resize2fs not found");
        return;
    }
    let dir = common::scratch();
    let content = small_content(dir.path());
    for options in ["-b 1024", "-b 4096 -g 1024", "-b 1024 -g 1024 -O none,sparse_super"] {
        let image = mke2fs(dir.path(), "v", options, "9000k", Some(&content));
        for size in ["30001k", "70000k", "12345k", "6000k"] {
            common::output("resize2fs", &["-f", common::text(&image), size]);
            compare(&image, &format!("{options} resized to {size}"));
        }
    }
}

#[test]
fn hundreds_of_sparse_gib() {
    need_e2fsprogs!();
    let dir = common::scratch();
    for (options, size) in [
        ("-b 4096 -N 60000", "300G"),
        ("-b 4096 -N 60000 -O none,filetype", "97G"),
        ("-b 1024 -N 100000", "40G"),
    ] {
        let image = mke2fs(dir.path(), "v", options, size, None);
        compare(&image, options);
        std::fs::remove_file(image).unwrap();
    }
}

#[test]
fn metadata_in_other_groups() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let features = "-O none,ext_attr,filetype,sparse_super,flex_bg";
    let image = mke2fs(dir.path(), "v", &format!("-b 1024 -G 8 {features}"), "100M", None);
    let layout = compare(&image, "flex_bg");
    assert_ne!(layout.group_of(layout.bitmap_block(5)), 5, "flex_bg puts it elsewhere");
    assert!(
        matches!(layout.unsupported(), Err(Problem::Unsupported { features }) if features == ["flex_bg"])
    );
}

#[test]
fn more_copies_than_an_attach_reads_are_refused() {
    need_e2fsprogs!();
    let dir = common::scratch();
    // Groups of 256 KiB, the first of them behind a boot block.
    let of = |groups: u32, sparse: &str| {
        let options = format!("-b 1024 -g 256 -N 40000 -O none,{sparse}filetype");
        let image = mke2fs(dir.path(), "v", &options, &format!("{}k", 1 + 256 * groups), None);
        Layout::read(&mut FileDev::open(&image)).unwrap()
    };
    let most = of(1025, "");
    assert_eq!((most.copies().len(), most.check_usable().is_ok()), (1024, true));
    let more = of(1026, "");
    assert_eq!(more.copies().len(), 1025);
    for refused in [more.unsupported(), more.check_usable()] {
        let said = refused.unwrap_err().to_string();
        assert!(
            said.starts_with("1025 copies of the superblock, one in each group, are more than the 1024"),
            "{said}"
        );
        assert!(said.ends_with("tune2fs -O sparse_super and e2fsck -f"), "{said}");
    }
    let sparse = of(1026, "sparse_super,");
    assert_eq!((sparse.copies().len(), sparse.check_usable().is_ok()), (14, true));
}

#[test]
fn a_copy_that_cannot_be_read_is_named() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let image = mke2fs(dir.path(), "v", "-b 1024", "40M", None);
    let layout = Layout::read(&mut FileDev::open(&image)).unwrap();
    assert_eq!(layout.copies(), [1, 3]);
    // It ends in the middle of the copy of group 3.
    File::options().write(true).open(&image).unwrap().set_len(24577 * 1024 + 512).unwrap();
    let mut read = 0;
    let problem = layout.for_each_copy(&mut FileDev::open(&image), |_| read += 1).unwrap_err();
    assert_eq!(problem.to_string(), "block 24577, copy of the superblock in group 3, cannot be read");
    assert_eq!(read, 1);
}

#[test]
fn foreign_volumes_are_refused_by_name() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let sets = [
        ("-O none,has_journal,filetype,extent", vec!["has_journal", "extent"]),
        ("-O none,64bit,extent", vec!["extent", "64bit"]),
        ("-O none,meta_bg", vec!["meta_bg"]),
        ("-O none,metadata_csum", vec!["metadata_csum"]),
        ("-O none,uninit_bg", vec!["uninit_bg"]),
        ("-O none,extent,bigalloc", vec!["extent", "bigalloc"]),
        ("-O none,sparse_super2", vec!["sparse_super2"]),
    ];
    for (options, names) in sets {
        let image = mke2fs(dir.path(), "v", options, "20M", None);
        let problem =
            Layout::read(&mut FileDev::open(&image)).and_then(|layout| layout.unsupported()).unwrap_err();
        match &problem {
            Problem::Unsupported { features } => assert_eq!(features, &names, "{options}"),
            other => panic!("{options}: {other}"),
        }
        assert_eq!(problem.to_string(), format!("unsupported: {}", names.join(" ")));
    }
    // The kernel and e2fsprogs go by feature words in revision 0, too, which should have none.
    let image = mke2fs(dir.path(), "v", "-r 0 -O none", "20M", None);
    assert!(Layout::read(&mut FileDev::open(&image)).and_then(|layout| layout.unsupported()).is_ok());
    for (word, bit, name) in
        [(92, 0x4, "has_journal"), (96, 0x40, "extent"), (96, 0x80, "64bit"), (100, 0x200, "bigalloc")]
    {
        let dev = FileDev::open(&image);
        let put = |bits: u32| dev.0.write_all_at(&bits.to_le_bytes(), 1024 + word).unwrap();
        put(bit);
        let problem =
            Layout::read(&mut FileDev::open(&image)).and_then(|layout| layout.unsupported()).unwrap_err();
        assert_eq!(problem.to_string(), format!("unsupported: {name}"));
        put(0);
    }
    std::fs::write(dir.path().join("noise"), [7; 4096]).unwrap();
    let noise = Layout::read(&mut FileDev::open(&dir.path().join("noise")));
    assert!(matches!(noise, Err(Problem::NotExt2)));
}

/// Whoever reads that there is no ext2 volume makes a new one, and loses this.
#[test]
fn a_volume_whose_first_superblock_is_gone_is_told_from_no_volume() {
    need_e2fsprogs!();
    let dir = common::scratch();
    for (block_bytes, block) in [(1024, 8193), (2048, 16384), (4096, 32768)] {
        let image = mke2fs(dir.path(), "v", &format!("-b {block_bytes}"), "160M", None);
        let zeroes = FileDev::open(&image);
        zeroes.0.write_all_at(&[0; 1024], 1024).unwrap();
        let problem = Layout::read(&mut FileDev::open(&image)).unwrap_err();
        let found = matches!(problem, Problem::NoSuperblock { block: b, block_bytes: s } if (b, s) == (block, block_bytes));
        assert!(found, "{problem}");
        assert!(problem.to_string().ends_with(&format!("e2fsck -b {block} -B {block_bytes}")), "{problem}");
        // Cut off before the copy's end.
        zeroes.0.set_len(block * block_bytes + block_bytes - 1).unwrap();
        assert!(matches!(Layout::read(&mut FileDev::open(&image)), Err(Problem::NotExt2)));
    }
}

#[test]
fn a_cut_off_device_is_refused() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let image = mke2fs(dir.path(), "v", "-b 1024", "9000k", None);
    let dev = FileDev::open(&image);
    dev.0.set_len(9000 * 1024 - 1).unwrap();
    let problem = Layout::read(&mut FileDev::open(&image)).unwrap_err();
    assert!(matches!(problem, Problem::Truncated { needs: 9_216_000, has: 9_215_999 }), "{problem}");
    dev.0.set_len(1500).unwrap();
    assert!(matches!(Layout::read(&mut FileDev::open(&image)), Err(Problem::TooShort { has: 1500 })));
}

#[test]
fn every_feature_has_its_name() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let image = mke2fs(dir.path(), "v", "-b 1024 -O none", "200k", None);
    let mut bytes = std::fs::read(&image).unwrap();
    let mut compared = 0;
    for word in 0..3 {
        for bit in 0..32 {
            let at = 1024 + 92 + 4 * word;
            bytes[at..at + 4].copy_from_slice(&(1u32 << bit).to_le_bytes());
            std::fs::write(&image, &bytes).unwrap();
            bytes[at..at + 4].fill(0);
            let said = common::run("dumpe2fs", &["-h", "-f", common::text(&image)]);
            let dump = Dump::parse(&String::from_utf8_lossy(&said.stdout));
            let Some(theirs) = dump.header.get("Filesystem features") else { continue };
            let mut features = Features::default();
            [&mut features.compat, &mut features.incompat, &mut features.ro_compat][word]
                .clone_from(&(1 << bit));
            assert_eq!(features.names().join(" "), *theirs, "word {word}, bit {bit}");
            compared += 1;
        }
    }
    assert!(compared > 80, "only {compared} compared");
}

#[test]
fn states() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let image = mke2fs(dir.path(), "v", "-b 4096", "4M", None);
    let mut raw = [0; 1024];
    raw.copy_from_slice(&std::fs::read(&image).unwrap()[1024..2048]);
    assert_eq!(Superblock::parse(&raw).unwrap().block_size(), BlockSize::B4096);
    for (state, clean, errors) in [(0u16, false, false), (1, true, false), (2, false, true), (3, true, true)]
    {
        raw[58..60].copy_from_slice(&state.to_le_bytes());
        let sb = Superblock::parse(&raw).unwrap();
        assert_eq!((sb.is_clean(), sb.has_errors()), (clean, errors));
        assert_eq!(sb.raw(), &raw);
    }
}
