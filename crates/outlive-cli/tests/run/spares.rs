//! `outlive run … --spares N`: hosts that are on standby take the places of dead ones, without an
//! effect on the result.

use crate::support::programs::{assert_killed, refused, run};
use crate::support::run::{Seen, Stage, assert_nothing_is_left, processes_of, wait_until};
use crate::support::{Place, Running, outlive};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;

/// Long enough for a spare to come before the end, also on a busy machine.
const LONG: [&str; 4] = ["--tolerance", "0", "--iterations", "1000"];

fn failures(summary: &Value) -> &[Value] {
    summary["failures"].as_array().unwrap()
}

/// Returns the failed host and its successors. Requires that they came at once: not after the end.
fn replaced(failure: &Value) -> (u64, Vec<u64>) {
    let by = failure["taken_over_by"].as_array().unwrap();
    assert!(failure["taken_over_at"].is_number(), "{failure:#}");
    let by = by.iter().map(|host| host.as_u64().unwrap()).collect();
    (failure["host"].as_u64().unwrap(), by)
}

#[test]
fn spares_take_the_places_of_hosts_that_nobody_starts_again() {
    let stage = Stage::new("spares");
    let rank = |more: &[&str]| {
        let graph = ["pagerank", "rmat:12", "--task-rows", "300"];
        run(&stage, &[&graph[..], &LONG, more].concat())
    };
    let (expected, alone) = rank(&["--hosts", "2"]);
    assert_eq!(alone["spares"], 0);
    // Only spares work in the end: without one, no host would.
    for (hosts, spares, threads) in [("1", "1", "1"), ("2", "2", "1"), ("1", "2", "2")] {
        let kills = if (hosts, spares) == ("1", "1") { 1 } else { 2 };
        let kill = kills.to_string();
        let mut all = vec!["--supervise", "none", "--hosts", hosts, "--spares", spares];
        all.extend(["--threads", threads, "--kill", &kill]);
        let (found, summary) = rank(&all);
        assert!(found == expected, "{summary:#}");
        assert_killed(&summary, kills, true);
        assert_eq!(summary["spares"].to_string(), spares);
        let hosts: u64 = hosts.parse().unwrap();
        let is_spare = |failure: &Value| failure["host"].as_u64().unwrap() >= hosts;
        // A spare may be killed while it takes a place: the next one takes that of the first dead.
        let has_place =
            |failure: &&Value| !is_spare(failure) || failure["taken_over_at"].is_number();
        let had_places: Vec<_> = failures(&summary).iter().filter(has_place).collect();
        assert!(!had_places.is_empty(), "{summary:#}");
        for failure in had_places {
            let (_, by) = replaced(failure);
            // The places of several threads may be taken by several spares.
            assert!(by.iter().all(|by| *by >= hosts), "{failure:#}");
            assert_eq!(failure["rejoined_at"], Value::Null);
        }
    }
    // Without a death, no host is replaced.
    let (found, summary) = rank(&["--hosts", "2", "--spares", "2"]);
    assert!(found == expected && failures(&summary).is_empty());
    assert_eq!(summary["units_redone"], 0);
    // As text.
    let mut all = vec!["run", "pagerank", "rmat:12", "--task-rows", "300"];
    all.extend(LONG);
    all.extend([
        "--supervise",
        "none",
        "--hosts",
        "1",
        "--spares",
        "1",
        "--kill",
        "1",
    ]);
    let shown = outlive(all).succeeds();
    assert!(
        shown.contains("on 1 host and 1 spare of 1 thread"),
        "{shown}"
    );
    assert!(shown.contains(", replaced by host 1 after "), "{shown}");
}

#[test]
fn hosts_that_are_started_again_stand_by_for_the_next() {
    let stage = Stage::new("spares-restart");
    let graph = ["pagerank", "rmat:12", "--task-rows", "300"];
    let arguments = [&graph[..], &["--tolerance", "0", "--iterations", "400"]].concat();
    let (expected, _) = run(&stage, &arguments);
    for at in ["commit", "random"] {
        // More deaths than spares.
        let more = [
            "--hosts",
            "2",
            "--spares",
            "1",
            "--kill",
            "4",
            "--kill-at",
            at,
        ];
        let (found, summary) = run(&stage, &[&arguments[..], &more].concat());
        assert!(found == expected, "{summary:#}");
        assert_killed(&summary, 4, at == "commit");
        // A restarted host may be faster than a spare, and get its own place again; not each time.
        let by: Vec<_> = { failures(&summary).iter() }
            .flat_map(|failure| failure["taken_over_by"].as_array().unwrap())
            .map(|host| host.as_u64().unwrap())
            .collect();
        assert!(
            !by.is_empty() && by.iter().all(|host| *host <= 2),
            "{summary:#}"
        );
        for failure in failures(&summary) {
            let own = failure["taken_over_by"].as_array().unwrap();
            assert!(!own.contains(&failure["host"]), "{summary:#}");
        }
    }
}

#[test]
fn every_program_takes_spares() {
    let stage = Stage::new("spares-programs");
    let text: Vec<u8> = (0..400_000u32)
        .flat_map(|it| it.wrapping_mul(it).to_le_bytes())
        .collect();
    let file = stage.write("file", &text);
    let programs: [&[&str]; 6] = [
        &["wordcount", &file, "--unit", "20K"],
        &["histogram", &file, "--task-bytes", "50K"],
        &["dedup", &file, "--task-bytes", "16K", "--window", "256K"],
        &["kmeans", "random:20000:3:20", "--task-points", "500"],
        &["blackscholes", "random:40000", "--task-options", "500"],
        &[
            "matmul",
            "random:200:300",
            "random:300:250:2",
            "--task-rows",
            "8",
            "--task-columns",
            "64",
        ],
    ];
    for program in programs {
        let bytes = |more: &[&str]| {
            let output = stage.path("result");
            let mut all = vec!["run"];
            all.extend(program);
            all.extend(["--json", "--output", &output]);
            all.extend(more);
            let summary: Value = serde_json::from_str(&outlive(all).succeeds()).unwrap();
            assert_nothing_is_left(&summary);
            (fs::read(&output).unwrap(), summary)
        };
        let (expected, _) = bytes(&["--hosts", "2"]);
        let more = [
            "--hosts",
            "1",
            "--spares",
            "1",
            "--kill",
            "1",
            "--supervise",
            "none",
        ];
        let (found, summary) = bytes(&more);
        assert!(found == expected, "{summary:#}");
        assert_eq!(replaced(&failures(&summary)[0]), (0, vec![1]));
    }
}

/// Returns the host of a process of a run; `None` if it is gone, or not yet a host.
fn host_of(seen: Seen) -> Option<u32> {
    let environment = fs::read(format!("/proc/{}/environ", seen.pid)).ok()?;
    let mut words = environment.split(|byte| *byte == 0);
    let host = words.find_map(|word| word.strip_prefix(b"OUTLIVE_HOST="))?;
    Some(String::from_utf8_lossy(host).parse().unwrap())
}

#[test]
fn whoever_is_killed_by_hand_is_replaced_and_a_spare_needs_no_replacement() {
    let stage = Stage::new("spares-by-hand");
    let rank = [
        "pagerank",
        "rmat:13",
        "--tolerance",
        "0",
        "--iterations",
        "2500",
    ];
    let (expected, _) = run(&stage, &[&rank[..], &["--hosts", "2"]].concat());
    let place = Place::new("spares");
    let pod = place.path().to_owned();
    let output = stage.path("by-hand");
    let mut all = vec!["run"];
    all.extend(rank);
    all.extend(["--hosts", "2", "--spares", "2", "--supervise", "none"]);
    all.extend(["--json", "--pod", &pod, "--output", &output]);
    let mut running = Running::start(all);
    let hosts = || -> Vec<(u32, Seen)> {
        let all = processes_of(&pod).into_iter();
        all.filter_map(|seen| Some((host_of(seen)?, seen)))
            .collect()
    };
    wait_until("all are there", || hosts().len() == 4);
    // All have joined, and those that are to work do.
    let works = |seen: &Seen| Seen::of(seen.pid).is_some_and(|seen| seen.seconds > 0.2);
    wait_until("two work", || {
        hosts().iter().filter(|it| works(&it.1)).count() >= 2
    });
    let kill = |host: u32| {
        let (_, seen) = hosts().into_iter().find(|it| it.0 == host).unwrap();
        seen.kill();
        wait_until("it is gone", || hosts().iter().all(|it| it.0 != host));
    };
    // A spare that was never called, and a host: the other spare replaces the latter.
    kill(2);
    kill(0);
    let summary: Value = serde_json::from_str(&running.ends()).unwrap();
    assert_nothing_is_left(&summary);
    assert!(
        fs::read_to_string(&output).unwrap() == expected,
        "{summary:#}"
    );
    // Of two simultaneous deaths, either may be reported first.
    let of = |host: u32| {
        let mut found = failures(&summary).iter().filter(|it| it["host"] == host);
        found.next().unwrap_or_else(|| panic!("{summary:#}"))
    };
    assert_eq!(failures(&summary).len(), 2);
    assert_eq!(of(2)["killed_at"], Value::Null);
    assert_eq!(of(2)["taken_over_by"], serde_json::json!([]));
    assert_eq!(replaced(of(0)), (0, vec![3]));
}

#[test]
fn an_interrupted_run_with_spares_leaves_nothing() {
    let _stage = Stage::new("spares-interrupted");
    let place = Place::new("spares-interrupted");
    let pod = place.path().to_owned();
    let mut all = vec!["run", "pagerank", "rmat:12", "--tolerance", "0"];
    all.extend(["--iterations", "1000000", "--spares", "2", "--pod", &pod]);
    let mut running = Running::start(all);
    wait_until("all are there", || processes_of(&pod).len() == 6);
    running.signal(Signal::INT);
    running.ends_with(1);
    assert!(!fs::exists(&pod).unwrap() && processes_of(&pod).is_empty());
}

#[test]
fn spares_that_cannot_be_are_refused() {
    let _stage = Stage::new("spares-refused");
    let ranking = ["pagerank", "rmat:4"];
    let rank = |more: &[&str]| refused(&[&ranking[..], more].concat());
    rank(&["--spares=-1"]).fails(2, "--spares");
    rank(&["--hosts", "1000", "--spares", "100"])
        .fails(2, "the number of hosts and spares cannot be 1100");
    // All places and all spares are lost.
    let none = [
        "--hosts",
        "1",
        "--spares",
        "1",
        "--kill",
        "2",
        "--supervise",
        "none",
    ];
    let slow = ["rmat:12", "--task-rows", "100", "--tolerance", "0"];
    refused(&[&["pagerank"], &slow[..], &none].concat()).fails(1, "all 2 hosts are dead");
}
