//! What a block holds: in most cases two sectors, each filled with one small number.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Bytes of a block of the model's volume.
pub const BLOCK: usize = 1024;
/// Bytes of a sector, the unit in which writes of parts are told apart.
pub const SECTOR: usize = 512;

/// What fills a sector. 0 is zeroes.
pub type Value = u16;

/// What a block holds.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// Two sectors, each filled with a value.
    Cells([Value; 2]),
    /// Anything else: metadata, table pages.
    Raw(Arc<[u8]>),
}

impl Content {
    /// Both sectors filled with `value`.
    pub fn of(value: Value) -> Content {
        Content::Cells([value; 2])
    }

    /// What these bytes of a block are.
    ///
    /// # Panics
    /// Where they are not a block's.
    pub fn from_bytes(bytes: &[u8]) -> Content {
        assert_eq!(bytes.len(), BLOCK, "a block has {BLOCK} bytes");
        match (uniform(&bytes[..SECTOR]), uniform(&bytes[SECTOR..])) {
            (Some(a), Some(b)) => Content::Cells([a, b]),
            _ => Content::Raw(bytes.into()),
        }
    }

    /// Fills `to`, a block's bytes.
    pub fn put(&self, to: &mut [u8]) {
        match self {
            Content::Cells(cells) => {
                for (sector, value) in to.chunks_exact_mut(SECTOR).zip(cells) {
                    for pair in sector.chunks_exact_mut(2) {
                        pair.copy_from_slice(&value.to_le_bytes());
                    }
                }
            }
            Content::Raw(bytes) => to.copy_from_slice(bytes),
        }
    }

    /// The block's bytes.
    pub fn bytes(&self) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        self.put(&mut bytes);
        bytes
    }

    /// The values of its sectors, if it is made of such.
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

fn uniform(sector: &[u8]) -> Option<Value> {
    let first = [sector[0], sector[1]];
    sector.chunks_exact(2).all(|pair| pair == first).then(|| Value::from_le_bytes(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        for content in [Content::of(0), Content::of(0x1001), Content::Cells([1, 2])] {
            assert_eq!(Content::from_bytes(&content.bytes()), content);
        }
        let mut bytes = [7; BLOCK];
        bytes[900] = 1;
        assert!(matches!(Content::from_bytes(&bytes), Content::Raw(_)));
        assert_eq!(Content::from_bytes(&bytes).bytes(), bytes);
    }
}
