//! Pairs of block numbers in order, as small as they can be: what pages and the index keep of their entries' places.
//!
//! P1: a pair is one number of `width` bits: above its first's difference from `first_base`, in the lower
//!     `second_bits` its second's from `second_base`. So numbers are in the order of their pairs.
//! P2: pairs ascend, by the first number and where equal by the second; whoever inserts sees to that.
//! P3: pair i lies in the bits from i * `width` on, the lowest of the first byte first; the eight bytes that it begins in are there.

use std::ops::{Range, RangeInclusive};

/// Bits that are within eight bytes wherever in a byte they begin. What needs more takes [`WHOLE`].
const WIDTH_MAX: u32 = 57;
const WHOLE: u32 = u64::BITS;
/// Pairs that room is made for at a time: more would lie unused, fewer be moved more often. Guess.
const ROOM: usize = 2;

/// As many bits a pair as tell first numbers apart and second ones, from the lowest to the highest that there are. More are taken as soon
/// as one lies outside; fewer are when pairs are collected anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs {
    len: u32,
    first_base: u32,
    second_base: u32,
    second_bits: u8,
    width: u8,
    /// In words, for whole words are moved to make room between pairs.
    words: Vec<[u8; 8]>,
}

/// Bits that a number needs.
fn bits(number: u32) -> u32 {
    u32::BITS - number.leading_zeros()
}

/// From where to count numbers from `low` to `high` in the bits that their difference needs: with as much room below as above.
fn base(low: u32, high: u32) -> u32 {
    let half = (1u64 << bits(high - low) >> 1) as u32;
    (low + (high - low).div_ceil(2)).saturating_sub(half)
}

/// From the lowest to the highest second number.
fn seconds(pairs: impl Iterator<Item = (u32, u32)>) -> RangeInclusive<u32> {
    let (low, high) =
        pairs.fold((u32::MAX, 0), |(low, high), (_, second)| (low.min(second), high.max(second)));
    low..=high
}

/// Words that hold so many pairs (P3).
fn words(pairs: usize, width: usize) -> usize {
    pairs.checked_sub(1).map_or(0, |last| (last * width / 8).div_ceil(8) + 1)
}

impl Pairs {
    /// No pairs yet; there may be some with numbers in these ranges.
    fn between(firsts: RangeInclusive<u32>, seconds: RangeInclusive<u32>) -> Pairs {
        let ((low, high), (second_low, second_high)) = (firsts.into_inner(), seconds.into_inner());
        let (first_bits, second_bits) = (bits(high - low), bits(second_high - second_low));
        // One at least: pairs without a bit would need no words.
        let width = (first_bits + second_bits).max(1);
        if width > WIDTH_MAX {
            return Pairs { second_bits: u32::BITS as u8, width: WHOLE as u8, ..Pairs::default() };
        }
        Pairs {
            first_base: base(low, high),
            second_base: base(second_low, second_high),
            second_bits: second_bits as u8,
            width: width as u8,
            ..Pairs::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> Option<(u32, u32)> {
        (i < self.len()).then(|| {
            let pair = self.number(i * self.width());
            let (first, second) = (pair >> self.second_bits, pair & ((1 << self.second_bits) - 1));
            (self.first_base + first as u32, self.second_base + second as u32)
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.len()).map_while(|i| self.get(i))
    }

    /// How many pairs come before this one.
    #[inline]
    pub(crate) fn lower_bound(&self, (first, second): (u32, u32)) -> usize {
        let Some(second) = second.checked_sub(self.second_base) else { return self.below(first) };
        if u64::from(second) >> self.second_bits != 0 {
            return self.up_to(first);
        }
        self.before(first, second)
    }

    /// How many pairs have a first number below `first`.
    #[inline]
    pub(crate) fn below(&self, first: u32) -> usize {
        self.before(first, 0)
    }

    /// How many pairs have a first number of `first` at most.
    #[inline]
    pub(crate) fn up_to(&self, first: u32) -> usize {
        first.checked_add(1).map_or(self.len(), |next| self.below(next))
    }

    /// How many pairs come before this first number and this difference of the second.
    #[inline]
    fn before(&self, first: u32, second: u32) -> usize {
        let Some(first) = first.checked_sub(self.first_base) else { return 0 };
        let pair = u64::from(first) << self.second_bits | u64::from(second);
        // Of those that may come before it: how many do for sure, and the bit that the first of the others begins at. In
        // quarters, for three pairs are fetched in the time of one, and without branches: every second one would be
        // foretold wrongly.
        let (mut i, mut bit, mut n) = (0, 0, self.len());
        let less = |bit| usize::from(self.number(bit) < pair);
        while n > 3 {
            let quarter = n / 4;
            let step = quarter * self.width();
            let quarters = less(bit + step) + less(bit + 2 * step) + less(bit + 3 * step);
            i += quarters * quarter;
            bit += quarters * step;
            n -= 3 * quarter;
        }
        (0..n).fold(i, |i, k| i + less(bit + k * self.width()))
    }

    pub(crate) fn insert(&mut self, i: usize, pair: (u32, u32)) {
        self.reach(pair);
        let width = self.width();
        let all = words(self.len() + 1, width);
        if all > self.words.capacity() {
            self.words.reserve_exact(words(self.len() + ROOM, width) - self.words.len());
        }
        self.words.resize(all, [0; 8]);
        self.len += 1;
        // Moves up what lies from the pair's place on.
        let (from, kept) = (i * width, self.words[i * width / 64]);
        let mut carry = 0;
        for word in &mut self.words[from / 64..] {
            let old = u64::from_le_bytes(*word);
            *word = (old << (width - 1) << 1 | carry).to_le_bytes();
            carry = old >> (64 - width);
        }
        self.restore(from, kept);
        self.put(i, pair);
    }

    pub(crate) fn set(&mut self, i: usize, pair: (u32, u32)) {
        self.reach(pair);
        self.put(i, pair);
    }

    /// Puts a pair in the place of one before it.
    pub(crate) fn move_down(&mut self, from: usize, to: usize) {
        self.write(to, self.number(from * self.width()));
    }

    pub(crate) fn remove(&mut self, pairs: Range<usize>) {
        let (width, gone) = (self.width(), pairs.len());
        let (to, by, shift) = (pairs.start * width, gone * width / 64, (gone * width % 64) as u32);
        self.len -= gone as u32;
        if pairs.start < self.len() {
            let kept = self.words[to / 64];
            let word = |words: &[[u8; 8]], i| words.get(i).map_or(0, |&word| u64::from_le_bytes(word));
            for to in to / 64..words(self.len(), width) {
                let (low, high) = (word(&self.words, to + by), word(&self.words, to + by + 1));
                self.words[to] = (low >> shift | high << 1 << (63 - shift)).to_le_bytes();
            }
            self.restore(to, kept);
        }
        self.words.truncate(words(self.len(), width));
    }

    /// Takes the pairs from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Pairs {
        let right = self.iter().skip(at).collect();
        *self = self.iter().take(at).collect();
        right
    }

    /// Pairs there is memory for beyond those that are there, about.
    pub(crate) fn room(&self) -> usize {
        (self.words.capacity() - self.words.len()) * 64 / self.width().max(1)
    }

    /// Gives back the memory beyond that for `room` more.
    pub(crate) fn shrink(&mut self, room: usize) {
        self.words.shrink_to(words(self.len() + room, self.width()));
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Asserts P2 and P3.
    pub(crate) fn check(&self) {
        assert_eq!(self.words.len(), words(self.len(), self.width()), "P3");
        assert!(self.iter().is_sorted_by(|a, b| a < b), "P2");
    }

    fn width(&self) -> usize {
        usize::from(self.width)
    }

    /// The pair that begins at a bit.
    #[inline]
    fn number(&self, bit: usize) -> u64 {
        let bytes = self.words.as_flattened()[bit / 8..].first_chunk().expect("P3");
        u64::from_le_bytes(*bytes) >> (bit % 8) & self.mask()
    }

    fn write(&mut self, i: usize, pair: u64) {
        let (bit, mask) = (i * self.width(), self.mask());
        let bytes = self.words.as_flattened_mut()[bit / 8..].first_chunk_mut().expect("P3");
        let others = u64::from_le_bytes(*bytes) & !(mask << (bit % 8));
        *bytes = (others | pair << (bit % 8)).to_le_bytes();
    }

    /// A pair's bits where they are the lowest.
    #[inline]
    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    /// Puts back what was before a bit in its word.
    fn restore(&mut self, bit: usize, kept: [u8; 8]) {
        let (word, mask) = (&mut self.words[bit / 64], u64::MAX << (bit % 64));
        *word = (u64::from_le_bytes(*word) & mask | u64::from_le_bytes(kept) & !mask).to_le_bytes();
    }

    /// The differences of a pair, where both can be written.
    fn differences(&self, (first, second): (u32, u32)) -> Option<(u64, u64)> {
        let first = u64::from(first.checked_sub(self.first_base)?);
        let second = u64::from(second.checked_sub(self.second_base)?);
        let fit = first >> (self.width - self.second_bits) == 0 && second >> self.second_bits == 0;
        fit.then_some((first, second))
    }

    fn put(&mut self, i: usize, pair: (u32, u32)) {
        let (first, second) = self.differences(pair).expect("P1: it was seen to that it can be written");
        self.write(i, first << self.second_bits | second);
    }

    /// Keeps P1: sees to it that a pair can be written.
    fn reach(&mut self, (first, second): (u32, u32)) {
        if self.len == 0 || self.differences((first, second)).is_none() {
            let last = self.len().wrapping_sub(1);
            let (low, high) = (self.get(0).map_or(first, |p| p.0), self.get(last).map_or(first, |p| p.0));
            let seconds = seconds(self.iter().chain([(first, second)]));
            let pairs = Pairs::between(low.min(first)..=high.max(first), seconds);
            *self = pairs.with(self.len() + ROOM, self.iter());
        }
    }

    /// Takes pairs in the ranges it was made for, with room for so many in all.
    fn with(mut self, room: usize, pairs: impl Iterator<Item = (u32, u32)>) -> Pairs {
        self.words = vec![[0; 8]; words(room, self.width())];
        for (i, pair) in pairs.enumerate() {
            self.put(i, pair);
            self.len += 1;
        }
        self.words.truncate(words(self.len(), self.width()));
        self
    }
}

/// From pairs in order.
impl FromIterator<(u32, u32)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (u32, u32)>>(pairs: I) -> Pairs {
        let all: Vec<(u32, u32)> = pairs.into_iter().collect();
        let (Some(first), Some(last)) = (all.first(), all.last()) else { return Pairs::default() };
        let pairs = Pairs::between(first.0..=last.0, seconds(all.iter().copied()));
        pairs.with(all.len(), all.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(u32, u32),
        /// The pair at that share of 1,000 gets another second number.
        Set(u32, u32),
        Remove(u32, u32),
        /// Those behind it go.
        Split(u32),
        Shrink,
        /// Every second pair goes, one by one to the front.
        Thin,
    }

    /// In clusters that lie within reach of each other, or not.
    fn first() -> impl Strategy<Value = u32> {
        (prop_oneof![Just(0), Just(900), Just(60_000), Just(70_000), Just(u32::MAX - 3000)], 0..3000u32)
            .prop_map(|(cluster, n)| cluster + n)
    }

    /// Near each other, where a few bits tell them apart, or anywhere.
    fn second() -> impl Strategy<Value = u32> {
        prop_oneof![20 => 0..1000u32, 5 => 4_000_000_000..4_000_001_000u32, 3 => 0..1u32 << 28, 1 => any::<u32>()]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => (first(), second()).prop_map(|(a, b)| Step::Insert(a, b)),
            3 => (0..1000u32, second()).prop_map(|(i, b)| Step::Set(i, b)),
            2 => (0..1000u32, 1..9u32).prop_map(|(i, n)| Step::Remove(i, n)),
            1 => (300..1000u32).prop_map(Step::Split),
            1 => Just(Step::Shrink),
            1 => Just(Step::Thin),
        ]
    }

    proptest! {
        #[test]
        fn as_a_plain_vector(steps in prop::collection::vec(step(), 1..200)) {
            let (mut pairs, mut plain) = (Pairs::default(), Vec::<(u32, u32)>::new());
            for step in steps {
                let at = |share: u32| share as usize * plain.len() / 1000;
                match step {
                    Step::Insert(first, second) => {
                        let i = plain.partition_point(|&p| p < (first, second));
                        prop_assert_eq!(pairs.lower_bound((first, second)), i);
                        if plain.get(i) != Some(&(first, second)) {
                            pairs.insert(i, (first, second));
                            plain.insert(i, (first, second));
                        }
                    }
                    Step::Set(share, second) if !plain.is_empty() => {
                        let (i, first) = (at(share), plain[at(share)].0);
                        if plain.iter().filter(|p| p.0 == first).count() == 1 {
                            pairs.set(i, (first, second));
                            plain[i] = (first, second);
                        }
                    }
                    Step::Remove(share, n) => {
                        let gone = at(share)..(at(share) + n as usize).min(plain.len());
                        pairs.remove(gone.clone());
                        plain.drain(gone);
                    }
                    Step::Split(share) => {
                        let right = pairs.split_off(at(share));
                        right.check();
                        let plain = plain.split_off(at(share));
                        prop_assert!(right.iter().eq(plain.iter().copied()));
                    }
                    Step::Shrink => pairs.shrink(2),
                    Step::Thin => {
                        let kept = plain.len().div_ceil(2);
                        (0..kept).for_each(|i| pairs.move_down(2 * i, i));
                        pairs.remove(kept..plain.len());
                        plain = plain.into_iter().step_by(2).collect();
                    }
                    Step::Set(..) => {}
                }
                pairs.check();
                prop_assert_eq!(pairs.len(), plain.len());
                prop_assert!(pairs.iter().eq(plain.iter().copied()));
                for &(first, second) in &plain {
                    prop_assert_eq!(pairs.up_to(first), plain.partition_point(|p| p.0 <= first));
                    prop_assert_eq!(pairs.below(first), plain.partition_point(|p| p.0 < first));
                    for other in [0, second, second.saturating_add(1), u32::MAX] {
                        let at = plain.partition_point(|&p| p < (first, other));
                        prop_assert_eq!(pairs.lower_bound((first, other)), at);
                    }
                }
                for first in [0, 1 << 31, u32::MAX] {
                    prop_assert_eq!(pairs.up_to(first), plain.partition_point(|p| p.0 <= first));
                    prop_assert_eq!(pairs.lower_bound((first, 7)), plain.partition_point(|&p| p < (first, 7)));
                }
                let again: Pairs = plain.iter().copied().collect();
                prop_assert!(again.iter().eq(plain.iter().copied()));
            }
        }
    }

    /// Bits of a pair, of so many whose first numbers and second ones are so far apart.
    fn width(n: u32, first: u32, second: u32) -> usize {
        let all: Vec<_> = (0..n).map(|i| (7_000_000 + i * first, 4_200_000_000 - i * second)).collect();
        let pairs: Pairs = all.iter().copied().collect();
        pairs.check();
        assert!(pairs.iter().eq(all), "{n} pairs, {first} and {second} apart");
        assert!(pairs.memory_bytes() * 8 < n as usize * pairs.width() + 128);
        pairs.width()
    }

    #[test]
    fn as_small_as_tells_them_apart() {
        assert_eq!((width(1, 0, 0), width(2, 1, 0), width(2, 1, 1)), (1, 1, 2));
        // 99 of 7 bits and less, 99 of 12 to 14.
        assert_eq!((width(100, 1, 41), width(100, 1, 42), width(100, 1, 100)), (7 + 12, 7 + 13, 7 + 14));
        assert_eq!((width(2, (1 << 30) - 1, (1 << 27) - 1), width(2, 1 << 30, (1 << 27) - 1)), (57, 64));
        assert_eq!(width(300, 10_000_000, 13_000_000), 64);
    }

    #[test]
    fn the_lowest_pair_may_be_the_first() {
        let mut pairs = Pairs::default();
        pairs.insert(0, (0, 0));
        pairs.check();
        assert_eq!((pairs.get(0), pairs.get(1), pairs.up_to(0)), (Some((0, 0)), None, 1));
    }

    #[test]
    fn what_lies_below_all_comes_before_all() {
        let pairs: Pairs = [(1024, 5), (1024, 7)].into_iter().collect();
        assert_eq!(pairs.lower_bound((1023, 6)), 0);
        assert_eq!(pairs.lower_bound((1024, 6)), 1);
        assert_eq!(pairs.lower_bound((1024, 4)), 0);
    }

    #[test]
    fn all_are_written_anew_only_where_they_take_more_bits_or_were_uneven() {
        let anew = |all: &mut dyn Iterator<Item = (u32, u32)>| {
            let (mut pairs, mut anew) = (Pairs::default(), 0);
            for pair in all {
                let before = (pairs.first_base, pairs.second_base, pairs.width);
                pairs.insert(pairs.lower_bound(pair), pair);
                anew += usize::from(before != (pairs.first_base, pairs.second_base, pairs.width));
            }
            pairs.check();
            anew
        };
        let place = |i: u32| 1_000_000 + i * 60;
        assert!(anew(&mut (0..500).map(|i| (place(i), place(i)))) < 80);
        assert!(anew(&mut (0..500).rev().map(|i| (place(i), place(i)))) < 80);
        assert!(anew(&mut (0..500).map(|i| (place(i), place(i * 219 % 500)))) < 80);
    }
}
