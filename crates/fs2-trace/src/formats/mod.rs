//! The formats, a module each.
//!
//! A format's reader takes the unpacked bytes, keeps at most a bounded part of them in memory, and
//! gives out events; it does not order, match or move them: `stream` does.

use std::fmt;
use std::str::FromStr;

use crate::error::TraceError;
use crate::event::{Devices, EVENT_BYTES_MAX, Event, Fault, Source};
use crate::input::{BoxRead, LineReader, excerpt};

pub(crate) mod blkparse;
pub(crate) mod blkparse_writer;
mod blkreplay;
pub(crate) mod blktrace;
pub(crate) mod container;
mod disksim;
mod fio;
mod fiu;
mod msr;
mod spc;
pub(crate) mod srt;
pub(crate) mod vscsi;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// The project's own container.
    Container,
    /// blktrace's binary records, versions 7 and 8, of either byte order.
    Blktrace,
    /// blkparse's text, and the shorter `time action rwbs sector sectors pid command`.
    Blkparse,
    /// SPC: `ASU,LBA,bytes,R|W,seconds`.
    Spc,
    /// MSR: `FILETIME,host,disk,Read|Write,offset,bytes,response`.
    Msr,
    /// FIU: `ns pid process LBA sectors R|W major minor md5`.
    Fiu,
    /// DiskSim's ASCII: `ms device block count flags`.
    Disksim,
    /// DiskSim's validation traces: `R|W Hit|Miss block count service_us gap_us`.
    DisksimValidate,
    /// fio's iolog, versions 2 and 3.
    Fio,
    /// blkreplay's .load: `seconds ; sector ; sectors ; R|W ; delay ; duration`.
    Blkreplay,
    /// vscsiStats' 32-byte records.
    Vscsi1,
    /// vscsiStats' 40-byte records with response times.
    Vscsi2,
    /// HP's SRT 1.x.
    Srt,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 13] = [
        Format::Container,
        Format::Blktrace,
        Format::Blkparse,
        Format::Spc,
        Format::Msr,
        Format::Fiu,
        Format::Disksim,
        Format::DisksimValidate,
        Format::Fio,
        Format::Blkreplay,
        Format::Vscsi1,
        Format::Vscsi2,
        Format::Srt,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Container => "container",
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse",
            Format::Spc => "spc",
            Format::Msr => "msr",
            Format::Fiu => "fiu",
            Format::Disksim => "disksim",
            Format::DisksimValidate => "disksim-validate",
            Format::Fio => "fio",
            Format::Blkreplay => "blkreplay",
            Format::Vscsi1 => "vscsi1",
            Format::Vscsi2 => "vscsi2",
            Format::Srt => "srt",
        }
    }

    /// All names, for a message.
    pub(crate) fn names() -> String {
        Format::ALL.map(Format::name).join(", ")
    }

    /// Whether it lists events, so that one of them is to be chosen.
    pub fn has_events(self) -> bool {
        matches!(self, Format::Blktrace | Format::Blkparse)
    }

    /// Whether its times are those of a clock that ran before the trace began.
    pub(crate) fn is_absolute(self) -> bool {
        matches!(self, Format::Blktrace | Format::Msr | Format::Fiu | Format::Vscsi1 | Format::Vscsi2)
    }

    /// What reads its lines, where it is a text.
    pub(crate) fn lines(self) -> Option<Box<dyn Lines>> {
        Some(match self {
            Format::Blkparse => Box::new(blkparse::Blkparse::default()),
            Format::Spc => Box::new(spc::Spc),
            Format::Msr => Box::new(msr::Msr),
            Format::Fiu => Box::new(fiu::Fiu),
            Format::Disksim => Box::new(disksim::Ascii),
            Format::DisksimValidate => Box::new(disksim::Validate::default()),
            Format::Fio => Box::new(fio::Fio::default()),
            Format::Blkreplay => Box::new(blkreplay::Blkreplay::default()),
            Format::Container | Format::Blktrace | Format::Vscsi1 | Format::Vscsi2 | Format::Srt => {
                return None;
            }
        })
    }

    /// What reads an input of it.
    ///
    /// # Errors
    /// Where the first bytes are none of it.
    pub(crate) fn reader(self, input: BoxRead) -> Result<Box<dyn Source>, TraceError> {
        Ok(match self {
            Format::Container => Box::new(container::ContainerSource::new(input)?),
            Format::Blktrace => Box::new(blktrace::Blktrace::new(input)),
            Format::Vscsi1 => Box::new(vscsi::Vscsi::<1>::new(input)),
            Format::Vscsi2 => Box::new(vscsi::Vscsi::<2>::new(input)),
            Format::Srt => Box::new(srt::Srt::new(input)?),
            Format::Blkparse => Box::new(text(input, blkparse::Blkparse::default())),
            Format::Spc => Box::new(text(input, spc::Spc)),
            Format::Msr => Box::new(text(input, msr::Msr)),
            Format::Fiu => Box::new(text(input, fiu::Fiu)),
            Format::Disksim => Box::new(text(input, disksim::Ascii)),
            Format::DisksimValidate => Box::new(text(input, disksim::Validate::default())),
            Format::Fio => Box::new(text(input, fio::Fio::default())),
            Format::Blkreplay => Box::new(text(input, blkreplay::Blkreplay::default())),
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(s: &str) -> Result<Format, String> {
        Format::ALL
            .into_iter()
            .find(|f| f.name() == s)
            .ok_or_else(|| format!("no trace format {s:?}, expected one of: {}", Format::names()))
    }
}

/// Reads a text, a line at a time.
pub(crate) trait Lines: Send {
    /// The event of a line, `None` for one that has none to give (a comment, a header).
    ///
    /// # Errors
    /// What a line should have been.
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Event>, &'static str>;

    /// Nanoseconds from 1970 to time 0 of the trace's clock.
    fn clock_unix_ns(&self) -> Option<i128> {
        None
    }
}

/// The events of a text.
struct TextSource<P> {
    lines: LineReader,
    parser: P,
}

fn text<P: Lines>(input: BoxRead, parser: P) -> TextSource<P> {
    TextSource { lines: LineReader::new(input), parser }
}

impl<P: Lines> Source for TextSource<P> {
    fn next(&mut self, devices: &mut Devices) -> Result<Option<Event>, Fault> {
        loop {
            let Some(line) = self.lines.next()? else { return Ok(None) };
            let event = self.parser.parse(line, devices).and_then(|event| match event {
                // Refused here, where the line is at hand. Records of binary formats have lengths of 32 bits.
                Some(e) if e.extent.len() > EVENT_BYTES_MAX => Err("a request of fewer than 4 GiB"),
                event => Ok(event),
            });
            match event {
                Ok(None) => {}
                Ok(event) => return Ok(event),
                Err(expected) => {
                    let found = excerpt(line);
                    let line = self.lines.line();
                    return Err(Fault::Bad(TraceError::Line { line, found, expected }));
                }
            }
        }
    }

    fn clock_unix_ns(&self) -> Option<i128> {
        self.parser.clock_unix_ns()
    }
}
