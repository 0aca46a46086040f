//! The paper's FS2-static: copies are the administrator's affair, reads take them by the paper's rule.

use fs2_block::{BlockRange, Nanos};

use super::{Asked, Fs2Of2005, Place, Policy, PolicyKind, ReadSeen, Shape, Space};
use crate::head::Head;
use crate::log::Log;

/// Reads whichever copy is nearest by address, and makes none.
#[derive(Clone, Debug)]
pub struct StaticCopies {
    rule: Fs2Of2005,
}

impl StaticCopies {
    /// For a volume of this shape.
    pub fn new(shape: &Shape) -> StaticCopies {
        StaticCopies { rule: Fs2Of2005::new(shape) }
    }
}

impl Policy for StaticCopies {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Static
    }

    fn choose(&mut self, now: Nanos, head: &Head, asked: &Asked<'_>) -> Option<usize> {
        self.rule.choose(now, head, asked)
    }

    fn read_seen(&mut self, _: &ReadSeen<'_>, _: &dyn Space, _: &mut Log) {}

    fn idle(&mut self, _: Nanos, _: &mut Log) {}

    fn place(&mut self, _: u32, _: &Head, _: &dyn Space) -> Place {
        Place::Nowhere
    }

    fn hot_region(&self) -> Option<BlockRange> {
        None
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}
