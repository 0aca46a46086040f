//! What a demo measured, as a page with pictures or as a table of text.
//!
//! The main type is [`DemoReport`]; [`render_html`] makes one file that needs nothing else,
//! [`render_svgs`] its pictures alone, [`render_table`] text for a terminal. Measuring, and writing
//! files, is left to others.
//!
//! ```
//! use fs2_tools::report::{DemoReport, RunRow, System, render_html, render_table};
//!
//! let row = |system, access_ms| RunRow { system, run: 1, reads: 100, access_ms, ..RunRow::default() };
//! let report = DemoReport {
//!     title: "A demo".into(),
//!     runs: vec![row(System::Ext2, 8.0), row(System::Fs2, 4.0)],
//!     ..DemoReport::default()
//! };
//! assert!(render_table(&report).contains("50 % less"));
//! assert!(render_html(&report).starts_with("<!DOCTYPE html>"));
//! ```

mod address;
mod bars;
mod calibration;
mod html;
pub(crate) mod page;
mod paint;
pub(crate) mod summary;
mod table;

use serde::{Deserialize, Serialize};

pub use calibration::render_calibration;
pub use html::{render_html, render_svgs};
pub(crate) use summary::percent;
pub use table::render_table;

/// What served a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum System {
    /// The plain volume, no copies.
    #[default]
    #[serde(rename = "ext2")]
    Ext2,
    /// The volume with replicas.
    #[serde(rename = "FS2")]
    Fs2,
}

impl System {
    /// Its name in plain text: `ext2` or `FS2`.
    pub fn name(self) -> &'static str {
        match self {
            System::Ext2 => "ext2",
            System::Fs2 => "FS2",
        }
    }

    /// Its name on a page: `ext2` or `FS²`.
    fn pretty(self) -> &'static str {
        match self {
            System::Ext2 => "ext2",
            System::Fs2 => "FS²",
        }
    }
}

/// The image a demo ran on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageFacts {
    /// Bytes of the volume.
    pub bytes: u64,
    /// Files in it.
    pub files: u64,
    /// Bytes of the files together.
    pub file_bytes: u64,
}

/// One run of the workload. All times are the drive's: what a clock showed, divided by
/// [`DemoReport::time_scale`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// What served it.
    pub system: System,
    /// Which run, from 1.
    pub run: u32,
    /// Reads the device saw.
    pub reads: u64,
    /// Of these, served from a replica.
    pub from_replica: u64,
    /// The workload's wall clock, in seconds of the drive's time.
    pub elapsed_s: f64,
    /// Mean time of an access, in ms.
    pub access_ms: f64,
    /// Of it, mean seek.
    pub seek_ms: f64,
    /// Of it, mean rotational latency.
    pub rotation_ms: f64,
    /// Of it, mean transfer and overhead.
    pub transfer_ms: f64,
    /// Energy of the run's accesses, in joules.
    pub energy_j: f64,
    /// What 99 % of the accesses did not exceed, in ms.
    pub p99_ms: f64,
}

/// Where a run read, over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddressSeries {
    /// What served it.
    pub system: System,
    /// Which run, from 1.
    pub run: u32,
    /// Seconds since the run began, and the sector (512 bytes) a read began at.
    pub points: Vec<(f64, u64)>,
}

/// What a demo measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DemoReport {
    /// The page's title.
    pub title: String,
    /// The machine it ran on, in a few words.
    pub machine_note: String,
    /// The drive, and whether it is modelled.
    pub drive: String,
    /// The image.
    pub image: ImageFacts,
    /// The frontend.
    pub frontend: String,
    /// Real seconds that a second of the drive took: 1 is real time, 0 that nothing was waited for.
    pub time_scale: f64,
    /// The runs, in any order.
    pub runs: Vec<RunRow>,
    /// Addresses of some runs: the first and the last of FS2 are drawn.
    pub addresses: Vec<AddressSeries>,
    /// Blocks copied in all.
    pub copies_written: u64,
    /// What a reader should know.
    pub notes: Vec<String>,
}

#[cfg(test)]
pub(crate) mod sample {
    use super::*;

    /// A report with made-up figures, as large as a demo's.
    pub(crate) fn report() -> DemoReport {
        let mut runs = Vec::new();
        for run in 1..=7u32 {
            let better = f64::from(run - 1).min(4.0) / 4.0;
            for (system, gain) in [(System::Ext2, 0.0), (System::Fs2, better)] {
                let (seek, rotation) = (5.2 * (1.0 - 0.7 * gain), 4.1 * (1.0 - 0.5 * gain));
                let access = seek + rotation + 0.25;
                runs.push(RunRow {
                    system,
                    run,
                    reads: 4000 + u64::from(run % 3) * 7,
                    from_replica: (3600.0 * gain) as u64,
                    elapsed_s: access * 4.1,
                    access_ms: access,
                    seek_ms: seek,
                    rotation_ms: rotation,
                    transfer_ms: 0.25,
                    energy_j: 4.0 * (seek * 14.0 + (rotation + 0.25) * 8.0),
                    p99_ms: 22.0 - 6.0 * gain,
                });
            }
        }
        // A generator of its own: the picture must not depend on a seed.
        let mut state = 1u64;
        let mut random = move |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let addresses = [1u32, 7]
            .map(|run| AddressSeries {
                system: System::Fs2,
                run,
                points: (0..6000)
                    .map(|n| {
                        let near = run == 7 && n % 10 != 0;
                        let sector = if near { 7_000_000 + random(300_000) } else { random(8_000_000) };
                        (f64::from(n) * if run == 1 { 0.0065 } else { 0.0028 }, sector * 2)
                    })
                    .collect(),
            })
            .to_vec();
        DemoReport {
            title: "FS² demo: <starting> a desktop & more".into(),
            machine_note: "2 cores, 8 GiB".into(),
            drive: "wd800-repaired, modelled".into(),
            image: ImageFacts { bytes: 8 << 30, files: 12_000, file_bytes: 3 << 30 },
            frontend: "in-process".into(),
            time_scale: 0.05,
            runs,
            addresses,
            copies_written: 15_300,
            notes: vec!["The page cache was dropped before each run.".into()],
        }
    }
}
