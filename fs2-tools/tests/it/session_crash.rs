//! Sessions on real ext2 volumes cut off at every point. What a file system writes comes from debugfs, run on a
//! copy of the image: the blocks that differ are the client's writes, in any order, and blocks that became free
//! its discards. Each crash state is compared with the same state of the client's writes alone:
//!
//! (a) every block in use is byte-equal; what was discarded, or free from the start, and not written since is
//!     undefined (a file's block whose write was lost holds whatever the free block held);
//! (b) `e2fsck -fn` says the same of both;
//! (c) an attach trusts only entries whose original and replica are what they say, as found and after
//!     `e2fsck -fy` and `chkfs2`;
//! (d) the files are the same, by debugfs, and with root and loop devices through the kernel's mount.
//!
//! `FS2_CRASH_STATES` sets how many states of each session are looked at, drawn by seed from all of them.
//! States that only a drive which lies about flushes can leave are counted, not judged. Needs e2fsprogs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use fs2_block::{BlockNo, BlockRange, ConnectionId, Extent, Flags, Nanos, Op, Permille, Request, RequestId};
use fs2_engine::offline::{self, CheckOptions, CreateOptions, Devices};
use fs2_engine::{
    AttachOptions, EngineConfig, Freeze, Io, IoData, IoOp, Outcome, PolicyKind, Standing, Volume,
};
use fs2_ext2::{FreeMap, Layout, TableFile};
use fs2_store::{CrashState, Discarded, EventKind, MemStore, RecordStore, Recording, Store, StoreIo};
use fs2_table::{Trust, content_hash};

use crate::mkfs2_support::*;

const ID: u64 = 99;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((z ^ z >> 27) >> 16) as usize % n
    }
}

/// How many states of each session.
fn states_wanted() -> usize {
    std::env::var("FS2_CRASH_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(40)
}

/// An engine over a recorder, one I/O at a time.
struct Run<'a> {
    store: &'a RecordStore<MemStore>,
    volume: Volume,
    /// By event: whether it is the client's.
    client: &'a mut Vec<bool>,
    /// Discards: how many events there were, and what.
    discards: &'a mut Vec<(usize, BlockRange)>,
    now: Nanos,
    next: u64,
    copies: u64,
    from_replicas: u64,
}

impl<'a> Run<'a> {
    fn attach(
        store: &'a RecordStore<MemStore>,
        client: &'a mut Vec<bool>,
        discards: &'a mut Vec<(usize, BlockRange)>,
    ) -> Run<'a> {
        let config = EngineConfig { policy: PolicyKind::Torture, paranoid: true, ..EngineConfig::default() };
        let (volume, _) =
            Volume::attach(&mut StoreIo::new(store), None, config, &AttachOptions::default()).unwrap();
        assert_eq!(*volume.standing(), Standing::Active);
        Run { store, volume, client, discards, now: Nanos(1), next: 0, copies: 0, from_replicas: 0 }
    }

    fn perform(&mut self, io: &Io, buffer: &mut [u8]) {
        let (at, len) = (io.extent.offset(), io.extent.len());
        let mut read = Vec::new();
        match (io.op, &io.data) {
            (IoOp::Read, data) => {
                read = vec![0; len as usize];
                self.store.read_at(at, &mut read).unwrap();
                if matches!(data, IoData::Client(_)) {
                    buffer.copy_from_slice(&read);
                }
            }
            (IoOp::Write { fua }, IoData::Engine(bytes)) => self.store.write_at(at, bytes, fua).unwrap(),
            (IoOp::Write { fua }, _) => self.store.write_at(at, buffer, fua).unwrap(),
            (IoOp::WriteZeroes { .. }, _) => self.store.write_zeroes(at, len, true).unwrap(),
            (IoOp::Discard, _) => self.store.discard(at, len).unwrap(),
            (IoOp::Flush, _) => self.store.flush().unwrap(),
        }
        let clients = matches!(io.data, IoData::Client(_)) || matches!(io.op, IoOp::WriteZeroes { .. });
        self.client.resize(self.store.events(), clients);
        self.now += Nanos(1000);
        self.volume.complete(self.now, io.id, Outcome::read(&read));
    }

    fn request(&mut self, op: Op, extent: Extent, buffer: &mut [u8]) {
        self.next += 1;
        let id = RequestId(self.next);
        let request = Request { id, connection: ConnectionId(1), op, extent, flags: Flags::default() };
        if op == Op::Discard {
            let blocks = extent.blocks_covered(self.volume.block_size());
            self.discards.push((self.store.events(), blocks));
        }
        self.volume.submit(self.now, request, (op == Op::Write).then_some(&*buffer));
        loop {
            let io = self.volume.poll_dispatch(self.now);
            if let Some(reply) = self.volume.poll_reply() {
                assert_eq!((reply.request, reply.result), (id, Ok(())));
                if let Some(io) = io {
                    self.perform(&io, &mut []);
                }
                return;
            }
            self.perform(&io.expect("a request alone waits for nothing"), buffer);
        }
    }

    fn read(&mut self, blocks: BlockRange) {
        let extent = blocks.extent(self.volume.block_size());
        self.request(Op::Read, extent, &mut vec![0; extent.len() as usize]);
    }

    /// Some of what it would do of its own.
    fn background(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now += Nanos::from_millis(1000);
            self.volume.handle_timeout(self.now);
            let Some(io) = self.volume.poll_dispatch(self.now) else { return };
            self.perform(&io, &mut []);
        }
    }

    fn count(&mut self) {
        self.copies = self.volume.stats().copies_written;
        self.from_replicas = self.volume.stats().reads_from_replica;
    }

    fn end(&mut self) -> bool {
        self.count();
        self.volume.begin_detach(self.now);
        while let Some(io) = self.volume.poll_dispatch(self.now) {
            self.perform(&io, &mut []);
        }
        self.volume.detached().expect("nothing is in flight").marked
    }
}

/// What the file system does to the volume next: debugfs does it to a copy.
struct Client {
    dir: PathBuf,
    /// The volume as the client believes it to be, without what the daemon writes.
    now: Vec<u8>,
    mounts: u16,
    mounted: bool,
}

impl Client {
    fn new(dir: &Path, image: &Path) -> Client {
        let now = std::fs::read(image).unwrap();
        let mounts = u16::from_le_bytes([now[1024 + 52], now[1024 + 53]]);
        Client { dir: dir.to_owned(), now, mounts, mounted: false }
    }

    fn layout(&mut self) -> Layout {
        Layout::read(&mut self.now).unwrap()
    }

    fn free(&mut self) -> BTreeSet<u32> {
        let layout = self.layout();
        let mut free = BTreeSet::new();
        for group in 0..layout.group_count() {
            let bitmap = layout.read_bitmap(&mut self.now, group).unwrap();
            let map = FreeMap::new(&layout, group, &bitmap).unwrap();
            let all = layout.group_blocks(group);
            free.extend(all.iter().map(|b| b.0));
            for run in map.used_runs() {
                free.retain(|b| !run.contains(BlockNo(*b)));
            }
        }
        free
    }

    /// The image after some debugfs commands: block by block what differs, and what became free.
    fn does(&mut self, commands: &str) -> (Vec<(u64, Vec<u8>)>, Vec<u32>) {
        let path = self.dir.join("client");
        std::fs::write(&path, &self.now).unwrap();
        std::fs::write(self.dir.join("commands"), commands).unwrap();
        let said = run(&self.dir, "debugfs", &["-w", "-f", "commands", "client"]);
        assert_eq!(said.code, 0, "{said:?}");
        let mut then = std::fs::read(&path).unwrap();
        // A mounted volume is not clean, and a mount counts.
        then[1024 + 58] = u8::from(!self.mounted);
        then[1024 + 52..1024 + 54].copy_from_slice(&self.mounts.to_le_bytes());
        self.becomes(then)
    }

    /// The blocks that differ, and those that became free.
    fn becomes(&mut self, then: Vec<u8>) -> (Vec<(u64, Vec<u8>)>, Vec<u32>) {
        let before = self.free();
        let size = self.layout().block_size().bytes() as usize;
        let differ = |(a, b): &(&[u8], &[u8])| a != b;
        let changed = then.chunks(size).zip(self.now.chunks(size)).enumerate();
        let writes: Vec<(u64, Vec<u8>)> = changed
            .filter(|(_, pair)| differ(pair))
            .map(|(i, (new, _))| ((i * size) as u64, new.to_vec()))
            .collect();
        self.now = then;
        let freed = self.free().difference(&before).copied().collect();
        (writes, freed)
    }
}

/// Writes in any order, reads between, discards at the end, sometimes a flush.
fn apply(run: &mut Run<'_>, client: &mut Client, commands: &str, rng: &mut Rng) {
    let (mut writes, freed) = client.does(commands);
    while !writes.is_empty() {
        let (at, mut bytes) = writes.swap_remove(rng.below(writes.len()));
        run.request(Op::Write, Extent::new(at, bytes.len() as u64), &mut bytes);
        if rng.below(4) == 0 {
            run.background(1 + rng.below(3));
        }
    }
    for block in freed {
        let extent = BlockNo(block).extent(run.volume.block_size());
        run.request(Op::Discard, extent, &mut []);
    }
    if rng.below(2) == 0 {
        run.request(Op::Flush, Extent::default(), &mut []);
    }
    run.background(4);
}

/// A recorded life of a volume.
struct Life {
    recording: Recording,
    client: Vec<bool>,
    discards: Vec<(usize, BlockRange)>,
    /// Blocks that were free at the beginning.
    free: BTreeSet<u32>,
    /// Events at the ends of sessions.
    ends: Vec<usize>,
    copies: u64,
    from_replicas: u64,
}

fn live(dir: &Path, options: &str, seed: u64) -> Life {
    let rng = &mut Rng(seed);
    let image = image(dir, "v", options, "8M");
    let store = MemStore::from_bytes(&std::fs::read(&image).unwrap());
    {
        let options = CreateOptions {
            space: Permille::new(100).unwrap(),
            volume_id: ID,
            now_secs: 1_700_000_000,
            checked: false,
        };
        let mut io = StoreIo::new(&store);
        offline::create(&mut Devices::new(&mut io, None), &options, &mut |_| {}).unwrap();
    }
    std::fs::write(&image, store.to_vec()).unwrap();
    let data = data_blocks(&image);
    let store = RecordStore::new(store, 1 << 30).unwrap();
    let (mut events, mut discards) = (Vec::new(), Vec::new());
    let mut client = Client::new(dir, &image);
    let free = client.free();
    let mut ends = vec![0];
    let (mut copies, mut from_replicas) = (0, 0);
    for session in 0..2 {
        let mut run = Run::attach(&store, &mut events, &mut discards);
        // The table is trusted: what the last session copied is read at once.
        let read = |run: &mut Run<'_>, rng: &mut Rng| {
            for range in &data {
                let piece = pieces(*range, 8);
                let some = piece[rng.below(piece.len())];
                run.read(some);
            }
            run.background(6);
        };
        read(&mut run, rng);
        client.mounts += 1;
        client.mounted = true;
        apply(&mut run, &mut client, "", rng);
        let path = dir.join("content").join("sub");
        let file = |n: usize| format!("{}/file{n}", path.display());
        for step in 0..4 {
            let n = session * 4 + step;
            read(&mut run, rng);
            apply(&mut run, &mut client, &format!("write {} new{n}\n", file(20 + n * 2)), rng);
            read(&mut run, rng);
            let commands = [
                format!("rm /sub/file{}\n", 5 + n * 3),
                format!("mkdir d{n}\nwrite {} d{n}/x\n", file(30 + n)),
                format!("rm new{}\n", n.saturating_sub(2)),
                format!("kill_file /sub/file{}\nrm /sub/file{}\n", 4 + n, 4 + n),
            ];
            apply(&mut run, &mut client, &commands[step], rng);
        }
        // An orderly unmount.
        run.request(Op::Flush, Extent::default(), &mut []);
        client.mounted = false;
        apply(&mut run, &mut client, "", rng);
        run.request(Op::Flush, Extent::default(), &mut []);
        let marked = run.end();
        assert!(marked, "session {session} ends with a mark");
        copies += run.copies;
        ends.push(store.events());
        from_replicas += run.from_replicas;
    }
    let recording = store.recording().unwrap();
    assert_eq!(recording.completed(), events.len());
    Life { recording, client: events, discards, free, ends, copies, from_replicas }
}

impl Life {
    /// States around the ends of sessions, where a mark may stand.
    fn states_at_ends(&self) -> Vec<(&'static str, CrashState)> {
        let r = &self.recording;
        let near = self.ends.iter().flat_map(|end| end.saturating_sub(2)..=(end + 2).min(r.completed()));
        near.flat_map(|n| [("prefix", r.prefix(n)), ("only what was flushed", r.least(n))]).collect()
    }

    /// All crash states there are lists for, by class.
    fn states(&self, seed: u64) -> Vec<(&'static str, CrashState)> {
        let r = &self.recording;
        let mut all: Vec<_> = (0..=r.completed()).map(|n| ("prefix", r.prefix(n))).collect();
        all.extend((0..=r.completed()).map(|n| ("only what was flushed", r.least(n))));
        for epoch in r.epochs() {
            all.extend(r.single_drops(epoch.end).into_iter().map(|s| ("one lost", s)));
            all.extend(r.single_keeps(epoch.end).into_iter().map(|s| ("one kept", s)));
            for k in 0..epoch.len() as u64 {
                all.push(("random writes", r.subset(epoch.end, seed + k)));
                all.push(("torn", r.torn(epoch.end, seed + k)));
            }
        }
        all
    }

    /// The same state of the client's writes alone.
    fn alone(&self, state: &CrashState) -> CrashState {
        let kept = state.kept.iter().copied().filter(|&i| self.client[i]).collect();
        CrashState { kept, torn: state.torn.filter(|t| self.client[t.0]), ..state.clone() }
    }

    /// Blocks that were free or discarded and, in this state, not written whole since.
    fn undefined(&self, state: &CrashState, size: u64) -> BTreeSet<u32> {
        let mut last: BTreeMap<u32, usize> = self.free.iter().map(|b| (*b, 0)).collect();
        for (at, blocks) in self.discards.iter().filter(|d| d.0 <= state.after) {
            last.extend(blocks.iter().map(|b| (b.0, *at)));
        }
        for &i in state.kept.iter().filter(|&&i| self.client[i] && state.torn.is_none_or(|t| t.0 != i)) {
            if let EventKind::Write { offset, bytes, .. } = &self.recording.events()[i].kind
                && bytes.len() as u64 == size
            {
                let block = (offset / size) as u32;
                if last.get(&block).is_some_and(|at| *at <= i) {
                    last.remove(&block);
                }
            }
        }
        last.into_keys().collect()
    }
}

fn e2fsck_says(dir: &Path, image: &MemStore) -> String {
    std::fs::write(dir.join("crashed"), image.to_vec()).unwrap();
    let said = run(dir, "e2fsck", &["-fn", "crashed"]);
    format!("{} {} {}", said.code, said.out, said.err)
}

/// Files and their contents, by debugfs.
fn files(dir: &Path, image: &MemStore) -> String {
    std::fs::write(dir.join("crashed"), image.to_vec()).unwrap();
    let out = dir.join("rdump");
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir(&out).unwrap();
    let said = run(dir, "debugfs", &["-R", "rdump / rdump", "crashed"]);
    let mut all = vec![said.err.lines().skip(1).collect::<Vec<_>>().join("\n")];
    walk(&out, &mut all);
    all.sort();
    all.join("\n")
}

fn walk(dir: &Path, said: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        // What the kernel cannot read either is a name without content.
        if path.is_dir() {
            walk(&path, said);
        } else {
            let content = std::fs::read(&path).map(|b| content_hash(7, &b)).ok();
            said.push(format!("{} {content:x?}", path.display()));
        }
    }
}

/// Mounted by the kernel, read-only, until dropped.
struct Mount(PathBuf);

impl Mount {
    /// Under a name of its own: a loop device may keep its file for a while.
    fn of(dir: &Path, image: &MemStore, name: &str) -> Option<Mount> {
        let file = dir.join(format!("{name}.img"));
        std::fs::write(&file, image.to_vec()).unwrap();
        let at = dir.join(name);
        std::fs::create_dir(&at).unwrap();
        let done = Command::new("mount")
            .args(["-t", "ext2", "-o", "loop,ro,errors=continue"])
            .args([&file, &at])
            .output();
        let _ = std::fs::remove_file(file);
        done.is_ok_and(|d| d.status.success()).then(|| Mount(at))
    }

    fn tree(&self) -> String {
        let mut all = Vec::new();
        walk(&self.0, &mut all);
        all.sort();
        all.join("\n").replace(&self.0.display().to_string(), "")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Others on the machine may look into new mounts for a moment.
        for _ in 0..100 {
            let done = Command::new("umount").arg(&self.0).output();
            if done.is_ok_and(|d| d.status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Entries that an attach trusts although they are not so; `None` where it is not active.
fn lies(image: &MemStore) -> Option<(usize, usize)> {
    let (config, options) = (EngineConfig::default(), AttachOptions::default());
    let (volume, _) = Volume::attach(&mut StoreIo::new(image), None, config, &options).unwrap();
    if *volume.standing() != Standing::Active {
        return None;
    }
    let size = volume.block_size().bytes() as usize;
    let hash = |block: BlockNo| {
        let mut content = vec![0; size];
        image.read_at(u64::from(block.0) * size as u64, &mut content).unwrap();
        content_hash(ID, &content)
    };
    let trusted: Vec<_> = volume.table().iter().filter(|e| e.trust == Trust::Verified).collect();
    let wrong = trusted.iter().filter(|e| hash(e.original) != e.hash || hash(e.replica) != e.hash).count();
    Some((trusted.len(), wrong))
}

/// (a): blocks in use, by the bitmaps of the client's writes alone, that differ.
fn differing(full: &MemStore, alone: &MemStore, undefined: &BTreeSet<u32>) -> Vec<u32> {
    let (full, mut alone) = (full.to_vec(), alone.to_vec());
    // A torn superblock or descriptor is no layout: then nothing says which blocks are in use but e2fsck.
    let Ok(layout) = Layout::read(&mut alone) else { return Vec::new() };
    let size = layout.block_size().bytes() as usize;
    let table: Vec<BlockRange> =
        TableFile::find(&layout, &mut alone).ok().flatten().map_or(Vec::new(), |t| t.blocks);
    let mut differ = Vec::new();
    for group in 0..layout.group_count() {
        let Ok(bitmap) = layout.read_bitmap(&mut alone, group) else { continue };
        let Ok(map) = FreeMap::new(&layout, group, &bitmap) else { continue };
        for block in map.used_runs().iter().flat_map(|r| r.iter()) {
            let at = block.0 as usize * size;
            let ours = table.iter().any(|r| r.contains(block)) || undefined.contains(&block.0);
            if !ours && full[at..at + size] != alone[at..at + size] {
                differ.push(block.0);
            }
        }
    }
    differ
}

/// What is undefined may as well be what it would be without the daemon: then nothing else differs.
fn without_undefined(full: &MemStore, alone: &MemStore, undefined: &BTreeSet<u32>, size: usize) -> MemStore {
    let image = full.snapshot();
    let mut block = vec![0; size];
    for b in undefined {
        let at = u64::from(*b) * size as u64;
        alone.read_at(at, &mut block).unwrap();
        image.write_at(at, &block, false).unwrap();
    }
    image
}

/// `e2fsck -fy`, then `chkfs2`'s part.
fn checked(dir: &Path, image: &MemStore) -> Option<MemStore> {
    std::fs::write(dir.join("crashed"), image.to_vec()).unwrap();
    let said = run(dir, "e2fsck", &["-fy", "crashed"]);
    if said.code > 1 {
        return None;
    }
    let image = MemStore::from_bytes(&std::fs::read(dir.join("crashed")).unwrap());
    let options = CheckOptions { checked: true, new_volume_id: ID, ..CheckOptions::default() };
    let mut io = StoreIo::new(&image);
    offline::check(&mut Devices::new(&mut io, None), &options, &mut |_| true, &mut |_| {}).ok()?;
    Some(image)
}

fn crash(options: &str, size: u64, seed: u64) {
    println!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let life = live(dir, options, seed);
    assert!(life.copies > 50 && life.from_replicas > 10, "{} {}", life.copies, life.from_replicas);
    assert!(life.discards.len() > 5, "{} discards", life.discards.len());
    let mut states = life.states(seed);
    let all = states.len();
    let rng = &mut Rng(!seed);
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut active, mut trusted, mut mounts, mut mended) = (0, 0, 0, 0);
    let root = nix::unistd::geteuid().is_root();
    let mut chosen = life.states_at_ends();
    for _ in 0..states_wanted().min(all) {
        chosen.push(states.swap_remove(rng.below(states.len())));
    }
    let wanted = chosen.len();
    for (n, (class, state)) in chosen.into_iter().enumerate() {
        *classes.entry(class).or_default() += 1;
        let name = format!("{class}: {state:?}");
        let full = life.recording.image(&state, Discarded::AsBefore);
        let alone = life.recording.image(&life.alone(&state), Discarded::AsBefore);
        let undefined = life.undefined(&state, size);
        assert_eq!(differing(&full, &alone, &undefined), [0u32; 0], "(a) {name}");
        let defined = without_undefined(&full, &alone, &undefined, size as usize);
        assert_eq!(e2fsck_says(dir, &defined), e2fsck_says(dir, &alone), "(b) {name}");
        if let Some((entries, wrong)) = lies(&full) {
            active += 1;
            trusted += entries;
            assert_eq!(wrong, 0, "(c) {name}");
        }
        if let Some(image) = checked(dir, &full) {
            mended += 1;
            assert!(lies(&image).is_some_and(|(_, wrong)| wrong == 0), "(c) after chkfs2: {name}");
        }
        assert_eq!(files(dir, &defined), files(dir, &alone), "(d) {name}");
        if root && n % 6 == 0 {
            let trees = [(&defined, "full"), (&alone, "alone")]
                .map(|(image, name)| Mount::of(dir, image, &format!("{name}{n}")).map(|m| m.tree()));
            mounts += usize::from(trees[0].is_some());
            assert_eq!(trees[0], trees[1], "(d) {name}");
        }
    }
    println!(
        "{options}: {wanted} of {all} states, {classes:?}; {active} active, {trusted} entries trusted, {mended} mended and \
         checked, {mounts} mounted; {} copies, {} reads from replicas",
        life.copies, life.from_replicas
    );
    assert!(active > 0 && trusted > 0 && mended > wanted / 2, "{active} {trusted} {mended}");
    if root && mounts == 0 {
        println!("skipped: the kernel mounts nothing here (mount -o loop -t ext2)");
    }
    lying_drive(&life, size, seed);
}

/// States that only a drive which lies about flushes can leave: named, and what breaks in them counted.
fn lying_drive(life: &Life, size: u64, seed: u64) {
    let rng = &mut Rng(seed ^ 0x11e5);
    let (mut looked, mut a, mut c) = (0, 0, 0);
    for _ in 0..states_wanted() {
        let after = rng.below(life.recording.completed() + 1);
        let durable = life.recording.split(after).0;
        let mut state = life.recording.prefix(after);
        state.kept.retain(|_| rng.below(3) > 0);
        if durable.iter().all(|i| state.kept.contains(i)) {
            // An honest drive could leave this.
            continue;
        }
        looked += 1;
        let full = life.recording.image(&state, Discarded::AsBefore);
        let alone = life.recording.image(&life.alone(&state), Discarded::AsBefore);
        a += usize::from(!differing(&full, &alone, &life.undefined(&state, size)).is_empty());
        c += usize::from(lies(&full).is_some_and(|(_, wrong)| wrong > 0));
    }
    println!("drive lied about flush: {looked} states; (a) fails in {a}, (c) in {c}");
    assert!(looked > states_wanted() / 2, "{looked}");
}

#[test]
fn sessions_in_blocks_of_1_kib() {
    crash("-b 1024 -I 128 -g 2048", 1024, 5);
}

#[test]
fn sessions_in_blocks_of_4_kib() {
    crash("-b 4096 -I 256", 4096, 6);
}

/// What e2fsck writes through a served volume: after a mount that did not end it freezes, of a clean volume not.
#[test]
fn a_check_of_a_served_volume() {
    for mounted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let path = image(dir, "v", "-b 4096 -I 256", "8M");
        ok(dir, MKFS2, &["v"]);
        let store = RecordStore::new(MemStore::from_bytes(&std::fs::read(&path).unwrap()), 1 << 30).unwrap();
        let (mut events, mut discards) = (Vec::new(), Vec::new());
        let mut served = Run::attach(&store, &mut events, &mut discards);
        let mut client = Client::new(dir, &path);
        (client.mounted, client.mounts) = (mounted, client.mounts + 1);
        apply(&mut served, &mut client, "", &mut Rng(1));
        std::fs::write(dir.join("served"), &client.now).unwrap();
        let said = run(dir, "e2fsck", &["-fy", "served"]);
        assert!(said.code <= 1, "{said:?}");
        let (writes, _) = client.becomes(std::fs::read(dir.join("served")).unwrap());
        assert!(!writes.is_empty(), "it writes the superblock");
        for (at, mut bytes) in writes {
            served.request(Op::Write, Extent::new(at, bytes.len() as u64), &mut bytes);
        }
        let expected = if mounted { Standing::Frozen(Freeze::Checked) } else { Standing::Active };
        assert_eq!(*served.volume.standing(), expected);
    }
}

/// The oracles can fail: a write over a file's block is seen, and one over an original that an entry speaks of.
#[test]
fn the_oracles_can_fail() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let life = live(dir, "-b 1024 -I 128", 7);
    // A copy, by its write: moved over a block in use.
    let last = life.recording.completed();
    let state = life.recording.prefix(last);
    let (full, alone) = (
        life.recording.image(&state, Discarded::AsBefore),
        life.recording.image(&life.alone(&state), Discarded::AsBefore),
    );
    assert_eq!(differing(&full, &alone, &BTreeSet::new()), [0u32; 0]);
    let used = {
        let path = dir.join("after");
        std::fs::write(&path, alone.to_vec()).unwrap();
        data_blocks(&path)[0].first()
    };
    full.write_at(u64::from(used.0) * 1024, &[9; 1024], false).unwrap();
    assert_eq!(differing(&full, &alone, &BTreeSet::new()), [used.0]);
    assert_ne!(files(dir, &full), files(dir, &alone));
    // An original that a verified entry speaks of.
    let found = life.recording.image(&state, Discarded::AsBefore);
    let (trusted, wrong) = lies(&found).expect("the second session ended in order");
    assert!(trusted > 0 && wrong == 0);
    let (volume, _) =
        Volume::attach(&mut StoreIo::new(&found), None, EngineConfig::default(), &AttachOptions::default())
            .unwrap();
    let entry = volume.table().iter().next().unwrap();
    found.write_at(u64::from(entry.original.0) * 1024, &[9; 1024], false).unwrap();
    assert!(lies(&found).is_some_and(|(_, wrong)| wrong > 0));
}
