//! Pairs of block numbers in order, as small as they can be: what pages and the index keep of their entries' places.
//!
//! P1: near pairs have their first number as a 16-bit difference from `base`, far ones have it whole.
//! P2: pairs ascend, by the first number and where equal by the second; whoever inserts sees to that.

use std::ops::Range;

/// 16-bit words of a near and of a far pair.
const NEAR: usize = 3;
const FAR: usize = 4;
/// `base` is a multiple of this where there is room, so that what comes a little lower is within reach. Guess.
const BELOW: u32 = 1 << 10;
/// Pairs that room is made for at a time: more would lie unused, fewer be moved more often. Guess.
const ROOM: usize = 4;

/// Six bytes a pair while all first numbers lie within 2^16 of each other, else eight.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs {
    base: u32,
    far: bool,
    words: Vec<u16>,
}

fn number([low, high]: [u16; 2]) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

fn words(number: u32) -> [u16; 2] {
    [number as u16, (number >> 16) as u16]
}

impl Pairs {
    /// No pairs yet; there may be some with first numbers from `low` to `high`.
    fn between(low: u32, high: u32) -> Pairs {
        let near = |&base: &u32| high - base <= u32::from(u16::MAX);
        match [low & !(BELOW - 1), low].into_iter().find(near) {
            Some(base) => Pairs { base, ..Pairs::default() },
            None => Pairs { far: true, ..Pairs::default() },
        }
    }

    pub(crate) fn len(&self) -> usize {
        // By constants: a division by a variable takes as long as a search.
        if self.far { self.words.len() / FAR } else { self.words.len() / NEAR }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> Option<(u32, u32)> {
        if self.far {
            let &[a, b, c, d] = self.words.as_chunks::<FAR>().0.get(i)?;
            Some((number([a, b]), number([c, d])))
        } else {
            let &[a, b, c] = self.words.as_chunks::<NEAR>().0.get(i)?;
            Some((self.base + u32::from(a), number([b, c])))
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.len()).map_while(|i| self.get(i))
    }

    /// How many pairs come before this one.
    #[inline]
    pub(crate) fn lower_bound(&self, pair: (u32, u32)) -> usize {
        // Few have the same first number.
        let mut i = self.below(pair.0);
        while self.get(i).is_some_and(|other| other < pair) {
            i += 1;
        }
        i
    }

    /// How many pairs have a first number below `first`.
    #[inline]
    pub(crate) fn below(&self, first: u32) -> usize {
        if self.far {
            return self
                .words
                .as_chunks()
                .0
                .partition_point(|pair: &[u16; FAR]| number([pair[0], pair[1]]) < first);
        }
        let Some(first) = first.checked_sub(self.base) else { return 0 };
        self.words.as_chunks().0.partition_point(|pair: &[u16; NEAR]| u32::from(pair[0]) < first)
    }

    /// How many pairs have a first number of `first` at most.
    #[inline]
    pub(crate) fn up_to(&self, first: u32) -> usize {
        first.checked_add(1).map_or(self.len(), |next| self.below(next))
    }

    /// Whether a pair with this first number can join the others and all stay as small.
    pub(crate) fn may_take(&self, first: u32) -> bool {
        self.with_ends(first).is_none_or(|pairs| !pairs.far)
    }

    pub(crate) fn insert(&mut self, i: usize, pair: (u32, u32)) {
        self.reach(pair.0);
        if self.words.len() == self.words.capacity() {
            self.words.reserve_exact(ROOM * self.width());
        }
        let (width, words) = (self.width(), self.encode(pair));
        self.words.splice(i * width..i * width, words[..width].iter().copied());
    }

    pub(crate) fn push(&mut self, pair: (u32, u32)) {
        self.insert(self.len(), pair);
    }

    pub(crate) fn set(&mut self, i: usize, pair: (u32, u32)) {
        self.reach(pair.0);
        let (width, words) = (self.width(), self.encode(pair));
        self.words[i * width..][..width].copy_from_slice(&words[..width]);
    }

    /// Puts a pair in the place of one before it.
    pub(crate) fn move_down(&mut self, from: usize, to: usize) {
        let width = self.width();
        self.words.copy_within(from * width..(from + 1) * width, to * width);
    }

    pub(crate) fn remove(&mut self, pairs: Range<usize>) {
        let width = self.width();
        self.words.drain(pairs.start * width..pairs.end * width);
    }

    /// Takes the pairs from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Pairs {
        let right = self.iter().skip(at).collect();
        *self = self.iter().take(at).collect();
        right
    }

    /// Pairs there is memory for beyond those that are there.
    pub(crate) fn room(&self) -> usize {
        (self.words.capacity() - self.words.len()) / self.width()
    }

    /// Gives back the memory beyond that for `room` more.
    pub(crate) fn shrink(&mut self, room: usize) {
        self.words.shrink_to(self.words.len() + room * self.width());
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u16>()
    }

    /// Asserts P1 and P2.
    pub(crate) fn check(&self) {
        assert_eq!(self.words.len() % self.width(), 0, "P1");
        assert!(self.iter().is_sorted_by(|a, b| a < b), "P2");
    }

    fn width(&self) -> usize {
        if self.far { FAR } else { NEAR }
    }

    fn encode(&self, (first, second): (u32, u32)) -> [u16; FAR] {
        let [low, high] = words(second);
        if self.far {
            let [first_low, first_high] = words(first);
            [first_low, first_high, low, high]
        } else {
            [(first - self.base) as u16, low, high, 0]
        }
    }

    /// Keeps P1: makes `first` a number that a pair can begin with.
    fn reach(&mut self, first: u32) {
        if let Some(mut pairs) = self.with_ends(first) {
            pairs.words.reserve_exact((self.len() + self.room()) * pairs.width());
            for pair in self.iter() {
                let words = pairs.encode(pair);
                pairs.words.extend_from_slice(&words[..pairs.width()]);
            }
            *self = pairs;
        }
    }

    /// What these pairs would have to become for `first` to join them, without the pairs; `None` where it can as it is.
    fn with_ends(&self, first: u32) -> Option<Pairs> {
        let within =
            !self.is_empty() && first.checked_sub(self.base).is_some_and(|d| d <= u32::from(u16::MAX));
        if self.far || within {
            return None;
        }
        let ends = self.get(0).zip(self.len().checked_sub(1).and_then(|last| self.get(last)));
        let (low, high) = ends.map_or((first, first), |(low, high)| (low.0.min(first), high.0.max(first)));
        Some(Pairs::between(low, high))
    }
}

/// From pairs in order.
impl FromIterator<(u32, u32)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (u32, u32)>>(pairs: I) -> Pairs {
        let all: Vec<(u32, u32)> = pairs.into_iter().collect();
        let (Some(first), Some(last)) = (all.first(), all.last()) else { return Pairs::default() };
        let mut pairs = Pairs::between(first.0, last.0);
        pairs.words.reserve_exact(all.len() * pairs.width());
        for &pair in &all {
            let words = pairs.encode(pair);
            pairs.words.extend_from_slice(&words[..pairs.width()]);
        }
        pairs
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

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => (first(), any::<u32>()).prop_map(|(a, b)| Step::Insert(a, b)),
            3 => (0..1000u32, any::<u32>()).prop_map(|(i, b)| Step::Set(i, b)),
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
                            let near = pairs.may_take(first);
                            let far = pairs.far;
                            pairs.insert(i, (first, second));
                            prop_assert_eq!(near, pairs.far == far);
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
                prop_assert_eq!((pairs.len(), pairs.is_empty()), (plain.len(), plain.is_empty()));
                prop_assert!(pairs.iter().eq(plain.iter().copied()));
                for &(first, _) in &plain {
                    prop_assert_eq!(pairs.up_to(first), plain.partition_point(|p| p.0 <= first));
                    prop_assert_eq!(pairs.below(first), plain.partition_point(|p| p.0 < first));
                }
                let again: Pairs = plain.iter().copied().collect();
                prop_assert!(again.iter().eq(plain.iter().copied()));
            }
        }
    }

    #[test]
    fn small_where_they_lie_near_each_other() {
        let bytes = |step: u32| (0..100).map(|i| (7_000_000 + i * step, i)).collect::<Pairs>().memory_bytes();
        assert_eq!((bytes(1), bytes(660), bytes(663)), (600, 600, 800));
    }
}
