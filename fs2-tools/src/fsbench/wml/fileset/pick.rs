//! Which entry a flowop works on, and who has it meanwhile.

use std::sync::PoisonError;

use super::super::gates::{Stop, lock};
use super::{Deletion, FileSet, Pick, State};

impl FileSet {
    /// An existing entry, now held; `None` when there is none and nobody is creating one.
    pub(in super::super) fn hold_existing(&self, pick: Pick, stop: &Stop) -> Option<usize> {
        let mut state = lock(&self.state);
        loop {
            if state.there.len() > 0 {
                let entry = state.existing(pick)?;
                state.held[entry] += 1;
                return Some(entry);
            }
            if state.creating == 0 || stop.is_set() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends what `hold_existing` or a creation began.
    pub(in super::super) fn release(&self, entry: usize) {
        let mut state = lock(&self.state);
        state.held[entry] = state.held[entry].saturating_sub(1);
    }

    /// An entry that does not exist, for the caller to create; `None` when all exist and nobody is deleting one.
    pub(in super::super) fn begin_creation(&self, pick: Pick, stop: &Stop) -> Option<usize> {
        let mut state = lock(&self.state);
        loop {
            let from = match &pick {
                Pick::Index(i) => *i,
                _ => state.absent_rotor,
            };
            if let Some(entry) = state.absent.next_round(from) {
                if !matches!(pick, Pick::Index(_)) {
                    state.absent_rotor = entry + 1;
                }
                state.absent.remove(entry);
                state.creating += 1;
                return Some(entry);
            }
            if state.deleting == 0 || stop.is_set() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The creation succeeded, and the entry is held; or it failed.
    pub(in super::super) fn end_creation(&self, entry: usize, exists: bool) {
        let mut state = lock(&self.state);
        state.creating -= 1;
        if exists {
            self.mark_written(entry);
            state.there.insert(entry);
            state.held[entry] = 1;
        } else {
            state.absent.insert(entry);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Picks an entry to delete, or takes the one given, of which the caller may hold one hold itself.
    pub(in super::super) fn begin_deletion(
        &self,
        which: Result<Pick, (usize, bool)>,
        stop: &Stop,
    ) -> Deletion {
        let mut state = lock(&self.state);
        let (entry, mine) = match which {
            Err((entry, mine)) => (entry, u32::from(mine)),
            Ok(pick) => {
                while state.there.len() == 0 {
                    if state.creating == 0 || stop.is_set() {
                        return Deletion::None;
                    }
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                let by_index = matches!(pick, Pick::Index(_));
                let Some(first) = state.existing(pick) else { return Deletion::None };
                let mut entry = first;
                // Open ones are passed over: if they were left, they would add up until none can be created.
                while state.held[entry] > 0 {
                    entry = state.there.next_round(entry + 1).unwrap_or(first);
                    if entry == first {
                        return Deletion::InUse;
                    }
                }
                if !by_index && entry != first {
                    state.rotor = entry + 1;
                }
                (entry, 0)
            }
        };
        // Gone or going already: by another thread that had it open before.
        if !state.there.contains(entry) || state.held[entry] > mine {
            return Deletion::InUse;
        }
        state.there.remove(entry);
        state.held[entry] = 0;
        state.deleting += 1;
        Deletion::Of(entry)
    }

    pub(in super::super) fn end_deletion(&self, entry: usize, gone: bool) {
        let mut state = lock(&self.state);
        state.deleting -= 1;
        if gone {
            state.absent.insert(entry);
        } else {
            state.there.insert(entry);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A leaf directory to make (`exists` false) or remove; the caller says what became of it.
    pub(in super::super) fn take_leafdir(&self, exists: bool, index: Option<usize>) -> Option<usize> {
        let state = &mut *lock(&self.state);
        let (set, rotor) = if exists {
            (&mut state.leaf_there, &mut state.leaf_rotor)
        } else {
            (&mut state.leaf_absent, &mut state.leaf_absent_rotor)
        };
        let leafdir = set.next_round(index.unwrap_or(*rotor))?;
        if index.is_none() {
            *rotor = leafdir + 1;
        }
        set.remove(leafdir);
        Some(leafdir)
    }

    pub(in super::super) fn put_leafdir(&self, leafdir: usize, exists: bool) {
        let mut state = lock(&self.state);
        if exists { state.leaf_there.insert(leafdir) } else { state.leaf_absent.insert(leafdir) }
    }

    /// The next directory in turn; all of them exist.
    pub(in super::super) fn next_dir(&self) -> usize {
        let mut state = lock(&self.state);
        let dir = state.dir_rotor % self.dirs.len();
        state.dir_rotor = dir + 1;
        dir
    }

    /// After the end was set: everyone who waits looks at it.
    pub(in super::super) fn end(&self) {
        let _state = lock(&self.state);
        self.changed.notify_all();
    }
}

impl State {
    /// The entry picked among those that exist, of which there is one.
    fn existing(&mut self, pick: Pick) -> Option<usize> {
        let rotor = match pick {
            Pick::Index(i) => return self.there.next_round(i),
            Pick::Own(own) => own,
            Pick::Next => &mut self.rotor,
        };
        let entry = self.there.next_round(*rotor)?;
        *rotor = entry + 1;
        Some(entry)
    }
}
