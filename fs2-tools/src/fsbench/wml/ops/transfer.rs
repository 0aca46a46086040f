//! Reading and writing.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use super::super::buffer::Aligned;
use super::super::model::{Op, OpKind};
use super::super::run::PIECE_BYTES;
use super::failure::{Failure, retried};
use super::slots::SlotId;
use super::{Flow, Worker};

impl Worker<'_> {
    /// The flowop's open file, opened now if it is not: with its working set in bytes, and its entry.
    #[expect(clippy::type_complexity)]
    pub(super) fn file(
        &mut self,
        op: &Op,
    ) -> std::result::Result<std::result::Result<(Arc<File>, u64, Option<(usize, usize)>), Flow>, Failure>
    {
        let id = self.slot_id(op);
        if self.slot(id).file.is_none() {
            match self.open(op, id)? {
                Flow::Next => {}
                flow => return Ok(Err(flow)),
            }
        }
        let slot = self.slot(id);
        let (file, entry) = match &slot.file {
            Some(file) => (file.clone(), slot.entry),
            None => return Ok(Err(Flow::Stop)),
        };
        if let (Some(wanted), Some((set, _))) = (op.fileset, entry)
            && wanted != set
        {
            let sets = &self.live.sets;
            let (has, wants) = (&sets[set].spec.name, &sets[wanted].spec.name);
            let why =
                format!("fd {} has a file of fileset {has} open, not of {wants}: close it before", op.fd);
            return Err(Failure::misuse(why));
        }
        let size = entry.map_or(0, |(set, entry)| self.live.sets[set].size(entry));
        let working_set = if op.working_set > 0 { op.working_set } else { size };
        Ok(Ok((file, working_set, entry)))
    }

    /// A place in a file for `iosize` bytes: a multiple of them, within the working set.
    pub(super) fn offset(&mut self, iosize: u64, working_set: u64) -> std::result::Result<u64, Failure> {
        if iosize > working_set {
            let why = format!(
                "{iosize} bytes at a time are more than the {working_set} of the file or working set"
            );
            return Err(Failure::misuse(why));
        }
        let places = (working_set - iosize) / iosize + 1;
        // The original's last place comes up only where the division leaves nothing over.
        Ok(self.rng.below(places) * iosize)
    }

    /// Where a read of `len` bytes goes: somewhere in the thread's memory, or in a buffer of its own.
    pub(super) fn read_into(&mut self, len: usize) -> &mut [u8] {
        let memory = self.live.model.processes[self.place.0].threads[self.place.1].memory_bytes;
        if len as u64 <= memory {
            let buffer = self.memory.get_or_insert_with(|| Aligned::new(memory as usize));
            let place = buffer.place(len, &mut self.rng);
            return buffer.get_mut(place, len);
        }
        let buffer = match self.spare.take() {
            Some(buffer) if buffer.len() >= len => buffer,
            _ => Aligned::new(len),
        };
        self.spare.insert(buffer).get_mut(0, len)
    }

    pub(super) fn iosize(&mut self, op: &Op) -> std::result::Result<u64, Failure> {
        match op.iosize.draw(&mut self.rng) {
            0 => Err(Failure::misuse("its iosize came out as zero bytes")),
            n if n > PIECE_BYTES => {
                Err(Failure::misuse(format!("{n} bytes at a time; at most {PIECE_BYTES} can be")))
            }
            n => Ok(n),
        }
    }

    pub(super) fn read(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let iosize = self.iosize(op)?;
        let (file, working_set, _) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        let offset = if op.random { Some(self.offset(iosize, working_set)?) } else { None };
        let buffer = self.read_into(iosize as usize);
        let start = Instant::now();
        let read = match offset {
            Some(offset) => retried(|| file.read_at(buffer, offset)),
            None => retried(|| (&*file).read(buffer)),
        };
        let read = read.map_err(|e| Failure::transfer(op, "read", iosize, e))?;
        let flow = self.count(op, start, read as u64);
        if read == 0 {
            (&*file).seek(SeekFrom::Start(0)).map_err(|e| Failure::io("cannot go to a file's start", e))?;
        }
        Ok(flow)
    }

    pub(super) fn read_whole(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let (file, working_set, _) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        let iosize = match op.iosize.draw(&mut self.rng) {
            0 => working_set.max(1),
            n => n,
        };
        let live = self.live.clone();
        let buffer = self.read_into(iosize.min(PIECE_BYTES) as usize);
        let start = Instant::now();
        let mut bytes = 0;
        (&*file).seek(SeekFrom::Start(0)).map_err(|e| Failure::io("cannot go to a file's start", e))?;
        loop {
            let read =
                retried(|| (&*file).read(buffer)).map_err(|e| Failure::transfer(op, "read", iosize, e))?;
            bytes += read as u64;
            if read == 0 || live.stop.is_set() {
                break;
            }
        }
        Ok(self.count(op, start, bytes))
    }

    /// Writes noise, in pieces of at most what there is of it.
    pub(super) fn put(
        &mut self,
        op: &Op,
        len: u64,
        mut to: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> std::result::Result<(), Failure> {
        let noise = self.live.noise.clone();
        let mut left = len as usize;
        while left > 0 {
            let piece = left.min(noise.len());
            let place = noise.place(piece, &mut self.rng);
            to(noise.get(place, piece)).map_err(|e| Failure::transfer(op, "write", len, e))?;
            left -= piece;
        }
        Ok(())
    }

    pub(super) fn written(&self, entry: Option<(usize, usize)>) {
        if let Some((set, entry)) = entry {
            self.live.sets[set].mark_written(entry);
        }
    }

    pub(super) fn write(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let iosize = self.iosize(op)?;
        let (file, working_set, entry) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        let offset = if op.random { Some(self.offset(iosize, working_set)?) } else { None };
        self.written(entry);
        let start = Instant::now();
        match offset {
            Some(mut offset) => self.put(op, iosize, |piece| {
                file.write_all_at(piece, offset)?;
                offset += piece.len() as u64;
                Ok(())
            })?,
            None => self.put(op, iosize, |piece| (&*file).write_all(piece))?,
        }
        Ok(self.count(op, start, iosize))
    }

    pub(super) fn write_whole(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let (file, working_set, entry) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        let source = match op.srcfd {
            0 => None,
            fd => self.slot(SlotId::Fd(fd as usize)).entry,
        };
        let size = match source {
            Some((set, entry)) => self.live.sets[set].size(entry),
            None if op.srcfd > 0 => {
                return Err(Failure::misuse(format!("fd {} (srcfd) had no file", op.srcfd)));
            }
            None => working_set,
        };
        let iosize = match op.iosize.draw(&mut self.rng) {
            0 => size.max(1),
            n => n,
        };
        self.written(entry);
        let start = Instant::now();
        let mut left = size;
        while left > 0 && !self.live.stop.is_set() {
            let piece = left.min(iosize);
            self.put(op, piece, |piece| (&*file).write_all(piece))?;
            left -= piece;
        }
        Ok(self.count(op, start, size))
    }

    pub(super) fn append(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let mut iosize = self.iosize(op)?;
        if op.kind == OpKind::AppendFileRand {
            iosize = self.rng.below(iosize) + 1;
        }
        let (file, _, entry) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        self.written(entry);
        let start = Instant::now();
        (&*file).seek(SeekFrom::End(0)).map_err(|e| Failure::io("cannot go to a file's end", e))?;
        self.put(op, iosize, |piece| (&*file).write_all(piece))?;
        Ok(self.count(op, start, iosize))
    }

    pub(super) fn aio_write(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let iosize = self.iosize(op)?;
        let (file, working_set, entry) = match self.file(op)? {
            Ok(found) => found,
            Err(flow) => return Ok(flow),
        };
        let offset = self.offset(iosize, working_set)?;
        self.written(entry);
        let noise = self.live.noise.clone();
        let len = (iosize as usize).min(noise.len());
        let start = Instant::now();
        let mut done = 0;
        while done < iosize {
            let piece = len.min((iosize - done) as usize);
            let place = noise.place(piece, &mut self.rng);
            self.pool
                .submit(&file, &noise, place, piece, offset + done, &self.outstanding, &self.live.stop)
                .map_err(|e| Failure::transfer(op, "write", iosize, e))?;
            done += piece as u64;
        }
        Ok(self.count(op, start, iosize))
    }

    pub(super) fn aio_wait(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let start = Instant::now();
        self.outstanding
            .wait_for_half(&self.live.stop)
            .map_err(|e| Failure::io("an asynchronous write failed", e))?;
        Ok(self.count(op, start, 0))
    }
}
