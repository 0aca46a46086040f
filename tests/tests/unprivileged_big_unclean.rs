//! A volume of 1 TiB with a million replicas after an unclean end: served inactive, checked, served with a million
//! unverified entries. Memory and reads are asserted; times are printed. One test, in a binary of its own: the
//! peak of its children's memory is the kernel's to tell, and is of all of them together.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use fs2_block::{BlockRange, ReadAt, WriteAt};
use fs2_engine::{AttachOptions, EngineConfig, Standing, Volume};
use fs2_ext2::{BlockMap, Layout, TableFile, lookup};
use fs2_store::{FileStore, OpenOptions, Store, StoreIo};
use fs2_table::{Geometry, Header, PAGE_BYTES, Replica, ReplicaTable, Trust, content_hash};
use fs2_tests::{
    Ask, BLOCK, NbdClient, Need, Scratch, Served, children_peak, debugfs, dump, e2fsck_clean, mke2fs, needs,
    peak_of,
};

const TIB: u64 = 1 << 40;

/// Replicas.
const MANY: u32 = 1_000_000;

/// Bytes of memory a daemon may have at its peak: 256 MiB.
const DAEMON_MEMORY_MAX: u64 = 256 << 20;

/// And a check, e2fsck's included: 1 GiB, which is e2fsck's own need for such a volume and more.
const CHECK_MEMORY_MAX: u64 = 1 << 30;

/// Reads of an attach, and whether the volume is active.
fn attach(image: &Path) -> (u64, bool, usize) {
    let store = FileStore::open(image, OpenOptions::default()).unwrap();
    let mut io = StoreIo::new(&store);
    let (volume, report) =
        Volume::attach(&mut io, None, EngineConfig::default(), &AttachOptions::default()).unwrap();
    (io.reads(), matches!(volume.standing(), Standing::Active), report.unverified)
}

#[test]
fn a_tebibyte_with_a_million_replicas_after_an_unclean_end() {
    if !needs(&["mke2fs", "debugfs", "dumpe2fs", "e2fsck"].map(Need::Program)) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    if let Err(e) = File::create(&image).and_then(|f| f.set_len(TIB)) {
        panic!("{}: no sparse file of 1 TiB ({e}): set TMPDIR to another file system", image.display());
    }
    mke2fs(&image, TIB, &["-t", "ext2", "-T", "largefile4"]);
    make_file(&scratch, &image);
    let made = scratch.run("mkfs2", [Path::new("--json"), &image]).ended(0).json();
    let allowed = 64 + made["table_bytes"].as_u64().unwrap().div_ceil(1 << 20);
    fill_table(&image);

    // The unclean end: one write, and no detach.
    let served = Served::new(&scratch, &image, &["--require-active", "--policy", "none"]);
    let status = served.status();
    assert_eq!((&status["replicas"], &status["replicas_unverified"]), (&MANY.into(), &0.into()));
    let free = dump(&image).free.last().unwrap().start;
    let mut client = NbdClient::connect(served.socket()).unwrap();
    client.call(Ask::Write { fua: false }, free * BLOCK as u64, BLOCK, &[7; BLOCK]).unwrap();
    served.kill();

    let (reads, active, _) = attach(&image);
    assert!(!active && reads <= allowed, "active {active}, {reads} reads");
    let clock = Instant::now();
    let served = Served::new(&scratch, &image, &[]);
    let (seconds, peak) = (clock.elapsed().as_secs_f64(), peak_of(served.pid()));
    assert!(served.status()["liveness"].as_str().unwrap().starts_with("inactive: "));
    served.stop();
    println!("attached inactive: {seconds:.2} s, {} MiB, {reads} reads of {allowed} allowed", peak >> 20);
    assert!(peak < DAEMON_MEMORY_MAX, "fs2d took {} MiB", peak >> 20);

    let clock = Instant::now();
    let checked = scratch.run("chkfs2", ["-f", "-p", "--quick", image.to_str().unwrap()]);
    assert!(matches!(checked.code, 0 | 1), "{checked:?}");
    println!("chkfs2 -f -p --quick: {:.1} s, {} MiB", clock.elapsed().as_secs_f64(), children_peak() >> 20);
    assert!(children_peak() < CHECK_MEMORY_MAX, "a program took {} MiB", children_peak() >> 20);

    let (reads, active, unverified) = attach(&image);
    assert!(active && reads <= allowed, "active {active}, {reads} reads, {allowed} allowed");
    assert_eq!(unverified, MANY as usize);
    let clock = Instant::now();
    let served = Served::new(&scratch, &image, &["--require-active"]);
    let (seconds, peak) = (clock.elapsed().as_secs_f64(), peak_of(served.pid()));
    let status = served.status();
    println!("attached with {unverified} unverified: {seconds:.2} s, {} MiB, {reads} reads", peak >> 20);
    assert!(peak < DAEMON_MEMORY_MAX, "fs2d took {} MiB", peak >> 20);
    assert_eq!(status["replicas"], MANY, "{status}");
    assert_eq!(status["liveness"], "active");
    served.stop().ended(0);
    e2fsck_clean(&image);
}

/// Makes a file of a million blocks that are allocated and zero: no data is written.
fn make_file(scratch: &Scratch, image: &Path) {
    let empty = scratch.path("empty");
    File::create(&empty).unwrap();
    debugfs(image, true, &format!("write {} file", empty.display()));
    debugfs(image, true, &format!("fallocate file 0 {}", MANY - 1));
    debugfs(image, true, &format!("set_inode_field file size {}", u64::from(MANY) * BLOCK as u64));
}

/// Writes a million verified entries into the table that mkfs2 made: the blocks of the file, and free blocks
/// of every group. All are zero, and so equal. (`mkfs2 replicate` would hash and copy 4 GiB.)
fn fill_table(image: &Path) {
    let store = FileStore::open(image, OpenOptions { write: true, ..OpenOptions::default() }).unwrap();
    let mut io = StoreIo::new(&store);
    let layout = Layout::read(&mut io).unwrap();
    let inode = lookup(&layout, &mut io, "/file").unwrap();
    let data = BlockMap::read(&layout, &mut io, &inode).unwrap().data;
    // Space that was set aside for zeroes below is given back.
    for (_, run) in &data {
        let extent = run.extent(layout.block_size());
        store.discard(extent.offset(), extent.len()).unwrap();
    }
    let file_blocks = BlockRange::new(data[0].1.start(), data[data.len() - 1].1.end());
    let mut originals = data.into_iter().flat_map(|(_, run)| run.iter());
    let file = TableFile::find(&layout, &mut io).unwrap().expect("mkfs2 made a table");
    let place = |offset: u64| {
        let (from, extent) = file.extents.iter().rfind(|(from, _)| *from <= offset).unwrap();
        extent.offset() + (offset - from)
    };
    let geometry = Geometry::new(file.size, layout.group_count(), layout.block_size());
    let [mut a, mut b] = [[0; PAGE_BYTES]; 2];
    io.read_at(place(geometry.header_slot_offset(0)), &mut a).unwrap();
    io.read_at(place(geometry.header_slot_offset(1)), &mut b).unwrap();
    let found = Header::recover(&a, &b);
    let mut header = found.header.expect("a header");
    let hash = content_hash(header.volume_id, &[0; BLOCK]);
    let mut table = ReplicaTable::new(geometry.max_entries(), 1);
    // But in the groups whose end the table has.
    // At the end of each group, where neither metadata nor, in most, file or table are.
    let each = MANY.div_ceil(layout.group_count() - 256);
    for group in 0..layout.group_count() {
        let end = layout.group_blocks(group).end();
        let range = BlockRange::new(end - each, end);
        if file.blocks.iter().chain(&[file_blocks]).any(|b| b.overlaps(range)) {
            continue;
        }
        for replica in range.iter() {
            let Some(original) = originals.next() else { break };
            table.insert(Replica { original, replica, hash, trust: Trust::Verified }).unwrap();
        }
    }
    assert_eq!(table.len(), MANY as usize);
    let mut page = table.next_dirty_page(None);
    while let Some(number) = page {
        let encoded = table.encode_page(number, header.generation, header.volume_id, true);
        io.write_at(place(geometry.page_offset(number)), &encoded.bytes[..]).unwrap();
        page = table.next_dirty_page(Some(number));
    }
    header.mark.as_mut().expect("mkfs2 leaves a mark").pages_end = Some(table.pages_end());
    io.write_at(place(geometry.header_slot_offset(found.slot)), &header.encode()).unwrap();
}
