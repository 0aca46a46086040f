//! Pipes for answers that nobody copies, used again: making one takes longer than sending by one.
//!
//! A server has [`PIPES_MAX`] of them at most, whoever holds them: in an answer that a client does not take, a pipe holds
//! two descriptors and references to pages of the volume's file. Who gets none has its read copied.

use std::sync::{Arc, Mutex, PoisonError};

use fs2_store::Pipe;

/// Of a server. 128 descriptors, where a process has 1024 unless told otherwise; eight clients with eight large reads each.
const PIPES_MAX: usize = 64;

/// Bytes in a pipe that is used again. A guess: a head, and a little.
const LEFT_MAX: usize = 4096;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Pipes {
    spare: Mutex<Vec<Pipe>>,
    /// Held by each of them.
    counted: Arc<()>,
}

impl Pipes {
    /// An empty pipe; `None` where there are as many as there may be, or the system gives no more.
    pub(super) fn take(&self) -> Option<Pipe> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = spare.pop() {
            return Some(pipe);
        }
        // Under the lock, so that no two count the same.
        if Arc::strong_count(&self.counted) > PIPES_MAX {
            return None;
        }
        Pipe::new(self.counted.clone()).ok()
    }

    /// Takes a pipe back; what is left in it is dropped.
    pub(super) fn put(&self, mut pipe: Pipe) {
        // One that is full is emptied faster by its end.
        if pipe.len() <= LEFT_MAX && pipe.clear().is_ok() {
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(pipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_and_they_come_back_empty() {
        let pipes = Pipes::default();
        let mut all: Vec<Pipe> = std::iter::from_fn(|| pipes.take()).collect();
        assert!((1..=PIPES_MAX).contains(&all.len()), "fewer where a user may not have so many");
        assert!(pipes.take().is_none());
        all[0].put(b"left").unwrap();
        pipes.put(all.swap_remove(0));
        let again = pipes.take().expect("one came back");
        assert!(again.is_empty() && pipes.take().is_none());
        // One that is dropped is counted no more.
        drop(again);
        assert!(pipes.take().is_some());
        drop(all);
        assert_eq!(Arc::strong_count(&pipes.counted), 1);
    }
}
