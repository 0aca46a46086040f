//! mkfs2, chkfs2 and fs2

pub mod kernel;
pub mod mkfs2;
pub mod report;
