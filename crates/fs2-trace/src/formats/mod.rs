//! The formats, a module each.
//!
//! A format's reader takes an `std::io::Read`, keeps at most a bounded part of it in memory, and
//! is an iterator of `Result<Record, TraceError>` that ends after its first error.

pub(crate) mod container;
