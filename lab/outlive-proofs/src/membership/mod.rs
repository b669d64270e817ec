//! Instances, generations, obituaries, control groups; joining and leaving.

pub mod group_log;
mod host_sweeps;
pub mod joining;
mod obituaries;
pub mod scenarios;
pub mod sweeps;
pub(crate) mod tables;
mod unreported_sweeps;
