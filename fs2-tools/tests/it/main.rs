//! The tests of the programs that leave their environment alone, in one program, so that they run beside each other.

mod chkfs2;
mod cli;
mod fsbench;
mod fsbench_measure;
mod fsbench_wml;
#[path = "../../../fs2d/tests/it/fuse_mem/mod.rs"]
#[expect(dead_code, reason = "a part is used here")]
mod fuse_mem;
mod json;
mod kernel;
mod kernel_fuse;
#[path = "../../../tests/src/loop_dev.rs"]
#[expect(unreachable_pub, reason = "a library has it, too")]
mod loop_dev;
mod mkfs2;
mod mkfs2_crash;
mod mkfs2_kernel;
mod mkfs2_support;
mod replay_drive;
mod replay_live;
mod replay_paper;
mod replay_report;
mod replay_run;
mod replay_sweep;
mod replay_trace;
mod session_crash;
mod watching;
