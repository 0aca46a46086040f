use proptest::prelude::*;

use super::*;
use crate::sample::Control;
use crate::status::tests::any_status;
use crate::status::{AccessMs, EnergyJ, Failed, HotRegion, Parts, PauseWork, ReplicaGate, TotalS};

fn sample() -> Status {
    Status {
        volume: "/dev/sdb1".into(),
        uuid: "1f2e3d4c-5566-7788-99aa-bbccddeeff00".into(),
        frontend: "ublk /dev/ublkb0".into(),
        policy: "fs2".into(),
        drive: "wd800-repaired".into(),
        data_path: "direct, threads, depth 1, rotational".into(),
        liveness: Liveness::Active,
        volume_bytes: 80_000_000_000,
        block_bytes: 4096,
        free_share: 0.312,
        watermarks: Marks { high: 0.15, low: 0.1, critical: 0.05 },
        space_share: 0.05,
        head_block: 40_000,
        parts: Parts { reads: [vec![9, 1], vec![0; 62]].concat(), ..Parts::default() },
        watermark_state: WatermarkState::Copying,
        hot_region: Some(HotRegion { first_block: 32_768, last_block: 65_535 }),
        replicas: 12_345,
        replica_bytes: 12_345 * 4096,
        replicas_unverified: 12,
        reads: 1_234_567,
        reads_from_replica: 555_555,
        writes: 1000,
        read_bytes: 5 << 30,
        write_bytes: 1 << 30,
        requests_waiting: 3,
        ios_in_flight: 1,
        verified: 7,
        pause_work: PauseWork { allowed: true, cost_ms: 3.25, limit_ms: 42.0 },
        total_s: TotalS { saved: 1234.5, ..TotalS::default() },
        copies_written: 13_000,
        copies_waiting: 12,
        copies_void: 655,
        invalidated: 600,
        reclaimed: 55,
        table_pages_written: 61,
        access_ms: AccessMs {
            mean: Some(5.123),
            p99: Some(21.34),
            wait: Some(0.25),
            seek: Some(1.9),
            rotation: Some(2.9),
            transfer: Some(0.0512),
            accesses: 20_000,
            source: Source::Modelled("wd800-repaired".into()),
        },
        control: Control {
            every: 256,
            copies: Sample { reads: 1_100_000, mean_ms: Some(2.12), error_ms: Some(0.05) },
            originals: Sample { reads: 3801, mean_ms: Some(6.25), error_ms: Some(0.4) },
        },
        energy_j: EnergyJ { value: Some(61_234.0), source: Source::Modelled("wd800-repaired".into()) },
        uptime_s: 7384.5,
        pid: 4242,
        version: "0.1.0".into(),
        ..Status::default()
    }
}

#[test]
fn the_page_of_an_active_volume() {
    let want = "\
\u{20} volume      /dev/sdb1
  state       active
  uuid        1f2e3d4c-5566-7788-99aa-bbccddeeff00
  frontend    ublk /dev/ublkb0
  policy      fs2
  drive       wd800-repaired
  data path   direct, threads, depth 1, rotational
  daemon      fs2d 0.1.0, process 4242, up 2 h 3 min

space
  free        31.2 % of the blocks that are not static metadata; copies are made
  marks       copies from 15.0 %, none below 10.0 %, regions go below 5.0 %
  replicas    12,345 blocks, 48.2 MiB; 12 not verified yet; at most 5.0 % of the
              volume
  hot region  blocks 32,768 to 65,535
! No discard was seen since the attach, in which 1.0 GiB were written: where it
  is mounted without -o discard, the space known to be free can only shrink; run
  fs2 trim from time to time.
  head        at block 40,000 of 19,531,250
  reads at    █▁

requests
  reads       1,234,567; 555,555 from replicas (45.0 %); 5.0 GiB
  writes      1,000; 1.0 GiB
  discards    0
  flushes     0
  queue       3 waiting, 1 at the device
  copied      13,000 blocks; 655 in vain; 12 waiting
  dropped     600 invalidated, 55 reclaimed
  verified    7 right, 0 wrong and dropped
  pauses      own work goes on: it cost 3.25 ms of 42.0 ms it may, lately
  table       61 pages written

time and energy
  a read      mean 5.12 ms, 99 % within 21.3 ms (measured)
  its wait    mean 0.25 ms, before that (measured)
  saved       1234 s by replicas (predicted at each read)
  control     with copies 2.12 ± 0.05 ms (1,100,000 reads), from originals 6.25
              ± 0.40 ms (3,801 reads): 66.1 % less (measured, one run in 256)
  an access   seek 1.90 ms, rotation 2.90 ms, transfer 51.2 us (modelled by
              profile wd800-repaired)
  energy      61.2 kJ (modelled by profile wd800-repaired)
";
    assert_eq!(sample().to_text(), want);
}

/// "It cost -2.52 ms of 15.8 ms it may."
#[test]
fn work_that_saved_more_than_it_cost_is_told_of_in_words() {
    let saved = PauseWork { allowed: true, cost_ms: -2.52, limit_ms: 15.8 };
    let text = Status { pause_work: saved, ..sample() }.to_text();
    let row = "pauses      own work goes on: it saved 2.52 ms more than it cost, and may cost\n              15.8 ms, lately\n";
    assert!(text.contains(row), "{text}");
}

#[test]
fn a_line_has_what_tells_volumes_apart() {
    let line = "active  12345 replicas, 555555 of 1234567 reads from them, a read 5.12 ms, own work goes on";
    assert_eq!(sample().to_line(), line);
    let status = Status {
        liveness: Liveness::Inactive("no mark\nfs2: all is well".into()),
        access_ms: AccessMs::default(),
        pause_work: PauseWork::default(),
        ..Status::default()
    };
    let line = "inactive: no mark?fs2: all is well  0 replicas, 0 of 0 reads from them, no read measured, own work off";
    assert_eq!(status.to_line(), line);
    let waits = Status { pause_work: PauseWork { allowed: false, cost_ms: 2.0, limit_ms: 1.0 }, ..sample() };
    assert_eq!(waits.own_work(), "waits");
    assert!(!waits.to_text().contains("slowest"));
    let slowest =
        Status { pause_work: PauseWork { allowed: false, cost_ms: 1.0, limit_ms: 2.0 }, ..sample() };
    assert!(slowest.to_text().contains("lately, but made too many of the slowest"), "{}", slowest.to_text());
}

#[test]
fn a_gate_that_closed_is_shown() {
    let of = |closed_for, closings| {
        Status { replica_gate: ReplicaGate { closed_for, closings }, ..sample() }.to_text()
    };
    assert!(!of(0, 0).contains("gate"));
    let text = of(0, 2);
    assert!(text.contains("gate        replicas are read; 2 times they were not"), "{text}");
    let text = of(8192, 1);
    assert!(text.contains("gate        originals are read for 8,192 reads: their reads"), "{text}");
}

#[test]
fn an_inactive_volume_shows_its_remedy_on_one_line() {
    let remedy = format!("mkfs2 --again {}", "/very/long/path".repeat(8));
    let status = Status {
        liveness: Liveness::Inactive("the last session did not end cleanly".into()),
        remedy: Some(remedy.clone()),
        ..sample()
    };
    let text = status.to_text();
    assert!(text.contains(&format!("\n    {remedy}\n")), "{text}");
    assert!(text.contains("free        not known in this state"), "{text}");
    assert!(!text.contains("No discard"), "{text}");
}

#[test]
fn discards_end_the_warning() {
    let status = Status { discard_seen: true, ..sample() };
    assert!(!status.to_text().contains("No discard"));
}

/// Every status right after a mount had the warning, when nothing could have been removed yet.
#[test]
fn what_was_hardly_written_lacks_no_discard() {
    for (write_bytes, warned) in [(0, false), (40_960, false), (799_999_999, false), (800_000_000, true)] {
        let status = Status { write_bytes, uptime_s: 86_400.0, ..sample() };
        assert_eq!(status.to_text().contains("No discard"), warned, "{write_bytes}");
    }
}

#[test]
fn troubles_are_shown_when_there_are_any() {
    assert!(!sample().to_text().contains("troubles"));
    let status = Status { hash_mismatches: 1, table_errors: 2, ..sample() };
    let text = status.to_text();
    assert!(text.contains("! 1 replica held other bytes"), "{text}");
    assert!(text.contains("! 2 writes of the table"), "{text}");
    let last = Some("a write of 4096 bytes at byte 8192: No space left on device (os error 28)".into());
    let failed = Failed { writes: 3, last, ..Failed::default() };
    let text = Status { failed: failed.clone(), ..sample() }.to_text();
    assert!(text.contains("troubles\n! 3 writes of clients failed"), "{text}");
    assert!(text.contains("! The last that a client was told of: a write of 4096 bytes"), "{text}");
    let failed = Failed { refuses_changes: Some("a flush failed".into()), ..failed };
    let text = Status { failed, ..sample() }.to_text();
    assert!(text.contains("! Every write is refused now: a flush failed; unmount it"), "{text}");
}

#[test]
fn a_control_sample_is_told_as_soon_as_it_says_anything() {
    assert!(!Status { control: Control::default(), ..sample() }.to_text().contains("control"));
    let few = Control { originals: Sample { reads: 7, ..Sample::default() }, ..sample().control };
    let text = Status { control: few, ..sample() }.to_text();
    assert!(text.contains("  control     too few reads yet: 7 were sent to their originals"), "{text}");
    assert_eq!((less(0.5), less(-0.25)), ("50.0 % less".into(), "25.0 % more".into()));
}

#[test]
fn a_detach_is_told() {
    let info = DetachInfo { marked: false, why_not: Some("it was frozen".into()), replicas: 1 };
    let text = Status { detach: Some(info), ..sample() }.to_text();
    assert!(text.contains("\ndetach\n  ended       without a mark\n  why         it was frozen\n"), "{text}");
    assert!(text.contains("  table       1 replica\n"), "{text}");
}

#[test]
fn a_strip_shows_its_peak_and_hides_nothing() {
    assert_eq!(strip(&[0, 1, 100, 50], 4), " ▁█▄");
    assert_eq!(strip(&[0, 1, 100, 51], 2), "▁█", "two parts to a column");
    assert_eq!(strip(&[u64::MAX, u64::MAX, 0], 2), "██", "columns need not be alike");
    assert_eq!(
        (strip(&[], 5), strip(&[1], 0), strip(&[0, 0], 9)),
        (String::new(), String::new(), "  ".into())
    );
}

#[test]
fn units() {
    assert_eq!(
        [0, 1, 999, 1000, u64::MAX].map(count),
        ["0", "1", "999", "1,000", "18,446,744,073,709,551,615"]
    );
    assert_eq!(
        [0, 1, 1023, 1024, (1 << 20) - 1, 1 << 40].map(bytes),
        ["0 bytes", "1 byte", "1,023 bytes", "1.0 KiB", "1.0 MiB", "1.0 TiB"]
    );
    assert_eq!(
        [0.0, 59.9, 60.0, 3600.0, 90_000.0, f64::NAN].map(duration),
        ["0 s", "59 s", "1 min 0 s", "1 h 0 min", "1 d 1 h", "0 s"]
    );
    assert_eq!(
        [0.0, 0.0512, 5.123, 99.96, 12_345.0].map(|t| ms(Some(t))),
        ["0.00 ms", "51.2 us", "5.12 ms", "100 ms", "12.3 s"]
    );
}

proptest! {
    #[test]
    fn no_line_is_too_long_and_no_control_character_gets_out(status in any_status()) {
        let status = Status { remedy: None, ..status };
        for line in status.to_text().lines() {
            prop_assert!(line.chars().count() <= COLUMNS, "{line}");
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }

    #[test]
    fn folding_keeps_every_word(text in "[a-z ]{0,200}", width in 1usize..40) {
        let lines = fold(&text, width);
        prop_assert!(lines.iter().all(|l| l.len() <= width));
        let letters = |s: &str| s.chars().filter(|c| *c != ' ').collect::<String>();
        prop_assert_eq!(letters(&lines.concat()), letters(&text));
    }
}
