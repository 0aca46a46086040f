//! What the mark on disk promises, read from `docs/format.md` alone.
//!
//! A mark that would be trusted promises: the volume is as its token says; no block in use is free in its
//! bitmap; each entry of a verified page has the hash of what its original holds; no page behind those in use holds anything.

use fs2_block::Extent;
use xxhash_rust::xxh3::xxh3_64;

use super::device::Device;
use super::image::{self, Plan};
use crate::glue::Ground;

const PAGE: usize = 4096;

/// An entry of a verified page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The block copied.
    pub original: u32,
    /// Where the copy is.
    pub replica: u32,
    /// What the original holds, hashed.
    pub hash: u64,
}

/// What the next attach would trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// Entries of verified pages.
    pub entries: Vec<Promise>,
    /// A page that is said to be zero and is not.
    pub not_zero: Option<u32>,
}

/// `None` where the next attach would trust nothing.
pub fn promises(ground: &Ground, devices: &[Device; 2]) -> Option<Promised> {
    let home = &devices[usize::from(ground.apart)];
    let size = ground.plan.grain.block();
    let read = |page: usize| {
        let blocks = &ground.table_blocks[page * PAGE / size..][..PAGE / size];
        let read = |b: &u32| home.read(Extent::new(u64::from(*b) * size as u64, size as u64));
        blocks.iter().flat_map(read).collect::<Vec<u8>>()
    };
    // Without a mark in the newer slot, sound or not, nothing is trusted; most states end here.
    let first = [0, 1].map(|slot| {
        let block = ground.table_blocks[slot * PAGE / size];
        home.read(Extent::new(u64::from(block) * size as u64, 64))
    });
    let newer = usize::from(u64_at(&first[1], 16) > u64_at(&first[0], 16));
    if u32_at(&first[newer], 40) & 1 == 0 {
        return None;
    }
    let slots = [read(0), read(1)];
    let valid = slots.each_ref().map(|s| is_sound(s, b"FS2H").then(|| u64_at(s, 16)));
    // The higher generation counts; the other must be sound too, and older.
    let [Some(a), Some(b)] = valid else { return None };
    if a == b {
        return None;
    }
    let slot = &slots[usize::from(b > a)];
    let marked = u32_at(slot, 40) & 1 == 1;
    let superblock = devices[0].read(Extent::new(image::SUPERBLOCK, 1024));
    let clean = superblock[image::STATE] & 3 == 1;
    if !marked || !clean || slot[64..64 + 1024] != superblock {
        return None;
    }
    if u64_at(slot, 48) != groups_hash(ground, &devices[0], &superblock) {
        return None;
    }
    if !ground.apart {
        // A table without an inode is found by nobody.
        let (at, len) = ground.plan.table_inode();
        if u32_at(&devices[0].read(Extent::new(at, len as u64)), 4) == 0 {
            return None;
        }
    }
    let generation = u64_at(slot, 16);
    let first = 2 + 2;
    let mut all = Promised::default();
    let in_use = match u32_at(slot, 44) {
        0 => u32::MAX,
        told => told - 1,
    };
    for number in 0..u32_at(slot, 36) {
        let page = read(first + number as usize);
        if number >= in_use && page.iter().any(|byte| *byte != 0) {
            all.not_zero = all.not_zero.or(Some(number));
        }
        let ours = is_sound(&page, b"FS2P") && u32_at(&page, 24) == number && u64_at(&page, 8) <= generation;
        if !ours || page[30] & 1 == 0 {
            continue;
        }
        let count = u16::from_le_bytes([page[28], page[29]]);
        for e in page[64..].chunks_exact(16).take(usize::from(count)) {
            all.entries.push(Promise { original: u32_at(e, 0), replica: u32_at(e, 4), hash: u64_at(e, 8) });
        }
    }
    Some(all)
}

/// Of the group descriptors, and of what each copy of the superblock hashes to.
fn groups_hash(ground: &Ground, volume: &Device, superblock: &[u8]) -> u64 {
    let plan = ground.plan;
    let blocks = u32_at(superblock, 4) - u32_at(superblock, 20);
    let groups = blocks.div_ceil(u32_at(superblock, 32));
    let at = u64::from(plan.descriptors()) * plan.grain.block() as u64;
    let mut bytes = volume.read(Extent::new(at, u64::from(groups) * 32));
    for group in (1..groups).filter(|g| Plan::has_backup(*g)) {
        let copy = volume.read(Extent::new(plan.backup(group), 1024));
        bytes.extend(xxh3_64(&copy).to_le_bytes());
    }
    xxh3_64(&bytes)
}

fn is_sound(page: &[u8], magic: &[u8; 4]) -> bool {
    page[..4] == magic[..] && u32_at(page, 4) == crc32c(&page[8..])
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

/// CRC-32C, a table of its own.
fn crc32c(bytes: &[u8]) -> u32 {
    static TABLE: [u32; 256] = table();
    !bytes.iter().fold(!0u32, |crc, b| crc >> 8 ^ TABLE[((crc ^ u32::from(*b)) & 0xff) as usize])
}

const fn table() -> [u32; 256] {
    let mut t = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut k = 0;
        while k < 8 {
            c = if c & 1 == 1 { c >> 1 ^ 0x82F6_3B78 } else { c >> 1 };
            k += 1;
        }
        t[i] = c;
        i += 1;
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glue::Setup;
    use std::sync::Arc;

    #[test]
    fn crc32c_of_the_check_string() {
        // The check value of CRC-32C in every catalogue.
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn a_fresh_volume_promises_an_empty_table() {
        let ground = Ground::new(&Setup::default(), &[(1100, 5)], &[]);
        let devices = [&ground.volume, &ground.table].map(|b| Device::new(Arc::clone(b), ground.plan.grain));
        assert_eq!(promises(&ground, &devices), Some(Promised::default()));
    }
}
