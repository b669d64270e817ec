//! Typed data in a pool: vectors, and counters in the coherent region.

mod counter;
mod vector;

pub use counter::Counter;
pub use vector::PoolVec;
