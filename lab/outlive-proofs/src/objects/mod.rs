//! Named objects.

pub mod chaos;
mod fixture;
pub mod scenarios;
pub mod sweeps;

use crate::pod;
