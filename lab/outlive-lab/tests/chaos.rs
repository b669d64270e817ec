//! Chaos for a few seconds: nothing is lost, nothing happens twice, nothing leaks; and a worker
//! that does not ask about its last operation is noticed.

#[path = "../../../crates/outlive-cli/tests/support/mod.rs"]
mod support;

use serde_json::Value;
use support::outlive;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"))
}

/// A run; its exit code tells whether it ends well, which `support` checks.
const RUN: [&str; 5] = ["prove", "chaos", "--json", "--seed", "7"];

#[test]
fn every_operation_is_accounted_for() {
    let mut arguments = RUN.to_vec();
    arguments.extend(["--minutes", "0.1"]);
    let found = json(&outlive(arguments).succeeds());
    let found = &found.as_array().unwrap()[0];
    println!("{found:#}");
    assert_eq!(found["name"], "chaos");
    assert_eq!(found["failures"], 0);
    assert_eq!(found["seed"], 7);
    for at_least_one in [
        "points",
        "operations",
        "threads",
        "processes",
        "hosts",
        "restarts",
    ] {
        assert!(found[at_least_one].as_u64().unwrap() > 0, "{at_least_one}");
    }
    let effects = found["effects"].as_object().unwrap();
    for (what, times) in effects {
        assert!(times.as_u64().unwrap() > 0, "{what}");
    }
}

#[test]
fn a_full_heap_is_no_failure() {
    for more in [
        // Half of the memory that the workers would hold.
        &["--mebibytes", "8"][..],
        &["--processes", "32", "--hosts", "8"],
    ] {
        let mut arguments = RUN.to_vec();
        arguments.extend(["--seconds", "4"]);
        arguments.extend(more);
        let found = json(&outlive(arguments).succeeds());
        println!("{found:#}");
        assert_eq!(found[0]["failures"], 0, "{more:?}");
    }
}

/// Returns the messages about workers that are broken in this way.
fn accusations(broken: &str, more: &[&'static str]) -> Vec<String> {
    let mut arguments = [&RUN, more].concat();
    arguments.extend(["--seconds", "4", "--broken", broken]);
    let found = outlive(arguments);
    assert_eq!(found.code, Some(1), "{}{}", found.output, found.errors);
    let found = json(&found.output);
    println!("{found:#}");
    let messages = found[0]["messages"].as_array().unwrap().iter();
    messages.map(|m| m.as_str().unwrap().to_owned()).collect()
}

/// Returns whether one of them contains `what`.
fn says(messages: &[String], what: &str) -> bool {
    messages.iter().any(|message| message.contains(what))
}

#[test]
fn a_worker_that_panics_is_noticed() {
    let messages = accusations("panics", &[]);
    assert!(
        says(&messages, "panicked: broken on purpose"),
        "{messages:#?}"
    );
    assert!(says(&messages, "exit status: "), "{messages:#?}");
}

#[test]
fn a_worker_that_ends_by_a_signal_nobody_sent_is_noticed() {
    let messages = accusations("aborts", &[]);
    assert!(says(&messages, "SIGABRT"), "{messages:#?}");
}

#[test]
fn a_worker_that_cannot_join_is_noticed() {
    let messages = accusations("lost", &[]);
    assert!(says(&messages, "found"), "{messages:#?}");
    assert!(says(&messages, "exit status: 1"), "{messages:#?}");
}

#[test]
fn what_becomes_of_a_workers_own_keys_is_known_beforehand() {
    for (broken, noticed) in [
        ("loses", ["the map replaced None", "a look-up found None"]),
        (
            "invents",
            ["an insertion found Some(", "a look-up found Some("],
        ),
        (
            "changes",
            [
                "the map replaced Some(18446744073709551615)",
                "a look-up found Some(18446744073709551615)",
            ],
        ),
    ] {
        let messages = accusations(broken, &[]);
        assert!(
            noticed.iter().any(|what| says(&messages, what)),
            "{broken}: {messages:#?}"
        );
    }
}

#[test]
fn a_worker_that_forgets_to_ask_is_noticed() {
    let messages = accusations("forgetful", &[]);
    // By the audit, not because the work stopped.
    assert!(
        ["were confirmed", "was confirmed", "was inserted"]
            .iter()
            .any(|what| says(&messages, what)),
        "{messages:#?}"
    );
}

#[test]
fn what_cannot_be_is_bad_usage() {
    for flags in [
        &["--hosts", "9"][..],
        &["--processes", "33"],
        &["--hosts", "4", "--processes", "3"],
        &["--minutes", "1", "--seconds", "1"],
        &["--seconds", "0"],
        &["--seconds", "0.5"],
        &["--minutes", "0.01"],
        &["--minutes", "-1"],
        &["--minutes", "nan"],
        &["--minutes", "inf"],
        &["--minutes", "1e9"],
        &["--minutes", "soon"],
    ] {
        let mut arguments = vec!["prove", "chaos"];
        arguments.extend(flags);
        outlive(arguments).fails(2, "");
    }
}

#[test]
fn every_task_of_every_graph_counts_once() {
    let mut arguments = RUN.to_vec();
    arguments.extend(["--tasks", "--seconds", "4", "--processes", "4"]);
    let found = json(&outlive(arguments).succeeds());
    let found = &found.as_array().unwrap()[0];
    println!("{found:#}");
    assert_eq!(found["name"], "chaos: tasks");
    assert_eq!((&found["failures"], &found["seed"]), (&0.into(), &7.into()));
    for at_least_one in ["points", "graphs", "tasks", "workers"] {
        assert!(found[at_least_one].as_u64().unwrap() > 0, "{at_least_one}");
    }
    assert!(found["redone"].as_u64() <= found["workers"].as_u64());
    // For people.
    let shown = outlive([
        "prove",
        "chaos",
        "--tasks",
        "--seconds",
        "1",
        "--processes",
        "1",
    ]);
    let shown = shown.succeeds();
    assert!(
        shown.contains(" redone; ") && shown.contains("; 0 failures"),
        "{shown}"
    );
    outlive(["prove", "chaos", "--tasks", "--hosts", "2"]).fails(2, "--hosts");
}

#[test]
fn every_object_is_where_its_creator_left_it() {
    let mut arguments = RUN.to_vec();
    arguments.extend(["--objects", "--seconds", "4", "--processes", "4"]);
    let found = json(&outlive(arguments).succeeds());
    let found = &found.as_array().unwrap()[0];
    println!("{found:#}");
    assert_eq!(found["name"], "chaos: objects");
    assert_eq!((&found["failures"], &found["seed"]), (&0.into(), &7.into()));
    for at_least_one in ["points", "operations", "checks"] {
        assert!(found[at_least_one].as_u64().unwrap() > 0, "{at_least_one}");
    }
    for (what, times) in found["effects"].as_object().unwrap() {
        assert!(times.as_u64().unwrap() > 0, "{what}");
    }
    outlive(["prove", "chaos", "--objects", "--tasks"]).fails(2, "--tasks");
    outlive(["prove", "chaos", "--objects", "--broken", "lost"]).fails(2, "forgetful");
}

#[test]
fn an_object_or_a_request_that_is_lost_is_noticed() {
    for (broken, noticed) in [("loses", "is lost"), ("forgetful", "requests took effect")] {
        let messages = accusations(broken, &["--objects"]);
        assert!(says(&messages, noticed), "{broken}: {messages:#?}");
    }
}
