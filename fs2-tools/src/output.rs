//! What programs say, in place of the standard library's macros of the same names: those panic where nobody reads any more
//! (`fs2 status | true`) or nothing can be written (`> /dev/full`), which is no reason to end otherwise than well.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stderr, stdout};

/// Writes to the standard output; who cannot be told hears of it on the other one.
#[doc(hidden)]
pub fn say(what: Arguments<'_>) {
    let mut out = stdout().lock();
    match out.write_fmt(what).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => complain(format_args!("standard output: {e}\n")),
        _ => {}
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
