//! mkfs2, undo and chkfs2's writes cut off at every point: every prefix of what they write, every single
//! write lost or alone between two flushes, and random and torn subsets. After each e2fsck -p must end
//! with 0 or 1, no file may have changed, and an engine may trust only what is true.
//!
//! Not covered: a table that lives apart (its writes are ordered by the same code), and media that lose
//! what was flushed. Needs e2fsprogs, no root.

use std::path::{Path, PathBuf};

use fs2_block::Permille;
use fs2_engine::offline::{self, CheckOptions, CreateOptions, Devices};
use fs2_engine::{AttachOptions, EngineConfig, Standing, Volume};
use fs2_store::{CrashState, Discarded, MemStore, RecordStore, Recording, Store, StoreIo};
use fs2_table::{Trust, content_hash};

use crate::mkfs2_support::*;

const SEED: u64 = 0x0f52;
const ID: u64 = 99;

/// Records what `work` does to an image.
fn record(image: &Path, work: impl FnOnce(&mut Devices<'_>)) -> (Recording, MemStore) {
    let store = MemStore::from_bytes(&std::fs::read(image).unwrap());
    let store = RecordStore::new(store, 1 << 30).unwrap();
    {
        let mut io = StoreIo::new(&store);
        work(&mut Devices::new(&mut io, None));
    }
    (store.recording().unwrap(), store.inner().snapshot())
}

/// Crash states to look at, with a name to find each by.
fn states(recording: &Recording, seed: u64) -> Vec<(String, CrashState)> {
    println!("seed {seed:#x}");
    let mut all = Vec::new();
    let mut name = |kind: &str, state: CrashState| all.push((format!("{kind}: {state:?}"), state));
    for after in 0..=recording.completed() {
        name("prefix", recording.prefix(after));
    }
    // At the end of each epoch everything in it is open.
    for epoch in recording.epochs() {
        for state in recording.single_drops(epoch.end) {
            name("one lost", state);
        }
        for state in recording.single_keeps(epoch.end) {
            name("one alone", state);
        }
        for k in 0..6 {
            name("subset", recording.subset(epoch.end, seed + k));
            name("torn", recording.torn(epoch.end, seed + k));
        }
    }
    all.dedup_by(|a, b| a.1 == b.1);
    all
}

/// What an attach trusts although it is not so; `None` where it is not active.
fn lies(store: &MemStore) -> Option<usize> {
    let config = EngineConfig::default();
    let options = AttachOptions::default();
    let (volume, _) = Volume::attach(&mut StoreIo::new(store), None, config, &options).unwrap();
    if *volume.standing() != Standing::Active {
        return None;
    }
    let size = volume.block_size().bytes() as usize;
    let hash = |block: fs2_block::BlockNo| {
        let mut content = vec![0; size];
        store.read_at(u64::from(block.0) * size as u64, &mut content).unwrap();
        content_hash(ID, &content)
    };
    let wrong = |e: &fs2_table::Replica| hash(e.original) != e.hash || hash(e.replica) != e.hash;
    let trusted = volume.table().iter().filter(|e| e.trust == Trust::Verified);
    Some(trusted.filter(wrong).count())
}

/// All files' names and contents, by debugfs.
fn files(dir: &Path, name: &str) -> String {
    let out = dir.join("rdump");
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir(&out).unwrap();
    ok(dir, "debugfs", &["-R", "rdump / rdump", name]);
    let mut said = Vec::new();
    walk(&out, &mut said);
    said.sort();
    said.join("\n")
}

fn walk(dir: &Path, said: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, said);
        } else {
            said.push(format!("{} {:016x}", path.display(), hash(&path)));
        }
    }
}

fn small(dir: &Path, options: &str) -> PathBuf {
    image(dir, "v", options, "8M")
}

fn made(path: &Path) {
    let (_, made) = record(path, |devices| {
        offline::create(devices, &options(), &mut |_| {}).unwrap();
    });
    std::fs::write(path, made.to_vec()).unwrap();
}

fn options() -> CreateOptions {
    CreateOptions {
        space: Permille::new(50).unwrap(),
        volume_id: ID,
        now_secs: 1_700_000_000,
        checked: false,
    }
}

/// e2fsck -p ends well, and the files are what they were.
fn judge(dir: &Path, store: &MemStore, before: &str, name: &str) {
    std::fs::write(dir.join("crashed"), store.to_vec()).unwrap();
    let said = run(dir, "e2fsck", &["-p", "crashed"]);
    assert!((0..=1).contains(&said.code), "{name}: {said:?}");
    assert_eq!(files(dir, "crashed"), before, "{name}");
    e2fsck_clean(dir, "crashed");
    let mended = MemStore::from_bytes(&std::fs::read(dir.join("crashed")).unwrap());
    assert!(lies(&mended).is_none_or(|n| n == 0), "{name}");
}

/// What mkfs2 says to who calls it once more leads to a volume that is active.
fn gone_on(dir: &Path, name: &str) {
    let said = run(dir, MKFS2, &["crashed"]);
    if said.code != 0 {
        assert!(said.err.contains("if mkfs2 was interrupted: chkfs2 -f -p crashed;"), "{name}: {said:?}");
        let said = run(dir, CHKFS2, &["-f", "-p", "crashed"]);
        assert!((0..=1).contains(&said.code), "{name}: {said:?}");
    }
    let done = MemStore::from_bytes(&std::fs::read(dir.join("crashed")).unwrap());
    assert_eq!(lies(&done), Some(0), "{name}");
}

#[test]
fn mkfs2_cut_off() {
    for options_of_image in ["-b 1024 -I 128", "-b 4096 -I 256"] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let path = small(dir, options_of_image);
        let before = files(dir, "v");
        let (recording, end) = record(&path, |devices| {
            offline::create(devices, &options(), &mut |_| {}).unwrap();
        });
        assert_eq!(lies(&end), Some(0));
        let mut active = 0;
        for (name, state) in states(&recording, SEED) {
            let store = recording.image(&state, Discarded::AsBefore);
            active += usize::from(lies(&store).is_some());
            judge(dir, &store, &before, &name);
            gone_on(dir, &name);
        }
        assert!(active > 0, "the last states are active");
    }
}

#[test]
fn undo_cut_off_and_called_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = small(dir, "-b 1024 -I 128");
    let (plain, before) = (dump(dir, "v"), files(dir, "v"));
    made(&path);
    let mut session = Session::start(&path, None);
    let replicas = session.copy(&data_blocks(&path));
    assert!(replicas.len() > 100);
    assert!(session.end().marked);
    let (recording, _) = record(&path, |devices| {
        offline::undo(devices, &Default::default(), &mut |_| {}).unwrap();
    });
    let mut again = 0;
    for (name, state) in states(&recording, SEED) {
        let store = recording.image(&state, Discarded::AsBefore);
        assert!(lies(&store).is_none_or(|n| n == 0), "{name}");
        judge(dir, &store, &before, &name);
        let said = run(dir, MKFS2, &["--undo", "crashed"]);
        let there_was_none = said.code == 1 && said.err.contains("inode 5 is empty");
        assert!(said.code == 0 || there_was_none, "{name}: {said:?}");
        again += usize::from(said.code == 0);
        assert_eq!(dump(dir, "crashed"), plain, "{name}");
    }
    assert!(again > 0);
}

#[test]
fn chkfs2_cut_off_trusts_nothing_stale() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = small(dir, "-b 1024 -I 128");
    made(&path);
    let mut session = Session::start(&path, None);
    let replicas = session.copy(&data_blocks(&path));
    assert!(session.end().marked);
    // One entry of every page is stale, and its page says that it is verified.
    let mut session = Session::start(&path, None);
    for r in replicas.iter().step_by(100) {
        session.write(r.original, 0xA5);
    }
    session.kill();
    let stale = replicas.iter().step_by(100).count();
    let options = CheckOptions { checked: true, new_volume_id: ID, ..CheckOptions::default() };
    let (recording, end) = record(&path, |devices| {
        let report = offline::check(devices, &options, &mut |_| true, &mut |_| {}).unwrap();
        assert!(report.written && report.originals_differ == stale as u64, "{report:?}");
    });
    assert_eq!(lies(&end), Some(0));
    let active_of = |states: Vec<(String, CrashState)>, recording: &Recording| {
        let mut active = (0, 0);
        for (_, state) in states {
            let found = lies(&recording.image(&state, Discarded::AsBefore));
            active.0 += usize::from(found.is_some());
            active.1 += usize::from(found.is_some_and(|n| n > 0));
        }
        active
    };
    let (active, lying) = active_of(states(&recording, SEED), &recording);
    assert!(active > 0 && lying == 0, "{lying} of {active} states lie");

    // The judge can fail: without flushes the mark may come before the pages.
    let unordered = {
        let store = MemStore::from_bytes(&std::fs::read(&path).unwrap());
        let store = RecordStore::new(store, 1 << 30).unwrap();
        let unflushed = NoFlush(&store);
        let mut io = StoreIo::new(&unflushed);
        offline::check(&mut Devices::new(&mut io, None), &options, &mut |_| true, &mut |_| {}).unwrap();
        store.recording().unwrap()
    };
    let (_, lying) = active_of(states(&unordered, SEED), &unordered);
    assert!(lying > 0, "flushes make no difference");
}

/// Swallows flushes.
struct NoFlush<'a>(&'a RecordStore<MemStore>);

impl Store for NoFlush<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> std::io::Result<()> {
        self.0.write_at(offset, buf, fua)
    }
    fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool) -> std::io::Result<()> {
        self.0.write_zeroes(offset, len, no_hole)
    }
    fn discard(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.0.discard(offset, len)
    }
    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}
