//! Tests that drive the built binaries
