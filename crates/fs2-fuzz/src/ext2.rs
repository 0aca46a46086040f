//! A small volume with bytes of its metadata, inode 5 and table changed: whatever it says, an answer.
//!
//! Byte 0: which volume (bits 0, 1), whether checksums are mended (bit 2), what is done with it then
//! (bits 4 to 6). After it changes of 8 bytes: where (a place, and an offset of 16 bits in it), how many
//! bytes (1, 2 or 4), which.

use fs2_block::{Extent, ReadAt, WriteAt};
use fs2_engine::offline::{self, CheckOptions, CreateOptions, Devices, ReplicateOptions, UndoOptions};
use fs2_engine::{AttachOptions, DiscardMode, EngineConfig, PolicyKind, Volume};
use fs2_ext2::{BlockMap, FreeMap, Inode, Layout, TableFile, lookup, read_dir, read_file};
use fs2_sim::model::content::Grain;
use fs2_sim::model::image::{Plan, SUPERBLOCK, Shape};

use crate::crc32c;
use crate::image::{BLOCK, Base, Patched};
use crate::session::short_session;

/// Most files looked at.
const INODES: u32 = 16;
/// A file is read no further: what a small image calls a file may be holes of terabytes.
const FILE_BYTES_MAX: u64 = 8 << 20;

pub(crate) fn run(data: &[u8]) {
    let Some((&head, changes)) = data.split_first() else { return };
    let base = Base::of(head);
    let mut device = Patched::new(base);
    let table = table_of(base);
    for change in changes.chunks_exact(8) {
        apply(&mut device, &table, change);
    }
    if head & 4 != 0 {
        mend(&mut device, &table);
    }
    look(&mut device);
    work(&mut device, head >> 4);
}

/// The bytes of the table's file on the unchanged volume.
fn table_of(base: Base) -> Vec<Extent> {
    let mut device = Patched::new(base);
    let layout = Layout::read(&mut device).expect("the base is good");
    match TableFile::find(&layout, &mut device) {
        Ok(Some(file)) => file.extents.iter().map(|e| e.1).collect(),
        _ => Vec::new(),
    }
}

fn apply(device: &mut Patched, table: &[Extent], change: &[u8]) {
    let at = u64::from(u16::from_le_bytes([change[1], change[2]]));
    let plan = Plan { shape: Shape::Plain, grain: Grain::SMALL };
    let block = |n: u32| u64::from(n) * BLOCK as u64;
    let offset = match change[0] % 8 {
        0 => SUPERBLOCK + at % 256,
        1 => block(plan.descriptors()) + at % 64,
        2 => block(plan.bitmap(0)) + at % 512,
        // The inode table, inode 5 and the file's among them.
        3 => block(plan.inode_table(0)) + at % 2048,
        // Directories, and the file's blocks of pointers.
        4 => block(7) + at % 16384,
        // Header slots and checksums, then pages.
        5 => in_table(table, at % 16384),
        6 => in_table(table, 16384 + at),
        _ => at * 48,
    };
    let width = [1, 2, 4, 4][usize::from(change[0] / 64)];
    let _ = device.write_at(offset, &change[4..4 + width]);
}

/// Where byte `at` of the table's file is on the volume; its start where it is not so long.
fn in_table(table: &[Extent], at: u64) -> u64 {
    let mut left = at;
    for extent in table {
        if left < extent.len() {
            return extent.offset() + left;
        }
        left -= extent.len();
    }
    table.first().map_or(0, |e| e.offset())
}

/// Mends the checksum of each 4096 bytes of the table's file that say they are a header or a page.
fn mend(device: &mut Patched, table: &[Extent]) {
    let bytes: u64 = table.iter().map(|e| e.len()).sum();
    for at in (0..bytes / 4096).map(|n| n * 4096) {
        let mut page = [0; 4096];
        for (i, part) in page.chunks_exact_mut(BLOCK).enumerate() {
            let _ = device.read_at(in_table(table, at + (i * BLOCK) as u64), part);
        }
        if page[..4] == *b"FS2H" || page[..4] == *b"FS2P" {
            let crc = crc32c(&page[8..]).to_le_bytes();
            let _ = device.write_at(in_table(table, at) + 4, &crc);
        }
    }
}

/// Everything that only reads.
fn look(device: &mut Patched) {
    let Ok(layout) = Layout::read(device) else { return };
    let _ = layout.check_usable().map_err(|e| e.to_string());
    let _ = TableFile::find(&layout, device).map_err(|e| e.to_string());
    for ino in 1..=INODES {
        let Ok(inode) = Inode::read(&layout, device, ino) else { continue };
        let _ = BlockMap::read(&layout, device, &inode).map_err(|e| e.to_string());
        let _ = read_dir(&layout, device, &inode).map_err(|e| e.to_string());
        if inode.size <= FILE_BYTES_MAX {
            let _ = read_file(&layout, device, &inode, |_, _| Ok(()));
        }
    }
    let _ = lookup(&layout, device, "/lost+found/a/b");
    let _ = layout.for_each_bitmap(device, |group, bytes| {
        let map = FreeMap::new(&layout, group, bytes)?;
        let both: u32 = map.free_runs().iter().chain(&map.used_runs()).map(|r| r.len()).sum();
        assert_eq!(both, map.blocks().len(), "each block is free or used");
        Ok(())
    });
    let _ = offline::look(&mut Devices::new(device, None)).map_err(|e| e.to_string());
}

/// What a daemon or a tool does with it.
fn work(device: &mut Patched, what: u8) {
    let progress = &mut |_| {};
    match what % 8 {
        0..=3 => {
            let config = EngineConfig {
                paranoid: true,
                policy: if what & 1 == 0 { PolicyKind::Fs2 } else { PolicyKind::Torture },
                discard: DiscardMode::Memory,
                distrust: what & 2 != 0,
                degree: 1 + (what & 1),
                ..EngineConfig::default()
            };
            match Volume::attach(device, None, config, &AttachOptions::default()) {
                Ok((volume, report)) => {
                    volume.check();
                    let _ = report.table.map(|t| t.to_string());
                    short_session(volume, device);
                }
                Err(e) => drop(e.to_string()),
            }
        }
        4 => {
            let mut devices = Devices::new(device, None);
            for checked in [false, true] {
                let options = UndoOptions { checked, ..UndoOptions::default() };
                drop(offline::undo(&mut devices, &options, progress).map_err(|e| e.to_string()));
            }
        }
        5 => {
            let mut devices = Devices::new(device, None);
            drop(
                offline::create(&mut devices, &CreateOptions::default(), progress).map_err(|e| e.to_string()),
            );
        }
        6 => {
            let blocks = [fs2_block::BlockRange::new(1090, 1110)];
            let near = fs2_block::BlockNo(1400);
            let options = ReplicateOptions { blocks: &blocks, near, written_since: false };
            let mut devices = Devices::new(device, None);
            drop(offline::replicate(&mut devices, &options, progress).map_err(|e| e.to_string()));
        }
        _ => {
            for (checked, scrub) in [(false, false), (true, false), (true, true)] {
                let mut devices = Devices::new(device, None);
                let unmarked = if scrub { None } else { offline::unmark(&mut devices).ok().flatten() };
                let options = CheckOptions {
                    checked,
                    written_since: false,
                    scrub,
                    quick: false,
                    bitmaps: true,
                    new_volume_id: 9,
                    unmarked: unmarked.as_ref(),
                    plants: &[],
                };
                match offline::check(&mut devices, &options, &mut |_| true, progress) {
                    Ok(report) => drop(report.to_string()),
                    Err(e) => drop(e.to_string()),
                }
            }
        }
    }
}
