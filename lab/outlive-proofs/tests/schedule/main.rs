//! Operations of several threads under every interleaving within bounds, with deaths; and broken
//! variants.

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
