//! The block map of a new file: pointers in the inode, and what its indirect blocks hold.

use crate::inode::DIRECT;
use crate::raw::put32;
use fs2_block::{BlockNo, BlockRange, BlockSize};
use std::iter::Peekable;

/// A block map without holes.
pub(super) struct Tree {
    /// The inode's pointers.
    pub(super) root: [u32; 15],
    /// Each indirect block with its bytes, in the order a reader of the file meets them.
    pub(super) nodes: Vec<(BlockNo, Vec<u8>)>,
}

/// Cuts `ranges` behind their first `blocks` blocks.
pub(super) fn split(ranges: Vec<BlockRange>, blocks: u64) -> (Vec<BlockRange>, Vec<BlockRange>) {
    let mut left = blocks;
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    for range in ranges {
        let here = left.min(u64::from(range.len())) as u32;
        left -= u64::from(here);
        let cut = range.start() + here;
        head.push(BlockRange::new(range.start(), cut));
        tail.push(BlockRange::new(cut, range.end()));
    }
    head.retain(|range| !range.is_empty());
    tail.retain(|range| !range.is_empty());
    (head, tail)
}

/// Maps the blocks of `data`, in the order given, by indirect blocks taken from `nodes`, which
/// holds as many as are needed.
pub(super) fn build(size: BlockSize, data: &[BlockRange], nodes: &[BlockRange]) -> Tree {
    let mut builder = Builder {
        bytes: size.bytes() as usize,
        data: data.iter().flat_map(|range| range.iter()).peekable(),
        free: nodes.iter().flat_map(|range| range.iter()),
        nodes: Vec::new(),
    };
    let mut root = [0; 15];
    for pointer in &mut root[..DIRECT] {
        *pointer = builder.leaf();
    }
    for (level, pointer) in (1..).zip(&mut root[DIRECT..]) {
        *pointer = builder.node(level);
    }
    Tree { root, nodes: builder.nodes }
}

struct Builder<D: Iterator<Item = BlockNo>, F: Iterator<Item = BlockNo>> {
    bytes: usize,
    data: Peekable<D>,
    free: F,
    nodes: Vec<(BlockNo, Vec<u8>)>,
}

impl<D: Iterator<Item = BlockNo>, F: Iterator<Item = BlockNo>> Builder<D, F> {
    fn leaf(&mut self) -> u32 {
        self.data.next().map_or(0, |block| block.0)
    }

    /// An indirect block of `level` levels for the data that is left; 0 where there is none.
    fn node(&mut self, level: u32) -> u32 {
        if self.data.peek().is_none() {
            return 0;
        }
        // The number of nodes was worked out from the same data: a miscount is our own.
        let block = self.free.next().expect("as many indirect blocks as the data needs");
        let index = self.nodes.len();
        self.nodes.push((block, Vec::new()));
        let mut bytes = vec![0; self.bytes];
        for at in (0..self.bytes).step_by(4) {
            let pointer = if level == 1 { self.leaf() } else { self.node(level - 1) };
            put32(&mut bytes, at, pointer);
        }
        self.nodes[index].1 = bytes;
        block.0
    }
}
