//! What programs say, in place of the standard library's macros of the same names: those panic where nobody reads any more
//! (`fs2 status | true`) or nothing can be written (`> /dev/full`), which is no reason to end otherwise than well.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Stdout, Write, stderr, stdout};
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
        complain(format_args!("standard output: {e}\n"));
    }
}

/// The standard output of a program whose code tells what it did, whoever listens: what cannot be written is told of on the other one,
/// once, and is nobody's error.
#[derive(Debug)]
pub struct Words {
    out: Stdout,
    lost: bool,
}

impl Words {
    /// To be flushed at the end.
    pub fn new() -> Words {
        Words { out: stdout(), lost: false }
    }

    fn or_lost<T>(&mut self, done: io::Result<T>, instead: T) -> io::Result<T> {
        match done {
            Err(e) if e.kind() == ErrorKind::Interrupted => Err(e),
            Err(e) if !std::mem::replace(&mut self.lost, true) => {
                not_written(&e);
                Ok(instead)
            }
            done => Ok(done.unwrap_or(instead)),
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
        let written = self.out.write(bytes);
        self.or_lost(written, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.or_lost(flushed, ())
    }
}

/// Writes to the standard error output.
#[doc(hidden)]
pub fn complain(what: Arguments<'_>) {
    // There is nobody left to tell.
    let _ = stderr().lock().write_fmt(what);
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
