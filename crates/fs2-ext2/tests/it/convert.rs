//! Making and removing the table's file, judged by e2fsck, dumpe2fs and debugfs. Needs e2fsprogs,
//! no root.

use fs2_block::{BlockNo, BlockRange, ReadAt, WriteAt};
use fs2_ext2::convert::{create, plan, undo};
use fs2_ext2::{Layout, Problem, TableFile, free_runs};
use std::io;
use std::path::Path;

use crate::common::crash::{Recorder, states};
use crate::common::{
    self, Dump, FileDev, assert_same, debugfs, e2fsck, large_content, mke2fs, need_e2fsprogs, settled,
    small_content, walk,
};

const NOW: u32 = 1_700_000_000;
const MARK: &[u8] = b"the mark, with the superblock as it will be";

/// What a caller would write: every byte of the file names its own place.
fn pattern(at: u64) -> u8 {
    (at / 1024 * 37 + at % 251) as u8
}

fn write_table(dev: &mut dyn WriteAt, table: &TableFile, _: &Layout) -> io::Result<()> {
    for (at, extent) in &table.extents {
        let mut done = 0;
        while done < extent.len() {
            let n = (extent.len() - done).min(1 << 16);
            let bytes: Vec<u8> = (at + done..at + done + n).map(pattern).collect();
            dev.write_at(extent.offset() + done, &bytes)?;
            done += n;
        }
    }
    Ok(())
}

/// The mark: the superblock as it will be, then a text.
fn write_mark(dev: &mut dyn WriteAt, table: &TableFile, layout: &Layout) -> io::Result<()> {
    let mut bytes = layout.superblock().raw().to_vec();
    bytes.extend_from_slice(MARK);
    let mut done = 0;
    for extent in table.extent_of(0, bytes.len() as u64) {
        let n = extent.len() as usize;
        dev.write_at(extent.offset(), &bytes[done..done + n])?;
        done += n;
    }
    Ok(())
}

fn nothing(_: &mut dyn WriteAt, _: &TableFile, _: &Layout) -> io::Result<()> {
    Ok(())
}

/// The file's bytes as debugfs dumps them.
fn dumped(dir: &Path, image: &Path) -> Vec<u8> {
    let out = dir.join("table");
    debugfs(image, &format!("dump <5> {}", out.display()));
    std::fs::read(out).unwrap()
}

fn clean(image: &Path, what: &str) {
    let (code, said) = e2fsck(image, "-fn");
    assert_eq!(code, 0, "{what}: {said}");
}

/// Create, look with every tool, undo: each block that is in use is as before.
fn there_and_back(dir: &Path, image: &Path, bytes: u64, what: &str) {
    let before = std::fs::read(image).unwrap();
    let dump_before = common::output("dumpe2fs", &[common::text(image)]);
    let files = walk(&mut FileDev::open(image)).unwrap();

    let mut dev = FileDev::open(image);
    let table = create(&mut dev, bytes, NOW, &mut write_table, &mut write_mark)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    clean(image, what);
    let layout = Layout::read(&mut dev).unwrap();
    layout.check_usable().unwrap();
    assert_eq!(TableFile::find(&layout, &mut dev).unwrap().as_ref(), Some(&table), "{what}");
    assert_same(&walk(&mut dev).unwrap(), &files, what);

    let said = debugfs(image, "stat <5>");
    assert!(said.contains("Type: regular") && said.contains("Mode:  0600"), "{what}: {said}");
    assert!(said.contains(&format!("Size: {bytes}\n")), "{what}: {said}");
    let mut content = dumped(dir, image);
    assert_eq!(content.len() as u64, bytes);
    let marked = 1024 + MARK.len();
    assert_eq!(&content[1024..marked], MARK);
    assert_eq!(content[..1024], layout.superblock().raw()[..], "{what}: the superblock the mark was told");
    for (at, byte) in content.iter_mut().enumerate().skip(marked) {
        assert_eq!(*byte, pattern(at as u64), "{what}: byte {at} of the file");
    }
    for at in [0, bytes / 3, bytes - 1] {
        let block = debugfs(image, &format!("bmap <5> {}", at / u64::from(layout.block_size().bytes())));
        let extent = table.extent_of(at, 1)[0];
        assert_eq!(block.trim(), extent.blocks_touched(layout.block_size()).start().to_string());
    }
    let dump = Dump::parse(&common::output("dumpe2fs", &[common::text(image)]));
    let lost = Dump::parse(&dump_before).number("Free blocks") - dump.number("Free blocks");
    assert_eq!(lost, table.blocks_count(), "{what}");
    let again = create(&mut dev, bytes, NOW, &mut nothing, &mut nothing).unwrap_err();
    assert!(matches!(again, Problem::HasTable { bytes: b } if b == bytes), "{again}");

    assert_eq!(undo(&mut dev, &mut nothing).unwrap(), table);
    clean(image, what);
    assert_eq!(common::output("dumpe2fs", &[common::text(image)]), dump_before, "{what}");
    let after = std::fs::read(image).unwrap();
    let layout = Layout::read(&mut dev).unwrap();
    let size = layout.block_size().bytes() as usize;
    layout
        .for_each_bitmap(&mut dev, |g, bitmap| {
            let free = free_runs(&layout, g, bitmap);
            for block in layout.group_blocks(g).iter().filter(|&b| !free.iter().any(|run| run.contains(b))) {
                let at = block.0 as usize * size;
                assert!(before[at..at + size] == after[at..at + size], "{what}: block {block}");
            }
            Ok(())
        })
        .unwrap();
    for range in &table.blocks {
        let extent = range.extent(layout.block_size());
        let left = &after[extent.offset() as usize..extent.end() as usize];
        assert!(left.iter().all(|&b| b == 0), "{what}: the table's blocks {range} are not zeroed");
    }
    assert!(matches!(undo(&mut dev, &mut nothing), Err(Problem::NoTable)));
}

#[test]
fn every_geometry_there_and_back() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let content = small_content(dir.path());
    // Bytes: within the direct blocks, at the edges of single and double indirect, odd.
    let sizes = [4096, 12 * 1024, 12 * 1024 + 1, 48 * 1024, 268 * 1024, 268 * 1024 + 1, 777_777, 1 << 20];
    let mut n = 0;
    for block in [1024, 2048, 4096] {
        for inode in [128, 256] {
            for features in ["", " -O none", " -O none,sparse_super,filetype"] {
                let options = format!("-b {block} -I {inode}{features}");
                let image = mke2fs(dir.path(), "v", &options, "9999k", Some(&content));
                for bytes in [sizes[n % sizes.len()], sizes[(n + 3) % sizes.len()]] {
                    there_and_back(dir.path(), &image, bytes, &format!("{options}, {bytes} bytes"));
                }
                n += 1;
            }
        }
    }
    // Over many groups, and by triple indirect.
    for (options, size, bytes) in [
        ("-b 1024 -g 256 -N 700 -O none,sparse_super", "12000k", 3_000_001),
        ("-b 1024 -r 0", "12000k", 2_000_000),
        ("-b 1024 -N 100", "100M", 67_500_000u64),
        ("-b 4096 -g 1024 -N 700", "40M", 12_345_678),
    ] {
        let content = (!options.contains("-N 100")).then_some(&content);
        let image = mke2fs(dir.path(), "v", options, size, content.map(|p| p.as_path()));
        there_and_back(dir.path(), &image, bytes, options);
    }
}

/// A volume whose free space is in shreds: the file takes many runs.
#[test]
fn fragmented() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let content = dir.path().join("c");
    std::fs::create_dir(&content).unwrap();
    for i in 0..600 {
        std::fs::write(content.join(format!("f{i:03}")), vec![i as u8; 5000]).unwrap();
    }
    let image = mke2fs(dir.path(), "v", "-b 1024 -N 700", "4M", Some(&content));
    let requests: String = (0..600).step_by(2).map(|i| format!("rm f{i:03}\n")).collect();
    let script = dir.path().join("script");
    std::fs::write(&script, requests).unwrap();
    common::output("debugfs", &["-w", "-f", common::text(&script), common::text(&image)]);
    clean(&image, "debugfs's own work");
    let mut dev = FileDev::open(&image);
    let free = Layout::read(&mut dev).unwrap().superblock().free_blocks_count();
    let bytes = u64::from(free) * 1024 * 9 / 10;
    let plan = plan(&mut dev, bytes, NOW).unwrap();
    assert!(plan.table.extents.len() > 50, "{} extents", plan.table.extents.len());
    there_and_back(dir.path(), &image, bytes, "fragmented");
}

#[test]
fn the_last_block_and_one_more() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let image = mke2fs(dir.path(), "v", "-b 1024 -N 32", "1500k", None);
    let mut dev = FileDev::open(&image);
    let free = u64::from(Layout::read(&mut dev).unwrap().superblock().free_blocks_count());
    // Beyond 12 + 256 blocks: one single, one double and its first indirect blocks.
    let indirect = 2 + (free - 268).div_ceil(257);
    let data = free - indirect;
    let problem = create(&mut dev, (data + 1) * 1024, NOW, &mut nothing, &mut nothing).unwrap_err();
    assert!(matches!(problem, Problem::NoSpace { has, .. } if has == free), "{problem}");
    clean(&image, "after a refusal");
    there_and_back(dir.path(), &image, data * 1024, "full");
}

#[test]
fn undo_after_use() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let content = small_content(dir.path());
    let script = dir.path().join("script");
    let one = content.join("sub/deeper/single");
    std::fs::write(
        &script,
        format!("write {} new\nrm holes\nmkdir dir\nwrite {} dir/x\n", one.display(), one.display()),
    )
    .unwrap();
    let use_it =
        |image: &Path| common::output("debugfs", &["-w", "-f", common::text(&script), common::text(image)]);
    let with = mke2fs(dir.path(), "with", "-b 1024", "6M", Some(&content));
    let without = mke2fs(dir.path(), "without", "-b 1024", "6M", Some(&content));
    create(&mut FileDev::open(&with), 300_000, NOW, &mut write_table, &mut write_mark).unwrap();
    use_it(&with);
    use_it(&without);
    undo(&mut FileDev::open(&with), &mut nothing).unwrap();
    clean(&with, "after use and undo");
    assert_same(
        &walk(&mut FileDev::open(&with)).unwrap(),
        &walk(&mut FileDev::open(&without)).unwrap(),
        "undo after use",
    );
    let (a, b) = (Dump::of(&with), Dump::of(&without));
    for key in ["Free blocks", "Free inodes", "Filesystem features", "Filesystem state", "Mount count"] {
        assert_eq!(a.header[key], b.header[key], "{key}");
    }
}

/// resize2fs moves the table's blocks like any file's; inode 5 is read anew and undo still works.
#[test]
fn resized_with_a_table() {
    need_e2fsprogs!();
    if !common::has("resize2fs") {
        println!("skipped: resize2fs not found");
        return;
    }
    let dir = common::scratch();
    let content = small_content(dir.path());
    let image = settled(dir.path(), "v", "-b 1024 -I 256", "20M", Some(&content));
    let files = walk(&mut FileDev::open(&image)).unwrap();
    let bytes = 3_000_001;
    let table = create(&mut FileDev::open(&image), bytes, NOW, &mut write_table, &mut nothing).unwrap();
    let mut places = vec![table];
    for size in ["50M", "9M", "8M"] {
        common::output("resize2fs", &["-f", common::text(&image), size]);
        clean(&image, size);
        let mut dev = FileDev::open(&image);
        let layout = Layout::read(&mut dev).unwrap();
        layout.check_usable().unwrap();
        places.push(TableFile::find(&layout, &mut dev).unwrap().unwrap());
        let dumped = dumped(dir.path(), &image);
        assert!((0..).zip(&dumped).all(|(at, byte)| *byte == pattern(at)) && dumped.len() as u64 == bytes);
    }
    places.dedup();
    assert!(places.len() > 1, "resize2fs moved nothing");
    let mut dev = FileDev::open(&image);
    undo(&mut dev, &mut nothing).unwrap();
    clean(&image, "undone after resizing");
    assert_same(&walk(&mut dev).unwrap(), &files, "resized");
}

/// Size, place and feature bit of a file of 2 GiB and more.
#[test]
fn large_file() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let image = mke2fs(dir.path(), "v", "-b 4096 -N 2000 -O none,filetype", "4G", None);
    for (bytes, feature) in [((1u64 << 31) - 1, false), (1 << 31, true), ((1 << 31) + 12_345, true)] {
        let mut dev = Counting { file: FileDev::open(&image), reads: 0, writes: 0, bytes: 0 };
        create(&mut dev, bytes, NOW, &mut nothing, &mut write_mark).unwrap();
        clean(&image, "large");
        let said = debugfs(&image, "stat <5>");
        assert!(said.contains(&format!("Size: {bytes}\n")), "{said}");
        let names = Layout::read(&mut dev).unwrap().superblock().features().names();
        assert_eq!(names.contains(&"large_file".to_string()), feature);
        undo(&mut dev, &mut nothing).unwrap();
        clean(&image, "large, undone");
    }
    let image = mke2fs(dir.path(), "v", "-b 4096 -r 0", "4G", None);
    let problem = create(&mut FileDev::open(&image), 1 << 31, NOW, &mut nothing, &mut nothing).unwrap_err();
    assert!(matches!(problem, Problem::Unsupported { .. }), "{problem}");
}

#[test]
fn volumes_not_to_be_touched() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let image = mke2fs(dir.path(), "v", "-b 1024", "4M", None);
    let pristine = std::fs::read(&image).unwrap();
    let refuse = |image: &mut Vec<u8>| {
        let before = image.clone();
        let problem = create(image, 10_000, NOW, &mut nothing, &mut nothing).unwrap_err();
        assert!(*image == before, "refused with {problem}, but wrote");
        assert!(undo(image, &mut nothing).is_err());
        assert!(*image == before);
        problem
    };
    let mut dirty = pristine.clone();
    dirty[1024 + 58] = 0;
    assert!(matches!(refuse(&mut dirty), Problem::Dirty));
    dirty[1024 + 58] = 3;
    assert!(matches!(refuse(&mut dirty), Problem::Errors));
    let mut journal = pristine.clone();
    journal[1024 + 92] |= 4;
    assert!(matches!(refuse(&mut journal), Problem::Unsupported { features } if features == ["has_journal"]));
    // A bitmap that disagrees with its descriptor.
    let layout = Layout::read(&mut pristine.clone()).unwrap();
    let mut odd = pristine.clone();
    let bitmap = layout.bitmap_block(0).extent(layout.block_size()).offset() as usize;
    odd[bitmap + 500] ^= 0x10;
    let problem = refuse(&mut odd);
    assert!(problem.to_string().contains("block bitmap of group 0"), "{problem}");
    // Metadata marked free.
    let mut odd = pristine.clone();
    odd[bitmap] &= !1;
    let problem = refuse(&mut odd);
    assert!(problem.to_string().contains("static metadata"), "{problem}");
    // Inode 5 in someone else's use: a directory, two links, no size.
    let script = dir.path().join("script");
    for request in [
        "sif <5> mode 040755",
        "sif <5> mode 0100600\nsif <5> links_count 2",
        "sif <5> mode 0100600\nsif <5> links_count 1",
    ] {
        std::fs::write(&image, &pristine).unwrap();
        std::fs::write(&script, request).unwrap();
        common::output("debugfs", &["-w", "-f", common::text(&script), common::text(&image)]);
        let problem = refuse(&mut std::fs::read(&image).unwrap());
        assert!(matches!(problem, Problem::NotTable { .. }), "{problem}");
    }
}

/// An indirect block behind the file's end, which e2fsck lets stand: undo would leave it in use by nobody.
#[test]
fn a_file_with_more_than_its_size_explains_is_no_table() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let image = mke2fs(dir.path(), "v", "-b 1024", "4M", None);
    let table = create(&mut FileDev::open(&image), 10_000, NOW, &mut nothing, &mut nothing).unwrap();
    assert_eq!((table.blocks_count(), table.indirect.len()), (10, 0));
    let script = dir.path().join("script");
    let requests = "zap_block 3000\nsetb 3000\nsif <5> block[IND] 3000\nsif <5> blocks 22";
    std::fs::write(&script, requests).unwrap();
    common::output("debugfs", &["-w", "-f", common::text(&script), common::text(&image)]);
    e2fsck(&image, "-fy");
    clean(&image, "with another block");
    let before = std::fs::read(&image).unwrap();
    let problem = undo(&mut FileDev::open(&image), &mut nothing).unwrap_err();
    assert!(matches!(problem, Problem::NotTable { .. }), "{problem}");
    assert!(problem.to_string().ends_with("it has 22 sectors, of which its size explains 20"), "{problem}");
    assert!(std::fs::read(&image).unwrap() == before);
}

/// Each crash state is mended by `e2fsck -p`, no file changes, and inode 5 is empty or whole.
fn judge(dir: &Path, recorder: &Recorder, before: &[u8], table: &TableFile, what: &str) -> usize {
    let files = walk(&mut before.to_vec()).unwrap();
    let image = dir.join("crashed");
    let mut seen = std::collections::BTreeMap::new();
    let states = states(before, &recorder.events, 6, 0xC0FFEE);
    for (name, state) in &states {
        if let Some(first) = seen.insert(state, name) {
            // Judged under another name.
            seen.insert(state, first);
            continue;
        }
        std::fs::write(&image, state).unwrap();
        // Without -f: the clean flag must have been cleared where there is something to mend.
        let (code, said) = e2fsck(&image, "-p");
        assert!(code == 0 || code == 1, "{what}, {name}: e2fsck -p ends {code}: {said}");
        let mut mended = std::fs::read(&image).unwrap();
        assert_same(&walk(&mut mended).unwrap(), &files, &format!("{what}, {name}"));
        let layout = Layout::read(&mut mended).unwrap();
        layout.check_usable().unwrap_or_else(|e| panic!("{what}, {name}: {e}"));
        if let Some(found) = TableFile::find(&layout, &mut mended).unwrap() {
            assert_eq!(&found, table, "{what}, {name}");
        }
        let (code, said) = e2fsck(&image, "-fn");
        assert_eq!(code, 0, "{what}, {name}: after mending: {said}");
    }
    seen.len()
}

#[test]
fn crashes() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let content = small_content(dir.path());
    let mut judged = 0;
    for (options, size, bytes) in [
        ("-b 1024 -I 128 -N 128", "1400k", 300_000),
        ("-b 1024 -g 256 -N 300 -O none,sparse_super,filetype", "1800k", 400_001),
        ("-b 2048 -I 256 -N 128", "2M", 100_000),
        ("-b 4096 -I 256 -N 128", "2M", 60_000),
    ] {
        let image = settled(dir.path(), "v", options, size, Some(&content));
        let before = std::fs::read(&image).unwrap();
        let mut recorder = Recorder::new(before.clone());
        let table = create(&mut recorder, bytes, NOW, &mut write_table, &mut write_mark).unwrap();
        judged += judge(dir.path(), &recorder, &before, &table, &format!("create, {options}"));
        let before = recorder.image.clone();
        let mut recorder = Recorder::new(before.clone());
        undo(&mut recorder, &mut |dev, table, _| {
            table.extent_of(0, 2048).into_iter().try_for_each(|e| dev.write_zeroes(e.offset(), e.len()))
        })
        .unwrap();
        judged += judge(dir.path(), &recorder, &before, &table, &format!("undo, {options}"));
    }
    assert!(judged > 150, "only {judged} states");
    println!("{judged} crash states");
}

/// The judge itself: wrong orders are caught.
#[test]
fn a_wrong_order_is_caught() {
    need_e2fsprogs!();
    use crate::common::crash::Event;
    let dir = common::scratch();
    let content = small_content(dir.path());
    let image = settled(dir.path(), "v", "-b 1024 -I 128 -N 128", "1400k", Some(&content));
    let before = std::fs::read(&image).unwrap();
    let mut recorder = Recorder::new(before.clone());
    let table = create(&mut recorder, 300_000, NOW, &mut write_table, &mut write_mark).unwrap();
    let good = recorder.events.clone();
    let judged = |events: Vec<Event>| {
        let recorder = Recorder { image: Vec::new(), events };
        std::panic::catch_unwind(|| judge(dir.path(), &recorder, &before, &table, "planted")).is_err()
    };
    let mut events = good.clone();
    assert!(matches!(events.remove(0), Event::Write(1024, _)));
    assert!(judged(events), "the clean flag not cleared: e2fsck -p does not look");
    let flushes: Vec<usize> =
        good.iter().enumerate().filter(|(_, e)| matches!(e, Event::Flush)).map(|(i, _)| i).collect();
    let mut events = good.clone();
    events.remove(flushes[2]);
    assert!(judged(events), "inode 5 before its indirect blocks");
    // A file's own block overwritten.
    let victim = {
        let mut volume = before.clone();
        let layout = Layout::read(&mut volume).unwrap();
        let inode = fs2_ext2::lookup(&layout, &mut volume, "sub/direct").unwrap();
        BlockNo(inode.block[0]).extent(layout.block_size())
    };
    let mut events = good;
    events.push(Event::Write(victim.offset(), vec![0; 1024]));
    assert!(judged(events), "a file's block overwritten");
}

/// Counts what is read and written, and writes no zeroes: for images that are holes but for their
/// metadata.
struct Counting {
    file: FileDev,
    reads: u64,
    writes: u64,
    bytes: u64,
}

impl ReadAt for Counting {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reads += 1;
        self.bytes += buf.len() as u64;
        self.file.read_at(offset, buf)
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        self.file.size_bytes()
    }
}

impl WriteAt for Counting {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.writes += 1;
        self.bytes += buf.len() as u64;
        self.file.write_at(offset, buf)
    }

    fn write_zeroes(&mut self, _: u64, _: u64) -> io::Result<()> {
        self.writes += 1;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_tebibyte_takes_few_reads() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let image = mke2fs(dir.path(), "v", "-b 4096 -N 131072", "1T", None);
    let mut dev = Counting { file: FileDev::open(&image), reads: 0, writes: 0, bytes: 0 };
    let bytes = 215 << 20;
    let table = create(&mut dev, bytes, NOW, &mut nothing, &mut write_mark).unwrap();
    assert!(dev.reads < 50 && dev.writes < 50, "{} reads, {} writes", dev.reads, dev.writes);
    assert!(dev.bytes < 4 << 20, "{} bytes", dev.bytes);
    assert!(table.extents.len() <= 3, "{} extents", table.extents.len());
    let layout = Layout::read(&mut dev).unwrap();
    let middle = layout.group_count() / 2;
    assert!(layout.group_of(table.data[0].first()).abs_diff(middle) < 4, "near the middle");
    let (reads, bytes_before) = (dev.reads, dev.bytes);
    assert_eq!(TableFile::find(&layout, &mut dev).unwrap().as_ref(), Some(&table));
    assert!(dev.reads - reads < 60 && dev.bytes - bytes_before < 1 << 20);
    let said = debugfs(&image, "stat <5>");
    assert!(said.contains(&format!("Size: {bytes}\n")) && said.contains("Links: 1"), "{said}");
    let before = dev.reads + dev.writes;
    undo(&mut dev, &mut nothing).unwrap();
    assert!(dev.reads + dev.writes - before < 150);
    let layout = Layout::read(&mut dev).unwrap();
    assert_eq!(TableFile::find(&layout, &mut dev).unwrap(), None);
}

#[test]
fn a_table_keeps_off_files_of_every_kind() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let content = large_content(dir.path());
    let image = mke2fs(dir.path(), "v", "-b 1024 -g 2048", "12M", Some(&content));
    let mut dev = FileDev::open(&image);
    let files = walk(&mut dev).unwrap();
    let table = create(&mut dev, 5 << 20, NOW, &mut write_table, &mut write_mark).unwrap();
    clean(&image, "large content");
    assert_same(&walk(&mut dev).unwrap(), &files, "large content");
    let layout = Layout::read(&mut dev).unwrap();
    for range in &table.blocks {
        assert!(table.owns(*range) && layout.static_metadata_in(*range).next().is_none());
        assert!(table.owns(BlockRange::new(range.start().saturating_sub(1), range.start() + 1)));
        assert!(table.owns(BlockRange::one(range.first())));
    }
    assert!(!table.owns(BlockRange::new(0, table.blocks[0].start())));
    assert!(!table.owns(BlockRange::EMPTY));
}
