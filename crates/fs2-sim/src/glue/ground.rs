//! The volume a model begins with, and how the engine is set.

use std::sync::Arc;

use fs2_block::{Nanos, Permille};
use fs2_engine::{DiscardMode, EngineConfig, Plant, PolicyKind, Watermarks};
use fs2_ext2::{Layout, convert};
use fs2_table::{Geometry, Header, Mark};

use crate::model::content::{Grain, Value};
use crate::model::image::{Plan, Shape};

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
    /// How the volume is laid out.
    pub shape: Shape,
    /// Its blocks.
    pub grain: Grain,
    /// The table lives on a device of its own.
    pub apart: bool,
    /// What becomes of discards.
    pub discard: DiscardMode,
    /// Whether evicted replicas are punched.
    pub punch: bool,
    /// Replicas of one block at most.
    pub degree: u8,
    /// Connections that a client's requests go over, to arrive in any order; 0: they arrive at once.
    pub queues: u32,
    /// The device is larger than the file system, by a group.
    pub room: bool,
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
            grain: Grain::SMALL,
            queues: 0,
            room: false,
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
    /// The volume's layout.
    pub fn plan(&self) -> Plan {
        Plan { shape: self.shape, grain: self.grain }
    }

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
#[derive(Clone, Debug)]
pub struct Ground {
    /// The volume.
    pub volume: Arc<Vec<u8>>,
    /// The table's device, empty where the table is on the volume.
    pub table: Arc<Vec<u8>>,
    /// Blocks of the table's bytes in file order.
    pub table_blocks: Vec<u32>,
    /// Whether these are blocks of the table's own device.
    pub apart: bool,
    /// The volume's layout.
    pub plan: Plan,
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
        let mut volume = setup.plan().make(data, keep_free);
        if setup.room {
            volume.resize(volume.len() + (1 << 20), 0);
        }
        let layout = Layout::read(&mut volume).expect("the image is ext2");
        let bytes = Geometry::bytes_needed(REPLICAS, layout.group_count(), setup.grain.size);
        let size = setup.grain.block() as u64;
        let mut table = Vec::new();
        let table_blocks;
        if setup.apart {
            table = vec![0; bytes as usize];
            table_blocks = (0..(bytes as usize / size as usize) as u32).collect();
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
            table_blocks =
                all.iter().flat_map(|e| (e.offset() / size) as u32..(e.end() / size) as u32).collect();
        }
        Ground {
            volume: Arc::new(volume),
            table: Arc::new(table),
            table_blocks,
            apart: setup.apart,
            plan: setup.plan(),
            volume_id: VOLUME_ID,
        }
    }
}

fn put(to: &mut [u8], at: u64, bytes: &[u8]) {
    to[at as usize..][..bytes.len()].copy_from_slice(bytes);
}

fn sums_at(layout: &Layout, bytes: u64) -> u64 {
    Geometry::new(bytes, layout.group_count(), layout.block_size()).checksums_offset(1)
}

/// Header without mark for slot 0; checksums and header with mark for slot 1.
fn fresh(layout: &Layout, bytes: u64, dev: &mut dyn fs2_block::ReadAt) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let geometry = Geometry::new(bytes, layout.group_count(), layout.block_size());
    let header = Header::new(VOLUME_ID, layout.block_size(), geometry.pages());
    let sums = super::checker::checksums(layout, dev);
    let token = super::checker::token(layout, dev);
    let mark = Mark { token, bitmap_checksums_hash: sums.hash(VOLUME_ID), pages_end: Some(0) };
    let marked = header.next(Some(Box::new(mark)));
    (header.encode().to_vec(), sums.encode(), marked.encode().to_vec())
}
