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
    let refused = outlive(["pool", "resize", path, "2", "65M"]);
    refused.fails(1, "server 2 still lends 64 MiB");
    second.wait_for(&["still lends 64 MiB"]);
    let resized = outlive(["pool", "resize", path, "2", "1M"]).succeeds();
    assert_eq!(resized, "server 2 lends 1 MiB\n");
    second.wait_for(&["lends 1 MiB"]);
    outlive(["pool", "resize", path, "1", "1M"]).fails(1, "server 1 is dead");
    second.interrupt();
    second.wait_for(&["left the pool"]);
    second.ends();
    assert_eq!(phases(path), ["dead"]);
    outlive(["pool", "destroy", path]).succeeds();
}

#[test]
fn a_server_is_drained_and_leaves_nothing_behind() {
    let lent = Lent(format!("/dev/shm/outlive-cli-drain-{}", std::process::id()));
    let path = lent.0.as_str();
    outlive(["pool", "create", path, "--slice", "64K"]).succeeds();
    let mut servers: Vec<Running> = (1..=2)
        .map(|number| {
            let mut server = Running::start(["pool", "serve", path, "--size", "1M"]);
            server.wait_for(&[&format!("server {number} serves 1 MiB")]);
            server
        })
        .collect();
    let pool = outlive_pool::Pool::open(path).unwrap();
    let client = pool.join().unwrap();
    let (reader, first) = (client.reader().unwrap(), outlive_pool::ServerId(1));
    let there = outlive_pool::Placement::There(first);
    let address = client.allocate(3 << 16, there).unwrap();
    reader.write(address.plus(1 << 16), b"outlives").unwrap();
    let printed = outlive(["pool", "drain", path, "1", "--json"]).succeeds();
    assert_explained("## `outlive pool drain", &printed);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&json["moved"], &json["bytes"]),
        (&3.into(), &(3 << 16).into())
    );
    let text = outlive(["pool", "drain", path, "2", "--budget", "1G"]).succeeds();
    assert!(
        text.starts_with("3 slices of 192 KiB moved from server 2"),
        "{text}"
    );
    // Its slices go to the other one.
    servers[0].interrupt();
    servers[0].wait_for(&["left the pool"]);
    servers[0].ends();
    let mut found = [0; 8];
    reader.read(address.plus(1 << 16), &mut found).unwrap();
    assert_eq!(&found, b"outlives");
    outlive(["pool", "drain", path, "2"]).says(1);
    outlive(["pool", "drain", path, "1"]).fails(1, "server 1 is not in use");
    drop((reader, client, pool, servers));
}

#[test]
fn slices_are_rebalanced() {
    let lent = Lent(format!(
        "/dev/shm/outlive-cli-rebalance-{}",
        std::process::id()
    ));
    let path = lent.0.as_str();
    outlive(["pool", "create", path, "--slice", "64K"]).succeeds();
    let mut server = Running::start(["pool", "serve", path, "--size", "1M"]);
    server.wait_for(&["server 1 serves 1 MiB"]);
    let pool = outlive_pool::Pool::open(path).unwrap();
    // This process is the second server, and uses the slices of the first one.
    let here = pool.serve(1 << 20, 0).unwrap();
    let client = here.client();
    let first = outlive_pool::Placement::There(outlive_pool::ServerId(1));
    let address = client.allocate(2 << 16, first).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let rebalance = |flags: &[&str]| {
        let all = [
            "pool",
            "rebalance",
            path,
            "--periods",
            "1",
            "--period",
            "300ms",
            "--json",
        ];
        let printed = outlive(all.iter().chain(flags).copied()).succeeds();
        assert_explained("## `outlive pool rebalance", &printed);
        serde_json::from_str::<Value>(&printed).unwrap()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = client.reader().unwrap();
            while !is_over.load(std::sync::atomic::Ordering::Acquire) {
                for slice in 0..2 {
                    reader.guard(address.plus(slice << 16)).unwrap();
                }
            }
        });
        let planned = rebalance(&["--plan"]);
        assert_eq!(planned["moves"].as_array().unwrap().len(), 2, "{planned:#}");
        let moved = rebalance(&[]);
        assert_eq!(moved["bytes"], 2 << 16, "{moved:#}");
        let stays = rebalance(&[]);
        assert_eq!(stays["bytes"], 0, "{stays:#}");
        is_over.store(true, std::sync::atomic::Ordering::Release);
    });
    client.free(address).unwrap();
    here.leave().unwrap();
    drop((client, pool, server));
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
    let few = ["pool", "demo", "--servers", "2", "--replicas", "3"];
    outlive(few).fails(2, "--replicas 3");
}

#[test]
fn the_demo_has_the_right_sum_after_servers_were_killed() {
    for flags in [
        &["--kill", "1"][..],
        &["--kill", "3"],
        &["--servers", "3", "--replicas", "3", "--kill", "2"],
    ] {
        let demo = ["pool", "demo", "--elements", "300001", "--json"];
        let printed = outlive(demo.iter().chain(flags).copied()).succeeds();
        assert_explained("## `outlive pool demo", &printed);
        let json: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(json["sum"], json["expected"], "{json:#}");
        // Slices without replicas are lost.
        let failures = json["failures"].as_array().unwrap();
        assert!(
            failures.iter().all(|it| it["error"].is_string()),
            "{json:#}"
        );
    }
}

#[test]
fn replicas_are_rebuilt() {
    let lent = Lent(format!(
        "/dev/shm/outlive-cli-rebuild-{}",
        std::process::id()
    ));
    let path = lent.0.as_str();
    outlive(["pool", "create", path, "--slice", "64K"]).succeeds();
    let mut servers = [1, 2, 3].map(|server| {
        let mut running = Running::start(["pool", "serve", path, "--size", "1M"]);
        running.wait_for(&[&format!("server {server} serves 1 MiB")]);
        running
    });
    let client = outlive_pool::Pool::open(path).unwrap().join().unwrap();
    let (place, replicas) = (
        outlive_pool::Placement::There(outlive_pool::ServerId(1)),
        outlive_pool::Redundancy::Replicas(2),
    );
    let address = client.allocate_with(2 << 16, place, replicas).unwrap();
    let reader = client.reader().unwrap();
    reader.write(address, b"outlives").unwrap();
    servers[0].kill();
    let begin = std::time::Instant::now();
    while phases(path)[0] != "dead" {
        assert!(begin.elapsed().as_secs() < 60, "{:?}", phases(path));
    }
    // A server may have rebuilt them already.
    let printed = outlive(["pool", "rebuild", path, "--json"]).succeeds();
    assert_explained("## `outlive pool rebuild", &printed);
    let text = outlive(["pool", "rebuild", path, "--budget", "1G"]).succeeds();
    assert!(text.starts_with("0 replicas of 0 bytes rebuilt"), "{text}");
    let printed = outlive(["pool", "stat", path, "--json"]).succeeds();
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&json["lost"], &json["degraded"]), (&0.into(), &0.into()));
    assert_eq!(json["servers"][1]["slices"], 2);
    assert_eq!(json["servers"][2]["slices"], 2);
    servers[1].kill();
    while phases(path)[1] != "dead" {
        assert!(begin.elapsed().as_secs() < 60, "{:?}", phases(path));
    }
    let mut found = [0; 8];
    reader.read(address, &mut found).unwrap();
    assert_eq!(&found, b"outlives");
    // The last server has one replica of each slice, and cannot have the other one.
    outlive(["pool", "rebuild", path]).says(1);
    drop((reader, client, servers));
}

#[test]
fn the_demo_reports_the_part_of_a_killed_server() {
    let arguments = [
        "pool",
        "demo",
        "--kill",
        "1",
        "--replicas",
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

#[test]
fn objects_are_put_and_read_by_other_processes() {
    let lent = Lent(format!(
        "/dev/shm/outlive-cli-objects-{}",
        std::process::id()
    ));
    let path = lent.0.as_str();
    outlive(["pool", "create", path, "--slice", "64K", "--objects", "100"]).succeeds();
    let full = outlive(["pool", "put", path, "a", "/proc/self/exe"]);
    full.fails(1, "no frame of 65536 bytes is free");
    let mut server = Running::start(["pool", "serve", path, "--size", "1M"]);
    server.wait_for(&["serves 1 MiB"]);

    let file = format!("{path}.file");
    let text = "outlives ".repeat(20_000);
    std::fs::write(&file, &text).unwrap();
    let put = outlive(["pool", "put", path, "text", &file, "--pin"]).succeeds();
    assert_eq!(put, "put 180000 bytes as `text`\n");
    outlive(["pool", "put", path, "text", &file]).fails(1, "already exists");
    std::fs::remove_file(&file).unwrap();
    outlive(["pool", "put", path, "more", &file]).fails(1, &file);
    outlive(["pool", "put", path, "more", "/dev/shm"]).fails(1, "not a regular file");
    assert_eq!(outlive(["pool", "get", path, "text"]).succeeds(), text);
    outlive(["pool", "get", path, "more"]).fails(1, "the object `more` does not exist");
    outlive(["pool", "get", path, "more", "--wait", "1"]).fails(1, "within 1 seconds");

    let printed = outlive(["pool", "list", path, "--json"]).succeeds();
    assert_explained("## `outlive pool list", &printed);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&json[0]["state"], &json[0]["bytes"]),
        (&"sealed".into(), &180_000.into())
    );
    let listed = outlive(["pool", "list", path]).succeeds();
    assert!(
        listed.contains("sealed") && listed.contains("yes"),
        "{listed}"
    );
    assert_eq!(
        outlive(["pool", "evict", path, "1M"]).succeeds(),
        "freed 0 bytes\n"
    );
    outlive(["pool", "pin", path, "text", "--off"]).succeeds();
    assert_eq!(
        outlive(["pool", "evict", path, "1M"]).succeeds(),
        "freed 192 KiB\n"
    );
    outlive(["pool", "delete", path, "text"]).fails(1, "does not exist");
    let none = outlive(["pool", "list", path]).succeeds();
    assert!(none.contains("has no objects"), "{none}");
    server.interrupt();
    server.wait_for(&["left the pool"]);
    server.ends();
}
