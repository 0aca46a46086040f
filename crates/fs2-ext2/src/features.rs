//! Feature bits, their names as dumpe2fs prints them, and the allow-list: what `mke2fs -t ext2`
//! sets.

/// The three feature words of a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Bits a kernel may ignore.
    pub compat: u32,
    /// Bits a kernel must know to mount.
    pub incompat: u32,
    /// Bits a kernel must know to write.
    pub ro_compat: u32,
}

/// Extended attributes.
pub const COMPAT_EXT_ATTR: u32 = 0x8;
/// Room for descriptors is reserved behind each copy of them.
pub const COMPAT_RESIZE_INODE: u32 = 0x10;
/// Hashed directories.
pub const COMPAT_DIR_INDEX: u32 = 0x20;
/// Directory entries carry the file's type.
pub const INCOMPAT_FILETYPE: u32 = 0x2;
/// A journal device, not a file system.
pub const INCOMPAT_JOURNAL_DEV: u32 = 0x8;
/// Descriptors lie in each meta group.
pub const INCOMPAT_META_BG: u32 = 0x10;
/// Block numbers of 64 bits.
pub const INCOMPAT_64BIT: u32 = 0x80;
/// Superblock copies only in groups 0, 1 and powers of 3, 5 and 7.
pub const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
/// Some file is, or was, of 2 GiB or more.
pub const RO_COMPAT_LARGE_FILE: u32 = 0x2;
/// Bitmaps count clusters.
pub const RO_COMPAT_BIGALLOC: u32 = 0x200;
/// Superblock copies in two groups of choice.
pub const COMPAT_SPARSE_SUPER2: u32 = 0x200;

/// What `mke2fs -t ext2` sets, and nothing else.
pub const ALLOWED: Features = Features {
    compat: COMPAT_EXT_ATTR | COMPAT_RESIZE_INODE | COMPAT_DIR_INDEX,
    incompat: INCOMPAT_FILETYPE,
    ro_compat: RO_COMPAT_SPARSE_SUPER | RO_COMPAT_LARGE_FILE,
};

/// What moves superblock copies, descriptors or the meaning of a bit: with one of these the layout
/// cannot even be read.
pub(crate) const OTHER_LAYOUT: Features = Features {
    compat: COMPAT_SPARSE_SUPER2,
    incompat: INCOMPAT_JOURNAL_DEV | INCOMPAT_META_BG | INCOMPAT_64BIT,
    ro_compat: RO_COMPAT_BIGALLOC,
};

// Names from e2fsprogs 1.47, lib/e2p/feature.c; a bit without a name prints as FEATURE_C13.
const COMPAT: [(u32, &str); 12] = [
    (0x1, "dir_prealloc"),
    (0x2, "imagic_inodes"),
    (0x4, "has_journal"),
    (0x8, "ext_attr"),
    (0x10, "resize_inode"),
    (0x20, "dir_index"),
    (0x40, "lazy_bg"),
    (0x100, "snapshot_bitmap"),
    (0x200, "sparse_super2"),
    (0x400, "fast_commit"),
    (0x800, "stable_inodes"),
    (0x1000, "orphan_file"),
];
const RO_COMPAT: [(u32, &str); 15] = [
    (0x1, "sparse_super"),
    (0x2, "large_file"),
    (0x8, "huge_file"),
    (0x10, "uninit_bg"),
    (0x20, "dir_nlink"),
    (0x40, "extra_isize"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x400, "metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (0x10000, "orphan_present"),
];
const INCOMPAT: [(u32, &str); 16] = [
    (0x1, "compression"),
    (0x2, "filetype"),
    (0x4, "needs_recovery"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extent"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x10000, "encrypt"),
    (0x20000, "casefold"),
];

impl Features {
    /// The bits of `self` that are not in `other`.
    pub fn without(self, other: Features) -> Features {
        Features {
            compat: self.compat & !other.compat,
            incompat: self.incompat & !other.incompat,
            ro_compat: self.ro_compat & !other.ro_compat,
        }
    }

    /// Whether the two have a bit in common.
    pub fn meets(self, other: Features) -> bool {
        self.compat & other.compat | self.incompat & other.incompat | self.ro_compat & other.ro_compat != 0
    }

    /// Whether no bit is set.
    pub fn is_empty(self) -> bool {
        self == Features::default()
    }

    /// The name of each bit that is set, in dumpe2fs's order: compat, incompat, ro_compat.
    pub fn names(self) -> Vec<String> {
        let mut names = Vec::new();
        for (word, known, letter) in [
            (self.compat, &COMPAT[..], 'C'),
            (self.incompat, &INCOMPAT[..], 'I'),
            (self.ro_compat, &RO_COMPAT[..], 'R'),
        ] {
            for bit in (0..32).filter(|bit| word & (1 << bit) != 0) {
                names.push(match known.iter().find(|(mask, _)| *mask == 1 << bit) {
                    Some((_, name)) => (*name).to_string(),
                    None => format!("FEATURE_{letter}{bit}"),
                });
            }
        }
        names
    }
}
