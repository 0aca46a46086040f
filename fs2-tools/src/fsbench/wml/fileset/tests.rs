use std::fs::{self, OpenOptions};
use std::io::Write;

use super::super::super::Verified;
use super::super::gates::Stop;
use super::super::model::Amount;
use super::*;

fn set(dir: &Path, entries: u64, prealloc_percent: u64) -> FileSet {
    let spec = FilesetSpec {
        name: "set".into(),
        path: "/tmp".into(),
        size: Amount::Fixed(3000),
        size_gamma: 0,
        entries,
        leafdirs: 4,
        dirwidth: Amount::Fixed(5),
        dirgamma: 1500,
        dirdepth: None,
        prealloc_percent,
        paralloc: true,
        reuse: false,
        trusttree: false,
        readonly: false,
        writeonly: false,
    };
    FileSet::plan(&spec, dir, 11, 0)
}

fn on_disk(set: &FileSet) -> Vec<(bool, u64)> {
    let mut path = PathBuf::new();
    (0..set.files())
        .map(|i| {
            set.path(i, &mut path);
            path.metadata().map_or((false, 0), |m| (true, m.len()))
        })
        .collect()
}

#[test]
fn makes_exactly_the_share_and_puts_it_right_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut set, stop) = (set(dir.path(), 50, 80), Stop::default());
    set.create(1, &stop).unwrap();
    let before = on_disk(&set);
    assert_eq!(before.iter().filter(|f| **f == (true, 3000)).count(), 40);
    assert_eq!(before.iter().filter(|f| !f.0).count(), 10);

    let mut path = PathBuf::new();
    let Deletion::Of(gone) = set.begin_deletion(Ok(Pick::Next), &stop) else { panic!() };
    set.path(gone, &mut path);
    fs::remove_file(&path).unwrap();
    set.end_deletion(gone, true);
    let came = set.begin_creation(Pick::Next, &stop).unwrap();
    set.path(came, &mut path);
    open_creating(OpenOptions::new().write(true), &path).unwrap();
    set.end_creation(came, true);
    let longer = set.hold_existing(Pick::Next, &stop).unwrap();
    set.path(longer, &mut path);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    set.mark_written(longer);
    assert_ne!(on_disk(&set), before);
    set.restore(1, &stop).unwrap();
    assert_eq!(on_disk(&set), before);
    let mut found = Verified::default();
    set.verify(1, &stop, &mut found);
    assert_eq!((found.files, found.bytes, found.damaged), (40, 39 * 3000, 0), "{:?}", found.examples);
    set.path(set.hold_existing(Pick::Next, &stop).unwrap(), &mut path);
    fs::write(&path, vec![7; 3000]).unwrap();
    set.verify(1, &stop, &mut found);
    assert_eq!(found.damaged, 1);
}

#[test]
fn rotation_index_and_holds() {
    let dir = tempfile::tempdir().unwrap();
    let (mut set, stop) = (set(dir.path(), 5, 100), Stop::default());
    set.create(1, &stop).unwrap();
    // One after the other for everyone, and again from the start.
    let picks: Vec<_> = (0..6).map(|_| set.hold_existing(Pick::Next, &stop).unwrap()).collect();
    assert_eq!(picks, [0, 1, 2, 3, 4, 0]);
    let mut own = 0;
    assert_eq!(set.hold_existing(Pick::Own(&mut own), &stop), Some(0));
    assert_eq!(set.hold_existing(Pick::Index(3), &stop), Some(3));
    // Held by two: neither may delete it. Held by the caller alone: it may.
    assert_eq!(set.begin_deletion(Err((3, true)), &stop), Deletion::InUse);
    set.release(3);
    assert_eq!(set.begin_deletion(Err((3, true)), &stop), Deletion::Of(3));
    // It is neither there nor absent until that is done.
    assert_eq!(set.begin_deletion(Err((3, false)), &stop), Deletion::InUse);
    set.end_deletion(3, true);
    assert_eq!(set.hold_existing(Pick::Index(3), &stop), Some(4));
    assert_eq!(set.begin_creation(Pick::Next, &stop), Some(3));
    set.end_creation(3, true);
    assert_eq!(set.begin_creation(Pick::Next, &stop), None);
}

#[test]
fn who_needs_a_file_that_is_being_deleted_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut set, stop) = (set(dir.path(), 1, 100), Stop::default());
    set.create(1, &stop).unwrap();
    assert_eq!(set.begin_deletion(Ok(Pick::Next), &stop), Deletion::Of(0));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| set.begin_creation(Pick::Next, &stop));
        set.end_deletion(0, true);
        assert_eq!(waiting.join().unwrap(), Some(0));
    });
    // And who needs one to exist waits for the creation.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| set.hold_existing(Pick::Next, &stop));
        set.end_creation(0, true);
        assert_eq!(waiting.join().unwrap(), Some(0));
    });
}

#[test]
fn a_reused_tree_keeps_its_files() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let mut set = set(dir.path(), 3, 100);
    set.spec.reuse = true;
    let stop = Stop::default();
    set.create(1, &stop).unwrap();
    let mut path = PathBuf::new();
    set.path(1, &mut path);
    let inode = path.metadata().unwrap().ino();
    fs::write(&path, vec![1; 5000]).unwrap();
    set.create(1, &stop).unwrap();
    assert_eq!((path.metadata().unwrap().ino(), path.metadata().unwrap().len()), (inode, 3000));
}
