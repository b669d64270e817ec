//! Named objects under every interleaving within bounds and many beyond, with deaths; and
//! broken variants, each of which must be found.

use outlive_proofs::objects::scenarios;
use outlive_prove::proof::{assert_caught, assert_hold};

#[test]
fn objects_hold_under_interleavings_and_deaths() {
    let coverage = assert_hold(scenarios::all(), |report| report.executions > 100);
    println!("{coverage}");
}

#[test]
fn broken_objects_are_caught() {
    assert_caught(scenarios::broken());
}
