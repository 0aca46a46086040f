//! Which format an input has, by its first bytes. `docs/trace-format.md` has the table.

use crate::error::TraceError;
use crate::event::Devices;
use crate::formats::{Format, blktrace, container, srt, vscsi};
use crate::input::excerpt;
use memchr::memchr_iter;

/// Bytes looked at.
pub(crate) const HEAD_BYTES: usize = 64 << 10;
/// Lines looked at: .load files begin with some sixty lines of prose.
const LINES: usize = 256;

/// The format whose first bytes these are.
///
/// # Errors
/// Where it is none, or may be more than one.
pub(crate) fn detect(head: &[u8]) -> Result<Format, TraceError> {
    if head.starts_with(&container::MAGIC) {
        return Ok(Format::Container);
    }
    if blktrace::magic(head).is_some() {
        return Ok(Format::Blktrace);
    }
    if head.starts_with(srt::MAGIC) {
        return Ok(Format::Srt);
    }
    let mut candidates = Vec::new();
    if vscsi::fits(head, 1) {
        candidates.push(Format::Vscsi1);
    }
    if vscsi::fits(head, 2) {
        candidates.push(Format::Vscsi2);
    }
    if candidates.is_empty() {
        candidates = texts(head);
    }
    match candidates[..] {
        [format] => Ok(format),
        [] => Err(TraceError::Unrecognised {
            what: format!("no trace format fits what begins with {:?}", first_line(head)),
        }),
        _ => {
            let names = candidates.iter().map(|f| f.name()).collect::<Vec<_>>().join(" and ");
            Err(TraceError::Unrecognised { what: format!("the format may be {names}") })
        }
    }
}

fn first_line(head: &[u8]) -> String {
    excerpt(head.split(|b| *b == b'\n').next().unwrap_or_default())
}

/// The text formats that read most of the first lines, and more of them than others do.
fn texts(head: &[u8]) -> Vec<Format> {
    let mut lines: Vec<&[u8]> = Vec::new();
    let mut from = 0;
    for end in memchr_iter(b'\n', head).take(LINES) {
        lines.push(&head[from..end]);
        from = end + 1;
    }
    // A last line without an end counts where the input ends with it.
    if lines.len() < LINES && from < head.len() && head.len() < HEAD_BYTES {
        lines.push(&head[from..]);
    }
    let mut best = 0;
    let mut formats = Vec::new();
    for format in Format::ALL {
        let Some(mut parser) = format.lines() else { continue };
        let mut devices = Devices::default();
        let (mut good, mut bad) = (0, 0);
        for line in &lines {
            match parser.parse(line.strip_suffix(b"\r").unwrap_or(line), &mut devices) {
                Ok(Some(_)) => good += 1,
                Ok(None) => {}
                Err(_) => bad += 1,
            }
        }
        // A fio log may begin with hundreds of files; its first line says what it is.
        if format == Format::Fio && head.starts_with(b"fio version ") {
            good = lines.len().max(1);
        }
        if good == 0 || good < bad || good < best {
            continue;
        }
        if good > best {
            formats.clear();
        }
        best = good;
        formats.push(format);
    }
    formats
}
