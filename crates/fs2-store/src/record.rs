//! A store that remembers every change, and the images that a crash could have left.
//!
//! E1: events are numbered by completion; an event knows how many had completed when it was issued.
//! E2: a flush makes durable what had completed before it was issued, once it has completed itself; a FUA
//!     write makes itself durable. Nothing else does.
//! E3: a recording is whole or refused: once the cap is passed none is given.
//!
//! ```text
//!  events   0 W(a)  1 W(b)  2 flush(issued after 1)  3 W(c, FUA)  4 W(d)
//!  crash after 4 events: a and c are durable; b may be there, and d too if it was issued by then.
//! ```
//!
//! Not covered: two overlapping writes in flight at once (their order below is not known; the engine never
//! issues such), and media that lose what was flushed.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fs2_block::{Extent, SECTOR_BYTES};

use crate::rng::Rng;
use crate::store::check_range;
use crate::{MemStore, Store};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A write.
    Write {
        /// First byte.
        offset: u64,
        /// What was written.
        bytes: Arc<[u8]>,
        /// Durable on completion.
        fua: bool,
    },
    /// A write-zeroes.
    WriteZeroes(Extent),
    /// A discard.
    Discard(Extent),
    /// A flush that succeeded.
    Flush,
    /// Somebody's remark, see [`RecordStore::mark`].
    Mark(String),
}

/// Something that happened to a recorded store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// How many events had completed when it was issued.
    pub issued_after: usize,
    /// Whether it succeeded. What failed, or never ended, may have been done in part or in whole.
    pub acknowledged: bool,
}

impl Event {
    /// The bytes it changes; `None` for flushes and marks.
    pub fn extent(&self) -> Option<Extent> {
        match &self.kind {
            EventKind::Write { offset, bytes, .. } => Some(Extent::new(*offset, bytes.len() as u64)),
            EventKind::WriteZeroes(e) | EventKind::Discard(e) => Some(*e),
            EventKind::Flush | EventKind::Mark(_) => None,
        }
    }
}

/// More was written than the recorder was given room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recorder's room of {cap_bytes} bytes is used up: record less, or give it more")]
pub struct RecordingFull {
    /// The room, bytes.
    pub cap_bytes: u64,
}

#[derive(Default)]
struct Log {
    events: Vec<Event>,
    in_flight: BTreeMap<u64, Event>,
    next: u64,
    bytes: u64,
}

/// A store that remembers every change.
pub struct RecordStore<S> {
    inner: S,
    base: MemStore,
    cap: u64,
    log: Mutex<Log>,
}

/// What an event costs of the room beside its payload.
const EVENT_BYTES: u64 = size_of::<Event>() as u64;

impl<S: Store> RecordStore<S> {
    /// Records what happens to `inner` from now on, in at most `cap_bytes` of memory. Its content now is
    /// read (holes are not) and kept beside that, zero pages left out.
    ///
    /// # Errors
    /// What `inner` says.
    pub fn new(inner: S, cap_bytes: u64) -> io::Result<RecordStore<S>> {
        let base = MemStore::copy_of(&inner)?;
        Ok(RecordStore { inner, base, cap: cap_bytes, log: Mutex::default() })
    }

    /// What lies below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// A remark among the events, for whoever judges the crash states: what was acknowledged to whom.
    pub fn mark(&self, text: impl Into<String>) {
        let mut log = self.log();
        let text = text.into();
        log.bytes += EVENT_BYTES + text.len() as u64;
        if log.bytes <= self.cap {
            let issued_after = log.events.len();
            log.events.push(Event { kind: EventKind::Mark(text), issued_after, acknowledged: true });
        }
    }

    /// Events completed so far.
    pub fn events(&self) -> usize {
        self.log().events.len()
    }

    /// All so far; what has not ended yet comes last, as not acknowledged.
    ///
    /// # Errors
    /// Where the room was not enough.
    pub fn recording(&self) -> Result<Recording, RecordingFull> {
        let log = self.log();
        if log.bytes > self.cap {
            return Err(RecordingFull { cap_bytes: self.cap });
        }
        let mut events = log.events.clone();
        let completed = events.len();
        events.extend(log.in_flight.values().filter(|e| e.kind != EventKind::Flush).cloned());
        Ok(Recording { base: Arc::new(self.base.snapshot()), events, completed })
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recorded(
        &self,
        payload: u64,
        kind: impl FnOnce() -> EventKind,
        run: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let tag = {
            let mut log = self.log();
            log.bytes = log.bytes.saturating_add(EVENT_BYTES + payload);
            let tag = log.next;
            log.next += 1;
            if log.bytes <= self.cap {
                let issued_after = log.events.len();
                log.in_flight.insert(tag, Event { kind: kind(), issued_after, acknowledged: false });
            } else {
                // E3: no recording will be given any more, so nothing need be kept.
                log.events = Vec::new();
                log.in_flight.clear();
            }
            tag
        };
        let result = run();
        let mut log = self.log();
        if let Some(mut event) = log.in_flight.remove(&tag) {
            event.acknowledged = result.is_ok();
            // A flush that failed promised nothing.
            if event.acknowledged || event.kind != EventKind::Flush {
                log.events.push(event);
            }
        }
        result
    }
}

impl<S: Store> Store for RecordStore<S> {
    fn below(&self) -> Option<&dyn Store> {
        Some(&self.inner)
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        check_range(self.size_bytes(), offset, buf.len() as u64)?;
        self.recorded(
            buf.len() as u64,
            || EventKind::Write { offset, bytes: buf.into(), fua },
            || self.inner.write_at(offset, buf, fua),
        )
    }

    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        check_range(self.size_bytes(), offset, len)?;
        let kind = || EventKind::WriteZeroes(Extent::new(offset, len));
        self.recorded(0, kind, || self.inner.write_zeroes(offset, len, no_hole))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.size_bytes(), offset, len)?;
        let kind = || EventKind::Discard(Extent::new(offset, len));
        self.recorded(0, kind, || self.inner.discard(offset, len))
    }

    fn flush(&self) -> io::Result<()> {
        self.recorded(0, || EventKind::Flush, || self.inner.flush())
    }
}

/// What discarded bytes read as in a rebuilt image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// As before the discard.
    AsBefore,
    /// As zero.
    AsZero,
    /// As noise, by seed.
    AsNoise(u64),
}

/// Which of a write's sectors of 512 bytes reached the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tear {
    /// The first so many.
    First(u64),
    /// Each or not, by seed.
    Some(u64),
}

/// Which changes a crash left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashState {
    /// The crash came when so many events had completed.
    pub after: usize,
    /// The events whose change is there, ascending.
    pub kept: Vec<usize>,
    /// One of them that is there in part.
    pub torn: Option<(usize, Tear)>,
}

/// A store's content at the start and everything that happened to it.
#[derive(Clone)]
pub struct Recording {
    base: Arc<MemStore>,
    events: Vec<Event>,
    completed: usize,
}

impl Recording {
    /// What happened, in order of completion (E1).
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How many of the events had completed when the recording was taken: crash points are 0 to this.
    pub fn completed(&self) -> usize {
        self.completed
    }

    /// Events between completed flushes, in order: the flush that ends an epoch is not part of it.
    pub fn epochs(&self) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut start = 0;
        for (i, e) in self.events.iter().enumerate() {
            if e.kind == EventKind::Flush {
                found.push(start..i);
                start = i + 1;
            }
        }
        found.push(start..self.events.len());
        found
    }

    /// Splits the changes that a crash after `after` events may have left in those that are certainly
    /// there and those that may be (E2), each ascending.
    ///
    /// # Panics
    /// Where `after` is beyond [`Recording::completed`].
    pub fn split(&self, after: usize) -> (Vec<usize>, Vec<usize>) {
        assert!(after <= self.completed, "a crash after {after} of {} events", self.completed);
        let flushed = self.events[..after]
            .iter()
            .filter(|e| e.kind == EventKind::Flush)
            .map(|e| e.issued_after)
            .max()
            .unwrap_or(0);
        let (mut durable, mut open) = (Vec::new(), Vec::new());
        for (i, e) in self.events.iter().enumerate() {
            if e.extent().is_none() || (i >= after && e.issued_after > after) {
                continue;
            }
            let fua = matches!(e.kind, EventKind::Write { fua: true, .. });
            let safe = e.acknowledged && i < after && (fua || i < flushed);
            if safe { durable.push(i) } else { open.push(i) }
        }
        (durable, open)
    }

    /// Every change that had completed is there, nothing else.
    pub fn prefix(&self, after: usize) -> CrashState {
        let change = |&i: &usize| self.events[i].extent().is_some();
        CrashState { after, kept: (0..after).filter(change).collect(), torn: None }
    }

    /// Only what is certain is there.
    pub fn least(&self, after: usize) -> CrashState {
        CrashState { after, kept: self.split(after).0, torn: None }
    }

    /// All that had completed but one, for each one that is not certain.
    pub fn single_drops(&self, after: usize) -> Vec<CrashState> {
        let all = self.prefix(after);
        let open = self.split(after).1;
        let without = |&drop: &usize| CrashState {
            kept: all.kept.iter().copied().filter(|&i| i != drop).collect(),
            ..all.clone()
        };
        open.iter().filter(|&&i| i < after).map(without).collect()
    }

    /// What is certain and one more, for each one that may be there, those in flight included.
    pub fn single_keeps(&self, after: usize) -> Vec<CrashState> {
        let (durable, open) = self.split(after);
        open.iter()
            .map(|&one| {
                let mut kept = durable.clone();
                kept.insert(kept.partition_point(|&i| i < one), one);
                CrashState { after, kept, torn: None }
            })
            .collect()
    }

    /// What is certain and, of what may be there, each or not by seed.
    pub fn subset(&self, after: usize, seed: u64) -> CrashState {
        let mut rng = Rng::new(seed);
        let (mut kept, open) = self.split(after);
        kept.extend(open.into_iter().filter(|_| rng.coin()));
        kept.sort_unstable();
        CrashState { after, kept, torn: None }
    }

    /// A subset with one of the open writes torn, where there is one longer than a sector.
    pub fn torn(&self, after: usize, seed: u64) -> CrashState {
        let mut rng = Rng::new(seed ^ 0x746f_726e);
        let mut state = self.subset(after, seed);
        let mut open = self.split(after).1;
        open.retain(|&i| {
            matches!(&self.events[i].kind, EventKind::Write { bytes, .. } if bytes.len() as u64 > SECTOR_BYTES)
        });
        if !open.is_empty() {
            let one = open[rng.below(open.len() as u64) as usize];
            let sectors = self.events[one].extent().map_or(0, Extent::sectors);
            let tear = if rng.coin() { Tear::First(rng.below(sectors)) } else { Tear::Some(rng.next()) };
            if let Err(at) = state.kept.binary_search(&one) {
                state.kept.insert(at, one);
            }
            state.torn = Some((one, tear));
        }
        state
    }

    /// The image that a crash state leaves: the content at the start with the kept changes over it, in
    /// order of completion.
    pub fn image(&self, state: &CrashState, discarded: Discarded) -> MemStore {
        let image = self.base.snapshot();
        for &i in &state.kept {
            let tear = state.torn.filter(|t| t.0 == i).map(|t| t.1);
            self.apply(&image, i, tear, discarded).expect("what was recorded lies within the store");
        }
        image
    }

    /// The image of every prefix, from none of the events to all that had completed, at the cost of one
    /// pass.
    pub fn prefix_images(&self, discarded: Discarded) -> impl Iterator<Item = MemStore> {
        let image = self.base.snapshot();
        (0..=self.completed).map(move |after| {
            if after > 0 {
                self.apply(&image, after - 1, None, discarded)
                    .expect("what was recorded lies within the store");
            }
            image.snapshot()
        })
    }

    fn apply(&self, image: &MemStore, i: usize, tear: Option<Tear>, discarded: Discarded) -> io::Result<()> {
        match &self.events[i].kind {
            EventKind::Write { offset, bytes, .. } => match tear {
                None => image.write_at(*offset, bytes, false),
                Some(tear) => write_torn(image, *offset, bytes, tear),
            },
            EventKind::WriteZeroes(e) => image.write_zeroes(e.offset(), e.len(), false),
            EventKind::Discard(e) => match discarded {
                Discarded::AsBefore => Ok(()),
                Discarded::AsZero => image.write_zeroes(e.offset(), e.len(), false),
                Discarded::AsNoise(seed) => {
                    let mut rng = Rng::new(seed ^ i as u64);
                    let noise: Vec<u8> =
                        (0..e.len().div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).collect();
                    image.write_at(e.offset(), &noise[..e.len() as usize], false)
                }
            },
            EventKind::Flush | EventKind::Mark(_) => Ok(()),
        }
    }
}

/// Writes those sectors of the medium that the tear leaves.
fn write_torn(image: &MemStore, offset: u64, bytes: &[u8], tear: Tear) -> io::Result<()> {
    let mut rng = Rng::new(match tear {
        Tear::Some(seed) => seed,
        Tear::First(_) => 0,
    });
    let (mut done, mut sector) = (0, 0);
    while done < bytes.len() {
        let at = offset + done as u64;
        let n = ((SECTOR_BYTES - at % SECTOR_BYTES) as usize).min(bytes.len() - done);
        let there = match tear {
            Tear::First(count) => sector < count,
            Tear::Some(_) => rng.coin(),
        };
        if there {
            image.write_at(at, &bytes[done..done + n], false)?;
        }
        done += n;
        sector += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
