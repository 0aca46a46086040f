//! All tests of the stores in one program, so that they run beside each other.

mod common;
mod file;
#[path = "../../../../tests/src/loop_dev.rs"]
#[expect(unreachable_pub, reason = "a library has it, too")]
mod loop_dev;
mod loopdev;
mod uring;
