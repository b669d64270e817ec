//! Locks, the mutex and the log, killed after every instruction, and their recovery too; and ways to get
//! them wrong, each of which must be found.

use outlive_prove::kill::{Plan, assert_clean, assert_found};
use outlive_prove::sweeps::sync;

#[test]
fn locks_and_logs_survive_a_kill_at_every_instruction() {
    assert_clean(sync::add_to, &Plan::quick());
}

#[test]
fn a_lock_that_forgets_the_log_and_changes_before_the_commit_are_found() {
    assert_found(sync::broken());
}
