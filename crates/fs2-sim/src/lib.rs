//! Models and crash states around the engine: every interleaving that a small world permits.
//!
//! The main type is [`model::world::World`]: a client, a device with a volatile cache, and the engine
//! between them; [`model::explore`] walks all of its states. How fast anything is, and real devices, are
//! left to others.
//!
//! ```
//! use fs2_sim::model::explore::{Limits, explore};
//! use fs2_sim::model::scenarios;
//!
//! let scenario = scenarios::by_name("held-discard").expect("there is one");
//! let found = explore(&scenario.start(&[]), &Limits::default());
//! assert!(found.violation.is_none() && found.complete);
//! ```
#![forbid(unsafe_code)]

pub mod glue;
pub mod model;
