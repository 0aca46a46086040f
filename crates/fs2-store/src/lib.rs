//! Backing devices
