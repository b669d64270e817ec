//! Locks, the mutex, the log and their recovery, killed after every instruction; and broken
//! variants, each of which must be found.

use outlive_proofs::locks::sweeps;
use outlive_prove::kill::{Plan, assert_clean, assert_found};

#[test]
fn locks_and_logs_survive_a_kill_at_every_instruction() {
    assert_clean(sweeps::add_to, &Plan::quick());
}

#[test]
fn a_lock_that_forgets_the_log_and_changes_before_the_commit_are_found() {
    assert_found(sweeps::broken());
}
