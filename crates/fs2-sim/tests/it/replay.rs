//! The replay: its arithmetic by hand, its volume, its figures to the last digit.

use std::io::BufReader;

use fs2_block::{BlockNo, Extent, Nanos, Op, Permille, ReadAt, Sector};
use fs2_disk::{Disk, DriveProfile, Scheduler};
use fs2_engine::PolicyKind;
use fs2_ext2::Layout;
use fs2_sim::replay::{
    Belief, Bounds, Course, FreeMap, Histogram, Image, InUse, OwnIo, Pace, Redirect, Replay, Run, Secrets,
    Settings,
};
use fs2_trace::Record;

fn drive() -> DriveProfile {
    DriveProfile::builtin("wd800-repaired").expect("it is built in")
}

fn aged(bytes: u64) -> FreeMap {
    FreeMap::aged(bytes, Permille::new(600).expect("below 1000"), 7).expect("ext2 has room")
}

fn read(at_us: u64, sector: u64, sectors: u64) -> Record {
    Record::new(Nanos(at_us * 1000), Op::Read, Extent::new(sector * 512, sectors * 512))
}

fn run(replay: &mut Replay, trace: &[Record]) -> Run {
    match replay.run(trace.iter().map(|r| Ok::<_, ()>(*r))) {
        Ok(run) => run,
        Err(()) => unreachable!("this trace has no bad lines"),
    }
}

/// Eight directories far apart, read in turns: files of 16 KiB, each a little further on.
fn rounds(n: u64) -> Vec<Record> {
    (0..n).map(|i| read(i * 100, (i % 8) * 480_000 + 40_000 + i / 8 * 64, 32)).collect()
}

#[test]
fn without_copies_the_drive_alone_decides() {
    let trace = [read(0, 1_000_000, 8), read(1000, 1_000_008, 8), read(300_000, 5_000_000, 64)];
    let mut replay =
        Replay::new(&aged(4 << 30), Settings::new(drive()).with_policy(PolicyKind::None)).expect("a volume");
    let got = run(&mut replay, &trace);
    // By hand: a request that finds the drive busy waits for it. The engine's own I/O comes only where
    // nothing was asked for 240 ms, and then it loads bitmaps: the third read finds one of these under way.
    let mut disk = Disk::new(drive());
    let a = disk.serve(Nanos(0), Op::Read, Sector(1_000_000), 8);
    assert!(a.end() > Nanos(1_000_000));
    let b = disk.serve(Nanos(1_000_000), Op::Read, Sector(1_000_008), 8);
    assert_eq!(b.start, a.end());
    assert!(b.cache_hit);
    assert_eq!((got.requests, got.reads, got.split.count, got.split.hits), (3, 3, 3, 1));
    assert!(got.response_total >= a.total() + b.end().since(Nanos(1_000_000)) + got.split.seek.since(a.seek));
    assert!(got.own.count > 0, "{:?}", got.own);
    assert!(got.wait_behind_copies > Nanos(0));
    assert_eq!((got.copy_sectors, got.replicas, got.reads_from_copies), (0, 0, 0));
    assert_eq!(got.sectors, 80);
}

#[test]
fn a_closed_loop_keeps_think_times_and_nothing_else() {
    // Gaps of 1 ms are service, of 20 ms thought, of 10 s too long to be believed.
    let trace =
        [read(0, 1000, 8), read(1000, 9_000_000, 8), read(21_000, 1000, 8), read(10_021_000, 9_000_000, 8)];
    let mut settings = Settings::new(drive()).with_policy(PolicyKind::None);
    settings.pace = Pace::closed();
    let mut replay = Replay::new(&aged(8 << 30), settings).expect("a volume");
    let got = run(&mut replay, &trace);
    let thought = Nanos::from_millis(20 + 100);
    assert_eq!(got.elapsed, got.response_total + thought);
    // None came while another was served, some may have come while a bitmap was loaded.
    assert_eq!(got.response_total, got.split.total() + got.wait_behind_copies);
}

/// What came faster than the drive served it was all taken in, some hundred bytes each, for as long as the trace went on.
#[test]
fn what_a_drive_cannot_keep_up_with_waits_in_the_trace() {
    let trace = rounds(2000);
    let replayed = |queue_max| {
        let mut settings = Settings::new(drive()).with_policy(PolicyKind::None);
        (settings.engine.scheduler, settings.queue_max) = (Scheduler::Fcfs, queue_max);
        run(&mut Replay::new(&aged(4 << 30), settings).expect("a volume"), &trace)
    };
    let (all, few) = (replayed(usize::MAX), replayed(100));
    assert!(all.queue_max > 1900 && few.queue_max == 100, "{} {}", all.queue_max, few.queue_max);
    // First come, first served: where they wait makes no difference to them.
    assert_eq!((all.requests, all.elapsed, all.behind), (few.requests, few.elapsed, few.behind));
    assert_eq!((all.response_total, all.split), (few.response_total, few.split));
    assert_eq!(all.behind, all.elapsed.since(Nanos(199_900_000)));
}

/// Two runs with a minute between: reads, their access time in ns, sectors copied, replicas, reads from them.
fn two_runs(policy: PolicyKind, pace: Pace) -> [[u64; 5]; 2] {
    let trace = rounds(1600);
    let mut settings = Settings::new(drive()).with_policy(policy);
    settings.pace = pace;
    let mut map = aged(4 << 30);
    let mut in_use = InUse::new(map.block_size);
    trace.iter().for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    let mut replay = Replay::new(&map, settings).expect("a volume");
    let got = [0, 1].map(|_| {
        run(&mut replay, &trace);
        replay.idle(Nanos::from_millis(60_000));
        let r = replay.last_run();
        [r.reads, r.reads_split.total().0, r.copy_sectors, r.replicas, r.reads_from_copies]
    });
    replay.volume().check();
    got
}

#[test]
fn figures_are_pinned_to_the_last_digit() {
    // Changes with the drive's arithmetic only.
    let none = two_runs(PolicyKind::None, Pace::closed());
    assert_eq!(none, [[1600, 11_780_547_802, 0, 0, 0], [1600, 11_783_333_334, 0, 0, 0]]);
    // What is read again was copied in the order it was read: a tenth of the time, and each block once.
    let fs2 = two_runs(PolicyKind::Fs2, Pace::closed());
    assert_eq!(fs2[0], [1600, none[0][1], 1600 * 32, 1600 * 4, 0]);
    assert!(fs2[1][1] * 10 < none[1][1] && fs2[1][4] > 1500, "{fs2:?}");
    assert_eq!(two_runs(PolicyKind::Fs2, Pace::closed()), fs2, "the same again");
    // At the trace's pace, a request each 0.1 ms, the drive is behind at once; what it costs is the same.
    assert_eq!(two_runs(PolicyKind::None, Pace::Open)[0], none[0]);
}

#[test]
fn a_drawn_volume_is_ext2_with_that_much_free() {
    for (gib, used) in [(1, 300), (26, 600), (774, 900)] {
        let used = Permille::new(used).expect("below 1000");
        let map = FreeMap::aged(gib << 30, used, 3).expect("ext2 has room");
        let mut image = Image::new(&map);
        let layout = Layout::read(&mut image).expect("it is ext2");
        assert!(layout.check_usable().is_ok());
        assert!(u64::from(layout.blocks()) * 4096 >= gib << 30);
        let share = map.free.len() * 1000 / u64::from(map.blocks);
        let want = 1000 - u64::from(used.get());
        assert!(share.abs_diff(want) <= 30, "{gib} GiB: {share} permille free, asked for {want}");
        // The bitmaps agree with their descriptors, and metadata is used.
        for group in [0, layout.group_count() / 2, layout.group_count() - 1] {
            let bitmap = layout.read_bitmap(&mut image, group).expect("it can be read");
            let free = fs2_ext2::FreeMap::new(&layout, group, &bitmap).expect("metadata is used");
            assert_eq!(free.free_count(), u32::from(layout.groups()[group as usize].free_blocks));
        }
        image.convert(Permille::new(50).expect("below 1000"), 1).expect("there is room for a table");
        // Memory: what mkfs2 wrote that is not zero, not the table.
        assert!(image.kept_blocks() < 4096, "{} blocks kept", image.kept_blocks());
    }
}

const DUMP: &str = "\
Filesystem features:      ext_attr resize_inode dir_index filetype sparse_super large_file
Inode count:              512
Block count:              3000
Block size:               1024
First block:              1
Reserved GDT blocks:      11
Blocks per group:         1024
Inodes per group:         256
Inode size:               128


Group 0: (Blocks 1-1024)
  Primary superblock at 1, Group descriptors at 2-2
  Block bitmap at 20 (+19), Inode bitmap at 21 (+20)
  Inode table at 22-53 (+21)
  900 free blocks, 200 free inodes, 2 directories
  Free blocks: 100-102, 900
  Free inodes: 12-256
Group 1: (Blocks 1025-2048)
  Block bitmap at 1044 (+19)
  Inode bitmap at 1045 (+20)
  Inode table at 1046-1077 (+21)
  Free blocks: 1030, 1100-1110
Group 2: (Blocks 2049-2999)
  Block bitmap at 2049 (+0)
  Inode bitmap at 2050 (+1)
  Inode table at 2051-2082 (+2)
  Free blocks: 
";

#[test]
fn a_listing_is_read_and_its_mistakes_are_named() {
    let map = FreeMap::from_dumpe2fs(BufReader::new(DUMP.as_bytes())).expect("a listing");
    let free: Vec<u32> = map.free.iter().collect();
    // 1030 lies behind group 1's copy of the superblock, where blocks are reserved: never free.
    assert_eq!(free, [100, 101, 102, 900, 1100, 1101, 1102, 1103, 1104, 1105, 1106, 1107, 1108, 1109, 1110]);
    let layout = Layout::read(&mut Image::new(&map)).expect("it is ext2");
    assert_eq!((layout.blocks(), layout.group_count(), layout.bitmap_block(1)), (3000, 3, BlockNo(1044)));
    for (from, to, line) in [
        ("Block count:              3000", "Block count:  many", 3),
        ("900 free blocks, 200", "900 free blocks: 7, 200", 0),
        ("Free blocks: 100-102", "Free blocks: 102-100", 17),
        ("Group 2", "Group 3", 24),
        ("Block size:               1024", "Block size: 512", 0),
    ] {
        let text = DUMP.replace(from, to);
        let got = FreeMap::from_dumpe2fs(BufReader::new(text.as_bytes()));
        match got {
            Err(e) => assert_eq!(e.line, line, "{to}: {e}"),
            Ok(_) => assert_eq!(to, "900 free blocks: 7, 200", "{to} was read"),
        }
    }
}

#[test]
fn what_is_read_before_it_is_written_was_in_use() {
    let mut map = aged(1 << 30);
    let free: Vec<u32> = map.free.iter().take(4).collect();
    let at = |i: usize| BlockNo(free[i]).extent(map.block_size);
    let mut in_use = InUse::new(map.block_size);
    in_use.see(Op::Write, at(0));
    in_use.see(Op::Read, at(0));
    in_use.see(Op::Read, at(1));
    in_use.see(Op::Write, at(1));
    in_use.see(Op::Discard, at(2));
    in_use.see(Op::Read, Extent::new(1 << 40, 4096));
    in_use.take_from(&mut map);
    assert_eq!(map.free.iter().take(3).collect::<Vec<_>>(), [free[0], free[2], free[3]]);
}

#[test]
fn a_stretched_volume_keeps_free_space_and_moves_groups_apart() {
    let map = aged(1 << 30);
    let wide = map.stretched(7).expect("ext2 has room");
    assert_eq!(wide.blocks, map.blocks * 7);
    assert!(wide.free.len() <= map.free.len() && wide.free.len() + 100 > map.free.len());
    assert!(Layout::read(&mut Image::new(&wide)).is_ok());
    let b = BlockNo(2 * 32_768 + 5);
    assert_eq!(map.stretch_block(b, 7), BlockNo(14 * 32_768 + 5));
    assert_eq!(map.stretch_block(BlockNo(9), 7), BlockNo(9));
}

/// 400 times as far, a thousandth of all blocks is free: shares are of what the volume was.
#[test]
fn a_volume_stretched_far_has_copies_too() {
    let trace = rounds(800);
    let mut map = aged(4 << 30);
    let mut in_use = InUse::new(map.block_size);
    trace.iter().for_each(|r| in_use.see(r.op, r.extent));
    in_use.take_from(&mut map);
    let drive = DriveProfile::builtin("nearline-hc310").expect("it is built in");
    let mut found = Vec::new();
    for stretch in [1, 400] {
        let mut settings = Settings::new(drive.clone()).with_policy(PolicyKind::Fs2);
        (settings.pace, settings.stretch) = (Pace::closed(), stretch);
        let mut replay = Replay::new(&map, settings).expect("a volume");
        run(&mut replay, &trace);
        replay.idle(Nanos::from_millis(60_000));
        let again = run(&mut replay, &trace);
        found.push((again.replicas, again.reads_from_copies));
        assert!(again.reads_from_copies > 700, "stretched {stretch} times: {again:?}");
    }
    assert_eq!(found[0].0, found[1].0);
}

#[test]
fn an_image_reads_back_what_was_written() {
    let mut image = Image::new(&aged(1 << 30));
    let mut plain = vec![0; 3 * 4096];
    use fs2_block::WriteAt;
    for (at, len, byte) in [(4000u64, 200usize, 7u8), (8000, 1, 9), (4096, 4096, 0), (0, 100, 3)] {
        // Blocks 0 to 2 hold superblock and descriptors: read them first.
        image.read_at(0, &mut plain).expect("inside the volume");
        image.write_at(at, &vec![byte; len]).expect("inside the volume");
        plain[at as usize..][..len].fill(byte);
        let mut got = vec![1; 3 * 4096];
        image.read_at(0, &mut got).expect("inside the volume");
        assert_eq!(got, plain);
    }
    assert!(image.read_at(1 << 30, &mut [0; 1]).is_err());
}

#[test]
fn quantiles_are_near_and_never_below() {
    let mut h = Histogram::default();
    for us in 1..=10_000u64 {
        h.add(Nanos(us * 1000));
    }
    for permille in [10, 500, 900, 990, 1000] {
        let (got, want) = (h.quantile(permille).0 as f64, permille as f64 * 1e4);
        assert!(got >= want && got <= want * 1.002 + 1000.0, "{permille}: {got} against {want}");
    }
    assert_eq!(Histogram::default().quantile(990), Nanos(0));
    h.add(Nanos(u64::MAX));
}

/// Found: bounds of a stretched volume were those of the volume as recorded, and had the reads beyond its end, which no
/// policy serves.
#[test]
fn bounds_are_of_what_is_replayed() {
    let pace = Pace::Closed { clients: 1, think_min: Nanos(0), think_max: Nanos(0) };
    let map = aged(4 << 30);
    let end = map.bytes() / 512;
    let mut trace: Vec<Record> = (1..400u64).map(|i| read(0, i * 4_999_999 % end / 8 * 8, 8)).collect();
    trace.insert(200, read(0, end, 16));
    for stretch in [1, 7] {
        let mut bounds = Bounds::new(&drive(), &map, stretch, pace);
        let Ok(bound) = bounds.run(trace.iter().map(|r| Ok::<_, ()>(*r))) else {
            unreachable!("all are good")
        };
        let mut settings = Settings::new(drive()).with_policy(PolicyKind::None);
        (settings.pace, settings.stretch) = (pace, stretch);
        let mut replay = Replay::new(&map, settings).expect("a volume");
        replay.idle(Nanos::from_millis(60_000));
        let got = run(&mut replay, &trace);
        assert_eq!((map.stretched_bytes(stretch), got.failed), (replay.bytes(), 1));
        // Nothing is read twice: the bound is the drive itself, which begins at another angle.
        let (ours, theirs) = (bound.mean_ms(bound.b2_order), got.t_a_reads_ms());
        assert_eq!(bound.reads, got.reads_split.count);
        assert!((ours - theirs).abs() < theirs / 50.0, "stretched {stretch} times: {ours} and {theirs} ms");
    }
}

/// Found: they were of the drive without what nobody told of it, so that where nothing is read twice there was something to win.
#[test]
fn bounds_are_of_the_drive_that_judges() {
    let pace = Pace::Closed { clients: 1, think_min: Nanos(0), think_max: Nanos(0) };
    let map = aged(4 << 30);
    // Close together, but for the half that lies elsewhere.
    let trace: Vec<Record> = (0..3000u64).map(|i| read(0, i * 7919 % 3000 * 512, 8)).collect();
    let mut secrets = Belief::Mismatched.secrets(5);
    secrets.remapped_permille = 500;
    let bound = |secrets| {
        let mut bounds = Bounds::new(&drive(), &map, 1, pace);
        bounds.keep(secrets);
        let Ok(bound) = bounds.run(trace.iter().map(|r| Ok::<_, ()>(*r))) else {
            unreachable!("all are good")
        };
        bound.mean_ms(bound.b2_order)
    };
    let mut settings = Settings::new(drive()).with_policy(PolicyKind::None);
    (settings.pace, settings.secrets) = (pace, secrets);
    let mut replay = Replay::new(&map, settings).expect("a volume");
    let theirs = run(&mut replay, &trace).t_a_reads_ms();
    let (ours, without) = (bound(secrets), bound(Secrets::NONE));
    assert!((ours - theirs).abs() < theirs / 50.0 && without < theirs * 0.9, "{ours}, {theirs}, {without}");
}

#[test]
fn a_course_has_the_means_of_its_ends() {
    let of = |n: u64, time: fn(u64) -> u64| {
        let mut course = Course::default();
        (0..n).for_each(|i| course.add(Nanos(time(i))));
        course.ends().map(|ends| ends.map(|mean| mean.0))
    };
    assert_eq!(of(19, |_| 7), None);
    assert_eq!(of(20, |i| i), Some([0, 18]));
    for n in [20, 63, 64, 65, 1000, 1023, 123_457] {
        assert_eq!(of(n, |_| 7), Some([7, 7]), "{n}");
        let [first, last] = of(n, |i| i * 1000).expect("enough");
        let share = |mean: u64| mean as f64 / (n * 1000) as f64;
        assert!(
            (0.02..0.08).contains(&share(first)) && (0.9..0.97).contains(&share(last)),
            "{n}: {first} {last}"
        );
    }
}

#[test]
fn bounds_by_hand() {
    let pace = Pace::Closed { clients: 1, think_min: Nanos(0), think_max: Nanos(0) };
    let mut bounds = Bounds::new(&drive(), &aged(20 << 30), 1, pace);
    let mut run = |trace: &[Record]| match bounds.run(trace.iter().map(|r| Ok::<_, ()>(*r))) {
        Ok(bound) => bound,
        Err(()) => unreachable!("this trace has no bad lines"),
    };
    let (a, b, far) = (read(0, 8000, 8), read(0, 12_000_000, 16), read(0, 16_000_000, 8));
    let write_a = Record { op: Op::Write, ..a };

    // First sighting: nothing is free, the drive serves all of it.
    let mut disk = Disk::new(drive());
    let minute = Nanos::from_millis(60_000);
    let s = disk.serve(minute, Op::Read, Sector(8000), 8);
    let t = disk.serve(s.end(), Op::Read, Sector(12_000_000), 16);
    let first = run(&[a, b]);
    let cold = s.total() + t.total();
    assert_eq!((first.reads, first.reused, first.reused_w, first.in_order), (2, 0, 0, 0));
    assert_eq!([first.b2_reuse, first.b2_reuse_w, first.b2_order, first.b2_reuse_strict], [cold; 4]);

    // The cheapest way to move the data: over the platters without positioning, or from the cache.
    let hit = |sector, n| {
        let mut disk = Disk::new(drive());
        let miss = disk.serve(Nanos(0), Op::Read, Sector(sector), n);
        let hit = disk.serve(miss.end(), Op::Read, Sector(sector), n);
        assert!(hit.cache_hit && !miss.cache_hit);
        let media = miss.overhead + miss.transfer;
        (hit.transfer.min(miss.transfer), hit.total().min(media))
    };
    let ((transfer_a, whole_a), (transfer_b, whole_b)) = (hit(8000, 8), hit(12_000_000, 16));
    let near = |x: Nanos, want: Nanos| assert!(x.0.abs_diff(want.0) < 20, "{x:?} against {want:?}");
    near(first.b0, transfer_a + transfer_b);
    near(first.b1, whole_a + whole_b);

    // Read again: a comes after b, as never before, then b after a and a after b, as seen.
    let again = run(&[a, b, a]);
    assert_eq!((again.reads, again.reused, again.in_order), (3, 3, 2));
    near(again.b2_reuse, whole_a + whole_b + whole_a);
    assert_eq!([again.b2_reuse, again.b2_reuse_w, again.b2_reuse_strict], [again.b1; 3]);
    let jump = drive().seek_time(1, Op::Read) + Nanos(drive().turn().0 / 3);
    near(again.b2_order, again.b1 + jump);

    // A write takes what was read; who also counts writes still has it.
    let written = run(&[b, write_a, a]);
    assert_eq!((written.reads, written.reused, written.reused_w), (2, 1, 2));
    assert!(written.b2_reuse > written.b2_reuse_w && written.b2_reuse_w == written.b1);
    // What follows a free read is served from where the head is left; strictly, from the nearest place.
    let stray = run(&[b, far]);
    assert_eq!((stray.reused, stray.reused_w), (1, 1));
    assert!(stray.b2_reuse_strict + Nanos::from_millis(4) < stray.b2_reuse);

    // Found: what was read before it was discarded counted as read before. A part of a block that goes takes nothing.
    let discard =
        |sectors: u64| Record { op: Op::Discard, extent: Extent::new(8000 * 512, sectors * 512), ..a };
    let gone = run(&[a, discard(7), a, discard(8), a, a]);
    assert_eq!((gone.reads, gone.reused, gone.reused_w), (4, 3, 3));
    let gone = run(&[write_a, discard(8), a]);
    assert_eq!((gone.reads, gone.reused, gone.reused_w), (1, 0, 0));

    // Nine reads later is not after it. What was never read before puts nothing in order.
    let fresh = |n: u64| read(0, 30_000_000 + n * 1000, 8);
    let nine: Vec<Record> = (0..9).map(|i| read(0, 20_000_000 + i * 1000, 8)).collect();
    run(&[&[b][..], &nine, &[a]].concat());
    assert_eq!(run(&[fresh(0), b, a]).in_order, 0);
    run(&[&[b][..], &nine[..7], &[a]].concat());
    assert_eq!(run(&[fresh(1), b, a]).in_order, 1);
}

#[test]
fn what_a_mismatched_drive_hides_is_seen_by_all_policies() {
    let trace = rounds(400);
    let figures = |belief: Belief, policy| {
        let mut settings = Settings::new(drive()).with_belief(belief, 5).with_policy(policy);
        settings.pace = Pace::closed();
        let mut replay = Replay::new(&aged(4 << 30), settings).expect("a volume");
        run(&mut replay, &trace)
    };
    let none = figures(Belief::Equal, PolicyKind::None);
    // Without copies belief changes nothing but what the drive itself hides.
    assert_eq!(figures(Belief::SeekOnly, PolicyKind::None).split, none.split);
    let hidden = figures(Belief::Mismatched, PolicyKind::None);
    assert_ne!(hidden.split, none.split);
    // 20 to 100 us a request, answered late.
    let late = hidden.response_total.since(hidden.split.total() + hidden.wait_behind_copies);
    assert!((400 * 20_000..=400 * 100_000).contains(&late.0), "{late:?}");
    assert_eq!(figures(Belief::Mismatched, PolicyKind::None).split, hidden.split, "drawn by the seed");
}

#[test]
fn schedulers_shorten_the_way_and_lose_nothing() {
    // A burst of 64 reads at once, scattered.
    let trace: Vec<Record> = (0..64).map(|i| read(0, i * 7_777_777 % 12_000_000 / 8 * 8, 8)).collect();
    let seek = |scheduler, depth| {
        let mut settings = Settings::new(drive()).with_policy(PolicyKind::None);
        (settings.engine.scheduler, settings.depth) = (scheduler, depth);
        let mut replay = Replay::new(&aged(8 << 30), settings).expect("a volume");
        let got = run(&mut replay, &trace);
        assert_eq!((got.reads, got.split.count, got.failed), (64, 64, 0));
        (got.split.seek, got.split.seek + got.split.rotation)
    };
    let [fcfs, sstf, c_look, sptf] = Scheduler::ALL.map(|s| seek(s, 1));
    assert!(sstf.0 < fcfs.0 && c_look.0 < fcfs.0, "{sstf:?} {c_look:?} {fcfs:?}");
    assert!(sptf.1 < sstf.1, "{sptf:?} {sstf:?}");
    // A drive that is sent several commands chooses for itself.
    assert!(seek(Scheduler::Fcfs, 32).1 < fcfs.1);
}

/// A read that waits for another client's flush waits for nothing of the engine's own.
#[test]
fn a_clients_flush_is_no_work_of_the_engines_own() {
    let at = |ms: u64, op: Op, sector: u64| {
        Record::new(
            Nanos::from_millis(ms),
            op,
            Extent::new(sector * 512, if op == Op::Flush { 0 } else { 4096 }),
        )
    };
    let settings = Settings::new(drive().with_write_cache(8 << 10, 50.0)).with_policy(PolicyKind::None);
    let mut replay = Replay::new(&aged(4 << 30), settings).expect("a volume");
    // The first write of a session has the mark erased first.
    run(&mut replay, &[at(0, Op::Write, 1_000_000)]);
    replay.idle(Nanos::from_millis(60_000));
    let trace = [at(0, Op::Write, 1_000_000), at(1, Op::Flush, 0), at(2, Op::Read, 5_000_000)];
    let got = run(&mut replay, &trace);
    assert!(got.response_total > got.split.total() + Nanos::from_millis(2), "{got:?}");
    assert_eq!(got.wait_behind_copies, Nanos(0));
}

/// What lies behind 6 GiB is copied to 1 GiB when nothing was asked for a second, then asked for there.
#[derive(Clone)]
struct Move {
    done: u64,
}

const MOVED: u64 = 8 << 20;

impl Redirect for Move {
    fn place(&mut self, _: Nanos, _: Op, extent: Extent, pieces: &mut Vec<Extent>) {
        let from = 6 << 30;
        if self.done == 2 * MOVED && extent.offset() >= from && extent.end() <= from + MOVED {
            pieces.push(Extent::new(extent.offset() - from + (1 << 30), extent.len()));
        }
    }

    fn begins(&self, extent: Extent) -> u64 {
        extent.offset()
    }

    fn own(&mut self, now: Nanos, idle_since: Nanos) -> Option<OwnIo> {
        if self.done == 2 * MOVED || now.since(idle_since) < Nanos::from_millis(1000) {
            return None;
        }
        // A megabyte read there, written here.
        let (pass, part) = (self.done >> 20 & 1, self.done >> 21);
        self.done += 1 << 20;
        let (op, base) = if pass == 0 { (Op::Read, 6u64 << 30) } else { (Op::Write, 1 << 30) };
        Some(OwnIo { op, extent: Extent::new(base + (part << 20), 1 << 20) })
    }

    fn wake_up(&self, idle_since: Nanos) -> Option<Nanos> {
        (self.done < 2 * MOVED).then_some(idle_since + Nanos::from_millis(1000))
    }

    fn boxed_clone(&self) -> Box<dyn Redirect> {
        Box::new(self.clone())
    }
}

/// All regions of 64 MiB in other places, from the beginning on.
#[derive(Clone)]
struct Shuffle;

impl Shuffle {
    const REGION: u64 = 64 << 20;

    fn at(offset: u64) -> u64 {
        // 37 and 127 have no divisor in common.
        offset / Shuffle::REGION * 37 % 127 * Shuffle::REGION + offset % Shuffle::REGION
    }
}

impl Redirect for Shuffle {
    fn place(&mut self, _: Nanos, _: Op, extent: Extent, pieces: &mut Vec<Extent>) {
        pieces.push(Extent::new(Shuffle::at(extent.offset()), extent.len()));
    }

    fn begins(&self, extent: Extent) -> u64 {
        Shuffle::at(extent.offset())
    }

    fn own(&mut self, _: Nanos, _: Nanos) -> Option<OwnIo> {
        None
    }

    fn wake_up(&self, _: Nanos) -> Option<Nanos> {
        None
    }

    fn boxed_clone(&self) -> Box<dyn Redirect> {
        Box::new(self.clone())
    }
}

/// Reads at random places: wherever their blocks were moved, a drive that is given eight takes the nearest.
#[test]
fn the_drive_orders_moved_requests_by_where_they_go() {
    let mut random = 1u64;
    let mut place = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % (127 * Shuffle::REGION / 4096) * 8
    };
    let trace: Vec<Record> = (0..2000).map(|i| read(i, place(), 8)).collect();
    let elapsed = |redirect: Option<Box<dyn Redirect>>| {
        let mut settings = Settings::new(drive()).with_policy(PolicyKind::None);
        settings.pace = Pace::Closed { clients: 8, think_min: Nanos(0), think_max: Nanos(0) };
        (settings.depth, settings.redirect) = (8, redirect);
        let mut replay = Replay::new(&aged(8 << 30), settings).expect("a volume");
        run(&mut replay, &trace).elapsed.as_secs_f64()
    };
    let (moved, there) = (elapsed(Some(Box::new(Shuffle))), elapsed(None));
    assert!((moved / there - 1.0).abs() < 0.05, "{moved} and {there} s");
}

/// The drive's own writes and its sleep cost what they cost, though no request waits for them.
#[test]
fn what_a_drive_does_by_itself_is_paid() {
    let write = |at_us: u64, sector: u64| {
        Record::new(Nanos(at_us * 1000), Op::Write, Extent::new(sector * 512, 4096))
    };
    let trace: Vec<Record> = (0..100).map(|i| write(i * 200_000, i * 7_919 % 1000 * 8000)).collect();
    let of = |drive: DriveProfile, trace: &[Record]| {
        let settings = Settings::new(drive).with_policy(PolicyKind::None);
        let mut replay = Replay::new(&aged(4 << 30), settings).expect("a volume");
        run(&mut replay, trace);
        replay.idle(Nanos::from_millis(1000));
        let first = replay.last_run().clone();
        (first, run(&mut replay, trace))
    };
    let (plain, _) = of(drive(), &trace);
    assert_eq!(plain.background_joules, 0.0);
    // Each write moves the arm, before its answer or after it.
    let (cached, again) = of(drive().with_write_cache(8192, 50.0), &trace);
    assert!(cached.request_joules < plain.request_joules / 10.0);
    let (a, b) = (cached.energy_total_j(), plain.energy_total_j());
    assert!(cached.background_joules > 0.3 && (a / b - 1.0).abs() < 0.01, "{a} and {b} J");
    assert!((again.background_joules / cached.background_joules - 1.0).abs() < 0.2);
    // A minute between two reads, of which it sleeps fifty seconds.
    let laptop = DriveProfile::builtin("laptop-5400").expect("it is built in");
    let rare = [read(0, 1_000_000, 8), read(60_000_000, 5_000_000, 8)];
    let (awake, _) = of(laptop.clone().with_standby_after(None), &rare);
    let (asleep, _) = of(laptop.with_standby_after(Some(10.0)), &rare);
    let saved = awake.energy_total_j() - asleep.energy_total_j();
    let slept = 49.0 * (0.66 - 0.18) - 3.5 * 5.0;
    assert!((saved - slept).abs() < 1.5, "{saved} J saved, {slept} expected");
}

#[test]
fn a_scheme_may_move_requests_and_pays_for_it() {
    let near = (1u64 << 30) / 512 - 4096;
    let far = (6u64 << 30) / 512;
    let trace: Vec<Record> =
        (0..200).map(|i| read(i * 100, if i % 2 == 0 { near - i * 16 } else { far + i * 64 }, 8)).collect();
    let run_with = |redirect: Option<Box<dyn Redirect>>| {
        let mut settings = Settings::new(drive()).with_policy(PolicyKind::None);
        (settings.pace, settings.redirect) = (Pace::closed(), redirect);
        let mut replay = Replay::new(&aged(8 << 30), settings).expect("a volume");
        let first = run(&mut replay, &trace);
        replay.idle(Nanos::from_millis(60_000));
        let paid = replay.last_run().clone();
        (first, paid, run(&mut replay, &trace))
    };
    let (none, _, none_again) = run_with(None);
    let (first, paid, again) = run_with(Some(Box::new(Move { done: 0 })));
    assert_eq!(first.split, none.split, "before it was copied nothing moves");
    assert_eq!(paid.copy_sectors, MOVED / 512);
    assert!(paid.own_read_sectors >= MOVED / 512 && paid.own_idle.count >= 16);
    assert!(paid.own_joules > first.own_joules);
    assert!(again.split.seek.0 * 3 < none_again.split.seek.0 * 2, "{again:?}");
}
