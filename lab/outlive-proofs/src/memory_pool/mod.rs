//! Memory pools: their allocations, servers and guards under kills and interleavings.

pub mod move_scenarios;
pub mod move_sweeps;
pub mod object_scenarios;
pub mod object_sweeps;
mod objects;
pub mod replica_scenarios;
pub mod replica_sweeps;
pub mod scenarios;
mod small;
pub mod sweeps;
