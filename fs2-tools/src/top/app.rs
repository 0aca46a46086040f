//! What keys and answers do to what is shown. No terminal, no daemon.

use std::path::Path;

use fs2_control::Status;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;

use super::model::Watched;
use super::screen::{ListView, View, draw, draw_list};
use crate::volume::Found;

/// The intervals that + and - go through, and between which any may be asked for, in seconds.
pub(super) const INTERVALS: [f64; 9] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// What is watched and how it is shown.
pub(super) struct App {
    pub(super) watched: Vec<Watched>,
    /// Which one is shown, or chosen in the list. Below their number, or 0.
    pub(super) shown: usize,
    /// All of them in a list, not one alone.
    pub(super) list: bool,
    pub(super) interval_s: f64,
    pub(super) paused: bool,
    pub(super) help: bool,
}

impl App {
    /// One volume is shown by itself, several begin as a list.
    pub(super) fn new(found: &[Found], interval_s: f64) -> App {
        App {
            watched: found.iter().map(Watched::new).collect(),
            shown: 0,
            list: found.len() != 1,
            interval_s,
            paused: false,
            help: false,
        }
    }

    /// A key was pressed, `control` with it or not. False where it is the end.
    pub(super) fn key(&mut self, code: KeyCode, control: bool) -> bool {
        let of = self.watched.len();
        match code {
            KeyCode::Char('c') if control => return false,
            KeyCode::Esc | KeyCode::Char('h' | '?') if self.help => self.help = false,
            KeyCode::Char('q' | 'Q') => return false,
            KeyCode::Esc if self.list || of == 1 => return false,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Char('l') => {
                self.list |= of > 1;
                self.help &= !self.list;
            }
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('h' | '?') => self.help = !self.list,
            KeyCode::Char('+' | '=') => {
                self.interval_s =
                    INTERVALS.into_iter().find(|s| *s > self.interval_s).unwrap_or(self.interval_s);
            }
            KeyCode::Char('-') => {
                let shorter = INTERVALS.into_iter().rev().find(|s| *s < self.interval_s);
                self.interval_s = shorter.unwrap_or(self.interval_s);
            }
            KeyCode::Down | KeyCode::Char('j') if self.list => {
                self.shown = (self.shown + 1).min(of.saturating_sub(1));
            }
            KeyCode::Up | KeyCode::Char('k') if self.list => self.shown = self.shown.saturating_sub(1),
            KeyCode::Enter if of > 0 => self.list = false,
            KeyCode::Tab | KeyCode::Right if of > 0 => self.shown = (self.shown + 1) % of,
            KeyCode::BackTab | KeyCode::Left if of > 0 => self.shown = (self.shown + of - 1) % of,
            KeyCode::Char(n @ '1'..='9') => {
                let n = n as usize - '1' as usize;
                if n < of {
                    (self.shown, self.list) = (n, false);
                }
            }
            _ => {}
        }
        true
    }

    /// These daemons there are now; true where they are others than before.
    pub(super) fn found(&mut self, found: &[Found]) -> bool {
        let same = |w: &Watched, f: &Found| w.control == f.control && w.mounted == f.dir().is_some();
        let as_before = |(w, f): (&Watched, &Found)| same(w, f) && w.name == f.name();
        if self.watched.len() == found.len() && self.watched.iter().zip(found).all(as_before) {
            return false;
        }
        let shown = self.watched.get(self.shown).map(|w| w.control.clone());
        let mut before = std::mem::take(&mut self.watched);
        for f in found {
            let known = before.iter().position(|w| same(w, f)).map(|at| before.swap_remove(at));
            // It may be mounted elsewhere now.
            self.watched.push(known.map_or_else(|| Watched::new(f), |w| Watched { name: f.name(), ..w }));
        }
        let still = self.watched.iter().position(|w| Some(&w.control) == shown.as_ref());
        // What was looked at is gone: which of the others is for who looks to say.
        self.list |= still.is_none();
        self.shown = still.unwrap_or_else(|| self.shown.min(self.watched.len().saturating_sub(1)));
        true
    }

    /// A daemon answered, or did not; true where the screen may look different.
    pub(super) fn told(&mut self, control: &Path, answer: Result<Status, String>) -> bool {
        // What comes in a pause is left: the next rates are over all of it.
        if self.paused {
            return false;
        }
        let Some(watched) = self.watched.iter_mut().find(|w| w.control == control) else { return false };
        watched.told(answer);
        true
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>, colors: bool) {
        match self.watched.get(self.shown).filter(|_| !self.list) {
            Some(watched) => draw(
                frame,
                &View {
                    watched,
                    number: (self.shown + 1, self.watched.len()),
                    interval_s: self.interval_s,
                    paused: self.paused,
                    help: self.help,
                    colors,
                },
            ),
            None => draw_list(
                frame,
                &ListView {
                    all: &self.watched,
                    chosen: self.shown,
                    interval_s: self.interval_s,
                    paused: self.paused,
                    colors,
                },
            ),
        }
    }
}
