//! What was written, in the on-disk format of the kernel's dm-log-writes target, so that `replay-log` of
//! xfstests can rebuild every state in between: a writer, a store that writes as it goes, a replay of our own.
//!
//! L1: an entry comes after every change that had completed when its own change completed.
//! L2: a flush's entry stands where the flush was issued: what is before it is what it covers. Until the
//!     flush has succeeded that entry is a mark without text.
//! L3: the number of entries in the superblock is never more than there are whole entries in the file.
//!
//! ```text
//!  sector 0          magic u64, version u64 = 1, entries u64, sector size u32; all little-endian
//!  each entry        one sector: first sector u64, sectors u64, flags u64, data length u64, then a mark's text
//!                    and zeroes; after it the data, unless it is a discard
//! ```
//! Source: `drivers/md/dm-log-writes.c` of Linux, `src/log-writes` of xfstests. Sectors here have 512 bytes.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fs2_block::SECTOR_BYTES;

use crate::Store;
use crate::record::{EventKind, Recording};
use crate::store::check_range;

/// `jsfwshr` read as a number.
const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
const METADATA: u64 = 16;
const SECTOR: usize = SECTOR_BYTES as usize;
/// Bytes of an entry's fields.
const FIELDS: usize = 32;
/// Zeroes are logged as data of at most this many bytes an entry: the format knows no other way.
const ZEROES_MAX: u64 = 1 << 20;

/// Writes a log. What is not aligned to sectors must be widened first: the format knows whole ones only.
pub struct LogWriter<F> {
    to: F,
    end: u64,
    entries: u64,
}

/// Where a flush's entry stands, from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushEntry(u64);

impl<F: Write + Seek> LogWriter<F> {
    /// An empty log at the beginning of `to`.
    ///
    /// # Errors
    /// What `to` says.
    pub fn new(to: F) -> io::Result<LogWriter<F>> {
        let mut log = LogWriter { to, end: SECTOR_BYTES, entries: 0 };
        log.sync()?;
        Ok(log)
    }

    /// A write of whole sectors from byte `offset`.
    ///
    /// # Errors
    /// What the file says; `InvalidInput` where these are not whole sectors.
    pub fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        let sectors = whole(offset, bytes.len() as u64)?;
        if sectors == 0 {
            return Ok(());
        }
        let flags = if fua { FUA } else { 0 };
        self.entry(offset / SECTOR_BYTES, sectors, flags, bytes.len() as u64, &[])?;
        self.to.write_all(bytes)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Zeroes over whole sectors.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        whole(offset, len)?;
        let zeroes = vec![0; len.min(ZEROES_MAX) as usize];
        let mut at = 0;
        while at < len {
            let n = (len - at).min(ZEROES_MAX);
            self.write(offset + at, &zeroes[..n as usize], false)?;
            at += n;
        }
        Ok(())
    }

    /// A discard of whole sectors.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn discard(&mut self, offset: u64, len: u64) -> io::Result<()> {
        match whole(offset, len)? {
            0 => Ok(()),
            sectors => self.entry(offset / SECTOR_BYTES, sectors, DISCARD, 0, &[]),
        }
    }

    /// A remark; what goes beyond a sector is cut off.
    ///
    /// # Errors
    /// What the file says.
    pub fn mark(&mut self, text: &str) -> io::Result<()> {
        // The kernel's readers expect a zero behind it.
        let text = &text.as_bytes()[..text.len().min(SECTOR - FIELDS - 1)];
        self.entry(0, 0, MARK, text.len() as u64, text)
    }

    /// A flush begins (L2).
    ///
    /// # Errors
    /// What the file says.
    pub fn flush_begins(&mut self) -> io::Result<FlushEntry> {
        let at = self.end;
        self.mark("")?;
        Ok(FlushEntry(at))
    }

    /// It has succeeded.
    ///
    /// # Errors
    /// What the file says.
    pub fn flush_done(&mut self, entry: FlushEntry) -> io::Result<()> {
        self.to.seek(SeekFrom::Start(entry.0 + 16))?;
        self.to.write_all(&FLUSH.to_le_bytes())?;
        self.sync()
    }

    /// Writes the superblock, so that readers find what is there by now.
    ///
    /// # Errors
    /// What the file says.
    pub fn sync(&mut self) -> io::Result<()> {
        // L3: the entries first.
        self.to.flush()?;
        let mut sector = [0; SECTOR];
        sector[..8].copy_from_slice(&MAGIC.to_le_bytes());
        sector[8..16].copy_from_slice(&VERSION.to_le_bytes());
        sector[16..24].copy_from_slice(&self.entries.to_le_bytes());
        sector[24..28].copy_from_slice(&(SECTOR as u32).to_le_bytes());
        self.to.seek(SeekFrom::Start(0))?;
        self.to.write_all(&sector)?;
        self.to.flush()?;
        self.to.seek(SeekFrom::Start(self.end))?;
        Ok(())
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    fn entry(&mut self, first: u64, sectors: u64, flags: u64, len: u64, text: &[u8]) -> io::Result<()> {
        let mut sector = [0; SECTOR];
        for (to, field) in sector.chunks_exact_mut(8).zip([first, sectors, flags, len]) {
            to.copy_from_slice(&field.to_le_bytes());
        }
        sector[FIELDS..FIELDS + text.len()].copy_from_slice(text);
        self.to.write_all(&sector)?;
        self.end += SECTOR_BYTES;
        self.entries += 1;
        Ok(())
    }
}

/// How many sectors these are.
fn whole(offset: u64, len: u64) -> io::Result<u64> {
    if offset.is_multiple_of(SECTOR_BYTES) && len.is_multiple_of(SECTOR_BYTES) {
        return Ok(len / SECTOR_BYTES);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("bytes {offset}+{len} are not whole sectors")))
}

impl Recording {
    /// Writes everything that was acknowledged as a log, in order of completion (L2: a flush where it was
    /// issued). What failed, or never ended, is left out. Says how many entries it has.
    ///
    /// # Errors
    /// What `to` says; `InvalidInput` where something recorded was not of whole sectors.
    pub fn write_log(&self, to: impl Write + Seek) -> io::Result<u64> {
        let mut log = LogWriter::new(to)?;
        let events = self.events();
        for at in 0..=events.len() {
            let here = |e: &&crate::Event| e.kind == EventKind::Flush && e.issued_after == at;
            for _ in events.iter().filter(here) {
                let entry = log.flush_begins()?;
                log.flush_done(entry)?;
            }
            let Some(event) = events.get(at).filter(|e| e.acknowledged) else { continue };
            match &event.kind {
                EventKind::Write { offset, bytes, fua } => log.write(*offset, bytes, *fua)?,
                EventKind::WriteZeroes(e) => log.zeroes(e.offset(), e.len())?,
                EventKind::Discard(e) => log.discard(e.offset(), e.len())?,
                EventKind::Mark(text) => log.mark(text)?,
                EventKind::Flush => {}
            }
        }
        log.sync()?;
        Ok(log.entries())
    }
}

/// A store that logs each change once it has completed. What is not of whole sectors is logged with the rest
/// of its sectors as they are below. Where the log cannot be written it ends; the store goes on.
pub struct LogStore<S, F> {
    inner: S,
    log: Mutex<Log<F>>,
}

struct Log<F> {
    writer: Option<LogWriter<F>>,
    failed: Option<io::Error>,
}

impl<S: Store, F: Write + Seek + Send> LogStore<S, F> {
    /// Logs what happens to `inner` from now on. What it holds now is not part of the log.
    ///
    /// # Errors
    /// What `to` says.
    pub fn new(inner: S, to: F) -> io::Result<LogStore<S, F>> {
        let writer = Some(LogWriter::new(to)?);
        Ok(LogStore { inner, log: Mutex::new(Log { writer, failed: None }) })
    }

    /// A remark among the entries.
    pub fn mark(&self, text: &str) {
        self.append(|log| log.mark(text));
    }

    /// Brings the log's superblock up to date and says how many entries there are.
    ///
    /// # Errors
    /// Why the log ended early.
    pub fn sync(&self) -> io::Result<u64> {
        self.append(LogWriter::sync);
        let mut log = self.log();
        match (log.failed.take(), &log.writer) {
            (None, Some(writer)) => Ok(writer.entries()),
            (failed, _) => Err(failed.unwrap_or_else(|| io::Error::other("the log ended early"))),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log<F>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append<T>(&self, f: impl FnOnce(&mut LogWriter<F>) -> io::Result<T>) -> Option<T> {
        let mut log = self.log();
        let result = f(log.writer.as_mut()?);
        match result {
            Ok(value) => Some(value),
            Err(e) => {
                tracing::warn!("the log of writes ends here: {e}");
                *log = Log { writer: None, failed: Some(e) };
                None
            }
        }
    }

    /// Logs what the whole sectors around a change hold now.
    fn append_below(&self, offset: u64, len: u64, fua: bool) {
        let start = offset / SECTOR_BYTES * SECTOR_BYTES;
        let end = (offset + len).next_multiple_of(SECTOR_BYTES);
        let mut bytes = vec![0; (end - start) as usize];
        let there = (self.size_bytes().min(end) - start) as usize;
        let read = self.inner.read_at(start, &mut bytes[..there]);
        self.append(|log| read.and_then(|()| log.write(start, &bytes, fua)));
    }
}

impl<S: Store, F: Write + Seek + Send> Store for LogStore<S, F> {
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
        self.inner.write_at(offset, buf, fua)?;
        match whole(offset, buf.len() as u64) {
            Ok(_) => drop(self.append(|log| log.write(offset, buf, fua))),
            Err(_) => self.append_below(offset, buf.len() as u64, fua),
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        self.inner.write_zeroes(offset, len, no_hole)?;
        match whole(offset, len) {
            Ok(_) => drop(self.append(|log| log.zeroes(offset, len))),
            Err(_) => self.append_below(offset, len, false),
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.size_bytes(), offset, len)?;
        self.inner.discard(offset, len)?;
        let start = offset.next_multiple_of(SECTOR_BYTES);
        let end = (offset + len) / SECTOR_BYTES * SECTOR_BYTES;
        self.append(|log| log.discard(start, end.saturating_sub(start)));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let entry = self.append(LogWriter::flush_begins);
        self.inner.flush()?;
        if let Some(entry) = entry {
            self.append(|log| log.flush_done(entry));
        }
        Ok(())
    }
}

/// What a replay met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Entries done.
    pub entries: u64,
    /// Of these, writes.
    pub writes: u64,
    /// Discards.
    pub discards: u64,
    /// Flushes, a write's own included.
    pub flushes: u64,
    /// Marks.
    pub marks: u64,
}

/// Does to `onto` what a log says, at most `limit` entries of it. Discarded bytes are left as they are.
///
/// # Errors
/// `InvalidData` for anything that is no log, or one whose sectors do not fit; what either side says.
pub fn replay_log(log: &mut dyn Read, onto: &dyn Store, limit: u64) -> io::Result<Replayed> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut first = [0; SECTOR];
    log.read_exact(&mut first)?;
    let field = |sector: &[u8], at: usize| -> u64 {
        sector[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
    };
    if field(&first, 0) != MAGIC || field(&first, 8) != VERSION {
        return Err(wrong("this is no log of dm-log-writes, version 1".into()));
    }
    let unit = field(&first, 24) & 0xffff_ffff;
    if !(SECTOR_BYTES..=1 << 16).contains(&unit) || !unit.is_power_of_two() {
        return Err(wrong(format!("sectors of {unit} bytes")));
    }
    // What is left of a larger superblock sector.
    let mut sector = vec![0; unit as usize];
    log.read_exact(&mut sector[SECTOR..])?;
    let mut done = Replayed::default();
    let mut piece = vec![0; ZEROES_MAX as usize];
    for number in 0..field(&first, 16).min(limit) {
        log.read_exact(&mut sector)?;
        let [start, sectors, flags] = [0, 8, 16].map(|at| field(&sector, at));
        if flags & !(FLUSH | FUA | DISCARD | MARK | METADATA) != 0 || (flags == 0 && sectors == 0) {
            return Err(wrong(format!("entry {number} has flags {flags:#x} and {sectors} sectors")));
        }
        let range = start.checked_mul(unit).zip(sectors.checked_mul(unit));
        let (offset, len) = range.ok_or_else(|| wrong(format!("entry {number} is for sector {start}")))?;
        // The last sector of a store may be there in part.
        let fits = offset.checked_add(len).is_some_and(|end| end < onto.size_bytes() + unit);
        if !fits {
            return Err(wrong(format!("entry {number}, sectors {start}+{sectors}, is beyond the end")));
        }
        done.entries += 1;
        done.marks += u64::from(flags & MARK != 0);
        done.flushes += u64::from(flags & (FLUSH | FUA) != 0);
        if flags & DISCARD != 0 {
            done.discards += 1;
            continue;
        }
        done.writes += u64::from(len > 0);
        let mut at = 0;
        while at < len {
            let n = (len - at).min(ZEROES_MAX) as usize;
            log.read_exact(&mut piece[..n])?;
            let there = n.min((onto.size_bytes().saturating_sub(offset + at)) as usize);
            onto.write_at(offset + at, &piece[..there], false)?;
            at += n as u64;
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
