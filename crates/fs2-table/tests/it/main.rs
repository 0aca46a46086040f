//! All properties and models of the table in one program, so that they run beside each other.

mod common;
mod disk;
mod header;
mod model;
