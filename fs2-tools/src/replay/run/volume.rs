//! The volume that a trace is replayed on: as large as it must be, with the free blocks that a listing gives or that are drawn.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::PathBuf;

use fs2_block::{BlockSize, Extent, Op, Permille};
use fs2_disk::DriveProfile;
use fs2_sim::replay::{FreeMap, InUse, ReplayError};
use fs2d::text::AtMost;

use super::{Args, bad_trace, limit, open};
use crate::replay::Failure;
use crate::replay::info::{refuse_nothing, thousands};
use crate::replay::input::MEASURED_BYTES_MAX;

/// Share of the volume in use where nothing is known of it.
pub(super) fn used(args: &Args) -> Permille {
    args.used.unwrap_or(Permille::new(600).unwrap_or_default())
}

/// The free blocks given, or drawn, but for those that the trace shows in use: files may have been made
/// after dumpe2fs ran.
pub(super) fn free_map(args: &Args, err: &mut dyn Write) -> Result<(FreeMap, Seen), Failure> {
    if let Some(path) = &args.free_map {
        let file = File::open(path).map_err(|e| Failure::at(path, e))?;
        let plain = fs2_trace::unpack(Box::new(file)).map_err(|e| Failure::at(path, e))?.1;
        let plain = AtMost::new(plain, MEASURED_BYTES_MAX);
        let mut map = FreeMap::from_dumpe2fs(BufReader::new(plain)).map_err(|e| Failure::at(path, e))?;
        let mut in_use = InUse::new(map.block_size);
        let seen = see(args, map.block_size, &mut in_use)?;
        let before = map.free.len();
        in_use.take_from(&mut map);
        let taken = before - map.free.len();
        if taken > 0 {
            let why = "the trace reads them before it writes them: taken as in use";
            writeln!(err, "fs2-replay: {taken} blocks are free by {}, but {why}", path.display())?;
        }
        return Ok((map, seen));
    }
    let mut in_use = InUse::new(BlockSize::B4096);
    let seen = see(args, BlockSize::B4096, &mut in_use)?;
    let mut map = FreeMap::aged(in_use.end(), used(args), args.seed).map_err(|e| {
        Failure(match seen.devices {
            0 | 1 => format!(
                "a volume for {}: {e}; if its address is wrong, leave it out of the trace, or --limit {} ends before it",
                seen.far,
                seen.far.number.saturating_sub(1).max(1)
            ),
            n if args.read.pack => format!("the volume: {e}; the trace has {n} devices: --device chooses one"),
            n => format!(
                "the volume: {e}; the trace's {n} devices lie 4 TiB apart: --pack puts them side by side, --device chooses one"
            ),
        })
    })?;
    in_use.take_from(&mut map);
    Ok((map, seen))
}

/// Why there is no volume to replay on, with what is known of it.
pub(super) fn no_volume(args: &Args, map: &FreeMap, e: &ReplayError) -> Failure {
    let (bytes, blocks) = (crate::mkfs2::bytes(map.bytes()), thousands(u64::from(map.blocks)));
    let free = thousands(map.free.len());
    let instead = match args.free_map {
        Some(_) => "give a listing of a volume with more of them free",
        None => "give the traced volume's own with --free-map, where it has more",
    };
    Failure(format!(
        "{e}; of its {blocks} blocks ({bytes}) {free} are free: what the trace reads before it writes it is in use; {instead}, or \
         replay fewer requests with --limit"
    ))
}

/// The request that reaches furthest.
#[derive(Default)]
struct Far {
    /// In the order of the trace, from 1.
    number: u64,
    extent: Extent,
    trace: PathBuf,
    /// Of how many files the trace is.
    files: usize,
    /// Where the others end.
    others_end: u64,
}

impl Far {
    fn see(&mut self, number: u64, extent: Extent, paths: &[PathBuf]) {
        if extent.end() <= self.extent.end() {
            self.others_end = self.others_end.max(extent.end());
            return;
        }
        let others_end = self.extent.end();
        // The path is there already where the one before was of this trace, too.
        if self.trace != paths[0] {
            self.trace.clone_from(&paths[0]);
        }
        (self.number, self.extent, self.files, self.others_end) = (number, extent, paths.len(), others_end);
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = match self.files {
            0 | 1 => String::new(),
            n => format!(" and {} more, in the order of their times", n - 1),
        };
        let [end, others] = [self.extent.end(), self.others_end].map(crate::mkfs2::bytes);
        let (number, sector, trace) = (thousands(self.number), self.extent.sector().0, self.trace.display());
        write!(
            f,
            "request {number} of {trace}{more}, at sector {sector} and up to {end} (all others end at {others})"
        )
    }
}

/// What is known of a trace before it is replayed.
#[derive(Default)]
pub(super) struct Seen {
    /// Devices with requests, of the trace that has most.
    devices: usize,
    far: Far,
    /// Reads of the trace itself, and those that do not begin and end with blocks.
    pub(super) reads: u64,
    pub(super) in_part: u64,
}

fn see(args: &Args, block_size: BlockSize, in_use: &mut InUse) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    let block = u64::from(block_size.bytes());
    for paths in [&args.train, &args.traces] {
        if paths.is_empty() {
            continue;
        }
        let mut stream = open(args, paths)?;
        let mut all = 0;
        (seen.reads, seen.in_part) = (0, 0);
        for record in stream.by_ref().take(limit(args)) {
            let record = record.map_err(bad_trace)?;
            in_use.see(record.op, record.extent);
            all += 1;
            seen.far.see(all, record.extent, paths);
            if record.op == Op::Read {
                seen.reads += 1;
                let whole =
                    [record.extent.offset(), record.extent.end()].iter().all(|b| b.is_multiple_of(block));
                seen.in_part += u64::from(!whole);
            }
        }
        refuse_nothing(&stream, all)?;
        if all == 0 {
            return Err(Failure::at(&paths[0], "no request in it; `fs2-replay info` says what there is"));
        }
        seen.devices = seen.devices.max(stream.devices().iter().filter(|d| d.requests > 0).count());
    }
    Ok(seen)
}

pub(super) fn stretch_of(asked: Option<u32>, map: &FreeMap, drive: &DriveProfile) -> Result<u32, Failure> {
    match asked {
        None => Ok(1),
        Some(0) => {
            // Stretched, the last group is a whole one.
            let whole = map.groups.len() as u64 * u64::from(map.blocks_per_group);
            let bytes = whole * u64::from(map.block_size.bytes());
            let fits = drive.capacity_sectors() * 512 / bytes.max(1);
            // A drive may be larger than ext2.
            let most = u64::from(u32::MAX - map.first_block()) / whole.max(1);
            Ok(u32::try_from(fits.min(most)).unwrap_or(u32::MAX).max(1))
        }
        Some(n) if u64::from(n) * u64::from(map.blocks) < u64::from(u32::MAX) => Ok(n),
        Some(n) => Err(Failure(format!("--stretch {n}: more blocks than ext2 has"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a drive of more than 16 TiB blocks of 4 KiB run out before the drive does: that was an error.
    #[test]
    fn a_volume_fills_a_drive_as_far_as_ext2_goes() {
        let map = FreeMap::aged(1 << 30, Permille::new(600).expect("below 1000"), 1).expect("ext2 has room");
        let on = |name| {
            let drive = DriveProfile::builtin(name).expect("it is built in");
            (
                stretch_of(Some(0), &map, &drive).expect("it fills the drive"),
                drive.capacity_sectors() / (2 << 20),
            )
        };
        let (small, large) = (on("wd800-repaired"), on("exos-x24"));
        assert!(u64::from(small.0) == small.1 && u64::from(large.0) < large.1, "{small:?}, {large:?}");
        assert!(map.stretched(large.0).is_ok() && map.stretched(large.0 + 1).is_err());
    }
}
