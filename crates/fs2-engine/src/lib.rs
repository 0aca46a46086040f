//! The replica engine: a state machine without I/O
