//! Simulated shared-memory machines. Their caches hold real values, so that a node can be crashed
//! at any cycle and the remaining state can be checked.
//!
//! A machine is built of [`parts`] according to a [`description`]; the [`engine`] gives them time.
//! The behaviour of its cache controllers is in [`protocol`], as pure functions that the timed
//! machine, [`cluster`], shares with the judges in [`search`]. The programs that it runs, and their
//! expected results, are in [`program`]; [traces](trace) are of real programs; a [`run`] combines
//! all of these from beginning to end.

pub mod cluster;
pub mod crash;
pub mod description;
pub mod engine;
pub mod line;
pub mod logging;
pub mod near;
pub mod parts;
pub mod program;
pub mod protocol;
pub mod recorder;
pub mod run;
pub mod search;
pub mod trace;
