//! Safe reclamation under every interleaving within bounds, with deaths; and ways to get it wrong, each of
//! which must be found.

use outlive_prove::scenarios::{assert_caught, assert_hold, reclaim};

#[test]
fn nobody_reads_what_is_free_under_every_interleaving() {
    assert_hold(reclaim::all(), |report| report.executions > 100);
}

#[test]
fn broken_reclamations_are_caught() {
    assert_caught(reclaim::broken());
}
