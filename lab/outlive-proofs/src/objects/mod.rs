//! Named objects.

pub mod chaos;
pub(crate) mod fixture;
pub mod scenarios;
pub mod sweeps;

use crate::pod;
