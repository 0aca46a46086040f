//! mkfs2, chkfs2 and fs2

pub mod chkfs2;
pub mod demo;
pub mod kernel;
pub mod mkfs2;
pub mod report;
pub mod volume;
