use std::sync::{Arc, Condvar};

use fs2_block::Op;
use proptest::prelude::*;

use super::*;
use crate::{Fault, FaultKind, FaultStore};

const CAP: u64 = 1 << 20;

/// Eight sectors; writes of one sector at a time, named by a letter.
fn sectors(image: &MemStore) -> String {
    image.to_vec().chunks(512).map(|c| if c[0] == 0 { '.' } else { char::from(c[0]) }).collect()
}

fn put(s: &dyn Store, sector: u64, letter: u8, fua: bool) {
    s.write_at(sector * 512, &[letter; 512], fua).unwrap();
}

#[test]
fn what_is_certain_and_what_is_not() {
    let s = RecordStore::new(MemStore::from_bytes(&[b'-'; 4096]), CAP).unwrap();
    put(&s, 0, b'a', false); // 0
    s.flush().unwrap(); // 1
    put(&s, 1, b'b', false); // 2
    put(&s, 2, b'c', true); // 3
    s.mark("acknowledged c"); // 4
    put(&s, 0, b'd', false); // 5
    let r = s.recording().unwrap();
    assert_eq!((r.completed(), r.events().len(), s.events()), (6, 6, 6));
    assert_eq!(r.epochs(), [0..1, 2..6]);
    assert_eq!(r.split(0), (vec![], vec![0]), "0 was issued before anything completed");
    assert_eq!(r.split(1), (vec![], vec![0]));
    assert_eq!(r.split(2), (vec![0], vec![2]));
    assert_eq!(r.split(6), (vec![0, 3], vec![2, 5]));
    let image = |state: &CrashState| sectors(&r.image(state, Discarded::AsZero));
    assert_eq!(image(&r.prefix(6)), "dbc-----");
    assert_eq!(image(&r.prefix(3)), "ab------");
    assert_eq!(image(&r.least(6)), "a-c-----");
    let all = |states: Vec<CrashState>| states.iter().map(image).collect::<Vec<_>>();
    assert_eq!(all(r.single_drops(6)), ["d-c-----", "abc-----"]);
    assert_eq!(all(r.single_keeps(6)), ["abc-----", "d-c-----"]);
    assert_eq!(sectors(&MemStore::copy_of(s.inner()).unwrap()), "dbc-----");
}

/// A store whose writes of one sector wait until they are let go.
struct Gate(MemStore, u64, Mutex<(bool, bool)>, Condvar);

impl Gate {
    fn set(&self, f: impl FnOnce(&mut (bool, bool))) {
        f(&mut self.2.lock().unwrap());
        self.3.notify_all();
    }
    fn wait(&self, until: impl Fn(&(bool, bool)) -> bool) {
        drop(self.3.wait_while(self.2.lock().unwrap(), |s| !until(s)).unwrap());
    }
}

impl Store for Gate {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> io::Result<()> {
        if offset == self.1 {
            self.set(|s| s.0 = true);
            self.wait(|s| s.1);
        }
        self.0.write_at(offset, buf, fua)
    }
    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> io::Result<()> {
        self.0.write_zeroes(offset, len, no_hole)
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len)
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_flush_does_not_cover_what_was_in_flight() {
    let gate = Arc::new(Gate(MemStore::new(4096), 512, Mutex::default(), Condvar::new()));
    let s = RecordStore::new(gate.clone(), CAP).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| put(&s, 1, b'x', false));
        gate.wait(|s| s.0);
        put(&s, 0, b'a', false); // 0
        s.flush().unwrap(); // 1
        put(&s, 2, b'b', false); // 2
        // Taken now, x comes last and may be there or not.
        let r = s.recording().unwrap();
        assert_eq!((r.completed(), r.events().len()), (3, 4));
        assert!(!r.events()[3].acknowledged);
        assert_eq!(r.split(3), (vec![0], vec![2, 3]));
        assert_eq!(r.split(0), (vec![], vec![0, 3]));
        gate.set(|s| s.1 = true);
    });
    let r = s.recording().unwrap(); // x is event 3
    assert_eq!(r.events()[3].issued_after, 0);
    assert_eq!(r.split(4), (vec![0], vec![2, 3]), "the flush came first, and does not cover x");
    assert_eq!(r.split(2), (vec![0], vec![2, 3]));
    s.flush().unwrap();
    assert_eq!(s.recording().unwrap().split(5), (vec![0, 2, 3], vec![]));
}

#[test]
fn what_failed_may_be_there_whatever_is_flushed() {
    let below = FaultStore::new(MemStore::new(4096));
    below.plan(Fault::on(&[Op::Write, Op::Flush], FaultKind::Error(libc::EIO)).after(1).times(2));
    let s = RecordStore::new(below, CAP).unwrap();
    put(&s, 0, b'a', false); // 0
    assert!(s.write_at(512, &[1; 512], true).is_err()); // 1
    assert!(s.flush().is_err()); // not recorded: it promised nothing
    let r = s.recording().unwrap();
    assert_eq!(r.split(2), (vec![], vec![0, 1]));
    s.flush().unwrap(); // 2
    assert_eq!(s.recording().unwrap().split(3), (vec![0], vec![1]));
}

#[test]
fn tears_are_on_sectors_of_the_medium() {
    let s = RecordStore::new(MemStore::new(4096), CAP).unwrap();
    s.write_at(256, &[b'w'; 2048], false).unwrap();
    let r = s.recording().unwrap();
    let image =
        |tear| r.image(&CrashState { torn: Some((0, tear)), ..r.prefix(1) }, Discarded::AsZero).to_vec();
    let first = image(Tear::First(2));
    assert_eq!(first.iter().position(|&b| b != 0), Some(256));
    assert_eq!(first.iter().rposition(|&b| b != 0), Some(1023));
    assert!(image(Tear::First(0)).iter().all(|&b| b == 0));
    assert_eq!(image(Tear::First(9)), s.inner().to_vec());
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..64 {
        let v = image(Tear::Some(seed));
        for sector in v.chunks(512) {
            let marks = sector.iter().filter(|&&b| b != 0).count();
            assert!([0, 256, 512].contains(&marks), "no sector is torn within");
        }
        seen.insert(v);
    }
    assert!(seen.len() > 16, "{} of 32 tears seen", seen.len());
    let torn = r.torn(1, 5);
    assert_eq!((torn.kept.as_slice(), torn.torn.map(|t| t.0)), (&[0][..], Some(0)));
}

#[test]
fn discards_read_as_asked() {
    let s = RecordStore::new(MemStore::from_bytes(&[b'-'; 4096]), CAP).unwrap();
    s.discard(512, 1024).unwrap();
    let r = s.recording().unwrap();
    let image = |d| r.image(&r.prefix(1), d).to_vec();
    assert_eq!(image(Discarded::AsBefore), [b'-'; 4096]);
    assert_eq!(&image(Discarded::AsZero)[512..1536], &[0; 1024]);
    let noise = image(Discarded::AsNoise(1));
    assert_eq!((noise[511], noise[1536]), (b'-', b'-'));
    assert!(noise[512..1536].iter().filter(|&&b| b == b'-').count() < 32);
    assert_ne!(noise, image(Discarded::AsNoise(2)));
}

#[test]
fn too_much_is_refused_not_cut() {
    let s = RecordStore::new(MemStore::new(4096), 3000).unwrap();
    put(&s, 0, b'a', false);
    s.recording().unwrap();
    for _ in 0..6 {
        put(&s, 0, b'b', false);
    }
    assert_eq!(s.recording().err(), Some(RecordingFull { cap_bytes: 3000 }));
    assert_eq!(sectors(&MemStore::copy_of(s.inner()).unwrap()), "b.......", "the store itself goes on");
}

proptest! {
    /// The last prefix is the store itself, and every crash state lies between least and prefix.
    #[test]
    fn prefixes_grow_into_the_store(ops in prop::collection::vec((0u64..7, 1u64..2000, 0u8..6), 1..40), seed: u64) {
        let s = RecordStore::new(MemStore::from_bytes(&[b'-'; 9000]), CAP).unwrap();
        for (i, &(place, len, op)) in ops.iter().enumerate() {
            let at = place * 1000;
            match op {
                0 => s.flush().unwrap(),
                1 => s.write_zeroes(at, len, false).unwrap(),
                2 => s.discard(at, len).unwrap(),
                _ => s.write_at(at, &vec![i as u8; len as usize], op == 3).unwrap(),
            }
        }
        let r = s.recording().unwrap();
        let n = r.completed();
        prop_assert_eq!(n, ops.len());
        let whole = r.image(&r.prefix(n), Discarded::AsBefore);
        // The memory store drops whole pages on a discard and leaves the rest: bytes the discards did not
        // touch last are equal.
        let (a, b) = (whole.to_vec(), s.inner().to_vec());
        let differs = a.iter().zip(&b).filter(|(x, y)| x != y && **y != 0).count();
        prop_assert_eq!(differs, 0);
        for (after, image) in r.prefix_images(Discarded::AsZero).enumerate() {
            prop_assert!(image.to_vec() == r.image(&r.prefix(after), Discarded::AsZero).to_vec());
            let (least, all) = (r.least(after).kept, r.prefix(after).kept);
            for state in [r.subset(after, seed), r.torn(after, seed)] {
                prop_assert!(least.iter().all(|i| state.kept.contains(i)));
                prop_assert!(state.kept.is_sorted());
                // Serially recorded, only the next event was already issued.
                prop_assert!(state.kept.iter().all(|i| all.contains(i) || *i == after));
                prop_assert!(state.torn.is_none_or(|(i, _)| state.kept.contains(&i) && !least.contains(&i)));
            }
            prop_assert_eq!(r.subset(after, seed), r.subset(after, seed));
        }
    }
}
