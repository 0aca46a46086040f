//! The beginning of a session: what may be trusted (R0), and what not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, BlockSize, Nanos, ReadAt, SECTOR_BYTES};
use fs2_disk::{DriveProfile, Knowledge, Overdue, Scheduler};
use fs2_ext2::{Layout, Liveness, Problem, TableFile};
use fs2_table::{BitmapChecksums, ReplicaTable, Report, TokenDiffers};

use super::clients::{AGE_MAX, Earlier};
use super::control::Control;
use super::disturbance::Disturbance;
use super::ghost::Ghost;
use super::home::MarkState;
use super::patience::Patience;
use super::pauses::Pauses;
use super::recovery::{Backings, NotFound};
use super::rush::Rush;
use super::write_cache::WriteCache;
use super::{Contents, Inactive, Standing, Volume};
use crate::backups;
use crate::config::EngineConfig;
use crate::head::Head;
use crate::log::Log;
use crate::plant::Plant;
use crate::policy::Behind;
use crate::policy::{Fs2, PolicyKind};
use crate::seq_map::SeqMap;
use crate::stats::{Parts, Stats};

/// Entries whose originals are hashed soon after the attach, as an alarm.
const SAMPLE: usize = 256;

/// A volume that cannot be served at all.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Reading failed.
    #[error("cannot read {what}: {source}")]
    Io {
        /// What was read.
        what: &'static str,
        /// What the device said.
        #[source]
        source: io::Error,
    },
    /// The file system is larger than its backing, or its superblock contradicts itself.
    #[error(transparent)]
    Refused(Problem),
    /// The table given apart bears a mark for another volume, which a session here would erase.
    #[error(
        "the replica table given is of another volume (UUID {0}); give its own, or a new one (mkfs2 --table) if the volume's UUID was changed"
    )]
    OtherVolume(String),
    /// The volume has a table on inode 5 and one given apart: the mark of the former would outlive a session here.
    #[error("the volume's own replica table is on inode 5; leave --table out")]
    TableOnInode,
}

/// Circumstances of an attach.
#[derive(Clone, Debug, Default)]
pub struct AttachOptions {
    /// The backing was written since the last session of this boot (its stamp differs).
    pub written_since: bool,
    /// Where no mark stands, it was erased for that.
    pub mark_void: bool,
    /// Pass everything through, whatever the volume is.
    pub passive: bool,
    /// The daemon of a session died, or left nothing to go on with, and programs may still use what it served.
    pub orphaned: bool,
    /// A flush failed in a former session that programs go on with: they may not have been told, and no flush of this session can tell
    /// what was lost. Every change is refused, as it would have been there.
    pub flush_failed: bool,
}

/// What an attach found.
#[derive(Clone, Debug)]
pub struct AttachReport {
    /// The file system's label for people: its UUID.
    pub uuid: Option<[u8; 16]>,
    /// What became of the table's pages.
    pub table: Option<Report>,
    /// Replicas usable at once.
    pub verified: usize,
    /// Replicas usable once their originals were read.
    pub unverified: usize,
}

impl Volume {
    /// Reads the superblock and its copies, descriptors, mark and table, and no bitmap. `table` is the file or device
    /// that holds the table, where it does not live on inode 5.
    ///
    /// # Errors
    /// Where the volume cannot be served at all; what merely cannot be trusted is served inactive.
    pub fn attach<'a>(
        dev: &'a mut (dyn ReadAt + 'a),
        table: Option<&'a mut (dyn ReadAt + 'a)>,
        config: EngineConfig,
        options: &AttachOptions,
    ) -> Result<(Volume, AttachReport), AttachError> {
        let (mut volume, report) = Volume::attach_as_it_is(dev, table, config, options)?;
        volume.flush_failed = options.flush_failed;
        Ok((volume, report))
    }

    fn attach_as_it_is<'a>(
        dev: &'a mut (dyn ReadAt + 'a),
        table: Option<&'a mut (dyn ReadAt + 'a)>,
        config: EngineConfig,
        options: &AttachOptions,
    ) -> Result<(Volume, AttachReport), AttachError> {
        let io = |what| move |source| AttachError::Io { what, source };
        let mut backings = Backings { dev, table };
        let bytes = backings.dev.size_bytes().map_err(io("the size of the volume"))?;
        let layout = match Layout::read(backings.dev) {
            Ok(layout) => layout,
            Err(Problem::Io { source, .. }) => return Err(io("the superblock")(source)),
            Err(p @ (Problem::Truncated { .. } | Problem::TooShort { .. })) => {
                return Err(AttachError::Refused(p));
            }
            Err(p) => {
                let why = match p {
                    Problem::NotExt2 | Problem::NoSuperblock { .. } => Inactive::NotExt2(p.to_string()),
                    // The kernel has descriptors in its memory that are not on the disk yet, as of a file system that it has grown.
                    Problem::Corrupt { .. } if options.orphaned => Inactive::Orphaned,
                    p => Inactive::Unsupported(p.to_string()),
                };
                return Ok(Volume::inactive(bytes, None, config, why));
            }
        };
        let layout = Arc::new(layout);
        let inactive = |config, why| Ok(Volume::inactive(bytes, Some(layout.clone()), config, why));
        let planted = |p| cfg!(feature = "planted-bugs") && config.plants.contains(&p);
        let plain = if options.passive {
            Some(Inactive::Unsupported("served as a plain device, as asked".into()))
        } else if options.orphaned {
            Some(Inactive::Orphaned)
        } else {
            layout.unsupported().err().map(|p| Inactive::Unsupported(p.to_string()))
        };
        if backings.table.is_some() {
            match TableFile::find(&layout, backings.dev) {
                Ok(Some(file)) if Volume::may_bear_mark(backings.dev, &file) => {
                    return Err(AttachError::TableOnInode);
                }
                Ok(Some(_)) => {}
                Err(Problem::Io { source, .. }) => return Err(io("inode 5")(source)),
                // What else is there is no concern of a table that lives apart.
                Ok(None) | Err(_) => {}
            }
        }
        // Also where the volume is to be served as a plain device: a mark must not outlive its writes.
        let found = match Volume::find_table(&mut backings, &layout) {
            Ok(found) => found,
            Err(NotFound::Unread(source)) => return Err(io("the replica table's header")(source)),
            Err(NotFound::Unusable(why)) => return inactive(config, plain.unwrap_or(why)),
            Err(NotFound::OtherVolume(uuid)) => return Err(AttachError::OtherVolume(uuid)),
        };
        let why = if plain.is_some() {
            plain
        } else if layout.has_errors() {
            Some(Inactive::Errors)
        } else if !layout.is_clean() && !planted(Plant::DirtyIsValid) {
            Some(Inactive::NotClean)
        } else {
            None
        };
        let superblock = layout.superblock().raw();
        let mark = found.header.mark.as_deref();
        // Each is a seek: only where the mark may count.
        let may_count = mark.is_some_and(|m| m.token.superblock == *superblock)
            || planted(Plant::NoMarkNeeded)
            || planted(Plant::TokenIgnored);
        let copies = match why {
            None if may_count => backups::hashes(&layout, backings.dev),
            _ => Ok(Vec::new()),
        };
        let (copies, unread) = match copies {
            Ok(copies) => (copies, None),
            Err(p) => (Vec::new(), Some(p)),
        };
        let differs = mark
            .and_then(|m| m.token.differs(superblock, layout.descriptors_bytes(), &copies))
            .filter(|what| *what != TokenDiffers::Groups || !planted(Plant::BackupsIgnored));
        let why = why.or(match (mark, differs, unread) {
            (None, ..) if options.mark_void => Some(Inactive::WrittenSince),
            (None, ..) if !planted(Plant::NoMarkNeeded) => Some(Inactive::NoMark),
            (_, _, Some(copy)) => {
                let what = backups::unread(&copy);
                Some(Inactive::Unread { what, block: copy.block, block_bytes: copy.block_bytes })
            }
            (_, Some(what), _) if !planted(Plant::TokenIgnored) => Some(Inactive::Token(what)),
            _ if options.written_since => Some(Inactive::WrittenSince),
            _ => None,
        });
        let lenient = planted(Plant::NoMarkNeeded);
        let sums = Volume::read_checksums(&mut backings, &found, layout.group_count(), lenient);
        let (why, sums) = match (why, sums) {
            (Some(why), _) => (Some(why), BitmapChecksums(Vec::new())),
            (None, Ok(sums)) => (None, sums),
            (None, Err(what)) => (Some(Inactive::DamagedTable(what)), BitmapChecksums(Vec::new())),
        };
        if let Some(why) = why {
            let though_invalid = planted(Plant::MarkThoughInvalid);
            let (mut volume, report) = Volume::inactive(bytes, Some(layout.clone()), config, why);
            if though_invalid {
                volume.live = Some(Liveness::new(layout.clone(), &[]));
                volume.bitmap_checksums = Arc::new(vec![0; layout.group_count() as usize]);
                volume.bitmaps_written = (0..layout.group_count()).collect();
                volume.backups = Arc::new(vec![0; layout.copies().len()]);
                volume.backups_written = layout.copies().iter().copied().collect();
                volume.home = Some(found.home);
                return Ok((volume, report));
            }
            // A mark that could be believed later must not outlive what clients write now: also one whose
            // token differs today, and one whose erasure never reached the medium.
            volume.mark = MarkState::Stands;
            volume.home = Some(found.home);
            return Ok((volume, report));
        }
        let forbidden = found.file.as_ref().map_or(Vec::new(), |f| f.blocks.clone());
        let live = Liveness::new(layout.clone(), &forbidden);
        let (entries, report) =
            Volume::read_table(&mut backings, &found, &live, &config).map_err(io("the replica table"))?;
        let mut volume = Volume::assemble(bytes, Some(layout.clone()), config);
        volume.alarm = sample(&entries, volume.config.seed);
        volume.table = entries;
        if volume.config.distrust {
            volume.table.all_unverified();
        }
        volume.live = Some(live);
        volume.standing = Standing::Active;
        volume.mark = MarkState::Stands;
        volume.home = Some(found.home);
        volume.bitmap_checksums = Arc::new(sums.0);
        volume.backups = Arc::new(copies);
        volume.copying = volume.free_share() > volume.config.watermarks.low();
        let unverified = volume.table.unverified_count();
        let report = AttachReport {
            uuid: Some(layout.superblock().uuid()),
            verified: volume.table.len() - unverified,
            unverified,
            table: Some(report),
        };
        Ok((volume, report))
    }

    /// As [`Volume::attach`], over a modelled device that keeps the file system's structure but no contents:
    /// what replays a trace. Writes are submitted without a payload, so that what they do to bitmaps and
    /// superblock stays unknown; reads of clients end by [`Volume::complete_unseen`]; copies are dispatched
    /// as [`super::IoData::Unseen`]. Nothing turns a volume attached otherwise into one of these.
    ///
    /// # Errors
    /// As [`Volume::attach`].
    pub fn attach_unseen<'a>(
        dev: &'a mut (dyn ReadAt + 'a),
        config: EngineConfig,
    ) -> Result<(Volume, AttachReport), AttachError> {
        let (mut volume, report) = Volume::attach(dev, None, config, &AttachOptions::default())?;
        volume.contents = Contents::Unseen;
        Ok((volume, report))
    }

    /// A volume that is served as a plain device.
    fn inactive(
        bytes: u64,
        layout: Option<Arc<Layout>>,
        config: EngineConfig,
        why: Inactive,
    ) -> (Volume, AttachReport) {
        let uuid = layout.as_ref().map(|l| l.superblock().uuid());
        let mut volume = Volume::assemble(bytes, layout, config);
        volume.standing = Standing::Inactive(why);
        (volume, AttachReport { uuid, table: None, verified: 0, unverified: 0 })
    }

    pub(super) fn assemble(bytes: u64, layout: Option<Arc<Layout>>, mut config: EngineConfig) -> Volume {
        config.turns &= config.drive.is_none();
        if config.turns {
            (config.drive, config.knowledge) = (Some(drive_of_today(bytes)), Knowledge::SeekOnly);
        }
        let block_size = layout.as_ref().map_or(BlockSize::B4096, |l| l.block_size());
        let fs_blocks = layout.as_ref().map_or(BlockRange::EMPTY, |l| BlockRange::new(0, l.blocks()));
        // Where nothing turns nothing is won, and copies only wear the device.
        let turns = config.drive.as_ref().is_none_or(DriveProfile::rotational);
        let policy = match &layout {
            Some(l) if turns => {
                let shape = Volume::shape(l, config.seed);
                match config.policy {
                    PolicyKind::Fs2 => Box::new(Fs2::new(&shape).without(config.without)),
                    kind => kind.build(&shape),
                }
            }
            _ => Box::new(crate::policy::NoCopies),
        };
        // The others are there to be compared with, as they are.
        let gated = turns && config.policy == PolicyKind::Fs2;
        let drive = config.drive.as_ref().filter(|_| gated);
        let scheduler = if config.drive_orders { Scheduler::Sptf } else { config.scheduler };
        let ghost = drive.map(|d| Box::new(Ghost::new(d, scheduler, AGE_MAX)));
        Volume {
            contents: Contents::Bytes,
            hashes: Vec::new(),
            copies: Vec::new(),
            behind: Behind::default(),
            last_copy: None,
            crowd: None,
            bytes,
            block_size,
            fs_blocks,
            standing: Standing::Inactive(Inactive::NoTable),
            live: None,
            vacated: Default::default(),
            table: ReplicaTable::new(0, config.degree),
            home: None,
            mark: MarkState::Gone,
            erase_tries: 0,
            bitmap_checksums: Arc::new(Vec::new()),
            bitmaps_written: BTreeSet::new(),
            backups: Arc::new(Vec::new()),
            backups_written: BTreeSet::new(),
            weighed: None,
            next_seq: 0,
            requests: SeqMap::new(),
            waiting: SeqMap::new(),
            forced: VecDeque::new(),
            next_io: 0,
            in_flight: SeqMap::new(),
            holds: Vec::new(),
            urgent: VecDeque::new(),
            acks: Vec::new(),
            replies: VecDeque::new(),
            flushes: BTreeMap::new(),
            flush_waiting: Vec::new(),
            flush_behind: 0,
            flush_active: None,
            flush_failed: false,
            write_cache: WriteCache::default(),
            write_failed: false,
            distrusted: false,
            late_discards: Vec::new(),
            groups_wanted: BTreeSet::new(),
            log: Log::new(config.log_bytes_max),
            copying: false,
            copies_off: false,
            host_short: false,
            punches: VecDeque::new(),
            alarm: Vec::new(),
            sweep_after: None,
            background: None,
            beside: false,
            looked_below: None,
            next_look: Nanos(0),
            next_table_flush: Nanos(0),
            page_written: None,
            last_activity: Nanos(0),
            disturbance: Disturbance::without(config.without),
            expected: None,
            control: Control::new(config.control, config.seed),
            ghost,
            trail: None,
            pauses: Pauses::new(),
            rested: Nanos(0),
            accessed: Nanos(0),
            looked: Nanos(0),
            searching: false,
            unappraised: 0,
            patience: Patience::new(config.idle_after),
            detach: None,
            leaving: false,
            policy,
            head: Head::with_knowledge(config.drive.clone(), config.knowledge),
            unreadable: Default::default(),
            swept: fs2_block::Sector(0),
            earlier: Earlier::default(),
            rush: Rush::default(),
            overdue: Overdue::default(),
            waited_for: None,
            stats: Stats { parts: Parts::of(bytes), ..Stats::default() },
            layout,
            config,
        }
    }

    /// Replicas at most: what the table holds, and what `--space` allows.
    pub(super) fn capacity(&self) -> usize {
        let cap = self.config.space.share_of(self.counted(self.fs_blocks.len().into())) as usize;
        self.table.capacity().min(cap)
    }

    pub(super) fn key(&self) -> u64 {
        self.home.as_ref().map_or(0, |h| h.volume_id)
    }
}

/// For a volume of so many bytes whose drive nobody described. Measured: any drive's seeks serve better than none (docs/experiments.md, item 14).
fn drive_of_today(bytes: u64) -> DriveProfile {
    let mut drive = DriveProfile::builtin("nearline-hc310").expect("it is built in");
    drive.fit(bytes.div_ceil(SECTOR_BYTES));
    drive
}

/// Originals of verified entries, drawn at random.
fn sample(table: &ReplicaTable, seed: u64) -> Vec<BlockNo> {
    let n = table.len();
    if n <= SAMPLE {
        return table.iter().map(|r| r.original).collect();
    }
    let step = n / SAMPLE;
    let from = (seed % step as u64) as usize;
    table.iter().skip(from).step_by(step).take(SAMPLE).map(|r| r.original).collect()
}
