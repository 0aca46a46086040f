//! The superblock: 1,024 bytes at byte 1,024.
//!
//! S1: a [`Superblock`] that exists has a geometry that holds together: block size 1, 2 or 4 KiB,
//!     first data block, blocks and inodes per group, group count, inode size.
//! S2: its raw bytes are those it was parsed from.

use crate::features::{self, Features, OTHER_LAYOUT};
use crate::problem::Problem;
use crate::raw::{le16, le32, put16, put32};
use fs2_block::{BlockSize, WriteAt};

/// Bytes in a superblock, and its byte offset on the volume.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// Bytes in a group descriptor (without the 64bit feature).
pub const DESCRIPTOR_BYTES: u32 = 32;
/// Copies of the superblock that a volume may have beside the primary one: each is read at an attach, which takes a
/// disk some 8 s for so many (7 ms a group, as bitmaps: R0). With sparse_super there are at most 27. A guess at what is patience enough.
pub const COPIES_MAX: u32 = 1024;
/// `s_state`: unmounted in order.
pub const STATE_VALID: u16 = 1;
/// `s_state`: errors were found.
pub const STATE_ERROR: u16 = 2;

const INODES_COUNT: usize = 0;
const BLOCKS_COUNT: usize = 4;
const FREE_BLOCKS: usize = 12;
const FREE_INODES: usize = 16;
const FIRST_DATA_BLOCK: usize = 20;
const LOG_BLOCK_SIZE: usize = 24;
const LOG_FRAG_SIZE: usize = 28;
const BLOCKS_PER_GROUP: usize = 32;
const INODES_PER_GROUP: usize = 40;
const MOUNT_TIME: usize = 44;
const WRITE_TIME: usize = 48;
const MNT_COUNT: usize = 52;
const MAGIC: usize = 56;
const STATE: usize = 58;
const LAST_CHECK: usize = 64;
const REV_LEVEL: usize = 76;
const FIRST_INO: usize = 84;
const INODE_SIZE: usize = 88;
const COMPAT: usize = 92;
const INCOMPAT: usize = 96;
const RO_COMPAT: usize = 100;
const UUID: usize = 104;
const RESERVED_GDT: usize = 206;

/// A superblock whose geometry was checked. Counters, times and flags are as read.
#[derive(Clone, PartialEq, Eq)]
pub struct Superblock {
    raw: Box<[u8; SUPERBLOCK_BYTES]>,
    block_size: BlockSize,
    inode_size: u16,
    group_count: u32,
    descriptor_blocks: u32,
}

impl std::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Superblock")
            .field("blocks", &self.blocks_count())
            .field("block_size", &self.block_size.bytes())
            .field("groups", &self.group_count)
            .field("state", &self.state())
            .field("features", &self.features().names())
            .finish_non_exhaustive()
    }
}

fn wrong(what: String) -> Problem {
    Problem::corrupt("superblock at byte 1024", what)
}

impl Superblock {
    /// Checks `bytes` and keeps them. Features outside the allow-list pass here, so that they can
    /// be named later, unless they change where things lie.
    ///
    /// # Errors
    /// [`Problem::NotExt2`] without the magic number; [`Problem::Unsupported`] for a feature, a
    /// revision or a block size that changes the layout; [`Problem::Corrupt`] for a geometry that
    /// does not hold together.
    pub fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Superblock, Problem> {
        if le16(bytes, MAGIC) != 0xEF53 {
            return Err(Problem::NotExt2);
        }
        let mut sb = Superblock {
            raw: Box::new(*bytes),
            block_size: BlockSize::B1024,
            inode_size: 128,
            group_count: 0,
            descriptor_blocks: 0,
        };
        if sb.rev_level() > 1 {
            return Err(Problem::Unsupported { features: vec![format!("revision {}", sb.rev_level())] });
        }
        if sb.features().meets(OTHER_LAYOUT) {
            return Err(Problem::Unsupported { features: sb.features().without(features::ALLOWED).names() });
        }
        sb.check_geometry()?;
        Ok(sb)
    }

    fn check_geometry(&mut self) -> Result<(), Problem> {
        let log = self.log_block_size();
        if log > 6 {
            return Err(wrong(format!("log_block_size is {log}")));
        }
        let bytes = 1024u32 << log;
        self.block_size = BlockSize::new(bytes)
            .ok_or_else(|| Problem::Unsupported { features: vec![format!("block size {bytes}")] })?;
        if le32(&*self.raw, LOG_FRAG_SIZE) != log {
            return Err(wrong(format!("fragments of another size than blocks ({log})")));
        }
        let first = u32::from(bytes == 1024);
        if self.first_data_block() != first {
            return Err(wrong(format!("first_data_block is {}, not {first}", self.first_data_block())));
        }
        let bits = bytes * 8;
        let per_group = self.blocks_per_group();
        if per_group == 0 || !per_group.is_multiple_of(8) || per_group > bits {
            return Err(wrong(format!("blocks_per_group is {per_group}, not a multiple of 8 up to {bits}")));
        }
        if self.blocks_count() <= first {
            return Err(wrong(format!("blocks_count is {}", self.blocks_count())));
        }
        self.group_count = (self.blocks_count() - first).div_ceil(per_group);
        let inodes = self.inodes_per_group();
        if inodes == 0 || inodes > bits {
            return Err(wrong(format!("inodes_per_group is {inodes}, not 1 to {bits}")));
        }
        if u64::from(self.inodes_count()) != u64::from(inodes) * u64::from(self.group_count) {
            return Err(wrong(format!(
                "inodes_count is {}, not {inodes} in each of {} groups",
                self.inodes_count(),
                self.group_count
            )));
        }
        if self.rev_level() > 0 {
            let size = le16(&*self.raw, INODE_SIZE);
            if !size.is_power_of_two() || size < 128 || u32::from(size) > bytes {
                return Err(wrong(format!("inode_size is {size}")));
            }
            self.inode_size = size;
        }
        if self.first_ino() < 11 || self.first_ino() > self.inodes_count() {
            return Err(wrong(format!("first_ino is {}", self.first_ino())));
        }
        // At most 2^32 groups of 32 bytes in blocks of at least 1 KiB: fits.
        self.descriptor_blocks =
            (u64::from(self.group_count) * u64::from(DESCRIPTOR_BYTES)).div_ceil(u64::from(bytes)) as u32;
        // Bounds memory too: no more groups than descriptors fit into one group.
        let overhead = 1
            + u64::from(self.descriptor_blocks)
            + u64::from(self.reserved_gdt_blocks())
            + 2
            + self.inode_table_blocks();
        if overhead > u64::from(per_group) {
            return Err(wrong(format!("{overhead} blocks of metadata in groups of {per_group} blocks")));
        }
        Ok(())
    }

    /// The bytes it was parsed from.
    pub fn raw(&self) -> &[u8; SUPERBLOCK_BYTES] {
        &self.raw
    }

    /// Bytes in a block.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// log2 of the block size in KiB: 0, 1 or 2.
    pub fn log_block_size(&self) -> u32 {
        le32(&*self.raw, LOG_BLOCK_SIZE)
    }

    /// The magic number, 0xEF53.
    pub fn magic(&self) -> u16 {
        le16(&*self.raw, MAGIC)
    }

    /// The volume's id.
    pub fn uuid(&self) -> [u8; 16] {
        Superblock::uuid_in(&self.raw)
    }

    /// The volume's id in the bytes of a superblock.
    pub fn uuid_in(raw: &[u8; SUPERBLOCK_BYTES]) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&raw[UUID..UUID + 16]);
        uuid
    }

    /// Blocks in the volume, block 0 included.
    pub fn blocks_count(&self) -> u32 {
        le32(&*self.raw, BLOCKS_COUNT)
    }

    /// Blocks the superblock says are free.
    pub fn free_blocks_count(&self) -> u32 {
        le32(&*self.raw, FREE_BLOCKS)
    }

    /// Inodes the superblock says are free.
    pub fn free_inodes_count(&self) -> u32 {
        le32(&*self.raw, FREE_INODES)
    }

    /// Inodes in the volume.
    pub fn inodes_count(&self) -> u32 {
        le32(&*self.raw, INODES_COUNT)
    }

    /// The first block of group 0: 1 with blocks of 1 KiB, else 0.
    pub fn first_data_block(&self) -> u32 {
        le32(&*self.raw, FIRST_DATA_BLOCK)
    }

    /// Blocks in every group but the last.
    pub fn blocks_per_group(&self) -> u32 {
        le32(&*self.raw, BLOCKS_PER_GROUP)
    }

    /// Inodes in every group.
    pub fn inodes_per_group(&self) -> u32 {
        le32(&*self.raw, INODES_PER_GROUP)
    }

    /// Bytes in an inode: 128 or more, a power of two.
    pub fn inode_size(&self) -> u16 {
        self.inode_size
    }

    /// The first inode that is not reserved.
    pub fn first_ino(&self) -> u32 {
        if self.rev_level() == 0 { 11 } else { le32(&*self.raw, FIRST_INO) }
    }

    /// The revision: 0 or 1.
    pub fn rev_level(&self) -> u32 {
        le32(&*self.raw, REV_LEVEL)
    }

    /// The state flags: [`STATE_VALID`], [`STATE_ERROR`].
    pub fn state(&self) -> u16 {
        le16(&*self.raw, STATE)
    }

    /// Whether the volume was unmounted in order.
    pub fn is_clean(&self) -> bool {
        self.state() & STATE_VALID != 0
    }

    /// Whether errors were found.
    pub fn has_errors(&self) -> bool {
        self.state() & STATE_ERROR != 0
    }

    /// Mounts since the last full check.
    pub fn mnt_count(&self) -> u16 {
        le16(&*self.raw, MNT_COUNT)
    }

    /// Whether it was ever mounted for writing.
    pub(crate) fn was_mounted(&self) -> bool {
        le32(&*self.raw, MOUNT_TIME) != 0
    }

    /// Whether it tells of a full check after the last mount, and was not written since. e2fsck takes one time for both, when it begins,
    /// however long it takes.
    pub fn tells_of_check(&self) -> bool {
        let [mounted, written, checked] = [MOUNT_TIME, WRITE_TIME, LAST_CHECK].map(|at| le32(&*self.raw, at));
        self.mnt_count() == 0 && checked >= mounted && written == checked
    }

    /// Whether somebody used a copy of it instead since it was written last (`mount -o sb=`): who does writes that copy, and leaves this one
    /// as it was. Within a second it is not told.
    pub(crate) fn was_passed_over_for(&self, copy: &[u8; SUPERBLOCK_BYTES]) -> bool {
        let mounted = le32(copy, MOUNT_TIME) != 0 || le16(copy, MNT_COUNT) != 0;
        le32(copy, WRITE_TIME) > le32(&*self.raw, WRITE_TIME) || mounted && !self.was_mounted()
    }

    /// Whether a copy of it, or what it was before, tells of the same check.
    pub fn shares_check_with(&self, copy: &[u8; SUPERBLOCK_BYTES]) -> bool {
        le32(copy, LAST_CHECK) == le32(&*self.raw, LAST_CHECK)
    }

    /// The feature words. Also of a volume of revision 0, which should have none: the kernel goes by them there too.
    pub fn features(&self) -> Features {
        Features {
            compat: le32(&*self.raw, COMPAT),
            incompat: le32(&*self.raw, INCOMPAT),
            ro_compat: le32(&*self.raw, RO_COMPAT),
        }
    }

    /// Blocks reserved behind each copy of the descriptors for growing.
    pub fn reserved_gdt_blocks(&self) -> u16 {
        le16(&*self.raw, RESERVED_GDT)
    }

    /// Number of groups.
    pub fn group_count(&self) -> u32 {
        self.group_count
    }

    /// Blocks one copy of the descriptors takes.
    pub fn descriptor_blocks(&self) -> u32 {
        self.descriptor_blocks
    }

    /// Blocks of a group's inode table.
    pub fn inode_table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group()) * u64::from(self.inode_size))
            .div_ceil(u64::from(self.block_size.bytes()))
    }

    /// Whether group `group` begins with a copy of the superblock and the descriptors.
    pub fn has_copy(&self, group: u32) -> bool {
        let power_of = |base: u32| {
            let mut n = group;
            while n > 1 && n.is_multiple_of(base) {
                n /= base;
            }
            n == 1
        };
        group <= 1
            || self.features().ro_compat & features::RO_COMPAT_SPARSE_SUPER == 0
            || power_of(3)
            || power_of(5)
            || power_of(7)
    }

    /// Whether every feature is on the allow-list: what `mke2fs -t ext2` sets. Without sparse_super there may be
    /// [`COPIES_MAX`] copies.
    ///
    /// # Errors
    /// [`Problem::Unsupported`] names each other feature as dumpe2fs does; [`Problem::TooManyCopies`].
    pub fn unsupported(&self) -> Result<(), Problem> {
        let others = self.features().without(features::ALLOWED);
        let sparse = self.features().ro_compat & features::RO_COMPAT_SPARSE_SUPER != 0;
        match self.group_count() - 1 {
            _ if !others.is_empty() => Err(Problem::Unsupported { features: others.names() }),
            copies if !sparse && copies > COPIES_MAX => Err(Problem::TooManyCopies { copies }),
            _ => Ok(()),
        }
    }

    pub(crate) fn set_state(&mut self, state: u16) {
        put16(&mut *self.raw, STATE, state);
    }

    pub(crate) fn set_free_blocks(&mut self, blocks: u32) {
        put32(&mut *self.raw, FREE_BLOCKS, blocks);
    }

    /// The caller checked that the revision has feature words.
    pub(crate) fn set_large_file(&mut self) {
        let word = self.features().ro_compat | features::RO_COMPAT_LARGE_FILE;
        put32(&mut *self.raw, RO_COMPAT, word);
    }
}

/// Takes the clean flag off the superblock at byte 1024, durably, whatever else is wrong with it: who checks the volume next checks all of
/// it. Nothing is written where the flag is off already, or no superblock is there.
///
/// # Errors
/// [`Problem::Io`].
pub fn clear_clean_flag(dev: &mut dyn WriteAt) -> Result<(), Problem> {
    let mut raw = [0; SUPERBLOCK_BYTES];
    let at = raw.len() as u64;
    dev.read_at(at, &mut raw).map_err(|e| Problem::io("reading the superblock at byte 1024", e))?;
    let state = le16(&raw, STATE);
    if le16(&raw, MAGIC) != 0xEF53 || state & STATE_VALID == 0 {
        return Ok(());
    }
    put16(&mut raw, STATE, state & !STATE_VALID);
    dev.write_at(at, &raw).map_err(|e| Problem::io("writing the superblock at byte 1024", e))?;
    dev.flush().map_err(|e| Problem::io("flushing after clearing the clean flag", e))
}

/// A UUID as people write it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
