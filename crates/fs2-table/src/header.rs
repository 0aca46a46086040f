//! The header with the mark, in two slots written in turn (docs/format.md, "Header slot").
//!
//! H1: a mark is trusted only if nothing newer can have been in the other slot.

use crate::page::{PAGE_BYTES, is_zero, put, u32_at, u64_at};
use fs2_block::BlockSize;
use std::fmt;
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"FS2H");
/// The version of the table's format that this program reads and writes.
pub const FORMAT_VERSION: u32 = 1;
const FLAG_MARK: u32 = 1;
/// Nobody gets here by counting, and who counts on from here has room.
const GENERATION_MAX: u64 = u64::MAX / 2;
const SUPERBLOCK_AT: usize = 64;
const SUPERBLOCK_BYTES: usize = 1024;
const END: usize = SUPERBLOCK_AT + SUPERBLOCK_BYTES;

const _: () = assert!(MAGIC == 0x4832_5346);
const _: () = assert!(END == 1088 && END <= PAGE_BYTES);

/// What the volume looked like: compared at attach, bytes for bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Bytes 1024..2048 of the volume.
    pub superblock: [u8; 1024],
    /// xxh3-64 of the block group descriptors and of the hashes of the superblock's copies.
    pub groups_hash: u64,
}

/// In what a volume is not as a token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenDiffers {
    /// The primary superblock.
    Superblock,
    /// The group descriptors or a copy of the superblock.
    Groups,
    /// Who wrote the token left the copies of the superblock out: an FS2 of before they were compared.
    CopiesLeftOut,
}

impl Token {
    /// From the primary superblock, the group descriptors' bytes and [`Token::hash_copy`] of each copy of the superblock, in
    /// order of groups.
    pub fn new(superblock: [u8; 1024], descriptors: &[u8], copies: &[u64]) -> Token {
        let mut hash = Xxh3::new();
        hash.update(descriptors);
        copies.iter().for_each(|copy| hash.update(&copy.to_le_bytes()));
        Token { superblock, groups_hash: hash.digest() }
    }

    /// xxh3-64 of a copy of the superblock.
    pub fn hash_copy(copy: &[u8]) -> u64 {
        xxh3_64(copy)
    }

    /// In what a volume differs, given what [`Token::new`] takes.
    pub fn differs(
        &self,
        superblock: &[u8; 1024],
        descriptors: &[u8],
        copies: &[u64],
    ) -> Option<TokenDiffers> {
        if self.superblock != *superblock {
            Some(TokenDiffers::Superblock)
        } else if *self == Token::new(*superblock, descriptors, copies) {
            None
        } else if *self == Token::new(*superblock, descriptors, &[]) {
            Some(TokenDiffers::CopiesLeftOut)
        } else {
            Some(TokenDiffers::Groups)
        }
    }
}

impl fmt::Display for TokenDiffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TokenDiffers::Superblock => "the volume was changed outside FS2; what differs: superblock",
            TokenDiffers::Groups => {
                "the volume was changed outside FS2, perhaps mounted by a copy of its superblock (sb=) or copied without \
                 these (e2image); what differs: group descriptors or a copy of the superblock"
            }
            TokenDiffers::CopiesLeftOut => {
                "the mark is of an earlier FS2, which did not compare the copies of the superblock"
            }
        })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("superblock", &format_args!("xxh3 {:016x}", xxh3_64(&self.superblock)))
            .field("groups_hash", &format_args!("{:016x}", self.groups_hash))
            .finish()
    }
}

/// Says that verified pages may be trusted if the volume still looks like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What the volume looked like.
    pub token: Token,
    /// [`BitmapChecksums::hash`] of the area that belongs to this header's slot.
    pub bitmap_checksums_hash: u64,
    /// The page behind the last that holds an entry, [`crate::ReplicaTable::pages_end`]: this one and all behind it are zero. `None`
    /// where who wrote the mark did not say (an FS2 of before 2026-11-30).
    pub pages_end: Option<u32>,
}

/// A header slot's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Random; in every page, and the key of every content hash.
    pub volume_id: u64,
    /// From 1, at most half of what its type holds; each header written is one higher.
    pub generation: u64,
    /// The volume's.
    pub block_size: BlockSize,
    /// Entry pages of the table.
    pub pages: u32,
    /// Present while verified pages may be trusted.
    pub mark: Option<Box<Mark>>,
}

/// Why a header slot cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Neither zero nor a header.
    #[error("not a table header")]
    NotAHeader,
    /// Torn or decayed.
    #[error("checksum differs")]
    Checksum,
    /// Of a format this program does not know.
    #[error("format version {0}; this program knows {FORMAT_VERSION}")]
    Version(u32),
    /// Its checksum holds but no one who follows the format wrote it.
    #[error("against the format: {0}")]
    Malformed(&'static str),
    /// The device failed there.
    #[error("cannot be read")]
    Unread,
}

/// Why a mark that is there is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkRefused {
    /// The other slot may have been newer.
    #[error("the other header slot is damaged ({0}) and may have been newer")]
    OtherDamaged(Damage),
    /// The other slot was written at least once and is gone.
    #[error("the other header slot is empty but was written before")]
    OtherMissing,
    /// The other slot is of another table.
    #[error("the other header slot is of volume id {0:016x}")]
    OtherForeign(u64),
    /// Both slots have the same generation.
    #[error("both header slots have generation {0}")]
    SameGeneration(u64),
}

/// What was found in the two slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderReport {
    /// For each slot: its generation (`None` where it is empty) or what is wrong with it.
    pub slots: [Result<Option<u64>, Damage>; 2],
    /// Why the mark that was there is not in the header handed out.
    pub mark_refused: Option<MarkRefused>,
}

impl fmt::Display for HeaderReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (slot, found) in self.slots.iter().enumerate() {
            let sep = if slot == 0 { "" } else { ", " };
            match found {
                Ok(Some(generation)) => write!(f, "{sep}header slot {slot}: generation {generation}")?,
                Ok(None) => write!(f, "{sep}header slot {slot}: empty")?,
                Err(damage) => write!(f, "{sep}header slot {slot}: {damage}")?,
            }
        }
        match self.mark_refused {
            Some(why) => write!(f, "; mark not trusted: {why}"),
            None => Ok(()),
        }
    }
}

/// What [`Header::recover`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The header that counts, without its mark where that is not trusted; `None`: no table.
    pub header: Option<Header>,
    /// The slot it is in (0 where there is none). The next header goes to the other, and so does
    /// its checksum area.
    pub slot: usize,
    /// What was found.
    pub report: HeaderReport,
}

impl Recovered {
    /// The format version of a slot that this program does not know. Then the table is another program's, also
    /// where the other slot could be read: that one may be what an older version left.
    pub fn other_version(&self) -> Option<u32> {
        self.report.slots.iter().find_map(|slot| match slot {
            Err(Damage::Version(version)) => Some(*version),
            _ => None,
        })
    }

    /// The same of a slot that could not be read, where what was handed in for it is no header.
    #[must_use]
    pub fn unread(mut self, slot: usize) -> Recovered {
        self.report.slots[slot] = Err(Damage::Unread);
        if self.report.mark_refused.is_some() {
            self.report.mark_refused = Some(MarkRefused::OtherDamaged(Damage::Unread));
        }
        self
    }

    /// The slot that could not be read: it may hold a header with a higher generation than the one that counts.
    pub fn unread_slot(&self) -> Option<usize> {
        (0..2).find(|&slot| self.report.slots[slot] == Err(Damage::Unread))
    }
}

impl Header {
    /// The header of a fresh table, without mark: to be written to slot 0, slot 1 being zero.
    pub fn new(volume_id: u64, block_size: BlockSize, pages: u32) -> Header {
        Header { volume_id, generation: 1, block_size, pages, mark: None }
    }

    /// The header that follows this one, for the other slot.
    pub fn next(&self, mark: Option<Box<Mark>>) -> Header {
        Header { generation: self.generation + 1, mark, ..self.clone() }
    }

    /// A slot's bytes.
    pub fn encode(&self) -> [u8; PAGE_BYTES] {
        let mut bytes = [0; PAGE_BYTES];
        put(&mut bytes, 0, &MAGIC.to_le_bytes());
        put(&mut bytes, 8, &FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.generation.to_le_bytes());
        put(&mut bytes, 24, &self.volume_id.to_le_bytes());
        put(&mut bytes, 32, &self.block_size.bytes().to_le_bytes());
        put(&mut bytes, 36, &self.pages.to_le_bytes());
        if let Some(mark) = &self.mark {
            put(&mut bytes, 40, &FLAG_MARK.to_le_bytes());
            let told = mark.pages_end.and_then(|end| end.checked_add(1)).unwrap_or(0);
            put(&mut bytes, 44, &told.to_le_bytes());
            put(&mut bytes, 48, &mark.token.groups_hash.to_le_bytes());
            put(&mut bytes, 56, &mark.bitmap_checksums_hash.to_le_bytes());
            put(&mut bytes, SUPERBLOCK_AT, &mark.token.superblock);
        }
        let crc = crc32c::crc32c(&bytes[8..]);
        put(&mut bytes, 4, &crc.to_le_bytes());
        bytes
    }

    /// Parses a slot; `None` where all of it is zero.
    ///
    /// # Errors
    /// What is wrong with it; a slice of another length is [`Damage::NotAHeader`].
    pub fn parse(bytes: &[u8]) -> Result<Option<Header>, Damage> {
        if bytes.len() != PAGE_BYTES {
            return Err(Damage::NotAHeader);
        }
        if is_zero(bytes) {
            return Ok(None);
        }
        if u32_at(bytes, 0) != MAGIC {
            return Err(Damage::NotAHeader);
        }
        if u32_at(bytes, 4) != crc32c::crc32c(&bytes[8..]) {
            return Err(Damage::Checksum);
        }
        if u32_at(bytes, 8) != FORMAT_VERSION {
            return Err(Damage::Version(u32_at(bytes, 8)));
        }
        let flags = u32_at(bytes, 40);
        if flags & !FLAG_MARK != 0
            || !is_zero(&bytes[12..16])
            || !is_zero(&bytes[END..])
            || (flags == 0 && !is_zero(&bytes[44..END]))
        {
            return Err(Damage::Malformed("bits without meaning"));
        }
        let block_size = BlockSize::new(u32_at(bytes, 32)).ok_or(Damage::Malformed("block size"))?;
        let generation = u64_at(bytes, 16);
        if generation == 0 || generation > GENERATION_MAX {
            return Err(Damage::Malformed("generation"));
        }
        let pages = u32_at(bytes, 36);
        let pages_end = u32_at(bytes, 44).checked_sub(1);
        if pages_end.is_some_and(|end| end > pages) {
            return Err(Damage::Malformed("pages in use"));
        }
        let mark = (flags & FLAG_MARK != 0).then(|| {
            let superblock = std::array::from_fn(|i| bytes[SUPERBLOCK_AT + i]);
            Box::new(Mark {
                token: Token { superblock, groups_hash: u64_at(bytes, 48) },
                bitmap_checksums_hash: u64_at(bytes, 56),
                pages_end,
            })
        });
        Ok(Some(Header { volume_id: u64_at(bytes, 24), generation, block_size, pages, mark }))
    }

    /// The header that counts, from both slots' bytes: the valid one with the higher generation
    /// (slot 0 where equal). Its mark is kept only where the other slot cannot have been newer.
    pub fn recover(slot0: &[u8], slot1: &[u8]) -> Recovered {
        let parsed = [Header::parse(slot0), Header::parse(slot1)];
        let generations = parsed.each_ref().map(|p| match p {
            Ok(header) => Ok(header.as_ref().map(|h| h.generation)),
            Err(damage) => Err(*damage),
        });
        let mut report = HeaderReport { slots: generations, mark_refused: None };
        let generation = |slot: usize| generations[slot].ok().flatten();
        let slot = usize::from(generation(1) > generation(0));
        let [zero, one] = parsed;
        let (mine, other) = if slot == 0 { (zero, one) } else { (one, zero) };
        let Ok(Some(mut header)) = mine else {
            return Recovered { header: None, slot: 0, report };
        };
        // Keeps H1. An empty slot is innocent only beside the first header ever written.
        let refused = match other {
            Err(damage) => Some(MarkRefused::OtherDamaged(damage)),
            Ok(None) => (header.generation > 1).then_some(MarkRefused::OtherMissing),
            Ok(Some(o)) if o.volume_id != header.volume_id => Some(MarkRefused::OtherForeign(o.volume_id)),
            Ok(Some(o)) => {
                (o.generation == header.generation).then_some(MarkRefused::SameGeneration(o.generation))
            }
        };
        if header.mark.is_some() && refused.is_some() {
            header.mark = None;
            report.mark_refused = refused;
        }
        Recovered { header: Some(header), slot, report }
    }
}

/// crc32c of each group's bitmap block, as it was when the mark was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapChecksums(pub Vec<u32>);

/// The area is not what its mark was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumsDamage {
    /// Fewer bytes than groups.
    #[error("{bytes} bytes of bitmap checksums for {groups} groups")]
    Short {
        /// Bytes handed in.
        bytes: usize,
        /// Groups of the volume.
        groups: u32,
    },
    /// The hash differs from the mark's.
    #[error("bitmap checksums are not those the mark was written for")]
    Hash,
}

impl BitmapChecksums {
    /// The checksum of one group's bitmap block (all of the block's bytes).
    pub fn of_bitmap(block: &[u8]) -> u32 {
        crc32c::crc32c(block)
    }

    /// The area's bytes, padded with zeros to a multiple of 4096.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.unpadded();
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        bytes
    }

    /// What the mark holds of them; `key` is [`Header::volume_id`].
    pub fn hash(&self, key: u64) -> u64 {
        xxh3_64_with_seed(&self.unpadded(), key)
    }

    /// From the area's bytes, which may be longer; `expected` is the mark's hash.
    ///
    /// # Errors
    /// Where the bytes are too few or not those the mark was written for.
    pub fn decode(
        bytes: &[u8],
        groups: u32,
        key: u64,
        expected: u64,
    ) -> Result<BitmapChecksums, ChecksumsDamage> {
        let used = (groups as usize)
            .checked_mul(4)
            .and_then(|n| bytes.get(..n))
            .ok_or(ChecksumsDamage::Short { bytes: bytes.len(), groups })?;
        if xxh3_64_with_seed(used, key) != expected {
            return Err(ChecksumsDamage::Hash);
        }
        Ok(BitmapChecksums(used.chunks_exact(4).map(|c| u32_at(c, 0)).collect()))
    }

    fn unpadded(&self) -> Vec<u8> {
        self.0.iter().flat_map(|c| c.to_le_bytes()).collect()
    }
}
