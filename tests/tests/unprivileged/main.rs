//! The programs without root: the tests that bear others beside them, in one program, so that they run at the same time.

mod bad_input;
mod control_sample;
mod demo;
mod docs;
mod host_short;
mod hostile;
mod interrupted;
mod kill9;
mod limits;
mod metrics;
mod nbd;
mod report;
mod service_manager;
mod several;
mod sigterm;
mod top;
mod undo;
