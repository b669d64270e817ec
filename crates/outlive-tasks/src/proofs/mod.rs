//! The proofs of names, jobs and judgements: what `outlive-lab prove kill` and `outlive-lab prove schedule` run of them.

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
