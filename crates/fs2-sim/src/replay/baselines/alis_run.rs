//! ALIS, run clustering: what is read one after the other, contiguous in a reserved area, in that order.
//!
//! Windsor W. Hsu, Alan Jay Smith and Honesty C. Young, "The Automatic Improvement of Locality in Storage Systems",
//! ACM Transactions on Computer Systems 23(4), 2005 (report UCB/CSD-03-1264, 2003), section on run clustering: a
//! graph of accesses, whose edge i -> j gains a weight, the smaller the later, for each j within the context of
//! i; runs grow greedily from the heaviest edge at both ends. Runs are laid contiguously and fetched ahead: here
//! by the drive's own read-ahead, as for all policies. Originals stay.
//!
//! Parameters: a context of 8 references, weights 8 to 1; runs of at most 2 MiB, counts halved each day, every
//! edge used, one sighting of it included (guesses). The vertices are requests, as the trace has them.

use std::collections::VecDeque;

use fs2_block::BlockRange;
use roaring::RoaringBitmap;

use super::graph::{Edge, Graph, Sides, append};
use super::relayout::Planner;

/// References after which nothing is connected any more.
const CONTEXT: u32 = 8;

/// Blocks of a run at most.
const RUN_BLOCKS: u32 = 512;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct AlisRun {
    graph: Graph,
}

impl AlisRun {
    pub(super) fn new() -> AlisRun {
        AlisRun { graph: Graph::new(CONTEXT) }
    }

    /// Vertices in the order of the layout: run after run.
    fn runs(&self) -> Vec<Vec<u32>> {
        let edges = self.graph.edges();
        let sides = Sides::of(&edges);
        let mut used = RoaringBitmap::new();
        let mut runs = Vec::new();
        for edge in &edges {
            if used.contains(edge.from) || used.contains(edge.to) {
                continue;
            }
            used.insert(edge.from);
            used.insert(edge.to);
            let mut run = VecDeque::from([edge.from, edge.to]);
            let mut blocks = self.graph.blocks(edge.from).len() + self.graph.blocks(edge.to).len();
            while blocks < RUN_BLOCKS {
                let heaviest = |side: Option<&Vec<Edge>>, other: fn(&Edge) -> u32| {
                    side.and_then(|edges| edges.iter().find(|e| !used.contains(other(e))).copied())
                };
                let behind = run.back().and_then(|v| heaviest(sides.out.get(v), |e| e.to));
                let before = run.front().and_then(|v| heaviest(sides.into.get(v), |e| e.from));
                let next = match (behind, before) {
                    (Some(a), Some(b)) if b.order() < a.order() => b.from,
                    (Some(a), _) => a.to,
                    (None, Some(b)) => b.from,
                    (None, None) => break,
                };
                used.insert(next);
                blocks += self.graph.blocks(next).len();
                if behind.is_some_and(|e| e.to == next) {
                    run.push_back(next);
                } else {
                    run.push_front(next);
                }
            }
            runs.push(run.into());
        }
        runs
    }
}

impl Planner for AlisRun {
    fn read(&mut self, blocks: BlockRange) {
        self.graph.request(blocks);
    }

    fn layout(&mut self, room: usize) -> Vec<u32> {
        let (mut layout, mut taken) = (Vec::new(), RoaringBitmap::new());
        for vertex in self.runs().into_iter().flatten() {
            if !append(&mut layout, &mut taken, self.graph.blocks(vertex), room) {
                break;
            }
        }
        self.graph.age();
        layout
    }
}
