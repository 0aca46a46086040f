//! Which copy is read, or the original.

use super::*;

#[test]
fn of_copies_that_nothing_goes_on_from_the_one_that_reads_come_back_to_is_read() {
    let (original, copies) = (Extent::new(320 * u64::from(BLOCK), 1024), [BlockNo(2320), BlockNo(7000)]);
    let chosen = |without: &[Part]| {
        let mut policy = policy().without(without.iter().copied().collect());
        (0..50).for_each(|_| policy.copies_go_on.learn(BlockNo(7000), false, LEARN));
        for _ in 0..200 {
            for (original, copies) in
                [(1, &[BlockNo(2320)][..]), (2, &[BlockNo(7000)]), (3, &[BlockNo(7010)])]
            {
                policy.returns.asked(BlockNo(original), copies);
                policy.returns.read(BlockRange::at(BlockNo(original), 1), None);
            }
            (4..20).for_each(|other| policy.returns.read(BlockRange::at(BlockNo(other), 1), None));
        }
        choose(&mut policy, &Head::new(None), (original, BlockNo(320)), &copies, false)
    };
    assert_eq!((chosen(&[]), chosen(&[Part::Returns])), (Some(1), None));
}

#[test]
fn of_copies_that_nothing_goes_on_from_the_one_that_lies_where_all_else_is_is_read() {
    let shape = Shape { blocks: 8_000_000, group_blocks: 32_768, first_block: 0, block_bytes: 4096, seed: 0 };
    let original = Extent::new(1_000_000 * 4096, 4096);
    let chosen = |without: &[Part], others: bool, reads: bool| {
        // What is read again and again goes on, and so would the original.
        let without = without.iter().chain(&[Part::OriginalsChance]).copied().collect();
        let mut policy = Fs2::new(&shape).without(without);
        (0..50).for_each(|_| policy.copies_go_on.learn(BlockNo(7_000_000), false, LEARN));
        if reads {
            policy.miss = Nanos::from_millis(2);
            let ground = Ground { twice: Vec::new(), room: 100 };
            see(
                &mut policy,
                &ground,
                &[(7_000_000, 1, 6)].repeat(600),
                Others::Nobody,
                false,
                &mut Log::new(1 << 20),
            );
        } else {
            (0..600).for_each(|_| policy.written(BlockRange::one(BlockNo(7_000_000)), &[]));
        }
        let mut head = Head::new(None);
        head.goes_beside(others.then_some(elsewhere()).into_iter());
        // The original is somewhat nearer than the copy.
        head.completed(Op::Read, Sector(3_900_000 * 8), 4096, Nanos(0), Nanos::from_millis(1));
        choose(&mut policy, &head, (original, BlockNo(1_000_000)), &[BlockNo(7_000_000)], false)
    };
    let returns = Part::Returns;
    for reads in [false, true] {
        assert_eq!(chosen(&[returns], false, reads), Some(0), "{reads}");
        assert_eq!(chosen(&[returns, Part::Onward], false, reads), None, "{reads}");
        assert_eq!(
            chosen(&[returns], true, reads),
            None,
            "the drive chooses who is next by where the arm is"
        );
    }
}

#[test]
fn going_on_saves_little_where_reads_take_little_without_copies() {
    let (original, copies) = (Extent::new(320 * u64::from(BLOCK), 1024), [BlockNo(2320)]);
    let mut policy = policy();
    policy.copies_go_on.learn(BlockNo(2320), true, 1.0);
    let mut head = Head::new(None);
    // The head is right before the original, and reads go on from the copy.
    head.completed(Op::Read, Sector(original.sector().0 - 8), 4096, Nanos(0), Nanos::from_millis(1));
    let mut chosen = |head: &Head| choose(&mut policy, head, (original, BlockNo(320)), &copies, false);
    assert_eq!(chosen(&head), Some(0));
    head.takes_without_copies(2.0);
    assert_eq!(chosen(&head), Some(0), "no more than a positioning");
    head.takes_without_copies(0.5);
    assert_eq!(chosen(&head), None);
}

/// The head is right before the original, from which reads go on; from its copy they never did.
#[test]
fn a_read_goes_where_those_behind_it_go_on() {
    let (original, copies) = (Extent::new(320 * u64::from(BLOCK), 1024), [BlockNo(2320)]);
    let mut head = Head::new(None);
    head.completed(Op::Read, Sector(312), 4096, Nanos(0), Nanos::from_millis(1));
    let chosen = |without: &[Part], known: &[(u32, u32, &[u32])]| {
        let mut policy = policy().without(without.iter().copied().collect());
        policy.copies_go_on.learn(BlockNo(2320), false, 1.0);
        policy.originals_go_on.learn(BlockNo(320), true, 1.0);
        let mut behind = Behind::default();
        for &(first, blocks, copies) in known {
            behind.push(BlockRange::at(BlockNo(first), blocks), copies.iter().map(|&c| BlockNo(c)));
        }
        let (first, copies, only_copies) = (BlockNo(320), &copies[..], false);
        policy.choose(Nanos(0), &head, &Asked { original, first, copies, only_copies, behind: &behind })
    };
    assert_eq!(chosen(&[], &[]), None);
    // The next one has a copy right behind that, and lies elsewhere.
    let next: (u32, u32, &[u32]) = (900, 2, &[2322]);
    assert_eq!(chosen(&[], &[next]), Some(0));
    assert_eq!(chosen(&[Part::Lookahead], &[next]), None);
    assert_eq!(chosen(&[], &[(900, 2, &[2387])]), None, "too far behind");
    // It goes on from both: what comes behind it decides.
    let both: (u32, u32, &[u32]) = (322, 2, &[2322]);
    assert_eq!(chosen(&[], &[both]), None);
    assert_eq!(chosen(&[], &[both, (600, 2, &[2324])]), Some(0));
    // As much is saved where the second is read at home, for then the third goes on.
    assert_eq!(chosen(&[], &[both, (600, 2, &[2324]), (602, 2, &[])]), None, "the original is nearer");
    assert_eq!(chosen(&[], &[both, (600, 2, &[2324]), (602, 2, &[2326])]), Some(0));
    assert_eq!(chosen(&[], &[both, (324, 2, &[2324])]), None, "the original is nearer");
}

#[test]
fn in_a_crowd_among_the_copies_the_nearest_is_read() {
    let (original, copies) = (Extent::new(320 * u64::from(BLOCK), 1024), [BlockNo(7000), BlockNo(2320)]);
    let mut head = Head::new(None);
    // The head is right before the original; whether it still is when the read is served, nobody can know in company.
    head.completed(Op::Read, Sector(312), 4096, Nanos(0), Nanos::from_millis(1));
    let mut policy = policy();
    let mut asked = |policy: &mut Fs2, others: bool, only_copies: bool| {
        head.goes_beside(others.then_some(elsewhere()).into_iter());
        choose(policy, &head, (original, BlockNo(320)), &copies, only_copies)
    };
    // Where it is out of the arm's way a copy is read: the one that costs less.
    assert_eq!(asked(&mut policy, false, true), Some(0));
    let mut chosen = |policy: &mut Fs2, others: bool| asked(policy, others, false);
    let prefers = |policy: &Fs2| policy.prefers_copy(BlockNo(320), BlockNo(2320));
    assert_eq!(
        (chosen(&mut policy, false), chosen(&mut policy, true), prefers(&policy)),
        (None, None, false),
        "the others are elsewhere"
    );
    let ground = Ground { twice: Vec::new(), room: 100 };
    (0..150).for_each(|_| drop(after(&mut policy, &ground, &[(320, 2, 6), (900, 2, 6)])));
    assert_eq!((chosen(&mut policy, false), chosen(&mut policy, true)), (None, Some(1)));
    // Also before anything is at the drive, of what waits for it.
    assert!(prefers(&policy));
    assert!(!prefers(&policy.clone().without([Part::Crowds].into_iter().collect())));
    // Reads go on from the original as often as from the copy, and more often.
    policy.copies_go_on.learn(BlockNo(2320), true, 0.5);
    policy.originals_go_on.learn(BlockNo(320), true, 0.5);
    assert_eq!(chosen(&mut policy, true), Some(1));
    // A little more often is by chance: they would go to and fro.
    let mut little = policy.clone();
    little.originals_go_on.learn(BlockNo(320), true, 0.3);
    let more = little.original_goes_on(BlockNo(320)) - little.goes_on(BlockNo(2320));
    assert!((0.05..RATHER).contains(&more), "{more}");
    assert_eq!(chosen(&mut little, true), Some(1));
    policy.originals_go_on.learn(BlockNo(320), true, 0.5);
    assert_eq!((chosen(&mut policy, true), prefers(&policy)), (None, false));
    assert_eq!(asked(&mut policy.clone(), true, true), Some(1));
    let mut chosen = |policy: &mut Fs2, others: bool| asked(policy, others, false);
    let mut copies_alone = policy.clone().without([Part::OriginalsChance].into_iter().collect());
    assert_eq!(chosen(&mut copies_alone, true), Some(1));
    policy.copies_go_on.learn(BlockNo(2320), true, 1.0);
    policy.originals_go_on.learn(BlockNo(320), true, 1.0);
    assert_eq!(chosen(&mut policy, true), Some(1));
    // Others write.
    (0..300).for_each(|_| policy.written(BlockRange::new(5000, 5001), &[]));
    assert_eq!(chosen(&mut policy, true), None);
}

/// Pieces of large files, each read on from for a while, of which every place is new: copies were taken to go on as others do, and originals not.
#[test]
fn an_original_nobody_learnt_of_goes_on_as_others_do() {
    let shape = Shape { blocks: 8_000_000, group_blocks: 32_768, first_block: 0, block_bytes: 4096, seed: 0 };
    let mut policy = Fs2::new(&shape);
    let (original, copy) = (BlockNo(1_000_000), BlockNo(6_000_000));
    let mut head = Head::new(None);
    // The copy is somewhat nearer.
    head.completed(Op::Read, Sector(3_600_000 * 8), 4096, Nanos(0), Nanos::from_millis(1));
    let chosen = |policy: &mut Fs2| {
        choose(policy, &head, (Extent::new(original.0 as u64 * 4096, 4096), original), &[copy], false)
    };
    // Nothing comes back, so that each place's chance is that reads go on.
    let place = |n: u32| BlockNo(2_000_000 + 256 * n);
    (0..1000).for_each(|n| policy.copies_go_on.learn(place(n), n % 2 == 0, LEARN));
    assert_eq!(chosen(&mut policy), Some(0), "no original was seen to go on");
    (0..2000).for_each(|n| policy.originals_go_on.learn(place(n), n % 4 != 0, LEARN));
    assert!((0.6..0.9).contains(&policy.original_goes_on(original)));
    assert_eq!(chosen(&mut policy), None);
    // Of this one it is known that nothing goes on there.
    (0..100).for_each(|_| policy.originals_go_on.learn(original, false, LEARN));
    assert_eq!(chosen(&mut policy), Some(0));
}

#[test]
fn a_read_goes_where_the_drive_has_to_read_anyway() {
    let (original, copies) = (Extent::new(320 * u64::from(BLOCK), 1024), [BlockNo(7000), BlockNo(2320)]);
    let blocks = |first: u64, blocks: u64| Extent::new(first * u64::from(BLOCK), blocks * u64::from(BLOCK));
    let policy = policy();
    let asked = |policy: &Fs2, op: Op, beside: &[Extent], only_copies: bool| {
        let mut head = Head::new(None);
        // The head is right before the original, and one more is at the drive.
        head.completed(Op::Read, Sector(312), 4096, Nanos(0), Nanos::from_millis(1));
        head.goes_beside(beside.iter().map(|&e| (op, e)).chain([elsewhere()]));
        choose(&mut policy.clone(), &head, (original, BlockNo(320)), &copies, only_copies)
    };
    let chosen = |beside: &[Extent]| asked(&policy, Op::Read, beside, false);
    let far = u64::from(READS_AHEAD);
    assert_eq!(chosen(&[]), None, "it costs least");
    // Before the copy and behind it; another copy.
    assert_eq!(chosen(&[blocks(2320 - far - 4, 4)]), Some(1));
    assert_eq!(chosen(&[blocks(2320 - far - 5, 4)]), None);
    assert_eq!(chosen(&[blocks(2320 + far, 4)]), Some(1));
    assert_eq!(chosen(&[blocks(2321 + far, 4)]), None);
    assert_eq!(chosen(&[blocks(900, 4), blocks(7004, 4)]), Some(0));
    // Where both are, what costs least.
    assert_eq!(chosen(&[blocks(2324, 4), blocks(316, 4)]), None);
    assert_eq!(
        asked(&policy, Op::Write, &[blocks(2324, 4)], false),
        None,
        "no read is saved a way by a write"
    );
    let without = policy.clone().without([Part::Joins].into_iter().collect());
    assert_eq!(asked(&without, Op::Read, &[blocks(2324, 4)], false), None);

    // A crowd among the copies reads the nearest of them, but for what lies beside what is read from its own place.
    let mut policy = policy.clone();
    let ground = Ground { twice: Vec::new(), room: 100 };
    (0..150).for_each(|_| drop(after(&mut policy, &ground, &[(320, 2, 6), (900, 2, 6)])));
    let chosen = |beside: &[Extent], only_copies| asked(&policy, Op::Read, beside, only_copies);
    assert_eq!(chosen(&[], false), Some(1));
    assert_eq!(chosen(&[blocks(316, 4)], false), None);
    assert_eq!(chosen(&[blocks(316, 4)], true), Some(1), "the original is out of the arm's way");
    assert_eq!(chosen(&[blocks(316, 4), blocks(7004, 4)], true), Some(0), "so only a copy is beside one");
    assert_eq!(chosen(&[blocks(7004, 4)], false), Some(0));
}

/// A drive of which nothing is known keeps what it read: an original in its cache is sooner read than a copy that nobody read yet.
#[test]
fn an_original_that_was_read_nearby_is_read_again_where_that_takes_no_time() {
    let (original, copies) = (Extent::new(320 * u64::from(BLOCK), 1024), [BlockNo(9000)]);
    let sector = |block: u64| Sector(block * u64::from(BLOCK) / 512);
    let chosen = |near_ms: u64, without: &[Part]| {
        let (mut head, mut now) = (Head::new(None), Nanos(0));
        let mut read = |block: u64, ms: u64| {
            head.completed(Op::Read, sector(block), 1024, now, now + Nanos::from_millis(ms));
            now += Nanos::from_millis(100);
        };
        for n in 0..60 {
            read(1_000_000 + n * 50_000, 9);
            read(260 + n % 5 * 10, near_ms);
        }
        // The head is on the copy's side.
        read(6900, 9);
        let mut policy = policy().without(without.iter().copied().collect());
        choose(&mut policy, &head, (original, BlockNo(320)), &copies, false)
    };
    assert_eq!((chosen(1, &[]), chosen(9, &[])), (None, Some(0)));
    assert_eq!(chosen(1, &[Part::Nearby]), Some(0));
}

#[test]
fn a_copy_where_reads_take_longer_is_not_read() {
    let ground = Ground { twice: Vec::new(), room: 100 };
    let (original, copies) = (Extent::new(320 * u64::from(BLOCK), 1024), [BlockNo(2320)]);
    let mut head = Head::new(None);
    // The head is right before the copy.
    head.completed(Op::Read, Sector(2312), 4096, Nanos(0), Nanos::from_millis(1));
    let mut policy = policy();
    let chosen = |policy: &mut Fs2| choose(policy, &head, (original, BlockNo(320)), &copies, false);
    assert_eq!(chosen(&mut policy), Some(0));
    // As long as predicted.
    after(&mut policy, &ground, &[(320, 2, 6)]);
    assert_eq!(chosen(&mut policy), Some(0));
    for _ in 0..4 {
        policy.slow.took(BlockNo(2320), Nanos::from_millis(20), Nanos::from_millis(2));
    }
    assert_eq!(chosen(&mut policy), None);
}
