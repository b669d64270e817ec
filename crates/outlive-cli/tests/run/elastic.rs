//! `outlive run … --elastic MIN..MAX`: the number of workers follows the number of ready tasks,
//! without an effect on the result.

use crate::support::programs::{assert_killed, bytes, refused, run};
use crate::support::run::{Seen, Stage, assert_nothing_is_left, processes_of, wait_until};
use crate::support::{Place, Running, command, outlive};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::time::Duration;

/// A program with many tasks that are ready at the same time.
const WIDE: [&str; 7] = [
    "matmul",
    "random:1600:600",
    "random:600:1600:2",
    "--task-rows",
    "32",
    "--task-columns",
    "64",
];
/// A program with one ready task at a time.
const NARROW: [&str; 8] = [
    "pagerank",
    "rmat:13",
    "--task-rows",
    "100000",
    "--tolerance",
    "0",
    "--iterations",
    "2000",
];

fn counted(summary: &Value, way: &str, why: &str) -> u64 {
    let counted = &summary["workers"][way][why];
    counted.as_u64().unwrap_or_else(|| panic!("{summary:#}"))
}

/// The first trigger of the paper, upwards: each worker has too many ready tasks.
#[test]
fn workers_come_when_each_has_too_many_ready_tasks() {
    let stage = Stage::new("elastic-grows");
    let (expected, alone) = bytes(&stage, &WIDE);
    assert_eq!(alone["workers"]["elastic"], Value::Null);
    let elastic = ["--hosts", "1", "--spares", "3", "--elastic", "1..4"];
    let (found, summary) = bytes(&stage, &[&WIDE[..], &elastic].concat());
    assert!(found == expected, "{summary:#}");
    assert!(counted(&summary, "came", "by_ready") >= 1, "{summary:#}");
    for why in ["by_failures", "by_request"] {
        assert_eq!(counted(&summary, "came", why), 0, "{summary:#}");
    }
    let said = &summary["workers"]["elastic"];
    let expected = serde_json::json!({
        "least": 1, "most": 4, "fewest_ready": 0.5, "most_ready": 4.0, "may_fail": 0.25
    });
    assert_eq!(said, &expected);
    // Below all limits, no worker comes.
    let never = [&elastic[..], &["--ready", "0..1000000"]].concat();
    let (_, summary) = bytes(&stage, &[&WIDE[..], &never].concat());
    assert_eq!(counted(&summary, "came", "by_ready"), 0, "{summary:#}");
    // As text.
    let shown = outlive([&["run"], &WIDE[..], &elastic].concat()).succeeds();
    assert!(shown.contains("\n1 to 4 workers: "), "{shown}");
    assert!(
        shown.contains(" came because each had too many ready tasks"),
        "{shown}"
    );
}

/// The same downwards: too few ready tasks.
#[test]
fn workers_go_when_there_are_too_few_ready_tasks() {
    let stage = Stage::new("elastic-shrinks");
    let (expected, _) = run(&stage, &NARROW);
    let elastic = ["--hosts", "4", "--elastic", "1..4"];
    let (found, summary) = run(&stage, &[&NARROW[..], &elastic].concat());
    assert!(found == expected, "{summary:#}");
    assert!(counted(&summary, "went", "by_ready") >= 1, "{summary:#}");
    assert_eq!(counted(&summary, "went", "by_request"), 0);
    assert_eq!(summary["workers"]["went"]["by_failures"], Value::Null);
}

/// The other trigger: more workers have failed than may.
#[test]
fn workers_come_when_more_have_failed_than_may() {
    let stage = Stage::new("elastic-failures");
    let rank = ["pagerank", "rmat:12", "--task-rows", "300"];
    let rank = [&rank[..], &["--tolerance", "0", "--iterations", "600"]].concat();
    let (expected, _) = run(&stage, &rank);
    let elastic = ["--hosts", "4", "--spares", "3", "--elastic", "4..4"];
    let kill = ["--kill", "3", "--supervise", "none"];
    // Of four workers, one may be missing; none may; all but the last may. Of two spares that see
    // one death at the same time, both come if another dead worker has left its place.
    for (may_fail, came) in [("0.25", 2..=3), ("0", 3..=3), ("1", 0..=0)] {
        let part = ["--may-fail", may_fail];
        let all = [&rank[..], &elastic, &kill, &part].concat();
        let (found, summary) = run(&stage, &all);
        assert!(found == expected, "{summary:#}");
        assert_killed(&summary, 3, true);
        let counted_came = counted(&summary, "came", "by_failures");
        assert!(came.contains(&counted_came), "{may_fail}: {summary:#}");
        assert_eq!(counted(&summary, "came", "by_ready"), 0, "{summary:#}");
    }
}

/// A worker that comes because of ready tasks is not a successor, even if another has died before.
#[test]
fn only_who_comes_for_a_dead_one_is_said_to_have_replaced_it() {
    let stage = Stage::new("elastic-successors");
    let (expected, _) = bytes(&stage, &WIDE);
    let elastic = ["--hosts", "2", "--spares", "3", "--elastic", "1..5"];
    let kill = ["--kill", "1", "--supervise", "none", "--may-fail", "1"];
    let (found, summary) = bytes(&stage, &[&WIDE[..], &elastic, &kill].concat());
    assert!(found == expected, "{summary:#}");
    assert_killed(&summary, 1, true);
    let by = summary["failures"][0]["taken_over_by"].as_array().unwrap();
    let came = counted(&summary, "came", "by_failures");
    // One died, so at most one takes its place; it may have come too late to begin a task.
    assert!(by.len() as u64 <= came && came <= 1, "{summary:#}");
    assert!(!by.contains(&summary["failures"][0]["host"]), "{summary:#}");
    assert!(counted(&summary, "came", "by_ready") >= 1, "{summary:#}");
}

/// A worker started by hand stands by, like the run's own workers.
#[test]
fn who_comes_to_an_elastic_run_takes_the_place_of_a_dead_one() {
    let stage = Stage::new("elastic-guest");
    let rank = ["pagerank", "rmat:13", "--tolerance", "0"];
    let rank = [&rank[..], &["--iterations", "3000"]].concat();
    let (expected, _) = run(&stage, &rank);
    let place = Place::new("elastic-guest");
    let pod = place.path();
    let output = stage.path("elastic");
    let mut all = vec!["run"];
    all.extend(&rank);
    all.extend(["--hosts", "2", "--elastic", "2..2", "--may-fail", "0"]);
    all.extend(["--supervise", "none", "--pod", pod, "--output", &output]);
    let mut running = Running::start(all);
    let living = || {
        let ended = command(["pod", "status", pod, "--json"]).output().unwrap();
        let status: Option<Value> = serde_json::from_slice(&ended.stdout).ok();
        status.and_then(|status| status["pools"][0]["living"].as_u64())
    };
    wait_until("both work", || living() == Some(2));
    let hosts = processes_of(pod);
    let mut worker = Running::start(["worker", "--pod", pod]);
    worker.wait_for(&["works in the pool pagerank"]);
    hosts.first().expect("a host").kill();
    wait_until("the guest has its place", || {
        processes_of(pod).len() == 1 && living() == Some(2)
    });
    running.ends();
    let said = worker.ends();
    let (_, tasks) = said.split_once("left in good order; ").expect(&said);
    assert!(!tasks.starts_with("0 "), "{said}");
    assert!(fs::read_to_string(&output).unwrap() == expected);
}

/// A worker that stands still while others go on is suspected, without other consequences.
#[test]
fn a_host_that_stands_still_for_a_while_is_suspected() {
    let stage = Stage::new("elastic-freeze");
    let rank = ["pagerank", "rmat:13", "--tolerance", "0"];
    let rank = [&rank[..], &["--iterations", "3000"]].concat();
    let (expected, _) = run(&stage, &rank);
    let place = Place::new("elastic-freeze");
    let pod = place.path();
    let output = stage.path("frozen");
    let mut all = vec!["run"];
    all.extend(&rank);
    all.extend(["--hosts", "4", "--freeze", "150ms", "--json"]);
    all.extend(["--pod", pod, "--output", &output]);
    let mut running = Running::start(all);
    let works = |seen: &Seen| Seen::of(seen.pid).is_some_and(|seen| seen.seconds > 0.1);
    wait_until("all work", || {
        let all = processes_of(pod);
        all.len() == 4 && all.iter().all(works)
    });
    let frozen = processes_of(pod)[0];
    let environment = fs::read(format!("/proc/{}/environ", frozen.pid)).unwrap();
    let mut words = environment.split(|byte| *byte == 0);
    let host = words.find_map(|word| word.strip_prefix(b"OUTLIVE_HOST="));
    let host: u64 = String::from_utf8_lossy(host.unwrap()).parse().unwrap();
    let signal = |signal| {
        let pid = Pid::from_raw(frozen.pid as i32).unwrap();
        // It may have been fenced by now, on a slow machine.
        let _ = kill_process(pid, signal);
    };
    signal(Signal::STOP);
    // Less than the time for which a host may be silent.
    std::thread::sleep(Duration::from_millis(1000));
    signal(Signal::CONT);
    let summary: Value = serde_json::from_str(&running.ends()).unwrap();
    assert!(
        fs::read_to_string(&output).unwrap() == expected,
        "{summary:#}"
    );
    assert_eq!(summary["workers"]["freeze"], 0.15);
    let suspected = summary["workers"]["suspected"].as_array().unwrap();
    let seen = suspected
        .iter()
        .any(|it| it["host"] == host && it["worker"] == host && it["times"].as_u64() >= Some(1));
    assert!(seen, "host {host}: {summary:#}");
}

/// A process stands still in a task, while another process sends the heartbeats of its host.
#[test]
fn a_host_whose_worker_is_overdue_is_fenced_if_asked() {
    let stage = Stage::new("overdue");
    let alone = stage.path("alone");
    outlive([&["run"], &WIDE[..], &["--output", &alone]].concat()).succeeds();
    let place = Place::new("overdue");
    let pod = place.path();
    let output = stage.path("product");
    let mut all = vec!["run"];
    all.extend(WIDE);
    all.extend(["--hosts", "2", "--processes", "2"]);
    all.extend(["--deadline", "500ms", "--fence-overdue", "--json"]);
    all.extend(["--pod", pod, "--output", &output]);
    let mut running = Running::start(all);
    let works = |seen: &Seen| Seen::of(seen.pid).is_some_and(|seen| seen.seconds > 0.1);
    wait_until("all work", || {
        let all = processes_of(pod);
        all.len() == 4 && all.iter().all(works)
    });
    let processes = processes_of(pod);
    let is_child = |one: &&Seen| processes.iter().any(|other| other.pid == one.parent);
    let child = processes.iter().find(is_child).unwrap();
    kill_process(Pid::from_raw(child.pid as i32).unwrap(), Signal::STOP).unwrap();
    let summary: Value = serde_json::from_str(&running.ends()).unwrap();
    let is_same = fs::read(&output).unwrap() == fs::read(&alone).unwrap();
    assert!(is_same, "{summary:#}");
    assert_eq!(summary["workers"]["deadline"], 0.5);
    let overdue = summary["workers"]["overdue"].as_array().unwrap();
    assert!(!overdue.is_empty(), "{summary:#}");
    let failures = summary["failures"].as_array().unwrap();
    let fenced = |host: &Value| {
        let of = |one: &&Value| one["host"] == *host && one["fenced"] == true;
        failures.iter().any(|one| of(&one))
    };
    let all_are = overdue.iter().all(|one| fenced(&one["host"]));
    assert!(all_are, "{summary:#}");
    assert_nothing_is_left(&summary);
}

#[test]
fn numbers_of_workers_that_cannot_be_are_refused() {
    let _stage = Stage::new("elastic-refused");
    let rank = |more: &[&str]| refused(&[&["pagerank", "rmat:4"], more].concat());
    for bad in ["4", "0..4", "4..2", "a..b", "2..", "-1..3"] {
        rank(&[&format!("--elastic={bad}")]).fails(2, "--elastic");
    }
    rank(&["--hosts", "2", "--spares", "1", "--elastic", "1..4"]).fails(
        2,
        "the maximum number of elastic workers cannot be 4; the range is 1 to 3",
    );
    rank(&["--hosts", "4", "--elastic", "2..3"])
        .fails(2, "(those of --hosts) cannot be 4; the range is 1 to 3");
    rank(&["--ready", "0..4"]).fails(2, "--elastic");
    rank(&["--elastic", "1..2", "--ready", "4..4"]).fails(2, "--ready");
    rank(&["--elastic", "1..2", "--may-fail", "1.5"]).fails(2, "from 0 to 1");
    rank(&["--freeze", "0ms"]).fails(2, "between 1ms and a day");
    rank(&["--deadline", "soon"]).fails(2, "write 500ms or 10s");
    rank(&["--fence-overdue"]).fails(2, "--deadline");
}
