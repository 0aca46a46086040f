//! A set of small numbers that finds the next one from a place in a few steps, however sparse it is: rotation over
//! the files of a set of millions.

/// Bits in levels: a bit of a level says that a word of the level below is not zero.
#[derive(Clone, Debug)]
pub(super) struct IndexSet {
    levels: Vec<Vec<u64>>,
    count: usize,
}

impl IndexSet {
    /// Empty, for numbers below `size`.
    pub(super) fn new(size: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = size.div_ceil(64).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels, count: 0 };
            }
            words = words.div_ceil(64);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn contains(&self, i: usize) -> bool {
        self.levels[0][i / 64] >> (i % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, i: usize) {
        if self.contains(i) {
            return;
        }
        self.count += 1;
        let mut i = i;
        for level in &mut self.levels {
            level[i / 64] |= 1 << (i % 64);
            i /= 64;
        }
    }

    pub(super) fn remove(&mut self, i: usize) {
        if !self.contains(i) {
            return;
        }
        self.count -= 1;
        let mut i = i;
        for level in &mut self.levels {
            level[i / 64] &= !(1 << (i % 64));
            if level[i / 64] != 0 {
                return;
            }
            i /= 64;
        }
    }

    /// The least member from `i` on.
    fn next(&self, i: usize) -> Option<usize> {
        let (mut level, mut i) = (0, i);
        loop {
            let found = self.levels[level].get(i / 64).map(|w| w & u64::MAX << (i % 64)).filter(|w| *w != 0);
            if let Some(word) = found {
                i = i / 64 * 64 + word.trailing_zeros() as usize;
                if level == 0 {
                    return Some(i);
                }
                // Down again, to the first below.
                level -= 1;
                i *= 64;
            } else {
                level += 1;
                if level == self.levels.len() {
                    return None;
                }
                i = i / 64 + 1;
            }
        }
    }

    /// The least member from `i` on, or else the least of all.
    pub(super) fn next_round(&self, i: usize) -> Option<usize> {
        self.next(i).or_else(|| self.next(0))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let i = self.next(from)?;
            from = i + 1;
            Some(i)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::dist::Rng;
    use super::*;

    /// Beside the standard library's set, for sizes with one, two and three levels.
    #[test]
    fn as_an_ordered_set() {
        for size in [1, 63, 64, 65, 4096, 5000, 300_000] {
            let (mut set, mut plain, mut rng) =
                (IndexSet::new(size), BTreeSet::new(), Rng::new(5, size as u64));
            for _ in 0..4000 {
                let i = rng.below(size as u64) as usize;
                if rng.below(3) == 0 {
                    set.remove(i);
                    plain.remove(&i);
                } else if rng.below(20) == 0 {
                    plain.iter().for_each(|i| set.remove(*i));
                    plain.clear();
                } else {
                    set.insert(i);
                    plain.insert(i);
                }
                let i = rng.below(size as u64) as usize;
                let next = plain.range(i..).next().or(plain.first()).copied();
                assert_eq!(
                    (set.next_round(i), set.contains(i)),
                    (next, plain.contains(&i)),
                    "size {size}, from {i}"
                );
                assert_eq!(set.len(), plain.len());
            }
            assert!(set.iter().eq(plain.iter().copied()));
        }
    }
}
