//! A program on a terminal of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

/// A program may take this long to show something or to end; a guard against hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that was started on a terminal. Killed on drop.
#[derive(Debug)]
pub struct OnTerminal {
    child: Child,
    keys: File,
    /// Held open: without it the terminal would go with the program.
    terminal: OwnedFd,
    before: Termios,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    /// Starts `command` on a terminal of this size.
    ///
    /// # Panics
    /// Where the system says no.
    #[track_caller]
    pub fn start(command: &mut Command, columns: u16, rows: u16) -> OnTerminal {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal");
        let before = tcgetattr(&pty.slave).expect("its settings");
        let end = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color");
        let child = command.spawn().expect("the program starts");
        let keys = File::from(pty.master);
        let mut screen = keys.try_clone().expect("a descriptor");
        let shown: Arc<Mutex<Vec<u8>>> = Arc::default();
        let theirs = shown.clone();
        // Ends with the last of the terminal's descriptors.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                theirs.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&bytes[..n]);
            }
        });
        OnTerminal { child, keys, terminal: pty.slave, before, shown }
    }

    /// All it has sent to the terminal so far, escape sequences included.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// What a person would see: the lines of the screen, as far as plain text and moves of the cursor make them.
    pub fn screen(&self) -> String {
        seen(&self.shown())
    }

    /// Waits until it has sent `text`, or `text` is on the screen.
    ///
    /// # Panics
    /// Where that does not happen.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            if self.shown().contains(text) || self.screen().contains(text) {
                return;
            }
            assert!(Instant::now() < until, "{text:?} is not shown: {}\n{:?}", self.screen(), self.shown());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Presses keys.
    ///
    /// # Panics
    /// Where the terminal is gone.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal");
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("the program runs");
    }

    /// Waits until all is read that was sent so far: what comes behind it is.
    #[track_caller]
    fn read_to_the_end(&self) {
        const END: &[u8] = b"\0end of what was sent\0";
        nix::unistd::write(&self.terminal, END).expect("the terminal");
        let until = Instant::now() + PATIENCE;
        loop {
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = shown.windows(END.len()).position(|w| w == END) {
                shown.drain(at..at + END.len());
                return;
            }
            drop(shown);
            assert!(Instant::now() < until, "the terminal is not read: {:?}", self.shown());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end: its exit code, -1 where a signal ended it, and whether the terminal's settings are those of
    /// before.
    ///
    /// # Panics
    /// Where it does not end.
    #[track_caller]
    pub fn ended(&mut self) -> (i32, bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                let now = tcgetattr(&self.terminal).expect("the terminal's settings");
                self.read_to_the_end();
                return (status.code().unwrap_or(-1), now == self.before);
            }
            assert!(Instant::now() < until, "no end: {:?}", self.shown());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The screen that `sent` leaves: rows and columns are counted from 1 by the escape sequence that moves the cursor; one
/// that clears, or changes the screen, clears; all others are taken to change no letter.
fn seen(sent: &str) -> String {
    let mut rows: Vec<Vec<char>> = Vec::new();
    let (mut row, mut column) = (0, 0);
    let mut chars = sent.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' if chars.next_if_eq(&'[').is_some() => {
                let mut arguments = String::new();
                let last = loop {
                    match chars.next() {
                        Some(c @ '\u{40}'..='\u{7e}') => break c,
                        Some(c) => arguments.push(c),
                        None => break ' ',
                    }
                };
                match (last, &*arguments) {
                    ('H', at) => {
                        let mut numbers = at.split(';').map(|n| n.parse::<usize>().unwrap_or(1).max(1) - 1);
                        (row, column) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                    }
                    ('J', _) | ('h' | 'l', "?1049") => rows.clear(),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            c if c.is_control() => {}
            c => {
                if rows.len() <= row {
                    rows.resize(row + 1, Vec::new());
                }
                if rows[row].len() <= column {
                    rows[row].resize(column + 1, ' ');
                }
                rows[row][column] = c;
                column += 1;
            }
        }
    }
    rows.into_iter().map(|r| r.into_iter().collect::<String>() + "\n").collect()
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_sent_in_pieces_is_seen_whole() {
        let sent = "old\x1b[?1049h\x1b[2;3Hab\x1b[1mc\x1b[0m\x1b[2;4HX\x1b[1;1Htop\r\nx\x1b[";
        assert_eq!(super::seen(sent), "top\nx aXc\n");
    }
}
