//! Shared-memory machines, simulated: their caches hold real values, so that a node can be crashed at any cycle and what
//! is left can be checked.
//!
//! A machine is put together from parts as a [`description`] says; the [`engine`] gives them time; what its cache
//! controllers do stands in [`protocol`], as pure functions that the timed machine, [`cluster`], shares with its judges in
//! [`search`].
//! What runs on it, and must come out, stands in [`program`]; [traces](trace) are of real programs; a [`run`] is all of that
//! from its beginning to its end.

pub mod cluster;
pub mod crash;
pub mod description;
pub mod engine;
pub mod line;
pub mod logging;
mod near;
pub mod parts;
pub mod program;
pub mod protocol;
pub mod recorder;
pub mod run;
pub mod search;
pub mod trace;
