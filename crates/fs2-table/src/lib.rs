//! The replica table in memory and on disk
