//! Files on a real disk, and random operations that every store must agree on with a plain vector.

use std::path::{Path, PathBuf};

use fs2_store::{Direct, Lock, OpenOptions, Store};
use proptest::prelude::*;

pub(crate) const RW: OpenOptions =
    OpenOptions { write: true, direct: Direct::Auto, lock: Lock::Exclusive, lock_wait: None };

/// For opens that must succeed: a program just started by another test holds our descriptors, and so
/// our claims, for the moment between fork and exec.
pub(crate) const PATIENT: OpenOptions =
    OpenOptions { lock_wait: Some(std::time::Duration::from_secs(60)), ..RW };

/// A directory that ends with its owner, in the build directory: a real file system, where the system's
/// temporary directory may be memory.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn file_of(dir: &Path, name: &str, size: u64) -> PathBuf {
    let path = dir.join(name);
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    path
}

/// One operation; offsets and lengths in bytes.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write { offset: u64, len: u64, seed: u8, fua: bool },
    Zero { offset: u64, len: u64, no_hole: bool },
    Discard { offset: u64, len: u64 },
    Read { offset: u64, len: u64, misplace: usize },
    Flush,
}

/// Steps within `size`; about half of them on 512-byte boundaries, lengths up to `longest`.
pub(crate) fn steps(size: u64, longest: u64, count: usize) -> impl Strategy<Value = Vec<Step>> {
    let range = (0..size, 0..longest, prop_oneof![Just(1u64), Just(512), Just(4096)]).prop_map(
        move |(offset, len, unit)| {
            let offset = offset / unit * unit;
            (offset, (len.div_ceil(unit) * unit).min(size - offset))
        },
    );
    let step = prop_oneof![
        5 => (range.clone(), any::<u8>(), prop::bool::weighted(0.1))
            .prop_map(|((offset, len), seed, fua)| Step::Write { offset, len, seed, fua }),
        2 => (range.clone(), any::<bool>())
            .prop_map(|((offset, len), no_hole)| Step::Zero { offset, len, no_hole }),
        1 => range.clone().prop_map(|(offset, len)| Step::Discard { offset, len }),
        3 => (range, 0usize..3).prop_map(|((offset, len), misplace)| Step::Read { offset, len, misplace }),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..count)
}

/// Bytes that differ by seed and place and are never zero.
pub(crate) fn pattern(seed: u8, len: u64) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ u64::from(seed)) as u8 | 1).collect()
}

/// Runs the steps on a store and a vector and compares every read and the end. A discarded byte may read
/// as zero or as before; what the store says becomes the model's.
pub(crate) fn agree(store: &dyn Store, model: &mut Vec<u8>, steps: &[Step]) {
    assert_eq!(store.size_bytes(), model.len() as u64);
    for step in steps {
        match *step {
            Step::Write { offset, len, seed, fua } => {
                let bytes = pattern(seed, len);
                store.write_at(offset, &bytes, fua).unwrap();
                model[offset as usize..][..len as usize].copy_from_slice(&bytes);
            }
            Step::Zero { offset, len, no_hole } => {
                store.write_zeroes(offset, len, no_hole).unwrap();
                model[offset as usize..][..len as usize].fill(0);
            }
            Step::Discard { offset, len } => {
                store.discard(offset, len).unwrap();
                let mut now = vec![0; len as usize];
                store.read_at(offset, &mut now).unwrap();
                let old = &mut model[offset as usize..][..len as usize];
                assert!(old.iter().zip(&now).all(|(o, n)| n == o || *n == 0), "after {step:?}");
                old.copy_from_slice(&now);
            }
            Step::Read { offset, len, misplace } => {
                let mut room = fs2_store::AlignedBuf::zeroed(len as usize + misplace);
                let buf = &mut room[misplace..];
                store.read_at(offset, buf).unwrap();
                assert!(buf == &model[offset as usize..][..len as usize], "at {step:?}");
            }
            Step::Flush => store.flush().unwrap(),
        }
    }
    let mut all = vec![0; model.len()];
    store.read_at(0, &mut all).unwrap();
    assert!(all == *model, "at the end");
    assert_stretches(store, model);
}

/// Stretches cover the store, and every hole reads as zero.
pub(crate) fn assert_stretches(store: &dyn Store, model: &[u8]) {
    let size = model.len() as u64;
    let mut at = 0u64;
    while at < size {
        let got = store.stretches(at, size - at, 3).unwrap();
        assert!(!got.is_empty() && got.len() <= 3);
        for s in got {
            assert!(s.len > 0 && at + s.len <= size);
            if s.hole {
                assert!(model[at as usize..(at + s.len) as usize].iter().all(|&b| b == 0));
            }
            at += s.len;
        }
    }
}
