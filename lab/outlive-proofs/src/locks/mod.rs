//! Recoverable locks.

pub mod scenarios;
pub mod sweeps;
