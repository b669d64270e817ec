//! `outlive pool`: servers that are started, killed and interrupted, and the demo.

use crate::support::explained::assert_explained;
use crate::support::{Running, outlive};
use serde_json::Value;

struct Lent(String);

impl Drop for Lent {
    fn drop(&mut self) {
        let _ = outlive_pool::Pool::destroy(&self.0);
    }
}

fn phases(path: &str) -> Vec<String> {
    let printed = outlive(["pool", "stat", path, "--json"]).succeeds();
    let json: Value = serde_json::from_str(&printed).unwrap();
    let phase = |server: &Value| server["phase"].as_str().unwrap().to_owned();
    json["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(phase)
        .collect()
}

#[test]
fn servers_are_started_killed_and_interrupted() {
    let lent = Lent(format!("/dev/shm/outlive-cli-pool-{}", std::process::id()));
    let path = lent.0.as_str();
    outlive(["pool", "stat", path]).fails(1, path);
    outlive(["pool", "create", path, "--slice", "5000"]).fails(1, "power of two");
    let created = outlive(["pool", "create", path, "--slice", "64K"]).succeeds();
    assert!(created.contains("slices of 64 KiB"), "{created}");

    let mut first = Running::start(["pool", "serve", path, "--size", "1M"]);
    first.wait_for(&["server 1 serves 1 MiB"]);
    let mut second = Running::start(["pool", "serve", path]);
    second.wait_for(&["server 2 serves 64 MiB"]);
    let printed = outlive(["pool", "stat", path, "--json"]).succeeds();
    assert_explained("## `outlive pool stat", &printed);
    let text = outlive(["pool", "stat", path]).succeeds();
    assert!(text.contains("2 live servers; 0 of 65536 slices"), "{text}");
    outlive(["pool", "destroy", path]).fails(1, "members, among them");

    first.kill();
    second.wait_for(&["died"]);
    let begin = std::time::Instant::now();
    while phases(path) != ["dead", "live"] {
        assert!(begin.elapsed().as_secs() < 60, "{:?}", phases(path));
    }
    second.interrupt();
    second.wait_for(&["left the pool"]);
    second.ends();
    assert_eq!(phases(path), ["dead"]);
    outlive(["pool", "destroy", path]).succeeds();
}

#[test]
fn the_demo_has_the_right_sum() {
    let printed = outlive(["pool", "demo", "--elements", "300001", "--json"]).succeeds();
    assert_explained("## `outlive pool demo", &printed);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(json["right"], true);
    assert_eq!(json["sum"], json["expected"]);
    assert_eq!(json["failures"].as_array().unwrap().len(), 0);
    outlive(["pool", "demo", "--servers", "2", "--kill", "3"]).fails(2, "--kill 3");
}

#[test]
fn the_demo_reports_the_part_of_a_killed_server() {
    let arguments = [
        "pool",
        "demo",
        "--kill",
        "1",
        "--elements",
        "400000",
        "--json",
    ];
    let ended = outlive(arguments);
    assert_eq!(ended.code, Some(1), "{}", ended.errors);
    assert_explained("## `outlive pool demo", &ended.output);
    let json: Value = serde_json::from_str(&ended.output).unwrap();
    assert_eq!(
        (&json["right"], &json["sum"]),
        (&Value::Bool(false), &Value::Null)
    );
    let lost = json["lost_elements"].as_u64().unwrap();
    assert_eq!(json["failures"][0]["lost_elements"], lost);
    // 13 slices of 32,768 elements over 4 servers: the killed one has 3, or 4.
    assert!((84_000..=131_072).contains(&lost), "{lost}");
    let error = json["failures"][0]["error"].as_str().unwrap();
    assert!(error.contains("was lost with server"), "{error}");
}
