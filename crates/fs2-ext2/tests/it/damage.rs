//! Damaged volumes: whatever byte is wrong, an answer or a problem comes back, in bounded time and
//! memory. What it does not check: that each damage is noticed. Needs e2fsprogs, no root.

use fs2_block::{BlockNo, BlockRange, ReadAt, WriteAt};
use fs2_ext2::convert::{create, undo};
use fs2_ext2::{
    BlockMap, FreeMap, Inode, Layout, Problem, SUPERBLOCK_BYTES, Superblock, TableFile, clear_clean_flag,
    free_runs, lookup, read_dir,
};
use std::io;
use std::rc::Rc;

use crate::common::crash::{Event, Recorder};
use crate::common::{self, FileDev, Rng, large_content, mke2fs, need_e2fsprogs};

/// A volume shared by all cases of a test, with a few bytes of its own, that counts what is read.
struct Damaged {
    image: Rc<Vec<u8>>,
    bytes: Vec<(u64, u8)>,
    read: u64,
}

impl ReadAt for Damaged {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.image.len() as u64);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(&self.image[offset as usize..offset as usize + buf.len()]);
        for &(at, byte) in &self.bytes {
            if let Some(b) = at.checked_sub(offset).and_then(|i| buf.get_mut(i as usize)) {
                *b = byte;
            }
        }
        self.read += buf.len() as u64;
        Ok(())
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        Ok(self.image.len() as u64)
    }
}

#[derive(Default, Debug)]
struct Tally {
    refused: u32,
    corrupt: u32,
    maps: u32,
    tables: u32,
    not_tables: u32,
}

/// Reads all there is to read.
fn exercise(dev: &mut Damaged, inodes: &[u32], tally: &mut Tally) -> Result<(), Problem> {
    let size = dev.image.len() as u64;
    let layout = Layout::read(dev)?;
    assert!(layout.static_metadata_blocks() <= u64::from(layout.blocks()));
    let _ = layout.check_usable();
    let all: u64 = layout.static_metadata_in(BlockRange::new(0, u32::MAX)).map(|r| u64::from(r.len())).sum();
    assert_eq!(all, layout.static_metadata_blocks());
    layout.for_each_bitmap(dev, |g, bytes| {
        let runs = free_runs(&layout, g, bytes);
        assert!(runs.iter().all(|r| r.intersect(layout.group_blocks(g)) == *r));
        match FreeMap::new(&layout, g, bytes) {
            Ok(map) => assert_eq!(map.free_runs(), runs),
            Err(problem) => assert!(matches!(problem, Problem::Corrupt { .. })),
        }
        Ok(())
    })?;
    for &ino in inodes {
        let before = dev.read;
        let Ok(inode) = Inode::read(&layout, dev, ino) else { continue };
        match BlockMap::read(&layout, dev, &inode) {
            Ok(map) => {
                tally.maps += 1;
                // B1, B2.
                let blocks: u64 = map.all_blocks().iter().map(|r| u64::from(r.len())).sum();
                assert_eq!(blocks, map.data_blocks() + map.indirect.len() as u64);
                for range in map.all_blocks() {
                    assert!(range.start() >= layout.first_data_block() && range.end() <= layout.blocks());
                }
                let _ = read_dir(&layout, dev, &inode);
            }
            Err(problem) => {
                tally.corrupt += 1;
                assert!(!problem.to_string().is_empty());
            }
        }
        assert!(dev.read - before <= 2 * size, "{} bytes read for inode {ino}", dev.read - before);
    }
    let _ = lookup(&layout, dev, "/many/none");
    match TableFile::find(&layout, dev) {
        Ok(Some(table)) => {
            tally.tables += 1;
            let bytes: u64 = table.extents.iter().map(|(_, e)| e.len()).sum();
            assert!(bytes >= table.size);
        }
        Ok(None) => {}
        Err(_) => tally.not_tables += 1,
    }
    Ok(())
}

/// The bytes of interest: superblock, descriptors, bitmaps, some inodes, their indirect blocks,
/// the first blocks of directories.
fn targets(layout: &Layout, dev: &mut dyn ReadAt, inodes: &[u32]) -> Vec<(u64, u64)> {
    let size = layout.block_size();
    let mut all = vec![
        (1024, 264),
        (1024, 120),
        (layout.descriptors_extent().offset(), layout.descriptors_extent().len()),
    ];
    for g in 0..layout.group_count() {
        all.push((layout.bitmap_block(g).extent(size).offset(), u64::from(size.bytes())));
    }
    for &ino in inodes {
        let sb = layout.superblock();
        let group = layout.groups()[((ino - 1) / sb.inodes_per_group()) as usize];
        let index = u64::from((ino - 1) % sb.inodes_per_group());
        all.push((group.inode_table.extent(size).offset() + index * u64::from(sb.inode_size()), 128));
        let inode = Inode::read(layout, dev, ino).unwrap();
        let map = BlockMap::read(layout, dev, &inode).unwrap();
        all.extend(map.indirect.iter().map(|b| (b.extent(size).offset(), u64::from(size.bytes()))));
        if inode.is_directory() {
            all.extend(
                map.data.iter().map(|(_, r)| (r.first().extent(size).offset(), u64::from(size.bytes()))),
            );
        }
    }
    all
}

#[test]
fn flipped_bytes() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let content = large_content(dir.path());
    let mut tally = Tally::default();
    let mut done = 0;
    for (n, options) in ["-b 1024 -g 2048 -N 400", "-b 4096 -I 128 -N 200"].iter().enumerate() {
        let path = mke2fs(dir.path(), "v", options, "9M", Some(&content));
        let mut file = FileDev::open(&path);
        create(&mut file, 700_000, 1, &mut |_, _, _| Ok(()), &mut |_, _, _| Ok(())).unwrap();
        let image = Rc::new(std::fs::read(&path).unwrap());
        let layout = Layout::read(&mut file).unwrap();
        let mut inodes = vec![2, 5, 7];
        for name in ["triple", "double", "dense", "many", "long-link", "sub"] {
            inodes.push(lookup(&layout, &mut file, name).unwrap().ino);
        }
        let targets = targets(&layout, &mut file, &inodes);
        for case in 0..1500 {
            let mut rng = Rng(case + 10_000 * n as u64);
            let bytes: Vec<(u64, u8)> = (0..1 + rng.below(4))
                .flat_map(|_| {
                    let (at, len) = targets[rng.below(targets.len() as u64) as usize];
                    let at = at + rng.below(len);
                    let values = [0, 0xFF, 1, 0x80, rng.next() as u8];
                    let value = values[rng.below(5) as usize];
                    // One byte, or the four of a field.
                    let count = if rng.below(3) == 0 { 4 } else { 1 };
                    (0..count).map(move |i| (at + i, value))
                })
                .collect();
            let mut dev = Damaged { image: image.clone(), bytes, read: 0 };
            if exercise(&mut dev, &inodes, &mut tally).is_err() {
                tally.refused += 1;
            }
            done += 1;
            // A conversion of a damaged volume: refused or done, and never outside the volume.
            if case % 10 == 0 {
                let mut volume = (*image).clone();
                for &(at, byte) in &dev.bytes {
                    volume[at as usize] = byte;
                }
                let _ = undo(&mut volume, &mut |_, _, _| Ok(()));
                let _ = create(&mut volume, 50_000, 1, &mut |_, _, _| Ok(()), &mut |_, _, _| Ok(()));
            }
        }
    }
    println!("{done} volumes: {tally:?}");
    assert!(tally.refused > 100 && tally.corrupt > 500 && tally.maps > 5_000, "{tally:?}");
    assert!(tally.tables > 1_000 && tally.not_tables > 20, "{tally:?}");
}

/// Pointers that lead in circles, or to one block over and over, end soon.
#[test]
fn circles() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let path = mke2fs(dir.path(), "v", "-b 1024 -I 256 -N 64", "4M", None);
    let clean = std::fs::read(&path).unwrap();
    let layout = Layout::read(&mut clean.clone()).unwrap();
    let size = layout.block_size();
    let at = |ino: u64| (layout.groups()[0].inode_table.extent(size).offset() + (ino - 1) * 256) as usize;
    let put =
        |image: &mut Vec<u8>, at: usize, value: u32| image[at..at + 4].copy_from_slice(&value.to_le_bytes());
    let inode = |image: &mut Vec<u8>, sectors: u32| {
        image[at(12)..at(12) + 2].copy_from_slice(&0o100_644u16.to_le_bytes());
        put(image, at(12) + 4, u32::MAX);
        put(image, at(12) + 108, 3);
        put(image, at(12) + 28, sectors);
    };
    let judge = |mut image: Vec<u8>, expected: &str| {
        let inode = Inode::read(&layout, &mut image, 12).unwrap();
        let mut dev = Damaged { image: Rc::new(image), bytes: Vec::new(), read: 0 };
        let problem = BlockMap::read(&layout, &mut dev, &inode).unwrap_err().to_string();
        assert!(problem.contains(expected), "{problem}");
        assert!(dev.read < 1 << 20, "{} bytes read", dev.read);
    };
    // A triple indirect block whose every pointer is itself.
    let mut image = clean.clone();
    inode(&mut image, u32::MAX);
    put(&mut image, at(12) + 40 + 14 * 4, 2000);
    for i in 0..256 {
        put(&mut image, 2000 * 1024 + 4 * i, 2000);
    }
    judge(image, "occurs twice");
    // Data pointers all to one block: more than the inode counts.
    let mut image = clean.clone();
    inode(&mut image, 20);
    put(&mut image, at(12) + 40 + 12 * 4, 2000);
    for i in 0..256 {
        put(&mut image, 2000 * 1024 + 4 * i, 2001);
    }
    judge(image.clone(), "more blocks than the 20 sectors");
    // ... and with a count that allows them.
    inode(&mut image, u32::MAX);
    judge(image, "occurs twice");
    // Beyond the volume, and into the bitmap.
    let bitmap = layout.bitmap_block(0).0;
    for (pointer, expected) in [(4096, "outside"), (u32::MAX, "outside"), (bitmap, "static metadata")] {
        let mut image = clean.clone();
        inode(&mut image, 2);
        put(&mut image, at(12) + 40, pointer);
        judge(image, expected);
    }
}

/// Superblocks of noise around a few sane fields.
#[test]
fn superblocks_of_noise() {
    let (mut parsed, mut groups) = (0, 0);
    for seed in 0..200_000 {
        let mut rng = Rng(seed);
        let mut raw = [0u8; SUPERBLOCK_BYTES];
        let mut put = |at: usize, value: u64, bytes: usize| {
            raw[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        };
        let log = rng.below(3);
        let small = [0, 1, 8, 11, 128, 256, 8192, 32768, u64::from(u32::MAX)];
        let mut pick = |likely: u64| match rng.below(12) {
            0 => small[rng.below(9) as usize],
            1 => rng.next() & 0xFFFF_FFFF,
            _ => likely,
        };
        let per_group = pick(8192 << log);
        let blocks = pick(100_000);
        let inodes = pick(256);
        put(56, 0xEF53, 2);
        put(4, blocks, 4);
        put(20, pick(u64::from(log == 0)), 4);
        put(24, log, 4);
        put(28, log, 4);
        put(32, per_group, 4);
        put(40, inodes, 4);
        let count =
            blocks.saturating_sub(u64::from(log == 0)).div_ceil(per_group.max(1)).wrapping_mul(inodes);
        put(0, count, 4);
        put(76, pick(1), 4);
        put(84, pick(11), 4);
        put(88, pick(256), 2);
        put(206, pick(30), 2);
        let Ok(sb) = Superblock::parse(&raw) else { continue };
        parsed += 1;
        groups = groups.max(sb.group_count());
        let last = sb.group_count() - 1;
        assert!(u64::from(last) * u64::from(sb.blocks_per_group()) < u64::from(sb.blocks_count()));
        assert_eq!(sb.raw(), &raw);
        assert!(sb.group_count() <= 1 << 20, "{} groups", sb.group_count());
        // Descriptors all zero lead astray, and are refused.
        if sb.group_count() < 1000 {
            let desc = fs2_ext2::GroupDesc {
                block_bitmap: BlockNo(0),
                inode_bitmap: BlockNo(0),
                inode_table: BlockNo(0),
                free_blocks: 0,
                free_inodes: 0,
                used_dirs: 0,
            };
            let count = sb.group_count() as usize;
            assert!(Layout::from_parts(sb, vec![desc; count]).is_err());
        }
    }
    assert!(parsed > 10_000 && groups > 1000, "{parsed} parsed, up to {groups} groups");
}

/// A device that fails says where.
#[test]
fn errors_name_their_place() {
    need_e2fsprogs!();
    struct Failing(Vec<u8>, u64);
    impl ReadAt for Failing {
        fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            if (offset..offset + buf.len() as u64).contains(&self.1) {
                return Err(io::Error::other("unreadable sector"));
            }
            self.0.read_at(offset, buf)
        }
        fn size_bytes(&mut self) -> io::Result<u64> {
            self.0.size_bytes()
        }
    }
    impl WriteAt for Failing {
        fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, buf)
        }
        fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
            self.0.write_zeroes(offset, len)
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::Error::other("no power"))
        }
    }
    let dir = common::scratch();
    let path = mke2fs(dir.path(), "v", "-b 1024", "4M", None);
    let image = std::fs::read(&path).unwrap();
    let layout = Layout::read(&mut image.clone()).unwrap();
    let bitmap = layout.bitmap_block(0);
    for (at, expected) in [
        (1024, "reading the superblock at byte 1024 failed".to_string()),
        (2050, "reading the group descriptors at byte 2048 failed".to_string()),
        (
            bitmap.extent(layout.block_size()).offset(),
            format!("reading block {bitmap}, block bitmap of group 0 failed"),
        ),
        (u64::MAX, "flushing after clearing the clean flag failed".to_string()),
    ] {
        let mut dev = Failing(image.clone(), at);
        let problem = create(&mut dev, 5000, 1, &mut |_, _, _| Ok(()), &mut |_, _, _| Ok(())).unwrap_err();
        assert_eq!(problem.to_string(), expected);
        let source = std::error::Error::source(&problem).unwrap().to_string();
        assert!(source == "unreadable sector" || source == "no power");
    }
}

/// A check that nobody finished is for the next one to see, so the flag goes durably, and nothing else does.
#[test]
fn the_clean_flag_alone_goes_durably_where_it_is_on() {
    const STATE: usize = 1024 + 58;
    let with = |magic: [u8; 2], state: u8| {
        let mut image = vec![0x5a; 4096];
        image[1024 + 56..1024 + 58].copy_from_slice(&magic);
        image[STATE..STATE + 2].copy_from_slice(&[state, 0]);
        image
    };
    let magic = [0x53, 0xef];
    for (state, left) in [(1, 0), (3, 2)] {
        let mut dev = Recorder::new(with(magic, state));
        clear_clean_flag(&mut dev).unwrap();
        assert!(matches!(&dev.events[..], [Event::Write(..), Event::Flush]), "{:?}", dev.events);
        assert!(dev.image == with(magic, left), "{state}");
    }
    for image in [with(magic, 0), with(magic, 2), with([0x53, 0], 1)] {
        let mut dev = Recorder::new(image);
        clear_clean_flag(&mut dev).unwrap();
        assert!(dev.events.is_empty(), "{:?}", dev.events);
    }
}
