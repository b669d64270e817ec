//! Litmus tests of the store with flaws, from the command line.
//!
//! A search ends when it has found its bug, so these are short.

#[path = "../../../crates/outlive-cli/tests/support/mod.rs"]
mod support;

use serde_json::Value;
use std::process::Stdio;
use support::{Ended, outlive, outlive_reading};

/// Returns the row of a flaw, for which the command was run with `--json`.
#[track_caller]
fn row(ended: Ended, code: i32) -> Value {
    let rows: Value = serde_json::from_str(&ended.says(code)).unwrap();
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows:#}");
    rows[0].clone()
}

/// Searches once for a bug of `protocol`, and requires that its family finds it.
#[track_caller]
fn finds(flaw: &str, protocol: &str, family: &str) -> Value {
    let arguments = ["litmus-bugs", flaw, "--protocol", protocol];
    let limits = ["--seeds", "1", "--seconds", "60", "--json"];
    let row = row(outlive([&arguments[..], &limits].concat()), 0);
    assert_eq!(row["found"], 1, "{row:#}");
    assert_eq!(row["families"], serde_json::json!([family]), "{row:#}");
    row
}

#[test]
fn a_bug_without_failures_is_found_by_its_family() {
    finds("covert-latches", "pandora", "read-write");
}

#[test]
fn a_seed_that_found_a_bug_is_searched_again() {
    let arguments = "litmus-bugs complicit-aborts --protocol ford --seeds 1 --repeats 2 --json";
    let row = row(outlive(arguments.split(' ')), 0);
    assert_eq!((&row["found"], &row["repeats"]), (&1.into(), &2.into()));
    let again = row["found_again"].as_u64();
    assert!(again.is_some_and(|it| it <= 2), "{row:#}");
}

#[test]
fn a_bug_of_recovery_is_found_by_its_family_when_clients_die() {
    let row = finds("logging-without-latching", "pandora", "indirect-write");
    // The tester sees the deaths, and the store recovers them.
    assert!(row["crashes"].as_u64() > Some(0), "{row:#}");
    assert!(row["recoveries"].as_u64() > Some(0), "{row:#}");
}

#[test]
fn each_family_searches_for_a_bug_alone() {
    let arguments = "litmus-bugs relaxed-latches --protocol pandora --matrix --seeds 1 --seconds 5";
    let text = outlive(arguments.split(' ')).succeeds();
    let rows: Vec<Vec<&str>> = { text.lines() }
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|it| !it.is_empty())
                .collect()
        })
        .collect();
    let families = ["direct-write", "read-write", "indirect-write"];
    assert_eq!(rows[0][3..], families, "{text}");
    assert_eq!(rows[1][..3], ["relaxed-latches", "C1", "pandora"], "{text}");
    // The family of the thesis has found it.
    assert!(
        rows[1][4].starts_with("1 of 1, ") && rows[1][4].ends_with('*'),
        "{text}"
    );
    assert_eq!(rows.len(), 2, "{text}");
}

#[test]
fn nothing_is_found_without_a_flaw() {
    let arguments = "litmus-bugs sound --protocol pandora --seeds 1 --seconds 6 --json";
    let row = row(outlive(arguments.split(' ')), 0);
    assert_eq!(row["found"], 0, "{row:#}");
    assert!(row["crashes"].as_u64() > Some(0), "{row:#}");
}

#[test]
fn mutants_that_no_test_can_find_have_a_reason() {
    let row = row(
        outlive("litmus-bugs repeats-latching --mutants --json".split(' ')),
        0,
    );
    assert!(
        row["why_not"].as_str().is_some_and(|it| !it.is_empty()),
        "{row:#}"
    );
    outlive(["litmus-bugs", "no-such-flaw"]).fails(2, "covert-latches");
}

#[test]
fn a_child_without_a_store_says_so() {
    let arguments = ["litmus-store", "/dev/shm/outlive-no-such-store"];
    outlive_reading(arguments, Stdio::null()).fails(1, "/dev/shm/outlive-no-such-store");
}
