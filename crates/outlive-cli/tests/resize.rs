//! `outlive pod resize`: a pool of workers grows and shrinks during a run, without an effect on the
//! result.

mod support;

use serde_json::Value;
use std::fs;
use support::programs::run;
use support::run::{Seen, Stage, assert_nothing_is_left, processes_of, wait_until};
use support::{Ended, Place, Running, command, outlive};

const RANK: [&str; 6] = [
    "pagerank",
    "rmat:13",
    "--tolerance",
    "0",
    "--iterations",
    "3000",
];
/// Twice as many iterations, for a run during which the test waits for two deaths: on a loaded
/// computer, a run of [`RANK`] could end before.
const LONG_RANK: [&str; 6] = [
    "pagerank",
    "rmat:13",
    "--tolerance",
    "0",
    "--iterations",
    "6000",
];
/// The number of hosts of the tests.
const ON_THREE: [&str; 2] = ["--hosts", "3"];

/// Returns the pool of the run, as `pod status` shows it; `None` while it does not exist.
fn pool(pod: &str) -> Option<Value> {
    let ended = command(["pod", "status", pod, "--json"]).output().unwrap();
    let status: Value = serde_json::from_slice(&ended.stdout).ok()?;
    let pool = status["pools"].get(0)?;
    Some(pool.clone())
}

fn await_workers(pod: &str, workers: u64) {
    wait_until("the pool has that many workers", || {
        pool(pod).is_some_and(|pool| pool["living"] == workers)
    });
}

fn resize(pod: &str, more: &[&str]) -> Ended {
    let mut all = vec!["pod", "resize", pod];
    all.extend(more);
    outlive(all)
}

/// Requests a number of workers, and waits until they work.
fn resized(pod: &str, workers: &str) -> Value {
    let answer = resize(pod, &["--workers", workers, "--wait", "30s", "--json"]);
    let answer: Value = serde_json::from_str(&answer.succeeds()).unwrap();
    assert_eq!(answer["living"].to_string(), workers, "{answer:#}");
    assert_eq!(answer["wanted"], answer["living"]);
    assert_eq!(
        (&answer["missing"], &answer["surplus"]),
        (&0.into(), &0.into())
    );
    assert_eq!(answer["start"], Value::Null);
    answer
}

#[test]
fn a_run_is_resized_in_the_middle_down_and_up() {
    let stage = Stage::new("resize");
    let (expected, alone) = run(&stage, &[&RANK[..], &["--hosts", "1"]].concat());
    for way in ["came", "went"] {
        assert_eq!(alone["workers"][way]["by_request"], 0, "{alone:#}");
    }
    let place = Place::new("resize");
    let pod = place.path();
    let output = stage.path("resized");
    let mut all = vec!["run"];
    all.extend(RANK);
    all.extend(ON_THREE);
    all.extend(["--pod", pod, "--json", "--output", &output]);
    let mut running = Running::start(all);
    await_workers(pod, 3);
    let down = resized(pod, "1");
    assert_eq!(
        (&down["least"], &down["before"]),
        (&1.into(), &down["most"])
    );
    // The workers that became surplus are on standby: they have not ended.
    assert_eq!(processes_of(pod).len(), 3);
    let up = resized(pod, "3");
    assert_eq!(up["before"], 1);
    // The live view shows the same as `pod status`.
    let frame = outlive(["pod", "watch", pod, "--once", "--every", "10ms"]).succeeds();
    assert!(frame.contains("pools ──"), "{frame}");
    assert!(
        frame.contains(" pool pagerank: 3 workers, 3 wanted, at most "),
        "{frame}"
    );
    assert!(frame.contains("WORKER  INSTANCE"), "{frame}");
    // Impossible numbers.
    let most = &up["most"];
    for workers in ["0", "4000"] {
        let why =
            format!("the pool `pagerank` cannot have {workers} workers; the range is 1 to {most}");
        resize(pod, &["--workers", workers]).fails(2, &why);
    }
    resize(pod, &["--workers", "2", "--pool", "sums"])
        .fails(1, "has no pool `sums`; it has pagerank");
    resize(pod, &[]).fails(2, "--workers");
    // No worker stands by any more: the message says how to start more.
    let said = resize(pod, &["--workers", "5", "--wait", "50ms"]).succeeds();
    assert!(
        said.contains("pool pagerank: 5 workers are wanted instead of 3; 3 work\n2 have not come"),
        "{said}"
    );
    let (_, start) = said.trim().split_once("to start them: ").expect("how to");
    let mut words = start.split(' ');
    assert_eq!(words.next(), Some("outlive"));
    let mut worker = Running::start(words.collect::<Vec<_>>());
    await_workers(pod, 5);
    resized(pod, "3");
    let left = worker.ends();
    assert!(left.contains("left in good order"), "{left}");
    let summary: Value = serde_json::from_str(&running.ends()).unwrap();
    assert_nothing_is_left(&summary);
    assert!(
        fs::read_to_string(&output).unwrap() == expected,
        "{summary:#}"
    );
    assert_eq!(summary["failures"], serde_json::json!([]));
    let workers = &summary["workers"];
    // At least the two that went and came again. In the end, a guest or a worker of the run may be
    // sent away: the one with the last place.
    let at_least = |way: &str| workers[way]["by_request"].as_u64() >= Some(2);
    assert!(at_least("came") && at_least("went"), "{workers:#}");
    assert_eq!(workers["came"]["by_ready"], 0);
    assert_eq!(workers["elastic"], Value::Null);
}

#[test]
fn who_dies_after_a_resize_is_replaced_by_one_that_was_sent_away() {
    let stage = Stage::new("resize-dies");
    let (expected, _) = run(&stage, &[&LONG_RANK[..], &["--hosts", "1"]].concat());
    let place = Place::new("resize-dies");
    let pod = place.path();
    let output = stage.path("resized");
    let mut all = vec!["run"];
    all.extend(LONG_RANK);
    all.extend(ON_THREE);
    all.extend(["--supervise", "none", "--pod", pod, "--output", &output]);
    let mut running = Running::start(all);
    await_workers(pod, 3);
    resized(pod, "1");
    // The worker is killed, and then its successor.
    for left in [2, 1] {
        let status = outlive(["pod", "status", pod, "--json"]).succeeds();
        let status: Value = serde_json::from_str(&status).unwrap();
        let workers = status["pools"][0]["workers"].as_array().unwrap();
        let works = workers
            .iter()
            .find(|worker| worker["lives"] == true)
            .unwrap();
        let members = status["members"].as_array().unwrap();
        let member = members
            .iter()
            .find(|it| it["instance"] == works["instance"]);
        let pid = member.unwrap()["pid"].as_u64().unwrap();
        let process = processes_of(pod)
            .into_iter()
            .find(|it| u64::from(it.pid) == pid);
        process.expect("a host of the run").kill();
        // A worker that dies before it has begun a task has not taken over.
        let has_begun = |pool: &Value| {
            let workers = pool["workers"].as_array().unwrap().iter();
            let mut living = workers.filter(|worker| worker["lives"] == true);
            pool["living"] == 1 && living.any(|worker| worker["task"].is_string())
        };
        wait_until("another one works", || {
            processes_of(pod).len() == left && pool(pod).as_ref().is_some_and(has_begun)
        });
    }
    let said = running.ends();
    assert!(said.contains("the pool was resized: "), "{said}");
    assert!(said.contains("2 went on request"), "{said}");
    // Both became surplus, and were called to replace a dead one.
    let replaced = said.matches(", replaced by host ").count();
    assert_eq!(replaced, 2, "{said}");
    assert!(fs::read_to_string(&output).unwrap() == expected, "{said}");
}

#[test]
fn guests_are_none_of_those_who_are_asked_for() {
    let stage = Stage::new("resize-guests");
    let (expected, _) = run(&stage, &[&RANK[..], &["--hosts", "1"]].concat());
    let place = Place::new("resize-guests");
    let pod = place.path();
    let output = stage.path("resized");
    let mut all = vec!["run"];
    all.extend(RANK);
    all.extend([
        "--hosts", "1", "--spares", "1", "--pod", pod, "--output", &output,
    ]);
    let mut running = Running::start(all);
    await_workers(pod, 1);
    let mut guest = Running::start(["worker", "--pod", pod]);
    await_workers(pod, 2);
    let shown = pool(pod).unwrap();
    let is_guest = |worker: &&Value| worker["is_guest"] == true;
    let guests = shown["workers"].as_array().unwrap().iter().filter(is_guest);
    assert_eq!(
        (guests.count(), &shown["guests"]),
        (1, &1.into()),
        "{shown:#}"
    );
    let status = outlive(["pod", "status", pod]).succeeds();
    assert!(
        status.contains("2 workers (1 of them additional), 1 wanted"),
        "{status}"
    );
    assert!(status.contains(" lives, additional "), "{status}");
    // Two work, but only one of them counts as wanted.
    let asked = |workers: &str, wait: &str| -> Value {
        let answer = resize(pod, &["--workers", workers, "--wait", wait, "--json"]);
        serde_json::from_str(&answer.succeeds()).unwrap()
    };
    let told = |answer: &Value| {
        ["living", "guests", "missing", "surplus"].map(|name| answer[name].as_u64().unwrap())
    };
    assert_eq!(told(&asked("2", "30s")), [3, 1, 0, 0]);
    let answer = asked("3", "20ms");
    assert_eq!(told(&answer), [3, 1, 1, 0]);
    // Another worker without --spare would be a guest, too.
    let start = answer["start"].as_str().unwrap();
    assert!(start.ends_with(" --threads 1 --spare"), "{start}");
    assert_eq!(told(&asked("1", "30s")), [2, 1, 0, 0]);
    let said = resize(pod, &["--workers", "1"]).succeeds();
    assert!(said.contains("; 1 work, and 1 additional\n"), "{said}");
    running.ends();
    guest.ends();
    assert!(fs::read_to_string(&output).unwrap() == expected);
}

#[test]
fn a_pod_that_nobody_uses_is_not_resized() {
    let place = Place::new("resize-nobody");
    let pod = place.path();
    resize(pod, &["--workers", "2"]).fails(1, "nothing is there");
    outlive(["pod", "create", pod, "--size", "4M", "--ids", "16"]).succeeds();
    resize(pod, &["--workers", "2"]).fails(1, "has no pool of workers");
    outlive(["pod", "destroy", pod]).succeeds();
    let mut all = vec!["run"];
    all.extend(RANK);
    all.extend(ON_THREE);
    all.extend(["--pod", pod]);
    let mut running = Running::start(all);
    await_workers(pod, 3);
    // Its hosts die with it, and leave the pod as it is.
    let hosts = processes_of(pod);
    running.kill();
    wait_until("all are dead", || hosts.iter().all(Seen::has_ended));
    resize(pod, &["--workers", "2"]).fails(1, "no process uses ");
}
