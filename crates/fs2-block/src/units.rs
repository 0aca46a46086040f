//! Units. Conversions are named; arithmetic that could lose a unit is not offered.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Bytes in a sector, the unit of drives and traces.
pub const SECTOR_BYTES: u64 = 512;

/// A 512-byte sector's number from the start of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sector(pub u64);

/// A file-system block's number. ext2 without the 64bit feature counts blocks in 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNo(pub u32);

impl fmt::Display for BlockNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl BlockNo {
    /// The bytes this block occupies.
    pub fn extent(self, size: BlockSize) -> Extent {
        Extent::new(size.bytes_of(self.0), u64::from(size.bytes()))
    }

    /// The first sector of this block.
    pub fn sector(self, size: BlockSize) -> Sector {
        Sector(size.bytes_of(self.0) / SECTOR_BYTES)
    }

    /// The block `n` further on.
    ///
    /// # Panics
    /// Where the sum leaves 32 bits: callers stay inside a validated volume.
    pub fn plus(self, n: u32) -> BlockNo {
        BlockNo(self.0.checked_add(n).expect("block number within 32 bits"))
    }
}

/// The size of a file-system block: 1024, 2048 or 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize(u32);

impl BlockSize {
    /// 4096 bytes, what mke2fs chooses for all but tiny volumes.
    pub const B4096: BlockSize = BlockSize(4096);
    /// 1024 bytes.
    pub const B1024: BlockSize = BlockSize(1024);

    /// A block size, or `None` where FS² does not support it.
    pub fn new(bytes: u32) -> Option<BlockSize> {
        matches!(bytes, 1024 | 2048 | 4096).then_some(BlockSize(bytes))
    }

    /// Bytes in a block.
    pub fn bytes(self) -> u32 {
        self.0
    }

    /// Sectors in a block: 2, 4 or 8.
    pub fn sectors(self) -> u32 {
        self.0 / SECTOR_BYTES as u32
    }

    /// The byte offset of block `block`, or the bytes in `block` many blocks.
    pub fn bytes_of(self, block: u32) -> u64 {
        u64::from(block) * u64::from(self.0)
    }
}

/// Blocks `start..end`, half open. Every empty range is equal to [`BlockRange::EMPTY`] once built
/// by [`BlockRange::new`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockRange {
    start: u32,
    end: u32,
}

impl fmt::Display for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len() {
            0 => write!(f, "no block"),
            1 => write!(f, "{}", self.start),
            _ => write!(f, "{}-{}", self.start, self.end - 1),
        }
    }
}

impl BlockRange {
    /// No block.
    pub const EMPTY: BlockRange = BlockRange { start: 0, end: 0 };

    /// Blocks `start..end`; empty where `end <= start`.
    pub fn new(start: u32, end: u32) -> BlockRange {
        if end <= start { BlockRange::EMPTY } else { BlockRange { start, end } }
    }

    /// `len` blocks from `first`.
    ///
    /// # Panics
    /// Where the end leaves 32 bits.
    pub fn at(first: BlockNo, len: u32) -> BlockRange {
        BlockRange::new(first.0, first.plus(len).0)
    }

    /// One block.
    pub fn one(block: BlockNo) -> BlockRange {
        BlockRange::at(block, 1)
    }

    /// First block's number (0 where empty).
    pub fn start(self) -> u32 {
        self.start
    }

    /// One past the last block.
    pub fn end(self) -> u32 {
        self.end
    }

    /// First block.
    pub fn first(self) -> BlockNo {
        BlockNo(self.start)
    }

    /// Number of blocks.
    pub fn len(self) -> u32 {
        self.end - self.start
    }

    /// Whether there is no block in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether `block` is in it.
    pub fn contains(self, block: BlockNo) -> bool {
        (self.start..self.end).contains(&block.0)
    }

    /// Whether the two have a block in common.
    pub fn overlaps(self, other: BlockRange) -> bool {
        !self.intersect(other).is_empty()
    }

    /// The blocks in both.
    pub fn intersect(self, other: BlockRange) -> BlockRange {
        BlockRange::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// Each block in order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = BlockNo> + ExactSizeIterator {
        (self.start..self.end).map(BlockNo)
    }

    /// The bytes these blocks occupy.
    pub fn extent(self, size: BlockSize) -> Extent {
        Extent::new(size.bytes_of(self.start), size.bytes_of(self.len()))
    }
}

/// Bytes `offset..offset + len` of the volume. Clients may address single bytes (NBD does).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    offset: u64,
    len: u64,
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.offset, self.len)
    }
}

impl Extent {
    /// `len` bytes from `offset`.
    ///
    /// # Panics
    /// Where the end leaves 63 bits; frontends check foreign numbers with [`Extent::checked`].
    pub fn new(offset: u64, len: u64) -> Extent {
        Extent::checked(offset, len).expect("extent within 63 bits")
    }

    /// `len` bytes from `offset`, or `None` where the end leaves 63 bits.
    pub fn checked(offset: u64, len: u64) -> Option<Extent> {
        let end = offset.checked_add(len)?;
        (end <= i64::MAX as u64).then_some(Extent { offset, len })
    }

    /// First byte.
    pub fn offset(self) -> u64 {
        self.offset
    }

    /// Number of bytes.
    pub fn len(self) -> u64 {
        self.len
    }

    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.offset + self.len
    }

    /// Whether it holds no byte.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Whether the two have a byte in common.
    pub fn overlaps(self, other: Extent) -> bool {
        self.len > 0 && other.len > 0 && self.offset < other.end() && other.offset < self.end()
    }

    /// The bytes in both, `None` where there are none.
    pub fn intersect(self, other: Extent) -> Option<Extent> {
        let start = self.offset.max(other.offset);
        let end = self.end().min(other.end());
        (start < end).then(|| Extent { offset: start, len: end - start })
    }

    /// First sector touched.
    pub fn sector(self) -> Sector {
        Sector(self.offset / SECTOR_BYTES)
    }

    /// Sectors touched, whole or in part.
    pub fn sectors(self) -> u64 {
        if self.len == 0 { 0 } else { self.end().div_ceil(SECTOR_BYTES) - self.offset / SECTOR_BYTES }
    }

    /// Blocks it touches, whole or in part. What lies beyond 2³² blocks is left out: no ext2
    /// block is there.
    pub fn blocks_touched(self, size: BlockSize) -> BlockRange {
        if self.len == 0 {
            return BlockRange::EMPTY;
        }
        let b = u64::from(size.bytes());
        BlockRange::new(clamp(self.offset / b), clamp(self.end().div_ceil(b)))
    }

    /// Blocks it covers whole.
    pub fn blocks_covered(self, size: BlockSize) -> BlockRange {
        let b = u64::from(size.bytes());
        BlockRange::new(clamp(self.offset.div_ceil(b)), clamp(self.end() / b))
    }
}

fn clamp(block: u64) -> u32 {
    u32::try_from(block).unwrap_or(u32::MAX)
}

/// A time or a duration in nanoseconds. The engine is told the time; it never asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// From whole milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    /// From fractional milliseconds, 0 where negative.
    pub fn from_millis_f64(ms: f64) -> Nanos {
        Nanos((ms * 1e6).max(0.0).round() as u64)
    }

    /// As fractional milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// As fractional seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time since `earlier`, 0 where that lies later.
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Nanos) {
        *self = *self + rhs;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, rhs: Nanos) -> Nanos {
        self.since(rhs)
    }
}

/// A share in thousandths, 0 to 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permille(u16);

impl Permille {
    /// A share, or `None` above 1000.
    pub fn new(permille: u16) -> Option<Permille> {
        (permille <= 1000).then_some(Permille(permille))
    }

    /// `part` of `whole`, rounded down, at most 1000; 0 of nothing is 0.
    pub fn of(part: u64, whole: u64) -> Permille {
        if whole == 0 {
            return Permille(0);
        }
        Permille((u128::from(part) * 1000 / u128::from(whole)).min(1000) as u16)
    }

    /// In thousandths.
    pub fn get(self) -> u16 {
        self.0
    }

    /// This share of `whole`, rounded down.
    pub fn share_of(self, whole: u64) -> u64 {
        (u128::from(whole) * u128::from(self.0) / 1000) as u64
    }
}

impl fmt::Display for Permille {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(10) {
            write!(f, "{} %", self.0 / 10)
        } else {
            write!(f, "{}.{} %", self.0 / 10, self.0 % 10)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn covered_is_within_touched(offset in 0u64..1 << 40, len in 0u64..1 << 24, shift in 10u32..13) {
            let bs = BlockSize::new(1 << shift).unwrap();
            let e = Extent::new(offset, len);
            let (t, c) = (e.blocks_touched(bs), e.blocks_covered(bs));
            prop_assert_eq!(c.intersect(t), c);
            prop_assert!(t.len() <= c.len() + 2);
            for b in t.iter() {
                let x = b.extent(bs);
                prop_assert!(x.overlaps(e));
                prop_assert_eq!(c.contains(b), e.intersect(x) == Some(x));
            }
        }
    }

    #[test]
    fn blocks_in_sectors_and_bytes() {
        let sizes = [(1024, 2), (2048, 4), (4096, 8)];
        for (bytes, sectors) in sizes {
            let bs = BlockSize::new(bytes).unwrap();
            assert_eq!((bs.bytes(), bs.sectors()), (bytes, sectors));
            assert_eq!(BlockNo(100).sector(bs), Sector(100 * u64::from(sectors)));
            assert_eq!(bs.bytes_of(u32::MAX), u64::from(u32::MAX) * u64::from(bytes));
            let two = BlockRange::new(3, 5).extent(bs);
            assert_eq!(two, Extent::new(3 * u64::from(bytes), 2 * u64::from(bytes)));
        }
        assert!([0, 512, 1023, 8192].iter().all(|&n| BlockSize::new(n).is_none()));
    }

    #[test]
    fn ranges_and_extents_as_people_read_them() {
        assert_eq!(BlockRange::new(5, 5).to_string(), "no block");
        assert_eq!(BlockRange::new(5, 6).to_string(), "5");
        assert_eq!(BlockRange::new(5, 9).to_string(), "5-8");
        assert_eq!(Extent::new(512, 1024).to_string(), "512+1024");
        assert_eq!(BlockNo(7).to_string(), "7");
        assert_eq!(Permille::new(150).unwrap().to_string(), "15 %");
    }

    proptest! {
        #[test]
        fn extents_agree_with_sets_of_bytes(a in 0u64..40, n in 0u64..12, b in 0u64..40, m in 0u64..12) {
            let (x, y) = (Extent::new(a, n), Extent::new(b, m));
            let common: Vec<u64> = (a..a + n).filter(|i| (b..b + m).contains(i)).collect();
            prop_assert_eq!(x.overlaps(y), !common.is_empty());
            prop_assert_eq!(x.is_empty(), n == 0);
            let got = x.intersect(y).map(|e| (e.offset()..e.end()).collect::<Vec<_>>());
            prop_assert_eq!(got, (!common.is_empty()).then_some(common));
            // The same with blocks.
            let (x, y) = (BlockRange::at(BlockNo(a as u32), n as u32), BlockRange::at(BlockNo(b as u32), m as u32));
            let common: Vec<BlockNo> = x.iter().filter(|i| y.contains(*i)).collect();
            prop_assert_eq!(x.overlaps(y), !common.is_empty());
            prop_assert_eq!(x.intersect(y).iter().collect::<Vec<_>>(), common);
            prop_assert_eq!((x.len() as u64, x.is_empty()), (n, n == 0));
        }

        #[test]
        fn extents_in_sectors(offset in 0u64..5000, len in 0u64..5000) {
            let e = Extent::new(offset, len);
            let touched: std::collections::BTreeSet<u64> = (offset..offset + len).map(|b| b / 512).collect();
            prop_assert_eq!(e.sectors(), touched.len() as u64);
            prop_assert_eq!(e.sector(), Sector(offset / 512));
        }
    }

    #[test]
    fn times() {
        assert_eq!(Nanos::from_millis(3), Nanos(3_000_000));
        assert_eq!(Nanos::from_millis_f64(1.5), Nanos(1_500_000));
        assert_eq!(Nanos::from_millis_f64(-1.5), Nanos(0));
        assert_eq!((Nanos(2_500_000).as_millis_f64(), Nanos(2_500_000_000).as_secs_f64()), (2.5, 2.5));
        assert_eq!((Nanos(5) - Nanos(3), Nanos(3) - Nanos(5)), (Nanos(2), Nanos(0)));
        let mut t = Nanos(u64::MAX - 1);
        t += Nanos(7);
        assert_eq!((t, Nanos(1) + Nanos(2)), (Nanos(u64::MAX), Nanos(3)));
        assert_eq!(
            (Permille::of(1, 3).get(), Permille::of(9, 3).get(), Permille::new(1001)),
            (333, 1000, None)
        );
    }

    #[test]
    fn foreign_numbers_are_checked() {
        assert_eq!(Extent::checked(u64::MAX, 1), None);
        assert_eq!(Extent::checked(i64::MAX as u64, 1), None);
        assert_eq!(Extent::checked(0, u64::MAX), None);
        assert!(Extent::checked(0, i64::MAX as u64).is_some());
    }

    #[test]
    fn shares() {
        assert_eq!(Permille::of(1, 0).get(), 0);
        assert_eq!(Permille::of(u64::MAX, u64::MAX).get(), 1000);
        assert_eq!(Permille::new(50).unwrap().share_of(1000), 50);
        assert_eq!(Permille::new(155).unwrap().to_string(), "15.5 %");
    }
}
