//! What can be said of a trace after one pass over it, in memory that does not grow with its length.
//!
//! Sets of blocks are exact up to 16 TiB of touched regions and take at most 32 MiB a TiB each, of which
//! there are four; distributions are kept in fixed histograms.

use fs2_block::Op;
use serde::Serialize;

use crate::blocks::{Blocks, Piece, Regions};
use crate::histogram::{Histogram, Percentiles};
use crate::record::{Record, RecordFlags};

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;
const MS: f64 = 1e-6;
/// Hours listed: more than a year.
const HOURS_MAX: usize = 10_000;

/// Of the estimate of busy time: what it takes to position for a request that does not begin where the
/// one before it ended. A guess, between a short seek with half a turn and a mean seek with it.
const POSITIONING_NS: u64 = 8_000_000;
/// Of the estimate of busy time: nanoseconds to transfer a byte, 50 MB/s. A guess, the outer tracks
/// of a drive of 2004.
const TRANSFER_NS_PER_BYTE: u64 = 20;

/// Requests and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Requests.
    pub requests: u64,
    /// Bytes they ask for.
    pub bytes: u64,
}

/// Requests by what they ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mix {
    /// Reads.
    pub read: Count,
    /// Writes of data.
    pub write: Count,
    /// Writes of zeroes without data.
    pub write_zeroes: Count,
    /// Discards and punched holes.
    pub discard: Count,
    /// Flushes.
    pub flush: Count,
}

/// The blocks touched in one hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hour {
    /// The hour's number from the trace's start, from 0. Hours without requests are not listed.
    pub hour: u64,
    /// Its requests.
    pub requests: u64,
    /// Bytes of the different 4 KiB blocks that were read or written.
    pub bytes: u64,
}

/// What one pass over a trace says. Shares are percentages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Requests of all kinds.
    pub requests: u64,
    /// By what they ask for.
    pub mix: Mix,
    /// Reads among all requests but flushes.
    pub read_percent: f64,
    /// Arrival of the first request, seconds from the trace's start.
    pub first_s: f64,
    /// Arrival of the last.
    pub last_s: f64,
    /// First byte asked for, flushes left out.
    pub first_byte: u64,
    /// One past the last.
    pub end_byte: u64,
    /// Requests per second between the first and the last.
    pub mean_per_second: f64,
    /// Requests in the busiest whole second.
    pub peak_per_second: u64,
    /// That second, from the trace's start.
    pub peak_second: u64,
    /// Milliseconds from one arrival to the next.
    pub interarrival_ms: Percentiles,
    /// Bytes of a read.
    pub read_bytes: Percentiles,
    /// Bytes of a write.
    pub write_bytes: Percentiles,
    /// Milliseconds that requests took, where the trace says so.
    pub service_ms: Option<Percentiles>,
    /// Reads of which every block was read before.
    pub reread_percent: f64,
    /// Of the 4 KiB blocks that reads touch, counted at each touch, those read before.
    pub reread_blocks_percent: f64,
    /// Reads of which every block was read before and not written since.
    pub reread_unwritten_percent: f64,
    /// Reads of which every block was written before.
    pub read_after_write_percent: f64,
    /// Reads and writes that begin where the one before them ended.
    pub sequential_percent: f64,
    /// Bytes of the different 4 KiB blocks read.
    pub read_set_bytes: u64,
    /// Of those written.
    pub write_set_bytes: u64,
    /// Of those read or written.
    pub working_set_bytes: u64,
    /// Hour by hour, at most 10,000 of them.
    pub hours: Vec<Hour>,
    /// Time with a request outstanding, by the trace's own service times; of a trace in which half of the
    /// requests or fewer have one, nothing.
    pub busy_measured_percent: Option<f64>,
    /// Time a drive would be busy that takes 8 ms to position, unless a request begins where the one
    /// before it ended, and 20 ns a byte, one request at a time. An estimate to compare traces by.
    pub busy_estimated_percent: f64,
    /// Writes with force unit access.
    pub fua: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests left out of the sets of blocks, for the trace touches too many regions.
    pub uncounted: u64,
}

/// Adds requests up, in order of arrival.
pub struct Summariser {
    s: Summary,
    regions: Regions,
    pieces: Vec<Piece>,
    read: Blocks,
    unwritten: Blocks,
    written: Blocks,
    hour: Blocks,
    rereads: [u64; 3],
    /// Blocks touched by reads.
    touched: u64,
    sequential: u64,
    moved: u64,
    last_end: Option<u64>,
    last_at: Option<u64>,
    first_at: u64,
    second: (u64, u64),
    interarrival: Histogram,
    read_sizes: Histogram,
    write_sizes: Histogram,
    service: Histogram,
    /// Until when the drive is busy, and how long it was: measured, estimated.
    busy: [(u64, u64); 2],
}

impl Default for Summariser {
    fn default() -> Summariser {
        Summariser::new()
    }
}

impl Summariser {
    /// Nothing added yet.
    pub fn new() -> Summariser {
        Summariser {
            s: Summary { first_byte: u64::MAX, ..Summary::default() },
            regions: Regions::default(),
            pieces: Vec::new(),
            read: Blocks::default(),
            unwritten: Blocks::default(),
            written: Blocks::default(),
            hour: Blocks::default(),
            rereads: [0; 3],
            touched: 0,
            sequential: 0,
            moved: 0,
            last_end: None,
            last_at: None,
            first_at: 0,
            second: (0, 0),
            interarrival: Histogram::new(),
            read_sizes: Histogram::new(),
            write_sizes: Histogram::new(),
            service: Histogram::new(),
            busy: [(0, 0); 2],
        }
    }

    /// Adds a request. Requests come in order of arrival.
    pub fn add(&mut self, record: &Record) {
        self.time(record);
        let s = &mut self.s;
        let count = match record.op {
            Op::Read => &mut s.mix.read,
            Op::Write => &mut s.mix.write,
            Op::WriteZeroes => &mut s.mix.write_zeroes,
            Op::Discard | Op::Punch => &mut s.mix.discard,
            Op::Flush => &mut s.mix.flush,
        };
        count.requests += 1;
        count.bytes = count.bytes.saturating_add(record.extent.len());
        s.requests += 1;
        s.fua += u64::from(record.flags.contains(RecordFlags::FUA));
        s.failed += u64::from(record.flags.contains(RecordFlags::FAILED));
        if record.op != Op::Flush {
            s.first_byte = s.first_byte.min(record.extent.offset());
            s.end_byte = s.end_byte.max(record.extent.end());
        }
        match record.op {
            Op::Read => self.read_sizes.add(record.extent.len()),
            Op::Write => self.write_sizes.add(record.extent.len()),
            _ => {}
        }
        self.sets(record);
        self.head(record);
    }

    fn time(&mut self, record: &Record) {
        let at = record.at.0;
        match self.last_at {
            None => {
                self.first_at = at;
                self.second = (at / SECOND, 0);
                self.s.peak_second = at / SECOND;
            }
            Some(last) => self.interarrival.add(at.saturating_sub(last)),
        }
        self.last_at = Some(at);
        if at / SECOND != self.second.0 {
            self.second = (at / SECOND, 0);
        }
        self.second.1 += 1;
        if self.second.1 > self.s.peak_per_second {
            (self.s.peak_second, self.s.peak_per_second) = self.second;
        }
        let hour = at / HOUR;
        if self.s.hours.last().is_none_or(|last| last.hour != hour) && self.s.hours.len() < HOURS_MAX {
            if let Some(last) = self.s.hours.last_mut() {
                last.bytes = self.hour.bytes();
            }
            self.hour.clear();
            self.s.hours.push(Hour { hour, requests: 0, bytes: 0 });
        }
        if let Some(last) = self.s.hours.last_mut().filter(|last| last.hour == hour) {
            last.requests += 1;
        }
    }

    fn sets(&mut self, record: &Record) {
        if !matches!(record.op, Op::Read | Op::Write | Op::WriteZeroes) {
            if record.op.changes_content() && self.regions.pieces(record.extent, &mut self.pieces).is_some() {
                self.unwritten.remove(&self.pieces);
            }
            return;
        }
        if self.regions.pieces(record.extent, &mut self.pieces).is_none() {
            self.s.uncounted += 1;
            return;
        }
        let pieces = &self.pieces[..];
        self.hour.insert(pieces);
        if record.op == Op::Read {
            self.touched += pieces.iter().map(|p| u64::from(p.end() - p.start()) + 1).sum::<u64>();
            let again =
                [self.read.insert(pieces), self.unwritten.insert(pieces), self.written.contains(pieces)];
            if !pieces.is_empty() {
                self.rereads.iter_mut().zip(again).for_each(|(n, again)| *n += u64::from(again));
            }
        } else {
            self.written.insert(pieces);
            self.unwritten.remove(pieces);
        }
    }

    fn head(&mut self, record: &Record) {
        let (at, len) = (record.at.0, record.extent.len());
        if let Some(service) = record.service {
            self.service.add(service.0);
            occupy(&mut self.busy[0], at, at, service.0);
        }
        if !matches!(record.op, Op::Read | Op::Write) {
            return;
        }
        self.moved += 1;
        let follows = self.last_end == Some(record.extent.offset());
        self.sequential += u64::from(follows);
        self.last_end = Some(record.extent.end());
        let positioning = if follows { 0 } else { POSITIONING_NS };
        let begin = at.max(self.busy[1].0);
        occupy(&mut self.busy[1], at, begin, positioning + len.saturating_mul(TRANSFER_NS_PER_BYTE));
    }

    /// What all of it says.
    pub fn finish(mut self) -> Summary {
        let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        let reads = self.s.mix.read.requests;
        let last_at = self.last_at.unwrap_or(0);
        if let Some(last) = self.s.hours.last_mut() {
            last.bytes = self.hour.bytes();
        }
        // Until the last request was served, as far as is known.
        let busy =
            |(until, busy): (u64, u64)| percent(busy, until.max(last_at).saturating_sub(self.first_at));
        let s = &mut self.s;
        if s.first_byte == u64::MAX {
            s.first_byte = 0;
        }
        s.read_percent = percent(reads, s.requests - s.mix.flush.requests);
        s.first_s = self.first_at as f64 / 1e9;
        s.last_s = last_at as f64 / 1e9;
        let seconds = last_at.saturating_sub(self.first_at) as f64 / 1e9;
        s.mean_per_second = if seconds > 0.0 { (s.requests - 1) as f64 / seconds } else { 0.0 };
        s.interarrival_ms = self.interarrival.percentiles(MS);
        s.read_bytes = self.read_sizes.percentiles(1.0);
        s.write_bytes = self.write_sizes.percentiles(1.0);
        let service = self.service.percentiles(MS);
        s.service_ms = (service.count > 0).then_some(service);
        s.reread_percent = percent(self.rereads[0], reads);
        s.reread_blocks_percent = percent(self.touched - self.read.blocks(), self.touched);
        s.reread_unwritten_percent = percent(self.rereads[1], reads);
        s.read_after_write_percent = percent(self.rereads[2], reads);
        s.sequential_percent = percent(self.sequential, self.moved);
        s.read_set_bytes = self.read.bytes();
        s.write_set_bytes = self.written.bytes();
        s.working_set_bytes = self.read.union_bytes(&self.written);
        s.busy_measured_percent = (service.count * 2 > s.requests).then(|| busy(self.busy[0]));
        s.busy_estimated_percent = busy(self.busy[1]);
        self.s
    }
}

/// Counts `ns` from `begin` as busy, what of it was counted already left out.
fn occupy((until, busy): &mut (u64, u64), at: u64, begin: u64, ns: u64) {
    let end = begin.saturating_add(ns);
    let from = at.max(*until).max(begin);
    *busy = busy.saturating_add(end.saturating_sub(from));
    *until = end.max(*until);
}
