//! Benchmarks of the parts; see `benches/benches`.
