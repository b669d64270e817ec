//! Safe reclamation: a retired block is freed when no reader can hold it.

mod fixture;
pub mod scenarios;
pub mod sweeps;

use crate::pod;
