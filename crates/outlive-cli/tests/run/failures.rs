//! A run's report on hosts that fail: whether they were killed, how they died otherwise, and where
//! `--seed` kills which of them.

use crate::support::powerless::{KILLS, powerless};
use crate::support::run::{Seen, Stage, assert_nothing_is_left, processes_of, text, wait_until};
use crate::support::{Running, outlive, send};
use rustix::process::Signal;
use serde_json::Value;

fn failures(summary: &Value) -> &[Value] {
    summary["failures"].as_array().unwrap()
}

#[test]
fn a_seed_repeats_victims_order_and_points() {
    let stage = Stage::new("seed");
    let path = stage.write("text", &text(4_000_000, 3));
    let points = |seed: &str, more: &[&str]| {
        let mut arguments = vec![&path[..], "--kill-at", "random", "--unit", "16K"];
        arguments.extend(["--seed", seed]);
        arguments.extend(more);
        let (_, summary) = stage.count(&arguments);
        let point = |it: &Value| (it["host"].as_u64(), it["killed_at_unit"].as_u64());
        failures(&summary).iter().map(point).collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    for more in [
        &["--hosts", "5", "--kill", "3"][..],
        &["--hosts", "2", "--kill", "6", "--threads", "2"],
        &["--hosts", "4", "--kill", "3", "--supervise", "none"],
    ] {
        let first = points("77", more);
        for _ in 0..4 {
            assert_eq!(points("77", more), first, "{more:?}");
        }
        assert_ne!(points("78", more), first, "{more:?}");
        all.extend(first);
    }
    assert!(
        all.iter()
            .all(|(host, unit)| host.is_some() && unit.is_some())
    );
}

#[test]
fn a_run_with_fewer_kills_than_asked_for_fails_and_says_so() {
    let stage = Stage::new("fewer");
    let empty = stage.write("empty", b"");
    for json in [&["--json"][..], &[]] {
        let mut arguments = vec!["run", "wordcount", &empty, "--kill", "2"];
        arguments.extend(json);
        outlive(arguments).fails(1, "0 of 2 kills happened");
    }
}

/// A run that lasts for seconds, with its pod at `pod`.
fn long_run(stage: &Stage, pod: &str, hosts: &str) -> Running {
    let path = stage.write("text", &text(8_000_000, 5));
    let mut arguments = vec!["run", "wordcount"];
    arguments.extend([&path[..]; 20]);
    arguments.extend(["--json", "--pod", pod, "--hosts", hosts, "--unit", "64K"]);
    arguments.extend(["--kill", "0"]);
    Running::start(arguments)
}

fn a_host_at_work(pod: &str, driver: u32) -> Seen {
    let mut found = None;
    wait_until("a host works", || {
        let seen = processes_of(pod);
        let works = |one: &&Seen| one.parent == driver && one.seconds >= 0.1;
        found = seen.iter().find(works).copied();
        found.is_some()
    });
    found.unwrap()
}

fn summary_of(mut run: Running) -> Value {
    let summary: Value = serde_json::from_str(&run.ends()).unwrap();
    assert_nothing_is_left(&summary);
    summary
}

#[test]
fn a_host_that_dies_by_itself_is_reported_with_its_signal() {
    let stage = Stage::new("signal");
    let pod = format!("/dev/shm/outlive-run-test-{}-signal", std::process::id());
    let run = long_run(&stage, &pod, "2");
    send(a_host_at_work(&pod, run.id()).pid, Signal::ABORT);
    let summary = summary_of(run);
    let [failure] = failures(&summary) else {
        panic!("{summary:#}");
    };
    let ended = failure["ended"].as_str().unwrap();
    assert!(ended.contains("signal: 6 (SIGABRT)"), "{failure:#}");
    assert_eq!(failure["fenced"], false);
    assert!(failure["killed_at"].is_null() && failure["rejoined_at"].is_number());
    assert_eq!(
        (&failure["processes_lost"], &failure["threads_lost"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn a_host_that_is_fenced_is_reported_as_fenced() {
    let stage = Stage::new("fenced");
    let pod = format!("/dev/shm/outlive-run-test-{}-fenced", std::process::id());
    let run = long_run(&stage, &pod, "2");
    let host = a_host_at_work(&pod, run.id());
    send(host.pid, Signal::STOP);
    wait_until("it is fenced", || host.has_ended());
    let summary = summary_of(run);
    let [failure] = failures(&summary) else {
        panic!("{summary:#}");
    };
    assert_eq!(failure["ended"], "signal: 9 (SIGKILL)");
    assert!(failure["killed_at"].is_null());
    assert_eq!(
        (&failure["processes_lost"], &failure["threads_lost"]),
        (&1.into(), &1.into())
    );
    assert_eq!(failure["fenced"], true, "{failure:#}");
}

#[test]
fn a_kill_that_does_nothing_is_not_reported_as_one() {
    // A worker halts until the kill, or the run goes on.
    let ends = [
        ("commit", "has not ended 10 s after SIGKILL"),
        ("random", "0 of 1 kills happened"),
    ];
    for (at, end) in ends {
        let mut run = vec!["run", "wordcount", "--hosts", "3", "--kill", "1"];
        run.extend(["--kill-at", at]);
        let (output, errors) = powerless(&KILLS, &run);
        assert!(errors.contains(end), "{errors}");
        assert!(!output.contains("was killed"), "{output}");
    }
}
