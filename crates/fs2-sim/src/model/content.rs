//! What a block holds: in most cases two parts, each filled with one small number.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use fs2_block::BlockSize;

/// Bytes of a sector, the unit that power keeps or loses whole.
pub const SECTOR: usize = 512;

/// How finely a model looks at its blocks: each has two parts, written together or apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grain {
    /// The blocks' size.
    pub size: BlockSize,
    /// Bytes of a block's first part: one or two sectors.
    pub first: usize,
}

impl Grain {
    /// Blocks of 1 KiB, of two sectors.
    pub const SMALL: Grain = Grain { size: BlockSize::B1024, first: 512 };
    /// Blocks of 4 KiB, of one sector and the rest.
    pub const LARGE: Grain = Grain { size: BlockSize::B4096, first: 512 };
    /// Blocks of 4 KiB, of 1 KiB and the rest.
    pub const LARGE_BY_1K: Grain = Grain { size: BlockSize::B4096, first: 1024 };

    /// Bytes of a block.
    pub fn block(self) -> usize {
        self.size.bytes() as usize
    }

    /// Where a part begins in its block, and its bytes.
    pub fn part(self, part: usize) -> (usize, usize) {
        if part == 0 { (0, self.first) } else { (self.first, self.block() - self.first) }
    }
}

/// What fills a part. 0 is zeroes.
pub type Value = u16;

/// What a block holds.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// Two parts, each filled with a value.
    Cells([Value; 2]),
    /// Anything else: metadata, table pages.
    Raw(Arc<[u8]>),
}

impl Content {
    /// Both parts filled with `value`.
    pub fn of(value: Value) -> Content {
        Content::Cells([value; 2])
    }

    /// What these bytes of a block are.
    ///
    /// # Panics
    /// Where they are not a block's.
    pub fn from_bytes(bytes: &[u8], grain: Grain) -> Content {
        assert_eq!(bytes.len(), grain.block(), "a block has {} bytes", grain.block());
        let (first, rest) = bytes.split_at(grain.first);
        match (uniform(first), uniform(rest)) {
            (Some(a), Some(b)) => Content::Cells([a, b]),
            _ => Content::Raw(bytes.into()),
        }
    }

    /// The value that these bytes, a block's part, are filled with.
    pub fn part_from_bytes(bytes: &[u8]) -> Option<Value> {
        uniform(bytes)
    }

    /// Fills `to`, a block's bytes.
    pub fn put(&self, to: &mut [u8], grain: Grain) {
        match self {
            Content::Cells([a, b]) => {
                let (first, rest) = to.split_at_mut(grain.first);
                for (part, value) in [(first, a), (rest, b)] {
                    for pair in part.chunks_exact_mut(2) {
                        pair.copy_from_slice(&value.to_le_bytes());
                    }
                }
            }
            Content::Raw(bytes) => to.copy_from_slice(bytes),
        }
    }

    /// The block's bytes.
    pub fn bytes(&self, grain: Grain) -> Vec<u8> {
        let mut bytes = vec![0; grain.block()];
        self.put(&mut bytes, grain);
        bytes
    }

    /// The values of its parts, if it is made of such.
    pub fn cells(&self) -> Option<[Value; 2]> {
        match self {
            Content::Cells(cells) => Some(*cells),
            Content::Raw(_) => None,
        }
    }
}

impl Hash for Content {
    fn hash<H: Hasher>(&self, h: &mut H) {
        match self {
            Content::Cells(cells) => cells.hash(h),
            Content::Raw(bytes) => bytes.hash(h),
        }
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Content::Cells([a, b]) if a == b => write!(f, "{a:x}"),
            Content::Cells([a, b]) => write!(f, "{a:x}|{b:x}"),
            Content::Raw(bytes) => {
                let mut h = DefaultHasher::new();
                bytes.hash(&mut h);
                write!(f, "raw {:08x}", h.finish() as u32)
            }
        }
    }
}

fn uniform(part: &[u8]) -> Option<Value> {
    let first = [part[0], part[1]];
    part.chunks_exact(2).all(|pair| pair == first).then(|| Value::from_le_bytes(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        for grain in [Grain::SMALL, Grain::LARGE, Grain::LARGE_BY_1K] {
            for content in [Content::of(0), Content::of(0x1001), Content::Cells([1, 2])] {
                assert_eq!(Content::from_bytes(&content.bytes(grain), grain), content);
            }
            let mut bytes = vec![7; grain.block()];
            bytes[900] = 1;
            assert!(matches!(Content::from_bytes(&bytes, grain), Content::Raw(_)));
            assert_eq!(Content::from_bytes(&bytes, grain).bytes(grain), bytes);
        }
    }
}
