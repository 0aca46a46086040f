//! Images, made and judged by e2fsprogs.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::Hasher;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::{Done, run};

/// A sparse image of `bytes` with `mke2fs -q -F` and `args`.
///
/// # Panics
/// Where mke2fs says no.
#[track_caller]
pub fn mke2fs(image: &Path, bytes: u64, args: &[&str]) {
    File::create(image).and_then(|f| f.set_len(bytes)).expect("an image");
    run(Command::new("mke2fs").args(["-q", "-F"]).args(args).arg(image)).ended(0);
}

/// `e2fsck -fn`, which must end 0 and have nothing to say.
#[track_caller]
pub fn e2fsck_clean(image: &Path) {
    run(Command::new("e2fsck").args(["-f", "-n"]).arg(image)).ended(0);
}

/// `debugfs`, with leave to write where `write`.
#[track_caller]
pub fn debugfs(image: &Path, write: bool, request: &str) -> Done {
    let mut command = Command::new("debugfs");
    if write {
        command.arg("-w");
    }
    run(command.args(["-R", request]).arg(image)).ended(0)
}

/// A digest of bytes; for telling equal from different in one run, not for keeping.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// A digest of a file's length and bytes; holes are not read.
///
/// # Panics
/// Where it cannot be read.
pub fn file_digest(path: &Path) -> u64 {
    let mut file = File::open(path).expect("a file to digest");
    let len = file.metadata().expect("its length").len();
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(len);
    let mut buffer = vec![0; 1 << 20];
    for range in data_ranges(&mut file, len) {
        for at in range.clone().step_by(buffer.len()) {
            let n = (range.end - at).min(buffer.len() as u64) as usize;
            file.read_exact_at(&mut buffer[..n], at).expect("reading it");
            // A hole may be written with zeroes and stay what it was.
            for (i, sector) in buffer[..n].chunks(512).enumerate().filter(|(_, s)| s.iter().any(|&b| b != 0))
            {
                hasher.write_u64(at + 512 * i as u64);
                hasher.write(sector);
            }
        }
    }
    hasher.finish()
}

/// What of a file is not a hole.
fn data_ranges(file: &mut File, len: u64) -> Vec<Range<u64>> {
    use nix::unistd::{Whence, lseek};
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < len {
        let Ok(from) = lseek(&*file, at as i64, Whence::SeekData) else { break };
        let to = lseek(&*file, from, Whence::SeekHole).map_or(len, |to| to as u64);
        ranges.push(from as u64..to);
        at = to;
    }
    let _ = file.seek(SeekFrom::Start(0));
    ranges
}

/// What dumpe2fs tells of an image.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The text, without what changes with every write: times and the mount count.
    pub text: String,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of the file system.
    pub blocks: u64,
    /// Free blocks, in order.
    pub free: Vec<Range<u64>>,
}

impl Dump {
    /// Whether a block is free.
    pub fn is_free(&self, block: u64) -> bool {
        let i = self.free.partition_point(|r| r.end <= block);
        self.free.get(i).is_some_and(|r| r.contains(&block))
    }

    /// How many blocks are free.
    pub fn free_blocks(&self) -> u64 {
        self.free.iter().map(|r| r.end - r.start).sum()
    }

    /// Digests of the blocks that are free, or of those that are not, by number; blocks of zeroes are
    /// left out.
    ///
    /// # Panics
    /// Where the image cannot be read.
    pub fn block_digests(&self, image: &Path, free: bool) -> Vec<(u64, u64)> {
        let mut file = File::open(image).expect("the image");
        let len = self.blocks * self.block_bytes;
        let mut digests = Vec::new();
        let mut block = vec![0; self.block_bytes as usize];
        for range in data_ranges(&mut file, len) {
            for number in range.start / self.block_bytes..range.end.min(len).div_ceil(self.block_bytes) {
                if self.is_free(number) != free || digests.last().is_some_and(|&(last, _)| last >= number) {
                    continue;
                }
                file.seek(SeekFrom::Start(number * self.block_bytes)).expect("seeking");
                file.read_exact(&mut block).expect("reading");
                if block.iter().any(|&b| b != 0) {
                    digests.push((number, digest(&block)));
                }
            }
        }
        digests
    }
}

/// Reads what dumpe2fs says of an image.
///
/// # Panics
/// Where it says what it never said.
#[track_caller]
pub fn dump(image: &Path) -> Dump {
    let all = run(Command::new("dumpe2fs").arg(image)).ended(0).out;
    let field = |name: &str| -> u64 {
        let line =
            all.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("no '{name}': {all}"));
        line.trim().parse().unwrap_or_else(|e| panic!("{name} {line}: {e}"))
    };
    let times = [
        "Last mount time:",
        "Last write time:",
        "Mount count:",
        "Last checked:",
        "Next check after:",
        "Lifetime writes:",
        "Checksum:",
    ];
    let text = all.lines().filter(|l| !times.iter().any(|t| l.starts_with(t))).collect::<Vec<_>>().join("\n");
    let free = all.lines().filter_map(|l| l.strip_prefix("  Free blocks: ")).flat_map(|l| l.split(", "));
    let free = free.filter(|r| !r.trim().is_empty()).map(|r| {
        let (a, b) = r.split_once('-').unwrap_or((r, r));
        let number = |s: &str| s.trim().parse::<u64>().unwrap_or_else(|e| panic!("free blocks {r}: {e}"));
        number(a)..number(b) + 1
    });
    Dump { block_bytes: field("Block size:"), blocks: field("Block count:"), free: free.collect(), text }
}
