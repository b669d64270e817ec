//! Runs programs of tasks: after any deaths, their output is the same to the last byte, and nothing
//! is left.

use super::run::{Stage, assert_nothing_is_left, processes_of, wait_until};
use super::{Ended, Running, outlive};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::time::Duration;

/// Runs a program. Returns the output and the report. `arguments` begin with the program's name.
pub fn run(stage: &Stage, arguments: &[&str]) -> (String, Value) {
    let (output, summary) = bytes(stage, arguments);
    (String::from_utf8(output).unwrap(), summary)
}

/// Does the same for a program whose output is not a text.
pub fn bytes(stage: &Stage, arguments: &[&str]) -> (Vec<u8>, Value) {
    ended(stage, arguments, Ended::succeeds)
}

/// Runs a program. `printed` returns what it printed, or refuses how it ended.
fn ended(stage: &Stage, arguments: &[&str], printed: impl Fn(Ended) -> String) -> (Vec<u8>, Value) {
    let output = stage.path("result");
    let mut all = vec!["run"];
    all.extend(arguments);
    all.extend(["--json", "--output", &output]);
    let summary: Value = serde_json::from_str(&printed(outlive(all))).unwrap();
    assert_nothing_is_left(&summary);
    (fs::read(&output).unwrap(), summary)
}

/// Runs a program that is refused.
pub fn refused(arguments: &[&str]) -> Ended {
    let mut all = vec!["run"];
    all.extend(arguments);
    outlive(all)
}

/// Returns the values of `--supervise` and `--kill-at` for a run with `kills` kills. Without
/// restarts, a host has to be left.
pub fn ways_to_die(hosts: &str, kills: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let [hosts, kills]: [u32; 2] = [hosts, kills].map(|number| number.parse().unwrap());
    let all = ["restart", "none"].into_iter();
    all.flat_map(|supervise| [(supervise, "commit"), (supervise, "random")])
        .filter(move |(supervise, _)| *supervise == "restart" || kills < hosts)
}

/// Runs a program while hosts are killed in all kinds of ways, and requires the output `expected`.
/// `check` is called with each report. Kills right before a commit happen in time; for a `short`
/// program, whose hosts' other threads might finish the rest before a kill, this is required only
/// of hosts with one thread.
#[track_caller]
pub fn is_the_same_however_hosts_are_killed(
    stage: &Stage,
    arguments: &[&str],
    expected: &str,
    short: bool,
    check: impl Fn(&Value),
) {
    for (hosts, processes, threads, kills) in
        [(1, 1, 1, 1), (2, 1, 2, 1), (3, 2, 1, 2), (4, 1, 2, 6)]
    {
        let numbers = [hosts, processes, threads, kills].map(|it: u64| it.to_string());
        let [hosts, processes, threads, kill] = &numbers;
        for (supervise, at) in ways_to_die(hosts, kill) {
            for _ in 0..2 {
                let mut all = arguments.to_vec();
                all.extend(["--kill-at", at, "--supervise", supervise]);
                all.extend(["--hosts", hosts, "--processes", processes]);
                all.extend(["--threads", threads, "--kill", kill]);
                // A run that is over before all kills fails, and its result is complete.
                let (found, summary) = ended(stage, &all, |ended| match ended.code {
                    Some(1) if short => ended.says(1),
                    _ => ended.succeeds(),
                });
                assert!(found == expected.as_bytes(), "{summary:#}");
                check(&summary);
                assert_killed(
                    &summary,
                    kills,
                    at == "commit" && (!short || threads == "1"),
                );
            }
        }
    }
}

/// Requires that hosts were killed, that each kill cost at most a unit for each thread, and, if
/// that is `sure`, that all kills came in time.
#[track_caller]
pub fn assert_killed(summary: &Value, kills: u64, sure: bool) {
    let failures = summary["failures"].as_array().unwrap();
    let late = summary["kills_missed"].as_u64().unwrap();
    assert_eq!(failures.len() as u64 + late, kills, "{summary:#}");
    for failure in failures {
        assert!(failure["recovered_at"].is_number(), "{failure}");
        let redone = failure["units_redone"].as_u64().unwrap();
        let lost = failure["threads_lost"].as_u64().unwrap();
        assert!(redone <= lost, "{failure}");
    }
    if sure {
        assert_eq!(late, 0, "{summary:#}");
        let redone = summary["units_redone"].as_u64().unwrap();
        assert!(redone >= kills, "{summary:#}");
    }
}

/// Interrupts a program that takes longer than a minute, and requires that it ends because of that.
#[track_caller]
pub fn an_interrupted_run_leaves_nothing(arguments: &[&str]) {
    // Several tests of a process call it at the same time, each for a program of its own.
    let (program, process) = (arguments[0], std::process::id());
    let pod = format!("/dev/shm/outlive-program-test-{process}-{program}");
    for signal in [Signal::INT, Signal::TERM] {
        let mut all = vec!["run"];
        all.extend(arguments);
        all.extend(["--pod", &pod]);
        let mut running = Running::start(all);
        wait_until("the pod is there", || fs::exists(&pod).unwrap());
        std::thread::sleep(Duration::from_millis(400));
        assert!(fs::exists(&pod).unwrap(), "it was done too soon");
        running.signal(signal);
        let printed = running.ends_with(1);
        assert_eq!(printed, "");
        assert!(!fs::exists(&pod).unwrap(), "{pod} is left");
        let left = processes_of(&pod);
        assert!(left.is_empty(), "{left:?} are left");
    }
}
