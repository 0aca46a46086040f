//! Schemes that move blocks, by hand: what they do at night, access by access, and where requests go then.

use fs2_block::{BlockRange, BlockSize, Extent, Nanos, Op};

use super::abr::{Abr, from_the_middle};
use super::borg::Borg;
use super::hot_files::HotFiles;
use super::mover::{Mover, Planner};
use super::organ_pipe::OrganPipe;
use crate::replay::redirect::Redirect;

const BS: BlockSize = BlockSize::B4096;

fn blocks(start: u32, len: u32) -> Extent {
    BlockRange::new(start, start + len).extent(BS)
}

/// In blocks: first and number.
fn in_blocks(e: Extent) -> (u64, u64) {
    (e.offset() / 4096, e.len() / 4096)
}

/// Where a request goes, in blocks.
fn goes(r: &mut impl Redirect, op: Op, start: u32, len: u32) -> Vec<(u64, u64)> {
    let mut pieces = Vec::new();
    r.place(Nanos(0), op, blocks(start, len), &mut pieces);
    pieces.into_iter().map(in_blocks).collect()
}

fn reads(r: &mut impl Redirect, times: u32, start: u32, len: u32) {
    (0..times).for_each(|_| _ = goes(r, Op::Read, start, len));
}

/// The accesses of a night.
fn night(r: &mut impl Redirect) -> Vec<(Op, u64, u64)> {
    let quiet = Nanos::from_millis(9_999);
    assert_eq!(r.own(quiet, Nanos(0)), None, "it is not night yet");
    let io = std::iter::from_fn(|| r.own(Nanos::from_millis(10_000), Nanos(0)));
    io.map(|io| (io.op, in_blocks(io.extent).0, in_blocks(io.extent).1)).collect()
}

use Op::{Read as R, Write as W};

#[test]
fn the_order_of_the_organ_pipe() {
    let order = |n| from_the_middle(n).collect::<Vec<_>>();
    assert_eq!([order(1), order(4), order(5)], [vec![0], vec![2, 1, 3, 0], vec![2, 1, 3, 0, 4]]);
    assert!(order(0).is_empty());
}

#[test]
fn abr_gathers_the_hottest_blocks_and_writes_back_what_changed() {
    // Four cylinders of 256 slots.
    let mut abr = Mover::new(Abr::new(1024), BS, (10_000..11_024).collect());
    reads(&mut abr, 60, 7, 1);
    reads(&mut abr, 50, 3, 1);
    reads(&mut abr, 10, 500, 1);
    assert_eq!(goes(&mut abr, R, 3, 5), [(3, 5)]);
    // Three blocks and those of that last read: six, one cylinder's worth, the second of four. By address: 3, 4, 5,
    // 6, 7, 500.
    assert_eq!(night(&mut abr), [(R, 3, 5), (R, 500, 1), (W, 10_256, 6)]);
    let want: Vec<_> =
        [3, 4, 5, 6, 7, 500].into_iter().enumerate().map(|(i, b)| (10_256 + i as u32, b)).collect();
    assert_eq!(abr.layout(), want);
    // One request, three pieces: from home, from the area, from home.
    assert_eq!(goes(&mut abr, R, 2, 7), [(2, 1), (10_256, 5), (8, 1)]);
    assert_eq!(goes(&mut abr, W, 7, 1), [(10_260, 1)]);
    // Too few requests for a day: nothing happens.
    assert_eq!(night(&mut abr), []);
    // Another day, another block; 2 to 8 were asked for, too, and 3 to 7 are to move on by one slot, since 2 comes before
    // them: they are read from home, but for 7, which is newer in its slot. 500 leaves; it was never written, so
    // nothing has to be.
    reads(&mut abr, 100, 900, 1);
    assert_eq!(night(&mut abr), [(R, 2, 7), (R, 900, 1), (R, 10_260, 1), (W, 10_256, 8)]);
    let want: Vec<_> = (2..9).chain([900]).enumerate().map(|(i, b)| (10_256 + i as u32, b)).collect();
    assert_eq!(abr.layout(), want);
    // On the third day only 1 is asked for: 7, written on the first, goes home.
    reads(&mut abr, 100, 1, 1);
    assert_eq!(night(&mut abr), [(R, 1, 1), (W, 10_256, 1), (R, 10_261, 1), (W, 7, 1)]);
    assert_eq!(abr.layout(), [(10_256, 1)]);
}

#[test]
fn abr_puts_cylinders_into_the_organ_pipes_order() {
    let mut abr = Mover::new(Abr::new(1024), BS, (10_000..11_024).collect());
    reads(&mut abr, 60, 0, 256);
    reads(&mut abr, 40, 1000, 256);
    reads(&mut abr, 5, 2000, 88);
    night(&mut abr);
    // Three of four cylinders: the hottest is the second, then the first, then the third.
    let layout = abr.layout();
    let at = |slot: u32| layout.iter().find(|l| l.0 == slot).map(|l| l.1);
    assert_eq!([at(10_256), at(10_511)], [Some(0), Some(255)]);
    assert_eq!([at(10_000), at(10_255)], [Some(1000), Some(1255)]);
    assert_eq!([at(10_512), at(10_599), at(10_600)], [Some(2000), Some(2087), None]);
}

#[test]
fn what_the_file_system_takes_of_the_area_is_given_up() {
    let mut abr = Mover::new(Abr::new(1024), BS, (10_000..11_024).collect());
    reads(&mut abr, 100, 7, 1);
    assert_eq!(night(&mut abr), [(R, 7, 1), (W, 10_256, 1)]);
    assert_eq!(goes(&mut abr, W, 7, 1), [(10_256, 1)]);
    // A file gets block 10256: what was in the slot is saved, at once.
    assert_eq!(goes(&mut abr, W, 10_256, 1), [(10_256, 1)]);
    let io = abr.own(Nanos(1), Nanos(0)).expect("it is owed");
    assert_eq!((io.op, in_blocks(io.extent)), (R, (10_256, 1)));
    let io = abr.own(Nanos(1), Nanos(0)).expect("it is owed");
    assert_eq!((io.op, in_blocks(io.extent)), (W, (7, 1)));
    assert_eq!(goes(&mut abr, R, 7, 1), [(7, 1)]);
    // Never a slot again.
    reads(&mut abr, 100, 7, 1);
    night(&mut abr);
    assert!(abr.layout().iter().all(|l| l.0 != 10_256));
}

#[test]
fn a_block_that_is_written_while_it_moves_stays() {
    let mut abr = Mover::new(Abr::new(1024), BS, (10_000..11_024).collect());
    reads(&mut abr, 100, 7, 1);
    reads(&mut abr, 100, 9, 1);
    let night = Nanos::from_millis(10_000);
    let io = abr.own(night, Nanos(0)).expect("the first access of the night");
    assert_eq!((io.op, in_blocks(io.extent)), (R, (7, 3)));
    assert_eq!(goes(&mut abr, W, 7, 1), [(7, 1)]);
    let io = abr.own(night, Nanos(0)).expect("9 still moves");
    assert_eq!((io.op, in_blocks(io.extent)), (W, (10_257, 1)));
    assert_eq!(goes(&mut abr, R, 7, 3), [(7, 2), (10_257, 1)]);
}

#[test]
fn hot_files_are_those_with_the_most_reads_for_their_size() {
    let mut hfc = Mover::new(HotFiles::default(), BS, (100_000..100_033).collect());
    reads(&mut hfc, 60, 200, 10);
    reads(&mut hfc, 30, 100, 4);
    reads(&mut hfc, 40, 300, 2);
    goes(&mut hfc, W, 300, 1);
    reads(&mut hfc, 1, 500, 20);
    // Temperatures 60, 30, 40 but written, 1: 10 and 4 blocks enter, 20 more do not fit into 33.
    assert_eq!(night(&mut hfc), [(R, 100, 4), (R, 200, 10), (W, 100_000, 14)]);
    assert_eq!(goes(&mut hfc, R, 200, 10), [(100_000, 10)]);
    assert_eq!(goes(&mut hfc, W, 102, 1), [(100_012, 1)]);
    // The next day the large file is hot (100), the first has its one read, the second had none: it leaves, moved, and
    // the first four blocks of the large one, which are to have its slots, come after that.
    reads(&mut hfc, 100, 500, 20);
    let first = [(R, 504, 16), (W, 100_014, 16)];
    assert_eq!(
        night(&mut hfc),
        [&first[..], &[(R, 100_010, 4), (W, 100, 4), (R, 500, 4), (W, 100_010, 4)]].concat()
    );
    assert_eq!(goes(&mut hfc, R, 500, 20), [(100_010, 20)]);
    assert_eq!(goes(&mut hfc, R, 100, 4), [(100, 4)]);
}

#[test]
fn borg_follows_the_heaviest_edges_and_absorbs_writes() {
    let mut borg = Mover::new(Borg::new(), BS, (5000..5016).collect());
    for _ in 0..40 {
        [10, 20, 30].into_iter().for_each(|b| reads(&mut borg, 1, b, 1));
    }
    // Edges 10 -> 20: 40, 20 -> 30: 40, 30 -> 10: 39. The most connected vertex is 20, with 80. The older of two
    // equal edges leads in from 10: before it. Then 30, by 40 behind rather than by 39 before. Of 16 slots four
    // absorb writes; three of the other twelve, in the middle: 5008 to 5010. Gaps of nine blocks are too long to be
    // read over.
    assert_eq!(night(&mut borg), [(R, 10, 1), (R, 20, 1), (R, 30, 1), (W, 5008, 3)]);
    assert_eq!(borg.layout(), [(5008, 10), (5009, 20), (5010, 30)]);
    // Writes: of what is there in its place, of the rest one after the other.
    assert_eq!(goes(&mut borg, W, 20, 1), [(5009, 1)]);
    assert_eq!(goes(&mut borg, W, 700, 2), [(5000, 2)]);
    assert_eq!(goes(&mut borg, W, 40, 3), [(5002, 2), (42, 1)]);
    assert_eq!(goes(&mut borg, R, 701, 1), [(5001, 1)]);
    // Half a block cannot be absorbed: the other half is elsewhere.
    let mut pieces = Vec::new();
    borg.place(Nanos(0), W, Extent::new(800 * 4096, 512), &mut pieces);
    assert_eq!(pieces, [Extent::new(800 * 4096, 512)]);
    // The next night what the buffer holds, 700, 701, 40 and 41 in 5000 to 5003, moves on into the layout and does
    // not go home for that; it is read with 20, which was written in 5009. The rest, 42 and 800 and, unchanged, 10 and
    // 30, come from home. These are nine of twelve slots, in the middle of 5004 to 5015.
    let want = [(R, 10, 1), (R, 30, 1), (R, 42, 1), (R, 800, 1), (R, 5000, 10), (W, 5005, 9)];
    (0..60).for_each(|_| [700, 20].into_iter().for_each(|b| _ = goes(&mut borg, W, b, 1)));
    let did = night(&mut borg);
    assert_eq!(did, want);
    let slot = borg.layout().iter().find(|l| l.1 == 700).map(|l| l.0);
    assert!(slot.is_some_and(|s| (5005..5014).contains(&s)), "{:?}", borg.layout());
}

#[test]
fn organ_pipe_exchanges_units_around_the_middle() {
    // 64 units of 256 blocks, 4 of which may be put in order: places 30 to 33 around the middle, 32.
    let mut pipe = OrganPipe::new(BS, 64 * 256, 4 * 256);
    reads(&mut pipe, 50, 5 * 256 + 3, 1);
    reads(&mut pipe, 30, 60 * 256, 1);
    reads(&mut pipe, 20, 31 * 256, 1);
    reads(&mut pipe, 10, 7 * 256, 1);
    reads(&mut pipe, 1, 9 * 256, 1);
    // By count 5, 60, 31, 7 (9 is beyond the budget) to places 32, 31, 33, 30. Unit 60 takes 31's place and 31 goes
    // to 60; from there it goes to 33, whose unit then is in place 60.
    let exchange = |a: u64, b: u64| [(R, a), (R, b), (W, a), (W, b)].map(|(op, p)| (op, p * 256, 256));
    let want = [exchange(5, 32), exchange(60, 31), exchange(60, 33), exchange(7, 30)].concat();
    assert_eq!(night(&mut pipe), want);
    assert_eq!(pipe.own(Nanos::from_millis(10_000), Nanos(0)), None);
    assert_eq!(pipe.layout(), [(5, 32), (7, 30), (30, 7), (31, 60), (32, 5), (33, 31), (60, 33)]);
    // A request over a unit's end goes on in the next one's place.
    assert_eq!(goes(&mut pipe, W, 6 * 256 - 2, 5), [(32 * 256 + 254, 2), (6 * 256, 3)]);
    assert_eq!(goes(&mut pipe, R, 33 * 256, 1), [(60 * 256, 1)]);
}

#[test]
fn an_exchange_that_is_interrupted_begins_again() {
    let mut pipe = OrganPipe::new(BS, 64 * 256, 256);
    reads(&mut pipe, 100, 5 * 256, 1);
    let night_falls = Nanos::from_millis(10_000);
    let first = [(R, 5 * 256, 256), (R, 32 * 256, 256), (W, 5 * 256, 256), (W, 32 * 256, 256)];
    for (op, at, _) in &first[..3] {
        let io = pipe.own(night_falls, Nanos(0)).expect("an exchange");
        assert_eq!((io.op, in_blocks(io.extent).0), (*op, *at));
    }
    assert_eq!(goes(&mut pipe, R, 5 * 256, 1), [(5 * 256, 1)]);
    assert_eq!(night(&mut pipe), first);
    assert_eq!(goes(&mut pipe, R, 5 * 256, 1), [(32 * 256, 1)]);
}

/// Whatever is asked for, it goes to one place only, and nobody else's.
fn no_two_blocks_share_a_place(mut r: impl Redirect, span: u32, seed: u64) {
    let mut state = seed;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(below)) as u32
    };
    for step in 0..2000 {
        let len = 1 + draw(12);
        let op = if draw(4) == 0 { W } else { R };
        goes(&mut r, op, draw(span - len), len);
        for _ in 0..draw(4) {
            r.own(Nanos::from_millis(10_000), Nanos(0));
        }
        if step % 200 == 0 {
            // Reads of single blocks count as well, as they would elsewhere.
            let mut places: Vec<u64> = (0..span).map(|b| goes(&mut r, R, b, 1)[0].0).collect();
            places.sort_unstable();
            let all = places.len();
            places.dedup();
            assert_eq!(places.len(), all, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn blocks_never_meet() {
    fn mover<P: Planner>(planner: P) -> Mover<P> {
        // Slots beyond what is asked for.
        Mover::new(planner, BS, (3000..3600).collect())
    }
    for seed in 1..=2 {
        no_two_blocks_share_a_place(mover(Abr::new(600)), 2000, seed);
        no_two_blocks_share_a_place(mover(HotFiles::default()), 2000, seed);
        no_two_blocks_share_a_place(mover(Borg::new()), 2000, seed);
        no_two_blocks_share_a_place(OrganPipe::new(BS, 4096, 1024), 4096, seed);
    }
}
