//! Which of many outstanding requests are to be told that some blocks change. A frontend lets few be outstanding,
//! and those are looked at one by one; a replayed trace that overloads its drive has tens of thousands.
//!
//! Invariant: K1: every outstanding request that has to be told is in the crowd, by the start of its blocks: reads
//! that were not yet ([`Pending::tainted`]), and discards.

use std::collections::BTreeSet;

use fs2_block::BlockRange;

use super::{Kind, Pending};
use crate::seq_map::SeqMap;

/// More outstanding requests than this are worth a crowd, and half as many no longer. Guess: above what
/// frontends let in.
const MANY: usize = 1024;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    by_start: BTreeSet<(u32, u64)>,
    /// Blocks of the longest that ever was in it.
    longest: u32,
}

/// One change is enough for a read; a discard has to know each.
fn has_to_be_told(p: &Pending) -> bool {
    let open = match p.kind {
        Kind::Read => !p.tainted,
        Kind::Discard => true,
        Kind::Write | Kind::Zeroes => false,
    };
    open && !p.blocks.is_empty()
}

impl Crowd {
    /// A request came.
    pub(super) fn came(crowd: &mut Option<Crowd>, requests: &SeqMap<Pending>, seq: u64) {
        match crowd {
            Some(crowd) => crowd.add(seq, &requests[seq]),
            None if requests.len() > MANY => {
                let mut all = Crowd::default();
                requests.iter().for_each(|(seq, p)| all.add(seq, p));
                *crowd = Some(all);
            }
            None => {}
        }
    }

    /// A request went.
    pub(super) fn went(crowd: &mut Option<Crowd>, requests: &SeqMap<Pending>, seq: u64, blocks: BlockRange) {
        if let Some(all) = crowd {
            all.by_start.remove(&(blocks.start(), seq));
            if requests.len() < MANY / 2 {
                *crowd = None;
            }
        }
    }

    fn add(&mut self, seq: u64, p: &Pending) {
        if has_to_be_told(p) {
            self.by_start.insert((p.blocks.start(), seq));
            self.longest = self.longest.max(p.blocks.len());
        }
    }

    /// Calls `each` with every request that touches one of `blocks` and has to be told.
    pub(super) fn touching(
        crowd: &mut Option<Crowd>,
        requests: &mut SeqMap<Pending>,
        blocks: BlockRange,
        mut each: impl FnMut(&mut Pending),
    ) {
        let touched = |p: &&mut Pending| has_to_be_told(p) && p.blocks.overlaps(blocks);
        let Some(crowd) = crowd else {
            return requests.values_mut().filter(touched).for_each(each);
        };
        let from = blocks.start().saturating_sub(crowd.longest);
        let near = crowd.by_start.range((from, 0)..(blocks.end(), 0));
        let mut told = Vec::new();
        for &(start, seq) in near {
            if let Some(p) = requests.get_mut(seq).filter(touched) {
                each(p);
                if !has_to_be_told(p) {
                    told.push((start, seq));
                }
            }
        }
        for gone in told {
            crowd.by_start.remove(&gone);
        }
    }

    /// Asserts K1.
    pub(super) fn check(&self, requests: &SeqMap<Pending>) {
        let all = requests.iter().filter(|(_, p)| has_to_be_told(p));
        let all: BTreeSet<_> = all.map(|(seq, p)| (p.blocks.start(), seq)).collect();
        assert_eq!(self.by_start, all, "K1");
    }
}

#[cfg(test)]
mod tests {
    use fs2_block::{ConnectionId, Extent, Flags, Nanos, Op, Request, RequestId};
    use proptest::prelude::*;

    use super::*;

    fn pending(kind: Kind, blocks: BlockRange) -> Pending {
        let extent = Extent::new(u64::from(blocks.start()) * 4096, u64::from(blocks.len()) * 4096);
        let request = Request {
            id: RequestId(0),
            connection: ConnectionId(0),
            op: Op::Read,
            extent,
            flags: Flags::default(),
        };
        Pending::new(request, kind, extent, blocks, blocks, Nanos(0))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// The crowd finds what looking at every request finds, while requests come and go in bulk.
        #[test]
        fn finds_what_a_scan_finds(
            steps in prop::collection::vec((1usize..900, 0usize..900, 0u32..5000, 0u32..70), 1..8),
            seed in any::<u64>(),
        ) {
            let (mut crowd, mut requests) = (None, SeqMap::new());
            let (mut next, mut oldest, mut random) = (0, 0, seed | 1);
            for (come, go, at, len) in steps {
                for _ in 0..come {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let blocks = BlockRange::at(fs2_block::BlockNo(random as u32 % 5000), (random >> 40) as u32 % 9);
                    let kind = [Kind::Read, Kind::Read, Kind::Discard, Kind::Write][random as usize >> 20 & 3];
                    requests.insert(next, pending(kind, blocks));
                    Crowd::came(&mut crowd, &requests, next);
                    next += 1;
                }
                for _ in 0..go.min(requests.len()) {
                    if let Some(p) = requests.remove(oldest) {
                        Crowd::went(&mut crowd, &requests, oldest, p.blocks);
                    }
                    oldest += 1;
                }
                prop_assert!(crowd.is_some() || requests.len() <= MANY);
                if let Some(crowd) = &crowd {
                    crowd.check(&requests);
                }
                let wanted = BlockRange::new(at, at + len);
                let touches = |p: &&Pending| {
                    p.blocks.overlaps(wanted) && (p.kind == Kind::Discard || p.kind == Kind::Read && !p.tainted)
                };
                let expected = requests.values().filter(touches).count();
                let mut told = 0;
                Crowd::touching(&mut crowd, &mut requests, wanted, |p| {
                    told += 1;
                    match p.kind {
                        Kind::Read => p.tainted = true,
                        _ => p.overwritten.push(wanted),
                    }
                });
                prop_assert_eq!(told, expected);
                let late = |p: &Pending| p.kind == Kind::Read && p.blocks.overlaps(wanted) && !p.tainted;
                prop_assert!(!requests.values().any(late));
            }
        }
    }
}
