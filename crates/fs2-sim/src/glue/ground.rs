//! The volume a model begins with, and how the engine is set.

use std::sync::Arc;

use fs2_block::{BlockSize, Nanos, Permille};
use fs2_engine::{DiscardMode, EngineConfig, Plant, PolicyKind, Watermarks};
use fs2_ext2::{Layout, convert};
use fs2_table::{BitmapChecksums, Geometry, Header, Mark, Token};

use crate::model::content::{BLOCK, Value};
use crate::model::image::{self, Shape};

/// What follows `e2fsck -f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checker {
    /// The least that the rules ask for: all pages unverified.
    Weak,
    /// `chkfs2` that hashes nothing.
    Quick,
    /// `chkfs2` that reads both blocks of each entry.
    Full,
}

/// How a model's world is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How the free space lies.
    pub shape: Shape,
    /// The table lives on a device of its own.
    pub apart: bool,
    /// What becomes of discards.
    pub discard: DiscardMode,
    /// Whether evicted replicas are punched.
    pub punch: bool,
    /// Replicas of one block at most.
    pub degree: u8,
    /// I/Os the device takes at a time.
    pub slots: usize,
    /// What follows `e2fsck -f`.
    pub checker: Checker,
    /// Rules to break.
    pub plants: Vec<Plant>,
    /// R0: a daemon attaches although I/O of the last one is still in the device.
    pub no_lock_wait: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            shape: Shape::Plain,
            apart: false,
            discard: DiscardMode::Memory,
            punch: false,
            degree: 1,
            checker: Checker::Weak,
            slots: usize::MAX,
            plants: Vec::new(),
            no_lock_wait: false,
        }
    }
}

impl Setup {
    /// The engine's settings: nothing happens of its own accord, every table page is always due.
    pub fn config(&self) -> EngineConfig {
        let p = |n| Permille::new(n).expect("below 1000");
        EngineConfig {
            policy: PolicyKind::None,
            watermarks: Watermarks::new(p(3), p(2), p(1)).expect("in order"),
            space: p(1000),
            discard: self.discard,
            punch: self.punch,
            degree: self.degree,
            idle_after: Nanos(1),
            table_flush_every: Nanos(0),
            paranoid: self.plants.is_empty(),
            plants: self.plants.clone(),
            ..EngineConfig::default()
        }
    }
}

/// The devices as the model finds them: a volume with an empty table and the mark, unmounted, clean.
#[derive(Debug)]
pub struct Ground {
    /// The volume.
    pub volume: Arc<Vec<u8>>,
    /// The table's device, empty where the table is on the volume.
    pub table: Arc<Vec<u8>>,
    /// Blocks of the table's bytes in file order.
    pub table_blocks: Vec<u32>,
    /// Whether these are blocks of the table's own device.
    pub apart: bool,
    /// The key of the hashes.
    pub volume_id: u64,
}

const VOLUME_ID: u64 = 0x1dea;
const REPLICAS: u64 = 8;

impl Ground {
    /// For a setup; `data` are blocks of files with what they hold, `keep_free` stay free.
    ///
    /// # Panics
    /// Where the image cannot be converted: an error of the model.
    pub fn new(setup: &Setup, data: &[(u32, Value)], keep_free: &[u32]) -> Ground {
        let mut volume = image::make(setup.shape, data, keep_free);
        let layout = Layout::read(&mut volume).expect("the image is ext2");
        let bytes = Geometry::bytes_needed(REPLICAS, layout.group_count(), BlockSize::B1024);
        let mut table = Vec::new();
        let table_blocks;
        if setup.apart {
            table = vec![0; bytes as usize];
            table_blocks = (0..(bytes as usize / BLOCK) as u32).collect();
            let (first, sums, marked) = fresh(&layout, bytes, &mut volume);
            put(&mut table, 0, &first);
            put(&mut table, 4096, &marked);
            put(&mut table, sums_at(&layout, bytes), &sums);
        } else {
            let mut write_table = |_: &mut dyn fs2_block::WriteAt, _: &_, _: &_| Ok(());
            let mut write_mark =
                |dev: &mut dyn fs2_block::WriteAt, file: &fs2_ext2::TableFile, l: &Layout| {
                    let (first, sums, marked) = fresh(l, bytes, dev);
                    for (at, bytes) in [(0, &first[..]), (4096, &marked), (sums_at(l, bytes), &sums)] {
                        let mut done = 0;
                        for e in file.extent_of(at, bytes.len() as u64) {
                            dev.write_at(e.offset(), &bytes[done..][..e.len() as usize])?;
                            done += e.len() as usize;
                        }
                    }
                    Ok(())
                };
            let file = convert::create(&mut volume, bytes, 0, &mut write_table, &mut write_mark)
                .expect("the image takes a table");
            let all = file.extent_of(0, bytes);
            table_blocks = all
                .iter()
                .flat_map(|e| (e.offset() / BLOCK as u64) as u32..(e.end() / BLOCK as u64) as u32)
                .collect();
        }
        Ground {
            volume: Arc::new(volume),
            table: Arc::new(table),
            table_blocks,
            apart: setup.apart,
            volume_id: VOLUME_ID,
        }
    }
}

fn put(to: &mut [u8], at: u64, bytes: &[u8]) {
    to[at as usize..][..bytes.len()].copy_from_slice(bytes);
}

fn sums_at(layout: &Layout, bytes: u64) -> u64 {
    Geometry::new(bytes, layout.group_count(), BlockSize::B1024).checksums_offset(1)
}

/// Header without mark for slot 0; checksums and header with mark for slot 1.
fn fresh(layout: &Layout, bytes: u64, dev: &mut dyn fs2_block::ReadAt) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let geometry = Geometry::new(bytes, layout.group_count(), BlockSize::B1024);
    let header = Header::new(VOLUME_ID, BlockSize::B1024, geometry.pages());
    let bitmap = layout.read_bitmap(dev, 0).expect("the image has a bitmap");
    let sums = BitmapChecksums(vec![BitmapChecksums::of_bitmap(&bitmap)]);
    let token = Token::new(*layout.superblock().raw(), layout.descriptors_bytes());
    let mark = Mark { token, bitmap_checksums_hash: sums.hash(VOLUME_ID) };
    let marked = header.next(Some(Box::new(mark)));
    (header.encode().to_vec(), sums.encode(), marked.encode().to_vec())
}
