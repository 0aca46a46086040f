//! `fsbench sweep`: workloads over ways to make and mount the file system, with FS2 and without, over drives; the
//! tables are those of Sehgal's thesis (Stony Brook, 2010): 4.1 and 4.3 within a file system, 4.2 and 4.4 the best.
//!
//! Each cell has an image of its own, made anew. Its result is a file; what is there already is not run again.

mod page;
mod plan;
mod table;

use std::io::Write;
use std::path::{Path, PathBuf};

use super::BenchError;
use super::Limits;
use super::measure::Document;
use super::measure::attach::{MeasureArgs, Measurer, write_document};
use super::output::{self, Output};
use super::preflight;
use super::runner::{self, Session};
use super::volumes::{Plain, Serve, Served, check, copy_image, make_image, mark, missing};
use plan::{Cell, Plan};

const EXAMPLES: &str = "\
Examples:
  fsbench sweep docs/fsbench-sweep.toml --dry-run
  fsbench sweep docs/fsbench-sweep.toml --out results     again after an interruption: it goes on where it was
  fsbench sweep docs/fsbench-sweep.toml --html sweep.html and a page with pictures

A plan:
  size = '2g'                       # bytes of each volume
  runs = 5                          # of each cell; train = 0, seed = 1, scale = 1.0, duration = '20s', cold = 'remount'
  mem_limit = '24m'
  drives = ['wd800-repaired']       # profiles, by name or file
  systems = ['ext2', 'fs2']         # or fs2-2005
  variants = ['def', 'blk1k']       # also noatime, blk2k, isz1k, bg16k; without it all of them; the first is compared with
  [[variant]]                       # one of your own
  name = 'sparse'
  format = ['-b', '4096', '-i', '65536']
  mount = ['noatime']
  [[workload]]
  name = 'cvs-update'               # preset = 'ci', set = ['touch=100']

Needs root, FUSE and loop devices.";

/// Run workloads over ways to make and mount the file system, on modelled drives
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The plan
    plan: PathBuf,
    /// Where results are written, a file for each cell
    #[arg(long, value_name = "DIR", default_value = "fsbench-sweep")]
    out: PathBuf,
    /// Where images are made [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// Write a page with bars of every cell's mean and its 95 % interval to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// List the cells and which of them are done, and run nothing
    #[arg(long)]
    dry_run: bool,
}

/// A cell's result where it is there.
///
/// # Errors
/// It is of another version of this program: figures of two programs are not put into one table.
fn done(cell: &Cell, out: &Path) -> Result<Option<Document>, BenchError> {
    let path = cell.file(out);
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
    // Torn: as if it were not there.
    let Ok(document) = Document::from_json(&text) else { return Ok(None) };
    // Of before what is copied between runs was counted.
    if document.runs.iter().any(|run| run.drive.is_some() && run.rest.is_none()) {
        return Ok(None);
    }
    let (theirs, ours) = (&document.environment.version, env!("CARGO_PKG_VERSION"));
    if theirs != ours {
        return Err(BenchError::Refused(format!(
            "{}: measured by fsbench {theirs}, this is {ours}; give another --out, or remove it to have it measured again",
            path.display()
        )));
    }
    Ok(Some(document))
}

pub(super) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), BenchError> {
    let plan = Plan::read(&args.plan)?;
    let cells = plan.cells();
    if args.dry_run {
        for cell in &cells {
            let state = match done(cell, &args.out) {
                Ok(Some(_)) => "done",
                Ok(None) => "to do",
                Err(_) => "other",
            };
            writeln!(out, "{state:<6} {cell}").map_err(super::printing)?;
        }
        return Ok(());
    }
    let results: Vec<_> = cells.iter().map(|cell| Some(cell.file(&args.out))).collect();
    output::refuse_same(results.iter().chain([&args.html]), [args.plan.as_path()])?;
    let html = Output::of(args.html.as_deref())?;
    let found = cells.iter().map(|c| done(c, &args.out)).collect::<Result<Vec<_>, _>>()?;
    if found.iter().any(Option::is_none) {
        if let Some(missing) = missing() {
            return Err(BenchError::Refused(format!("fsbench sweep needs {missing}")));
        }
        super::control::catch_signals().map_err(|e| BenchError::Failed(format!("catching Ctrl-C: {e}")))?;
        let place = args.work_dir.clone().unwrap_or_else(std::env::temp_dir);
        for (cell, _) in cells.iter().zip(&found).filter(|(_, found)| found.is_none()) {
            preflight::images(&place, &(cell.work.entry.make)(&plan.setup(&cell.work))?.needs())?;
        }
        std::fs::create_dir_all(&args.out).map_err(BenchError::at(&args.out, "making it"))?;
        // A result that cannot be written is known before the first is measured.
        cells
            .iter()
            .zip(&found)
            .filter(|(_, found)| found.is_none())
            .try_for_each(|(cell, _)| Output::at(&cell.file(&args.out)).map(drop))?;
    }
    let mut documents = Vec::new();
    for (i, (cell, found)) in cells.iter().zip(found).enumerate() {
        let document = match found {
            Some(document) => document,
            None => {
                let _ = writeln!(err, "fsbench: {} of {}: {cell}", i + 1, cells.len());
                let document = one(&plan, cell, args)?;
                write_document(&document, &cell.file(&args.out))?;
                document
            }
        };
        documents.push(document);
    }
    let written =
        html.as_ref().map_or(Ok(()), |html| html.write(&page::page(&plan, &cells, &documents), out));
    let tables = output::tables(html.as_ref(), out, err);
    let printed = table::print(&plan, &cells, &documents, tables).and_then(|()| tables.flush());
    output::last([written, printed.map_err(super::printing)], err)
}

/// Makes, prepares, runs, compares and removes one cell's volume.
fn one(plan: &Plan, cell: &Cell, args: &Args) -> Result<Document, BenchError> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("fsbench-sweep-");
    let work = match &args.work_dir {
        Some(dir) => builder.tempdir_in(dir).map_err(BenchError::at(dir, "a directory for images"))?,
        None => builder.tempdir().map_err(BenchError::at(&std::env::temp_dir(), "a directory for images"))?,
    };
    let (image, served_image, mnt) =
        (work.path().join("made.img"), work.path().join("volume.img"), work.path().join("mnt"));
    std::fs::create_dir(&mnt).map_err(BenchError::at(&mnt, "making it"))?;
    make_image(&image, plan.bytes, &cell.variant.format)?;
    let run_plan = |runs: u32, train: u32, reuse: bool| runner::Plan {
        dir: mnt.clone(),
        setup: plan.setup(&cell.work),
        runs,
        train,
        limits: Limits { duration: plan.duration, ..Limits::default() },
        keep: true,
        reuse,
    };
    // As fast as the machine is; only what is measured waits for the modelled drive.
    let plain = Plain::mount(&image, &mnt)?;
    Session::open(&cell.work.entry, &run_plan(0, 0, false))?.end()?;
    plain.unmount()?;
    copy_image(&image, &served_image)?;
    mark(&served_image)?;
    let serve = Serve {
        system: cell.system,
        drive: cell.drive.clone(),
        time_scale: plan.time_scale,
        options: cell.variant.mount.clone(),
    };
    let served = Served::mount(&served_image, &mnt, &serve)?;
    let options = MeasureArgs { cold: plan.cold, mem_limit: plan.mem_limit, ..MeasureArgs::default() };
    let measured = run_plan(plan.runs, plan.train, true);
    let mut measurer = Measurer::new(&options, &mnt, plan.runs)?;
    let mut session = Session::open(&cell.work.entry, &measured)?;
    for n in 0..plan.train + plan.runs {
        session.pass(&mut measurer, n < plan.train)?;
        served.settle(SETTLE)?;
        session.rested()?;
    }
    served.unmount()?;
    let plain = Plain::mount(&served_image, &mnt)?;
    let outcome = session.end()?;
    plain.unmount()?;
    if let Some(e) = runner::failure(&outcome) {
        return Err(e);
    }
    check(&served_image)?;
    plan.check_profile(&cell.drive)?;
    Ok(measurer.document(&outcome, &measured))
}

/// After a run, time in which what was read may be copied.
const SETTLE: std::time::Duration = std::time::Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::super::measure::DriveSpan;
    use super::super::measure::result::tests::document;
    use super::*;

    #[test]
    fn another_version_s_result_is_refused_and_a_torn_one_is_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let text = "size = '1g'\nvariants = ['def']\ndrives = ['wd800-repaired']\nsystems = ['ext2']\n\
                    [[workload]]\nname = 'cvs-update'\n";
        let cell = &Plan::parse(text).unwrap().cells()[0];
        assert!(done(cell, dir.path()).unwrap().is_none());
        let mut own = document(&[2.0]);
        own.environment.version = env!("CARGO_PKG_VERSION").into();
        write_document(&own, &cell.file(dir.path())).unwrap();
        assert!(done(cell, dir.path()).unwrap().is_some());
        let mut without_rest = own.clone();
        without_rest.runs[0].drive = Some(DriveSpan::of(&super::super::fs2::DaemonUse::default(), 2.0, None));
        write_document(&without_rest, &cell.file(dir.path())).unwrap();
        assert!(done(cell, dir.path()).unwrap().is_none());
        own.environment.version = "0.0.1".into();
        write_document(&own, &cell.file(dir.path())).unwrap();
        let said = done(cell, dir.path()).unwrap_err().to_string();
        assert!(said.contains("fsbench 0.0.1") && said.contains("--out"), "{said}");
        std::fs::write(cell.file(dir.path()), "{").unwrap();
        assert!(done(cell, dir.path()).unwrap().is_none());
    }
}
