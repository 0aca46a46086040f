//! How much has to wait for a pause to be begun with.
//!
//! Whoever comes next pays for the way to the copies and back, and for what the drive no longer reads ahead, however much was written there. So
//! what was captured waits in the log until it is worth that, or until the volume rests; once begun, all of it is copied, in as many pauses
//! as that takes.

use crate::log::Log;

/// So much has to wait. Measured (docs/experiments.md, item 2): on made-up mixtures and real traces' repeats 512 KiB is alike, and a web server that
/// hardly pauses copies less than half in its first pass by that.
const BATCH_BYTES: usize = 256 << 10;

/// No more than this part of the log: what comes meanwhile has to find room. Guess.
const LOG_SHARE: usize = 4;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Batches {
    begun: bool,
}

impl Batches {
    /// Whether too little waits.
    pub(super) fn too_few(&self, log: &Log, block_bytes: u32) -> bool {
        !self.begun && !Batches::enough(log, block_bytes)
    }

    fn enough(log: &Log, block_bytes: u32) -> bool {
        let bytes = BATCH_BYTES.min(log.bytes_max() / LOG_SHARE);
        log.waiting() * block_bytes as usize >= bytes
    }

    /// It is copied now, if it is enough.
    pub(super) fn copied(&mut self, log: &Log, block_bytes: u32) {
        self.begun |= Batches::enough(log, block_bytes);
    }

    /// A read came: whatever had begun may have ended.
    pub(super) fn came(&mut self, log: &Log) {
        self.begun &= log.has_work();
    }
}

#[cfg(test)]
mod tests {
    use fs2_block::BlockNo;

    use super::*;

    const BLOCK: u32 = 4096;

    fn push(log: &mut Log, blocks: std::ops::Range<u32>) {
        let run = log.open();
        blocks.for_each(|b| assert!(log.push(run, BlockNo(b), 0, &[0; BLOCK as usize])));
        log.close(run);
    }

    #[test]
    fn what_waits_is_copied_when_it_is_enough_until_nothing_is_left() {
        let (mut batches, mut log) = (Batches::default(), Log::new(64 << 20));
        push(&mut log, 0..63);
        batches.copied(&log, BLOCK);
        assert!(batches.too_few(&log, BLOCK));
        push(&mut log, 63..64);
        assert!(!batches.too_few(&log, BLOCK));
        // In a pause that has time for half of it; then somebody reads.
        batches.copied(&log, BLOCK);
        log.take(32);
        batches.came(&log);
        assert!(!batches.too_few(&log, BLOCK));
        log.take(32);
        batches.came(&log);
        push(&mut log, 64..65);
        assert!(batches.too_few(&log, BLOCK));
        // Four times as many where blocks are a quarter.
        push(&mut log, 65..192);
        assert!(batches.too_few(&log, 1024) && !batches.too_few(&log, BLOCK));
    }

    #[test]
    fn a_small_log_need_not_be_full() {
        let (batches, mut log) = (Batches::default(), Log::new(64 << 10));
        push(&mut log, 0..3);
        assert!(batches.too_few(&log, BLOCK));
        push(&mut log, 3..4);
        assert!(!batches.too_few(&log, BLOCK));
    }
}
