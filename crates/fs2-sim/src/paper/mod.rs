//! The paper's evaluation on made-up volumes: an aged ext2 layout and four workloads like those of section 4
//! of "FS2: Dynamic Data Replication in Free Disk Space" (SOSP 2005).
//!
//! The main type is [`Paper`]: everything laid out on one volume. It gives the volume's free blocks and, for
//! each run of each workload, the requests that reach the disk; [`crate::replay`] says what they cost under a
//! policy. A function of [`Params`] alone, to the bit: integers, and floats by their four operations.
//!
//! ```
//! use fs2_disk::DriveProfile;
//! use fs2_sim::paper::{DEFAULT_PARAMS, Paper, Params, Workload};
//!
//! // A small one: the volume and the tree are a hundredth of the paper's.
//! let small = DEFAULT_PARAMS
//!     .replace("groups = 624 ", "groups = 32 ")
//!     .replace("cycles = 10 ", "cycles = 1 ")
//!     .replace("files = 17000", "files = 170");
//! let mut params = Params::parse(&small).unwrap();
//! let paper = Paper::build(&params, &[Workload::Cvs]).unwrap();
//! let run = paper.run(Workload::Cvs, 1, &DriveProfile::builtin("wd800-repaired").unwrap());
//! assert!(run.requests.len() > 100 && run.requests.is_sorted_by_key(|r| r.at));
//! ```

mod ageing;
mod cvs;
mod draw;
mod kernel;
mod params;
mod surge;
mod tpcw;
mod volume;
mod x;

use std::str::FromStr;

use fs2_disk::DriveProfile;
use fs2_engine::policy::{Fs2Of2005, Shape};

pub use kernel::RunTrace;
pub use params::{DEFAULT_PARAMS, Params, ParamsError};

use crate::replay::{FreeMap, Pace};
use ageing::Population;
use draw::mix;
use fs2_block::{BlockRange, Nanos};
use kernel::{Recording, seconds};
use volume::{Stored, Volume};

/// The workloads of the paper's section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// `cvs -q update`, section 4.4.
    Cvs,
    /// TPC-W, section 4.3.
    Tpcw,
    /// The X server and KDE start, section 4.5.
    X,
    /// SURGE, section 4.6.
    Surge,
}

impl Workload {
    /// All, in the order of reports: that of the paper's tables.
    pub const ALL: [Workload; 4] = [Workload::Tpcw, Workload::Cvs, Workload::X, Workload::Surge];

    /// The name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Cvs => "cvs",
            Workload::Tpcw => "tpcw",
            Workload::X => "x",
            Workload::Surge => "surge",
        }
    }

    /// How its requests arrive: one process waits for each and computes in between, or many users set the
    /// pace, whose recorded times are kept.
    pub fn pace(self) -> Pace {
        match self {
            Workload::Cvs | Workload::X => {
                Pace::Closed { clients: 1, think_min: Nanos(0), think_max: seconds(3600.0) }
            }
            Workload::Tpcw | Workload::Surge => Pace::Open,
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(s: &str) -> Result<Workload, String> {
        Workload::ALL.into_iter().find(|w| w.name() == s).ok_or_else(|| {
            format!("no workload is called '{s}'; there are {}", Workload::ALL.map(Workload::name).join(", "))
        })
    }
}

/// See the module. Memory: some 100 bytes a file of the workloads, a bit a block.
#[derive(Clone, Debug)]
pub struct Paper {
    params: Params,
    volume: Volume,
    others: usize,
    cvs: Option<cvs::Trees>,
    tpcw: Option<tpcw::Shop>,
    x: Option<x::System>,
    surge: Option<surge::Hosts>,
}

/// The volume in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Free blocks.
    pub free: u64,
    /// Blocks that are no static metadata.
    pub usable: u64,
    /// Runs of free blocks.
    pub free_runs: u64,
    /// Free blocks in runs of 256 (1 MiB) and more.
    pub free_in_long_runs: u64,
    /// Files that belong to no workload.
    pub other_files: u64,
    /// Files and directories of the workloads.
    pub files: u64,
    /// Runs of blocks they lie in.
    pub extents: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Of the free blocks and of the workloads' extents, in order.
    pub digest: u64,
}

impl Paper {
    /// Ages a volume, lays the files of these workloads out, and fills it up to its share in the end. Each
    /// workload's files lie elsewhere if others were left out.
    ///
    /// # Errors
    /// Where the volume is too small for what the parameters put on it.
    pub fn build(params: &Params, workloads: &[Workload]) -> Result<Paper, ParamsError> {
        let full = || ParamsError("the volume is too small for the files: give it more groups".into());
        let (shape, seed) = (&params.volume, params.seed);
        let mut volume = Volume::new(shape.groups, shape.inodes_per_group).ok_or_else(full)?;
        let mut others = Population::new(seed);
        others.age(&mut volume, &params.ageing);
        let has = |w| workloads.contains(&w);
        let (mut tpcw, mut cvs, mut x, mut surge) = (None, None, None, None);
        if has(Workload::X) {
            x = Some(x::System::make(&mut volume, &params.x, seed).ok_or_else(full)?);
        }
        if has(Workload::Tpcw) {
            tpcw = Some(tpcw::Shop::make(&mut volume, &params.tpcw, seed).ok_or_else(full)?);
        }
        if has(Workload::Surge) {
            surge = Some(surge::Hosts::make(&mut volume, &params.surge, seed).ok_or_else(full)?);
        }
        if has(Workload::Cvs) {
            cvs = Some(cvs::Trees::make(&mut volume, &params.cvs, seed).ok_or_else(full)?);
        }
        others.fill(&mut volume, &params.ageing, params.ageing.used_in_the_end);
        others.delete(&mut volume, &params.ageing, params.ageing.used_in_the_end);
        Ok(Paper { params: params.clone(), volume, others: others.files(), cvs, tpcw, x, surge })
    }

    /// The paper's policy for this volume, with the parameters' guesses where the paper gives no number.
    pub fn fs2_2005(&self) -> Fs2Of2005 {
        let map = self.volume.geometry();
        let shape = Shape {
            blocks: map.blocks,
            group_blocks: map.blocks_per_group,
            first_block: map.first_block(),
            block_bytes: map.block_size.bytes(),
            seed: 0,
        };
        let guesses = &self.params.fs2_2005;
        Fs2Of2005::with(&shape, guesses.region_groups, guesses.together as usize)
    }

    /// The volume's geometry and its free blocks.
    pub fn free_map(&self) -> FreeMap {
        self.volume.free_map()
    }

    fn stored(&self, workload: Workload) -> Vec<&Stored> {
        match workload {
            Workload::Cvs => self.cvs.iter().flat_map(|w| w.stored()).collect(),
            Workload::Tpcw => self.tpcw.iter().flat_map(|w| w.stored()).collect(),
            Workload::X => self.x.iter().flat_map(|w| w.stored()).collect(),
            Workload::Surge => self.surge.iter().flat_map(|w| w.stored()).collect(),
        }
    }

    /// The blocks of a workload's files, in the order of the files: what an administrator would have copied.
    /// Inodes are left out.
    pub fn extents(&self, workload: Workload) -> Vec<BlockRange> {
        let runs = self.stored(workload).into_iter().flat_map(|s| &s.runs);
        runs.map(|&(start, len)| BlockRange::new(start, start + len)).collect()
    }

    /// The volume in figures.
    pub fn layout(&self) -> Layout {
        let map = self.free_map();
        let (mut digest, mut free_runs, mut long) = (0u64, 0, 0);
        let mut add = |a: u32, b: u32| digest = mix(digest ^ (u64::from(a) << 32 | u64::from(b)));
        let mut run = (0u32, 0u32);
        for block in map.free.iter().map(Some).chain([None]) {
            match block {
                Some(b) if run.1 > 0 && run.0 + run.1 == b => run.1 += 1,
                next => {
                    if run.1 > 0 {
                        add(run.0, run.1);
                        free_runs += 1;
                        long += if run.1 >= 256 { u64::from(run.1) } else { 0 };
                    }
                    run = (next.unwrap_or(0), 1);
                }
            }
        }
        let (mut files, mut extents, mut blocks) = (0, 0, 0);
        for stored in Workload::ALL.into_iter().flat_map(|w| self.stored(w)) {
            files += 1;
            for &(start, len) in &stored.runs {
                add(start, len);
                extents += 1;
                blocks += u64::from(len);
            }
        }
        Layout {
            free: map.free.len(),
            usable: self.volume.usable(),
            free_runs,
            free_in_long_runs: long,
            other_files: self.others as u64,
            files,
            extents,
            blocks,
            digest,
        }
    }

    /// What run `run` (from 1) of a workload asks of the disk, recorded on plain ext2 with this drive. Nothing
    /// where the workload was left out.
    pub fn run(&self, workload: Workload, run: u64, drive: &DriveProfile) -> RunTrace {
        let (volume, kernel) = (&self.volume, &self.params.kernel);
        let recording =
            |cache_mib, processes: usize, until| Recording { kernel, drive, cache_mib, processes, until };
        match workload {
            Workload::Cvs => self.cvs.as_ref().map(|trees| {
                let p = &self.params.cvs;
                let mut steps = trees.update(volume, kernel, p);
                recording(p.cache_mib, 1, cvs::UNTIL).record(|_, _, out| out.append(&mut steps))
            }),
            Workload::X => self.x.as_ref().map(|system| {
                let p = &self.params.x;
                let mut steps = system.start(volume, kernel, p, run);
                recording(p.cache_mib, 1, cvs::UNTIL).record(|_, _, out| out.append(&mut steps))
            }),
            Workload::Tpcw => self.tpcw.as_ref().map(|shop| {
                let p = &self.params.tpcw;
                let mut browsers = shop.browsers(p, run);
                recording(p.cache_mib, browsers.len(), seconds(p.seconds)).record(|who, _, out| {
                    out.append(&mut shop.next(volume, kernel, p, &mut browsers[who]));
                })
            }),
            Workload::Surge => self.surge.as_ref().map(|hosts| {
                let p = &self.params.surge;
                let mut lists = hosts.lists(p, run);
                let clients = p.at.len() * p.clients as usize;
                recording(p.cache_mib, clients, seconds(p.seconds)).record(|who, _, out| {
                    out.append(&mut hosts.next(volume, kernel, p, &mut lists, who));
                })
            }),
        }
        .unwrap_or_default()
    }
}
