//! The table beside a plain `BTreeMap`: random operations through both, equal answers.

use fs2_block::{BlockNo, BlockRange, BlockSize};
use fs2_table::{
    Geometry, Header, InsertRefused, Limits, PAGE_BYTES, PAGE_ENTRIES, Recovery, Replica, ReplicaTable, Trust,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// By replica: (original, hash, trust).
#[derive(Clone, Debug, Default)]
struct Model {
    entries: BTreeMap<u32, (u32, u64, Trust)>,
    degree: usize,
}

impl Model {
    fn get(&self, replica: u32) -> Option<Replica> {
        let &(original, hash, trust) = self.entries.get(&replica)?;
        Some(Replica { original: BlockNo(original), replica: BlockNo(replica), hash, trust })
    }

    fn all(&self) -> Vec<Replica> {
        self.entries.keys().filter_map(|&r| self.get(r)).collect()
    }

    fn originals_in(&self, range: BlockRange) -> Vec<Replica> {
        let mut found: Vec<_> = self.all().into_iter().filter(|r| range.contains(r.original)).collect();
        found.sort_by_key(|r| (r.original, r.replica));
        found
    }

    fn replicas_in(&self, range: BlockRange) -> Vec<Replica> {
        self.entries.range(range.start()..range.end()).filter_map(|(&r, _)| self.get(r)).collect()
    }

    fn insert(&mut self, new: Replica) -> Result<(), InsertRefused> {
        let (o, r) = (new.original.0, new.replica.0);
        if o == r || self.entries.values().any(|e| e.0 == r) {
            return Err(InsertRefused::Contradiction(new.replica));
        }
        if self.entries.contains_key(&r) {
            return Err(InsertRefused::ReplicaTaken(new.replica));
        }
        if self.entries.contains_key(&o) {
            return Err(InsertRefused::Contradiction(new.original));
        }
        if self.entries.values().filter(|e| e.0 == o).count() >= self.degree {
            return Err(InsertRefused::DegreeReached(new.original));
        }
        self.entries.insert(r, (o, new.hash, new.trust));
        Ok(())
    }

    /// (first, all verified)
    fn copies_of_run(&self, range: BlockRange) -> BTreeSet<(u32, bool)> {
        let holds = |first: u32| {
            let mut verified = true;
            for (k, o) in range.iter().enumerate() {
                match self.entries.get(&(first + k as u32)) {
                    Some(e) if e.0 == o.0 => verified &= e.2 == Trust::Verified,
                    _ => return None,
                }
            }
            Some((first, verified))
        };
        self.entries.keys().filter(|_| !range.is_empty()).filter_map(|&first| holds(first)).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// `len` originals from one place copied to another.
    InsertRun {
        original: u32,
        replica: u32,
        len: u32,
        trust: Trust,
        backwards: bool,
    },
    Remove(u32),
    RemoveByOriginal(u32, u32),
    RemoveByReplica(u32, u32),
    SetTrust(u32, u32, Trust),
    AllUnverified,
    Clear,
    Touch(u32),
    Age,
    Flush,
    Ask(u32, u32),
}

/// Addresses from two small worlds, so that steps meet one another; the worlds overlap a little,
/// so that contradictions occur. Parts of them lie far away, where addresses take more memory.
fn original() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![3 => 0u32..2100, 1 => (0u32..200).prop_map(|a| a + a / 100 * 2_000_000_000)]
}

fn replica() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![3 => 2000u32..5000, 1 => (2000u32..2200).prop_map(|a| a + a / 2100 * 1_000_000_000)]
}

fn trust() -> impl Strategy<Value = Trust> {
    prop_oneof![Just(Trust::Verified), Just(Trust::Unverified)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (original(), replica(), prop_oneof![Just(1u32), 2..10u32, 60..140u32], trust(), any::<bool>())
            .prop_map(|(original, replica, len, trust, backwards)| Step::InsertRun {
                original, replica, len, trust, backwards
            }),
        2 => replica().prop_map(Step::Remove),
        2 => (original(), prop_oneof![Just(1u32), 1..40u32, 1..400u32]).prop_map(|(a, n)| Step::RemoveByOriginal(a, n)),
        2 => (replica(), prop_oneof![1..8u32, 1..200u32, 1..1500u32]).prop_map(|(a, n)| Step::RemoveByReplica(a, n)),
        3 => (replica(), 1..50u32, trust()).prop_map(|(r, n, t)| Step::SetTrust(r, n, t)),
        1 => Just(Step::AllUnverified),
        1 => prop_oneof![9 => Just(Step::Age), 1 => Just(Step::Clear)],
        2 => replica().prop_map(Step::Touch),
        3 => Just(Step::Flush),
        6 => (original(), 0..150u32).prop_map(|(a, n)| Step::Ask(a, n)),
    ]
}

fn compare(table: &ReplicaTable, model: &Model, at: u32, len: u32) -> Result<(), TestCaseError> {
    let range = BlockRange::new(at, at + len);
    prop_assert_eq!(table.originals_in(range), model.originals_in(range));
    prop_assert_eq!(table.any_in_originals(range), !model.originals_in(range).is_empty());
    let mut copies = BTreeSet::new();
    for copy in table.copy_of_run(range) {
        prop_assert!(copies.insert((copy.first.0, copy.trust == Trust::Verified)), "a copy twice");
    }
    prop_assert_eq!(copies, model.copies_of_run(range));
    let near = BlockRange::new(at + 2000, at + 2000 + 7 * len);
    prop_assert_eq!(table.replicas_in(near), model.replicas_in(near));
    prop_assert_eq!(table.count_replicas_in(near), model.replicas_in(near).len());
    let runs: Vec<BlockRange> = table.replica_runs_in(near).collect();
    prop_assert!(runs.iter().all(|r| !r.is_empty()) && runs.windows(2).all(|w| w[0].end() <= w[1].start()));
    let blocks: Vec<BlockNo> = runs.iter().flat_map(|r| r.iter()).collect();
    prop_assert_eq!(blocks, model.replicas_in(near).iter().map(|r| r.replica).collect::<Vec<_>>());
    let of_hashes = table.hashes_in(near).flat_map(|(first, hashes)| (first.0..).zip(hashes.iter().copied()));
    let in_model = model.replicas_in(near).iter().map(|r| (r.replica.0, r.hash)).collect::<Vec<_>>();
    prop_assert_eq!(of_hashes.collect::<Vec<_>>(), in_model);
    let mut entries: Vec<Replica> = table.stretches_of(range).flat_map(|s| s.entries()).collect();
    entries.sort_unstable_by_key(|r| (r.original, r.replica));
    prop_assert_eq!(entries, model.originals_in(range));
    let parts: Vec<BlockRange> = table.copied_in(range).collect();
    prop_assert!(parts.windows(2).all(|w| w[0].start() <= w[1].start()), "{:?}", parts);
    let copied: BTreeSet<BlockNo> = parts.iter().flat_map(|p| p.iter()).collect();
    prop_assert_eq!(copied, model.originals_in(range).iter().map(|r| r.original).collect::<BTreeSet<_>>());
    for original in near.iter() {
        prop_assert_eq!(table.copies_of(original), table.replicas_of(original).count());
    }
    let one = BlockNo(at);
    let mut of: Vec<_> = table.replicas_of(one).collect();
    of.sort_by_key(|r| r.replica);
    prop_assert_eq!(table.has_replica(one), !of.is_empty());
    let first = table.first_copy_of(one);
    prop_assert!(first.map_or(of.is_empty(), |first| of.iter().any(|r| r.replica == first)));
    prop_assert_eq!(of, model.originals_in(BlockRange::one(one)));
    prop_assert_eq!(table.by_replica(BlockNo(at + 2000)), model.get(at + 2000));
    let unverified = |from: u32| {
        let all = model.originals_in(BlockRange::new(from, u32::MAX));
        all.into_iter().find(|r| r.trust == Trust::Unverified)
    };
    prop_assert_eq!(table.next_unverified(Some(one)), unverified(at + 1));
    prop_assert_eq!(table.next_unverified(None), unverified(0));
    Ok(())
}

/// What is on disk after a flush is the table.
fn on_disk(table: &ReplicaTable, disk: &[u8]) -> Result<(), TestCaseError> {
    let first = Geometry::new(0, 1, BlockSize::B4096).first_page_offset();
    let geometry = Geometry::new(first + disk.len() as u64, 1, BlockSize::B4096);
    let limits = Limits {
        first_block: BlockNo(0),
        blocks: u32::MAX,
        degree: table.degree(),
        forbidden: &|_| false,
        forbidden_original: &|_| false,
        trust_verified: true,
    };
    let mut recovery = Recovery::new(geometry, &Header::new(1, BlockSize::B4096, u32::MAX), limits);
    recovery.feed(0, disk);
    let (back, report) = recovery.finish();
    prop_assert!(report.is_clean(), "{}", report);
    prop_assert_eq!(back.len(), table.len());
    for (on_disk, in_memory) in back.iter().zip(table.iter()) {
        prop_assert!(on_disk.trust >= in_memory.trust, "{:?} became verified by a flush", in_memory);
        prop_assert_eq!(Replica { trust: in_memory.trust, ..on_disk }, in_memory);
    }
    Ok(())
}

fn run(steps: &[Step], capacity: usize, degree: u8) -> Result<(), TestCaseError> {
    let mut table = ReplicaTable::new(capacity, degree);
    let mut model = Model { degree: degree.into(), ..Model::default() };
    let mut hash = 0;
    let mut disk = Vec::new();
    for step in steps {
        match *step {
            Step::InsertRun { original, replica, len, trust, backwards } => {
                for k in 0..len {
                    let k = if backwards { len - 1 - k } else { k };
                    hash += 1;
                    let new = Replica {
                        original: BlockNo(original + k),
                        replica: BlockNo(replica + k),
                        hash,
                        trust,
                    };
                    let mut after = model.clone();
                    let expected = after.insert(new);
                    match table.insert(new) {
                        // The model knows no pages.
                        Err(InsertRefused::Full) => {
                            prop_assert_eq!(expected, Ok(()));
                            prop_assert!(
                                table.len() >= capacity,
                                "refused at {} of {}",
                                table.len(),
                                capacity
                            );
                        }
                        got => {
                            prop_assert_eq!(got, expected);
                            model = after;
                        }
                    }
                }
            }
            Step::Remove(r) => {
                prop_assert_eq!(table.remove(BlockNo(r)), model.get(r));
                model.entries.remove(&r);
            }
            Step::RemoveByOriginal(a, n) => {
                let range = BlockRange::new(a, a + n);
                let mut gone: Vec<u32> = model.originals_in(range).iter().map(|r| r.replica.0).collect();
                gone.sort_unstable();
                let removed = table.remove_by_original(range);
                prop_assert_eq!(removed.iter().flat_map(|r| r.start()..r.end()).collect::<Vec<_>>(), gone);
                model.entries.retain(|_, e| !range.contains(BlockNo(e.0)));
            }
            Step::RemoveByReplica(a, n) => {
                let range = BlockRange::new(a, a + n);
                prop_assert_eq!(table.remove_by_replica(range), model.replicas_in(range).len());
                model.entries.retain(|&r, _| !range.contains(BlockNo(r)));
            }
            Step::SetTrust(r, n, trust) => {
                for r in r..r + n {
                    prop_assert_eq!(table.set_trust(BlockNo(r), trust), model.entries.contains_key(&r));
                    model.entries.entry(r).and_modify(|e| e.2 = trust);
                }
            }
            Step::AllUnverified => {
                table.all_unverified();
                model.entries.values_mut().for_each(|e| e.2 = Trust::Unverified);
            }
            Step::Clear => {
                table.clear();
                model.entries.clear();
            }
            Step::Touch(r) => table.touch(BlockNo(r)),
            Step::Age => table.age(),
            Step::Flush => {
                let mut pages = Vec::new();
                while let Some(page) = table.next_dirty_page(pages.last().copied()) {
                    pages.push(page);
                }
                pages.extend(table.pages_needing_flag_change(true));
                for page in pages {
                    let encoded = table.encode_page(page, 1, 1, true);
                    let at = page as usize * PAGE_BYTES;
                    disk.resize(disk.len().max(at + PAGE_BYTES), 0);
                    disk[at..at + PAGE_BYTES].copy_from_slice(&encoded.bytes[..]);
                    table.mark_written(page, &encoded);
                }
                prop_assert_eq!(table.dirty_pages(), 0);
                on_disk(&table, &disk)?;
                prop_assert_eq!(table.pages_needing_flag_change(true).count(), 0);
            }
            Step::Ask(a, n) => compare(&table, &model, a, n)?,
        }
        prop_assert_eq!(table.len(), model.entries.len());
        prop_assert_eq!(table.is_empty(), model.entries.is_empty());
        let unverified = model.entries.values().filter(|e| e.2 == Trust::Unverified).count();
        prop_assert_eq!(table.unverified_count(), unverified);
        table.check();
    }
    prop_assert_eq!(table.iter().collect::<Vec<_>>(), model.all());
    let victims = table.victims(20, u8::MAX);
    let taken: Vec<BlockNo> = victims.iter().flat_map(|v| v.iter()).collect();
    prop_assert!(taken.iter().all(|&r| table.by_replica(r).is_some()));
    prop_assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), taken.len());
    prop_assert!(taken.len() >= table.len().min(20));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn as_a_plain_map(
        steps in prop::collection::vec(step(), 1..120), degree in 1u8..4, pages in prop_oneof![1usize..4, Just(20)],
    ) {
        run(&steps, pages * PAGE_ENTRIES, degree)?;
    }
}

#[test]
fn a_hundred_thousand() {
    // 3,000 runs of 32, each to a place of its own in scrambled order, then a region goes.
    let mut table = ReplicaTable::new(200_000, 1);
    let scrambled = |i: u32| (i * 1021) % 3000;
    for i in 0..3000u32 {
        for k in 0..32 {
            table
                .insert(Replica {
                    original: BlockNo(1_000_000 + scrambled(i) * 48 + k),
                    replica: BlockNo(5_000_000 + i * 40 + k),
                    hash: u64::from(i),
                    trust: Trust::Verified,
                })
                .unwrap();
        }
    }
    assert_eq!(table.len(), 96_000);
    table.check();
    // From the middle of run 500 to the middle of run 2500.
    let gone =
        table.remove_by_replica(BlockRange::new(5_000_000 + 500 * 40 + 16, 5_000_000 + 2500 * 40 + 16));
    assert_eq!(gone, 2000 * 32);
    assert_eq!(table.len(), 32_000);
    table.check();
    for i in 0..3000u32 {
        let range = BlockRange::at(BlockNo(1_000_000 + scrambled(i) * 48), 32);
        let whole = table.copy_of_run(range).next();
        assert_eq!(whole.is_some(), !(500..=2500).contains(&i), "run {i}");
        let left = table.originals_in(range).len();
        assert_eq!(
            left,
            if (501..2500).contains(&i) {
                0
            } else if i == 500 || i == 2500 {
                16
            } else {
                32
            }
        );
    }
    table.clear();
    assert!(table.is_empty());
    table.check();
}

#[test]
fn least_valuable_first() {
    let mut table = ReplicaTable::new(10_000, 1);
    for k in 0..64 {
        // No two files of eight lie in a row.
        let (original, replica) = (BlockNo(100 + k + k / 8), BlockNo(1000 + k));
        table.insert(Replica { original, replica, hash: 0, trust: Trust::Verified }).unwrap();
    }
    // Runs of eight: 0 used a few times long ago, 1 often long ago, 2 once just now, the others never.
    (0..5).for_each(|_| table.touch(BlockNo(1003)));
    (0..100).for_each(|_| table.touch(BlockNo(1010)));
    (0..9).for_each(|_| table.age());
    table.touch(BlockNo(1016));
    let order = |table: &mut ReplicaTable| -> Vec<u32> {
        let victims = table.victims(1000, u8::MAX);
        assert_eq!(victims.iter().map(|v| v.len()).sum::<u32>(), 64);
        victims.iter().map(|v| (v.start() - 1000) / 8).collect()
    };
    assert_eq!(order(&mut table)[5..], [0, 2, 1]);
    assert_eq!(
        table.age_and_value(BlockNo(1010)),
        Some((9, 36 - 18)),
        "as many uses as count, fallen nine times"
    );
    // What was often used is forgotten in the end, and what is used now is not.
    for _ in 0..300 {
        table.age();
        table.touch(BlockNo(1016));
    }
    assert_eq!(order(&mut table)[7], 2);
    assert_eq!(table.age_and_value(BlockNo(1010)).unwrap().1, 0);
    assert!(table.age_and_value(BlockNo(1010)).unwrap().0 >= 100);
}

/// Pages filled one after the other, thinned out evenly, and then entries into one place only: what remained free lies in all
/// pages.
#[test]
fn below_its_capacity_nothing_is_refused() {
    let new = |original: u32, replica: u32| Replica {
        original: BlockNo(original),
        replica: BlockNo(replica),
        hash: 0,
        trust: Trust::Verified,
    };
    for (capacity, each) in
        [(1, 2), (300, 7), (9 * 248, 8), (20 * 248 + 17, 15), (64 * 248, 15), (64 * 248, 500)]
    {
        let mut table = ReplicaTable::new(capacity, 1);
        for k in 0..capacity as u32 {
            table.insert(new(10_000_000 + k, 10_000 + 100 * k)).unwrap();
        }
        assert_eq!(table.insert(new(20_000_000, 1)), Err(InsertRefused::Full));
        for k in (0..capacity as u32).step_by(each) {
            table.remove(BlockNo(10_000 + 100 * k)).unwrap();
        }
        let mut more = 0;
        while table.len() < table.capacity() {
            let replica = 50_001 + more / 99 * 100 + more % 99;
            assert_eq!(table.insert(new(20_000_000 + more, replica)), Ok(()), "{capacity} {each} {more}");
            more += 1;
        }
        table.check();
        assert_eq!(table.insert(new(30_000_000, 2)), Err(InsertRefused::Full));
    }
}

#[test]
fn victims_are_worth_less() {
    let mut table = ReplicaTable::new(10_000, 1);
    for k in 0..64 {
        // No two files of eight lie in a row.
        let (original, replica) = (BlockNo(100 + k + k / 8), BlockNo(1000 + k));
        let worth = 10 * (k / 8) as u8;
        table.insert_worth(Replica { original, replica, hash: 0, trust: Trust::Verified }, worth).unwrap();
    }
    let starts = |victims: Vec<BlockRange>| victims.iter().map(|v| v.start() - 1000).collect::<Vec<u32>>();
    assert_eq!(starts(table.victims(100, 30)), [0, 8, 16]);
    assert_eq!(starts(table.victims(9, 30)), [0, 8], "no more than asked for, in whole runs");
    let less = table.worth_less();
    assert_eq!((less[0], less[1], less[10], less[11], less[71]), (0, 8, 8, 16, 64));
    table.touch_run(BlockRange::new(1000, 1008), 40);
    assert_eq!(starts(table.victims(100, 30)), [8, 16], "a use counts as much as it saves");
    (0..4).for_each(|_| table.age());
    assert_eq!(starts(table.victims(100, 30)), [8, 16, 24], "halved");
}

#[test]
fn a_sample_tells_how_many_are_worth_less() {
    let mut table = ReplicaTable::new(100_000, 1);
    for k in 0..40_000 {
        // One in four by place is worth 40, the others 10.
        let worth = if k / 1000 % 4 == 0 { 40 } else { 10 };
        let (original, replica) = (BlockNo(100_000 + 2 * k), BlockNo(1000 + k));
        table.insert_worth(Replica { original, replica, hash: 0, trust: Trust::Verified }, worth).unwrap();
    }
    let less = table.worth_less();
    assert_eq!((less[10], less[41]), (0, 40_000));
    assert!((27_000..33_000).contains(&less[40]), "{}", less[40]);
    assert!(table.victims(64, 20).len() == 64 && table.victims(64, 10).is_empty());
    // A page of 161 is worth nothing to anybody: the hands find it soon.
    let page = BlockRange::new(1000 + 100 * 248, 1000 + 101 * 248);
    for r in table.replicas_in(page) {
        table.remove(r.replica).unwrap();
        table.insert_worth(r, 1).unwrap();
    }
    let searches = (0..20).take_while(|_| table.victims(64, 9).is_empty()).count();
    assert!(searches < 12, "{searches}");
}

#[test]
fn a_copy_is_verified_only_if_all_of_it_is() {
    // Blocks 60..70 lie in two granules of the index.
    let mut table = ReplicaTable::new(100, 1);
    for k in 60..70 {
        let (original, replica) = (BlockNo(k), BlockNo(1000 + k));
        table.insert(Replica { original, replica, hash: 0, trust: Trust::Verified }).unwrap();
    }
    let trust = |table: &ReplicaTable| table.copy_of_run(BlockRange::new(60, 70)).next().map(|c| c.trust);
    assert_eq!(trust(&table), Some(Trust::Verified));
    for k in 60..70 {
        table.set_trust(BlockNo(1000 + k), Trust::Unverified);
        assert_eq!(trust(&table), Some(Trust::Unverified), "block {k}");
        table.set_trust(BlockNo(1000 + k), Trust::Verified);
        assert_eq!(trust(&table), Some(Trust::Verified));
    }
}

#[test]
fn the_hand_goes_round() {
    let mut table = ReplicaTable::new(100_000, 1);
    for k in 0..20_000 {
        let (original, replica) = (BlockNo(100_000 + k), BlockNo(1000 + k));
        table.insert(Replica { original, replica, hash: 0, trust: Trust::Verified }).unwrap();
    }
    let (first, second) = (table.victims(1, u8::MAX), table.victims(1, u8::MAX));
    assert!(!first[0].overlaps(second[0]), "the hand moves on");
    let mut seen = 0;
    for _ in 0..200 {
        let victims = table.victims(100, u8::MAX);
        assert!(!victims.is_empty());
        victims.into_iter().for_each(|v| seen += table.remove_by_replica(v));
        if table.is_empty() {
            break;
        }
    }
    assert_eq!(seen, 20_000);
}

#[test]
fn scattered_over_the_largest_volume() {
    let mut table = ReplicaTable::new(20_000, 1);
    let mut plain = BTreeMap::new();
    // Dense in one place, so that chunks divide; odd originals, even replicas.
    let place = |i: u32| if i.is_multiple_of(3) { i * 4 } else { i.wrapping_mul(0x9e37_79b1) };
    for i in 0..9000u32 {
        let (original, replica) = (BlockNo(place(i) & !3 | 1), BlockNo(i.wrapping_mul(0x85eb_ca6b) & !3));
        let entry = Replica { original, replica, hash: u64::from(i), trust: Trust::Verified };
        if table.insert(entry).is_ok() {
            plain.insert(original.0, replica);
        }
        if i % 3000 == 2999 {
            table.check();
        }
    }
    assert!(plain.len() > 8900);
    let same = |table: &ReplicaTable, plain: &BTreeMap<u32, BlockNo>| {
        table.check();
        assert_eq!(table.len(), plain.len());
        for (&original, &replica) in plain {
            let found: Vec<BlockNo> = table.replicas_of(BlockNo(original)).map(|r| r.replica).collect();
            assert_eq!(found, [replica], "{original}");
        }
    };
    same(&table, &plain);
    for gone in [BlockRange::new(0, 1 << 30), BlockRange::new(3 << 30, (3 << 30) + (1 << 24))] {
        table.remove_by_original(gone);
        plain.retain(|&original, _| !gone.contains(BlockNo(original)));
        same(&table, &plain);
    }
    table.all_unverified();
    let each: Vec<BlockNo> = plain.values().copied().step_by(2).collect();
    each.iter().for_each(|&replica| assert!(table.set_trust(replica, Trust::Verified)));
    assert_eq!(table.unverified_count(), plain.len() - each.len());
    table.remove_by_replica(BlockRange::new(1 << 31, u32::MAX));
    plain.retain(|_, replica| replica.0 < 1 << 31);
    same(&table, &plain);
}

#[test]
fn memory_for_an_entry() {
    // Half a million replicas, placed in scrambled order, of originals scattered over the volume; the last over half a TiB each.
    for (run, apart, most) in [(32, 1, 12), (8, 1, 13), (4, 1, 14), (1, 1, 20), (1, 255, 23)] {
        let mut table = ReplicaTable::new(13_000_000, 1);
        let runs = 500_000 / run;
        let scrambled = |i: u32, by: u64| (u64::from(i) * by % u64::from(runs)) as u32;
        for i in 0..runs {
            let original = 200_000_000 + scrambled(i, 104_729) * (3 * run + apart);
            let replica = 1000 + scrambled(i, 7919) * (run + apart);
            for k in 0..run {
                let (original, replica) = (BlockNo(original + k), BlockNo(replica + k));
                table.insert(Replica { original, replica, hash: 0, trust: Trust::Verified }).unwrap();
            }
        }
        let bytes = table.memory_bytes();
        assert!(
            bytes <= table.len() * most,
            "{bytes} bytes for {} entries in runs of {run}, {apart} apart",
            table.len()
        );
        table.clear();
        assert!(table.memory_bytes() < 2_000_000);
    }
}

/// Both ways through scattered runs, some with two copies, some not verified, in pages and chunks by the dozen.
#[test]
fn many_originals_go_at_once_as_they_go_one_by_one() {
    let mut state = 1u64;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(below)) as u32
    };
    const ORIGINALS: u32 = 30_000;
    for round in 0..12 {
        let mut table = ReplicaTable::new(40_000, 2);
        let longest = [1, 2, 7, 100][round % 4];
        for _ in 0..12_000 / longest {
            let (original, replica) = (draw(ORIGINALS), 2 * ORIGINALS + draw(60_000));
            let trust = if draw(9) == 0 { Trust::Unverified } else { Trust::Verified };
            for k in 0..1 + draw(longest) {
                let (original, replica) = (BlockNo(original + k), BlockNo(replica + 100 + k));
                // What is taken, or has two copies, is refused.
                let _ = table.insert(Replica { original, replica, hash: u64::from(replica.0), trust });
            }
        }
        let each = |range: BlockRange| range.start()..range.end();
        let mut start = 0;
        while start < ORIGINALS {
            // By chance a few blocks, or hundreds of runs.
            let wide = [60, 600, 6000][draw(3) as usize];
            let range = BlockRange::new(start, start + draw(wide));
            let mut slow = table.clone();
            let mut gone: Vec<u32> = each(range)
                .flat_map(|block| slow.remove_by_original(BlockRange::one(BlockNo(block))))
                .flat_map(each)
                .collect();
            gone.sort_unstable();
            assert!(
                table.remove_by_original(range).into_iter().flat_map(each).eq(gone),
                "round {round}: {range:?}"
            );
            table.check();
            assert!(table.iter().eq(slow.iter()), "round {round}: {range:?}");
            assert!(table.runs().eq(slow.runs()), "round {round}: {range:?}");
            assert_eq!((table.len(), table.unverified_count()), (slow.len(), slow.unverified_count()));
            assert_eq!(table.copied_in(range).count(), 0);
            start = range.end() + draw(wide);
        }
        let left = table.len();
        let rest = table.remove_by_original(BlockRange::new(0, u32::MAX)).into_iter().flat_map(each);
        assert_eq!(rest.count(), left);
        table.check();
        assert!(table.is_empty());
    }
}
