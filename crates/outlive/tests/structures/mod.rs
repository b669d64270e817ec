//! A pod with a heap, and in it a map and a list that are led to by two words.

use super::pod;

#[path = "../../../outlive-prove/src/fixtures/structures.rs"]
mod fixture;

pub use fixture::*;
