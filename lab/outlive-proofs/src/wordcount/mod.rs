//! The table of the word count, and its results.

mod fixture;
pub mod scenarios;
pub mod sweeps;
