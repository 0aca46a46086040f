//! The baseline: no copies, originals only.

use fs2_block::{BlockRange, Nanos};

use super::{Asked, Place, Policy, PolicyKind, ReadSeen, Space};
use crate::head::Head;
use crate::log::Log;

/// Copies nothing and reads originals only.
#[derive(Clone, Debug)]
pub struct NoCopies;

impl Policy for NoCopies {
    fn kind(&self) -> PolicyKind {
        PolicyKind::None
    }

    fn choose(&mut self, _: Nanos, _: &Head, _: &Asked<'_>) -> Option<usize> {
        None
    }

    fn captures(&self) -> bool {
        false
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
