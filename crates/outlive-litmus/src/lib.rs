//! Litmus tests for transactional stores.
//!
//! A test is a few short transactions whose values tell an application whether the store kept its
//! isolation level: no history is recorded, and the store is a black box behind a [`driver`]. The
//! method is DART's (the thesis *Tandem*, chapter 5), on the definitions of Adya and of Crooks et
//! al.
//!
//! - [`level`]: isolation levels, with and without real-time order;
//! - [`test`](mod@test): objects, transactions, assertions;
//! - [`driver`]: the interface to a store;
//! - [`text`]: the text format of tests;
//! - [`scalable`]: the proof that an assertion fails in no correct execution;
//! - [`consistency`]: tests that are generated from a model of the levels;
//! - [`suite`]: the shipped tests;
//! - [`run`]: runs tests against a store, and judges its level;
//! - [`recording`]: writes the history of a run, for public checkers of histories;
//! - [`explain`]: the interleaving and the cycle behind a violation, as text and as a page.

pub mod consistency;
pub mod driver;
pub mod explain;
pub mod level;
pub mod recording;
pub mod run;
pub mod scalable;
pub mod suite;
pub mod test;
pub mod text;
