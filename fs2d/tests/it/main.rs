//! The tests of the daemon that bear others beside them in their process, in one program, so that they run beside each other.

mod bad_sectors;
mod cli;
mod fuse;
mod fuse_begun;
#[expect(dead_code, reason = "the tests of fs2-tools use the rest")]
mod fuse_mem;
mod fuse_ring;
mod lost_writes;
mod nbd;
mod nbd_hostile;
mod nbd_interop;
mod nbd_large;
mod nbd_lent;
mod nbd_support;
mod record;
mod server_begin;
mod server_race;
