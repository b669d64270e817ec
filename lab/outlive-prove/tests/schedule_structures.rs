//! The list and the map under every interleaving within bounds and many beyond, with deaths; and ways to get them
//! wrong, each of which must be found.

use outlive_prove::scenarios::{assert_caught, assert_hold, structures};

#[test]
fn list_and_map_hold_under_interleavings_and_deaths() {
    let coverage = assert_hold(structures::all(), |report| report.executions > 100);
    println!("{coverage}");
}

#[test]
fn broken_lists_and_maps_are_caught() {
    assert_caught(structures::broken());
}
