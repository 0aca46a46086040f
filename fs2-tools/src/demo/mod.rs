//! `fs2 demo`: plain ext2 and FS2 side by side on a modelled drive, nothing left behind.

mod image;
mod in_process;
mod through_kernel;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use fs2_control::Status;
use fs2_engine::PolicyKind;
use fs2_trace::{Reader, Record, RecordFlags};
use fs2d::settings::{Settings, parse_time_scale};
use indicatif::{ProgressBar, ProgressStyle};

use crate::new_file::NewFile;
use crate::output::is_lost;
use crate::outputs;
use crate::report::{self, AddressSeries, DemoReport, ImageFacts, RunRow, render_html, render_table};
use crate::signals;

/// Options of `fs2 demo`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Two regions of a sparse 8 GiB ext2 image are read file by file in turns, cold, several times: once \
as plain ext2, once as an FS2 volume, in alternation. As root through the kernel (FUSE, loop, mount); \
without root in this process. Needs mke2fs and debugfs (package e2fsprogs).

EXAMPLES:
  fs2 demo
  fs2 demo --drive nearline-hc310 --runs 7 --report nearline.html
  fs2 demo --json > demo.json"
)]
pub struct Options {
    /// Runs of each system.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Pairs of files read in a run.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=600))]
    pairs: u32,
    /// The drive to model: a profile's name or file.
    #[arg(long, default_value = "wd800-repaired", value_name = "PROFILE")]
    drive: String,
    /// Real seconds to one of the modelled drive's.
    #[arg(long, default_value_t = 0.5, value_name = "FACTOR", value_parser = parse_time_scale)]
    time_scale: f64,
    /// The policy shown against plain ext2.
    #[arg(long, default_value = "fs2", value_name = "POLICY", value_parser = PolicyKind::from_str)]
    policy: PolicyKind,
    /// Run in this process though root could go through the kernel.
    #[arg(long)]
    in_process: bool,
    /// Where the report goes [default: target/fs2-demo.html in the project's tree, else fs2-demo.html].
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
}

/// Why the demo ends early.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A step failed.
    #[error("{0}")]
    Step(String),
    /// By Ctrl-C, SIGTERM or SIGHUP.
    #[error("interrupted; everything was cleaned up")]
    Interrupted,
}

impl From<crate::volume::VolumeError> for DemoError {
    fn from(e: crate::volume::VolumeError) -> DemoError {
        DemoError::Step(e.to_string())
    }
}

fn step(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> DemoError {
    move |e| DemoError::Step(format!("{what}: {e}"))
}

fn check_interrupt() -> Result<(), DemoError> {
    if signals::asked() { Err(DemoError::Interrupted) } else { Ok(()) }
}

/// What a run reads through: a mounted volume, or one in this process.
trait System {
    /// How the volume is reached, for people.
    fn frontend(&self) -> String;
    /// Forgets everything that was read.
    fn cold(&mut self) -> Result<(), DemoError>;
    /// Reads a file whole.
    fn read(&mut self, path: &str) -> Result<Vec<u8>, DemoError>;
    /// The daemon's figures.
    fn status(&mut self) -> Result<Status, DemoError>;
    /// Begins a trace.
    fn trace_start(&mut self, path: &Path) -> Result<(), DemoError>;
    /// Ends it.
    fn trace_stop(&mut self) -> Result<(), DemoError>;
    /// Ends the volume cleanly.
    fn end(self: Box<Self>) -> Result<(), DemoError>;
}

/// Runs the demo; what `main` returns.
pub fn main(options: &Options) -> ExitCode {
    if let Err(e) = signals::catch() {
        eprintln!("fs2: Ctrl-C will not clean up: {e}");
    }
    match (run(options), signals::last()) {
        (Ok(()), _) => ExitCode::SUCCESS,
        // Also where it is a program or a mount that was interrupted.
        (Err(_), Some(signal)) => {
            eprintln!("fs2: {}", DemoError::Interrupted);
            ExitCode::from(128 + signal as u8)
        }
        (Err(e), None) => {
            eprintln!("fs2: {e}");
            ExitCode::FAILURE
        }
    }
}

fn settings(options: &Options, plain: bool) -> Result<Settings, DemoError> {
    use clap::Parser;
    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        settings: Settings,
    }
    let policy = if plain { "none".into() } else { options.policy.to_string() };
    let scale = options.time_scale.to_string();
    let mut args = vec!["fs2", "--policy", &policy, "--drive", &options.drive, "--time-scale", &scale];
    args.push(if plain { "--passive" } else { "--require-active" });
    // The image is small and gone in a minute, and on a nearly full machine it is to show copies, too.
    args.extend(["--host-reserve", "0%"]);
    Only::try_parse_from(args).map(|o| o.settings).map_err(|e| DemoError::Step(e.to_string()))
}

/// Where the report goes.
fn place(options: &Options) -> Result<PathBuf, DemoError> {
    Ok(match &options.report {
        Some(place) => place.clone(),
        // In this project's tree the report is output of a build: nothing new lies among the sources.
        None if Path::new("target").is_dir() || Path::new("Cargo.toml").is_file() => {
            std::fs::create_dir_all("target").map_err(step("the directory target"))?;
            "target/fs2-demo.html".into()
        }
        None => "fs2-demo.html".into(),
    })
}

fn run(options: &Options) -> Result<(), DemoError> {
    let started = Instant::now();
    // What cannot be is told of before anything is made.
    fs2d::daemon::profile(&options.drive).map_err(|e| DemoError::Step(e.to_string()))?;
    let (plain, fs2) = (settings(options, true)?, settings(options, false)?);
    let place = place(options)?;
    outputs::refuse_same(&[&place], [Path::new(&options.drive)]).map_err(|e| DemoError::Step(e.0))?;
    let page = NewFile::create(&place).map_err(|e| DemoError::Step(e.0))?;
    let root = nix::unistd::geteuid().is_root() && !options.in_process;
    let dir =
        tempfile::Builder::new().prefix("fs2-demo-").tempdir().map_err(step("a temporary directory"))?;
    // SAFETY: this process has one thread yet. Sockets, logs and stamps go where all of it is removed.
    unsafe { std::env::set_var("FS2_RUNTIME_DIR", dir.path().join("run")) };
    let say = |text: &str| {
        if !options.json {
            println!("{text}");
        }
    };
    say("making a sparse 8 GiB ext2 image with two trees of files, 5 GiB apart ...");
    let made = image::make(dir.path())?;
    check_interrupt()?;
    let mut notes = Vec::new();
    let open = |image: &Path, s: &Settings| -> Result<Box<dyn System>, DemoError> {
        if root { through_kernel::open(dir.path(), image, s) } else { in_process::open(image, s) }
    };
    let mut systems = vec![
        (report::System::Ext2, open(&made.plain, &plain)?),
        (report::System::Fs2, open(&made.fs2, &fs2)?),
    ];
    let frontend = systems[0].1.frontend();
    say(&format!(
        "reading {} pairs of files, cold, on a modelled {} ({frontend}) ...",
        options.pairs, options.drive
    ));
    let steps = u64::from(options.runs * options.pairs * 2);
    let bar = progress(steps, options.json);
    let mut rows: Vec<RunRow> = Vec::new();
    let mut addresses = Vec::new();
    for run in 1..=options.runs {
        for (which, system) in &mut systems {
            let (row, points) = one_run(*which, &mut **system, &made, options, run, dir.path(), &bar)?;
            bar.suspend(|| {
                say(&line_of(&row));
            });
            if run == 1 || run == options.runs {
                addresses.push(AddressSeries { system: *which, run, points });
            }
            rows.push(row);
        }
    }
    bar.finish_and_clear();
    let copies_written = systems[1].1.status()?.copies_written;
    for (which, system) in systems {
        system.end().map_err(|e| DemoError::Step(format!("ending {}: {e}", which.name())))?;
    }
    image::check(&made.fs2)?;
    notes.push(
        "Every byte read was compared with what was written; e2fsck found the FS2 volume clean afterwards."
            .into(),
    );
    if !root {
        notes.push(
            "Ran in this process; as root it goes through the kernel (FUSE, loop device, mount).".into(),
        );
    }
    let report = DemoReport {
        title: "FS2 against plain ext2".into(),
        machine_note: format!(
            "modelled drive {}, {} real seconds to a modelled one",
            options.drive, options.time_scale
        ),
        drive: options.drive.clone(),
        image: ImageFacts {
            bytes: image::IMAGE_BYTES,
            files: made.files.len() as u64,
            file_bytes: made.bytes(),
        },
        frontend,
        time_scale: options.time_scale,
        runs: rows,
        addresses,
        copies_written,
        notes,
    };
    drop(dir);
    // First what took long, wherever the page should have gone.
    if options.json {
        let text = serde_json::to_string(&report).map_err(|e| DemoError::Step(e.to_string()))?;
        println!("{text}");
    } else {
        println!("\n{}", render_table(&report));
    }
    page.write(&render_html(&report)).map_err(|e| DemoError::Step(e.0))?;
    if !options.json {
        println!(
            "report: {}  ({:.0} s in all; nothing else is left)",
            place.display(),
            started.elapsed().as_secs_f64()
        );
    }
    if is_lost() {
        return Err(DemoError::Step("what was to be said could not be written".into()));
    }
    Ok(())
}

/// What is said of a run once it is over; the table at the end has the same figures.
fn line_of(r: &RunRow) -> String {
    format!(
        "  run {} {:>4}: {:7.2} s, {:5.2} ms an access, {:>5} of the reads from replicas",
        r.run,
        r.system.name(),
        r.elapsed_s,
        r.access_ms,
        report::percent(r.from_replica, r.reads)
    )
}

fn progress(steps: u64, json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} files  {elapsed} of about {duration}");
    ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// One run: every pair, cold; then idle until what was captured is copied.
fn one_run(
    which: report::System,
    system: &mut dyn System,
    made: &image::Made,
    options: &Options,
    run: u32,
    dir: &Path,
    bar: &ProgressBar,
) -> Result<(RunRow, Vec<(f64, u64)>), DemoError> {
    system.cold()?;
    let trace = dir.join("trace");
    let before = system.status()?;
    system.trace_start(&trace)?;
    let started = Instant::now();
    for pair in 0..options.pairs as usize {
        for file in made.pair(pair) {
            check_interrupt()?;
            let bytes = system.read(&file.path)?;
            if !file.is_right(&bytes) {
                return Err(DemoError::Step(format!(
                    "{}, run {run}: {} has other content than was written",
                    which.name(),
                    file.path
                )));
            }
            bar.inc(1);
        }
    }
    let elapsed_s = started.elapsed().as_secs_f64() / options.time_scale;
    system.trace_stop()?;
    let after = system.status()?;
    settle(system)?;
    let records = read_trace(&trace)?;
    std::fs::remove_file(&trace).map_err(step(trace.display()))?;
    let reads: Vec<&Record> = records.iter().filter(|r| is_client_read(r)).collect();
    let mut times: Vec<f64> = reads.iter().filter_map(|r| r.service).map(|t| t.as_millis_f64()).collect();
    times.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
    let p99 = times.get((times.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0.0);
    let part = |get: fn(&Status) -> Option<f64>| -> f64 {
        let total = |s: &Status| get(s).unwrap_or(0.0) * s.access_ms.accesses as f64;
        (total(&after) - total(&before))
            / (after.access_ms.accesses - before.access_ms.accesses).max(1) as f64
    };
    let row = RunRow {
        system: which,
        run,
        reads: reads.len() as u64,
        from_replica: reads.iter().filter(|r| r.flags.contains(RecordFlags::REPLICA)).count() as u64,
        elapsed_s,
        access_ms: mean,
        seek_ms: part(|s| s.access_ms.seek),
        rotation_ms: part(|s| s.access_ms.rotation),
        transfer_ms: part(|s| s.access_ms.transfer),
        energy_j: after.energy_j.value.unwrap_or(0.0) - before.energy_j.value.unwrap_or(0.0),
        p99_ms: p99,
    };
    let first = reads.first().map_or(0.0, |r| r.at.as_secs_f64());
    let points = reads.iter().map(|r| (r.at.as_secs_f64() - first, r.extent.sector().0)).collect();
    Ok((row, points))
}

fn is_client_read(r: &Record) -> bool {
    let own = r.flags.contains(RecordFlags::COPY) || r.flags.contains(RecordFlags::HASH);
    r.op == fs2_block::Op::Read && !own
}

fn read_trace(path: &Path) -> Result<Vec<Record>, DemoError> {
    let file = std::fs::File::open(path).map_err(step("the trace"))?;
    let reader = Reader::new(file).map_err(|e| DemoError::Step(format!("the trace: {e}")))?;
    let mut records =
        reader.collect::<Result<Vec<_>, _>>().map_err(|e| DemoError::Step(format!("the trace: {e}")))?;
    records.sort_by_key(|r| r.at);
    Ok(records)
}

/// Waits until what was captured is copied, for a bounded time.
fn settle(system: &mut dyn System) -> Result<(), DemoError> {
    let until = Instant::now() + Duration::from_secs(20);
    let mut quiet = 0;
    let mut last = None;
    while quiet < 3 && Instant::now() < until {
        check_interrupt()?;
        std::thread::sleep(Duration::from_millis(50));
        let s = system.status()?;
        let now = (s.copies_written, s.copies_waiting);
        quiet = if last == Some(now) { quiet + 1 } else { 0 };
        last = Some(now);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 98 % here, and 99 % in the table.
    #[test]
    fn a_run_has_one_share_of_replicas() {
        let report = report::sample::report();
        let row = RunRow { reads: 1000, from_replica: 988, ..report.runs[0] };
        assert!(line_of(&row).ends_with(",  99 % of the reads from replicas"), "{}", line_of(&row));
        let table =
            render_table(&DemoReport { runs: vec![RunRow { system: report::System::Fs2, ..row }], ..report });
        assert!(table.contains("99 %") && !table.contains("98 %"), "{table}");
    }
}
