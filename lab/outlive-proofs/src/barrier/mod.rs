//! The group barrier.

mod fixture;
pub mod scenarios;
pub mod sweeps;
