//! Files as a whole: made, closed, deleted, asked about, written out.

use std::fs::{self, File};
use std::sync::Arc;
use std::time::Instant;

use super::super::fileset::{Deletion, open_creating};
use super::super::model::Op;
use super::failure::{Failure, retried};
use super::slots::{Slot, SlotId};
use super::{Flow, Worker};

impl Worker<'_> {
    pub(super) fn create(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let id = self.plain_id(op);
        let Some(set) = op.fileset else { return Err(Failure::misuse("it names no fileset")) };
        if self.slot(id).file.is_some() {
            return Err(Failure::misuse(format!("fd {} is open already: close it before", op.fd)));
        }
        let fileset = &self.live.sets[set];
        let index = self.index(op, fileset.files());
        let Some(entry) = fileset.begin_creation(Self::pick(None, index), &self.live.stop) else {
            return Ok(self.none(set, ", all of whose files exist"));
        };
        let mut path = std::mem::take(&mut self.path);
        fileset.path(entry, &mut path);
        let mut options = self.options(op, set);
        // The standard library creates only what may be written.
        options.write(true);
        let start = Instant::now();
        let created = retried(|| open_creating(&mut options, &path));
        let flow = self.count(op, start, 0);
        let created = created.map_err(|e| Failure::open(op, &path, e));
        self.path = path;
        fileset.end_creation(entry, created.is_ok());
        *self.slot(id) = Slot { file: Some(Arc::new(created?)), entry: Some((set, entry)) };
        Ok(flow)
    }

    pub(super) fn close(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let id = self.plain_id(op);
        let slot = self.slot(id);
        let (Some(file), entry) = (slot.file.take(), slot.entry) else {
            return Err(Failure::misuse(format!("fd {} is not open", op.fd)));
        };
        let start = Instant::now();
        drop(file);
        let flow = self.count(op, start, 0);
        if let Some((set, entry)) = entry {
            self.live.sets[set].release(entry);
        }
        Ok(flow)
    }

    pub(super) fn delete(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let live = self.live;
        let id = SlotId::Fd(op.fd as usize);
        let slot = self.slot(id);
        let given = slot.entry.filter(|_| op.fd > 0);
        let mine = slot.file.is_some();
        if given.is_some() {
            slot.entry = None;
        }
        let (set, deletion) = match (given, op.fileset) {
            (Some((set, entry)), _) => {
                let deletion = live.sets[set].begin_deletion(Err((entry, mine)), &live.stop);
                if mine && deletion == Deletion::InUse {
                    // Still open here: closing it has to give its hold back.
                    self.slot(id).entry = given;
                }
                (set, deletion)
            }
            (None, Some(set)) => {
                let index = self.index(op, live.sets[set].files());
                (set, live.sets[set].begin_deletion(Ok(Self::pick(None, index)), &live.stop))
            }
            (None, None) => return Err(Failure::misuse("it names no fileset, and its fd had no file")),
        };
        let entry = match deletion {
            Deletion::Of(entry) => entry,
            Deletion::InUse => return Ok(Flow::Next),
            Deletion::None => {
                return Ok(self.none(set, ", all of whose files are deleted or not created yet"));
            }
        };
        let fileset = &live.sets[set];
        let mut path = std::mem::take(&mut self.path);
        fileset.path(entry, &mut path);
        let start = Instant::now();
        let removed = fs::remove_file(&path);
        let flow = self.count(op, start, 0);
        fileset.end_deletion(entry, removed.is_ok());
        let failed = removed.map_err(|e| Failure::io(format!("cannot delete {}", path.display()), e));
        self.path = path;
        failed.map(|()| flow)
    }

    pub(super) fn stat(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        if op.fd > 0
            && let Some(file) = self.slot(SlotId::Fd(op.fd as usize)).file.clone()
        {
            let start = Instant::now();
            file.metadata().map_err(|e| Failure::io("cannot stat an open file", e))?;
            return Ok(self.count(op, start, 0));
        }
        let Some(set) = op.fileset else {
            return Err(Failure::misuse("it names no fileset, and its fd is not open"));
        };
        let fileset = &self.live.sets[set];
        let index = self.index(op, fileset.files());
        let Some(entry) = fileset.hold_existing(Self::pick(None, index), &self.live.stop) else {
            return Ok(self.none(set, ", all of whose files are deleted or not created yet"));
        };
        fileset.path(entry, &mut self.path);
        let start = Instant::now();
        let found = self.path.symlink_metadata();
        let flow = self.count(op, start, 0);
        fileset.release(entry);
        found.map_err(|e| Failure::io(format!("cannot stat {}", self.path.display()), e)).map(|_| flow)
    }

    pub(super) fn fsync(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let id = self.plain_id(op);
        let Some(file) = self.slot(id).file.clone() else {
            return Err(Failure::misuse(format!("fd {} is not open", op.fd)));
        };
        let start = Instant::now();
        retried(|| file.sync_all()).map_err(|e| Failure::io("fsync", e))?;
        Ok(self.count(op, start, 0))
    }

    pub(super) fn fsync_set(&mut self, op: &Op) -> std::result::Result<Flow, Failure> {
        let of_set = |slot: &&Slot| slot.entry.is_some_and(|(set, _)| Some(set) == op.fileset);
        let own = self.rotations.values().flat_map(|r| r.slots.iter().chain([&r.default]));
        let slots = self.slots.iter().chain(own);
        let files: Vec<Arc<File>> = slots.filter(of_set).filter_map(|slot| slot.file.clone()).collect();
        for file in files {
            let start = Instant::now();
            retried(|| file.sync_all()).map_err(|e| Failure::io("fsync", e))?;
            if let Flow::Stop = self.count(op, start, 0) {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Next)
    }
}
