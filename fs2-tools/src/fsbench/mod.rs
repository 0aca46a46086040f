//! Benchmarks of a mounted directory.

pub mod measure;
