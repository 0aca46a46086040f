//! One stream of requests from one or several inputs of any format.
//!
//! ```text
//! bytes -> unpack -> reader -+
//! bytes -> unpack -> reader -+-> merge by time -> match C with D -> order -> one address range
//! ```
//!
//! * S1: memory is bounded whatever the inputs hold: each stage keeps a fixed number of events.
//! * S2: times never go back. What comes out of order by more than [`WINDOW`] requests takes the time of
//!   the request before it and is counted as late.
//! * S3: what was given out before an error is good, and nothing follows one.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use fs2_block::{Extent, Nanos, Op};

use crate::detect::{HEAD_BYTES, detect};
use crate::error::TraceError;
use crate::event::{Device, Event, Kind, Source};
use crate::formats::Format;
use crate::formats::container::Header;
use crate::input::{BoxRead, Compression, peek, unpack};
use crate::matching::Matcher;
use crate::merge::Merge;
use crate::record::{Record, RecordFlags};

/// Requests among which times are put in order. A guess: more than are outstanding at a drive.
const WINDOW: usize = 4096;
/// Events looked at to see which kinds there are.
const LOOK_AHEAD: usize = 4096;
/// Skipped lines kept for the report.
const SKIPPED_KEPT: usize = 5;

/// Bytes from one device's address range to the next where a trace has several and none is chosen.
pub const DEVICE_STRIDE: u64 = 1 << 42;

/// Which event of a request is its arrival, in formats that list events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArrivalEvent {
    /// Queued: it came to the block device (Q).
    Queue,
    /// Inserted into the scheduler (I).
    Insert,
    /// Issued to the driver (D).
    Issue,
    /// Completed (C).
    Complete,
}

impl ArrivalEvent {
    /// As blkparse abbreviates it.
    pub fn letter(self) -> char {
        match self {
            ArrivalEvent::Queue => 'Q',
            ArrivalEvent::Insert => 'I',
            ArrivalEvent::Issue => 'D',
            ArrivalEvent::Complete => 'C',
        }
    }

    const ALL: [ArrivalEvent; 4] =
        [ArrivalEvent::Issue, ArrivalEvent::Queue, ArrivalEvent::Insert, ArrivalEvent::Complete];

    fn kind(self) -> Kind {
        match self {
            ArrivalEvent::Queue => Kind::Queue,
            ArrivalEvent::Insert => Kind::Insert,
            ArrivalEvent::Issue => Kind::Issue,
            ArrivalEvent::Complete => Kind::Complete,
        }
    }
}

impl FromStr for ArrivalEvent {
    type Err = String;

    fn from_str(s: &str) -> Result<ArrivalEvent, String> {
        let found = ArrivalEvent::ALL.into_iter().find(|e| s.chars().eq([e.letter()]));
        found.ok_or_else(|| format!("no event {s:?}, expected Q, I, D or C"))
    }
}

/// What becomes of a trace of several devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Each that has requests has an address range of its own, [`DEVICE_STRIDE`] apart, in the order of their first
    /// ones. A trace of one device keeps its addresses.
    #[default]
    Apart,
    /// Only the device of that name, at the addresses it has.
    Only(String),
    /// Each begins at a byte of its own; requests for others are left out. What a first pass over
    /// the trace gives ([`Stream::devices`]) can be put side by side in this way.
    Placed(Vec<(String, u64)>),
}

/// A partition of the device that was traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Where on the device it begins.
    pub begin_bytes: u64,
    /// How long it is; `None`: to the device's end.
    pub len_bytes: Option<u64>,
}

impl Partition {
    /// Where in the partition a part of the device lies; `None` where not all of it does.
    fn within(self, extent: Extent) -> Option<Extent> {
        let offset = extent.offset().checked_sub(self.begin_bytes)?;
        let within = Extent::checked(offset, extent.len())?;
        self.len_bytes.is_none_or(|len| within.end() <= len).then_some(within)
    }
}

/// Bytes of a sector, by which partitions are told.
const SECTOR_BYTES: u64 = 512;

impl FromStr for Partition {
    type Err = String;

    /// Its first sector, and behind a comma how many it has.
    fn from_str(s: &str) -> Result<Partition, String> {
        let wrong =
            || format!("no partition {s:?}, expected its first sector and how many it has, as 2048,409600");
        let bytes = |text: &str| {
            let sectors = text.trim().parse::<u64>().ok()?;
            sectors.checked_mul(SECTOR_BYTES).filter(|bytes| *bytes <= i64::MAX as u64)
        };
        let (begin, len) = s.split_once(',').map_or((s, None), |(begin, len)| (begin, Some(len)));
        let begin_bytes = bytes(begin).ok_or_else(wrong)?;
        let len_bytes = len.map(|len| bytes(len).filter(|n| *n > 0).ok_or_else(wrong)).transpose()?;
        Ok(Partition { begin_bytes, len_bytes })
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.begin_bytes / SECTOR_BYTES)?;
        self.len_bytes.map_or(Ok(()), |len| write!(f, ",{}", len / SECTOR_BYTES))
    }
}

/// How to read a trace.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Its format, where the first bytes are not to say.
    pub format: Option<Format>,
    /// Which event is a request's arrival. Without a choice the first there is of D, Q, I and C.
    /// Formats that list no events have no use for it.
    pub event: Option<ArrivalEvent>,
    /// Whether to count lines, records and blocks that are wrong and go on; an input that cannot be read
    /// further ends there, if anything was read of it.
    pub skip_bad: bool,
    /// What becomes of several devices.
    pub devices: DeviceChoice,
    /// Only what lies within this partition, at its addresses there. A trace of several devices needs
    /// [`DeviceChoice::Only`] with it.
    pub partition: Option<Partition>,
    /// Bytes by which the addresses of these devices are moved up.
    pub moved: Vec<(String, u64)>,
    /// Whether to give out also a daemon's own I/O, that for replicas, from our own traces.
    pub own_io: bool,
}

/// What was wrong and left out.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    /// Lines, records or blocks.
    pub count: u64,
    /// What the first of them said, at most five.
    pub first: Vec<String>,
    /// What ended an input before its end, at most once for each. It is counted, too.
    pub ended: Vec<String>,
}

impl Skipped {
    pub(crate) fn add(&mut self, error: &TraceError) {
        self.count += 1;
        if self.first.len() < SKIPPED_KEPT {
            self.first.push(error.to_string());
        }
    }
}

/// The requests of a trace, in order of arrival.
pub struct Stream {
    merge: Merge,
    format: Format,
    compression: Compression,
    options: OpenOptions,
    /// Events read to see what kinds there are, and not yet used.
    ahead: VecDeque<Event>,
    matcher: Option<Matcher>,
    arrival: Option<ArrivalEvent>,
    order: VecDeque<Event>,
    /// What the addresses begin at of each device that has requests; `None` for one left out.
    places: Vec<Option<Option<u64>>>,
    /// The devices that have requests, in the order of their first ones.
    ranges: Vec<usize>,
    /// The earliest time seen before the first request came out; from then on, time 0.
    base: Option<u64>,
    /// The time of the request given out last, from time 0.
    last: u64,
    ended: bool,
    done: bool,
    error: Option<TraceError>,
    given: u64,
    /// Of them flushes, which no partition leaves out.
    flushes: u64,
    late: u64,
    own: u64,
    outside: u64,
    /// Events of each kind.
    kinds: [u64; Kind::COUNT],
}

/// What programs that mean to be read as text may begin a file with: the byte order mark in UTF-8. No format of bytes does.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A beginning and what gives it out again, both behind a mark.
fn behind_mark(mut head: Vec<u8>, mut all: BoxRead) -> io::Result<(Vec<u8>, BoxRead)> {
    if head.starts_with(MARK) {
        all.read_exact(&mut [0; MARK.len()])?;
        head.drain(..MARK.len());
    }
    Ok((head, all))
}

/// Opens a trace: one input, or several of the same format that are parts of one trace, such as
/// blktrace's files for each processor. They are merged by time; empty ones are passed over.
///
/// # Errors
/// Where an input cannot be read, or is no trace of a format that is known or named, or all are empty.
pub fn open(inputs: Vec<(String, BoxRead)>, options: OpenOptions) -> Result<Stream, TraceError> {
    let mut sources: Vec<(String, Box<dyn Source>)> = Vec::new();
    let mut first: Option<(Format, Compression)> = None;
    let mut empty = Vec::new();
    for (name, input) in inputs {
        let io = |source| TraceError::Io { offset: 0, source };
        let (compression, plain) = unpack(input).map_err(|e| io(e).in_input(&name))?;
        let (head, plain) = peek(plain, HEAD_BYTES).map_err(|e| io(e).in_input(&name))?;
        let (head, plain) = behind_mark(head, plain).map_err(|e| io(e).in_input(&name))?;
        // A processor that saw nothing leaves an empty file.
        if head.is_empty() {
            empty.push(name);
            continue;
        }
        let format = match options.format {
            Some(format) => format,
            None => detect(&head).map_err(|e| e.in_input(&name))?,
        };
        if let Some((other, _)) = first
            && other != format
        {
            return Err(TraceError::Unfit(format!(
                "{name} is {format} and the input before it {other}: several inputs are parts of one trace"
            )));
        }
        first.get_or_insert((format, compression));
        let reader = format.reader(plain).map_err(|e| e.in_input(&name))?;
        sources.push((name, reader));
    }
    let Some((format, compression)) = first else {
        return Err(match &empty[..] {
            [] => TraceError::Unfit("no trace was named".to_owned()),
            [name] => TraceError::Unfit("the input is empty, expected a trace".to_owned()).in_input(name),
            [first, .., last] => TraceError::Unfit(format!(
                "all {} inputs are empty, {first} to {last}, expected a trace in one of them at least",
                empty.len()
            )),
        });
    };
    Ok(Stream {
        merge: Merge::new(sources),
        format,
        compression,
        options,
        ahead: VecDeque::new(),
        matcher: None,
        arrival: None,
        order: VecDeque::new(),
        places: Vec::new(),
        ranges: Vec::new(),
        base: None,
        last: 0,
        ended: false,
        done: false,
        error: None,
        given: 0,
        flushes: 0,
        late: 0,
        own: 0,
        outside: 0,
        kinds: [0; Kind::COUNT],
    }
    .begin())
}

impl Stream {
    /// What a container says of itself; of several, the first.
    pub fn header(&self) -> Option<Header> {
        self.merge.header()
    }

    /// The format of the inputs.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How the first input is compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Which event is an arrival, in formats that list events.
    pub fn event(&self) -> Option<ArrivalEvent> {
        self.arrival
    }

    /// What was wrong and left out so far.
    pub fn skipped(&self) -> &Skipped {
        &self.merge.skipped
    }

    /// The devices seen so far.
    pub fn devices(&self) -> &[Device] {
        &self.merge.devices.list
    }

    /// The device that has a byte of the one address range, where each has a range of its own ([`DeviceChoice::Apart`]).
    pub fn device_at(&self, byte: u64) -> Option<&Device> {
        // One alone keeps its addresses, also those beyond another's.
        let at = if self.ranges.len() == 1 { 0 } else { usize::try_from(byte / DEVICE_STRIDE).ok()? };
        self.merge.devices.list.get(*self.ranges.get(at)?)
    }

    /// Requests given out whose own time lay before that of the request before them.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Completions so far that belong to no request: the event that is its arrival was lost, came before the trace, or is
    /// none of those that its device has.
    pub fn unmatched(&self) -> u64 {
        self.matcher.as_ref().map_or(0, Matcher::unmatched)
    }

    /// Requests of a daemon's own left out so far.
    pub fn own(&self) -> u64 {
        self.own
    }

    /// Requests left out so far that lie outside the partition, or not within it as a whole.
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// Nanoseconds from 1970 to the trace's time 0, where it says so; known once a request was given
    /// out.
    pub fn start_unix_ns(&self) -> Option<u64> {
        if let Some(header) = self.header() {
            return (header.start_unix_ns != 0).then_some(header.start_unix_ns);
        }
        let clock = self.merge.clock_unix_ns()?;
        let base = if self.format.is_absolute() { self.base? } else { 0 };
        u64::try_from(clock + i128::from(base)).ok()
    }

    /// Reads ahead to see which kinds of events there are.
    fn begin(mut self) -> Stream {
        if !self.format.has_events() {
            return self;
        }
        while self.ahead.len() < LOOK_AHEAD {
            let Some(event) = self.pull() else { break };
            self.ahead.push_back(event);
        }
        let there = |kind| self.ahead.iter().any(|e| e.kind == kind);
        let arrival = self
            .options
            .event
            .or_else(|| ArrivalEvent::ALL.into_iter().find(|e| there(e.kind())))
            .unwrap_or(ArrivalEvent::Issue);
        self.arrival = Some(arrival);
        self.matcher = Some(Matcher::new(arrival.kind()));
        self
    }

    /// The next event from the inputs; at an error the trace ends, and the error is kept.
    fn pull(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        match self.merge.next(self.options.skip_bad) {
            Ok(Some(event)) => {
                self.kinds[event.kind as usize] += 1;
                if self.given == 0 {
                    self.base = Some(self.base.map_or(event.time, |base| base.min(event.time)));
                }
                return Some(event);
            }
            Ok(None) => {}
            Err(e) => self.error = Some(e),
        }
        self.ended = true;
        None
    }

    /// The next request, by the trace's own clock and addresses.
    fn request(&mut self) -> Option<Event> {
        loop {
            if let Some(matcher) = &mut self.matcher
                && let Some(event) = matcher.pop(self.ended && self.ahead.is_empty())
            {
                return Some(event);
            }
            let event = match self.ahead.pop_front() {
                Some(event) => event,
                None if self.ended => return None,
                None => match self.pull() {
                    Some(event) => event,
                    None => continue,
                },
            };
            match &mut self.matcher {
                Some(matcher) => matcher.push(event),
                None => return Some(event),
            }
        }
    }

    /// The next request in order of arrival.
    fn ordered(&mut self) -> Option<Event> {
        while self.order.len() <= WINDOW {
            let Some(event) = self.request() else { break };
            let own = RecordFlags::COPY.with(RecordFlags::HASH).bits();
            if !self.options.own_io && event.flags.bits() & own != 0 {
                self.own += 1;
                continue;
            }
            if self.order.back().is_none_or(|last| last.time <= event.time) {
                self.order.push_back(event);
            } else {
                let at = self.order.partition_point(|e| e.time <= event.time);
                self.order.insert(at, event);
            }
        }
        self.order.pop_front()
    }

    fn step(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            let Some(event) = self.ordered() else {
                return match self.error.take() {
                    Some(e) => Err(e),
                    None => self.check_end().map(|()| None),
                };
            };
            let Some(extent) = self.place(&event)? else { continue };
            let base = if self.format.is_absolute() { self.base.unwrap_or(0) } else { 0 };
            let mut at = event.time.saturating_sub(base);
            if at < self.last {
                // Keeps S2.
                self.late += 1;
                at = self.last;
            }
            self.last = at;
            self.given += 1;
            self.flushes += u64::from(extent.is_empty());
            return Ok(Some(Record {
                at: Nanos(at),
                op: event.op,
                extent,
                service: event.took.get(),
                flags: event.flags,
                source: event.source,
            }));
        }
    }

    /// What a device's addresses begin at, `None` for one left out. One without requests, as a partition or a volume above that a trace of events
    /// names, takes no range.
    fn begin_of(&mut self, index: usize) -> Option<u64> {
        if let Some(Some(begin)) = self.places.get(index) {
            return *begin;
        }
        let name = &self.merge.devices.list[index].name;
        let of = |list: &[(String, u64)]| list.iter().find(|p| p.0 == *name).map(|p| p.1);
        let begin = match &self.options.devices {
            DeviceChoice::Apart => (self.ranges.len() as u64).checked_mul(DEVICE_STRIDE),
            DeviceChoice::Only(only) => (only == name).then_some(0),
            DeviceChoice::Placed(places) => of(places),
        };
        let moved = of(&self.options.moved).unwrap_or(0);
        let begin = begin.and_then(|begin| begin.checked_add(moved));
        self.ranges.push(index);
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        self.places[index] = Some(begin);
        begin
    }

    /// Where a request lies in the one address range; `None` for one that is left out.
    fn place(&mut self, event: &Event) -> Result<Option<Extent>, TraceError> {
        let index = event.device as usize;
        if index >= self.merge.devices.list.len() {
            return Ok(None);
        }
        let place = self.begin_of(index);
        let several = self.merge.devices.list.len() > 1;
        let extent = match self.options.partition {
            Some(_) if several && !matches!(self.options.devices, DeviceChoice::Only(_)) => {
                let what = "a partition of which of the trace's devices? `--device` chooses one";
                return Err(TraceError::Unfit(what.to_owned()));
            }
            // A flush is the whole device's.
            Some(partition) if place.is_some() && event.op != Op::Flush => {
                let Some(within) = partition.within(event.extent) else {
                    self.outside += 1;
                    return Ok(None);
                };
                within
            }
            _ => event.extent,
        };
        let device = &mut self.merge.devices.list[index];
        device.requests += 1;
        device.end_bytes = device.end_bytes.max(extent.end());
        let Some(base) = place else { return Ok(None) };
        let apart = self.options.devices == DeviceChoice::Apart && self.ranges.len() > 1;
        let placed = extent.offset().checked_add(base).and_then(|at| Extent::checked(at, extent.len()));
        // Of the first, too, which was alone until now.
        let far = [index, self.ranges[0]]
            .into_iter()
            .find(|at| apart && self.merge.devices.list[*at].end_bytes > DEVICE_STRIDE);
        if let (Some(placed), None) = (placed, far) {
            return Ok(Some(placed));
        }
        let Device { name, end_bytes, .. } = &self.merge.devices.list[far.unwrap_or(index)];
        Err(TraceError::Unfit(format!(
            "request {}, for bytes {extent} of device {:?}: the requests of device {name:?} reach to {end_bytes} bytes, and it \
             does not fit beside the trace's other devices; `--device` chooses one",
            self.given + 1,
            self.merge.devices.list[index].name,
        )))
    }

    /// At the end: whether what was asked for was there at all.
    fn check_end(&self) -> Result<(), TraceError> {
        if self.given > self.flushes || self.own > 0 || self.given > 0 && self.outside == 0 {
            return Ok(());
        }
        if let DeviceChoice::Only(name) = &self.options.devices
            && !self.merge.devices.list.is_empty()
            && !self.merge.devices.list.iter().any(|d| d.name == *name)
        {
            let names = self.merge.devices.list.iter().take(20).map(|d| format!("{:?}", d.name));
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(TraceError::Unfit(format!("no request for device {name:?}; the trace has {names}")));
        }
        if self.outside > 0 {
            return Err(TraceError::Unfit(format!(
                "no request within the partition: the trace's {} all lie outside it",
                self.outside
            )));
        }
        let Some(arrival) = self.arrival else { return Ok(()) };
        let there = ArrivalEvent::ALL.iter().map(|e| (e, self.kinds[e.kind() as usize]));
        let there = there.filter(|(e, n)| **e != arrival && *n > 0);
        let there = there.map(|(e, n)| format!("{n} {}", e.letter())).collect::<Vec<_>>();
        if there.is_empty() {
            return Ok(());
        }
        let (letter, there) = (arrival.letter(), there.join(", "));
        Err(TraceError::Unfit(format!("no event {letter}; the trace has {there}: `--event` chooses one")))
    }
}

impl Iterator for Stream {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = self.step().transpose();
        // Keeps S3.
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}
