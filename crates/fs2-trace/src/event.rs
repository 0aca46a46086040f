//! What a reader finds before it is a request of the replay: events in the life of a request, with
//! times by the trace's own clock.

use std::collections::HashMap;

use fs2_block::{Extent, Nanos, Op, SECTOR_BYTES};

use crate::error::TraceError;
use crate::formats::container::Header;
use crate::record::RecordFlags;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A request came to the block device (Q).
    Queue,
    /// It was handed to the scheduler (I).
    Insert,
    /// It was handed to the driver (D).
    Issue,
    /// It was taken back from the driver and will be handed over again (R).
    Requeue,
    /// It was completed (C).
    Complete,
    /// All there is to know of a request, in formats that are no list of events.
    Request,
    /// Anything else; it has a time and no more.
    Other,
}

impl Kind {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = Kind::Other as usize + 1;
}

/// How long a request took, if that is known: a time in half of the space, since events are moved about
/// by the million.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took(u64);

impl Took {
    pub(crate) const UNKNOWN: Took = Took(u64::MAX);

    pub(crate) fn get(self) -> Option<Nanos> {
        (self.0 != u64::MAX).then_some(Nanos(self.0))
    }
}

impl From<Option<Nanos>> for Took {
    fn from(took: Option<Nanos>) -> Took {
        Took(took.map_or(u64::MAX, |took| took.0))
    }
}

/// Most bytes of a request: what a record of the container holds.
pub(crate) const EVENT_BYTES_MAX: u64 = u32::MAX as u64;

/// One event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// Nanoseconds by the trace's clock.
    pub(crate) time: u64,
    pub(crate) kind: Kind,
    pub(crate) op: Op,
    /// At most [`EVENT_BYTES_MAX`] long.
    pub(crate) extent: Extent,
    /// How long the request took, where the event says so.
    pub(crate) took: Took,
    pub(crate) flags: RecordFlags,
    pub(crate) source: u16,
    /// Index into [`Devices`].
    pub(crate) device: u32,
}

const _: () = assert!(size_of::<Event>() == 48);

impl Event {
    /// A whole request of a format without events.
    pub(crate) fn request(time: u64, op: Op, extent: Extent, device: u32) -> Event {
        Event {
            time,
            kind: Kind::Request,
            op,
            extent,
            took: Took::UNKNOWN,
            flags: RecordFlags::NONE,
            source: 0,
            device,
        }
    }
}

/// The bytes of `count` units from unit `first`, or `None` beyond 63 bits.
#[inline]
pub(crate) fn extent_of(first: u64, count: u64, unit: u64) -> Option<Extent> {
    Extent::checked(first.checked_mul(unit)?, count.checked_mul(unit)?)
}

/// The bytes of `count` sectors from `first`.
#[inline]
pub(crate) fn sectors(first: u64, count: u64) -> Option<Extent> {
    extent_of(first, count, SECTOR_BYTES)
}

/// Why a reader has no event to give.
pub(crate) enum Fault {
    /// One line or record is wrong; the next may be read.
    Bad(TraceError),
    /// Nothing more can be read.
    Fatal(TraceError),
}

impl From<TraceError> for Fault {
    fn from(e: TraceError) -> Fault {
        Fault::Fatal(e)
    }
}

/// Reads the events of one input.
pub(crate) trait Source: Send {
    /// The next event.
    fn next(&mut self, devices: &mut Devices) -> Result<Option<Event>, Fault>;

    /// What a container says of itself.
    fn header(&self) -> Option<Header> {
        None
    }

    /// Nanoseconds from 1970 to time 0 of the trace's clock, where the trace says so.
    fn clock_unix_ns(&self) -> Option<i128> {
        None
    }
}

/// A device of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What the trace calls it: `8,0`, an ASU, `host,disk`, a file; empty where it has no name.
    pub name: String,
    /// Requests for it so far, also those that an option leaves out.
    pub requests: u64,
    /// One past the highest byte of them.
    pub end_bytes: u64,
}

/// Most devices of a trace; a trace with more is not one.
const DEVICES_MAX: usize = 4096;
/// Longest name of one: a path.
const NAME_MAX: usize = 4096;

/// The devices seen, by name.
#[derive(Default)]
pub(crate) struct Devices {
    pub(crate) list: Vec<Device>,
    by_name: HashMap<Box<[u8]>, u32>,
    last_name: Vec<u8>,
    last: u32,
}

impl Devices {
    /// The index of the device of that name.
    ///
    /// # Errors
    /// What was expected, where there are too many or the name is too long.
    #[inline]
    pub(crate) fn index(&mut self, name: &[u8]) -> Result<u32, &'static str> {
        if name == self.last_name && !self.list.is_empty() {
            return Ok(self.last);
        }
        self.look_up(name)
    }

    fn look_up(&mut self, name: &[u8]) -> Result<u32, &'static str> {
        let index = match self.by_name.get(name) {
            Some(index) => *index,
            None if self.list.len() == DEVICES_MAX => return Err("at most 4096 devices"),
            None if name.len() > NAME_MAX => return Err("a device's name of at most 4096 bytes"),
            None => {
                let index = self.list.len() as u32;
                self.by_name.insert(name.into(), index);
                let name = String::from_utf8_lossy(name).into_owned();
                self.list.push(Device { name, requests: 0, end_bytes: 0 });
                index
            }
        };
        self.last_name.clear();
        self.last_name.extend_from_slice(name);
        self.last = index;
        Ok(index)
    }
}
