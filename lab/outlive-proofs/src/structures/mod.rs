//! The detectable list and map.

mod fixture;
pub mod scenarios;
pub mod sweeps;

use crate::pod;
