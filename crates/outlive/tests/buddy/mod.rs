//! A small heap in a pod, the operations that are cut short in it, and what must hold afterwards.

use super::pod;

#[path = "../../../../lab/outlive-prove/src/fixtures/buddy.rs"]
mod fixture;

pub use fixture::*;
