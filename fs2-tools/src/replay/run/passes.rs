//! A trace, pass after pass.

use std::cell::RefCell;
use std::rc::Rc;

use fs2_block::Nanos;
use fs2_trace::{Record, TraceError};

use super::{Args, limit, open};
use crate::replay::Failure;
use crate::replay::info::years;
use crate::replay::input::Bar;

/// A trace of at most so many requests is decoded once: 7 MiB. Longer ones are read anew for each pass, so that
/// memory does not grow with them.
const KEPT_MAX: usize = 1 << 17;

/// The trace of the command line.
pub(super) struct Passes<'a> {
    args: &'a Args,
    kept: RefCell<Kept>,
    /// Where the trace is read anew for each pass, that has a bar.
    bar: Bar,
}

enum Kept {
    Undecided,
    TooMany,
    All(Rc<[Record]>, Left),
}

/// What of a pass is not as the trace has it.
#[derive(Clone, Copy, Default)]
pub(super) struct Left {
    /// Lines or records that were wrong and left out.
    pub(super) skipped: u64,
    /// Requests that were moved to the time of the one before, since theirs was earlier.
    pub(super) late: u64,
    /// Completions of no request.
    pub(super) unmatched: u64,
    /// Requests outside the partition.
    pub(super) outside: u64,
}

type Records<'a> = &'a mut dyn Iterator<Item = Result<Record, TraceError>>;

impl<'a> Passes<'a> {
    pub(super) fn new(args: &'a Args) -> Passes<'a> {
        let (runs, split) = (super::passes(args), args.split.len() > 1);
        let each = u64::from(runs) + u64::from(split);
        let bounds = u64::from(runs.min(super::BOUND_PASSES)) + u64::from(split);
        // The first of all fills the memory.
        let passes = super::policies(args).len() as u64 * each + bounds - 1;
        let bar = Bar::of_passes(passes, args.read.quiet);
        Passes { args, kept: RefCell::new(Kept::Undecided), bar }
    }

    /// Calls `run` with the records of each run: passes over the trace, each cut where its repeats begin.
    pub(super) fn each_run(
        &self,
        passes: u16,
        split: &[Nanos],
        mut run: impl FnMut(Records<'_>) -> Result<(), Failure>,
    ) -> Result<Left, Failure> {
        let mut run = |records: Records<'_>| in_time(self.args, records, &mut run);
        (0..passes).try_fold(Left::default(), |_, _| self.pass(|records| cut(records, split, &mut run)))
    }

    fn pass(&self, take: impl FnOnce(Records<'_>) -> Result<(), Failure>) -> Result<Left, Failure> {
        if let Kept::All(records, left) = &*self.kept.borrow() {
            let done = take(&mut records.iter().copied().map(Ok));
            self.bar.advance(1);
            return done.map(|()| *left);
        }
        let mut keep = matches!(&*self.kept.borrow(), Kept::Undecided).then(Vec::new);
        let mut stream = open(self.args, &self.args.traces)?;
        let mut records = stream.by_ref().take(limit(self.args)).inspect(|record| {
            if let (Ok(record), Some(kept)) = (record, &mut keep) {
                kept.push(*record);
                if kept.len() > KEPT_MAX {
                    keep = None;
                }
            }
        });
        take(&mut records)?;
        let left = Left {
            skipped: stream.skipped().count,
            late: stream.late(),
            unmatched: stream.unmatched(),
            outside: stream.outside(),
        };
        *self.kept.borrow_mut() = match keep {
            Some(records) => Kept::All(records.into(), left),
            None => Kept::TooMany,
        };
        Ok(left)
    }
}

impl Drop for Passes<'_> {
    fn drop(&mut self) {
        self.bar.clear();
    }
}

/// Calls `run` with the records of a run up to the first one that comes so late that the clock of all runs would come to its end, and
/// refuses that. A run that waits for answers and not for the trace's times takes all.
///
/// # Errors
/// Which record it is, by number from 1; those of `run`.
pub(super) fn in_time(
    args: &Args,
    records: Records<'_>,
    run: impl FnOnce(Records<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if args.closed_loop {
        return run(records);
    }
    let runs = 1 + u64::from(super::passes(args)) * args.split.len().max(1) as u64;
    // The other half is for what is late.
    let longest = Nanos(u64::MAX / 2 / runs) - args.idle_between;
    let (mut n, mut first, mut over) = (0u64, None, None);
    run(&mut records.take_while(|record| {
        let Ok(record) = record else { return true };
        let after = record.at.since(*first.get_or_insert(record.at));
        n += 1;
        over = (after > longest).then_some(after);
        over.is_none()
    }))?;
    over.map_or(Ok(()), |after| {
        let before = n - 1;
        Err(Failure(format!(
            "request {n} comes {} after the first of its run, and of {} runs none may take more than {}; if its time is wrong, \
             --limit {before} ends before it",
            years(after),
            runs - 1,
            years(longest)
        )))
    })
}

fn cut(
    records: Records<'_>,
    split: &[Nanos],
    mut run: impl FnMut(Records<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if split.len() < 2 {
        return run(records);
    }
    let mut records = records.peekable();
    for (i, from) in split.iter().enumerate() {
        let to = split.get(i + 1).copied().unwrap_or(Nanos(u64::MAX));
        let inside = |r: &Result<Record, _>| r.as_ref().map_or(true, |r| r.at < to);
        if i == 0 {
            while records.next_if(|r| r.as_ref().is_ok_and(|r| r.at < *from)).is_some() {}
        }
        run(&mut std::iter::from_fn(|| records.next_if(inside)))?;
    }
    Ok(())
}
