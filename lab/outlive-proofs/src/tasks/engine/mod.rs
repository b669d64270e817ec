//! The engine: statuses, deques, descriptors, claims and commits.

mod fixture;
pub mod scenarios;
pub mod sweeps;
