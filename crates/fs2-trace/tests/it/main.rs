//! All tests of the formats in one program, so that they run beside each other.

mod container;
mod damage;
mod hostile;
mod samples;
mod support;
mod synth;
mod version;
