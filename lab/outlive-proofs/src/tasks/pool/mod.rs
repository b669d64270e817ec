//! Names, jobs and judgements of a pool.

mod case;
mod deaths;
mod guests;
mod lookouts;
mod places;
mod races;
mod removals;
mod requests;
pub mod scenarios;
pub mod sweeps;
mod world;
