//! Searches of small machines that replicate.

use outlive_machine::protocol::ReplicatedTables;
use outlive_machine::search::{Explored, ReplicatedRules, ReplicatedSearch, Setup};

pub const MOST_STATES: usize = 3_000_000;

pub fn recxl() -> ReplicatedRules {
    ReplicatedRules::strict(ReplicatedTables::recxl())
}

/// Demands that no state is wrong.
pub fn sound(setup: Setup) -> Explored {
    let search = ReplicatedSearch {
        setup,
        most_states: MOST_STATES,
    };
    let explored = search
        .run(&recxl())
        .unwrap_or_else(|broken| panic!("{broken}"));
    println!("{explored}");
    assert!(explored.complete, "{explored}");
    explored
}
