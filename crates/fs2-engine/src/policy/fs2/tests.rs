use super::*;
use crate::config::LONG_REST;
use crate::policy::Behind;
use fs2_block::{Extent, Op};

mod choice;

/// Everything below 1,000 has a copy, 2,000 blocks further; `twice` has two.
struct Ground {
    twice: Vec<u32>,
    room: usize,
}

impl Space for Ground {
    fn vacant(&self, _: u32) -> Option<Vec<BlockRange>> {
        None
    }
    fn is_known(&self, _: u32) -> bool {
        true
    }
    fn first_vacant(&self, _: BlockRange, _: u32, _: u32) -> Option<BlockRange> {
        None
    }
    fn vacated(&self, _: BlockRange) -> u64 {
        0
    }
    fn has_replica(&self, block: BlockNo) -> bool {
        self.copies(block) == 2
    }
    fn copies(&self, block: BlockNo) -> usize {
        usize::from(block.0 < 1000) + usize::from(self.twice.contains(&block.0))
    }
    fn room(&self) -> usize {
        self.room
    }
}

const BLOCK: u32 = 512;

/// What is chosen where nobody knows what is read next.
fn choose(
    policy: &mut Fs2,
    head: &Head,
    (original, first): (Extent, BlockNo),
    copies: &[BlockNo],
    only_copies: bool,
) -> Option<usize> {
    let behind = &Behind::default();
    policy.choose(Nanos(0), head, &Asked { original, first, copies, only_copies, behind })
}

/// What the drive has to serve besides, far from all else.
fn elsewhere() -> (Op, Extent) {
    (Op::Read, Extent::new(1 << 40, 4096))
}

fn policy() -> Fs2 {
    let shape = Shape { blocks: 8000, group_blocks: 4000, first_block: 0, block_bytes: BLOCK, seed: 0 };
    let mut policy = Fs2::new(&shape);
    policy.miss = Nanos::from_millis(2);
    policy.second_room = 1000.0;
    // No sequence is expected from these copies on.
    (0..50).for_each(|_| policy.copies_go_on.learn(BlockNo(2320), false, LEARN));
    policy
}

fn after(policy: &mut Fs2, ground: &Ground, reads: &[(u32, u32, u64)]) -> Vec<u32> {
    in_company(policy, ground, reads, Others::Nobody)
}

/// Who else has requests when a read ends.
#[derive(Clone, Copy, PartialEq)]
enum Others {
    Nobody,
    Waiting,
    AtDrive,
}

/// Reads that were served by their copies, each in so many milliseconds; what waits in the log then.
fn in_company(policy: &mut Fs2, ground: &Ground, reads: &[(u32, u32, u64)], others: Others) -> Vec<u32> {
    read(policy, ground, reads, others, true)
}

/// The same, and whether the log has room for what they brought.
fn read(
    policy: &mut Fs2,
    ground: &Ground,
    reads: &[(u32, u32, u64)],
    others: Others,
    room: bool,
) -> Vec<u32> {
    let mut log = Log::new(1 << 20);
    see(policy, ground, reads, others, room, &mut log);
    policy.idle(Nanos(0), &mut log);
    std::iter::from_fn(|| log.take(100)).flat_map(|b| b.blocks).map(|b| b.original.0).collect()
}

fn see(
    policy: &mut Fs2,
    ground: &Ground,
    reads: &[(u32, u32, u64)],
    others: Others,
    room: bool,
    log: &mut Log,
) {
    for &(start, len, ms) in reads {
        let blocks = BlockRange::new(start, start + len);
        let (data, hashes) = (vec![0; (len * BLOCK) as usize], vec![0; len as usize]);
        let data = if room { Brought::Bytes(&data) } else { Brought::NOTHING };
        let first_copy = (start < 1000).then(|| BlockNo(start + 2000));
        let copy = first_copy.filter(|_| start + len <= 1000);
        policy.read_came(blocks);
        policy.read_seen(
            &ReadSeen {
                now: Nanos::from_millis(ms),
                arrived: Nanos(0),
                touched: blocks,
                blocks,
                data,
                wanted: true,
                hashes: &hashes,
                copy,
                first_copy,
                measured: Nanos::from_millis(ms),
                served: Nanos::from_millis(ms),
                alone: others == Others::Nobody,
                at_once: others != Others::AtDrive,
                expected: None,
                positioning: Nanos::from_millis(6),
                transfer: Nanos(0),
            },
            ground,
            log,
        );
    }
}

/// A read of these, with nothing to copy.
fn seen(blocks: BlockRange) -> ReadSeen<'static> {
    ReadSeen {
        now: Nanos::from_millis(6),
        arrived: Nanos(0),
        touched: blocks,
        blocks,
        data: Brought::NOTHING,
        wanted: false,
        hashes: &[],
        copy: None,
        first_copy: None,
        measured: Nanos::from_millis(1),
        served: Nanos::from_millis(1),
        alone: true,
        at_once: true,
        expected: None,
        positioning: Nanos::from_millis(6),
        transfer: Nanos(0),
    }
}

#[test]
fn a_read_between_others_is_copied_again_in_the_order_of_now() {
    let ground = Ground { twice: Vec::new(), room: 100 };
    let reads = [(320, 2, 6), (1500, 1, 6), (330, 2, 6), (900, 1, 6)];
    // The last has not turned out to be one, but others have.
    assert_eq!(after(&mut policy(), &ground, &reads), [320, 321, 1500, 330, 331, 900]);
    assert_eq!(in_company(&mut policy(), &ground, &reads, Others::AtDrive), [1500]);
    // From the drive's cache.
    assert_eq!(after(&mut policy(), &ground, &[(320, 2, 1), (1500, 1, 6)]), [1500]);
}

/// Nobody else is at the drive right now, but mostly somebody was.
#[test]
fn who_is_alone_for_a_moment_has_no_order_of_its_own() {
    let ground = Ground { twice: Vec::new(), room: 100 };
    let (reads, mut policy) = ([(320, 2, 6), (1500, 1, 6)], policy());
    let others = [(340, 1, 1), (700, 1, 1)].repeat(200);
    assert_eq!(in_company(&mut policy, &ground, &others, Others::AtDrive), []);
    assert_eq!(after(&mut policy, &ground, &reads), [1500]);
    after(&mut policy, &ground, &others);
    after(&mut policy, &ground, &others);
    assert_eq!(after(&mut policy, &ground, &reads), [320, 321, 1500]);
}

/// Others wait, but not at the drive: which of two places is nearer is known if the drive is.
#[test]
fn what_one_at_a_time_is_served_of_has_a_second_place_in_no_order() {
    let ground = Ground { twice: Vec::new(), room: 100 };
    let reads = [(320, 2, 6), (1500, 1, 6)];
    assert_eq!(in_company(&mut policy(), &ground, &reads, Others::Waiting), [1500]);
    let mut policy = policy();
    policy.described = true;
    assert_eq!(in_company(&mut policy, &ground, &reads, Others::AtDrive), [1500]);
    assert_eq!(in_company(&mut policy, &ground, &reads, Others::Waiting), [320, 321, 1500]);
    // The drive mostly has several, though not right now.
    let others = [(340, 1, 1), (700, 1, 1)].repeat(200);
    assert_eq!(in_company(&mut policy, &ground, &others, Others::AtDrive), []);
    assert_eq!(in_company(&mut policy, &ground, &reads, Others::Waiting), [1500]);
}

/// Blocks below 1,000 have a copy, so that 998 to 1,001 could be read from nowhere in one.
#[test]
fn what_has_a_copy_in_part_is_copied_whole() {
    let ground = Ground { twice: vec![700], room: 100 };
    let crossing = [(998, 4, 6)];
    let allowed = |blocks: f64| {
        let mut policy = policy();
        policy.whole_room = blocks;
        policy
    };
    assert_eq!(after(&mut allowed(2.0), &ground, &crossing), [998, 999, 1000, 1001]);
    // In a crowd, too: it is no order, but what is read at once.
    assert_eq!(in_company(&mut allowed(2.0), &ground, &crossing, Others::AtDrive), [998, 999, 1000, 1001]);
    // Not beyond its share, nor where there is no room, nor a third time, nor what waits in the log.
    assert_eq!(after(&mut allowed(1.0), &ground, &crossing), [1000, 1001]);
    assert_eq!(after(&mut allowed(2.0), &Ground { twice: Vec::new(), room: 3 }, &crossing), [1000, 1001]);
    assert_eq!(after(&mut allowed(2.0), &Ground { twice: vec![999], room: 100 }, &crossing), [1000, 1001]);
    assert_eq!(after(&mut allowed(9.0), &ground, &[(1000, 1, 6), (998, 4, 6)]), [1000, 1001]);
    let mut without = allowed(2.0).without([Part::SecondCopies].into_iter().collect());
    assert_eq!(after(&mut without, &ground, &crossing), [1000, 1001]);
}

#[test]
fn copies_of_what_is_read_at_once_are_a_share_of_what_is_read() {
    let ground = Ground { twice: Vec::new(), room: 100_000 };
    let mut policy = policy();
    policy.whole_room = 0.0;
    // Each of two blocks, the first of which has a copy.
    let copied: Vec<u32> = (0..100).flat_map(|_| after(&mut policy, &ground, &[(999, 2, 6)])).collect();
    assert_eq!(copied.iter().filter(|&&b| b == 999).count(), 9);
    assert_eq!(copied.iter().filter(|&&b| b == 1000).count(), 100);
}

#[test]
fn where_the_next_read_goes_on_there_is_no_second_copy() {
    let ground = Ground { twice: Vec::new(), room: 100 };
    assert_eq!(after(&mut policy(), &ground, &[(320, 2, 6), (322, 1, 1), (1500, 1, 6)]), [1500]);
    let mut sequences_hold = policy();
    (0..50).for_each(|_| sequences_hold.copies_go_on.learn(BlockNo(2320), true, LEARN));
    assert_eq!(after(&mut sequences_hold, &ground, &[(320, 2, 6), (1500, 1, 6)]), [1500]);
}

#[test]
fn second_copies_are_a_share_of_what_is_read() {
    let ground = Ground { twice: Vec::new(), room: 100_000 };
    let mut policy = policy();
    policy.second_room = 0.0;
    let reads: Vec<_> = (0..70).flat_map(|i| [(310 + 3 * i, 2, 6), (1500, 1, 6)]).collect();
    let copied = after(&mut policy, &ground, &reads).into_iter().filter(|&b| b < 1000).count();
    // Of 210 blocks.
    assert_eq!(copied, 8);
}

#[test]
fn what_the_drive_reads_ahead_is_not_copied() {
    let ground = Ground { twice: Vec::new(), room: 100_000 };
    // The arm goes to the first; the drive reads ahead of the other seven, or the arm goes there, too.
    let reads =
        |each| (0..8).map(|i| (1100 + 128 * i, 128, if i == 0 { 1 } else { each })).collect::<Vec<_>>();
    assert_eq!(after(&mut policy(), &ground, &reads(0)), []);
    assert_eq!(after(&mut policy(), &ground, &reads(6)).len(), 1024);
    let mut all = policy();
    all.without = [Part::Streams].into_iter().collect();
    assert_eq!(after(&mut all, &ground, &reads(0)).len(), 1024);
}

#[test]
fn streams_among_others_are_left_where_they_are() {
    let ground = Ground { twice: Vec::new(), room: 100_000 };
    // A reader of 64 KiB at a time, and between its reads one block far away each time; the log has room for a MiB.
    let reads = |each| -> Vec<_> {
        (0..40).flat_map(|i| [(1100 + 128 * i, 128, each), (6300 + 41 * (i * 7 % 40), 1, 6)]).collect()
    };
    let copied = after(&mut policy(), &ground, &reads(3));
    assert!(copied.len() == 40 && copied.iter().all(|&b| b >= 6300), "{copied:?}");
    // Where each of its reads moves the arm, all is copied as it came, as long as a read finds room whole.
    assert_eq!(after(&mut policy(), &ground, &reads(6)).len(), 15 * 128 + 40);
    let mut all = policy();
    all.without = [Part::Streams].into_iter().collect();
    assert_eq!(after(&mut all, &ground, &reads(3)).len(), 15 * 128 + 40);
    // Nor is it read again later, where the log had no room for it.
    let turns: Vec<_> = (0..40).flat_map(|i| [(1100 + 128 * i, 128, 3), (6300, 1, 6)]).collect();
    let later = |mut policy: Fs2| {
        read(&mut policy, &ground, &turns, Others::Nobody, false);
        policy.fetch(Nanos::from_millis(2000), &ground)
    };
    assert_eq!(later(policy()), Fetch::Read(BlockRange::new(6300, 6301)));
    assert!(matches!(later(all), Fetch::Read(blocks) if blocks.start() == 1100));
}

#[test]
fn what_hardly_comes_again_is_copied_when_it_does() {
    let ground = Ground { twice: Vec::new(), room: 100_000 };
    let mut policy = policy();
    let tour: Vec<_> = (0..6).map(|i| (1530 + 10 * i, 2, 6)).collect();
    assert_eq!(after(&mut policy, &ground, &tour).len(), 12);
    while policy.admission.is_open() {
        policy.admission.first(1, true);
    }
    let late = |policy: &mut Fs2, at| {
        read(policy, &ground, &[(at, 2, 6)], Others::Nobody, false);
        policy.fetch(Nanos::from_millis(2000), &ground)
    };
    assert_eq!(late(&mut policy, 2000), Fetch::Nothing);
    assert_eq!(late(&mut policy, 2000), Fetch::Read(BlockRange::new(2000, 2002)));
    assert_eq!(after(&mut policy, &ground, &[(1600, 3, 6), (1540, 2, 6)]), [1540, 1541]);
    assert_eq!(after(&mut policy, &ground, &[(1600, 4, 6)]), [1600, 1601, 1602, 1603], "by strides");
    // What has a copy is no first reading, whether or not it is remembered.
    assert_eq!(after(&mut policy, &ground, &[(320, 2, 6), (1610, 1, 6)]), [320, 321]);
    policy.whole_room = 3.0;
    assert_eq!(after(&mut policy, &ground, &[(997, 4, 6)]), [997, 998, 999, 1000]);
    // Read again before its run ends.
    assert_eq!(after(&mut policy, &ground, &[(1620, 2, 6), (1620, 2, 6), (1630, 1, 6)]), [1620, 1621]);
    // Whole rows: of 18 blocks 13 are remembered, of 12 two.
    assert_eq!(after(&mut policy, &ground, &[(1717, 16, 6)]), []);
    let row: Vec<u32> = (1715..1733).collect();
    assert_eq!(after(&mut policy, &ground, &[(1715, 18, 6)]), row);
    assert_eq!(after(&mut policy, &ground, &[(1744, 2, 6)]), []);
    assert_eq!(after(&mut policy, &ground, &[(1734, 12, 6)]), []);
    // One of the sample: others may be copied at once again.
    assert_eq!(after(&mut policy, &ground, &[(1700, 20, 6)]), []);
    assert_eq!(after(&mut policy, &ground, &[(1708, 1, 6), (1900, 2, 6)]), [1708, 1900, 1901]);
    let mut all = policy.clone();
    while all.admission.is_open() {
        all.admission.first(1, true);
    }
    all.without = [Part::Admission].into_iter().collect();
    assert_eq!(after(&mut all, &ground, &[(1950, 2, 6)]), [1950, 1951]);
}

/// A read of which only some finds room in the log is remembered whole.
#[test]
fn what_straddles_a_full_log_is_read_again() {
    let ground = Ground { twice: Vec::new(), room: 1000 };
    let (mut policy, mut log) = (policy(), Log::new(3 * BLOCK as usize));
    see(&mut policy, &ground, &[(1500, 5, 6)], Others::Nobody, true, &mut log);
    policy.idle(Nanos(0), &mut log);
    assert!(!log.has_work());
    assert_eq!(policy.fetch(LONG_REST, &ground), Fetch::Read(BlockRange::new(1500, 1505)));
    // And is not copied a second time in pieces.
    for read in [(320, 4, 6), (998, 4, 6)] {
        let (mut policy, mut log) = (self::policy(), Log::new(3 * BLOCK as usize));
        policy.whole_room = 1000.0;
        see(&mut policy, &ground, &[read, (1600, 1, 6)], Others::Nobody, true, &mut log);
        policy.idle(Nanos(0), &mut log);
        let waits: Vec<u32> = log.take(100).unwrap().blocks.iter().map(|b| b.original.0).collect();
        assert!(!waits.iter().any(|&b| b < 1000), "{waits:?}");
        assert!(policy.second_room >= 1000.0, "nothing was paid");
    }
}

/// The next read goes on from the copy that was read, which need not be the first of it.
#[test]
fn a_second_copy_that_reads_go_on_from_is_known_to() {
    let ground = Ground { twice: (0..1000).collect(), room: 100 };
    let mut policy = policy();
    let mut log = Log::new(1 << 20);
    let second = |start: u32| BlockNo(7000 + start);
    for _ in 0..50 {
        for start in [500, 502, 10] {
            let blocks = BlockRange::new(start, start + 2);
            let copy = Some(second(start));
            policy.read_seen(
                &ReadSeen { copy, first_copy: Some(BlockNo(2000 + 37 * start)), ..seen(blocks) },
                &ground,
                &mut log,
            );
        }
    }
    // Half of the reads there do.
    assert!(policy.copies_go_on.of(second(500)) > 0.4, "{}", policy.copies_go_on.of(second(500)));
    assert!(policy.copies_go_on.of(second(10)) < 0.1);
}

/// Others would wait for it.
#[test]
fn behind_a_read_in_company_there_is_no_trail() {
    let ground = Ground { twice: Vec::new(), room: 100 };
    for others in [Others::Waiting, Others::AtDrive, Others::Nobody] {
        let mut policy = policy();
        policy.reading = Reading { turn_ms: 8.0, bytes_a_ms: 64_000.0, bytes_max: 1 << 20 };
        let alone = others == Others::Nobody;
        let trails = (0..16).filter(|i| {
            see(&mut policy, &ground, &[(i * 50, 2, 6)], others, true, &mut Log::new(1 << 20));
            policy.trail().is_some()
        });
        assert_eq!(trails.count() > 0, alone);
    }
}

/// What is read again after a rest is written in the next pause if a client comes before all of it was.
#[test]
fn a_client_ends_the_lot_that_is_read_for_copies() {
    let ground = Ground { twice: Vec::new(), room: 100 };
    let (mut policy, mut log) = (policy(), Log::new(1 << 20));
    see(&mut policy, &ground, &[(1900, 1, 6), (1500, 1, 6)], Others::Nobody, false, &mut log);
    policy.idle(Nanos(0), &mut log);
    let Fetch::Read(first) = policy.fetch(LONG_REST, &ground) else { panic!() };
    policy.fetched(first, Brought::Bytes(&[0; BLOCK as usize]), &[0], &mut log);
    assert!(!log.has_work());
    // From the drive's cache, so that it wants no other copy itself.
    see(&mut policy, &ground, &[(20, 1, 1)], Others::Nobody, true, &mut log);
    assert!(log.has_work());
    policy.idle(Nanos(0), &mut log);
    assert_eq!(log.take(100).unwrap().blocks.iter().map(|b| b.original.0).collect::<Vec<_>>(), [1500]);
    assert_eq!(policy.fetch(LONG_REST, &ground), Fetch::Read(BlockRange::one(BlockNo(1900))));
}

#[test]
fn second_copies_take_no_room_from_first_ones_and_there_is_no_third() {
    let reads = [(320, 2, 6), (1500, 1, 6)];
    let full = Ground { twice: Vec::new(), room: 1 };
    assert_eq!(after(&mut policy(), &full, &reads), [1500]);
    let ground = Ground { twice: vec![321], room: 100 };
    assert_eq!(after(&mut policy(), &ground, &reads), [1500]);
}

/// What was read, and what a copy of each is worth.
fn worths(reads: &[(u32, u32, u64)], alone: bool) -> Vec<(u32, u8)> {
    let ground = Ground { twice: Vec::new(), room: 100 };
    let mut policy = policy();
    (policy.second_room, policy.whole_room) = (0.0, 1.0);
    let mut worths = Vec::new();
    let mut log = Log::new(1 << 20);
    let others = if alone { Others::Nobody } else { Others::AtDrive };
    see(&mut policy, &ground, reads, others, true, &mut log);
    policy.idle(Nanos(0), &mut log);
    while let Some(batch) = log.take(100) {
        worths.extend(batch.blocks.iter().map(|b| (b.original.0, b.worth)));
    }
    worths
}

#[test]
fn what_is_read_between_copies_keeps_them_apart() {
    let alone = worths(&[(1500, 1, 6)], true)[0].1;
    assert_eq!(worths(&[(1500, 1, 6), (330, 2, 1)], true), [(1500, alone)], "the drive's cache had it");
    assert_eq!(worths(&[(1500, 1, 6), (330, 2, 6)], true), [(1500, alone + 8)], "the arm had to come back");
    let apart = worths(&[(1400, 1, 6), (1500, 1, 6), (330, 2, 6)], true);
    assert_eq!(apart, [(1400, alone), (1500, alone + 8)]);
    // What it took is saved for those that had no copy.
    assert_eq!(worths(&[(999, 3, 6)], true), [(999, alone - 8), (1000, alone - 8), (1001, alone - 8)]);
    // In a crowd, for the second it has to come from an original.
    assert_eq!(worths(&[(1400, 1, 6), (1500, 1, 6)], false), [(1400, alone), (1500, alone - 8)]);
}

/// The first block of a long read may have a copy right before the end of the largest volume, and the others elsewhere.
#[test]
fn a_copy_at_the_end_of_the_largest_volume_is_followed_by_nothing() {
    let last = BlockNo(u32::MAX - 2);
    let shape = Shape { blocks: u32::MAX, group_blocks: 4000, first_block: 0, block_bytes: BLOCK, seed: 0 };
    let mut policy = Fs2::new(&shape);
    policy.second_room = 1000.0;
    policy.miss = Nanos::from_millis(2);
    (0..50).for_each(|_| policy.copies_go_on.learn(last, false, LEARN));
    let (blocks, hashes) = (BlockRange::new(320, 384), [0; 64]);
    let data = [0; 64 * BLOCK as usize];
    let mut log = Log::new(1 << 20);
    for _ in 0..3 {
        let seen = ReadSeen {
            now: Nanos::from_millis(6),
            arrived: Nanos(0),
            touched: blocks,
            blocks,
            data: Brought::Bytes(&data),
            wanted: true,
            hashes: &hashes,
            copy: None,
            first_copy: Some(last),
            measured: Nanos::from_millis(6),
            served: Nanos::from_millis(6),
            alone: true,
            at_once: true,
            expected: None,
            positioning: Nanos::from_millis(6),
            transfer: Nanos(0),
        };
        policy.read_seen(&seen, &Ground { twice: Vec::new(), room: 1000 }, &mut log);
    }
    assert!(policy.second.is_some(), "it moved the arm, and is copied again");
}

/// Also where nothing of it may be copied.
#[test]
fn a_copy_that_somebody_reads_is_made_again_at_once() {
    let (mut policy, ground) = (policy(), Ground { twice: Vec::new(), room: 100 });
    let mut log = Log::new(1 << 20);
    let trust = fs2_table::Trust::Verified;
    let lost = [Replica { original: BlockNo(1500), replica: BlockNo(3500), hash: 0, trust }];
    for round in 0..40 {
        policy.written(BlockRange::new(1500, 1501), &lost);
        let Fetch::Read(read) = policy.fetch(Nanos(0), &ground) else { panic!("round {round}") };
        policy.fetched(read, Brought::Bytes(&[0; BLOCK as usize]), &[0], &mut log);
        while log.take(100).is_some() {}
        policy.read_seen(&seen(BlockRange::new(1499, 1502)), &ground, &mut log);
    }
}
