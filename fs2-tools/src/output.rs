//! What programs say, in place of the standard library's macros of the same names: those panic where nobody reads any more
//! (`fs2 status | true`) or nothing can be written (`> /dev/full`), which is no reason to end otherwise than well.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Stdout, Write, stderr, stdout};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub use fs2_control::quoted;

/// Writes to the standard output; who cannot be told hears of it on the other one.
#[doc(hidden)]
pub fn say(what: Arguments<'_>) {
    let mut out = stdout().lock();
    if let Err(e) = out.write_fmt(what).and_then(|()| out.flush()) {
        not_written(&e);
    }
}

/// Whether something could not be written, though somebody listened.
static LOST: AtomicBool = AtomicBool::new(false);

/// Whether something could not be written: for a program that does nothing else than tell.
pub fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

fn not_written(e: &io::Error) {
    if e.kind() != ErrorKind::BrokenPipe {
        LOST.store(true, Ordering::Relaxed);
        complain(format_args!("{}: standard output: {e}\n", program()));
    }
}

/// The name this program was called by.
pub(crate) fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_name().map_or("fs2".into(), |name| name.display().to_string())
}

/// The standard output of a program that does its work whoever listens: what cannot be written is nobody's error until it is flushed, and
/// that somebody stopped listening is none at all.
#[derive(Debug)]
pub struct Words {
    out: Stdout,
    /// What the system said first; nothing is written from then on.
    lost: Option<(ErrorKind, String)>,
}

impl Words {
    /// To be flushed at the end.
    pub fn new() -> Words {
        Words { out: stdout(), lost: None }
    }

    fn or_lost<T>(&mut self, done: io::Result<T>, instead: T) -> io::Result<T> {
        match done {
            Err(e) if e.kind() == ErrorKind::Interrupted => Err(e),
            Err(e) => {
                self.lost.get_or_insert_with(|| (e.kind(), e.to_string()));
                Ok(instead)
            }
            done => done,
        }
    }
}

impl Default for Words {
    fn default() -> Words {
        Words::new()
    }
}

impl Write for Words {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.lost.is_some() {
            return Ok(bytes.len());
        }
        let written = self.out.write(bytes);
        self.or_lost(written, bytes.len())
    }

    /// Fails, each time, where something could not be written since the beginning.
    fn flush(&mut self) -> io::Result<()> {
        if self.lost.is_none() {
            let flushed = self.out.flush();
            self.or_lost(flushed, ())?;
        }
        match &self.lost {
            Some((kind, said)) if *kind != ErrorKind::BrokenPipe => Err(io::Error::new(*kind, said.clone())),
            _ => Ok(()),
        }
    }
}

/// Writes to the standard error output. Names in it are others': none steers a terminal.
#[doc(hidden)]
pub fn complain(what: Arguments<'_>) {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    let text: String = what.to_string().chars().map(|c| if steers(c) { '?' } else { c }).collect();
    // There is nobody left to tell.
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// As [`std::print`], but never panics.
#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => { $crate::output::say(format_args!($($arg)*)) };
}

/// As [`std::println`], but never panics.
#[macro_export]
macro_rules! println {
    () => { $crate::output::say(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::output::say(format_args!("{}\n", format_args!($($arg)*))) };
}

/// As [`std::eprintln`], but never panics.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::output::complain(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::output::complain(format_args!("{}\n", format_args!($($arg)*))) };
}
