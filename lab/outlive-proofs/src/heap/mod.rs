//! The buddy allocator, and the slabs over it.

mod buddy;
pub mod buddy_sweeps;
pub mod scenarios;
mod slabs;
pub mod sweeps;

use crate::pod;
