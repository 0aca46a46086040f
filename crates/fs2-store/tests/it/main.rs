//! All tests of the stores in one program, so that they run beside each other.

mod common;
mod file;
mod loopdev;
mod uring;
