//! Tests that are generated from a model of the levels: the executions that a level allows, and the
//! tests that look for the others.
//!
//! - [`History`]: transactions with the versions that they read and wrote;
//! - [`forbidden`]: the levels that forbid a history, computed by Adya's cycles ([`adya`]) and by
//!   the commit tests of Crooks et al. ([`crooks`]), which must agree;
//! - [`Word`]: the shapes of minimal cycles; [`Shared`]: those whose dependencies share objects;
//!   [`counts`]: their numbers, counted in other ways;
//! - [`Generated`]: the tests;
//! - [`model`]: stores that give a level, small enough to enumerate all executions of a test.
//!
//! The crate's `DESIGN.md` has the definitions and the arguments. Tests: `tests/consistency.rs`,
//! `tests/models.rs`, `tests/suite_levels.rs`.

pub mod adya;
pub mod counts;
pub mod crooks;
pub mod model;

mod generate;
mod history;
mod levels;
mod orders;
mod possible;
mod shared;
mod special;
mod to_test;
mod word;

pub use generate::{Generated, MOST_TRANSACTIONS};
pub use history::{Change, Chronicle, Event, Executed, History, Version};
pub use levels::{Disagreement, forbidden, forbidden_by_values, weakest};
pub use shared::Shared;
pub use special::Special;
pub use to_test::test_of;
pub use word::{Edge, Word};
