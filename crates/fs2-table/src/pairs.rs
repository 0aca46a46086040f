//! Pairs of block numbers in order, as small as they can be: what pages and the index keep of their entries' places.
//!
//! P1: a pair is one number of `width` bytes: above its first's difference from `first_base`, in the lower
//!     `second_bits` its second's from `second_base`. So numbers are in the order of their pairs.
//! P2: pairs ascend, by the first number and where equal by the second; whoever inserts sees to that.

use std::ops::{Range, RangeInclusive};

/// Bytes a pair may take; in the last all fit.
const SMALL: usize = 5;
const MIDDLE: usize = 6;
const WHOLE: usize = 8;
/// First numbers may differ by so many bits at least, and begin at a multiple of a quarter of that where there is room:
/// what comes a little higher or lower is within reach. Guess.
const FIRST_BITS: u32 = 12;
const BELOW: u32 = 1 << (FIRST_BITS - 2);
/// Pairs that room is made for at a time: more would lie unused, fewer be moved more often. Guess.
const ROOM: usize = 4;

/// Five bytes a pair while the bits in which first numbers differ and those in which second ones do are forty together,
/// six while they are 48, else eight.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    first_base: u32,
    second_base: u32,
    second_bits: u8,
    width: u8,
    bytes: Vec<u8>,
}

/// None yet.
impl Default for Pairs {
    fn default() -> Pairs {
        Pairs { first_base: 0, second_base: 0, second_bits: 28, width: SMALL as u8, bytes: Vec::new() }
    }
}

#[inline]
fn number<const N: usize>(bytes: &[u8; N]) -> u64 {
    let mut whole = [0; 8];
    whole[..N].copy_from_slice(bytes);
    u64::from_le_bytes(whole)
}

/// Bits that a number needs.
fn bits(number: u32) -> u32 {
    u32::BITS - number.leading_zeros()
}

/// From where to count numbers from `low` to `high` in so many bits: from 0, or with as much room below as above.
fn base(low: u32, high: u32, room: u32) -> u32 {
    if bits(high) <= room { 0 } else { (low + (high - low).div_ceil(2)).saturating_sub(1 << (room - 1)) }
}

/// From the lowest to the highest second number.
fn seconds(pairs: impl Iterator<Item = (u32, u32)>) -> RangeInclusive<u32> {
    let (low, high) =
        pairs.fold((u32::MAX, 0), |(low, high), (_, second)| (low.min(second), high.max(second)));
    low..=high
}

impl Pairs {
    /// No pairs yet; there may be some with numbers in these ranges.
    fn between(firsts: RangeInclusive<u32>, seconds: RangeInclusive<u32>) -> Pairs {
        let ((low, high), (second_low, second_high)) = (firsts.into_inner(), seconds.into_inner());
        for width in [SMALL, MIDDLE] {
            for first_base in [low & !(BELOW - 1), low] {
                let room = (8 * width as u32 - bits(high - first_base).max(FIRST_BITS)).min(32);
                if bits(second_high - second_low) <= room {
                    let second_base = base(second_low, second_high, room);
                    let (second_bits, width) = (room as u8, width as u8);
                    return Pairs { first_base, second_base, second_bits, width, bytes: Vec::new() };
                }
            }
        }
        Pairs { second_bits: 32, width: WHOLE as u8, ..Pairs::default() }
    }

    pub(crate) fn len(&self) -> usize {
        // By constants: a division by a variable takes as long as a search.
        match self.width() {
            SMALL => self.bytes.len() / SMALL,
            MIDDLE => self.bytes.len() / MIDDLE,
            _ => self.bytes.len() / WHOLE,
        }
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> Option<(u32, u32)> {
        let pair = match self.width() {
            SMALL => number(self.bytes.as_chunks::<SMALL>().0.get(i)?),
            MIDDLE => number(self.bytes.as_chunks::<MIDDLE>().0.get(i)?),
            _ => number(self.bytes.as_chunks::<WHOLE>().0.get(i)?),
        };
        let (first, second) = (pair >> self.second_bits, pair & ((1 << self.second_bits) - 1));
        Some((self.first_base + first as u32, self.second_base + second as u32))
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
        fn of<const N: usize>(bytes: &[u8], pair: u64) -> usize {
            bytes.as_chunks().0.partition_point(|other: &[u8; N]| number(other) < pair)
        }
        let Some(first) = first.checked_sub(self.first_base) else { return 0 };
        let pair = u64::from(first) << self.second_bits | u64::from(second);
        match self.width() {
            SMALL => of::<SMALL>(&self.bytes, pair),
            MIDDLE => of::<MIDDLE>(&self.bytes, pair),
            _ => of::<WHOLE>(&self.bytes, pair),
        }
    }

    /// Whether a pair with this first number can join the others without that each of them takes eight bytes, whatever
    /// its second number is.
    pub(crate) fn may_take(&self, first: u32) -> bool {
        let (low, high) = self.ends().unwrap_or((first, first));
        self.width() == WHOLE || bits(high.max(first) - low.min(first)) <= 8 * MIDDLE as u32 - u32::BITS
    }

    pub(crate) fn insert(&mut self, i: usize, pair: (u32, u32)) {
        self.reach(pair);
        let (width, pair) = (self.width(), self.encode(pair));
        if self.bytes.capacity() - self.bytes.len() < width {
            self.bytes.reserve_exact(ROOM * width);
        }
        self.bytes.splice(i * width..i * width, pair.into_iter().take(width));
    }

    pub(crate) fn push(&mut self, pair: (u32, u32)) {
        self.insert(self.len(), pair);
    }

    pub(crate) fn set(&mut self, i: usize, pair: (u32, u32)) {
        self.reach(pair);
        let (width, pair) = (self.width(), self.encode(pair));
        self.bytes[i * width..][..width].copy_from_slice(&pair[..width]);
    }

    /// Puts a pair in the place of one before it.
    pub(crate) fn move_down(&mut self, from: usize, to: usize) {
        let width = self.width();
        self.bytes.copy_within(from * width..(from + 1) * width, to * width);
    }

    pub(crate) fn remove(&mut self, pairs: Range<usize>) {
        let width = self.width();
        self.bytes.drain(pairs.start * width..pairs.end * width);
    }

    /// Takes the pairs from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Pairs {
        let right = self.iter().skip(at).collect();
        *self = self.iter().take(at).collect();
        right
    }

    /// Pairs there is memory for beyond those that are there.
    pub(crate) fn room(&self) -> usize {
        (self.bytes.capacity() - self.bytes.len()) / self.width()
    }

    /// Gives back the memory beyond that for `room` more.
    pub(crate) fn shrink(&mut self, room: usize) {
        self.bytes.shrink_to(self.bytes.len() + room * self.width());
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Asserts P2, and that there are whole pairs only.
    pub(crate) fn check(&self) {
        assert_eq!(self.bytes.len() % self.width(), 0, "P1");
        assert!(self.iter().is_sorted_by(|a, b| a < b), "P2");
    }

    fn width(&self) -> usize {
        usize::from(self.width)
    }

    /// The differences of a pair, where both can be written.
    fn differences(&self, (first, second): (u32, u32)) -> Option<(u64, u64)> {
        let first = u64::from(first.checked_sub(self.first_base)?);
        let second = u64::from(second.checked_sub(self.second_base)?);
        let fit = first >> (8 * self.width - self.second_bits) == 0 && second >> self.second_bits == 0;
        fit.then_some((first, second))
    }

    fn encode(&self, pair: (u32, u32)) -> [u8; 8] {
        let (first, second) = self.differences(pair).expect("P1: it was seen to that it can be written");
        (first << self.second_bits | second).to_le_bytes()
    }

    /// The lowest and the highest first number.
    fn ends(&self) -> Option<(u32, u32)> {
        Some((self.get(0)?.0, self.get(self.len() - 1)?.0))
    }

    /// Keeps P1: sees to it that a pair can be written.
    fn reach(&mut self, (first, second): (u32, u32)) {
        if self.differences((first, second)).is_none() {
            let (low, high) = self.ends().unwrap_or((first, first));
            let seconds = seconds(self.iter().chain([(first, second)]));
            let pairs = Pairs::between(low.min(first)..=high.max(first), seconds);
            *self = pairs.with(self.len() + self.room(), self.iter());
        }
    }

    /// Takes pairs in the ranges it was made for.
    fn with(mut self, room: usize, pairs: impl Iterator<Item = (u32, u32)>) -> Pairs {
        let width = self.width();
        self.bytes.reserve_exact(room * width);
        for pair in pairs {
            let pair = self.encode(pair);
            self.bytes.extend_from_slice(&pair[..width]);
        }
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
                            let (may, before) = (pairs.may_take(first), pairs.width());
                            pairs.insert(i, (first, second));
                            prop_assert!(!may || pairs.width() < WHOLE || before == WHOLE);
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

    /// First numbers and second ones so far apart, of a hundred pairs.
    fn width(first: u32, second: u32) -> usize {
        let pairs: Pairs = (0..100).map(|i| (7_000_000 + i * first, 3_000_000_000 - i * second)).collect();
        assert_eq!(pairs.memory_bytes(), 100 * pairs.width());
        pairs.width()
    }

    #[test]
    fn small_where_they_lie_near_each_other() {
        // 12 and 28 bits.
        assert_eq!((width(1, 2_700_000), width(41, 2_700_000), width(40, 2_720_000)), (SMALL, SMALL, MIDDLE));
        // 16 and 24.
        assert_eq!((width(660, 169_000), width(660, 170_000)), (SMALL, MIDDLE));
        // 16 and 32, 20 and 28; 17 and 32 are more than 48.
        assert_eq!(
            (width(660, 30_000_000), width(10_000, 2_700_000), width(700, 30_000_000)),
            (MIDDLE, MIDDLE, WHOLE)
        );
    }

    #[test]
    fn what_lies_below_all_comes_before_all() {
        let pairs: Pairs = [(BELOW, 5), (BELOW, 7)].into_iter().collect();
        assert_eq!(pairs.lower_bound((BELOW - 1, 6)), 0);
        assert_eq!(pairs.lower_bound((BELOW, 6)), 1);
    }

    #[test]
    fn numbers_as_far_apart_as_their_bits_tell_can_be_written() {
        let ends = [(8, 1 << 30), (9, (1 << 30) + (1 << 28) - 1)];
        let pairs: Pairs = ends.into_iter().collect();
        assert_eq!((pairs.width(), pairs.iter().collect::<Vec<_>>()), (SMALL, ends.to_vec()));
    }

    #[test]
    fn others_may_come_on_both_sides_of_what_lies_far_up() {
        let far_up: Pairs = [(8, 4_000_000_000), (9, 4_000_000_001)].into_iter().collect();
        assert_eq!(far_up.width(), SMALL);
        assert!(far_up.differences((9, 4_000_000_000 - 130_000_000)).is_some());
        assert!(far_up.differences((9, 4_000_000_000 + 130_000_000)).is_some());
        let far_down: Pairs = [(8, 130_000_000)].into_iter().collect();
        assert!(far_down.differences((9, 0)).is_some() && far_down.differences((9, (1 << 28) - 1)).is_some());
    }
}
