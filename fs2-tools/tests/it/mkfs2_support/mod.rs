//! What the tests of mkfs2 and chkfs2 share: images made by mke2fs, the two programs, and a session of
//! the engine driven by a loop over the image, without a daemon. Needs e2fsprogs, no root.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fs2_block::{BlockNo, BlockRange, ConnectionId, Extent, Flags, Nanos, Op, ReadAt, Request, RequestId};
use fs2_engine::{
    AttachError, AttachOptions, AttachReport, DetachReport, EngineConfig, Io, IoData, IoOp, Outcome,
    PolicyKind, Standing, Target, Volume,
};
use fs2_ext2::{FreeMap, Layout};
use fs2_store::{Direct, FileStore, Lock, OpenOptions, Store, StoreIo};

pub(crate) const MKFS2: &str = env!("CARGO_BIN_EXE_mkfs2");
pub(crate) const CHKFS2: &str = env!("CARGO_BIN_EXE_chkfs2");

/// Code, standard output, standard error.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    fn of(output: Output) -> Said {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Runs a program in a directory with a runtime directory of its own there, which is kept where it was there before: else it is
/// another boot, and nobody knows who wrote since.
pub(crate) fn run(dir: &Path, program: &str, args: &[&str]) -> Said {
    run_os(dir, program, &args.iter().map(OsStr::new).collect::<Vec<_>>())
}

/// The same with names that need not be UTF-8.
pub(crate) fn run_os(dir: &Path, program: &str, args: &[&OsStr]) -> Said {
    let runtime = dir.join("run");
    let kept = runtime.exists();
    let output = Command::new(program)
        .args(args)
        .current_dir(dir)
        .env("FS2_RUNTIME_DIR", &runtime)
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::null())
        .output();
    if !kept {
        let _ = std::fs::remove_dir_all(runtime);
    }
    Said::of(output.unwrap_or_else(|e| panic!("{program}: {e}; these tests need e2fsprogs")))
}

/// Runs a program that must end with 0.
pub(crate) fn ok(dir: &Path, program: &str, args: &[&str]) -> Said {
    let said = run(dir, program, args);
    assert_eq!(said.code, 0, "{program} {args:?}: {said:?}");
    said
}

/// Runs one where a script is found under the name of e2fsck, which has the real one as $E2FSCK.
pub(crate) fn run_instead_of_e2fsck(dir: &Path, script: &str, program: &str, args: &[&str]) -> Said {
    use std::os::unix::fs::PermissionsExt;
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let real = ["/usr/sbin/e2fsck", "/sbin/e2fsck"].iter().find(|p| Path::new(p).exists());
    let real = real.expect("e2fsprogs is installed");
    let stand_in = bin.join("e2fsck");
    std::fs::write(&stand_in, format!("#!/bin/sh\nE2FSCK={real}\n{script}\n")).unwrap();
    std::fs::set_permissions(&stand_in, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    run(dir, "env", &[&[&format!("PATH={path}"), program], args].concat())
}

/// Some files, one of them in several pieces.
pub(crate) fn content(dir: &Path) -> PathBuf {
    let root = dir.join("content");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    let mut state = 1u64;
    let mut noise = |n: usize| -> Vec<u8> {
        (0..n)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect()
    };
    std::fs::write(root.join("large"), noise(900_000)).unwrap();
    for i in 0..40 {
        std::fs::write(root.join(format!("sub/file{i}")), noise(i * 331)).unwrap();
    }
    root
}

/// An ext2 image with some files on which e2fsck has nothing to do.
pub(crate) fn image(dir: &Path, name: &str, options: &str, size: &str) -> PathBuf {
    let root = content(dir);
    let mut args: Vec<&str> = vec!["-q", "-F", "-t", "ext2", "-U", "0123abcd-4567-89ab-cdef-0123456789ab"];
    if !options.contains("-O") {
        args.extend(["-O", "none,ext_attr,resize_inode,dir_index,filetype,sparse_super,large_file"]);
    }
    args.extend(options.split_whitespace());
    args.extend(["-d", root.to_str().unwrap(), name, size]);
    ok(dir, "mke2fs", &args);
    let said = run(dir, "e2fsck", &["-fp", name]);
    assert!(said.code <= 1, "{said:?}");
    dir.join(name)
}

pub(crate) fn e2fsck_clean(dir: &Path, name: &str) {
    let said = run(dir, "e2fsck", &["-fn", name]);
    assert_eq!(said.code, 0, "{said:?}");
}

/// dumpe2fs without the lines that hold a time.
pub(crate) fn dump(dir: &Path, name: &str) -> String {
    let said = ok(dir, "dumpe2fs", &[name]).out;
    let timed = ["Last mount time", "Last write time", "Last checked", "Lifetime writes", "Mount count"];
    said.lines().filter(|l| !timed.iter().any(|t| l.starts_with(t))).collect::<Vec<_>>().join("\n")
}

pub(crate) fn hash(path: &Path) -> u64 {
    fs2_table::content_hash(7, &std::fs::read(path).unwrap())
}

/// Every block the bitmaps call used, by number: its content's hash. Block 0 and 1 KiB superblocks
/// included, time stamps of the superblock zeroed.
pub(crate) fn used_blocks(image: &Path) -> BTreeMap<u32, u64> {
    let mut bytes = std::fs::read(image).unwrap();
    let layout = Layout::read(&mut bytes).unwrap();
    // s_mtime, s_wtime, s_lastcheck.
    for at in [44, 48, 64] {
        bytes[1024 + at..1024 + at + 4].fill(0);
    }
    let size = layout.block_size().bytes() as usize;
    let mut used = BTreeMap::new();
    for group in 0..layout.group_count() {
        let bitmap = layout.read_bitmap(&mut bytes, group).unwrap();
        let map = FreeMap::new(&layout, group, &bitmap).unwrap();
        for block in map.used_runs().iter().flat_map(|r| r.iter()) {
            let at = block.0 as usize * size;
            used.insert(block.0, fs2_table::content_hash(7, &bytes[at..at + size]));
        }
    }
    used
}

/// Blocks of the volume that hold files' data: used, not metadata, not the table's.
pub(crate) fn data_blocks(image: &Path) -> Vec<BlockRange> {
    let mut bytes = std::fs::read(image).unwrap();
    let layout = Layout::read(&mut bytes).unwrap();
    let inode = fs2_ext2::lookup(&layout, &mut bytes, "large").unwrap();
    let map = fs2_ext2::BlockMap::read(&layout, &mut bytes, &inode).unwrap();
    map.data.iter().map(|(_, range)| *range).collect()
}

fn open(path: &Path) -> FileStore {
    // Another test's child has our descriptors, and so our locks, until it calls exec.
    let lock_wait = Some(std::time::Duration::from_secs(10));
    let options = OpenOptions { write: true, direct: Direct::Off, lock: Lock::Exclusive, lock_wait };
    FileStore::open(path, options).unwrap()
}

/// A session: an engine, its backings, and the time it is told.
pub(crate) struct Session {
    pub(crate) volume: Volume,
    pub(crate) report: AttachReport,
    store: FileStore,
    table: Option<FileStore>,
    now: Nanos,
    next: u64,
}

impl Session {
    /// Attaches with the policy that copies whatever is read.
    pub(crate) fn start(image: &Path, table: Option<&Path>) -> Session {
        let config = EngineConfig { policy: PolicyKind::Torture, paranoid: true, ..EngineConfig::default() };
        Session::with(image, table, config)
    }

    pub(crate) fn with(image: &Path, table: Option<&Path>, config: EngineConfig) -> Session {
        Session::attach(image, table, config).unwrap()
    }

    pub(crate) fn attach(
        image: &Path,
        table: Option<&Path>,
        config: EngineConfig,
    ) -> Result<Session, AttachError> {
        let (store, table) = (open(image), table.map(open));
        let (volume, report) = {
            let mut dev = StoreIo::new(&store);
            let mut table = table.as_ref().map(|t| StoreIo::new(t));
            let table = table.as_mut().map(|t| t as &mut dyn ReadAt);
            Volume::attach(&mut dev, table, config, &AttachOptions::default())?
        };
        Ok(Session { volume, report, store, table, now: Nanos::from_millis(1), next: 0 })
    }

    pub(crate) fn is_active(&self) -> bool {
        *self.volume.standing() == Standing::Active
    }

    fn perform(&self, io: &Io, buffer: &mut [u8]) -> Vec<u8> {
        let store = match io.target {
            Target::Volume => &self.store,
            Target::Table => self.table.as_ref().unwrap(),
        };
        let (at, len) = (io.extent.offset(), io.extent.len());
        let mut read = Vec::new();
        match (io.op, &io.data) {
            (IoOp::Read, data) => {
                read = vec![0; len as usize];
                store.read_at(at, &mut read).unwrap();
                if matches!(data, IoData::Client(_)) {
                    buffer.copy_from_slice(&read);
                }
            }
            (IoOp::Write { .. }, IoData::Engine(bytes)) => store.write_at(at, bytes, false).unwrap(),
            (IoOp::Write { .. }, _) => store.write_at(at, buffer, false).unwrap(),
            (IoOp::WriteZeroes { .. }, _) => store.write_zeroes(at, len, true).unwrap(),
            (IoOp::Discard, _) => store.discard(at, len).unwrap(),
            (IoOp::Flush, _) => store.flush().unwrap(),
        }
        read
    }

    fn drain(&mut self) {
        while let Some(io) = self.volume.poll_dispatch(self.now) {
            self.step(&io, &mut []);
        }
    }

    fn step(&mut self, io: &Io, buffer: &mut [u8]) {
        let read = self.perform(io, buffer);
        self.now += Nanos(1000);
        self.volume.complete(self.now, io.id, Outcome { result: Ok(()), data: &read });
    }

    fn request(&mut self, op: Op, extent: Extent, buffer: &mut [u8]) {
        self.next += 1;
        let id = RequestId(self.next);
        let request = Request { id, connection: ConnectionId(1), op, extent, flags: Flags::default() };
        let payload = (op == Op::Write).then(|| buffer.to_vec());
        self.volume.submit(self.now, request, payload.as_deref());
        // No further than the answer: what the engine would do next in the background waits for `idle`.
        loop {
            if let Some(reply) = self.volume.poll_reply() {
                assert_eq!((reply.request, reply.result), (id, Ok(())));
                return;
            }
            let io = self.volume.poll_dispatch(self.now).expect("a request alone waits for nothing");
            self.step(&io, buffer);
        }
    }

    pub(crate) fn read(&mut self, blocks: BlockRange) -> Vec<u8> {
        let extent = blocks.extent(self.volume.block_size());
        let mut buffer = vec![0; extent.len() as usize];
        self.request(Op::Read, extent, &mut buffer);
        buffer
    }

    pub(crate) fn write(&mut self, block: BlockNo, byte: u8) {
        let extent = block.extent(self.volume.block_size());
        self.request(Op::Write, extent, &mut vec![byte; extent.len() as usize]);
    }

    /// Writes bytes anywhere.
    pub(crate) fn write_bytes(&mut self, at: u64, bytes: &[u8]) {
        self.request(Op::Write, Extent::new(at, bytes.len() as u64), &mut bytes.to_vec());
    }

    /// Lets time pass until nothing is left to do in the background.
    pub(crate) fn idle(&mut self) {
        for _ in 0..10_000 {
            self.now += Nanos::from_millis(1000);
            self.volume.handle_timeout(self.now);
            self.drain();
            if self.volume.poll_timeout().is_none() {
                return;
            }
        }
        panic!("the volume is never idle");
    }

    /// Lets a little time pass.
    pub(crate) fn rest(&mut self, ms: u64) {
        self.now += Nanos::from_millis(ms);
        self.volume.handle_timeout(self.now);
        self.drain();
    }

    /// Reads some blocks and lets them be copied: what replicas there are in the end.
    pub(crate) fn copy(&mut self, blocks: &[BlockRange]) -> Vec<fs2_table::Replica> {
        for range in blocks {
            for piece in pieces(*range, 8) {
                self.read(piece);
            }
        }
        self.idle();
        self.volume.table().iter().collect()
    }

    /// An orderly end.
    pub(crate) fn end(mut self) -> DetachReport {
        self.volume.begin_detach(self.now);
        self.drain();
        self.volume.detached().expect("nothing is in flight")
    }

    /// kill -9.
    pub(crate) fn kill(self) {}
}

/// `range` cut into pieces of at most `n` blocks.
pub(crate) fn pieces(range: BlockRange, n: u32) -> Vec<BlockRange> {
    (range.start()..range.end())
        .step_by(n as usize)
        .map(|start| BlockRange::new(start, range.end().min(start + n)))
        .collect()
}
