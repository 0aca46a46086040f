//! Which request follows which: the graph that ALIS's run clustering and BORG lay blocks out by.

use std::collections::{BTreeMap, VecDeque};

use fs2_block::BlockRange;

/// A directed edge's weight and when it was first seen: of equal edges the older counts as heavier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) weight: u32,
    pub(super) first: u64,
}

impl Edge {
    /// Ascending: the heaviest first, the oldest of equal ones.
    pub(super) fn order(&self) -> (std::cmp::Reverse<u32>, u64) {
        (std::cmp::Reverse(self.weight), self.first)
    }
}

/// See the module. A vertex is the blocks of a request, named by the first of them; its length is the longest
/// request that began there.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    window: u32,
    vertices: BTreeMap<u32, u32>,
    edges: BTreeMap<(u32, u32), (u32, u64)>,
    recent: VecDeque<u32>,
    seen: u64,
}

impl Graph {
    /// A request gets edges from so many before it: from the one just before of weight `window`, from each
    /// earlier one of one less.
    pub(super) fn new(window: u32) -> Graph {
        Graph { window, vertices: BTreeMap::new(), edges: BTreeMap::new(), recent: VecDeque::new(), seen: 0 }
    }

    /// A request for these blocks.
    pub(super) fn request(&mut self, blocks: BlockRange) {
        if blocks.is_empty() {
            return;
        }
        let to = blocks.start();
        let len = self.vertices.entry(to).or_default();
        *len = blocks.len().max(*len);
        for (weight, &from) in (1..=self.window).rev().zip(&self.recent) {
            if from != to {
                let edge = self.edges.entry((from, to)).or_insert((0, self.seen));
                edge.0 = edge.0.saturating_add(weight);
                self.seen += 1;
            }
        }
        self.recent.push_front(to);
        self.recent.truncate(self.window as usize);
    }

    /// A night passed: what was is worth half as much.
    pub(super) fn age(&mut self) {
        self.recent.clear();
        self.edges.retain(|_, e| {
            e.0 /= 2;
            e.0 > 0
        });
    }

    /// Blocks of a vertex.
    pub(super) fn blocks(&self, vertex: u32) -> BlockRange {
        let len = self.vertices.get(&vertex).copied().unwrap_or(0);
        BlockRange::new(vertex, vertex.saturating_add(len))
    }

    /// Every vertex.
    pub(super) fn vertices(&self) -> impl Iterator<Item = u32> + '_ {
        self.vertices.keys().copied()
    }

    /// Every edge, the heaviest first.
    pub(super) fn edges(&self) -> Vec<Edge> {
        let mut all: Vec<Edge> = self
            .edges
            .iter()
            .map(|(&(from, to), &(weight, first))| Edge { from, to, weight, first })
            .collect();
        all.sort_by_key(Edge::order);
        all
    }
}

/// The edges of each vertex on one side, the heaviest first.
#[derive(Debug, Default)]
pub(super) struct Sides {
    pub(super) out: BTreeMap<u32, Vec<Edge>>,
    pub(super) into: BTreeMap<u32, Vec<Edge>>,
}

impl Sides {
    /// Of edges that are sorted.
    pub(super) fn of(edges: &[Edge]) -> Sides {
        let mut sides = Sides::default();
        for &edge in edges {
            sides.out.entry(edge.from).or_default().push(edge);
            sides.into.entry(edge.to).or_default().push(edge);
        }
        sides
    }
}

/// Appends what is not yet there, up to `room`; says whether it all fitted.
pub(super) fn append(
    layout: &mut Vec<u32>,
    taken: &mut roaring::RoaringBitmap,
    blocks: BlockRange,
    room: usize,
) -> bool {
    for block in blocks.iter() {
        if layout.len() == room {
            return false;
        }
        if taken.insert(block.0) {
            layout.push(block.0);
        }
    }
    true
}
