//! The control sample in a session: which reads it sends home, what it tells of them, and that by default there is none.

use fs2_block::{BlockRange, Nanos, Op};
use fs2_engine::{EIO, EngineConfig, IoOp};

use crate::session::{self, DATA, Session, config, image};

/// 1100 to 1103 have replicas from 1300 on. Reads them in turns, `reads` of them; how many were made from the originals. One from
/// a replica takes 2 ms, one from an original 6 ms.
fn read(s: &mut Session, reads: u32) -> u32 {
    let mut home = 0;
    for n in 0..reads {
        let block = 1100 + n % 4;
        let at = u64::from(block) * session::BLOCK as u64;
        let id = s.submit(Op::Read, at, session::BLOCK as u64, None);
        let io = s.dispatch().expect("nothing else goes on");
        let original = io.extent.offset() == at;
        home += u32::from(original);
        s.now += Nanos::from_millis(if original { 5 } else { 1 });
        s.complete(io);
        let answers = s.run();
        let want = (DATA[(block - 1100) as usize].1).to_le_bytes();
        assert!(
            answers.iter().any(|(of, a)| *of == id && a.as_ref().is_ok_and(|b| b[..2] == want)),
            "{answers:?}"
        );
    }
    home
}

fn session(control: u16) -> Session {
    let config = EngineConfig { control, seed: 7, ..config() };
    let mut s = Session::attach(image(&DATA, &[BlockRange::new(1100, 1104)], 1300), config);
    s.load_bitmap();
    s.reading_copies();
    s
}

/// What its copy took, which was read behind it, was told as what the original takes.
#[test]
fn a_read_that_failed_in_one_place_is_not_counted() {
    let mut s = session(16);
    s.fail = |io| {
        let original = io.extent.offset() == 1101 * session::BLOCK as u64;
        (io.op == IoOp::Read && original).then_some(EIO)
    };
    read(&mut s, 64 * 8);
    assert_eq!(s.volume.stats().original_errors, 1, "it was sent home");
    let home = s.volume.control().home;
    assert!(home.reads > 7 && (home.mean_ms.unwrap() - 6.0).abs() < 1e-6, "{home:?}");
}

#[test]
fn by_default_no_read_is_sent_home() {
    assert_eq!(EngineConfig::default().control, 0);
    let mut s = session(0);
    assert_eq!(read(&mut s, 3000), 0);
    assert_eq!(s.volume.control().home.reads, 0);
}

#[test]
fn one_run_in_so_many_is_read_at_home_and_both_are_told() {
    let mut s = session(16);
    // Nothing in the first 16 runs of 8; of the next 160 runs ten.
    assert_eq!(read(&mut s, 16 * 8), 0);
    assert_eq!(read(&mut s, 160 * 8), 80);
    let told = s.volume.control();
    // Of each run at home the first read is not counted, nor is that of the next one; one that goes on does not yet.
    assert_eq!(told.every, 16);
    assert!([9 * 7, 10 * 7].contains(&told.home.reads), "{told:?}");
    let near = |x: Option<f64>, y: f64| (x.unwrap() - y).abs() < 1e-6;
    assert!(near(told.home.mean_ms, 6.0) && near(told.chosen.mean_ms, 2.0), "{told:?}");
    assert!(near(told.home.error_ms, 0.0) && near(told.chosen.error_ms, 0.0), "{told:?}");
    assert_eq!(s.volume.stats().reads, (16 + 160) * 8);
    s.volume.check();
}

/// Reads that have no copy are in no run and turn none.
#[test]
fn reads_without_a_copy_are_no_part_of_it() {
    let mut s = session(2);
    for _ in 0..1000 {
        assert_eq!(s.value(1500), 0x17);
    }
    let told = s.volume.control();
    assert_eq!((told.chosen.reads, told.home.reads), (0, 0));
    assert_eq!(read(&mut s, 16), 0, "the first stretch goes on");
    assert_eq!(read(&mut s, 16), 8);
}
