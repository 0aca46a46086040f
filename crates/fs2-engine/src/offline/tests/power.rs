//! Power goes in every step of what is done offline, mkfs2 and what `fs2-sim` cuts left out: of the writes behind the last flush
//! none, one, all but one or all are left.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use super::*;

/// On which of the two devices, and what was written; a flush without.
type Event = (usize, Option<(u64, Vec<u8>)>);
/// The volume and its table's place, which is empty where that is on inode 5.
type Both = [Vec<u8>; 2];

/// A device whose writes are noted.
struct Noted {
    number: usize,
    bytes: Vec<u8>,
    events: Rc<RefCell<Vec<Event>>>,
}

impl ReadAt for Noted {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.bytes.read_at(offset, buf)
    }
    fn size_bytes(&mut self) -> io::Result<u64> {
        self.bytes.size_bytes()
    }
}

impl WriteAt for Noted {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.events.borrow_mut().push((self.number, Some((offset, buf.to_vec()))));
        self.bytes.write_at(offset, buf)
    }
    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; len as usize])
    }
    fn flush(&mut self) -> io::Result<()> {
        self.events.borrow_mut().push((self.number, None));
        Ok(())
    }
}

/// The devices, with the table's only where it lives apart.
fn devices<'a>([image, table]: &'a mut Both) -> Devices<'a> {
    let apart = !table.is_empty();
    Devices::new(image, apart.then_some(table as &mut dyn WriteAt))
}

/// Shows what may be left, wherever power goes while `run` runs.
fn cut(before: &Both, run: impl FnOnce(&mut Devices<'_>), mut left: impl FnMut(&str, Both)) {
    let events = Rc::new(RefCell::new(Vec::new()));
    let noted = |number: usize| Noted { number, bytes: before[number].clone(), events: events.clone() };
    let (mut image, mut table) = (noted(0), noted(1));
    let apart = !before[1].is_empty();
    run(&mut Devices::new(&mut image, apart.then_some(&mut table as &mut dyn WriteAt)));
    let mut durable = before.clone();
    let mut cached: Vec<(usize, u64, Vec<u8>)> = Vec::new();
    for (n, (number, write)) in events.take().into_iter().enumerate() {
        match write {
            Some((offset, bytes)) => cached.push((number, offset, bytes)),
            None => {
                for (_, offset, bytes) in cached.extract_if(.., |w| w.0 == number) {
                    durable[number].write_at(offset, &bytes).unwrap();
                }
            }
        }
        let all = cached.len();
        let mut sets: Vec<Vec<usize>> = (0..all).map(|i| vec![i]).collect();
        sets.extend((0..all).map(|i| (0..all).filter(|&k| k != i).collect()));
        sets.extend([Vec::new(), (0..all).collect()]);
        sets.sort();
        sets.dedup();
        for set in sets {
            let mut state = durable.clone();
            for &i in &set {
                let (number, offset, bytes) = &cached[i];
                state[*number].write_at(*offset, bytes).unwrap();
            }
            left(&format!("after event {n}, with {set:?} of {all}"), state);
        }
    }
}

/// What an attach would read from: original, replica, both as they are on disk.
fn served(state: &mut Both) -> Option<Vec<(u32, u32)>> {
    let [image, table] = state;
    let place = (!table.is_empty()).then_some(table as &mut dyn ReadAt);
    let (volume, _) =
        Volume::attach(image, place, EngineConfig::default(), &AttachOptions::default()).unwrap();
    is_active(&volume).then(|| {
        let mut trusted = Vec::new();
        for e in volume.table().iter().filter(|e| e.trust == Trust::Verified) {
            for b in [e.original, e.replica] {
                assert_eq!(content_hash(ID, block(image, b.0)), e.hash, "{e:?} is trusted, and {b} differs");
            }
            trusted.push((e.original.0, e.replica.0));
        }
        trusted
    })
}

fn files_are_as_before(before: &Both, state: &Both, what: &str) {
    for b in [0, 1].into_iter().flat_map(|group| data(group)..data(group) + 200) {
        assert!(block(&before[0], b) == block(&state[0], b), "{what}: block {b}");
    }
}

/// Checked in full, it is a table again.
fn is_mended(state: &mut Both, options: &CheckOptions<'_>, what: &str) -> CheckReport {
    let report = check(&mut devices(state), options, &mut |_| true, &mut |_| {});
    let report = report.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(report.marked && served(state).is_some(), "{what}: {report:?}");
    report
}

fn with_copies() -> Both {
    let mut image = made();
    copied(&mut image, &[(data(0), 9000), (data(0) + 1, 9001), (data(1), 9100)]);
    [image, Vec::new()]
}

fn apart_with_copies() -> Both {
    let mut both = [image(), Vec::new()];
    both[1] = vec![0; table_bytes(&mut both[0], options().space).unwrap() as usize];
    create(&mut devices(&mut both), &options(), &mut |_| {}).unwrap();
    let blocks = [BlockRange::at(BlockNo(data(0)), 2)];
    let asked = ReplicateOptions { blocks: &blocks, near: BlockNo(9000), written_since: false };
    replicate(&mut devices(&mut both), &asked, &mut |_| {}).unwrap();
    both
}

#[test]
fn while_replicas_are_made_by_hand() {
    let before = with_copies();
    // Where others are that go, before others, and in place of none.
    let blocks = [BlockRange::at(BlockNo(data(0)), 4), BlockRange::at(BlockNo(data(1)), 2)];
    let asked = ReplicateOptions { blocks: &blocks, near: BlockNo(9000), written_since: false };
    let mut seen = [0; 2];
    let run = |d: &mut Devices<'_>| _ = replicate(d, &asked, &mut |_| {}).unwrap();
    cut(&before, run, |what, mut state| {
        println!("{what}");
        files_are_as_before(&before, &state, what);
        match served(&mut state) {
            Some(all) if all.len() == 6 => seen[1] += 1,
            Some(all) => assert_eq!(all.len(), 3, "{what}"),
            None => seen[0] += 1,
        }
        is_mended(&mut state, &FULL, what);
    });
    assert!(seen[0] > 5 && seen[1] > 0, "{seen:?}");
}

#[test]
fn while_replicas_are_scrubbed() {
    let scrub = CheckOptions { scrub: true, ..FULL };
    let before = with_copies();
    let run = |d: &mut Devices<'_>| _ = check(d, &scrub, &mut |_| true, &mut |_| {}).unwrap();
    cut(&before, run, |what, mut state| {
        println!("{what}");
        files_are_as_before(&before, &state, what);
        assert!(served(&mut state).is_none_or(|all| all.is_empty() || all.len() == 3), "{what}");
        // Asked again it overwrites what is left: while one of them is, the table names it.
        is_mended(&mut state, &scrub, what);
        for replica in [9000, 9001, 9100] {
            assert!(block(&state[0], replica) == [0; BLOCK], "{what}: {replica}");
        }
    });
}

#[test]
fn while_pages_move() {
    for scrub in [false, true] {
        let options = CheckOptions { scrub, ..FULL };
        let (image, table, copies) = divided_for_more_groups();
        let before = [image, table];
        let run = |d: &mut Devices<'_>| _ = check(d, &options, &mut |_| true, &mut |_| {}).unwrap();
        cut(&before, run, |what, mut state| {
            println!("scrub {scrub}, {what}");
            files_are_as_before(&before, &state, what);
            let trusted = served(&mut state).unwrap_or_default();
            assert!(trusted.iter().all(|entry| copies.contains(entry)), "{what}: {trusted:?}");
            is_mended(&mut state, &FULL, what);
            let trusted = served(&mut state).unwrap();
            assert!(trusted.iter().all(|entry| copies.contains(entry)), "{what}: {trusted:?}");
        });
    }
}

#[test]
fn while_a_table_apart_is_undone() {
    let before = apart_with_copies();
    let replicas: Vec<u32> = served(&mut before.clone()).unwrap().into_iter().map(|(_, r)| r).collect();
    assert_eq!(replicas.len(), 2);
    let run = |d: &mut Devices<'_>| _ = undo(d, &UNDO_CHECKED, &mut |_| {}).unwrap();
    cut(&before, run, |what, mut state| {
        println!("{what}");
        files_are_as_before(&before, &state, what);
        if state[1].iter().any(|&b| b != 0) {
            served(&mut state);
            // It can be called again, for as long as something is left.
            undo(&mut devices(&mut state), &UNDO_CHECKED, &mut |_| {})
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        assert!(state[1].iter().all(|&b| b == 0), "{what}");
        for &replica in &replicas {
            assert!(block(&state[0], replica) == [0; BLOCK], "{what}: {replica}");
        }
    });
}
