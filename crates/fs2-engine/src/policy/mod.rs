//! Layout policies: values of one trait.
//!
//! A policy says which payloads of reads are worth a copy and in which order, where the next ones go,
//! and which copy a read takes. It can do no harm to data: what it proposes the volume checks.

mod asked;
mod fs2;
mod fs2_2005;
mod none;
mod static_copies;
mod torture;

use std::fmt;
use std::str::FromStr;

use fs2_block::{BlockNo, BlockRange, Nanos};
use fs2_table::Replica;

pub use asked::{Asked, Behind};
pub use fs2::Fs2;
pub use fs2_2005::Fs2Of2005;
pub use none::NoCopies;
pub use static_copies::StaticCopies;
pub use torture::Torture;

use crate::head::Head;
use crate::io::Brought;
use crate::log::Log;

/// The policies there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Copies nothing, reads originals only: the baseline, through the same code.
    None,
    /// The paper's policy, literally.
    Fs2Of2005,
    /// The default: whole read runs in visit order, chosen by predicted positioning time.
    Fs2,
    /// For tests: copies everything at once, reads copies wherever it can, evicts all the time.
    Torture,
    /// Copies nothing, but reads the copies made by hand (`mkfs2 replicate`) where they are nearer: the paper's
    /// FS2-static.
    Static,
}

impl PolicyKind {
    /// The names [`PolicyKind::from_str`] takes.
    pub const NAMES: [&'static str; 5] = ["none", "fs2-2005", "fs2", "torture", "static"];

    /// Replicas of a block at most, where nobody says otherwise.
    pub fn degree(self) -> u8 {
        match self {
            // The paper's copies each block once; torture has no use for more.
            PolicyKind::Fs2Of2005 | PolicyKind::Torture => 1,
            // `none` and `static` make none, and keep what was made.
            PolicyKind::None | PolicyKind::Fs2 | PolicyKind::Static => 2,
        }
    }

    /// A fresh policy of this kind for a volume.
    pub fn build(self, shape: &Shape) -> Box<dyn Policy> {
        match self {
            PolicyKind::None => Box::new(NoCopies),
            PolicyKind::Fs2Of2005 => Box::new(Fs2Of2005::new(shape)),
            PolicyKind::Fs2 => Box::new(Fs2::new(shape)),
            PolicyKind::Torture => Box::new(Torture::new(shape)),
            PolicyKind::Static => Box::new(StaticCopies::new(shape)),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(PolicyKind::NAMES[*self as usize])
    }
}

impl FromStr for PolicyKind {
    type Err = String;
    fn from_str(s: &str) -> Result<PolicyKind, String> {
        match s {
            "none" => Ok(PolicyKind::None),
            "fs2-2005" => Ok(PolicyKind::Fs2Of2005),
            "fs2" => Ok(PolicyKind::Fs2),
            "torture" => Ok(PolicyKind::Torture),
            "static" => Ok(PolicyKind::Static),
            _ => Err(format!("no policy '{s}'; there are {}", PolicyKind::NAMES.join(", "))),
        }
    }
}

/// What a policy must know of its volume.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Blocks of the file system.
    pub blocks: u32,
    /// Blocks of a group; the last may be smaller.
    pub group_blocks: u32,
    /// First block of group 0.
    pub first_block: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Seed for whatever is drawn.
    pub seed: u64,
}

impl Shape {
    /// Number of block groups.
    pub fn groups(&self) -> u32 {
        (self.blocks - self.first_block).div_ceil(self.group_blocks)
    }

    /// The group of a block.
    pub fn group_of(&self, block: BlockNo) -> u32 {
        block.0.saturating_sub(self.first_block) / self.group_blocks
    }

    /// The blocks of a group.
    pub fn group_range(&self, group: u32) -> BlockRange {
        let at = self.first_block.saturating_add(group.saturating_mul(self.group_blocks));
        BlockRange::new(at, at.saturating_add(self.group_blocks).min(self.blocks))
    }

    /// Sectors in a block.
    pub fn block_sectors(&self) -> u64 {
        u64::from(self.block_bytes) / fs2_block::SECTOR_BYTES
    }
}

/// A read that ended.
#[derive(Clone, Copy, Debug)]
pub struct ReadSeen<'a> {
    /// When it was answered.
    pub now: Nanos,
    /// When it was asked for.
    pub arrived: Nanos,
    /// The blocks it touches, whole or in part.
    pub touched: BlockRange,
    /// The blocks it covers whole; all of those where it was served from a copy.
    pub blocks: BlockRange,
    /// Their contents, where they may be captured; nothing where a write came in between or the log is full.
    pub data: Brought<'a>,
    /// Whether copies of what it touches may be made: with `data` or, where that is nothing or not of all, after reading it again.
    pub wanted: bool,
    /// Content hashes, in the same order; empty where there is nothing to capture.
    pub hashes: &'a [u64],
    /// First block of the copy it was served from.
    pub copy: Option<BlockNo>,
    /// The first copy there was of its first block, read or not.
    pub first_copy: Option<BlockNo>,
    /// From dispatch to completion, with the wait in the device's own queue. Measured: without that, places of copies do not seem slow in a
    /// crowd, more copies are read, and who goes on elsewhere loses more than is gained (docs/experiments.md, "Slow places").
    pub measured: Nanos,
    /// The same without that wait: from when the drive was through with what it served before.
    pub served: Nanos,
    /// What was predicted of that; `None` where no drive is modelled.
    pub expected: Option<Nanos>,
    /// What positioning takes lately where the arm moves.
    pub positioning: Nanos,
    /// What passing the drive's heads takes what it touches, at the volume's beginning; 0 where nothing is known of the drive.
    pub transfer: Nanos,
    /// Whether no other request was under way or waited when it ended.
    pub alone: bool,
    /// Whether the drive had nothing else to serve before, so that it was known from where its arm would come.
    pub at_once: bool,
}

/// Free space as a policy sees it.
pub trait Space {
    /// Runs of blocks of a group that are free and hold no replica, ascending; `None` while the
    /// group's bitmap is not loaded.
    fn vacant(&self, group: u32) -> Option<Vec<BlockRange>>;
    /// Whether the group's bitmap is loaded.
    fn is_known(&self, group: u32) -> bool;
    /// Blocks of a group whose bitmap is not loaded that may turn out to be vacant, at the most.
    fn vacant_at_most(&self, _group: u32) -> u64 {
        u64::MAX
    }
    /// The first `least` vacant blocks in a row, or up to `enough` where more follow, in `within`, a part
    /// of one group. Costs what lies before them; `None` also where the group's bitmap is not loaded.
    fn first_vacant(&self, within: BlockRange, least: u32, enough: u32) -> Option<BlockRange>;
    /// A number that changes whenever some of `blocks` become vacant that were not: what was not found before
    /// is not there as long as it stays.
    fn vacated(&self, blocks: BlockRange) -> u64;
    /// Whether `block` has as many replicas as it may have.
    fn has_replica(&self, block: BlockNo) -> bool;
    /// Replicas of `block`.
    fn copies(&self, block: BlockNo) -> usize;
    /// Replicas that there may be.
    fn capacity(&self) -> usize {
        self.room()
    }
    /// Replicas that there is room for, none evicted.
    fn room(&self) -> usize;
    /// About how many copies, each worth so much ([`worth`](crate::worth)), would find a place, over copies that are worth clearly less.
    fn room_for(&self, _worth: u8) -> usize {
        self.room()
    }
    /// Tells of the parts of `blocks` without any replica, ascending.
    fn lacking(&self, blocks: BlockRange, each: &mut dyn FnMut(BlockRange)) {
        blocks.iter().filter(|&b| self.copies(b) == 0).for_each(|b| each(BlockRange::one(b)));
    }
}

/// Where the next blocks of the log go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Into these blocks, all vacant when asked; as many of the log's next as fit.
    At(BlockRange),
    /// The same, where a vacant run ends with them and there are others: no read is to be torn for them.
    Ends(BlockRange),
    /// The group's bitmap is needed first.
    NeedsGroup(u32),
    /// That takes longer to find than others should wait: to be asked again.
    Later,
    /// Nowhere: the volume has no room that would do.
    Nowhere,
}

/// What a policy wants read for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// These blocks; [`Policy::fetched`] gets what they hold.
    Read(BlockRange),
    /// The group's bitmap is needed first.
    NeedsGroup(u32),
    /// Nothing, now.
    Nothing,
}

/// A layout policy.
pub trait Policy: Send + Sync {
    /// Which one.
    fn kind(&self) -> PolicyKind;

    /// Chooses a copy for a read: an index into [`Asked::copies`], or `None` for the original.
    fn choose(&mut self, now: Nanos, head: &Head, asked: &Asked<'_>) -> Option<usize>;

    /// Whether a read of what begins at `first` rather goes to its copy than to the original, wherever the head is, because others'
    /// requests move it: what waits for the drive is then compared by its copies alone.
    fn prefers_copy(&self, _first: BlockNo, _copy: BlockNo) -> bool {
        false
    }

    /// What the last choice of a copy saves, as predicted when it was made.
    fn saving(&self) -> Nanos {
        Nanos(0)
    }

    /// What it saves of its own read, as a share of a mean positioning: less than 0 where it costs more than the original, for the sake of
    /// what comes next. `None`: it is read in any case.
    fn saves_at_once(&self) -> Option<f64> {
        None
    }

    /// After a read was seen and no request waits: blocks behind it to read into the drive's own cache, to nowhere.
    fn trail(&mut self) -> Option<BlockRange> {
        None
    }

    /// A trail of so many bytes was read, and took so long.
    fn trail_read(&mut self, _bytes: u64, _took: Nanos) {}

    /// Whether it ever captures what was read: hashing that costs as much as all else the engine does.
    fn captures(&self) -> bool {
        true
    }

    /// A read of these blocks came; in which order reads end is the drive's affair.
    fn read_came(&mut self, _touched: BlockRange) {}

    /// A read ended: capture what is worth a copy.
    fn read_seen(&mut self, seen: &ReadSeen<'_>, space: &dyn Space, log: &mut Log);

    /// Blocks were written; what copies of them there were is `lost`.
    fn written(&mut self, _blocks: BlockRange, _lost: &[Replica]) {}

    /// Whether blocks that are written while they wait to be copied keep their turn: copies around them leave room, which
    /// [`Policy::outdated`] tells of.
    fn keeps_turns(&self) -> bool {
        false
    }

    /// Whether copies end, and go on elsewhere, where reads end.
    fn keeps_reads_whole(&self) -> bool {
        false
    }

    /// These blocks were written before they were copied, and their copies' places left.
    fn outdated(&mut self, _places: &[Replica]) {}

    /// The file system took these blocks, which were free; told beside [`Policy::written`] where they were written.
    fn allocated(&mut self, _blocks: BlockRange) {}

    /// The file system took these blocks, and with them these copies, ascending by place, each worth so much at most
    /// ([`worth`](crate::worth)).
    fn displaced(&mut self, _taken: BlockRange, _copies: &[Replica], _worth: Option<u8>, _log: &mut Log) {}

    /// Whether the values of replicas are to age by a step now.
    fn ages(&mut self) -> bool {
        false
    }

    /// Nothing to do for a while: runs may be closed.
    fn idle(&mut self, now: Nanos, log: &mut Log);

    /// How many blocks at a time may be copied beside open requests where the volume never rests; `None`: none.
    fn copies_beside(&self) -> Option<usize> {
        None
    }

    /// A copy is about to be made so.
    fn beside(&mut self) {}

    /// Whether copying may begin now, `since` the last request, before the configured idle time.
    fn eager(&self) -> bool {
        false
    }

    /// Where the next `want` blocks of the log go.
    fn place(&mut self, want: u32, head: &Head, space: &dyn Space) -> Place;

    /// Whether so little waits in the log that a pause is not begun with: it waits for more, or for a rest.
    fn too_few(&self, _log: &Log) -> bool {
        false
    }

    /// From when on [`Policy::fetch`] is worth asking, nothing having been asked of the volume since
    /// `idle_since`; `None`: never, as things are.
    fn fetch_at(&self, _idle_since: Nanos) -> Option<Nanos> {
        None
    }

    /// The next originals to read for the policy's own sake, at idle: the same until they were fetched. Nothing was
    /// asked of the volume for so long as it has `rested`.
    fn fetch(&mut self, _rested: Nanos, _space: &dyn Space) -> Fetch {
        Fetch::Nothing
    }

    /// What [`Policy::fetch`] asked for: `data` and hashes of each block, or nothing where it could not be
    /// read, must not be copied, or a request changed part of it meanwhile.
    fn fetched(&mut self, _blocks: BlockRange, _data: Brought<'_>, _hashes: &[u64], _log: &mut Log) {}

    /// Replicas to evict now, whatever the watermarks say.
    fn evict(&mut self) -> Option<BlockRange> {
        None
    }

    /// The region of blocks where the head mostly is, if the policy keeps one.
    fn hot_region(&self) -> Option<BlockRange>;

    /// A copy of the policy and its state.
    fn boxed_clone(&self) -> Box<dyn Policy>;

    /// The state, for comparison of two machines.
    fn digest(&self) -> String {
        String::new()
    }
}

impl Clone for Box<dyn Policy> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}
