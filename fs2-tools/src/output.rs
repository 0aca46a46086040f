//! What programs say, in place of the standard library's macros of the same names: those panic where nobody reads any more
//! (`fs2 status | true`) or nothing can be written (`> /dev/full`), which is no reason to end otherwise than well.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Stderr, Stdout, Write, stderr, stdout};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub use fs2_control::quoted;

/// `text` with `?` in place of the control characters that could steer a terminal: names are others'. Lines and tabs stay.
fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    match text.contains(steers) {
        true => text.replace(steers, "?").into(),
        false => text.into(),
    }
}

/// The same of what is handed to a writer; what is no text is a device's or another program's, and stays.
fn harmless_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    match str::from_utf8(bytes).map(harmless) {
        Ok(Cow::Owned(text)) => text.into_bytes().into(),
        Ok(Cow::Borrowed(_)) | Err(_) => bytes.into(),
    }
}

/// A JSON document as text that is harmless and has each name as it is: JSON escapes only half of the control characters.
pub fn json(document: &serde_json::Value) -> String {
    let mut text = String::new();
    for c in document.to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}' => text += &format!("\\u{:04x}", u32::from(c)),
            c => text.push(c),
        }
    }
    text
}

/// Writes to the standard output; who cannot be told hears of it on the other one. No name steers a terminal.
#[doc(hidden)]
pub fn say(what: Arguments<'_>) {
    let mut out = stdout().lock();
    if let Err(e) = out.write_all(harmless(&what.to_string()).as_bytes()).and_then(|()| out.flush()) {
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
/// that somebody stopped listening is none at all. No name in it steers a terminal.
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
        let written = self.out.write_all(&harmless_bytes(bytes)).map(|()| bytes.len());
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

/// The standard error output as a writer: no name in it steers a terminal.
#[derive(Debug)]
pub struct Complaints(Stderr);

impl Complaints {
    /// Nothing is held back.
    pub fn new() -> Complaints {
        Complaints(stderr())
    }
}

impl Default for Complaints {
    fn default() -> Complaints {
        Complaints::new()
    }
}

impl Write for Complaints {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(&harmless_bytes(bytes)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes to the standard error output. Names in it are others': none steers a terminal.
#[doc(hidden)]
pub fn complain(what: Arguments<'_>) {
    // There is nobody left to tell.
    let _ = stderr().lock().write_all(harmless(&what.to_string()).as_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_harmless_and_has_each_name_as_it_is() {
        let name = "\u{1b}[31m\u{7f}\u{85}\u{9b}\n\t\u{a0}ä\\u009b";
        let document = serde_json::json!({ "device": name });
        let text = json(&document);
        assert!(!text.contains(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), document);
    }

    #[test]
    fn lines_and_tabs_stay_and_nothing_else_that_steers() {
        assert_eq!(harmless("a\tb\nä\u{1b}[c\r\u{9b}1\u{7f}"), "a\tb\nä?[c??1?");
        assert_eq!(&*harmless_bytes("\u{9b}x".as_bytes()), b"?x");
        assert_eq!(&*harmless_bytes(b"\xff\x1b"), b"\xff\x1b");
    }
}
