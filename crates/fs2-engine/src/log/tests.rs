use super::*;

fn taken(original: u32, hash: u64) -> Captured {
    Captured { original: BlockNo(original), hash, worth: UNAPPRAISED }
}

#[test]
fn rows_that_are_worth_as_much_come_together() {
    let mut log = Log::new(1000);
    let (a, b) = (log.open(), log.open());
    (0..3).for_each(|n| assert!(log.push(a, BlockNo(n), 0, &[0; 10])));
    for (n, worth) in [(10, 8), (12, 7), (13, 9), (20, 7), (30, 9)] {
        let captured = Captured { original: BlockNo(n), hash: 0, worth };
        assert!(log.push_captured(b, captured, &[0; 10]));
    }
    let next = |log: &Log, most: usize| log.next_rows(most).map(|n| (n.worth, n.first, n.all));
    assert_eq!(next(&log, 64), None, "open");
    log.appraise(a, |_| 5);
    log.close(a);
    log.close(b);
    log.kill(BlockRange::new(0, 1));
    assert_eq!((next(&log, 64), next(&log, 1)), (Some((5, 2, 2)), Some((5, 2, 2))));
    log.refuse(2);
    assert_eq!((next(&log, 64), log.dropped()), (Some((8, 1, 3)), 2), "12 and 13 are worth 9");
    assert_eq!([1, 2, 3].map(|most| next(&log, most).unwrap().2), [1, 1, 3], "no half of a row");
    let worths: Vec<u8> = log.take(9).unwrap().blocks.iter().map(|c| c.worth).collect();
    assert_eq!(worths, [8, 7, 9, 7, 9]);
    log.check();
}

#[test]
fn what_was_read_in_a_row_stays_together() {
    let mut log = Log::new(1000);
    let run = log.open();
    for n in [1, 2, 3, 10, 20, 21] {
        assert!(log.push(run, BlockNo(n), 0, &[0; 10]));
    }
    assert_eq!(log.next_whole(9), 0, "open");
    log.close(run);
    assert_eq!([1, 2, 3, 4, 5, 6, 7].map(|most| log.next_whole(most)), [0, 0, 3, 4, 4, 6, 6]);
    log.take(3);
    assert_eq!(log.next_whole(1), 1);
}

#[test]
fn a_row_is_cut_where_reads_of_it_end() {
    let mut log = Log::new(1000);
    let (a, b, c) = (log.open(), log.open(), log.open());
    for n in [1, 2, 3].into_iter().chain(10..20) {
        assert!(log.push(a, BlockNo(n), 0, &[0; 10]));
    }
    (20..22).for_each(|n| assert!(log.push(b, BlockNo(n), 0, &[0; 10])));
    log.push(c, BlockNo(40), 0, &[0; 10]);
    log.close(a);
    log.close(b);
    let next = |log: &Log| (0..=16).map(|most| log.next_pieces(most, 4)).collect::<Vec<_>>();
    // Rows of three blocks and, through two runs, of twelve; the open one is not taken.
    assert_eq!(next(&log), [0, 0, 0, 3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15]);
    // It is a row's beginning that counts, though it was taken before.
    log.take(5);
    assert_eq!(next(&log)[..8], [0, 0, 2, 2, 2, 2, 6, 6]);
    // A place that is kept counts as well.
    log.outdate(BlockRange::new(12, 13));
    assert_eq!(next(&log)[..8], [0, 0, 2, 2, 2, 2, 6, 6]);
    log.kill(BlockRange::new(13, 14));
    assert_eq!(next(&log)[..8], [0, 1, 1, 1, 1, 5, 5, 5], "14 begins a row");
}

/// A block is read and written in turns while nothing closes its run: what was killed is not remembered for ever.
#[test]
fn blocks_that_are_gone_are_forgotten() {
    let mut log = Log::new(1000);
    let run = log.open();
    (0..20).for_each(|n| assert!(log.push(run, BlockNo(n), 1, &[n as u8; 10])));
    for n in 0..100_000u32 {
        let block = 5 + n % 10;
        assert_eq!(log.kill(BlockRange::one(BlockNo(block))), 1);
        assert!(log.push(run, BlockNo(block), 2, &[block as u8; 10]));
    }
    assert!(log.runs[0].blocks.len() <= 2 * 20 + GONE + 1, "{} blocks", log.runs[0].blocks.len());
    log.check();
    log.close(run);
    let batch = log.take(99).unwrap();
    let order: Vec<u32> = batch.blocks.iter().map(|b| b.original.0).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 15, 16, 17, 18, 19, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    let content: Vec<u8> = order.iter().flat_map(|&n| [n as u8; 10]).collect();
    assert_eq!(batch.data, content);
}

#[test]
fn order_kill_and_bound() {
    let mut log = Log::new(40);
    let (a, b) = (log.open(), log.open());
    assert!(log.push(a, BlockNo(5), 50, &[5; 10]));
    assert!(log.push(b, BlockNo(9), 90, &[9; 10]));
    assert!(log.push(a, BlockNo(2), 20, &[2; 10]));
    assert!(!log.push(b, BlockNo(5), 50, &[5; 10]), "waits already");
    assert!(log.push(a, BlockNo(7), 70, &[7; 10]));
    assert!(!log.push(a, BlockNo(8), 80, &[8; 10]), "full");
    assert_eq!(log.take(9), None, "open runs are not copied");
    log.close(a);
    log.check();
    assert_eq!(log.kill(BlockRange::new(2, 3)), 1);
    log.check();
    let first = log.take(1).unwrap();
    assert_eq!((first.blocks, first.data), (vec![taken(5, 50)], vec![5; 10]));
    log.check();
    assert_eq!(log.kill(BlockRange::new(7, 8)), 1);
    assert_eq!(log.take(1), None);
    log.close_all();
    assert_eq!(log.take(8).unwrap().blocks, [taken(9, 90)]);
    assert!(log.is_empty() && log.bytes() == 0);
}

#[test]
fn what_was_written_keeps_its_turn_before_others() {
    let mut log = Log::new(100);
    let fill = |log: &mut Log, blocks: std::ops::Range<u32>| {
        let run = log.open();
        blocks.for_each(|b| assert!(log.push(run, BlockNo(b), u64::from(b), &[b as u8; 4])));
        run
    };
    let taken = |log: &mut Log, n: usize| {
        let Batch { blocks, data, outdated } = log.take(n).unwrap();
        (blocks.iter().map(|b| b.original.0).collect::<Vec<_>>(), data, outdated)
    };
    let run = fill(&mut log, 10..16);
    log.outdate(BlockRange::new(10, 11));
    log.outdate(BlockRange::new(12, 14));
    log.outdate(BlockRange::new(15, 16));
    assert!(!log.contains(BlockNo(12)) && log.bytes() == 8);
    log.sort_by_key(run, std::cmp::Reverse);
    log.close(run);
    log.check();
    // But not behind the last.
    let want = (vec![15, 14, 13, 12, 11], [[0; 4], [14; 4], [0; 4], [0; 4], [11; 4]].concat(), vec![0, 2, 3]);
    assert_eq!(taken(&mut log, 9), want);

    // What waits again has another turn, what is not to be copied none.
    let run = fill(&mut log, 20..25);
    log.outdate(BlockRange::new(21, 23));
    log.kill(BlockRange::one(BlockNo(23)));
    log.close(run);
    let again = fill(&mut log, 21..22);
    log.close(again);
    assert_eq!(taken(&mut log, 2).0, [20, 22]);
    assert_eq!(taken(&mut log, 9).0, [24, 21]);
    assert_eq!((log.take(9), log.bytes()), (None, 0));

    // Between runs, too: each of these is one.
    for block in 30..35 {
        let run = fill(&mut log, block..block + 1);
        log.close(run);
    }
    assert_eq!(taken(&mut log, 1).0, [30]);
    [32, 34].into_iter().for_each(|b| log.outdate(BlockRange::one(BlockNo(b))));
    assert_eq!(log.next_len(9, 9), 2);
    assert_eq!(taken(&mut log, 9), (vec![31, 32, 33], [[31; 4], [0; 4], [33; 4]].concat(), vec![1]));
    let turns_first = [fill(&mut log, 40..41), fill(&mut log, 41..42)];
    log.outdate(BlockRange::one(BlockNo(40)));
    turns_first.into_iter().for_each(|r| log.close(r));
    assert_eq!((log.next_len(9, 9), log.next_rows(9).map(|r| r.all)), (1, Some(1)));
    assert_eq!(taken(&mut log, 2), (vec![40, 41], [[0; 4], [41; 4]].concat(), vec![0]));
    log.check();
    for block in 0..3000 {
        let run = fill(&mut log, block..block + 1);
        log.close(run);
        if block > 0 {
            log.outdate(BlockRange::one(BlockNo(block)));
        }
        log.check();
    }
}

#[test]
fn what_gathers_is_no_work_before_it_is_released() {
    let mut log = Log::new(100);
    let run = log.gather(true);
    assert!(log.push(run, BlockNo(5), 50, &[5; 10]));
    log.close_all();
    assert!(!log.has_work() && log.take(9).is_none());
    log.release(run);
    assert!(log.has_work() && log.take(9).is_none());
    let next = log.gather(true);
    assert!(log.push(next, BlockNo(6), 60, &[6; 10]));
    log.release(run);
    log.close_all();
    assert_eq!(log.take(9).unwrap().blocks, [taken(5, 50)]);
    assert!(!log.has_work(), "the other one gathers");
    log.check();
}

#[test]
fn numbers_are_spread() {
    let of = |numbers: &[u32]| {
        let mut h = Spread::default();
        numbers.iter().for_each(|&n| h.write_u32(n));
        h.finish()
    };
    let pairs = (0..64).flat_map(|a| (0..64).map(move |b| [a, b]));
    let all: std::collections::BTreeSet<u64> = pairs.map(|p| of(&p)).collect();
    assert_eq!(all.len(), 64 * 64);
    // The map looks at the highest bits too.
    let high: std::collections::BTreeSet<u64> = (0..1000).map(|n| of(&[n]) >> 57).collect();
    assert_eq!(high.len(), 128);
    let mut h = Spread::default();
    h.write(&[1, 2]);
    assert_eq!(h.finish(), of(&[1, 2]));
}

#[test]
fn what_it_holds_and_refused_is_told() {
    let mut log = Log::new(25);
    let run = log.open();
    for n in 1..=4 {
        assert_eq!(log.push(run, BlockNo(n), 0, &[0; 10]), n <= 2);
    }
    assert_eq!((log.bytes(), log.dropped()), (20, 2));
    assert!(log.contains(BlockNo(2)) && !log.contains(BlockNo(3)));
}

#[test]
#[should_panic(expected = "log bytes and blocks")]
fn the_check_checks() {
    let mut log = Log::new(25);
    log.bytes = 1;
    log.check();
}

#[test]
fn a_payload_of_nothing_is_empty() {
    assert!(Payload::Unseen(0).is_empty() && Payload::from(&[]).is_empty());
    assert!(!Payload::Unseen(1).is_empty() && !Payload::from(&[0]).is_empty());
}

#[test]
fn memory_of_what_is_gone_is_used_again_and_bounded() {
    let mut log = Log::new(2 * SPARE_BYTES);
    let block = SPARE_BYTES / 4;
    let push = |log: &mut Log, n: u32| {
        let run = log.open();
        assert!(log.push(run, BlockNo(n), 0, &vec![n as u8; block][..]));
        log.close(run);
        log.check();
    };
    (0..6).for_each(|n| push(&mut log, 2 * n));
    assert_eq!(log.kill(BlockRange::new(0, 3)), 2);
    log.take(1).unwrap();
    log.clear();
    assert_eq!(log.spare.len(), 4, "of six");
    // A single block is put there, one that goes on with the last is not.
    push(&mut log, 50);
    push(&mut log, 51);
    push(&mut log, 9);
    assert_eq!(log.spare.len(), 2);
    let batch = log.take(9).unwrap();
    let want = [50, 51, 9].map(|n| vec![n; block]).concat();
    assert!(batch.data == want);
    assert_eq!(log.spare.len(), 4);
    log.check();
}

proptest::proptest! {
    #[test]
    fn agrees_with_a_plain_list(steps in proptest::collection::vec((0u8..8, 0u32..40, 1u32..30), 0..120)) {
        // Runs in order: open, and the blocks that still have a payload or a turn.
        type Plain = Vec<(RunId, bool, Vec<(u32, bool)>)>;
        let live = |r: &(RunId, bool, Vec<(u32, bool)>)| r.2.iter().filter(|b| b.1).count();
        let waits = |plain: &Plain, block: u32| plain.iter().any(|r| r.2.contains(&(block, true)));
        let (mut log, mut plain): (Log, Plain) = (Log::new(100), Vec::new());
        for (op, block, n) in steps {
            if op == 3 && n > 20 {
                // The first open run, by block number.
                if let Some(r) = plain.iter_mut().find(|r| r.1) {
                    r.2.sort();
                    log.sort_by_key(r.0, |b| b);
                    log.check();
                }
            }
            match op {
                0 => {
                    let id = log.open();
                    plain.push((id, true, Vec::new()));
                }
                1..=3 => {
                    let Some(at) = plain.iter().position(|r| r.1) else { continue };
                    let room = plain.iter().map(|r| live(r) * 4).sum::<usize>() + 4 <= 100;
                    let bytes = [block as u8; 4];
                    let payload = if block % 3 == 0 { Payload::Unseen(4) } else { (&bytes).into() };
                    let got = log.push(plain[at].0, BlockNo(block), u64::from(block), payload);
                    proptest::prop_assert_eq!(got, room && !waits(&plain, block));
                    if got {
                        plain[at].2.push((block, true));
                    }
                }
                4 => {
                    let range = BlockRange::new(block, block + n);
                    let before = plain.iter().map(live).sum::<usize>();
                    let within = |b: &(u32, bool)| b.1 && range.contains(BlockNo(b.0));
                    if n % 2 == 0 {
                        plain.iter_mut().for_each(|r| r.2.retain(|b| !within(b)));
                        proptest::prop_assert_eq!(log.kill(range), before - plain.iter().map(live).sum::<usize>());
                    } else {
                        plain.iter_mut().for_each(|r| r.2.iter_mut().for_each(|b| b.1 &= !within(b)));
                        log.outdate(range);
                    }
                }
                5 if n < 5 => {
                    log.close_all();
                    plain.iter_mut().for_each(|r| r.1 = false);
                }
                5 | 6 => {
                    let Some(r) = plain.iter_mut().find(|r| r.1) else { continue };
                    log.close(r.0);
                    r.1 = false;
                }
                _ => {
                    let n = n as usize;
                    let ahead: Vec<u32> =
                        plain.iter().filter(|r| !r.1).flat_map(|r| &r.2).filter(|b| b.1).map(|b| b.0).take(n).collect();
                    let next: Vec<u32> = log.next_blocks().take(n).map(|b| b.0).collect();
                    proptest::prop_assert_eq!((log.next_len(n, n), &next), (ahead.len(), &ahead));
                    let (mut want, mut bytes): (Vec<(u32, bool)>, Vec<u8>) = Default::default();
                    for at in 0..plain.len() {
                        while !plain[at].1 && !plain[at].2.is_empty() && want.len() < n {
                            let ready = plain[at..].iter().any(|r| !r.1 && live(r) > 0);
                            let (block, there) = plain[at].2.remove(0);
                            let begun = want.iter().any(|b| b.1);
                            if there {
                                let payload = [block as u8; 4].into_iter().filter(|_| block % 3 != 0);
                                if bytes.is_empty() {
                                    let turns = want.iter().filter(|b| !b.1).count();
                                    bytes.resize(turns * payload.clone().count(), 0);
                                }
                                bytes.extend(payload);
                            } else if ready && (begun || want.len() + 1 < n) && !waits(&plain, block) {
                                bytes.extend(vec![0; bytes.len() / want.len().max(1)]);
                            } else {
                                continue;
                            }
                            want.push((block, there));
                        }
                    }
                    let got = log.take(n).unwrap_or(Batch { blocks: vec![], data: vec![], outdated: vec![] });
                    let blocks = (0..).zip(&got.blocks).map(|(i, b)| (b.original.0, !got.outdated.contains(&i)));
                    proptest::prop_assert_eq!(blocks.collect::<Vec<_>>(), want);
                    proptest::prop_assert_eq!(got.data, bytes);
                }
            }
            // Turns before nothing are nobody's.
            if plain.iter().all(|r| live(r) == 0) {
                plain.iter_mut().filter(|r| !r.1).for_each(|r| r.2.clear());
            }
            plain.retain(|r| r.1 || !r.2.is_empty());
            log.check();
            let ready = plain.iter().filter(|r| !r.1).map(live).sum::<usize>();
            proptest::prop_assert_eq!(log.ready_blocks(), ready);
            let empty = plain.iter().all(|r| live(r) == 0);
            proptest::prop_assert_eq!((log.next_len(usize::MAX, usize::MAX), log.is_empty()), (ready, empty));
            let first = plain.iter().find(|r| !r.1 && live(r) > 0).map_or(0, live);
            proptest::prop_assert_eq!(log.next_len(usize::MAX, 0), first);
            proptest::prop_assert_eq!(log.next_len(3, 2), first.min(3).max(ready.min(2)));
        }
    }
}
