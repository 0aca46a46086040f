//! Several inputs, merged by time.

use crate::error::TraceError;
use crate::event::{Devices, EVENT_BYTES_MAX, Event, Fault, Source};
use crate::formats::container::Header;
use crate::stream::Skipped;

/// The inputs, merged by time.
pub(crate) struct Merge {
    sources: Vec<Input>,
    pub(crate) devices: Devices,
    pub(crate) skipped: Skipped,
}

struct Input {
    name: String,
    reader: Box<dyn Source>,
    /// The next event, where there are several inputs.
    next: Option<Event>,
    ended: bool,
    /// An event was read.
    any: bool,
}

impl Merge {
    pub(crate) fn new(sources: Vec<(String, Box<dyn Source>)>) -> Merge {
        let sources = sources
            .into_iter()
            .map(|(name, reader)| Input { name, reader, next: None, ended: false, any: false })
            .collect();
        Merge { sources, devices: Devices::default(), skipped: Skipped::default() }
    }

    /// What the first input says of itself before its first event.
    pub(crate) fn header(&self) -> Option<Header> {
        self.sources.first().and_then(|s| s.reader.header())
    }

    /// What the first input that knows says of the clock.
    pub(crate) fn clock_unix_ns(&self) -> Option<i128> {
        self.sources.iter().find_map(|s| s.reader.clock_unix_ns())
    }

    pub(crate) fn next(&mut self, skip_bad: bool) -> Result<Option<Event>, TraceError> {
        if let [input] = &mut self.sources[..] {
            return input.read(&mut self.devices, &mut self.skipped, skip_bad);
        }
        let mut earliest: Option<usize> = None;
        for i in 0..self.sources.len() {
            let input = &mut self.sources[i];
            if input.next.is_none() && !input.ended {
                input.next = input.read(&mut self.devices, &mut self.skipped, skip_bad)?;
                input.ended = input.next.is_none();
            }
            let Some(time) = self.sources[i].next.as_ref().map(|e| e.time) else { continue };
            let sooner = |j: usize| self.sources[j].next.as_ref().is_none_or(|e| time < e.time);
            if earliest.is_none_or(sooner) {
                earliest = Some(i);
            }
        }
        Ok(earliest.and_then(|i| self.sources[i].next.take()))
    }
}

impl Input {
    fn read(
        &mut self,
        devices: &mut Devices,
        skipped: &mut Skipped,
        skip_bad: bool,
    ) -> Result<Option<Event>, TraceError> {
        loop {
            match self.reader.next(devices) {
                Ok(event) => {
                    debug_assert!(
                        event.as_ref().is_none_or(|e| e.extent.len() <= EVENT_BYTES_MAX),
                        "{event:?}"
                    );
                    self.any |= event.is_some();
                    return Ok(event);
                }
                Err(Fault::Bad(e)) if skip_bad => skipped.add(&e.in_input(&self.name)),
                Err(Fault::Fatal(e)) if skip_bad && self.any && e.is_damage() => {
                    let e = e.in_input(&self.name);
                    skipped.add(&e);
                    skipped.ended.push(e.to_string());
                    return Ok(None);
                }
                // Where nothing was read, the option would help nobody.
                Err(Fault::Bad(e)) if self.any => {
                    return Err(e.skippable("leaves it out").in_input(&self.name));
                }
                Err(Fault::Fatal(e)) if !skip_bad && self.any && e.is_damage() => {
                    return Err(e.skippable("takes what was read before").in_input(&self.name));
                }
                Err(Fault::Bad(e) | Fault::Fatal(e)) => return Err(e.in_input(&self.name)),
            }
        }
    }
}
