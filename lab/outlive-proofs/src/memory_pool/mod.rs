//! Memory pools: their allocations, servers and guards under kills and interleavings.

pub mod object_scenarios;
pub mod object_sweeps;
mod objects;
pub mod scenarios;
mod small;
pub mod sweeps;
