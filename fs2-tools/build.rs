//! A digest of the sources that the figures of `fs2-replay` come from, as `FS2_REPLAY_SOURCES`: `sweep` takes no result for current that
//! another build of the same version made. Of sources and not of the program, for the same of them are built on several machines.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Beside this file: the replay tool, and what it reckons with. The lock file says which crates of others.
const SOURCES: [&str; 10] = [
    "../Cargo.lock",
    "../crates/fs2-block/src",
    "../crates/fs2-disk/profiles",
    "../crates/fs2-disk/src",
    "../crates/fs2-engine/src",
    "../crates/fs2-ext2/src",
    "../crates/fs2-sim/src",
    "../crates/fs2-table/src",
    "../crates/fs2-trace/src",
    "src/replay",
];

/// FNV-1a of 128 bits (Fowler, Noll and Vo): a few lines, and the same everywhere. Nobody forges a build of their own.
struct Digest(u128);

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}

fn files(at: &Path, out: &mut Vec<PathBuf>) -> io::Result<()> {
    if !at.is_dir() {
        out.push(at.to_owned());
        return Ok(());
    }
    fs::read_dir(at)?.try_for_each(|entry| files(&entry?.path(), out))
}

fn main() -> io::Result<()> {
    let mut digest = Digest(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
    println!("cargo::rerun-if-changed=build.rs");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        let mut all = Vec::new();
        files(Path::new(source), &mut all).map_err(|e| {
            io::Error::new(e.kind(), format!("{source}: {e}; fs2-tools is built where the rest of it lies"))
        })?;
        all.sort();
        for path in all {
            let bytes = fs::read(&path)?;
            digest.add(path.as_os_str().as_encoded_bytes());
            digest.add(&(bytes.len() as u64).to_le_bytes());
            digest.add(&bytes);
        }
    }
    println!("cargo::rustc-env=FS2_REPLAY_SOURCES={:032x}", digest.0);
    Ok(())
}
