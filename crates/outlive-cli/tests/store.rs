//! `outlive store`: memory servers that are started, killed and interrupted, and the store's
//! status.

mod support;

use serde_json::Value;
use support::explained::assert_explained;
use support::{Running, outlive};

struct Bank(String);

impl Bank {
    fn new() -> Self {
        Self(format!("/dev/shm/outlive-cli-store-{}", std::process::id()))
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        let _ = outlive_store::servers::Store::destroy(&self.0);
    }
}

fn phases(path: &str) -> Vec<String> {
    let printed = outlive(["store", "status", path, "--json"]).succeeds();
    let json: Value = serde_json::from_str(&printed).unwrap();
    let memory = json["memory"].as_array().unwrap();
    let phase = |server: &Value| server["phase"].as_str().unwrap().to_owned();
    memory.iter().map(phase).collect()
}

#[test]
fn memory_servers_are_started_killed_and_interrupted() {
    let bank = Bank::new();
    let path = bank.0.as_str();
    outlive(["store", "status", path]).fails(1, path);
    let created = outlive(["store", "create", path, "--replicas", "2", "--poison"]).succeeds();
    assert!(created.contains("2 replicas of each object"), "{created}");
    outlive(["store", "create", path]).fails(1, path);

    let mut first = Running::start(["store", "memory", path, "--size", "1M"]);
    first.wait_for(&["memory server 0 serves 1 MiB"]);
    let mut second = Running::start(["store", "memory", path]);
    second.wait_for(&["memory server 1 serves 64 MiB"]);
    let printed = outlive(["store", "status", path, "--json"]).succeeds();
    assert_explained("## `outlive store status", &printed);
    let text = outlive(["store", "status", path]).succeeds();
    assert!(text.contains("2 live memory servers with 65 MiB"), "{text}");
    outlive(["store", "destroy", path]).fails(1, "members, among them");

    first.kill();
    second.wait_for(&["died"]);
    let begin = std::time::Instant::now();
    while phases(path) != ["dead", "live"] {
        assert!(begin.elapsed().as_secs() < 60, "{:?}", phases(path));
    }
    second.interrupt();
    second.wait_for(&["left the store"]);
    second.ends();
    assert_eq!(phases(path), ["dead"]);
    outlive(["store", "destroy", path]).succeeds();
    outlive(["store", "destroy", path]).fails(1, path);
}

#[test]
fn a_pod_is_not_a_store() {
    let place = support::Place::new("no-store");
    let path = place.path();
    outlive(["pod", "create", path, "--size", "4M", "--ids", "16"]).succeeds();
    outlive(["store", "status", path]).fails(1, "is not a store");
    outlive(["store", "memory", path]).fails(1, "is not a store");
    outlive(["store", "create", path, "--replicas", "0"]).fails(2, "0 is not in 1..=64");
}
