//! `fs2 top`: volumes as they live, on a terminal. All it shows comes through the control sockets; [`model`] keeps it,
//! [`screen`] and [`list`] draw it, [`app`] has what keys do, this module has the terminal and the daemons.
//!
//! - P1: the terminal is as it was before, however this ends: by a key, a signal, an error, a panic; and as long as it is stopped.
//! - P2: a daemon that does not answer holds up nothing but its own figures.

mod app;
mod list;
mod model;
mod screen;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use clap::Args;
use fs2_control::Status;
use fs2d::runtime::whose_are_seen;
use nix::sys::signal::Signal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::size;
use ratatui::{DefaultTerminal, Frame, Terminal};

use crate::output::is_lost;
use crate::signals;
use crate::volume::{Found, VolumeError, clear_dead, daemon_of, daemons};
use app::{App, INTERVALS};

/// What `fs2 top` is told.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Without a place all volumes are watched: one by itself, several as a list to pick from.

EXAMPLES:
  fs2 top                   every volume that is mounted, or served by fs2d
  fs2 top /srv              one
  fs2 top --once /srv       one screen as text, for a mail or a log

KEYS: q quit, Ctrl-Z stop (fg goes on), p pause, + and - interval, h help; in the list up, down, enter or a number for a volume; \
with several volumes l or Esc for the list, tab or a number for another

EXIT CODES: 0 quit, or the one volume was unmounted; 1 wrong usage or no terminal; 2 no such volume or the daemon does not answer"
)]
pub struct Options {
    /// Where the volume is mounted, or its image or device [default: all there are].
    place: Option<PathBuf>,
    /// Ask this control socket instead.
    #[arg(long, value_name = "SOCKET", conflicts_with = "place")]
    control: Option<PathBuf>,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = interval)]
    interval: f64,
    /// Print one screen of 80 columns and 24 lines as plain text, after one interval; needs no terminal.
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (INTERVALS[0]..=INTERVALS[8]).contains(&s) => Ok(s),
        _ => Err(format!("'{text}' is not between {} and {} seconds", INTERVALS[0], INTERVALS[8])),
    }
}

/// How often keys, signals and answers are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How often it is looked whether volumes came or went.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// Which daemons `place` or `control` mean; all there are where neither is said.
///
/// # Errors
/// In words: there is no such volume.
pub(crate) fn places(place: Option<&Path>, control: Option<&Path>) -> Result<Vec<Found>, String> {
    match (place, control) {
        (_, Some(control)) => Ok(vec![Found::at(control)]),
        (Some(place), None) => match daemon_of(place) {
            Some(found) => Ok(vec![found]),
            None => {
                let whose = whose_are_seen();
                Err(format!("{} is not mounted by FS2; fs2 status lists what is{whose}", place.display()))
            }
        },
        (None, None) => {
            clear_dead();
            let all = daemons();
            if all.is_empty() { Err(format!("{}{}", screen::NOBODY, whose_are_seen())) } else { Ok(all) }
        }
    }
}

/// Asks a daemon how it is doing.
pub(crate) fn ask(found: &Found) -> Result<Status, String> {
    found.status().map_err(|e| e.to_string())
}

/// Runs `fs2 top`; what `main` returns.
pub fn main(options: &Options) -> ExitCode {
    let fail = |why: &str, code: u8| {
        eprintln!("fs2: {why}");
        ExitCode::from(code)
    };
    let dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !options.once && !terminal {
        return fail("this is no terminal; fs2 status (with --json for scripts) tells the same", 1);
    }
    if !options.once && dumb {
        return fail(
            "this terminal (TERM=dumb) cannot be drawn on; fs2 top --once prints a screen as text",
            1,
        );
    }
    // As on a serial line, whose other end nobody asked: nothing would be drawn.
    if !options.once && matches!(size(), Ok((0, _) | (_, 0))) {
        return fail(
            "this terminal does not say how large it is; stty rows 24 cols 80 tells it, fs2 top --once prints a screen as text",
            1,
        );
    }
    let found = match places(options.place.as_deref(), options.control.as_deref()) {
        Ok(found) => found,
        Err(why) => return fail(&why, 2),
    };
    // Said on a terminal that is still as it was.
    if let [only] = &found[..]
        && let Err(why) = ask(only)
    {
        return fail(&why, 2);
    }
    if options.once {
        return match once(&found, options.interval) {
            Ok(text) => {
                print!("{text}");
                if is_lost() { ExitCode::from(2) } else { ExitCode::SUCCESS }
            }
            Err(why) => fail(&why, 2),
        };
    }
    let all = options.place.is_none() && options.control.is_none();
    match watch(found, all, options.interval) {
        Ok(last) => {
            print!("{}", last.unwrap_or_default());
            ExitCode::SUCCESS
        }
        Err(e) => fail(&format!("the terminal: {e}"), 2),
    }
}

/// A screen as lines without trailing blanks.
fn text_of(draw: impl FnOnce(&mut Frame<'_>), width: u16, height: u16) -> Result<String, String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).map_err(|e| e.to_string())?;
    terminal.draw(draw).map_err(|e| e.to_string())?;
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for row in buffer.content().chunks(usize::from(width).max(1)) {
        let mut line = String::new();
        // Behind a wide letter comes a cell that it covers.
        let mut covered = 0;
        for cell in row {
            if covered == 0 {
                line += cell.symbol();
                covered = list::columns_of(cell.symbol()).max(1);
            }
            covered -= 1;
        }
        out += line.trim_end();
        out.push('\n');
    }
    Ok(out)
}

fn once(found: &[Found], interval_s: f64) -> Result<String, String> {
    let mut app = App::new(found, interval_s);
    for round in 0..2 {
        if round > 0 {
            std::thread::sleep(Duration::from_secs_f64(interval_s));
        }
        for found in found {
            app.told(&found.control, ask(found));
        }
    }
    text_of(|frame| app.draw(frame, false), 80, 24)
}

/// Restores the terminal when dropped (keeps P1; a panic's hook does it before the message).
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = ratatui::try_restore();
    }
}

/// What the threads that ask and search tell.
enum Told {
    /// There are these.
    Found(Vec<Found>),
    /// One answered, or did not.
    Answer(PathBuf, Box<Result<Status, VolumeError>>),
}

/// Asks one daemon again and again, until nobody listens or `gone` is set. Each has a thread of its own (keeps P2).
fn ask_on(found: &Found, interval_ms: &AtomicU64, gone: &AtomicBool, to: &Sender<Told>) {
    while !gone.load(Ordering::Relaxed) {
        let begun = Instant::now();
        if to.send(Told::Answer(found.control.clone(), Box::new(found.status()))).is_err() {
            return;
        }
        // In small steps: a shorter interval counts at once.
        while begun.elapsed() < Duration::from_millis(interval_ms.load(Ordering::Relaxed)) {
            std::thread::sleep(LOOK);
        }
    }
}

/// The threads that ask, by their daemons and what these are called: one that is mounted elsewhere has another record.
struct Asking {
    interval_ms: Arc<AtomicU64>,
    to: Sender<Told>,
    each: Vec<(PathBuf, String, Arc<AtomicBool>)>,
    /// One told that it is unmounted.
    unmounted: bool,
}

impl Asking {
    /// These and no others are asked from now on.
    fn these(&mut self, found: &[Found]) -> io::Result<()> {
        let is = |f: &Found, control: &Path, name: &str| f.control == control && f.name() == name;
        self.each.retain(|(control, name, gone)| {
            let stays = found.iter().any(|f| is(f, control, name));
            gone.fetch_or(!stays, Ordering::Relaxed);
            stays
        });
        for found in found {
            if self.each.iter().any(|(control, name, _)| is(found, control, name)) {
                continue;
            }
            let (found, gone) = (found.clone(), Arc::<AtomicBool>::default());
            self.each.push((found.control.clone(), found.name(), gone.clone()));
            let (interval_ms, to) = (self.interval_ms.clone(), self.to.clone());
            let ask = move || ask_on(&found, &interval_ms, &gone, &to);
            std::thread::Builder::new().name("ask".into()).spawn(ask)?;
        }
        Ok(())
    }
}

/// Until a key or a signal ends it. Where one volume was asked for and is unmounted, that is the end too, and what was seen last is given
/// as text, to stay on the terminal.
fn watch(found: Vec<Found>, all: bool, interval_s: f64) -> io::Result<Option<String>> {
    // SIGTERM and the like end the loop (keeps P1).
    signals::catch()?;
    signals::catch_stops()?;
    let mut app = App::new(&found, interval_s);
    let millis = |s: f64| (s * 1e3) as u64;
    let interval_ms = Arc::new(AtomicU64::new(millis(interval_s)));
    let (to, from) = std::sync::mpsc::channel();
    let mut asking =
        Asking { interval_ms: interval_ms.clone(), to: to.clone(), each: Vec::new(), unmounted: false };
    asking.these(&found)?;
    if all {
        let search = move || {
            loop {
                std::thread::sleep(SEARCH_EVERY);
                if to.send(Told::Found(daemons())).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("search".into()).spawn(search)?;
    }
    let restore = Restore;
    let mut terminal = ratatui::try_init()?;
    let colors = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut changed = true;
    while !signals::asked() {
        if let Some(signal) = signals::stop_asked() {
            aside(&mut terminal, || match signal {
                Signal::SIGTSTP => signals::stop(false),
                // Whoever had the terminal while this was stopped left it otherwise.
                _ => Ok(()),
            })?;
            changed = true;
        }
        changed |= listen(&mut app, &mut asking, &from)?;
        if changed {
            terminal.draw(|frame| app.draw(frame, colors))?;
            changed = false;
        }
        if asking.unmounted && !all {
            let size = terminal.size()?;
            drop(restore);
            return text_of(|frame| app.draw(frame, false), size.width, size.height)
                .map(Some)
                .map_err(io::Error::other);
        }
        match event::poll(LOOK) {
            Ok(true) => {}
            Ok(false) => continue,
            // A signal: the loop's condition looks at it.
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        match event::read()? {
            Event::Key(key) if key.code == KeyCode::Char('z') && key.modifiers == KeyModifiers::CONTROL => {
                aside(&mut terminal, || signals::stop(true))?;
                changed = true;
            }
            Event::Key(key) if key.kind == KeyEventKind::Press => {
                if !app.key(key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
                    break;
                }
                interval_ms.store(millis(app.interval_s), Ordering::Relaxed);
                changed = true;
            }
            Event::Resize(..) => changed = true,
            _ => {}
        }
    }
    drop(restore);
    Ok(None)
}

/// Gives the terminal back until `stopped` returns, then takes it again and draws anew (keeps P1).
fn aside(terminal: &mut DefaultTerminal, stopped: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    ratatui::try_restore()?;
    stopped()?;
    // Not `clear`, which asks the terminal where its cursor is.
    *terminal = ratatui::try_init()?;
    Ok(())
}

/// Takes what was told; true where the screen may look different.
fn listen(app: &mut App, asking: &mut Asking, from: &Receiver<Told>) -> io::Result<bool> {
    let mut any = false;
    while let Ok(told) = from.try_recv() {
        any |= match told {
            Told::Answer(control, answer) => {
                asking.unmounted |= matches!(*answer, Err(VolumeError::Unmounted(_)));
                app.told(&control, answer.map_err(|e| e.to_string()))
            }
            Told::Found(found) => {
                asking.these(&found)?;
                app.found(&found)
            }
        };
    }
    Ok(any)
}
