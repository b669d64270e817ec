//! A model of the protocol `pandora` of `outlive-store`: the commits of two compute servers, their
//! deaths, the recovery of their logs, broken connections, and the loss of a memory server. The
//! checker (`stateright`) explores every order of the verbs' effects, and every moment of the
//! deaths and breaks.
//!
//! The README describes the bounds of the model, and which flaw is found by which proof.

pub mod check;
mod commit;
mod connections;
mod describe;
mod effects;
pub mod flaws;
mod flight;
mod history;
mod model;
pub mod properties;
mod recovery;
pub mod scenarios;
mod state;
mod transactions;

pub use model::{Action, Commit};
