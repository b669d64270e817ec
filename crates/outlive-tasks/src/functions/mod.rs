//! The functions of tasks: their registration, and the context in which they run.

pub mod array;
pub mod context;
pub mod registry;
