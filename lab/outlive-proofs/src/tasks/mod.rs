//! Tasks: the engine that runs them, and the pool that makes jobs of them.

pub mod chaos;
pub mod engine;
pub mod pool;
