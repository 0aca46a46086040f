//! The programs in the kernel, and in a guest's: the tests that bear others beside them on the machine, in one program, so that they run at
//! the same time.

mod boot_loader;
mod demo;
mod enospc;
mod fsbench;
mod fsbench_paper;
mod guest;
mod half_mounts;
mod in_use;
mod io_flusher;
mod kill9;
mod mount;
mod sigterm;
mod suites;
mod superblock_copy;
mod top;
mod trim;
mod xfstests;
