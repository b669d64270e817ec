//! Named objects.

mod fixture;
pub mod scenarios;
pub mod sweeps;

use crate::pod;
