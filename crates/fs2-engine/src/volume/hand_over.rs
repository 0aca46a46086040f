//! A session that goes on in another process: a planned upgrade of the daemon.
//!
//! The old machine lets everything in flight end, starts nothing of its own any more, and writes down what
//! it knows ([`Volume::left`]). The new one compares that with the volume before it believes any of it
//! ([`Volume::take_over`]); whatever is odd is refused, and the session then begins as after a crash. The
//! bytes are described in docs/format.md.
//!
//! Only a session that is active goes on. What is lost: heat, queued copies, the belief about the head,
//! counters. What a rule of docs/safety.md needs is kept, or the hand-over is refused.

use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, ConnectionId, Nanos, ReadAt};
use fs2_ext2::{Layout, Liveness, LivenessParts};
use fs2_table::{Limits, PAGE_BYTES, Recovery, ReplicaTable, Trust};
use roaring::RoaringBitmap;

use super::attach::AttachReport;
use super::home::MarkState;
use super::recovery::{Backings, Found};
use super::{Standing, Volume};
use crate::config::EngineConfig;

const MAGIC: &[u8; 8] = b"FS2HAND\0";
const VERSION: u32 = 3;
/// Magic, version, checksum, length.
const HEADER_BYTES: usize = 24;

const FLAG_WRITE_FAILED: u8 = 1;
const FLAG_MOUNTED: u8 = 2;
const FLAG_MENDED: u8 = 4;
const FLAG_COPIES_OFF: u8 = 8;

const PAGE_HAS_ENTRIES: u8 = 1;
const PAGE_DIFFERS: u8 = 2;

/// What one process left for the next: well-formed and complete, not yet compared with any volume.
#[derive(Clone, Debug)]
pub struct HandOver {
    note: Vec<u8>,
    volume_id: u64,
    generation: u64,
    slot: u8,
    mark: MarkState,
    flags: u8,
    parts: LivenessParts,
    bitmaps_written: RoaringBitmap,
    bitmap_checksums: Vec<u32>,
    backups: Vec<u64>,
    backups_written: RoaringBitmap,
    verified: RoaringBitmap,
    replicas: u64,
    pages: Vec<Page>,
}

#[derive(Clone, Debug)]
struct Page {
    number: u32,
    differs: bool,
    bytes: Option<Vec<u8>>,
}

fn put(out: &mut Vec<u8>, section: &[u8]) {
    out.extend_from_slice(&(section.len() as u64).to_le_bytes());
    out.extend_from_slice(section);
}

fn put_set(out: &mut Vec<u8>, set: &RoaringBitmap) {
    out.extend_from_slice(&(set.serialized_size() as u64).to_le_bytes());
    set.serialize_into(out).expect("writing into memory cannot fail");
}

/// Takes bytes from the front; `None` where there are too few.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[b]| b)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn section(&mut self) -> Option<&'a [u8]> {
        let n = usize::try_from(self.u64()?).ok()?;
        self.bytes(n)
    }

    fn set(&mut self) -> Option<RoaringBitmap> {
        let bytes = self.section()?;
        let mut at = bytes;
        let set = RoaringBitmap::deserialize_from(&mut at).ok()?;
        at.is_empty().then_some(set)
    }
}

fn mark_code(mark: MarkState) -> Option<u8> {
    match mark {
        MarkState::Stands => Some(0),
        MarkState::Erased { old_slot: false } => Some(1),
        MarkState::Erased { old_slot: true } => Some(2),
        MarkState::Gone | MarkState::Erasing { .. } | MarkState::Flushing | MarkState::Stuck => None,
    }
}

impl HandOver {
    /// Reads what [`Volume::left`] wrote.
    ///
    /// # Errors
    /// What is wrong with it: another version, a wrong checksum, a length that does not fit.
    pub fn decode(bytes: &[u8]) -> Result<HandOver, &'static str> {
        let mut rest = Rest(bytes);
        let short = "it is cut off";
        if rest.bytes(8).ok_or(short)? != MAGIC {
            return Err("it is none");
        }
        if rest.u32().ok_or(short)? != VERSION {
            return Err("it is of another format version; once it is unmounted: chkfs2 -f -p");
        }
        let sum = rest.u32().ok_or(short)?;
        if rest.u64().ok_or(short)? != bytes.len() as u64 {
            return Err("its length is wrong");
        }
        if crc32c::crc32c(&bytes[16..]) != sum {
            return Err("its checksum is wrong");
        }
        HandOver::sections(rest).ok_or("its parts do not fit together")
    }

    fn sections(mut rest: Rest<'_>) -> Option<HandOver> {
        let note = rest.section()?.to_vec();
        let (volume_id, generation, replicas) = (rest.u64()?, rest.u64()?, rest.u64()?);
        let (slot, mark, flags, zero) = (rest.u8()?, rest.u8()?, rest.u8()?, rest.u8()?);
        let mark = match mark {
            0 => MarkState::Stands,
            1 => MarkState::Erased { old_slot: false },
            2 => MarkState::Erased { old_slot: true },
            _ => return None,
        };
        if slot > 1 || zero != 0 {
            return None;
        }
        let superblock = Box::new(rest.array()?);
        let at_attach = Box::new(rest.array()?);
        let descriptors = rest.section()?.to_vec();
        let (free, orphaned, set_unloaded) = (rest.set()?, rest.set()?, rest.set()?);
        let (loaded, bitmaps_written) = (rest.set()?, rest.set()?);
        let (unannounced, told) = (rest.set()?, rest.set()?);
        let (set_unannounced, bitmaps_unannounced) = (rest.set()?, rest.set()?);
        let sums = rest.section()?;
        let (sums, []) = sums.as_chunks::<4>() else { return None };
        let bitmap_checksums = sums.iter().map(|s| u32::from_le_bytes(*s)).collect();
        let (backups, []) = rest.section()?.as_chunks::<8>() else { return None };
        let backups = backups.iter().map(|s| u64::from_le_bytes(*s)).collect();
        let backups_written = rest.set()?;
        let mut written: Vec<(ConnectionId, RoaringBitmap)> = Vec::new();
        for _ in 0..rest.u32()? {
            let connection = ConnectionId(rest.u32()?);
            if written.last().is_some_and(|(last, _)| *last >= connection) {
                return None;
            }
            written.push((connection, rest.set()?));
        }
        let verified = rest.set()?;
        let mut pages: Vec<Page> = Vec::new();
        for _ in 0..rest.u32()? {
            let (number, flags) = (rest.u32()?, rest.u8()?);
            if flags & !(PAGE_HAS_ENTRIES | PAGE_DIFFERS) != 0
                || pages.last().is_some_and(|p| p.number >= number)
            {
                return None;
            }
            let bytes = match flags & PAGE_HAS_ENTRIES {
                0 => None,
                _ => Some(rest.bytes(PAGE_BYTES)?.to_vec()),
            };
            pages.push(Page { number, differs: flags & PAGE_DIFFERS != 0, bytes });
        }
        if !rest.0.is_empty() {
            return None;
        }
        let parts = LivenessParts {
            superblock,
            at_attach,
            descriptors,
            free,
            written,
            orphaned,
            set_unloaded,
            loaded,
            mounted: flags & FLAG_MOUNTED != 0,
            mended: flags & FLAG_MENDED != 0,
            unannounced,
            told,
            set_unannounced,
            bitmaps_unannounced,
        };
        Some(HandOver {
            note,
            volume_id,
            generation,
            slot,
            mark,
            flags,
            parts,
            bitmaps_written,
            bitmap_checksums,
            backups,
            backups_written,
            verified,
            replicas,
            pages,
        })
    }

    /// What the driver added of its own.
    pub fn note(&self) -> &[u8] {
        &self.note
    }

    /// Whether nothing was changed in that session yet: the mark that it found stands.
    pub fn mark_stands(&self) -> bool {
        self.mark == MarkState::Stands
    }
}

impl Volume {
    /// Nothing of the engine's own begins any more, and no request is taken; what is in flight ends. Drive on
    /// until [`Volume::has_left`].
    pub fn begin_leaving(&mut self, now: Nanos) {
        self.leaving = true;
        self.log.clear();
        self.punches.clear();
        self.settle(now);
    }

    /// Whether nothing is in flight any more after [`Volume::begin_leaving`].
    pub fn has_left(&self) -> bool {
        self.leaving
            && self.requests.is_empty()
            && self.in_flight.is_empty()
            && self.urgent.is_empty()
            && self.acks.is_empty()
            && self.replies.is_empty()
            && self.flush_waiting.is_empty()
    }

    /// What another process needs to go on with this session; `note`, of the driver's own, comes with it.
    ///
    /// # Errors
    /// Why the next process has to begin anew: something is in flight, or the session is not one to go on with.
    pub fn left(&self, note: &[u8]) -> Result<Vec<u8>, String> {
        if !self.has_left() {
            return Err("it is under way".into());
        }
        match &self.standing {
            Standing::Active => {}
            Standing::Frozen(why) => return Err(format!("the session was frozen: {why}")),
            Standing::Inactive(why) => return Err(format!("the volume was served inactive: {why}")),
        }
        if self.flush_failed {
            return Err("a flush failed".into());
        }
        let (Some(home), Some(parts)) = (&self.home, self.live.as_ref().and_then(Liveness::parts)) else {
            return Err("there is no table, or no trust".into());
        };
        if !home.owned {
            return Err("a client wrote to the table's blocks".into());
        }
        let Some(mark) = mark_code(self.mark) else { return Err("the mark could not be erased".into()) };
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 12]);
        put(&mut out, note);
        for n in [home.volume_id, home.generation, self.table.len() as u64] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        let flags = [
            (self.write_failed, FLAG_WRITE_FAILED),
            (parts.mounted, FLAG_MOUNTED),
            (parts.mended, FLAG_MENDED),
            (self.copies_off, FLAG_COPIES_OFF),
        ];
        let flags = flags.iter().filter(|(on, _)| *on).map(|(_, bit)| bit).sum();
        out.extend_from_slice(&[home.slot as u8, mark, flags, 0]);
        out.extend_from_slice(&parts.superblock[..]);
        out.extend_from_slice(&parts.at_attach[..]);
        put(&mut out, &parts.descriptors);
        for set in [&parts.free, &parts.orphaned, &parts.set_unloaded, &parts.loaded] {
            put_set(&mut out, set);
        }
        put_set(&mut out, &self.bitmaps_written.iter().copied().collect());
        for set in [&parts.unannounced, &parts.told, &parts.set_unannounced, &parts.bitmaps_unannounced] {
            put_set(&mut out, set);
        }
        let sums: Vec<u8> = self.bitmap_checksums.iter().flat_map(|s| s.to_le_bytes()).collect();
        put(&mut out, &sums);
        let backups: Vec<u8> = self.backups.iter().flat_map(|s| s.to_le_bytes()).collect();
        put(&mut out, &backups);
        put_set(&mut out, &self.backups_written.iter().copied().collect());
        out.extend_from_slice(&(parts.written.len() as u32).to_le_bytes());
        for (connection, set) in &parts.written {
            out.extend_from_slice(&connection.0.to_le_bytes());
            put_set(&mut out, set);
        }
        let verified = self.table.iter().filter(|r| r.trust == Trust::Verified).map(|r| r.replica.0);
        put_set(&mut out, &verified.collect());
        let pages_at = out.len();
        out.extend_from_slice(&[0; 4]);
        let mut pages = 0u32;
        for (number, page) in self.table.pages_in_memory(home.generation, home.volume_id) {
            pages += 1;
            let flags = if page.bytes.is_some() { PAGE_HAS_ENTRIES } else { 0 }
                | if page.differs { PAGE_DIFFERS } else { 0 };
            out.extend_from_slice(&number.to_le_bytes());
            out.push(flags);
            if let Some(bytes) = &page.bytes {
                out.extend_from_slice(&bytes[..]);
            }
        }
        out[pages_at..pages_at + 4].copy_from_slice(&pages.to_le_bytes());
        let len = out.len() as u64;
        out[16..HEADER_BYTES].copy_from_slice(&len.to_le_bytes());
        let sum = crc32c::crc32c(&out[16..]);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        Ok(out)
    }

    /// Goes on with a session that another process left: the volume is active as it was there. Reads
    /// superblock, descriptors and the table's header, and writes nothing. The caller has seen to it that
    /// nobody wrote the volume in between.
    ///
    /// # Errors
    /// What does not fit: the session must begin by [`Volume::attach`].
    pub fn take_over<'a>(
        dev: &'a mut (dyn ReadAt + 'a),
        table: Option<&'a mut (dyn ReadAt + 'a)>,
        config: EngineConfig,
        given: HandOver,
    ) -> Result<(Volume, AttachReport), String> {
        let mut backings = Backings { dev, table };
        let bytes = backings.dev.size_bytes().map_err(|e| e.to_string())?;
        let layout = Arc::new(Layout::read(backings.dev).map_err(|e| e.to_string())?);
        layout.unsupported().map_err(|e| e.to_string())?;
        if layout.has_errors() {
            return Err("the file system recorded errors".into());
        }
        let found = Volume::find_table(&mut backings, &layout).map_err(|_| "its table is not found")?;
        let home = &found.home;
        if (home.volume_id, home.generation, home.slot)
            != (given.volume_id, given.generation, usize::from(given.slot))
        {
            return Err("the table's header is another".into());
        }
        if (given.mark == MarkState::Stands) != found.header.mark.is_some() {
            return Err("the mark is not as it was left".into());
        }
        if given.bitmap_checksums.len() != layout.group_count() as usize
            || given.bitmaps_written.max().is_some_and(|g| g >= layout.group_count())
            || given.backups.len() != layout.copies().len()
            || given.backups_written.iter().any(|g| layout.copies().binary_search(&g).is_err())
        {
            return Err("it is of a volume with other block groups".into());
        }
        let forbidden = found.file.as_ref().map_or(Vec::new(), |f| f.blocks.clone());
        let live = Liveness::from_parts(layout.clone(), &forbidden, given.parts)?;
        let table = rebuild(&found, &live, &config, &given.pages, &given.verified)?;
        if table.len() as u64 != given.replicas {
            return Err(format!("{} of {} replicas may be where they are", table.len(), given.replicas));
        }
        if let Some(block) = misplaced(&table, &live) {
            return Err(format!("block {block} holds a replica and is not free"));
        }
        let mut volume = Volume::assemble(bytes, Some(layout.clone()), config);
        volume.table = table;
        if volume.config.distrust {
            volume.table.all_unverified();
        }
        volume.live = Some(live);
        volume.standing = Standing::Active;
        volume.mark = given.mark;
        volume.home = Some(found.home);
        volume.bitmap_checksums = Arc::new(given.bitmap_checksums);
        volume.bitmaps_written = given.bitmaps_written.iter().collect();
        volume.backups = Arc::new(given.backups);
        volume.backups_written = given.backups_written.iter().collect();
        volume.write_failed = given.flags & FLAG_WRITE_FAILED != 0;
        volume.copies_off = given.flags & FLAG_COPIES_OFF != 0;
        volume.copying = volume.free_share() > volume.config.watermarks.low();
        let unverified = volume.table.unverified_count();
        let report = AttachReport {
            uuid: Some(layout.superblock().uuid()),
            verified: volume.table.len() - unverified,
            unverified,
            table: None,
        };
        Ok((volume, report))
    }
}

/// The table from its pages, by the same checks as one on disk.
fn rebuild(
    found: &Found,
    live: &Liveness,
    config: &EngineConfig,
    pages: &[Page],
    verified: &RoaringBitmap,
) -> Result<ReplicaTable, String> {
    let home = &found.home;
    let forbidden = |b: BlockNo| !live.in_universe(b);
    let own = |b: BlockNo| home.touches(BlockRange::one(b));
    let limits = Limits {
        first_block: BlockNo(live.layout().first_data_block()),
        blocks: live.layout().blocks(),
        degree: config.degree,
        forbidden: &forbidden,
        forbidden_original: &own,
        trust_verified: true,
    };
    let mut recovery = Recovery::new(home.geometry, &found.header, limits);
    if pages.last().is_some_and(|p| p.number >= recovery.pages()) {
        return Err("its table has more pages".into());
    }
    let mut next = pages.iter().peekable();
    let empty = [0; PAGE_BYTES];
    for number in 0..recovery.pages() {
        let page = next.next_if(|p| p.number == number);
        recovery.feed(number, page.and_then(|p| p.bytes.as_deref()).unwrap_or(&empty));
    }
    let (mut table, report) = recovery.finish();
    if !report.is_clean() {
        return Err(format!("its table: {report}"));
    }
    let all: Vec<(BlockNo, Trust)> = table.iter().map(|r| (r.replica, r.trust)).collect();
    for (replica, had) in all {
        let trust = if verified.contains(replica.0) { Trust::Verified } else { Trust::Unverified };
        if trust != had {
            table.set_trust(replica, trust);
        }
    }
    for page in pages.iter().filter(|p| p.differs) {
        table.mark_dirty(page.number);
    }
    Ok(table)
}

/// A replica in a block that is not free, of a group whose bitmap is known (invariant I1).
fn misplaced(table: &ReplicaTable, live: &Liveness) -> Option<BlockNo> {
    let known = |b: BlockNo| live.is_loaded(live.layout().group_of(b));
    table.iter().map(|r| r.replica).find(|&b| known(b) && !live.is_free(b))
}
