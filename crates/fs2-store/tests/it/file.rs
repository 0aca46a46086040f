//! FileStore on regular files.

use std::sync::Barrier;
use std::time::Duration;

use fs2_store::{
    Direct, FileStore, Lock, MemStore, OpenError, OpenOptions, Pipe, Stamp, StampOf, Store, StoreIo, Stretch,
};
use proptest::prelude::*;

use crate::common::{self, PATIENT, RW, agree, file_of, scratch, steps};

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_direct_file_is_a_vector(steps in steps(300 * 4096, 40_000, 40)) {
        let dir = scratch();
        let store = FileStore::open(file_of(dir.path(), "f", 300 * 4096), RW).unwrap();
        agree(&store, &mut vec![0; 300 * 4096], &steps);
    }

    #[test]
    fn a_cached_file_is_a_vector(steps in steps(999_999, 40_000, 40)) {
        let dir = scratch();
        let off = OpenOptions { direct: Direct::Off, ..RW };
        let store = FileStore::open(file_of(dir.path(), "f", 999_999), off).unwrap();
        prop_assert!(!store.is_direct());
        agree(&store, &mut vec![0; 999_999], &steps);
    }

    #[test]
    fn memory_is_a_vector(steps in steps(100_001, 20_000, 60)) {
        agree(&MemStore::new(100_001), &mut vec![0; 100_001], &steps);
    }
}

#[test]
fn long_unaligned_requests_pass_the_bounce_buffer() {
    let dir = scratch();
    let size = 5 << 20;
    let store = FileStore::open(file_of(dir.path(), "f", size), RW).unwrap();
    let mut model = vec![0; size as usize];
    let all = [
        common::Step::Write { offset: 0, len: size, seed: 3, fua: false },
        common::Step::Write { offset: 1_000_001, len: 3_333_333, seed: 5, fua: true },
        common::Step::Write { offset: (1 << 20) - 1, len: 2, seed: 7, fua: false },
        common::Step::Zero { offset: 1, len: 4_000_000, no_hole: true },
        common::Step::Read { offset: 777, len: 4_444_444, misplace: 1 },
    ];
    agree(&store, &mut model, &all);
}

/// tmpfs has no ZERO_RANGE: zeros that must stay allocated are written.
#[test]
fn a_file_system_that_lacks_calls_is_a_vector_too() {
    use proptest::strategy::ValueTree;
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: needs a writable /dev/shm");
        return;
    };
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut model = vec![0; 3 << 20];
    for (i, direct) in [Direct::Auto, Direct::Off].into_iter().enumerate() {
        let path = file_of(dir.path(), &i.to_string(), 3 << 20);
        let store = FileStore::open(path, OpenOptions { direct, ..RW }).unwrap();
        model.fill(0);
        for _ in 0..10 {
            let steps = steps(3 << 20, 1_500_000, 20).new_tree(&mut runner).unwrap().current();
            agree(&store, &mut model, &steps);
        }
        store.write_zeroes(4096, 1 << 20, true).unwrap();
        assert_eq!(store.stretches(4096, 1 << 20, 2).unwrap(), [Stretch { len: 1 << 20, hole: false }]);
    }
}

#[test]
fn direct_or_say_so() {
    let dir = scratch();
    let on = OpenOptions { direct: Direct::On, ..RW };
    match FileStore::open(file_of(dir.path(), "even", 1 << 20), on) {
        Ok(s) => assert!(s.is_direct() && s.logical_block_bytes() > 1),
        Err(e @ OpenError::NoDirect { .. }) => println!("skipped in part: {e}"),
        Err(e) => panic!("{e}"),
    }
    let odd = file_of(dir.path(), "odd", (1 << 20) + 100);
    let e = FileStore::open(&odd, on).unwrap_err();
    assert!(matches!(e, OpenError::NoDirect { .. }), "{e}");
    let s = FileStore::open(&odd, PATIENT).unwrap();
    s.write_at((1 << 20) + 90, &[1; 10], false).unwrap();
    assert_eq!(std::fs::metadata(&odd).unwrap().len(), (1 << 20) + 100);
}

/// Four threads write 1000 bytes each, side by side in one block, and a fifth the whole block behind theirs
/// in one request with the last bytes of theirs. Each sees what it wrote until it writes again: a
/// read-modify-write that did not keep the others out would bring back what it had read.
#[test]
fn neighbours_in_one_block_do_not_undo_each_other() {
    let dir = scratch();
    let store = FileStore::open(file_of(dir.path(), "f", 64 * 4096), RW).unwrap();
    if !store.is_direct() {
        println!("skipped: no direct I/O here, so nothing is read and modified");
        return;
    }
    let mut places: Vec<(u64, usize)> = (0..4).map(|i| (i * 1000, 1000)).collect();
    places.push((4000, 96 + 4096));
    let barrier = Barrier::new(places.len());
    // Gathered, not asserted on the spot: a thread that ended would leave the others at the barrier.
    let undone = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for (at, len) in places {
            let (store, barrier, undone) = (&store, &barrier, &undone);
            s.spawn(move || {
                let mut back = vec![0; len];
                for round in 1..=100u8 {
                    barrier.wait();
                    store.write_at(at, &vec![round; len], false).unwrap();
                    barrier.wait();
                    store.read_at(at, &mut back).unwrap();
                    if back.iter().any(|&b| b != round) {
                        undone.lock().unwrap().push((round, at, len));
                    }
                }
            });
        }
    });
    assert_eq!(undone.into_inner().unwrap(), []);
}

/// The same against writes of whole blocks, which need not read anything themselves.
#[test]
fn a_whole_block_is_not_undone_by_one_that_cuts_it() {
    let dir = scratch();
    let store = FileStore::open(file_of(dir.path(), "f", 64 * 4096), RW).unwrap();
    let barrier = Barrier::new(2);
    std::thread::scope(|s| {
        let (store, barrier) = (&store, &barrier);
        // The first 100 bytes are both writers': either may win. The rest is the whole block's.
        let cutter = s.spawn(move || {
            for round in 1..=200u8 {
                barrier.wait();
                store.write_at(0, &[round ^ 0xff; 100], false).unwrap();
                barrier.wait();
            }
        });
        let whole = s.spawn(move || {
            let mut seen = Vec::new();
            for round in 1..=200u8 {
                barrier.wait();
                if round % 2 == 0 {
                    store.write_at(0, &fs2_store::AlignedBuf::copy_of(&[round; 4096]), false).unwrap();
                } else {
                    store.write_zeroes(0, 4096, true).unwrap();
                }
                barrier.wait();
                let mut back = [0; 4096];
                store.read_at(0, &mut back).unwrap();
                let want = if round % 2 == 0 { round } else { 0 };
                seen.push(back[100..].iter().all(|&b| b == want));
            }
            seen
        });
        cutter.join().unwrap();
        let seen = whole.join().unwrap();
        assert_eq!(seen.iter().position(|ok| !ok), None);
    });
}

#[test]
fn what_lies_beyond_the_end_is_refused() {
    let dir = scratch();
    let path = file_of(dir.path(), "f", 8192);
    let s = FileStore::open(&path, PATIENT).unwrap();
    let mut buf = [0; 2];
    assert_eq!(s.read_at(8191, &mut buf).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(s.read_at(u64::MAX, &mut buf).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(s.write_at(8191, &buf, false).is_err());
    assert!(s.write_at(u64::MAX, &buf, false).is_err());
    assert!(s.write_zeroes(8192, 1, false).is_err());
    assert!(s.discard(0, 8193).is_err());
    assert!(s.stretches(1, 8192, 1).is_err());
    s.read_at(8192, &mut []).unwrap();
    s.write_at(8192, &[], true).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
}

#[test]
fn read_only_is_read_only() {
    let dir = scratch();
    let path = file_of(dir.path(), "f", 8192);
    let ro = OpenOptions { write: false, ..RW };
    let a = FileStore::open(&path, ro).unwrap();
    assert_eq!(a.write_at(0, &[1], false).unwrap_err().raw_os_error(), Some(libc::EROFS));
    a.flush().unwrap();
    // Readers share; a writer does not.
    let b = FileStore::open(&path, ro).unwrap();
    let e = FileStore::open(&path, RW).unwrap_err();
    assert!(matches!(e, OpenError::Busy { .. }), "{e}");
    drop((a, b));
    FileStore::open(&path, PATIENT).unwrap();
}

#[test]
fn the_second_is_busy_and_gets_it_when_the_first_lets_go() {
    let dir = scratch();
    let path = file_of(dir.path(), "f", 8192);
    let first = FileStore::open(&path, PATIENT).unwrap();
    let e = FileStore::open(&path, RW).unwrap_err();
    assert!(e.is_transient());
    let me = format!("process {}", std::process::id());
    assert!(matches!(&e, OpenError::Busy { holder, .. } if holder.contains(&me)), "{e}");
    let none = OpenOptions { lock: Lock::None, ..RW };
    FileStore::open(&path, none).unwrap();
    // Waits, in vain.
    let short = OpenOptions { lock_wait: Some(Duration::from_millis(60)), ..RW };
    assert!(matches!(FileStore::open(&path, short), Err(OpenError::Busy { .. })));
    // Waits, and gets it with what the first wrote.
    std::thread::scope(|s| {
        let waiter = s.spawn(|| {
            let long = OpenOptions { lock_wait: Some(Duration::from_secs(600)), ..RW };
            let second = FileStore::open(&path, long).unwrap();
            let mut b = [0];
            second.read_at(4095, &mut b).unwrap();
            b[0]
        });
        std::thread::sleep(Duration::from_millis(50));
        first.write_at(4095, &[42], false).unwrap();
        drop(first);
        assert_eq!(waiter.join().unwrap(), 42);
    });
}

#[test]
fn other_things_are_refused_by_name() {
    let dir = scratch();
    let open = |p: &std::path::Path| FileStore::open(p, RW).unwrap_err();
    assert!(matches!(open(&dir.path().join("none")), OpenError::NotFound { .. }));
    assert!(matches!(open(dir.path()), OpenError::NotAFileOrDevice { what: "a directory", .. }));
    assert!(matches!(open("/dev/null".as_ref()), OpenError::NotAFileOrDevice { .. }));
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(open(&pipe), OpenError::NotAFileOrDevice { what: "a pipe", .. }));
    let e = open(&dir.path().join("none")).to_string();
    assert!(e.contains("none") && e.contains("check"), "{e}");
}

#[test]
fn holes_and_what_fills_them() {
    let dir = scratch();
    let path = file_of(dir.path(), "f", 4 << 20);
    let s = FileStore::open(&path, PATIENT).unwrap();
    assert!(s.sparse());
    let (free, total) = s.host_space().unwrap();
    assert!(free <= total && total > 0);
    let whole = |limit| s.stretches(0, 4 << 20, limit).unwrap();
    if !whole(1)[0].hole {
        println!("skipped: this file system tells no holes");
        return;
    }
    s.write_at(1 << 20, &[1; 1 << 16], false).unwrap();
    s.flush().unwrap();
    let got = whole(9);
    assert_eq!(got.iter().map(|s| s.hole).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(got.iter().map(|s| s.len).sum::<u64>(), 4 << 20);
    assert_eq!(whole(2), got[..2]);
    assert_eq!(s.stretches((1 << 20) + 1, 10, 9).unwrap()[0].len, 10);
    let stored = || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
    let before = stored();
    s.write_zeroes(1 << 20, 1 << 16, true).unwrap();
    assert!(stored() >= before, "kept allocated");
    s.discard(1 << 20, 1 << 16).unwrap();
    assert!(stored() < before, "given back");
    s.write_at(1 << 20, &[1; 1 << 16], false).unwrap();
    s.write_zeroes(1 << 20, 1 << 16, false).unwrap();
    assert!(stored() < before, "punched");
}

#[test]
fn a_stamp_differs_after_a_foreign_write() {
    let dir = scratch();
    let path = file_of(dir.path(), "f", 1 << 16);
    let s = FileStore::open(&path, PATIENT).unwrap();
    s.write_at(0, &[1; 4096], false).unwrap();
    s.flush().unwrap();
    let stamp = s.stamp().unwrap();
    assert!(matches!(stamp.of, StampOf::File { size: 65536, .. }));
    assert_eq!(Stamp::parse(&stamp.to_line()), Some(stamp.clone()));
    let mut buf = [0; 4096];
    s.read_at(0, &mut buf).unwrap();
    s.flush().unwrap();
    assert_eq!(s.stamp().unwrap(), stamp, "reading moves nothing");
    // The kernel's file times advance in ticks: write until the tick has passed.
    while s.stamp().unwrap() == stamp {
        std::os::unix::fs::FileExt::write_at(
            &std::fs::OpenOptions::new().write(true).open(&path).unwrap(),
            b"x",
            0,
        )
        .unwrap();
    }
    drop(s);
    assert_ne!(FileStore::open(&path, PATIENT).unwrap().stamp().unwrap(), stamp);
}

#[test]
fn pure_crates_read_through_an_adaptor_that_counts() {
    use fs2_block::{ReadAt, WriteAt};
    let s = MemStore::new(1 << 16);
    let mut io = StoreIo::new(&s);
    io.write_at(5, b"abc").unwrap();
    io.write_zeroes(6, 1).unwrap();
    io.flush().unwrap();
    let mut b = [9; 3];
    io.read_at(5, &mut b).unwrap();
    io.read_at(0, &mut []).unwrap();
    assert_eq!(&b, b"a\0c");
    assert_eq!(io.size_bytes().unwrap(), 1 << 16);
    assert!(io.read_at(1 << 16, &mut b).is_err());
    assert_eq!((io.reads(), io.bytes_read()), (2, 6));
}

/// What is not lent leaves the pipe as it was.
#[test]
fn only_what_memory_has_is_lent() {
    use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
    let dir = scratch();
    let path = file_of(dir.path(), "f", 1 << 20);
    let open = |direct| FileStore::open(&path, OpenOptions { direct, lock: Lock::None, ..RW }).unwrap();
    let store = open(Direct::Off);
    if !store.lends() {
        assert!(std::env::var_os("FS2_FORBID_SKIP").is_none(), "no cachestat");
        return eprintln!(
            "skipped: this kernel does not tell what of a file is in memory (cachestat, since 6.5)"
        );
    }
    store.write_at(0, &[1; 1 << 20], false).unwrap();
    let mut pipe = Pipe::new(Default::default()).unwrap();
    for (offset, len) in [(0, 64 << 10), (4096, 128 << 10), (5, 100_000)] {
        assert!(store.try_lend(offset, len, &mut pipe).unwrap(), "{offset}+{len}");
        assert_eq!(pipe.len(), len);
        pipe.clear().unwrap();
    }
    assert!(!store.try_lend(0, 1 << 20, &mut pipe).unwrap(), "larger than a pipe");
    assert!(!store.try_lend(0, 0, &mut pipe).unwrap());
    assert!(store.try_lend((1 << 20) - 100, 4096, &mut pipe).is_err());
    assert!(pipe.is_empty());
    let direct = open(Direct::Auto);
    if direct.is_direct() {
        assert!(!direct.lends() && !direct.try_lend(0, 64 << 10, &mut pipe).unwrap());
        // On a disk, memory can be without it.
        store.flush().unwrap();
        let file = std::fs::File::open(&path).unwrap();
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        assert!(!store.try_lend(4096, 64 << 10, &mut pipe).unwrap() && pipe.is_empty());
        store.read_at(4096, &mut [0; 64 << 10]).unwrap();
        assert!(store.try_lend(4096, 64 << 10, &mut pipe).unwrap(), "now it is there");
    }
}

#[test]
fn a_file_is_known_whatever_its_name_and_what_has_its_name_is_another() {
    let dir = scratch();
    let (one, two) = (file_of(dir.path(), "one", 4096), file_of(dir.path(), "two", 4096));
    let store = FileStore::open(&one, RW).unwrap();
    let known = store.identity().unwrap();
    assert_eq!(FileStore::identity_at(&one).unwrap(), known);
    store.write_at(0, &[1; 4096], false).unwrap();
    std::fs::rename(&one, dir.path().join("three")).unwrap();
    std::fs::rename(&two, &one).unwrap();
    assert_eq!(FileStore::identity_at(&dir.path().join("three")).unwrap(), known);
    assert_eq!(store.identity().unwrap(), known);
    assert_ne!(FileStore::identity_at(&one).unwrap(), known);
}
