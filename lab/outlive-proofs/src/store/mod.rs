//! Stores: verbs on every backend, and the servers' entries under kills and interleavings.

pub mod conformance;
mod litmus;
pub mod lost_answers;
pub mod network;
pub mod scenarios;
pub mod sweeps;

pub use litmus::{Litmus, Program, Step};
