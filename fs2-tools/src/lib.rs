//! mkfs2, chkfs2, fs2 and fs2-replay

pub mod chkfs2;
pub mod demo;
pub mod fsbench;
pub mod kernel;
pub mod mkfs2;
pub mod replay;
pub mod report;
pub mod volume;
