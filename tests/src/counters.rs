//! The oracle of write counters: each block carries its own number and how often it was written. Whoever reads it,
//! also after a kill, may find any count from the last that was answered to the last that was sent; anything
//! else is a lost write, a stale copy or somebody else's block.

use std::sync::Mutex;

/// Bytes of a block.
pub const BLOCK: usize = 4096;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    flushed: u64,
    answered: u64,
    sent: u64,
}

/// The blocks of one volume that its writers count.
#[derive(Debug)]
pub struct Counters {
    blocks: Vec<u64>,
    counts: Mutex<Vec<Count>>,
}

/// What a block of `number` holds when it was written `count` times.
pub fn stamped(number: u64, count: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK);
    while bytes.len() < BLOCK {
        bytes.extend(number.to_le_bytes());
        bytes.extend(count.to_le_bytes());
    }
    bytes
}

/// The count in a block of `number`; what is wrong with it else.
///
/// # Errors
/// It holds another block, or parts of several counts.
pub fn count_in(number: u64, bytes: &[u8]) -> Result<u64, String> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (whose, count) = (word(0), word(8));
    if whose != number {
        return Err(format!("block {number} holds what is block {whose}'s, count {count}"));
    }
    if bytes != stamped(number, count) {
        return Err(format!("block {number} begins with count {count} and is torn"));
    }
    Ok(count)
}

impl Counters {
    /// For these blocks of the volume, all written once.
    pub fn new(blocks: Vec<u64>) -> Counters {
        let counts = vec![Count { flushed: 1, answered: 1, sent: 1 }; blocks.len()];
        Counters { blocks, counts: Mutex::new(counts) }
    }

    /// How many blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block's number on the volume.
    pub fn block(&self, i: usize) -> u64 {
        self.blocks[i]
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Count>> {
        self.counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A write is about to be sent: its bytes.
    pub fn send(&self, i: usize) -> Vec<u8> {
        let mut counts = self.lock();
        counts[i].sent += 1;
        stamped(self.blocks[i], counts[i].sent)
    }

    /// The last write that was sent was answered.
    pub fn answered(&self, i: usize) {
        let mut counts = self.lock();
        counts[i].answered = counts[i].sent;
    }

    /// What was answered so far, for [`Counters::flushed`].
    pub fn before_flush(&self) -> Vec<u64> {
        self.lock().iter().map(|c| c.answered).collect()
    }

    /// A flush that was sent at `before` was answered.
    pub fn flushed(&self, before: &[u64]) {
        for (count, &answered) in self.lock().iter_mut().zip(before) {
            count.flushed = count.flushed.max(answered);
        }
    }

    /// The least that a read sent now may bring.
    pub fn least(&self, i: usize) -> u64 {
        self.lock()[i].answered
    }

    /// Judges what a read brought that was sent when `least` was the least.
    ///
    /// # Errors
    /// What is wrong, with the numbers.
    pub fn judge(&self, i: usize, least: u64, bytes: &[u8]) -> Result<u64, String> {
        let found = count_in(self.blocks[i], bytes)?;
        let c = self.lock()[i];
        if found < least || found > c.sent {
            return Err(format!(
                "block {} has count {found}: flushed {}, answered {}, at least {least}, sent {}",
                self.blocks[i], c.flushed, c.answered, c.sent
            ));
        }
        Ok(found)
    }

    /// After a kill, `bytes` are what the block holds: judged, and from now on all there is. Whether a write
    /// that was never answered is there.
    ///
    /// # Errors
    /// What is wrong, with the numbers.
    pub fn settle(&self, i: usize, bytes: &[u8]) -> Result<bool, String> {
        let least = self.least(i);
        let found = self.judge(i, least, bytes)?;
        self.lock()[i] = Count { flushed: found, answered: found, sent: found };
        Ok(found > least)
    }

    /// Writes under way: sent and not answered.
    pub fn under_way(&self) -> usize {
        self.lock().iter().filter(|c| c.sent > c.answered).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_can_fail() {
        let c = Counters::new(vec![7, 9]);
        let write = c.send(0);
        assert_eq!(c.under_way(), 1);
        // Either is legal while it is under way.
        assert_eq!(c.judge(0, c.least(0), &write), Ok(2));
        assert_eq!(c.judge(0, c.least(0), &stamped(7, 1)), Ok(1));
        c.answered(0);
        // Lost, from the future, another block's, torn.
        assert!(c.judge(0, c.least(0), &stamped(7, 1)).is_err());
        assert!(c.judge(0, c.least(0), &stamped(7, 3)).is_err());
        assert!(c.judge(0, c.least(0), &stamped(9, 2)).is_err());
        let torn = [&stamped(7, 2)[..2048], &stamped(7, 1)[..2048]].concat();
        assert!(c.judge(0, c.least(0), &torn).is_err());
        // A write that was never answered may be there after a kill, and then stays.
        let last = c.send(0);
        assert_eq!(c.settle(0, &last), Ok(true));
        assert!(c.judge(0, c.least(0), &stamped(7, 2)).is_err());
    }
}
