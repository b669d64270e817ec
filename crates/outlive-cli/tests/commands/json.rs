//! Every field that `--json` prints is explained in `docs/json.md`.

use crate::support;
use crate::support::explained::assert_explained;
use crate::support::run::Stage;
use crate::support::{Place, Running, outlive};
use serde_json::Value;

#[test]
fn the_fields_of_pods_are_explained() {
    let place = Place::new("json");
    let path = place.path();
    outlive(["pod", "create", path, "--size", "4M", "--ids", "16"]).succeeds();
    let mut host = Running::start(["pod", "host", path, "--host", "0"]);
    host.wait_for(&["joined"]);
    let print = |command: &str| outlive(["pod", command, path, "--json"]).succeeds();
    assert_explained("## `outlive pod status", &print("status"));
    assert_explained("## `outlive pod check", &print("check"));
    let clean = outlive(["pod", "clean", "--json"]).succeeds();
    assert_explained("## `outlive pod clean", &clean);
    host.interrupt();
    host.ends();
    let repair = outlive(["pod", "check", path, "--repair", "--json"]).succeeds();
    assert!(repair.contains("repaired"), "{repair}");
    assert_explained("## `outlive pod check", &repair);
}

#[test]
fn the_fields_of_a_run_are_explained() {
    let _stage = Stage::new("json");
    let run = outlive(["run", "wordcount", "--json", "--seed", "7"]).succeeds();
    let summary: Value = serde_json::from_str(&run).unwrap();
    assert_eq!(summary["failures"].as_array().unwrap().len(), 2);
    assert_eq!(summary["seed"], 7);
    assert_explained("## `outlive run wordcount", &run);
    let text = outlive(["run", "wordcount", "--seed", "7"]).succeeds();
    assert!(text.contains(", seed 7\n"), "{text}");
}

#[test]
fn the_fields_of_a_ranking_are_explained() {
    let _stage = Stage::new("json-ranks");
    let rank = |more: &[&str]| {
        let mut arguments = vec!["run", "pagerank", "rmat:10", "--task-rows", "100"];
        arguments.extend(["--kill", "1", "--seed", "7"]);
        arguments.extend(more);
        outlive(arguments).succeeds()
    };
    let run = rank(&["--json", "--verify"]);
    let summary: Value = serde_json::from_str(&run).unwrap();
    assert_eq!(summary["failures"].as_array().unwrap().len(), 1);
    assert_eq!(summary["seed"], 7);
    assert_explained("## `outlive run wordcount", &run);
    let text = rank(&[]);
    assert!(text.contains(", seed 7\n"), "{text}");
}

#[test]
fn the_fields_of_other_programs_are_explained() {
    let _stage = Stage::new("json-programs");
    for program in [
        "histogram random:20:20",
        "kmeans random:100",
        "blackscholes random:100",
        "matmul random:20:20 random:20:20",
        "dedup Cargo.toml",
    ] {
        let mut arguments = vec!["run"];
        arguments.extend(program.split(' '));
        arguments.extend(["--kill", "1", "--seed", "7", "--verify", "--json"]);
        let run = outlive(arguments).succeeds();
        let summary: Value = serde_json::from_str(&run).unwrap();
        assert_eq!(summary["failures"].as_array().unwrap().len(), 1);
        assert_eq!(summary["result"]["verified"], true);
        assert_explained("## `outlive run wordcount", &run);
    }
}

#[test]
fn the_fields_of_a_resize_are_explained() {
    let _stage = Stage::new("json-resize");
    let place = Place::new("json-resize");
    let mut run = vec!["run", "pagerank", "rmat:12", "--tolerance", "0"];
    run.extend(["--iterations", "1000000", "--pod", place.path()]);
    let mut run = Running::start(run);
    support::run::wait_until("the pool is there", || {
        let resize = ["pod", "resize", place.path(), "--workers", "2", "--json"];
        let ended = outlive(resize);
        let is_there = ended.code == Some(0);
        if is_there {
            assert_explained("## `outlive pod resize", &ended.output);
        }
        is_there
    });
    run.interrupt();
    run.ends_with(1);
}
