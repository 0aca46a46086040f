//! mkfs2, chkfs2, fs2, fs2-replay and fsbench

// Before the others, which speak by its macros.
#[macro_use]
pub mod output;

pub mod calibrate;
pub mod chkfs2;
pub mod conventions;
pub mod demo;
pub mod fsbench;
pub mod generate;
pub mod kernel;
pub mod live_report;
pub mod mkfs2;
mod new_file;
mod outputs;
mod programs;
pub mod replay;
pub mod report;
mod signals;
pub mod top;
pub mod volume;
