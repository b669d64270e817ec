//! Safe reclamation under every interleaving within bounds, with deaths; and broken variants, each
//! of which must be found.

use outlive_proofs::reclaim::scenarios;
use outlive_prove::proof::{assert_caught, assert_hold};

#[test]
fn nobody_reads_what_is_free_under_every_interleaving() {
    assert_hold(scenarios::all(), |report| report.executions > 100);
}

#[test]
fn broken_reclamations_are_caught() {
    assert_caught(scenarios::broken());
}
