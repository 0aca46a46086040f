//! `fsbench paper`: the FS² paper's evaluation (SOSP 2005, section 4) on real volumes, through the kernel, on a
//! modelled drive in real time.
//!
//! A volume is prepared once, as fast as the machine is, and copied for each system, so that all have the same
//! layout. Each system then runs the workload several times, cold, with time to copy in between. Afterwards every
//! file is compared with what was written, and the volume is checked.

mod page;
mod tables;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs2_control::{Client, Command, Reply};
use fs2_sim::paper::Workload;
use fs2_trace::{Reader, RecordFlags};
use serde::Serialize;

use super::measure::attach::{MeasureArgs, Measurer, parse_bytes};
use super::measure::{ColdMode, Document, SCHEMA};
use super::output::{self, Output};
use super::preflight;
use super::runner::{self, Plan, Session};
use super::volumes::{Plain, Serve, Served, System, check, copy_image, make_image, mark, missing, replicate};
use super::{BenchError, Entry, Limits, Setup};

const EXAMPLES: &str = "\
Examples:
  fsbench paper --workload cvs                       one workload at a small size: some minutes
  fsbench paper --html paper.html --json paper.json  all four: an hour and more, as the drive is modelled in real time
  fsbench paper --preset paper --size 75g            at the paper's sizes: a day
  fsbench paper --workload cvs --runs 2 --time-scale 0.1 --scale 0.1    a glance

Needs root, FUSE and loop devices. All images lie in a directory that is removed at the end.";

/// The paper's workloads on a modelled drive: its tables 2 to 5 and figures beside its own
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Which: tpcw, cvs, x, surge or all
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = parse_workload)]
    workload: Which,
    /// Runs of each system; the last one is compared, the paper shows the 7th
    #[arg(long, value_name = "N", default_value = "7", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// The drive to model: a profile's name or file
    #[arg(long, value_name = "PROFILE", default_value = "wd800-repaired")]
    drive: String,
    /// Real seconds to one of the modelled drive's; think times stay as they are
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_time_scale)]
    time_scale: f64,
    /// Sizes: `ci` is small, `paper` is as published
    #[arg(long, value_name = "NAME", default_value = "ci")]
    preset: String,
    /// So many times as many files and operations as the preset
    #[arg(long, value_name = "X", default_value = "1", value_parser = super::parse_scale)]
    scale: f64,
    /// A parameter of the workload
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::parse_set)]
    set: Vec<(String, String)>,
    /// End each run after so long, where the workload has no end of its own
    #[arg(long, value_name = "TIME", value_parser = super::parse_duration)]
    duration: Option<Duration>,
    /// What is measured beside plain ext2
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "static,fs2-2005,fs2", value_parser = str::parse::<System>)]
    systems: Vec<System>,
    /// Bytes of the volume
    #[arg(long, value_name = "SIZE", default_value = "8g", value_parser = parse_bytes)]
    size: u64,
    /// Memory of the workload with its page cache; `none` for all of the machine's [default: 24m for ci, 384m for paper]
    #[arg(long, value_name = "SIZE")]
    mem_limit: Option<String>,
    /// After a run, wait at most so long until nothing is copied any more
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = super::parse_time)]
    idle: Duration,
    /// All random numbers follow from it
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
    /// Where images are made [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// Write everything to this file as JSON; - is standard output, and tables then go to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with the paper's figures to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    All,
    One(Workload),
}

fn parse_workload(text: &str) -> Result<Which, String> {
    if text == "all" { Ok(Which::All) } else { text.parse().map(Which::One) }
}

fn parse_time_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(f) if (0.001..=100.0).contains(&f) => Ok(f),
        _ => Err(format!("'{text}' is not a factor between 0.001 and 100")),
    }
}

/// fsbench's name of a workload of the paper.
fn entry_name(workload: Workload) -> &'static str {
    match workload {
        Workload::Tpcw => "tpcw-shopping",
        Workload::Cvs => "cvs-update",
        Workload::X => "startx",
        Workload::Surge => "surge",
    }
}

/// An access of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Access {
    /// Since the run began, seconds of the drive.
    at_s: f64,
    /// Its first sector.
    sector: u64,
    /// From the end of the access before it, sectors.
    distance: u64,
    /// How long it took, ms of the drive.
    ms: f64,
}

/// A system's runs of a workload.
struct Measured {
    system: System,
    document: Document,
    /// The accesses of the first run and of the last one, by its number.
    accesses: Vec<(u32, Vec<Access>)>,
}

/// What came of a workload.
struct Outcome {
    workload: Workload,
    systems: Vec<Measured>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), BenchError> {
    let wanted: Vec<Workload> = match args.workload {
        Which::All => Workload::ALL.to_vec(),
        Which::One(w) => vec![w],
    };
    makes_sense(args, &wanted)?;
    let (json_to, html) = (Output::of(args.json.as_deref())?, Output::of(args.html.as_deref())?);
    if matches!((&json_to, &html), (Some(Output::Stdout), Some(Output::Stdout))) {
        return Err(BenchError::Usage("--json and --html cannot both be standard output".into()));
    }
    output::refuse_same([&args.json, &args.html], [])?;
    let to_stdout = [&json_to, &html].into_iter().flatten().find(|to| matches!(to, Output::Stdout));
    if let Some(missing) = missing() {
        return Err(BenchError::Refused(format!("fsbench paper needs {missing}")));
    }
    super::control::catch_signals().map_err(|e| BenchError::Failed(format!("catching Ctrl-C: {e}")))?;
    let place = args.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    for workload in &wanted {
        let entry = super::find(entry_name(*workload))?;
        preflight::images(&place, &(entry.make)(&setup(args))?.needs())?;
    }
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("fsbench-paper-");
    let work = builder.tempdir_in(&place).map_err(BenchError::at(&place, "a directory for images"))?;
    let mut outcomes = Vec::new();
    for workload in wanted {
        let entry = super::find(entry_name(workload))?;
        let outcome = one(args, workload, &entry, work.path(), err)?;
        let to = output::tables(to_stdout, out, err);
        tables::print(&outcome, args, to).and_then(|()| to.flush()).map_err(super::printing)?;
        outcomes.push(outcome);
    }
    let written = json_to.map_or(Ok(()), |to| to.write(&json(&outcomes, args)?, out));
    let drawn = html.map_or(Ok(()), |to| to.write(&page::page(&outcomes, args), out));
    output::last([written, drawn], err)
}

fn setup(args: &Args) -> Setup {
    Setup {
        preset: args.preset.clone(),
        seed: args.seed,
        scale: args.scale,
        set: args.set.clone(),
        passes: args.runs,
    }
}

/// What makes no sense is refused before hours have gone by with what does.
fn makes_sense(args: &Args, wanted: &[Workload]) -> Result<(), BenchError> {
    mem_limit(args)?;
    fs2d::daemon::profile(&args.drive).map_err(|e| BenchError::Usage(format!("--drive: {e}")))?;
    for workload in wanted {
        let entry = super::find(entry_name(*workload))?;
        super::preset_is_there(&entry, Some(&args.preset))?;
        let needs = (entry.make)(&setup(args))?.needs();
        if needs.bytes > args.size {
            let (needs, size) = (crate::mkfs2::bytes(needs.bytes), crate::mkfs2::bytes(args.size));
            return Err(BenchError::Usage(format!(
                "{} needs about {needs}, more than --size, {size}",
                entry.name
            )));
        }
    }
    Ok(())
}

fn one(
    args: &Args,
    workload: Workload,
    entry: &Entry,
    work: &Path,
    err: &mut dyn Write,
) -> Result<Outcome, BenchError> {
    let mnt = work.join("mnt");
    std::fs::create_dir_all(&mnt).map_err(BenchError::at(&mnt, "making it"))?;
    let base = work.join("base.img");
    let plan = |runs: u32, reuse: bool| Plan {
        dir: mnt.clone(),
        setup: setup(args),
        runs,
        train: 0,
        limits: Limits { duration: args.duration, ..Limits::default() },
        keep: true,
        reuse,
    };
    let _ = writeln!(err, "fsbench: {}: making {} ...", entry.name, crate::mkfs2::bytes(args.size));
    make_image(&base, args.size, &["-b".into(), "4096".into()])?;
    let plain = Plain::mount(&base, &mnt)?;
    let prepared = Session::open(entry, &plan(0, false))?;
    let files = files_in_order(prepared.site().root(), &mnt);
    prepared.end()?;
    let blocks = nix::sys::statvfs::statvfs(&mnt).map_or(0, |s| s.blocks());
    plain.unmount()?;
    let mut systems = Vec::new();
    for system in
        std::iter::once(System::Ext2).chain(args.systems.iter().copied().filter(|s| *s != System::Ext2))
    {
        let image = work.join(format!("{}.img", system.name()));
        copy_image(&base, &image)?;
        mark(&image)?;
        if system == System::Static {
            replicate(&image, &files, blocks)?;
        }
        let plan = plan(args.runs, true);
        let measured = measure(args, entry, system, &image, &plan, work, err)?;
        check(&image)?;
        std::fs::remove_file(&image).map_err(BenchError::at(&image, "removing it"))?;
        systems.push(measured);
    }
    std::fs::remove_file(&base).map_err(BenchError::at(&base, "removing it"))?;
    Ok(Outcome { workload, systems })
}

fn mem_limit(args: &Args) -> Result<Option<u64>, BenchError> {
    match args.mem_limit.as_deref() {
        Some("none") => Ok(None),
        Some(text) => parse_bytes(text).map(Some).map_err(|e| BenchError::Usage(format!("--mem-limit: {e}"))),
        // The paper's machine had 512 MB, of which kernel and servers took their part: a guess.
        None if args.preset == "paper" => Ok(Some(384 << 20)),
        None => Ok(Some(24 << 20)),
    }
}

fn measure(
    args: &Args,
    entry: &Entry,
    system: System,
    image: &Path,
    plan: &Plan,
    work: &Path,
    err: &mut dyn Write,
) -> Result<Measured, BenchError> {
    let serve = Serve {
        system,
        drive: args.drive.clone(),
        time_scale: args.time_scale,
        options: vec!["noatime".into()],
    };
    let served = Served::mount(image, &plan.dir, &serve)?;
    let options =
        MeasureArgs { cold: ColdMode::Remount, mem_limit: mem_limit(args)?, ..MeasureArgs::default() };
    let mut measurer = Measurer::new(&options, &plan.dir, plan.runs)?;
    let mut session = Session::open(entry, plan)?;
    let mut accesses = Vec::new();
    for run in 1..=plan.runs {
        let traced = args.html.is_some() && (run == 1 || run == plan.runs);
        let trace = work.join("trace");
        if traced {
            ask(&served, &Command::TraceStart { path: trace.clone() })?;
        }
        session.pass(&mut measurer, false)?;
        if traced {
            ask(&served, &Command::TraceStop)?;
            accesses.push((run, read_trace(&trace)?));
            std::fs::remove_file(&trace).map_err(BenchError::at(&trace, "removing it"))?;
        }
        served.settle(args.idle)?;
        session.rested()?;
        let _ = writeln!(
            err,
            "fsbench: {} on {}, run {run} of {}: {:.1} s",
            entry.name,
            system.name(),
            plan.runs,
            session.runs().last().map_or(0.0, |r| r.report.elapsed.as_secs_f64())
        );
    }
    served.unmount()?;
    // What was written through the daemon is compared without it.
    let plain = Plain::mount(image, &plan.dir)?;
    let outcome = session.end()?;
    plain.unmount()?;
    if let Some(e) = runner::failure(&outcome) {
        return Err(e);
    }
    Ok(Measured { system, document: measurer.document(&outcome, plan), accesses })
}

fn ask(served: &Served, command: &Command) -> Result<(), BenchError> {
    let Some(record) = served.record() else { return Ok(()) };
    let failed = |e: &dyn std::fmt::Display| BenchError::Failed(format!("the daemon's trace: {e}"));
    match Client::connect(&record.control).and_then(|mut c| c.ask(command)) {
        Ok(Reply::Error { what, .. }) => Err(failed(&what)),
        Ok(_) => Ok(()),
        Err(e) => Err(failed(&e)),
    }
}

/// The clients' reads of a trace, in order.
fn read_trace(path: &Path) -> Result<Vec<Access>, BenchError> {
    let wrong = |e: &dyn std::fmt::Display| BenchError::Failed(format!("{}: {e}", path.display()));
    let file = std::fs::File::open(path).map_err(BenchError::at(path, "opening it"))?;
    let reader = Reader::new(file).map_err(|e| wrong(&e))?;
    let mut records = reader.collect::<Result<Vec<_>, _>>().map_err(|e| wrong(&e))?;
    records.sort_by_key(|r| r.at);
    let own = |f: RecordFlags| f.contains(RecordFlags::COPY) || f.contains(RecordFlags::HASH);
    let first = records.first().map_or(0.0, |r| r.at.as_secs_f64());
    let mut end = records.first().map_or(0, |r| r.extent.sector().0);
    let mut all = Vec::new();
    for r in &records {
        let sector = r.extent.sector().0;
        let distance = sector.abs_diff(end);
        end = sector + r.extent.len().div_ceil(512);
        if r.op == fs2_block::Op::Read
            && !own(r.flags)
            && let Some(took) = r.service
        {
            all.push(Access { at_s: r.at.as_secs_f64() - first, sector, distance, ms: took.as_millis_f64() });
        }
    }
    Ok(all)
}

/// Every file below `root`, directory by directory, from the volume's root.
fn files_in_order(root: &Path, mnt: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(|e| e.file_name());
        for entry in entries {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(path),
                Ok(kind) if kind.is_file() => {
                    // An empty file has no block to copy.
                    if entry.metadata().is_ok_and(|m| m.len() > 0)
                        && let Ok(inside) = path.strip_prefix(mnt)
                    {
                        files.push(inside.to_owned());
                    }
                }
                _ => {}
            }
        }
    }
    files
}

fn json(outcomes: &[Outcome], args: &Args) -> Result<String, BenchError> {
    #[derive(Serialize)]
    struct SystemJson<'a> {
        name: String,
        improvement: Option<crate::replay::paper::report::Row>,
        paper: Option<crate::replay::paper::report::Row>,
        document: &'a Document,
    }
    #[derive(Serialize)]
    struct WorkloadJson<'a> {
        name: &'static str,
        table: u8,
        systems: Vec<SystemJson<'a>>,
    }
    #[derive(Serialize)]
    struct All<'a> {
        schema: u32,
        program: &'static str,
        drive: &'a str,
        time_scale: f64,
        preset: &'a str,
        volume_bytes: u64,
        workloads: Vec<WorkloadJson<'a>>,
    }
    let workloads = outcomes.iter().map(|o| WorkloadJson {
        name: o.workload.name(),
        table: crate::replay::paper::report::table_of(o.workload).0,
        systems: o
            .systems
            .iter()
            .map(|m| SystemJson {
                name: m.system.name(),
                improvement: tables::improvement(o, m),
                paper: tables::of_paper(o.workload, m.system),
                document: &m.document,
            })
            .collect(),
    });
    let all = All {
        schema: SCHEMA,
        program: "fsbench paper",
        drive: &args.drive,
        time_scale: args.time_scale,
        preset: &args.preset,
        volume_bytes: args.size,
        workloads: workloads.collect(),
    };
    let text = serde_json::to_string_pretty(&all).map_err(|e| BenchError::Failed(e.to_string()))?;
    Ok(text + "\n")
}
