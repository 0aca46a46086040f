//! Random operations on a mount, against a plain vector.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fs2_block::Op;
use fs2_store::AlignedBuf;
use fs2d::wakeups::Wakeups;
use nix::fcntl::{FallocateFlags, fallocate};

use super::{MemService, Rig};

const MIB: usize = 1 << 20;

pub(crate) fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

pub(crate) const RANDOM_THREADS: usize = 4;
pub(crate) const RANDOM_PART: usize = 4 * MIB;

/// Threads tell of requests when they sleep, at the latest after the last.
pub(crate) fn turns_are_told_of_by(rig: impl FnOnce(Arc<MemService>) -> Rig) {
    const REQUESTS: u64 = 100;
    let service = MemService::new(MIB);
    let turns = service.turns.get_or_init(|| Wakeups::at("/dev/null".as_ref()));
    let rig = rig(service.clone());
    let file = open(&rig.file(), libc::O_DIRECT);
    let (before, _) = turns.told();
    let mut page = AlignedBuf::zeroed(4096);
    for n in 0..REQUESTS {
        file.read_exact_at(&mut page, n * 4096).unwrap();
    }
    assert_eq!(rig.service.seen(Op::Read), REQUESTS);
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        let (sleeps, requests) = turns.told();
        assert!(requests < 2 * REQUESTS, "{requests}");
        if requests >= REQUESTS {
            assert!(sleeps > before);
            return;
        }
        assert!(Instant::now() < limit, "{requests} requests in {} sleeps", sleeps - before);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Several threads, each with a stretch of its own, through direct and plain descriptors at once; unmounts.
pub(crate) fn random_operations_on(rig: Rig) {
    const THREADS: usize = RANDOM_THREADS;
    const PART: usize = RANDOM_PART;
    let seed = std::env::var("FS2_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_120u64);
    println!("seed {seed}");
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let path = rig.file();
                scope.spawn(move || random_operations(&path, (t * PART) as u64, PART, seed ^ (t as u64 + 1)))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(rig.service.bytes() == models.concat(), "the volume is not what the threads wrote");
    assert_eq!(rig.service.clients(), 1, "one connection for the life of the mount");
    assert!([Op::Read, Op::Write, Op::Punch, Op::WriteZeroes].iter().all(|&op| rig.service.seen(op) > 50));
    rig.server.unmount().unwrap();
}

fn random_operations(path: &Path, base: u64, len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize) % below
    };
    let mut model = vec![0u8; len];
    let files = [open(path, libc::O_DIRECT), open(path, 0)];
    for step in 0..1500 {
        let direct = random(2) == 0;
        let file = &files[usize::from(!direct)];
        // Direct I/O in sectors; the largest spans more than one request.
        let unit = if direct { 512 } else { 1 };
        let most = if random(20) == 0 { 2 * MIB } else { 64 << 10 };
        let offset = random(len / unit) * unit;
        let size = ((1 + random(most / unit)) * unit).min(len - offset);
        let at = base + offset as u64;
        let part = offset..offset + size;
        match random(10) {
            0..4 => {
                let mut payload = AlignedBuf::zeroed(size);
                let tag = step as u8;
                payload.iter_mut().enumerate().for_each(|(i, b)| *b = (i as u8).wrapping_mul(31) ^ tag);
                file.write_all_at(&payload, at).unwrap();
                model[part].copy_from_slice(&payload);
            }
            4..8 => {
                let mut room = AlignedBuf::zeroed(size);
                file.read_exact_at(&mut room, at).unwrap();
                assert!(room[..] == model[part.clone()], "step {step}: read of {part:?} differs");
            }
            kind => {
                let flags = if kind == 8 {
                    FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE
                } else {
                    FallocateFlags::FALLOC_FL_ZERO_RANGE
                };
                fallocate(file, flags, at as i64, size as i64).unwrap();
                model[part].fill(0);
            }
        }
    }
    model
}
