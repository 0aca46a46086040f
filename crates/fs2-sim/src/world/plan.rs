//! What a seed makes of a world: the volume, the daemon's settings, the client's habits.

use fs2_block::{BlockSize, Nanos, Permille};
use fs2_disk::{Knowledge, Scheduler};
use fs2_engine::{DiscardMode, EngineConfig, Part, Plant, PolicyKind, Watermarks};

use super::fault::{Choice, Fault, Odds};
use super::image::Geometry;
use crate::model::swarm::Rng;

/// How a world is to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Events before it heals, at least.
    pub events: u64,
    /// Which faults.
    pub faults: Choice,
    /// Keep what happened, in words.
    pub trace: bool,
    /// Rules to break: something must be found.
    pub plants: Vec<Plant>,
}

impl Default for Options {
    fn default() -> Options {
        Options { events: 2_000, faults: Choice::Drawn, trace: false, plants: Vec::new() }
    }
}

/// How often a client does what, in parts of their sum.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Reads of files, or parts of them.
    pub read: u64,
    /// Reads of what was read lately.
    pub again: u64,
    /// Overwriting.
    pub write: u64,
    /// Overwriting sectors.
    pub part: u64,
    /// Writing zeroes.
    pub zero: u64,
    /// New files.
    pub create: u64,
    /// Deleted files.
    pub delete: u64,
    /// Late data of new files.
    pub late: u64,
    /// Late bitmaps, descriptors.
    pub bitmap: u64,
    /// Late inodes.
    pub inode: u64,
    /// fsync.
    pub sync: u64,
    /// fstrim of a stretch.
    pub trim: u64,
    /// Reads of metadata.
    pub metadata: u64,
}

impl Mix {
    fn draw(rng: &mut Rng) -> Mix {
        let mut weight = |usual: u64| match rng.below(8) {
            0 => 0,
            1 => usual * 4,
            _ => usual,
        };
        Mix {
            read: weight(30).max(10),
            again: weight(40),
            write: weight(12),
            part: weight(4),
            zero: weight(2),
            create: weight(10).max(2),
            delete: weight(8),
            late: weight(10).max(2),
            bitmap: weight(8),
            inode: weight(6),
            sync: weight(4).max(1),
            trim: weight(4),
            metadata: weight(2),
        }
    }

    /// The weights, in the order of the fields.
    pub fn weights(&self) -> [u64; 13] {
        [
            self.read,
            self.again,
            self.write,
            self.part,
            self.zero,
            self.create,
            self.delete,
            self.late,
            self.bitmap,
            self.inode,
            self.sync,
            self.trim,
            self.metadata,
        ]
    }
}

/// A world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The volume.
    pub geometry: Geometry,
    /// The table is on a device of its own.
    pub apart: bool,
    /// The share of the volume that the table has room for.
    pub space: Permille,
    /// The daemon's settings.
    pub engine: EngineConfig,
    /// I/Os at the device at most.
    pub depth: usize,
    /// The frontend knows punched holes only, and has one connection.
    pub punches: bool,
    /// Connections at a time.
    pub connections: u32,
    /// The file system is mounted with `discard`.
    pub discards: bool,
    /// The backing is sparse.
    pub sparse: bool,
    /// Between sessions the volume is used without a daemon, now and then.
    pub elsewhere: bool,
    /// chkfs2 hashes nothing.
    pub quick: bool,
    /// The client's habits.
    pub mix: Mix,
    /// The client thinks this long between two requests, mostly.
    pub think: Nanos,
    /// An I/O takes so long at the least, and this much more at most.
    pub service: (Nanos, Nanos),
    /// Sessions end after so many requests, about.
    pub session: u64,
    /// How often what goes wrong.
    pub odds: Odds,
}

impl Plan {
    /// Draws one.
    pub fn draw(seed: u64, options: &Options, rng: &mut Rng) -> Plan {
        let block = [1024, 2048, 4096][rng.below(3) as usize];
        let geometry = Geometry::new(block, 4 + rng.below(3) as u32, rng.below(64) as u32);
        let us = |n: u64| Nanos(n * 1_000);
        let punches = rng.below(3) == 0;
        let discard = if rng.below(3) == 0 { DiscardMode::Pass } else { DiscardMode::Memory };
        let policy = match rng.below(8) {
            0 => PolicyKind::Fs2Of2005,
            1 | 2 => PolicyKind::Fs2,
            3 if rng.below(3) == 0 => PolicyKind::None,
            _ => PolicyKind::Torture,
        };
        let p = |n| Permille::new(n).expect("below 1000");
        let low = Watermarks::new(p(30), p(20), p(10)).expect("in order");
        let engine = EngineConfig {
            apart: 1,
            policy,
            drive: None,
            // Not drawn: seeds keep their worlds but for the gate.
            turns: seed % 5 == 2,
            knowledge: Knowledge::Full,
            // Not drawn, either.
            scheduler: Scheduler::ALL[(seed % 4) as usize],
            drive_orders: seed.is_multiple_of(3),
            watermarks: if rng.below(2) == 0 { Watermarks::paper() } else { low },
            space: p([50, 200, 900][rng.below(3) as usize]),
            degree: 1 + rng.below(3) as u8,
            discard,
            punch: rng.below(3) == 0,
            // Nor this.
            settle: seed % 3 == 1,
            idle_after: us([100, 2_000, 15_000][rng.below(3) as usize]),
            // Nor this.
            restless_after: if seed % 7 == 3 { Nanos(0) } else { us(60_000_000) },
            table_flush_every: us([1_000, 50_000, 5_000_000][rng.below(3) as usize]),
            log_bytes_max: [64 << 10, 64 << 20][rng.below(2) as usize],
            // Whose own work then goes on, whatever it costs. In half of the worlds copies do not wait for more of them.
            without: [
                (seed % 7 == 3, Part::Disturbance),
                (seed % 7 == 3, Part::Slowest),
                (seed.is_multiple_of(2), Part::Batches),
            ]
            .into_iter()
            .filter_map(|(left_out, part)| left_out.then_some(part))
            .collect(),
            distrust: rng.below(10) == 0,
            // Not drawn, for the same reason.
            control: if seed % 8 == 5 { 2 } else { 0 },
            paranoid: rng.below(16) == 0 && options.plants.is_empty(),
            seed,
            plants: options.plants.clone(),
        };
        let mut plan = Plan {
            geometry,
            apart: rng.below(4) == 0,
            space: p([50, 200, 900][rng.below(3) as usize]),
            engine,
            depth: [1, 1, 2, 4, 32][rng.below(5) as usize],
            punches,
            connections: if punches { 1 } else { 1 + rng.below(3) as u32 },
            discards: rng.below(2) == 0,
            sparse: rng.below(2) == 0,
            elsewhere: rng.below(3) == 0,
            quick: rng.below(2) == 0,
            mix: Mix::draw(rng),
            think: us([20, 500, 5_000][rng.below(3) as usize]),
            service: (us(20), us([200, 5_000, 20_000][rng.below(3) as usize])),
            session: [100, 300, 1_000][rng.below(3) as usize],
            odds: Odds::draw(options.faults, punches, rng),
        };
        plan.sparse |= plan.odds.of(Fault::NoSpace) > 0;
        plan
    }

    /// Bytes of a block.
    pub fn geometry_block(&self) -> BlockSize {
        BlockSize::new(self.geometry.block as u32).expect("ext2 has blocks of this size")
    }

    /// In one line.
    pub fn describe(&self) -> String {
        let e = &self.engine;
        let faults: Vec<String> = self.odds.kinds().map(|f| format!("{f} 1/{}", self.odds.of(f))).collect();
        format!(
            "{} groups of blocks of {}, table {}, {} degree {} space {}, discards {}{}{}, {} connections, \
             depth {}, idle after {} us, table every {} us, {} chkfs2{}; faults: {}",
            self.geometry.groups(),
            self.geometry.block,
            if self.apart { "apart" } else { "inside" },
            e.policy,
            e.degree,
            e.space.get(),
            if e.discard == DiscardMode::Pass { "passed down" } else { "kept" },
            if self.punches { " as punches" } else { "" },
            if e.punch { ", replicas punched" } else { "" },
            self.connections,
            self.depth,
            e.idle_after.0 / 1_000,
            e.table_flush_every.0 / 1_000,
            if self.quick { "quick" } else { "full" },
            if e.distrust { ", distrust" } else { "" },
            if faults.is_empty() { "none".into() } else { faults.join(", ") }
        )
    }
}
