//! BORG: blocks accessed one after the other side by side in a partition of their own, which also absorbs writes.
//!
//! Medha Bhadkamkar, Jorge Guerra, Luis Useche, Sam Burnett, Jason Liptak, Raju Rangaswami and Vagelis Hristidis,
//! "BORG: Block-reORGanization for Self-optimizing Storage Systems", FAST 2009, sections 4 and 5: a weighted directed
//! graph of which range is accessed right after which; the most connected vertex is put into the middle of the
//! partition (BOPT), then again and again the vertex with the heaviest edge to what is placed: behind it where the
//! edge leads out, before it where it leads in. A part of the partition absorbs all writes of blocks that are not in
//! it; what is newer than its home is written back when it leaves. Rearranged once a day.
//!
//! Parameters: the partition is the space budget, a quarter of it for writes (the paper varies both), weights halved
//! each day (guesses). The graph is of the whole trace, not of each process, and its vertices are requests.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use fs2_block::{BlockRange, Op};
use roaring::RoaringBitmap;

use super::graph::{Edge, Graph, Sides, append};
use super::mover::Planner;

/// Share of the partition that absorbs writes: one of so many parts.
const BUFFER_PARTS: usize = 4;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Borg {
    graph: Graph,
}

/// An edge between what is placed and what is not; the greatest is taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    weight: u32,
    first: std::cmp::Reverse<u64>,
    vertex: u32,
    /// It goes behind what is placed, else before it.
    behind: bool,
}

impl Borg {
    pub(super) fn new() -> Borg {
        Borg { graph: Graph::new(1) }
    }

    /// Vertices in the order of their addresses, as many as have `room` blocks.
    fn sequence(&self, room: usize) -> Vec<u32> {
        let edges = self.graph.edges();
        let sides = Sides::of(&edges);
        let mut weight: BTreeMap<u32, u64> = self.graph.vertices().map(|v| (v, 0)).collect();
        for e in &edges {
            *weight.entry(e.from).or_default() += u64::from(e.weight);
            *weight.entry(e.to).or_default() += u64::from(e.weight);
        }
        let mut connected: Vec<(u64, u32)> = weight.into_iter().map(|(v, w)| (w, v)).collect();
        connected.sort_by_key(|&(w, v)| (std::cmp::Reverse(w), v));
        let (mut order, mut placed, mut blocks) = (VecDeque::new(), RoaringBitmap::new(), 0);
        let mut heap = BinaryHeap::new();
        let mut seeds = connected.into_iter().map(|c| c.1);
        while blocks < room {
            let next = heap.pop().map(|c: Candidate| (c.vertex, c.behind));
            // Nothing is connected with what is placed: the most connected of the rest, behind.
            let Some((vertex, behind)) = next.or_else(|| seeds.next().map(|v| (v, true))) else { break };
            if !placed.insert(vertex) {
                continue;
            }
            blocks += self.graph.blocks(vertex).len() as usize;
            if behind {
                order.push_back(vertex)
            } else {
                order.push_front(vertex)
            }
            let edges_of = |side: &BTreeMap<u32, Vec<Edge>>| side.get(&vertex).cloned().unwrap_or_default();
            for e in edges_of(&sides.out).into_iter().filter(|e| !placed.contains(e.to)) {
                let first = std::cmp::Reverse(e.first);
                heap.push(Candidate { weight: e.weight, first, vertex: e.to, behind: true });
            }
            for e in edges_of(&sides.into).into_iter().filter(|e| !placed.contains(e.from)) {
                let first = std::cmp::Reverse(e.first);
                heap.push(Candidate { weight: e.weight, first, vertex: e.from, behind: false });
            }
        }
        order.into()
    }
}

impl Planner for Borg {
    fn request(&mut self, _: Op, blocks: BlockRange) {
        self.graph.request(blocks);
    }

    fn arrange(&mut self, slots: usize) -> Vec<Option<u32>> {
        let buffer = self.absorbs(slots);
        let (mut layout, mut taken) = (Vec::new(), RoaringBitmap::new());
        for vertex in self.sequence(slots - buffer) {
            if !append(&mut layout, &mut taken, self.graph.blocks(vertex), slots - buffer) {
                break;
            }
        }
        self.graph.age();
        // In the middle of what is left beside the buffer.
        let first = buffer + (slots - buffer - layout.len()) / 2;
        let mut out = vec![None; slots];
        for (slot, block) in out[first..].iter_mut().zip(layout) {
            *slot = Some(block);
        }
        out
    }

    fn absorbs(&self, slots: usize) -> usize {
        slots / BUFFER_PARTS
    }
}
