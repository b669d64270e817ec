//! Memory pools: their allocations, servers and guards under kills and interleavings.

pub mod scenarios;
mod small;
pub mod sweeps;
