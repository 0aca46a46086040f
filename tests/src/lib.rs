//! What the tests of the built programs share: finding and running `fs2d`, `fs2`, `mkfs2` and `chkfs2`,
//! images, mounts and servers that are undone on drop. The main type is [`Scratch`], a directory of a
//! test's own with a runtime directory of its own. What is expected of the programs is left to the
//! tests in `tests/`; nothing here reads a volume in any way but through them, the kernel and e2fsprogs.
//!
//! ```
//! use fs2_tests::{Need, Rng, missing};
//! assert!(missing(&[Need::Program("sh")]).is_none());
//! // The same seed gives the same run.
//! assert_eq!(Rng::new(7).bytes(100), Rng::new(7).bytes(100));
//! ```

mod counters;
mod exposition;
mod guest;
mod image;
mod loop_dev;
mod mounted;
mod nbd;
mod needs;
mod private;
mod pty;
mod run;
mod scratch;
mod serve;
mod tree;

pub use counters::{BLOCK, Counters, count_in, stamped};
pub use exposition::{Exposition, Family, Sample};
pub use guest::{Guest, Left};
pub use image::{Dump, debugfs, digest, dump, e2fsck_clean, file_digest, mke2fs};
pub use loop_dev::LoopDev;
pub use mounted::{Mounted, PlainMount, is_busy, loops_below, mounts_below, unless_busy};
pub use nbd::{Ask, NbdClient};
pub use needs::{Need, missing, needs, setting};
pub use private::{PRIVATE, privately};
pub use pty::OnTerminal;
pub use run::{Done, children_peak, peak_of, program, run, run_within, tool};
pub use scratch::Scratch;
pub use serve::Served;
pub use tree::{Rng, Tree, tree_digests};

/// What a mounted test needs: the host kernel's ext2 over a loop device over FUSE.
pub const KERNEL: &[Need] =
    &[Need::Root, Need::Fuse, Need::Loop, Need::Program("mke2fs"), Need::Program("e2fsck")];
