//! Each operation and its recovery, killed after every instruction; and broken variants.

mod barrier;
mod count;
mod heap;
mod membership;
mod memory_pool;
mod objects;
mod pool;
mod reclaim;
mod store;
mod structures;
mod sync;
mod tasks;
