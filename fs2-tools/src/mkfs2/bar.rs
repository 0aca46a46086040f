//! A progress bar on a terminal, for what takes longer than two seconds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use fs2_engine::offline::{Phase, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter work shows no bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// Shows how far a job has come, on standard error, if that is a terminal.
pub(crate) struct Bar {
    wanted: bool,
    started: Instant,
    shown: Option<(String, ProgressBar)>,
}

impl Bar {
    /// None is ever shown where `quiet`.
    pub(crate) fn new(quiet: bool) -> Bar {
        let wanted = !quiet && std::io::stderr().is_terminal();
        Bar { wanted, started: Instant::now(), shown: None }
    }

    pub(crate) fn update(&mut self, p: Progress) {
        self.show(words(p.phase), p.done, p.total);
    }

    /// So much of what `message` tells is done.
    pub(crate) fn show(&mut self, message: &str, done: u64, total: u64) {
        if !self.wanted || self.started.elapsed() < PATIENCE {
            return;
        }
        if self.shown.as_ref().is_none_or(|(shown, _)| shown != message) {
            self.clear();
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{msg} [{wide_bar}] {pos}/{len} {eta}") {
                bar.set_style(style);
            }
            bar.set_message(message.to_owned());
            self.shown = Some((message.to_owned(), bar));
        }
        if let Some((_, bar)) = &self.shown {
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    /// Takes the bar away.
    pub(crate) fn clear(&mut self) {
        if let Some((_, bar)) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

fn words(phase: Phase) -> &'static str {
    match phase {
        Phase::Check(1) => "e2fsck: inodes",
        Phase::Check(2) => "e2fsck: directories",
        Phase::Check(3) => "e2fsck: directories' connections",
        Phase::Check(4) => "e2fsck: reference counts",
        Phase::Check(_) => "e2fsck: bitmaps",
        Phase::Bitmaps => "reading block bitmaps",
        Phase::Table => "writing the table",
        Phase::Scrub => "overwriting replicas",
        Phase::Copy => "copying",
        Phase::Originals => "verifying originals",
        Phase::Replicas => "verifying replicas",
    }
}
