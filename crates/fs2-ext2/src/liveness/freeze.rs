//! Invariant I4: what ends all trust in F, most of it read from the superblocks that a client writes.

use std::fmt;

use super::Liveness;

/// Why the daemon stopped trusting its notion of free blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// A superblock with another magic number, UUID or geometry was written.
    Superblock(&'static str),
    /// A feature outside the allow-list was set in the superblock.
    Feature,
    /// The file system marked itself as holding errors.
    Errors,
    /// A group descriptor that moves a bitmap or an inode table was written.
    Descriptor(u32),
    /// The volume was mounted again without an orderly unmount or a check in between.
    SecondMount,
    /// A check mended the volume after a mount that had not ended: which blocks files have now it knows, and
    /// nobody below.
    Checked,
    /// Something wrote to the backing behind the daemon's back.
    ForeignWriter,
    /// Data and table contradict each other.
    BrokenInvariant(&'static str),
}

impl fmt::Display for Freeze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Freeze::Superblock(what) => write!(f, "the superblock's {what} was changed"),
            Freeze::Feature => f.write_str("a feature FS2 does not support was switched on"),
            Freeze::Errors => f.write_str("the file system recorded errors"),
            Freeze::Descriptor(g) => write!(f, "the descriptor of block group {g} was moved"),
            Freeze::SecondMount => f.write_str("the volume was mounted again without an orderly unmount"),
            Freeze::Checked => f.write_str("the volume was checked after a mount that had not ended"),
            Freeze::ForeignWriter => f.write_str("the backing was written behind the daemon's back"),
            Freeze::BrokenInvariant(what) => write!(f, "broken invariant: {what}"),
        }
    }
}

const VALID_FS: u16 = 1;
const ERROR_FS: u16 = 2;

fn u16_at(b: &[u8; 1024], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

pub(super) fn state(b: &[u8; 1024]) -> u16 {
    u16_at(b, 58)
}

pub(super) fn mnt_count(b: &[u8; 1024]) -> u16 {
    u16_at(b, 52)
}

fn last_check(b: &[u8; 1024]) -> [u8; 4] {
    [b[64], b[65], b[66], b[67]]
}

/// Superblock fields that may not change while F is trusted: offset, length, name.
pub(super) const FIXED: [(usize, usize, &str); 9] = [
    (56, 2, "magic number"),
    (104, 16, "UUID"),
    (4, 4, "block count"),
    (20, 4, "first data block"),
    (24, 4, "block size"),
    (32, 4, "blocks per group"),
    (40, 4, "inodes per group"),
    (76, 4, "revision"),
    (88, 2, "inode size"),
];

/// Feature bits that a running ext4 or ext2 mount may set: compat, incompat, ro_compat.
/// ext_attr, resize_inode, dir_index, dir_prealloc; filetype; sparse_super, large_file.
const ALLOWED_FEATURES: [(usize, u32); 3] = [(92, 0x39), (96, 0x2), (100, 0x3)];

impl Liveness {
    pub(super) fn superblock_seen(&mut self, changed: bool) -> Option<Freeze> {
        let (now, then) = (&self.superblock, &self.at_attach);
        for (at, len, name) in FIXED {
            if now[at..at + len] != then[at..at + len] {
                return Some(Freeze::Superblock(name));
            }
        }
        for (at, allowed) in ALLOWED_FEATURES {
            let bits = u32::from_le_bytes([now[at], now[at + 1], now[at + 2], now[at + 3]]);
            if bits & !allowed != 0 {
                return Some(Freeze::Feature);
            }
        }
        if state(now) & ERROR_FS != 0 {
            return Some(Freeze::Errors);
        }
        let (valid, mounts) = (state(now) & VALID_FS != 0, mnt_count(now));
        let was = &mut self.at_attach;
        // `at_attach` keeps the last state and mount count seen, beside the fixed fields.
        let (was_valid, had_mounts) = (state(was) & VALID_FS != 0, mnt_count(was));
        // The kernel counts on from 65,535 to 0, from where `tune2fs -C` is not far.
        let again = !was_valid && (mounts > had_mounts || mounts == 0 && had_mounts == u16::MAX);
        // A kernel's unmount, freeze or remount leaves the time of the last check and never lowers the count;
        // e2fsck sets the one and clears the other, in one write or field by field before the state.
        self.mended |= !was_valid && (mounts < had_mounts || last_check(now) != last_check(was));
        let checked = valid && std::mem::take(&mut self.mended);
        was[64..68].copy_from_slice(&now[64..68]);
        was[52..54].copy_from_slice(&mounts.to_le_bytes());
        was[58..60].copy_from_slice(&now[58..60]);
        if again {
            return Some(Freeze::SecondMount);
        }
        if checked {
            return Some(Freeze::Checked);
        }
        // Tools write their superblock last, and it is another then: one that is the same lay beside something else. A mount does not
        // end what was left before it.
        if changed && valid && was_valid {
            self.announced();
        }
        if changed {
            self.set_unannounced.clear();
        }
        self.mounted = !valid;
        None
    }

    /// Whether the superblock says: cleanly unmounted, no errors.
    pub fn is_clean(&self) -> bool {
        state(&self.superblock) & (VALID_FS | ERROR_FS) == VALID_FS
    }
}
