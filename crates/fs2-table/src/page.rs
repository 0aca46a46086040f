//! An entry page's bytes (docs/format.md, "Entry page").

/// Bytes of an entry page and of a header slot.
pub const PAGE_BYTES: usize = 4096;
/// Entries a page holds.
pub const PAGE_ENTRIES: usize = 248;

pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"FS2P");
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 16;
pub(crate) const WARMTH_RUN: usize = 8;
const WARMTHS: usize = PAGE_ENTRIES / WARMTH_RUN;
const WARMTHS_AT: usize = HEADER_BYTES + PAGE_ENTRIES * ENTRY_BYTES;
const FLAG_VERIFIED: u16 = 1;

const _: () = assert!(MAGIC == 0x5032_5346);
const _: () = assert!(WARMTHS == 31 && WARMTHS * WARMTH_RUN == PAGE_ENTRIES);
const _: () = assert!(WARMTHS_AT == 4032 && WARMTHS_AT + 2 * WARMTHS + 2 == PAGE_BYTES);
const _: () = assert!(size_of::<Entry>() == ENTRY_BYTES);

/// An entry as it lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) original: u32,
    pub(crate) replica: u32,
    pub(crate) hash: u64,
}

/// What a page's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub(crate) generation: u64,
    pub(crate) volume_id: u64,
    pub(crate) number: u32,
    pub(crate) count: usize,
    pub(crate) verified: bool,
}

/// Why a page is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageDamage {
    /// Neither zero nor an entry page.
    #[error("not an entry page")]
    NotAPage,
    /// Torn or decayed.
    #[error("checksum differs")]
    Checksum,
    /// Of another volume's or an older table.
    #[error("of volume id {0:016x}")]
    Foreign(u64),
    /// Written to the wrong place.
    #[error("says it is page {0}")]
    Misplaced(u32),
    /// Its checksum holds but no one who follows the format wrote it.
    #[error("against the format: {0}")]
    Malformed(&'static str),
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Whether every byte is zero, at the speed of memcmp.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    static ZERO: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    bytes.chunks(PAGE_BYTES).all(|c| *c == ZERO[..c.len()])
}

/// Encodes a page; one without entries is all zero. `entries` yields `header.count` of them,
/// ascending by replica; `warmth(run)` is the age and value of a run of eight.
pub(crate) fn encode(
    header: &PageHeader,
    entries: impl Iterator<Item = Entry>,
    warmth: impl Fn(usize) -> (u8, u8),
) -> Box<[u8; PAGE_BYTES]> {
    let mut page = Box::new([0; PAGE_BYTES]);
    if header.count == 0 {
        return page;
    }
    assert!(header.count <= PAGE_ENTRIES, "{} entries in a page of {PAGE_ENTRIES}", header.count);
    let bytes = &mut page[..];
    put(bytes, 0, &MAGIC.to_le_bytes());
    put(bytes, 8, &header.generation.to_le_bytes());
    put(bytes, 16, &header.volume_id.to_le_bytes());
    put(bytes, 24, &header.number.to_le_bytes());
    put(bytes, 28, &(header.count as u16).to_le_bytes());
    put(bytes, 30, &if header.verified { FLAG_VERIFIED } else { 0 }.to_le_bytes());
    let mut written = 0;
    for (slot, e) in entries.enumerate() {
        let at = HEADER_BYTES + slot * ENTRY_BYTES;
        put(bytes, at, &e.original.to_le_bytes());
        put(bytes, at + 4, &e.replica.to_le_bytes());
        put(bytes, at + 8, &e.hash.to_le_bytes());
        written += 1;
    }
    assert_eq!(written, header.count, "entries of page {}", header.number);
    for run in 0..header.count.div_ceil(WARMTH_RUN) {
        let (age, value) = warmth(run);
        put(bytes, WARMTHS_AT + 2 * run, &[age, value]);
    }
    let crc = crc32c::crc32c(&bytes[8..]);
    put(bytes, 4, &crc.to_le_bytes());
    page
}

/// Which page of the table of this volume id these 4096 bytes are, wherever they lie; `None` where they are none, or have no entries.
pub fn page_number(bytes: &[u8], volume_id: u64) -> Option<u32> {
    match RawPage::parse(bytes, 0, volume_id) {
        Ok(page) => page.map(|p| p.header.number),
        Err(PageDamage::Misplaced(number)) => Some(number),
        Err(_) => None,
    }
}

/// A page whose checksum, identity and order hold. Addresses are not looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawPage<'a> {
    pub(crate) header: PageHeader,
    bytes: &'a [u8],
}

impl RawPage<'_> {
    /// Parses 4096 bytes; `None` where all are zero.
    pub(crate) fn parse(
        bytes: &[u8],
        number: u32,
        volume_id: u64,
    ) -> Result<Option<RawPage<'_>>, PageDamage> {
        if is_zero(bytes) {
            return Ok(None);
        }
        if bytes.len() != PAGE_BYTES || u32_at(bytes, 0) != MAGIC {
            return Err(PageDamage::NotAPage);
        }
        if u32_at(bytes, 4) != crc32c::crc32c(&bytes[8..]) {
            return Err(PageDamage::Checksum);
        }
        let flags = u16_at(bytes, 30);
        let header = PageHeader {
            generation: u64_at(bytes, 8),
            volume_id: u64_at(bytes, 16),
            number: u32_at(bytes, 24),
            count: usize::from(u16_at(bytes, 28)),
            verified: flags & FLAG_VERIFIED != 0,
        };
        if header.volume_id != volume_id {
            return Err(PageDamage::Foreign(header.volume_id));
        }
        if header.number != number {
            return Err(PageDamage::Misplaced(header.number));
        }
        if header.count == 0 || header.count > PAGE_ENTRIES {
            return Err(PageDamage::Malformed("number of entries"));
        }
        if flags & !FLAG_VERIFIED != 0 || !is_zero(&bytes[32..HEADER_BYTES]) {
            return Err(PageDamage::Malformed("bits without meaning"));
        }
        let page = RawPage { header, bytes };
        if !is_zero(&bytes[HEADER_BYTES + header.count * ENTRY_BYTES..WARMTHS_AT]) {
            return Err(PageDamage::Malformed("more entries than it says"));
        }
        if (1..header.count).any(|i| page.entry(i - 1).replica >= page.entry(i).replica) {
            return Err(PageDamage::Malformed("order of entries"));
        }
        Ok(Some(page))
    }

    pub(crate) fn entry(&self, slot: usize) -> Entry {
        let at = HEADER_BYTES + slot * ENTRY_BYTES;
        Entry {
            original: u32_at(self.bytes, at),
            replica: u32_at(self.bytes, at + 4),
            hash: u64_at(self.bytes, at + 8),
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.header.count).map(|slot| self.entry(slot))
    }

    /// Age and value of the run of eight that `slot` is in.
    pub(crate) fn warmth(&self, slot: usize) -> (u8, u8) {
        let at = WARMTHS_AT + 2 * (slot / WARMTH_RUN);
        (self.bytes[at], self.bytes[at + 1])
    }
}
