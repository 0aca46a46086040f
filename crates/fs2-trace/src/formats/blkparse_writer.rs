//! Writes blkparse's default form, so that the tools which read that can read any trace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use fs2_block::Op;

use crate::record::{Record, RecordFlags};

/// Completions held back until their time comes; with more, the earliest is written at once, and
/// the reader puts it in order again.
const HELD_MAX: usize = 65_536;

/// Writes a trace as blkparse's text: of each record the line of its issue (D), and of its
/// completion (C) where its service time is known.
///
/// What the form cannot say is lost: bytes are rounded outwards to sectors of 512, punched holes
/// become discards, of the flags force unit access and failure remain, and requests of no bytes that are no flushes are
/// left out: a write without sectors is a flush there.
pub struct BlkparseWriter<W: Write> {
    out: W,
    /// Lines written.
    lines: u64,
    /// Requests of no bytes.
    left_out: u64,
    held: BinaryHeap<Reverse<Completion>>,
}

/// A completion to come: its time, the first sector and their number, whether it failed, the
/// letters of the request.
type Completion = (u64, u64, u64, bool, &'static str);

impl<W: Write> BlkparseWriter<W> {
    /// Begins a text.
    pub fn new(out: W) -> BlkparseWriter<W> {
        BlkparseWriter { out, lines: 0, left_out: 0, held: BinaryHeap::new() }
    }

    /// Requests of no bytes that were left out so far.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Adds a record; records should come in order of arrival.
    ///
    /// # Errors
    /// What the output says.
    pub fn push(&mut self, record: &Record) -> io::Result<()> {
        self.complete_until(record.at.0)?;
        if record.extent.is_empty() && record.op != Op::Flush {
            self.left_out += 1;
            return Ok(());
        }
        let letters = letters(record);
        let (sector, count) = (record.extent.sector().0, record.extent.sectors());
        self.issue(record.at.0, record.source, letters, sector, count)?;
        if let Some(service) = record.service {
            if self.held.len() == HELD_MAX {
                self.complete_one()?;
            }
            let failed = record.flags.contains(RecordFlags::FAILED);
            let end = record.at.0.saturating_add(service.0);
            self.held.push(Reverse((end, sector, count, failed, letters)));
        }
        Ok(())
    }

    /// Ends the text and gives back what it was written to.
    ///
    /// # Errors
    /// What the output says.
    pub fn finish(mut self) -> io::Result<W> {
        while !self.held.is_empty() {
            self.complete_one()?;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn complete_until(&mut self, time: u64) -> io::Result<()> {
        while self.held.peek().is_some_and(|c| c.0.0 <= time) {
            self.complete_one()?;
        }
        Ok(())
    }

    fn begin(&mut self, time: u64, pid: u16, action: char, letters: &str) -> io::Result<()> {
        self.lines += 1;
        let (seconds, ns) = (time / 1_000_000_000, time % 1_000_000_000);
        let n = self.lines;
        write!(self.out, "  8,0    0 {n:8} {seconds:5}.{ns:09} {pid:5}  {action} {letters:>3} ")
    }

    fn issue(&mut self, time: u64, pid: u16, letters: &str, sector: u64, count: u64) -> io::Result<()> {
        self.begin(time, pid, 'D', letters)?;
        match count {
            0 => writeln!(self.out, "[{pid}]"),
            n => writeln!(self.out, "{sector} + {n} [{pid}]"),
        }
    }

    fn complete_one(&mut self) -> io::Result<()> {
        let Some(Reverse((time, sector, count, failed, letters))) = self.held.pop() else { return Ok(()) };
        self.begin(time, 0, 'C', letters)?;
        let error = if failed { -5 } else { 0 };
        match count {
            0 => writeln!(self.out, "0 [{error}]"),
            n => writeln!(self.out, "{sector} + {n} [{error}]"),
        }
    }
}

fn letters(record: &Record) -> &'static str {
    match record.op {
        Op::Read => "R",
        Op::Write if record.flags.contains(RecordFlags::FUA) => "WF",
        Op::Write => "W",
        Op::WriteZeroes => "WZ",
        Op::Discard | Op::Punch => "D",
        Op::Flush => "FF",
    }
}
