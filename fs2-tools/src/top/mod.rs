//! `fs2 top`: a volume as it lives, on a terminal. All it shows comes through the control socket; [`model`] keeps it,
//! [`screen`] draws it, this module has the terminal, the keys and the daemons.
//!
//! - P1: the terminal is as it was before, however this ends: by a key, a signal, an error, a panic.
//! - P2: a daemon that does not answer holds up nothing but its own figures.

mod model;
mod screen;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use clap::Args;
use fs2_control::{Client, Command, Reply, Status};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::{signals, volume};
use model::Watched;
use screen::{View, draw};

/// What `fs2 top` is told.
#[derive(Args, Clone, Debug)]
#[command(after_help = "KEYS: q quit, p pause, + and - interval, tab or a number for another volume, h help

EXIT CODES: 0 quit, 1 wrong usage or no terminal, 2 no such volume or the daemon does not answer")]
pub struct Options {
    /// Where the volume is mounted, or its image or device [default: all that are mounted].
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

/// The intervals that + and - go through, and between which any may be asked for, in seconds.
const INTERVALS: [f64; 9] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (INTERVALS[0]..=INTERVALS[8]).contains(&s) => Ok(s),
        _ => Err(format!("'{text}' is not between {} and {} seconds", INTERVALS[0], INTERVALS[8])),
    }
}

/// How long a daemon may take to answer: it does in microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often keys, signals and answers are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A volume's name and its daemon's control socket.
pub(crate) type Place = (String, PathBuf);

/// Which daemons `place` or `control` mean; all mounted volumes' where neither is said.
///
/// # Errors
/// In words: there is no such volume.
pub(crate) fn places(place: Option<&Path>, control: Option<&Path>) -> Result<Vec<Place>, String> {
    if let Some(control) = control {
        return Ok(vec![(control.display().to_string(), control.to_owned())]);
    }
    let Some(place) = place else {
        let all: Vec<Place> =
            volume::all_records().into_iter().map(|r| (r.dir.display().to_string(), r.control)).collect();
        return if all.is_empty() { Err("no volume is mounted by FS2".into()) } else { Ok(all) };
    };
    if let Some(record) = volume::find_record(place) {
        return Ok(vec![(record.dir.display().to_string(), record.control)]);
    }
    // Served without being mounted by us.
    let served = fs2d::cli::default_control(place).ok().filter(|socket| socket.exists());
    match served {
        Some(socket) => Ok(vec![(place.display().to_string(), socket)]),
        None => Err(format!("{} is not mounted by FS2; fs2 status lists what is", place.display())),
    }
}

/// Asks a daemon how it is doing.
pub(crate) fn ask(control: &Path) -> Result<Status, String> {
    let mut client = Client::connect_within(control, PATIENCE).map_err(|e| e.to_string())?;
    match client.ask(&Command::Status).map_err(|e| e.to_string())? {
        Reply::Status(status) => Ok(*status),
        other => Err(format!("the daemon answered {other:?}")),
    }
}

/// Runs `fs2 top`; what `main` returns.
pub fn main(options: &Options) -> ExitCode {
    let fail = |why: &str, code: u8| {
        eprintln!("fs2: {why}");
        ExitCode::from(code)
    };
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !options.once && !terminal {
        return fail("this is no terminal; fs2 status (with --json for scripts) tells the same", 1);
    }
    let places = match places(options.place.as_deref(), options.control.as_deref()) {
        Ok(places) => places,
        Err(why) => return fail(&why, 2),
    };
    // Said on a terminal that is still as it was.
    if let [(_, control)] = &places[..]
        && let Err(why) = ask(control)
    {
        return fail(&why, 2);
    }
    if options.once {
        return match once(&places, options.interval) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(why) => fail(&why, 2),
        };
    }
    match watch(&places, options.interval) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(&format!("the terminal: {e}"), 2),
    }
}

/// A screen as lines without trailing blanks.
fn text_of(view: &View<'_>, width: u16, height: u16) -> Result<String, String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).map_err(|e| e.to_string())?;
    terminal.draw(|frame| draw(frame, view)).map_err(|e| e.to_string())?;
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for row in buffer.content().chunks(usize::from(width).max(1)) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        out += line.trim_end();
        out.push('\n');
    }
    Ok(out)
}

fn once(places: &[Place], interval_s: f64) -> Result<String, String> {
    let mut all: Vec<Watched> = places.iter().map(|(name, _)| Watched::new(name)).collect();
    for round in 0..2 {
        if round > 0 {
            std::thread::sleep(Duration::from_secs_f64(interval_s));
        }
        for (watched, (_, control)) in all.iter_mut().zip(places) {
            watched.told(ask(control));
        }
    }
    let view = |(i, watched)| View {
        watched,
        number: (i + 1, places.len()),
        interval_s,
        paused: false,
        help: false,
        colors: false,
    };
    all.iter().enumerate().map(|v| text_of(&view(v), 80, 24)).collect()
}

/// Restores the terminal when dropped (keeps P1; a panic's hook does it before the message).
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = ratatui::try_restore();
    }
}

/// The thread that asks the daemons (keeps P2: one after the other, but none longer than [`PATIENCE`]).
fn poll(places: Vec<Place>, interval_ms: Arc<AtomicU64>, to: Sender<(usize, Result<Status, String>)>) {
    loop {
        for (i, (_, control)) in places.iter().enumerate() {
            if to.send((i, ask(control))).is_err() {
                return;
            }
        }
        // In small steps: a shorter interval counts at once.
        let mut rested = Duration::ZERO;
        while rested < Duration::from_millis(interval_ms.load(Ordering::Relaxed)) {
            std::thread::sleep(LOOK);
            rested += LOOK;
        }
    }
}

struct App {
    watched: Vec<Watched>,
    shown: usize,
    interval_s: f64,
    paused: bool,
    help: bool,
}

impl App {
    /// False where it is the end.
    fn key(&mut self, code: KeyCode, control: bool) -> bool {
        let of = self.watched.len();
        match code {
            KeyCode::Char('c') if control => return false,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return false,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('h' | '?') => self.help = !self.help,
            KeyCode::Char('+' | '=') => {
                self.interval_s =
                    INTERVALS.into_iter().find(|s| *s > self.interval_s).unwrap_or(self.interval_s);
            }
            KeyCode::Char('-') => {
                let shorter = INTERVALS.into_iter().rev().find(|s| *s < self.interval_s);
                self.interval_s = shorter.unwrap_or(self.interval_s);
            }
            KeyCode::Tab | KeyCode::Right => self.shown = (self.shown + 1) % of,
            KeyCode::BackTab | KeyCode::Left => self.shown = (self.shown + of - 1) % of,
            KeyCode::Char(n @ '1'..='9') => {
                let n = n as usize - '1' as usize;
                self.shown = if n < of { n } else { self.shown };
            }
            _ => {}
        }
        true
    }

    fn view(&self, colors: bool) -> View<'_> {
        View {
            watched: &self.watched[self.shown],
            number: (self.shown + 1, self.watched.len()),
            interval_s: self.interval_s,
            paused: self.paused,
            help: self.help,
            colors,
        }
    }
}

fn watch(places: &[Place], interval_s: f64) -> io::Result<()> {
    // SIGTERM and the like end the loop (keeps P1).
    signals::catch()?;
    let watched = places.iter().map(|(name, _)| Watched::new(name)).collect();
    let mut app = App { watched, shown: 0, interval_s, paused: false, help: false };
    let interval_ms = Arc::new(AtomicU64::new(0));
    let millis = |s: f64| (s * 1e3) as u64;
    interval_ms.store(millis(interval_s), Ordering::Relaxed);
    let (to, from) = std::sync::mpsc::channel();
    let (asked, at) = (places.to_vec(), interval_ms.clone());
    std::thread::Builder::new().name("ask".into()).spawn(move || poll(asked, at, to))?;
    let restore = Restore;
    let mut terminal = ratatui::try_init()?;
    let colors = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut changed = true;
    while !signals::asked() {
        changed |= listen(&mut app, &from);
        if changed {
            terminal.draw(|frame| draw(frame, &app.view(colors)))?;
            changed = false;
        }
        match event::poll(LOOK) {
            Ok(true) => {}
            Ok(false) => continue,
            // A signal: the loop's condition looks at it.
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        match event::read()? {
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
    Ok(())
}

/// Takes the answers that came; true where the screen may look different.
fn listen(app: &mut App, from: &Receiver<(usize, Result<Status, String>)>) -> bool {
    let mut any = false;
    while let Ok((i, answer)) = from.try_recv() {
        // What comes in a pause is left: the next rates are over all of it.
        if !app.paused {
            app.watched[i].told(answer);
            any = true;
        }
    }
    any
}
