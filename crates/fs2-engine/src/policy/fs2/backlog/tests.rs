use std::cell::Cell;

use super::*;

const BLOCK: u32 = 4096;

/// Copies of `copied`; everything from 1,000 on is free.
#[derive(Default)]
struct Ground {
    copied: Vec<u32>,
    taken: Vec<u32>,
    /// What is worth less than this finds no place.
    least: u8,
    /// How often it was asked whether a block has a copy or is free.
    asked: Cell<usize>,
}

impl Space for Ground {
    fn vacant(&self, _: u32) -> Option<Vec<BlockRange>> {
        None
    }
    fn is_known(&self, _: u32) -> bool {
        true
    }
    fn first_vacant(&self, within: BlockRange, least: u32, enough: u32) -> Option<BlockRange> {
        self.asked.update(|n| n + 1);
        let from = within.start().max(1000);
        let free = BlockRange::new(from, within.end().max(from).min(from + enough));
        let taken = free.iter().any(|b| self.taken.contains(&b.0));
        (free.len() >= least && !taken).then_some(free)
    }
    fn vacated(&self, _: BlockRange) -> u64 {
        0
    }
    fn has_replica(&self, block: BlockNo) -> bool {
        self.copied.contains(&block.0)
    }
    fn copies(&self, block: BlockNo) -> usize {
        self.asked.update(|n| n + 1);
        usize::from(self.copied.contains(&block.0))
    }
    fn room(&self) -> usize {
        1000
    }
    fn room_for(&self, worth: u8) -> usize {
        if worth >= self.least { 1000 } else { 0 }
    }
}

fn shape() -> Shape {
    Shape { blocks: 8000, group_blocks: 4000, first_block: 0, block_bytes: BLOCK, seed: 0 }
}

/// Reads all that is asked for, and says what.
fn read(b: &mut Backlog, rested: Nanos, ground: &Ground, log: &mut Log) -> Vec<(u32, u32)> {
    let mut reads = Vec::new();
    while let Fetch::Read(r) = b.fetch(rested, BLOCK, ground) {
        reads.push((r.start(), r.end()));
        let data = vec![0; (r.len() * BLOCK) as usize];
        let hashes: Vec<u64> = r.iter().map(|b| u64::from(b.0)).collect();
        b.fetched(r, Brought::Bytes(&data), &hashes, BLOCK, log);
    }
    reads
}

fn written_in(log: &mut Log) -> Vec<u32> {
    std::iter::from_fn(|| log.take(100)).flat_map(|b| b.blocks).map(|b| b.original.0).collect()
}

fn at(start: u32, end: u32) -> BlockRange {
    BlockRange::new(start, end)
}

fn copy(original: u32, replica: u32) -> Replica {
    let (original, replica) = (BlockNo(original), BlockNo(replica));
    Replica { original, replica, hash: 0, trust: fs2_table::Trust::Verified }
}

#[test]
fn late_blocks_are_read_by_address_and_written_as_they_were_visited() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    let ground = Ground { copied: vec![401], taken: Vec::new(), ..Ground::default() };
    b.push([at(500, 502), at(400, 402), at(700, 701), at(500, 501), at(1200, 1203)], 1);
    let soon = Nanos::from_millis(500);
    assert_eq!(b.fetch_at(Nanos(5), false), Some(LONG_REST + Nanos(5)));
    assert_eq!(b.fetch(soon, BLOCK, &ground), Fetch::Nothing, "no long rest");
    assert_eq!(read(&mut b, LONG_REST, &ground, &mut log), [(400, 401), (500, 502), (700, 701)]);
    assert_eq!(written_in(&mut log), [500, 501, 400, 700], "what is copied or freed is not");
    assert_eq!(b.fetch_at(Nanos(5), false), None);
    log.check();
}

#[test]
fn what_lost_its_place_is_read_again_and_written_as_it_lay() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    // 502 has another copy.
    let ground = Ground { copied: vec![502], taken: Vec::new(), ..Ground::default() };
    let lay = [700, 502, 400, 401];
    let copies: Vec<_> = (0..).zip(lay).map(|(i, original)| copy(original, 3000 + i)).collect();
    b.displaced(at(3000, 3004), &copies, Some(3), &mut log);
    assert_eq!(read(&mut b, LONG_REST, &ground, &mut log), [(400, 402), (700, 701)]);
    assert_eq!(written_in(&mut log), [700, 400, 401]);
}

/// A file's first block was written, then a new file took the place of its copies: it came elsewhere than the others, and who read the file
/// whole was served from no copy.
#[test]
fn what_was_void_when_its_place_was_taken_is_written_among_its_neighbours() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    let lay: Vec<_> = (0..4).map(|i| copy(400 + i, 3000 + i)).collect();
    b.written(at(400, 401), &lay[..1]);
    b.written(at(402, 403), &lay[2..3]);
    b.written(at(700, 701), &[copy(700, 3100)]);
    b.displaced(at(3000, 3002), &lay[1..2], Some(3), &mut log);
    // Here none was left.
    b.displaced(at(3002, 3003), &[], None, &mut log);
    b.displaced(at(3003, 3004), &lay[3..], Some(3), &mut log);
    let ground = Ground::default();
    assert_eq!(read(&mut b, Nanos(0), &ground, &mut log), [(700, 701)], "at home");
    assert_eq!(written_in(&mut log), [700]);
    assert_eq!(read(&mut b, LONG_REST, &ground, &mut log), [(400, 404)]);
    assert_eq!(written_in(&mut log), [400, 401, 402, 403]);
}

/// The same while they are on their way home, read or not yet.
#[test]
fn updates_on_their_way_to_a_place_that_is_taken_turn_round() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    let lay = [copy(400, 3000), copy(401, 3001), copy(500, 3002), copy(600, 3003)];
    lay.iter().for_each(|r| b.written(BlockRange::one(r.original), &[*r]));
    let ground = Ground::default();
    let Fetch::Read(first) = b.fetch(Nanos(0), BLOCK, &ground) else { panic!() };
    assert_eq!(first, at(400, 402));
    assert!(!b.updates_wait(&log));
    b.fetched(first, Brought::Bytes(&[0; 2 * BLOCK as usize]), &[0; 2], BLOCK, &mut log);
    b.displaced(at(3001, 3003), &[], None, &mut log);
    assert!(!log.contains(BlockNo(401)));
    read(&mut b, Nanos(0), &ground, &mut log);
    assert!(b.updates_wait(&log));
    assert_eq!(written_in(&mut log), [400, 600]);
    assert!(!b.updates_wait(&log));
    // What went home is no update any more.
    b.displaced(at(3000, 3001), &[lay[0]], Some(3), &mut log);
    assert_eq!(read(&mut b, LONG_REST, &ground, &mut log), [(400, 402), (500, 501)]);
    assert_eq!(written_in(&mut log), [401, 500, 400]);
    log.check();
}

/// Others' payloads and turns are not theirs to end: of what went home long ago nothing is told.
#[test]
fn what_went_home_is_no_update_when_its_place_is_taken() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    b.written(at(400, 401), &[copy(400, 3000)]);
    b.written(at(401, 402), &[copy(401, 3001)]);
    let ground = Ground::default();
    read(&mut b, Nanos(0), &ground, &mut log);
    assert_eq!(written_in(&mut log), [400, 401]);
    // A client reads both again, their copies having given way to others'; one is in a lot of what is late by then.
    let client = log.open();
    assert!(log.push(client, BlockNo(400), 0, &[0; BLOCK as usize]));
    b.push([at(401, 403)], 1);
    let Fetch::Read(late) = b.fetch(LONG_REST, BLOCK, &ground) else { panic!() };
    b.displaced(at(3000, 3002), &[], None, &mut log);
    assert!(log.contains(BlockNo(400)));
    b.fetched(late, Brought::Bytes(&[0; 2 * BLOCK as usize]), &[0; 2], BLOCK, &mut log);
    assert_eq!(b.fetch(LONG_REST, BLOCK, &ground), Fetch::Nothing);
    log.close(client);
    assert_eq!(written_in(&mut log), [400, 401, 402]);
}

/// Among copies that are worth little it keeps its own worth.
#[test]
fn an_update_without_a_place_is_worth_what_it_was() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    b.written(at(401, 402), &[copy(401, 3001)]);
    b.written(at(401, 402), &[]);
    b.displaced(at(3000, 3003), &[copy(400, 3000), copy(402, 3002)], Some(3), &mut log);
    assert_eq!(read(&mut b, LONG_REST, &Ground::default(), &mut log), [(400, 403)]);
    log.close_all();
    let worths: Vec<_> = log.take(8).unwrap().blocks.iter().map(|c| (c.original.0, c.worth)).collect();
    assert_eq!(worths, [(400, 3), (401, UPDATE_WORTH), (402, 3)]);
}

#[test]
fn what_has_a_place_goes_there_and_takes_no_others_along() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    b.homes = BTreeMap::from([(7, 1007), (8, 1008), (9, 1100)]);
    for run in [&[50, 51][..], &[7, 8], &[9]] {
        let id = log.open();
        run.iter().for_each(|&n| assert!(log.push(id, BlockNo(n), 0, &[0; 10])));
        log.close(id);
    }
    let shape = Shape { blocks: 8000, group_blocks: 4000, first_block: 0, block_bytes: BLOCK, seed: 0 };
    let mut next = |log: &mut Log, ground: &Ground| {
        b.look(log);
        let home = b.home(64, &shape, ground);
        let len = home.map_or(b.homeless(64), BlockRange::len);
        (home, log.take(len as usize).unwrap().blocks.iter().map(|c| c.original.0).collect::<Vec<_>>())
    };
    let full = Ground { taken: vec![1100], ..Ground::default() };
    assert_eq!(next(&mut log, &full), (None, vec![50, 51]));
    assert_eq!(next(&mut log, &full), (Some(at(1007, 1009)), vec![7, 8]));
    assert_eq!(next(&mut log, &full), (None, vec![9]), "taken meanwhile");
}

#[test]
fn what_would_find_no_place_is_not_read_again() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    b.push([at(500, 502)], 20);
    b.push([at(510, 511)], 9);
    b.push([at(400, 402)], 127);
    let ground = Ground { least: 20, ..Ground::default() };
    assert_eq!(read(&mut b, LONG_REST, &ground, &mut log), [(400, 402), (500, 502)]);
    let worths: Vec<u8> = log.take(9).unwrap().blocks.iter().map(|c| c.worth).collect();
    assert_eq!(worths, [20, 20, 127, 127], "in the order of reading");
    assert_eq!(b.fetch_at(Nanos(0), false), None);
}

#[test]
fn gaps_are_bridged_and_reads_are_short() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    b.push([at(100, 103), at(108, 110), at(130, 131), at(200, 300)], 1);
    let reads = read(&mut b, LONG_REST, &Ground::default(), &mut log);
    assert_eq!(reads, [(100, 110), (130, 131), (200, 264), (264, 300)]);
    assert_eq!(written_in(&mut log).len(), 3 + 2 + 1 + 100);
}

/// B2: the log has room for half of it.
#[test]
fn what_finds_no_room_comes_later() {
    let (mut b, mut log) = (Backlog::default(), Log::new(3 * BLOCK as usize));
    b.push([at(500, 502), at(400, 402), at(600, 601)], 1);
    let Fetch::Read(first) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
    b.fetched(first, Brought::Bytes(&[0; 2 * BLOCK as usize]), &[0, 0], BLOCK, &mut log);
    let Fetch::Read(next) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
    b.fetched(next, Brought::Bytes(&[0; 2 * BLOCK as usize]), &[0, 0], BLOCK, &mut log);
    assert_eq!(written_in(&mut log), [400, 401]);
    let rest = Ground { copied: vec![400, 401], taken: Vec::new(), ..Ground::default() };
    assert_eq!(read(&mut b, LONG_REST, &rest, &mut log), [(500, 502), (600, 601)]);
    assert_eq!(written_in(&mut log), [500, 501, 600]);
}

/// B1 and B2: a client reads before all of it was.
#[test]
fn what_was_read_of_an_interrupted_lot_is_written_and_the_rest_comes_later() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    b.push([at(500, 502), at(400, 402), at(600, 601), at(300, 301)], 1);
    let read_next = |b: &mut Backlog, log: &mut Log| {
        let Fetch::Read(r) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
        b.fetched(r, Brought::Bytes(&vec![0; (r.len() * BLOCK) as usize]), &[0, 0], BLOCK, log);
    };
    // Nothing was read yet.
    let _ = b.fetch(LONG_REST, BLOCK, &Ground::default());
    b.interrupted(&mut log);
    b.idle(&mut log);
    (0..3).for_each(|_| read_next(&mut b, &mut log));
    b.idle(&mut log);
    assert!(!log.has_work());
    b.interrupted(&mut log);
    assert!(log.has_work(), "in any pause");
    assert_eq!(written_in(&mut log), [], "not yet in order");
    b.idle(&mut log);
    assert_eq!(written_in(&mut log), [500, 501, 400, 401, 300], "as they were visited");
    assert_eq!(b.fetch(Nanos(0), BLOCK, &Ground::default()), Fetch::Nothing, "no long rest");
    read_next(&mut b, &mut log);
    assert_eq!(written_in(&mut log), [600]);
    log.check();
}

#[test]
fn updates_need_not_wait_for_an_interrupted_lot_and_are_not_interrupted() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    b.push([at(500, 501), at(400, 401)], 1);
    let Fetch::Read(first) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
    b.fetched(first, Brought::Bytes(&[0; BLOCK as usize]), &[0], BLOCK, &mut log);
    b.written(at(10, 11), &[copy(10, 2000)]);
    b.written(at(90, 91), &[copy(90, 3000)]);
    assert_eq!(b.fetch_at(Nanos(7), false), Some(LONG_REST + Nanos(7)), "the lot comes first");
    b.interrupted(&mut log);
    assert_eq!(b.fetch_at(Nanos(7), false), Some(Nanos(7)));
    b.idle(&mut log);
    assert_eq!(written_in(&mut log), [400]);
    assert_eq!(b.fetch(Nanos(0), BLOCK, &Ground::default()), Fetch::Read(at(10, 11)));
    b.fetched(at(10, 11), Brought::Bytes(&[0; BLOCK as usize]), &[0], BLOCK, &mut log);
    b.interrupted(&mut log);
    assert!(!log.has_work());
    assert_eq!(read(&mut b, Nanos(0), &Ground::default(), &mut log), [(90, 91)]);
    assert_eq!(written_in(&mut log), [10, 90]);
    assert_eq!(read(&mut b, LONG_REST, &Ground::default(), &mut log), [(500, 501)]);
}

#[test]
fn what_cannot_be_read_is_left_out() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    b.push([at(500, 502)], 1);
    let Fetch::Read(r) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
    b.fetched(at(1, 2), Brought::NOTHING, &[], BLOCK, &mut log);
    b.fetched(r, Brought::NOTHING, &[], BLOCK, &mut log);
    assert_eq!((b.fetch_at(Nanos(0), false), log.is_empty()), (None, true));
    log.check();
}

#[test]
fn an_update_goes_home_unless_its_place_is_taken() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    b.written(at(10, 12), &[copy(10, 2001), copy(11, 2000)]);
    b.written(at(50, 51), &[copy(50, 3000)]);
    assert_eq!(b.fetch_at(Nanos(7), false), Some(Nanos(7)), "in any pause");
    let ground = Ground { copied: Vec::new(), taken: vec![3000], ..Ground::default() };
    assert_eq!(read(&mut b, Nanos(0), &ground, &mut log), [(10, 12), (50, 51)]);
    b.look(&log);
    assert_eq!(b.home(64, &shape(), &ground), Some(at(2000, 2002)));
    assert_eq!(log.take(2).map(|t| t.blocks[0].original), Some(BlockNo(11)), "as they lay");
    b.look(&log);
    assert_eq!(b.home(64, &shape(), &ground), None, "taken");
    assert_eq!(written_in(&mut log), [50]);
    // Written again while it waited in the log: read again.
    b.written(at(10, 12), &[copy(10, 2001)]);
    read(&mut b, Nanos(0), &ground, &mut log);
    log.kill(at(10, 11));
    b.written(at(10, 11), &[]);
    assert_eq!(read(&mut b, Nanos(0), &ground, &mut log), [(10, 11)]);
}

/// A bitmap that is written every few seconds and lies in the file system's cache.
#[test]
fn what_is_written_and_never_read_lets_the_volume_rest() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    let ground = Ground::default();
    let mut rests = Vec::new();
    for _ in 0..100 {
        b.written(at(10, 11), &[copy(10, 2000)]);
        let Some(rest) = b.fetch_at(Nanos(0), false) else { break };
        assert_eq!(
            b.fetch(Nanos(rest.0.saturating_sub(1)), BLOCK, &ground) == Fetch::Nothing,
            rest > Nanos(0)
        );
        assert_eq!(read(&mut b, rest, &ground, &mut log), [(10, 11)]);
        b.look(&log);
        assert_eq!(b.home(64, &shape(), &ground), Some(at(2000, 2001)), "where it was");
        assert_eq!(written_in(&mut log), [10]);
        rests.push(rest.0 / LONG_REST.0);
    }
    assert_eq!(rests, [[0; 17].as_slice(), &[1, 2, 4, 8, 16, 32, 64]].concat());
    // What is late does not wait for it.
    b.push([at(500, 501)], 1);
    assert_eq!(b.fetch_at(Nanos(0), false), Some(LONG_REST));
    assert_eq!(read(&mut b, LONG_REST, &ground, &mut log), [(500, 501)]);
    written_in(&mut log);
    // Somebody read it, and so it has a copy again.
    b.read(at(8, 12));
    b.written(at(10, 11), &[copy(10, 2000)]);
    assert_eq!(read(&mut b, Nanos(0), &ground, &mut log), [(10, 11)]);
}

/// One that is written again before it is written home leaves no gap that the others would move into.
#[test]
fn updates_go_to_their_own_homes_whatever_becomes_of_one() {
    let lost = |original: u32| copy(original, 2000 + original);
    // Less than what waits, and more.
    for written in [at(8, 9), at(0, 9)] {
        let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
        b.written(at(8, 11), &[lost(8), lost(9), lost(10)]);
        let ground = Ground::default();
        assert_eq!(read(&mut b, Nanos(0), &ground, &mut log), [(8, 11)]);
        log.outdate(written);
        b.written(written, &[]);
        b.look(&log);
        let home = b.home(64, &shape(), &ground).unwrap();
        assert_eq!(home, at(2009, 2011));
        let batch = log.take(home.len() as usize).unwrap();
        assert_eq!(batch.blocks.iter().map(|b| b.original.0).collect::<Vec<_>>(), [9, 10]);
        assert_eq!(read(&mut b, Nanos(0), &ground, &mut log), [(8, 9)]);
    }
}

/// What is copied in the order in which it came has a place for what was written meanwhile (the log's I6).
#[test]
fn what_is_written_amid_a_lot_keeps_its_turn() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    b.push([at(400, 403)], 1);
    assert_eq!(read(&mut b, LONG_REST, &Ground::default(), &mut log), [(400, 403)]);
    log.outdate(at(401, 402));
    assert_eq!(written_in(&mut log), [400, 401, 402]);
}

/// The log was cleared amid a lot: the rest of it is read into another run.
#[test]
fn a_lot_outlives_the_log() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 20));
    b.push([at(500, 501), at(400, 401), at(700, 701)], 1);
    let Fetch::Read(first) = b.fetch(LONG_REST, BLOCK, &Ground::default()) else { panic!() };
    b.fetched(first, Brought::Bytes(&[0; BLOCK as usize]), &[0], BLOCK, &mut log);
    log.clear();
    assert_eq!(read(&mut b, LONG_REST, &Ground::default(), &mut log), [(500, 501), (700, 701)]);
    assert_eq!(written_in(&mut log), [500, 700]);
    log.check();
}

#[test]
fn memory_is_bounded() {
    let mut b = Backlog::default();
    b.push((0..STRETCHES_MAX as u32 + 100).map(|i| at(2 * i, 2 * i + 1)), 1);
    assert_eq!(b.late.len(), STRETCHES_MAX);
    assert!(std::mem::size_of::<Stretch>() * STRETCHES_MAX <= 2 << 20);
}

#[test]
fn repeated_stretches_make_room_for_new_ones() {
    let mut b = Backlog::default();
    let some = |from: u32| (from..from + 1000).map(|i| at(3 * i, 3 * i + 1));
    // Worth more each time.
    for time in 0..STRETCHES_MAX / 1000 + 1 {
        b.push(some(0), time.min(100) as u8);
    }
    b.push(some(5000), 1);
    let first: Vec<u32> = b.late.iter().take(1000).map(|s| s.start / 3).collect();
    assert_eq!(first, (0..1000).collect::<Vec<u32>>(), "in the order in which they came first");
    assert!(b.late.iter().take(1000).all(|s| s.worth() == 100));
    assert!(b.late.len() < 3000 && b.late.contains(&Stretch::new(3 * 5999, 1, 1)), "{}", b.late.len());
}

/// Sixteen stretches were read again and again while the log was full; whoever read when the volume rested at last waited for a look at each.
#[test]
fn a_lot_is_found_by_looking_at_little() {
    let (mut b, mut log) = (Backlog::default(), Log::new(1 << 24));
    let stretch = |n: usize| at(n as u32 % 16 * 60, n as u32 % 16 * 60 + 32);
    // Once they are copied, and once they are not.
    for copied in [Vec::new(), (0..1000).collect()] {
        let ground = Ground { copied, ..Ground::default() };
        b.push((0..STRETCHES_MAX / 4).map(stretch), 1);
        let (mut reads, mut most) = (0, 0);
        while b.fetch_at(Nanos(0), false).is_some() {
            ground.asked.set(0);
            let lot = b.fetch(LONG_REST, BLOCK, &ground);
            most = most.max(ground.asked.get());
            if lot != Fetch::Nothing {
                reads += read(&mut b, LONG_REST, &ground, &mut log).len();
                written_in(&mut log);
            }
        }
        let lot = (LOT_BYTES / u64::from(BLOCK)) as usize;
        assert!(most <= 2 * (LOOKS * lot + 64), "{most} looks for a lot of {lot}");
        assert_eq!(reads > 0, ground.copied.is_empty());
        assert!(b.late.is_empty());
    }
}
