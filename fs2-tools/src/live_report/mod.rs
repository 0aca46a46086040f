//! `fs2 report`: a running volume as one page of HTML, in the look of `fs2-replay run --html`.
//!
//! The daemon traces its accesses into a file of ours for as long as was asked; the file is read, drawn and removed.
//! A trace recorded earlier is drawn by itself, without what only the daemon knows.

mod accesses;
mod page;

use std::fs::File;
use std::io::{self, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use fs2_control::{Client, Command, Reply, Status};
use fs2_trace::{Reader, TraceError};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::new_file::NewFile;
use crate::output::quoted;
use crate::outputs;
use crate::volume::{Found, VolumeError};
use crate::{signals, top};
use accesses::Accesses;
use page::{Material, page};

/// What `fs2 report` is told.
#[derive(Args, Clone, Debug)]
#[command(after_help = "EXAMPLES:
  fs2 report /srv -o srv.html                  the next minute
  fs2 report /srv -o srv.html --seconds 600    the next ten; Ctrl-C ends it earlier and draws what there is
  fs2 report --trace srv.fs2trace -o srv.html  a trace recorded by fs2 mount --trace

EXIT CODES: 0 written, 1 wrong usage, 2 no such volume, no trace, the daemon died or was replaced meanwhile, the trace ended early, or the page cannot be written")]
pub struct Options {
    /// Where the volume is mounted, or its image or device [default: the one that is mounted].
    place: Option<PathBuf>,
    /// The page.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// How long to look.
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=604_800))]
    seconds: u32,
    /// Draw this trace instead of asking a daemon.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["place", "control", "seconds"])]
    trace: Option<PathBuf>,
    /// Ask this control socket instead.
    #[arg(long, value_name = "SOCKET", conflicts_with = "place")]
    control: Option<PathBuf>,
}

/// How often a wait looks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// How often the daemon is asked meanwhile: what it said last is what is known where it ends.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long a daemon may be silent, as one that is replaced is, until it counts as gone.
const SILENCE: Duration = Duration::from_secs(5);

/// Runs `fs2 report`; what `main` returns.
pub fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("fs2: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<String, String> {
    let named = [&options.place, &options.trace, &options.control].into_iter().flatten();
    outputs::refuse_same(&[&options.output], named.map(PathBuf::as_path)).map_err(|e| e.0)?;
    // Not after ten minutes of looking.
    let output = NewFile::create(&options.output).map_err(|e| e.0)?;
    let (html, seen, ended) = match &options.trace {
        Some(trace) => {
            let (accesses, volume_bytes, cut) = read(trace)?;
            let name = trace.display().to_string();
            let is_cut = cut.is_some();
            let material =
                Material { name: &name, accesses: &accesses, volume_bytes, cut: is_cut, asked: None };
            (page(&material), accesses.seen + accesses.untimed, cut.map(Ended::Cut))
        }
        None => {
            let places = top::places(options.place.as_deref(), options.control.as_deref())?;
            let [found] = &places[..] else {
                let names: Vec<_> = places.iter().map(Found::name).collect();
                return Err(format!("there are several volumes: name one of {}", names.join(", ")));
            };
            let name = &*found.name();
            let looked = look(found, Duration::from_secs(options.seconds.into()), &options.output)?;
            let (accesses, volume_bytes, is_cut, cut) = match read(&looked.trace) {
                // A daemon that died wrote nothing of it yet.
                Err(_) if looked.ended.is_some() => {
                    (Accesses::default(), looked.after.volume_bytes, true, None)
                }
                read => {
                    let (accesses, volume_bytes, cut) = read?;
                    (accesses, volume_bytes, cut.is_some(), cut)
                }
            };
            let asked = Some((&looked.before, &looked.after));
            let material = Material { name, accesses: &accesses, volume_bytes, cut: is_cut, asked };
            (page(&material), accesses.seen, looked.ended.or(cut.map(Ended::Cut)))
        }
    };
    output.write(&html).map_err(|e| e.0)?;
    let written = format!("{}: {} requests", options.output.display(), fs2_control::count(seen));
    match ended {
        None => Ok(written),
        Some(Ended::Silent(why @ VolumeError::Unmounted(_))) => {
            Ok(format!("{written}, until it ended: {why}"))
        }
        Some(Ended::Silent(why)) => Err(format!("{written}, until its daemon did not answer: {why}")),
        Some(Ended::Replaced) => Err(format!("{written}, until another daemon took its place")),
        Some(Ended::Trace(why)) => Err(format!("{written}, until {why}")),
        Some(Ended::Cut(why)) => {
            let from = options.trace.as_ref().map_or(String::new(), |trace| format!("{}: ", trace.display()));
            Err(format!(
                "{written}, until the trace is cut off: {from}{why}; the page has what is whole of it. It is still recorded, \
                 or was not to its end (fs2 status tells), or is half a copy"
            ))
        }
    }
}

/// A trace's figures, the volume's size, and where it is cut off, if it is.
fn read(path: &Path) -> Result<(Accesses, u64, Option<TraceError>), String> {
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(|e| at(&e))?;
    let reader = Reader::new(BufReader::new(file)).map_err(|e| at(&e))?;
    let volume_bytes = reader.header().volume_bytes;
    let (accesses, cut) = Accesses::of(reader).map_err(|e| at(&e))?;
    Ok((accesses, volume_bytes, cut))
}

/// Why a volume was not looked at for as long as was asked.
#[derive(Debug)]
enum Ended {
    /// Its daemon does not answer any more, or it is unmounted.
    Silent(VolumeError),
    /// Another daemon answers, which knows of no trace for this report.
    Replaced,
    /// It records nothing for this report any more; why.
    Trace(String),
    /// The trace's bytes end before it does.
    Cut(TraceError),
}

/// What a daemon said and recorded.
struct Looked {
    before: Status,
    after: Status,
    trace: PathBuf,
    /// Why it was not looked at for longer.
    ended: Option<Ended>,
    /// The trace's directory goes with it.
    _dir: tempfile::TempDir,
    _lives: File,
}

/// How the directory of a report's trace begins.
const DIR: &str = "report-";

/// The directory of a report's trace, where that report was killed: nobody else will end the trace.
fn left_behind<'a>(trace: &'a Path, runtime: &Path) -> Option<&'a Path> {
    let dir = trace.parent().filter(|dir| dir.parent() == Some(runtime))?;
    if !dir.file_name()?.as_encoded_bytes().starts_with(DIR.as_bytes()) {
        return None;
    }
    let is_left = match File::open(dir) {
        Ok(dir) => dir.try_lock().is_ok(),
        // It was removed, and the daemon could not be told.
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    };
    is_left.then_some(dir)
}

/// Ends a trace, whatever happens.
struct Tracing<'a>(&'a Path);

impl Drop for Tracing<'_> {
    fn drop(&mut self) {
        let _ = order(self.0, &Command::TraceStop);
    }
}

fn order(control: &Path, command: &Command) -> Result<(), String> {
    let mut client = Client::connect(control).map_err(|e| e.to_string())?;
    match client.ask(command).map_err(|e| e.to_string())? {
        Reply::Error { what, place, next } => {
            let next = if next.is_empty() { next } else { format!("; {next}") };
            Err(format!("{place}: {what}{next}"))
        }
        _ => Ok(()),
    }
}

/// Looks at a volume for so long; `output` is where the page is to be.
fn look(found: &Found, how_long: Duration, output: &Path) -> Result<Looked, String> {
    let control = &*found.control;
    let io = |e: io::Error| format!("a directory for the trace: {e}");
    let runtime = fs2d::runtime::make_runtime_dir().map_err(io)?;
    let mut before = top::ask(found)?;
    if let Some(left) = before.trace.as_ref().and_then(|trace| left_behind(Path::new(trace), &runtime)) {
        // Where that fails, the next status tells of it.
        let _ = order(control, &Command::TraceStop);
        let _ = std::fs::remove_dir_all(left);
        before = top::ask(found)?;
    }
    if let Some(trace) = &before.trace {
        return Err(format!(
            "the daemon records a trace in {trace} already; when that has ended: fs2 report --trace {} -o {}",
            quoted(Path::new(trace)),
            quoted(output)
        ));
    }
    let dir = tempfile::Builder::new().prefix(DIR).tempdir_in(runtime).map_err(io)?;
    // Held as long as this process lives: by it the next report knows a trace that nobody will end.
    let lives = File::open(dir.path()).map_err(io)?;
    lives.try_lock().map_err(|e| io(e.into()))?;
    let trace = dir.path().join("trace");
    signals::catch().map_err(|e| format!("catching signals: {e}"))?;
    order(control, &Command::TraceStart { path: trace.clone() })?;
    let tracing = Tracing(control);
    let path = trace.display().to_string();
    let mut last = Last { after: before.clone(), trace: path, ended: None, answered: Instant::now() };
    wait(how_long, || last.told(found.status(), SILENCE));
    if last.ended.is_none() {
        last.told(found.status(), Duration::ZERO);
    }
    match last.ended {
        // A trace there, if any, is another's.
        Some(Ended::Replaced) => std::mem::forget(tracing),
        _ => drop(tracing),
    }
    Ok(Looked { before, after: last.after, trace, ended: last.ended, _dir: dir, _lives: lives })
}

/// What a daemon said last.
struct Last {
    after: Status,
    /// Where it records, as it says itself.
    trace: String,
    /// Why it says no more.
    ended: Option<Ended>,
    answered: Instant,
}

impl Last {
    /// It answered, or did not; whether to go on.
    fn told(&mut self, answer: Result<Status, VolumeError>, silence: Duration) -> bool {
        match answer {
            Ok(status) => self.said(status),
            Err(why) if matches!(why, VolumeError::Unmounted(_)) || self.answered.elapsed() >= silence => {
                self.ended = Some(Ended::Silent(why));
            }
            Err(_) => {}
        }
        self.ended.is_none()
    }

    fn said(&mut self, status: Status) {
        // The program may be another in the same process (`fs2 upgrade`). Its counters began anew: what the first said last stays.
        if status.pid != self.after.pid || status.uptime_s < self.after.uptime_s {
            self.ended = Some(Ended::Replaced);
            return;
        }
        if status.trace.as_ref() != Some(&self.trace) {
            let why = status.trace_failed.as_ref().map_or(String::new(), |why| format!(": {why}"));
            self.ended = Some(Ended::Trace(format!("its trace ended{why}")));
        }
        (self.after, self.answered) = (status, Instant::now());
    }
}

/// Waits, with a bar on a terminal, or until a signal or `go_on` asks for the end.
fn wait(how_long: Duration, mut go_on: impl FnMut() -> bool) {
    let bar = io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(Some(how_long.as_secs()), ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("looking [{wide_bar}] {pos} of {len} s; Ctrl-C ends it")
        {
            bar.set_style(style);
        }
        bar
    });
    let begin = Instant::now();
    let mut asked = begin;
    while begin.elapsed() < how_long && !signals::asked() {
        std::thread::sleep(LOOK.min(how_long.saturating_sub(begin.elapsed())));
        if asked.elapsed() >= ASK_EVERY {
            asked = Instant::now();
            if !go_on() {
                break;
            }
        }
        if let Some(bar) = &bar {
            bar.set_position(begin.elapsed().as_secs());
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_is_kept_where_the_daemon_ends() {
        let trace = || "trace".to_owned();
        let status = |reads| Status { reads, trace: Some(trace()), ..Status::default() };
        let mut last = Last { after: status(0), trace: trace(), ended: None, answered: Instant::now() };
        let silent = || VolumeError::Other("silent".into());
        assert!(last.told(Ok(status(1)), SILENCE) && last.told(Err(silent()), SILENCE), "it may be replaced");
        assert!(!last.told(Err(VolumeError::Unmounted("/srv".into())), SILENCE));
        assert!(
            last.after.reads == 1 && matches!(last.ended, Some(Ended::Silent(VolumeError::Unmounted(_))))
        );
        let mut last = Last { ended: None, ..last };
        assert!(!last.told(Err(silent()), Duration::ZERO) && last.after.reads == 1);
    }
}
