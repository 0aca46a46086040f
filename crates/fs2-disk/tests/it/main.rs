//! All properties and oracles of the drive model in one program, so that they run beside each other.

mod belief;
mod calibrate;
mod import;
mod model;
mod profiles;
mod properties;
mod queue;
mod read_ahead;
mod write_cache;
