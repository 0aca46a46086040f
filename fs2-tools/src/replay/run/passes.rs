//! A trace, pass after pass.

use std::cell::RefCell;
use std::rc::Rc;

use fs2_block::Nanos;
use fs2_trace::{Record, TraceError};

use super::{Args, limit, open};
use crate::replay::Failure;

/// A trace of at most so many requests is decoded once: 7 MiB. Longer ones are read anew for each pass, so that
/// memory does not grow with them.
const KEPT_MAX: usize = 1 << 17;

/// The trace of the command line.
pub(super) struct Passes<'a> {
    args: &'a Args,
    kept: RefCell<Kept>,
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
        Passes { args, kept: RefCell::new(Kept::Undecided) }
    }

    /// Calls `run` with the records of each run: passes over the trace, each cut where its repeats begin.
    pub(super) fn each_run(
        &self,
        passes: u16,
        split: &[Nanos],
        mut run: impl FnMut(Records<'_>) -> Result<(), Failure>,
    ) -> Result<Left, Failure> {
        (0..passes).try_fold(Left::default(), |_, _| self.pass(|records| cut(records, split, &mut run)))
    }

    fn pass(&self, take: impl FnOnce(Records<'_>) -> Result<(), Failure>) -> Result<Left, Failure> {
        if let Kept::All(records, left) = &*self.kept.borrow() {
            take(&mut records.iter().copied().map(Ok))?;
            return Ok(*left);
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
