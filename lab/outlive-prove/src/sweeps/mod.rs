//! Every recoverable operation of Outlive, ready to be swept: what `outlive-lab prove kill` runs.

pub mod barrier;
pub mod buddy;
mod cases;
pub mod heap;
pub mod joining;
pub mod membership;
pub mod reclaim;
pub mod structures;
pub mod sync;

use crate::kill::Suite;

/// Every sweep that there is.
pub fn all() -> Suite {
    let mut suite = Suite::new();
    membership::add_to(&mut suite);
    joining::add_to(&mut suite);
    sync::add_to(&mut suite);
    barrier::add_to(&mut suite);
    buddy::add_to(&mut suite);
    heap::add_to(&mut suite);
    reclaim::add_to(&mut suite);
    structures::add_to(&mut suite);
    suite
}
