//! Every recoverable operation of Outlive, ready to be swept: what `outlive prove kill` runs.

pub mod joining;
pub mod membership;

use crate::kill::Sweep;

/// Every sweep of an operation that only touches memory.
pub fn all() -> Vec<Box<dyn Sweep>> {
    membership::all()
}
