//! Schemes that move requests, writes too, as some of the literature's do: in the simulator only.
//!
//! A scheme of copies alone is a [`fs2_engine::policy::Policy`] in [`super::Settings::policy`] and goes through
//! the engine like ours. One that also sends *writes* elsewhere (ABR, BORG) has a place of its own for blocks
//! and stands between the engine and the drive; the engine never learns of it, and the daemon, which must not
//! lose a block's only valid copy with a table, has no such thing.

use fs2_block::{Extent, Nanos, Op};

/// An access a scheme makes of its own: charged to the drive and counted like the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnIo {
    /// A read or a write.
    pub op: Op,
    /// Which bytes of the volume.
    pub extent: Extent,
}

/// Where requests go instead.
pub trait Redirect: Send + Sync {
    /// Where a request's access takes place: adds as many bytes, here or elsewhere, in one piece or in several
    /// that are served one after the other. It is served at once; requests come in the order in which the drive
    /// begins them. Nothing added: here.
    fn place(&mut self, now: Nanos, op: Op, extent: Extent, pieces: &mut Vec<Extent>);

    /// The byte at which a request's access would begin as things are: by that a drive that is given several orders them.
    /// Asked of requests that may not come next, or never.
    fn begins(&self, extent: Extent) -> u64;

    /// The next access of the scheme's own, such as a period's or a night's rearrangement, given that nothing
    /// was asked since `idle_since`. Asked whenever the drive and the engine have nothing to do; the one
    /// before it has ended.
    fn own(&mut self, now: Nanos, idle_since: Nanos) -> Option<OwnIo>;

    /// When [`Redirect::own`] may have something, if nothing else happens; `None`: not as things are. Asked too
    /// early, the engine's own work is looked at later than without a scheme.
    fn wake_up(&self, idle_since: Nanos) -> Option<Nanos>;

    /// A copy of the scheme and its state.
    fn boxed_clone(&self) -> Box<dyn Redirect>;
}

impl Clone for Box<dyn Redirect> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}
