//! Models and crash states around the engine: every interleaving that a small world permits.
//!
//! The main type is [`model::world::World`]: a client, a device with a volatile cache, and the engine
//! between them; [`model::explore`] walks all of its states. [`world::World`] lives a volume's whole
//! life by seed. How fast a policy is on a modelled drive says [`replay`],
//! on volumes and workloads like the paper's with [`paper`]. Real devices are left to others.
//!
//! Without the feature `model` only [`replay`] and [`paper`] are there, and the engine is built without planted bugs.
//!
#![cfg_attr(feature = "model", doc = "```")]
#![cfg_attr(not(feature = "model"), doc = "```ignore")]
//! use fs2_sim::model::explore::{Limits, explore};
//! use fs2_sim::model::scenarios;
//!
//! let scenario = scenarios::by_name("held-discard").expect("there is one");
//! let found = explore(&scenario.start(&[]), &Limits::default());
//! assert!(found.violation.is_none() && found.complete);
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "model")]
pub mod glue;
#[cfg(feature = "model")]
pub mod model;
pub mod paper;
pub mod replay;
#[cfg(feature = "model")]
pub mod world;
