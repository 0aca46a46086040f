//! The daemon's control socket contract
