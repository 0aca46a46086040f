//! The daemon: a replica engine between a file system and its disk
