//! What a thread has open: slots by number, and those a fileset has in each thread.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Instant;

use super::super::fileset::Pick;
use super::super::model::Op;
use super::failure::{Failure, retried};
use super::{Flow, Worker};

/// What an open file is: the language's slots hold them by number.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) file: Option<Arc<File>>,
    /// Fileset and entry; stays after closing, as in the original: `deletefile` and `srcfd` look at it.
    pub(super) entry: Option<(usize, usize)>,
}

/// Where a flowop's file is.
#[derive(Clone, Copy, Debug)]
pub(super) enum SlotId {
    Fd(usize),
    /// A fileset's own, for flowops that name no slot.
    Default(usize),
    /// One of a fileset's own, in rotation (`opennext`).
    Own(usize, usize),
}

#[derive(Debug, Default)]
pub(super) struct Rotation {
    /// The file it opens next, and the slot it uses next.
    pub(super) entry: usize,
    pub(super) slot: usize,
    pub(super) slots: Vec<Slot>,
    pub(super) default: Slot,
}

impl Worker<'_> {
    pub(super) fn slot_id(&mut self, op: &Op) -> SlotId {
        match op.fileset {
            Some(set) if op.opennext && op.fd == 0 => {
                let files = self.live.sets[set].files().max(1);
                let rotation = self.rotations.entry(set).or_default();
                let slot = rotation.slot % files;
                rotation.slot = slot + 1;
                SlotId::Own(set, slot)
            }
            _ => self.plain_id(op),
        }
    }

    /// As `slot_id`, of flowops that do not rotate.
    pub(super) fn plain_id(&mut self, op: &Op) -> SlotId {
        if op.fd > 0 {
            return SlotId::Fd(op.fd as usize);
        }
        self.last = op.fileset.or(self.last);
        self.last.map_or(SlotId::Fd(0), SlotId::Default)
    }

    pub(super) fn slot(&mut self, id: SlotId) -> &mut Slot {
        let (slots, i) = match id {
            SlotId::Fd(i) => (&mut self.slots, i),
            SlotId::Default(set) => return &mut self.rotations.entry(set).or_default().default,
            SlotId::Own(set, i) => (&mut self.rotations.entry(set).or_default().slots, i),
        };
        if i >= slots.len() {
            slots.resize_with(i + 1, Slot::default);
        }
        &mut slots[i]
    }

    /// The index a flowop picks by: its value times half the entries, as the original has it.
    pub(super) fn index(&mut self, op: &Op, entries: usize) -> Option<usize> {
        let value = op.indexed.as_ref()?.draw_f64(&mut self.rng);
        Some((value * (entries / 2) as f64) as usize % entries.max(1))
    }

    pub(super) fn pick<'b>(own: Option<&'b mut usize>, index: Option<usize>) -> Pick<'b> {
        match (index, own) {
            (Some(i), _) => Pick::Index(i),
            (None, Some(own)) => Pick::Own(own),
            (None, None) => Pick::Next,
        }
    }

    pub(super) fn options(&self, op: &Op, set: usize) -> OpenOptions {
        let spec = &self.live.sets[set].spec;
        let mut flags = 0;
        flags |= if op.dsync { libc::O_SYNC } else { 0 };
        flags |= if op.directio { libc::O_DIRECT } else { 0 };
        let mut options = OpenOptions::new();
        options.read(!spec.writeonly).write(!spec.readonly).custom_flags(flags);
        options
    }

    pub(super) fn advise(&self, op: &Op, file: &File) -> std::result::Result<(), Failure> {
        use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
        if op.noreadahead {
            posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM)
                .map_err(|e| Failure::io("cannot switch off reading ahead", e.into()))?;
        }
        Ok(())
    }

    pub(super) fn open(&mut self, op: &Op, id: SlotId) -> std::result::Result<Flow, Failure> {
        let Some(set) = op.fileset else {
            return Err(Failure::misuse(format!("nothing is open at fd {}, and it names no fileset", op.fd)));
        };
        if self.slot(id).file.is_some() {
            return Err(Failure::misuse(format!("fd {} is open already: close it before", op.fd)));
        }
        let fileset = &self.live.sets[set];
        let index = self.index(op, fileset.files());
        let mut own = self.rotations.get(&set).map_or(0, |r| r.entry);
        let pick = Self::pick(op.opennext.then_some(&mut own), index);
        let Some(entry) = fileset.hold_existing(pick, &self.live.stop) else {
            return Ok(self.none(set, ", all of whose files are deleted or not created yet"));
        };
        if op.opennext {
            self.rotations.entry(set).or_default().entry = own;
        }
        let mut path = std::mem::take(&mut self.path);
        fileset.path(entry, &mut path);
        let options = self.options(op, set);
        let start = Instant::now();
        let opened = retried(|| options.open(&path));
        let flow = self.count(op, start, 0);
        let opened = opened.map_err(|e| Failure::open(op, &path, e)).and_then(|file| {
            self.advise(op, &file)?;
            Ok(file)
        });
        self.path = path;
        match opened {
            Ok(file) => *self.slot(id) = Slot { file: Some(Arc::new(file)), entry: Some((set, entry)) },
            Err(failure) => {
                fileset.release(entry);
                return Err(failure);
            }
        }
        Ok(flow)
    }

    pub(super) fn none(&self, set: usize, why: &'static str) -> Flow {
        if self.live.stop.is_set() { Flow::Stop } else { Flow::NoFile(set, why) }
    }
}
