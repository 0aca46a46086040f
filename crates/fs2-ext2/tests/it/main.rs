//! All tests against e2fsprogs and models in one program, so that they run beside each other.

mod common;
mod convert;
mod damage;
mod files;
mod layout;
mod liveness;
mod model;
