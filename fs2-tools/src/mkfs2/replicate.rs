//! `mkfs2 replicate`: replicas by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use fs2_block::{BlockNo, BlockRange, WriteAt};
use fs2_engine::offline::{self, Devices, OfflineError, ReplicateOptions, Replicated};
use fs2_ext2::{BlockMap, Layout, lookup};
use fs2_store::{FileStore, StoreIo};

use super::{Bar, Refusal, catch_signals, half_done, open};
use crate::output::{self, quoted};
use crate::signals::UntilAsked;

const EXAMPLES: &str = "\
Examples:
  mkfs2 replicate /dev/sdb1 --blocks 81920-82175,4711 --near 1000000
  mkfs2 replicate /dev/sdb1 --blocks @hot.txt --near 1000000
  find etc usr/bin -type f | mkfs2 replicate /dev/sdb1 --files - --near 1000000

The copies lie one after another in the order given, in the free run nearest to --near that takes them \
all (more than a block group takes lie in several). The volume must be marked as good (chkfs2 does that). The daemon may drop copies later, for space \
or because their originals were written.";

/// Copy blocks or files to one place, in order
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("what").required(true))]
pub(super) struct ReplicateArgs {
    /// The blocks to copy, in this order: first-last, or one; @FILE for a file of them, between commas, spaces or on lines of their own, and `-` for
    /// standard input
    #[arg(long, value_name = "A-B[,...]", value_parser = parse_blocks, group = "what")]
    blocks: Option<Blocks>,

    /// A file with the paths to copy, from the volume's root, a line each; `-` for standard input
    #[arg(long, value_name = "LIST", group = "what")]
    files: Option<PathBuf>,

    /// Where the copies should lie
    #[arg(long, value_name = "BLOCK")]
    near: u32,

    /// Where the replica table is, if not on inode 5
    #[arg(long, value_name = "PATH")]
    table: Option<PathBuf>,

    /// Print one JSON object instead of sentences
    #[arg(long)]
    pub(super) json: bool,

    /// An FS2 volume: a block device or an image file
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
}

/// Where blocks are named.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Blocks {
    Here(Vec<BlockRange>),
    In(PathBuf),
}

fn parse_blocks(text: &str) -> Result<Blocks, String> {
    match text.strip_prefix('@') {
        Some(file) if !file.is_empty() => Ok(Blocks::In(file.into())),
        None if text == "-" => Ok(Blocks::In(text.into())),
        _ => ranges(text).map(Blocks::Here),
    }
}

fn ranges(text: &str) -> Result<Vec<BlockRange>, String> {
    let number = |s: &str| {
        let n = s.trim().parse::<u32>().ok().filter(|&n| n < u32::MAX);
        n.ok_or_else(|| format!("{s:?} is no block number; give blocks like 100-199,7"))
    };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("{part}: ends before it begins"));
        }
        Ok(BlockRange::new(first, last + 1))
    };
    text.split(',').map(range).collect()
}

/// The blocks that a file names, in its order.
fn read_blocks(path: &Path) -> Result<Vec<BlockRange>, Refusal> {
    let io = |e| Refusal::io(path, "reading the list of blocks", e);
    let mut blocks = Vec::new();
    for (line, n) in BufReader::new(input(path).map_err(io)?).lines().zip(1u64..) {
        let line = line.map_err(io)?;
        let words = line.split([' ', '\t', '\r', ',']).filter(|word| !word.is_empty());
        for word in words {
            blocks.extend(ranges(word).map_err(|why| Refusal {
                what: format!("{}: line {n}: {why}", path.display()),
                next: None,
            })?);
        }
    }
    Ok(blocks)
}

pub(super) fn run(args: &ReplicateArgs, out: &mut dyn Write) -> Result<(), Refusal> {
    let list = args.files.as_deref().map(read_list).transpose()?;
    let named = match &args.blocks {
        Some(Blocks::Here(blocks)) => Some(blocks.clone()),
        Some(Blocks::In(path)) => Some(read_blocks(path)?),
        None => None,
    };
    let volume = open(&args.device, true)?;
    let table = args.table.as_deref().map(|path| open(path, true)).transpose()?;
    let refused = |e| Refusal::of(e, &args.device, args.table.as_deref());
    let blocks = match (named, list) {
        (Some(blocks), _) => blocks,
        (None, list) => blocks_of(&volume, &list.unwrap_or_default()).map_err(refused)?,
    };
    let options = ReplicateOptions {
        blocks: &blocks,
        near: BlockNo(args.near),
        written_since: fs2d::runtime::written_since(&volume),
    };
    let mut bar = Bar::new(args.json);
    let done = {
        let _caught = catch_signals()?;
        let mut volume_io = UntilAsked(StoreIo::new(&volume));
        let mut table_io = table.as_ref().map(|t| UntilAsked(StoreIo::new(t)));
        let table_io = table_io.as_mut().map(|t| t as &mut dyn WriteAt);
        let mut devices = Devices::new(&mut volume_io, table_io);
        offline::replicate(&mut devices, &options, &mut |p| bar.update(p))
    };
    bar.clear();
    let table_option = args.table.as_ref().map_or(String::new(), |t| format!(" --table {}", quoted(t)));
    let check = format!("chkfs2 -f -p{table_option} {}", quoted(&args.device));
    let done = done.map_err(|e| half_done(e, &args.device, args.table.as_deref(), &check))?;
    // Who writes from here on is noticed.
    fs2d::runtime::remember_stamp(&volume)
        .map_err(|e| Refusal::io(&args.device, "done, but no record of it can be kept for the daemon", e))?;
    say(args, &done, out);
    Ok(())
}

fn say(args: &ReplicateArgs, done: &Replicated, out: &mut dyn Write) {
    if args.json {
        let said = serde_json::json!({
            "device": args.device.display().to_string(),
            "copied_blocks": done.copied,
            "places": done.places.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "free_blocks_left_out": done.free,
            "replicas_dropped": done.dropped,
        });
        let _ = writeln!(out, "{}", output::json(&said));
        return;
    }
    let device = args.device.display();
    let _ = match &done.places[..] {
        [one] => writeln!(out, "{device}: {} blocks copied to {one}", done.copied),
        [first, .., last] => {
            let (n, from, to) = (done.places.len(), first.start(), last.end() - 1);
            writeln!(out, "{device}: {} blocks copied to {n} places in {from}-{to}", done.copied)
        }
        [] => Ok(()),
    };
    for (n, what) in [(done.free, "free blocks left out"), (done.dropped, "replicas elsewhere dropped")] {
        if n > 0 {
            let _ = writeln!(out, "{device}: {n} {what}");
        }
    }
}

/// A file, or the standard input for `-`.
fn input(path: &Path) -> std::io::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdin()));
    }
    Ok(Box::new(std::fs::File::open(path)?))
}

/// The paths in a list, one a line.
fn read_list(path: &Path) -> Result<Vec<Vec<u8>>, Refusal> {
    let io = |e| Refusal::io(path, "reading the list of files", e);
    let mut paths = Vec::new();
    for line in BufReader::new(input(path).map_err(io)?).split(b'\n') {
        let line = line.map_err(io)?;
        if !line.is_empty() {
            paths.push(line);
        }
    }
    Ok(paths)
}

/// The blocks of some files: of each first the map's, then the data's, in file order.
fn blocks_of(volume: &FileStore, paths: &[Vec<u8>]) -> Result<Vec<BlockRange>, OfflineError> {
    let mut dev = StoreIo::new(volume);
    let layout = Layout::read(&mut dev)?;
    let mut blocks = Vec::new();
    for path in paths {
        let inode = lookup(&layout, &mut dev, path)?;
        let map = BlockMap::read(&layout, &mut dev, &inode)?;
        blocks.extend(map.indirect.iter().map(|&block| BlockRange::one(block)));
        blocks.extend(map.data.iter().map(|(_, range)| *range));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_as_people_type_them() {
        let r = BlockRange::new;
        assert_eq!(ranges("7"), Ok(vec![r(7, 8)]));
        assert_eq!(ranges("100-199, 7,5-5"), Ok(vec![r(100, 200), r(7, 8), r(5, 6)]));
        for wrong in ["", "7-", "-7", "9-3", "1,,2", "x", "4294967295", "0-4294967295", "1-2-3"] {
            assert!(ranges(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(parse_blocks("7,8"), Ok(Blocks::Here(vec![r(7, 8), r(8, 9)])));
        for (text, path) in [("-", "-"), ("@a b", "a b"), ("@-", "-")] {
            assert_eq!(parse_blocks(text), Ok(Blocks::In(path.into())));
        }
        assert!(parse_blocks("@").is_err() && parse_blocks("--").is_err());
    }
}
