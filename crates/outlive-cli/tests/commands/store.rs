//! `outlive store`: memory servers that are started, killed and interrupted, and the store's
//! status.

use crate::store_rows;
use crate::support;
use crate::support::explained::assert_explained;
use crate::support::{Running, outlive};
use serde_json::Value;

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

fn status(path: &str) -> Value {
    let printed = outlive(["store", "status", path, "--json"]).succeeds();
    serde_json::from_str(&printed).unwrap()
}

/// Waits until `replicas` replicas of partitions are missing.
#[track_caller]
fn await_missing(path: &str, replicas: u64) {
    let begin = std::time::Instant::now();
    while status(path)["missing_replicas"] != replicas {
        assert!(begin.elapsed().as_secs() < 60, "{:#}", status(path));
    }
}

fn phases(path: &str) -> Vec<String> {
    let json = status(path);
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
fn compute_servers_are_stopped_and_memory_is_added() {
    let (bank, [mut first, second]) = store_rows::Bank::new("stop");
    let path = bank.path();
    bank.says("table", &["accounts", "--keys", "100"]);
    bank.says("put", &["accounts", "1", "7", "--numbers"]);

    let store = outlive_store::servers::Store::open(path).unwrap();
    let compute = store.join_compute().unwrap();
    outlive(["store", "stop", path, "--timeout", "100ms"]).fails(1, "have not left");
    drop(compute);
    let printed = outlive(["store", "stop", path, "--force", "--json"]).succeeds();
    assert_explained("## `outlive store stop", &printed);
    let text = outlive(["store", "stop", path]).succeeds();
    assert!(text.contains("no log is left"), "{text}");
    bank.says("check", &[]);
    let read = bank.says("get", &["accounts", "1", "--numbers"]);
    assert!(read.contains('7'), "{read}");

    first.kill();
    await_missing(path, 16);
    let mut added = Running::start(["store", "add-memory", path, "--size", "1M"]);
    added.wait_for(&["serves 1 MiB", "16 replicas of partitions restored"]);
    await_missing(path, 0);
    // A store that is destroyed before its servers end leaves a side file.
    drop((second, added, bank));
}

#[test]
fn lost_replicas_are_restored() {
    let path = format!("/dev/shm/outlive-cli-restore-{}", std::process::id());
    let bank = Bank(path.clone());
    let path = path.as_str();
    outlive(["store", "create", path]).succeeds();
    let mut memory: Vec<Running> = (0..2)
        .map(|_| Running::start(["store", "memory", path, "--size", "1M"]))
        .collect();
    for server in &mut memory {
        server.wait_for(&["serves 1 MiB"]);
    }
    let store = outlive_store::servers::Store::open(path).unwrap();
    let compute = store.join_compute().unwrap();
    let table = compute.table::<u64>("accounts", 100).unwrap();
    let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
    let mut put = |key: u64| {
        let done = coordinator.transaction(async |tx| tx.put(table, key, &key).await);
        outlive_store::verbs::block_on(done).unwrap();
    };
    (0..100).for_each(&mut put);
    assert_eq!(status(path)["missing_replicas"], 0);

    memory.remove(0).kill();
    await_missing(path, 16);
    outlive(["store", "restore", path]).fails(1, "16 replicas of 16 partitions are still missing");
    memory.push(Running::start(["store", "memory", path, "--size", "1M"]));
    memory[1].wait_for(&["serves 1 MiB"]);
    let text = outlive(["store", "status", path]).succeeds();
    assert!(text.contains("run `outlive store restore"), "{text}");
    let printed = outlive(["store", "restore", path, "--json"]).succeeds();
    assert_explained("## `outlive store restore", &printed);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&json["replicas"], &json["missing_replicas"]),
        (&16.into(), &0.into())
    );
    assert!(json["objects"].as_u64().unwrap() >= 100, "{json:#}");
    assert_eq!(status(path)["missing_replicas"], 0);
    put(100);
    memory.remove(0).kill();
    await_missing(path, 16);
    let checked = outlive(["store", "check", path]).succeeds();
    assert!(checked.contains("101 keys"), "{checked}");
    assert!(
        checked.contains("table 0: partitions with 1 replica: 0, 1, "),
        "{checked}"
    );
    // A store that is destroyed before its servers end leaves a side file.
    drop((coordinator, compute, memory, bank));
}

#[test]
fn a_pod_is_not_a_store() {
    let place = support::Place::new("no-store");
    let path = place.path();
    outlive(["pod", "create", path, "--size", "4M", "--ids", "16"]).succeeds();
    outlive(["store", "status", path]).fails(1, "is not a store");
    outlive(["store", "memory", path]).fails(1, "is not a store");
    outlive(["store", "destroy", path]).fails(1, "--force removes this pod");
    outlive(["pool", "destroy", path]).fails(1, "--force removes this pod");
    outlive(["store", "create", path, "--replicas", "0"]).fails(2, "0 is not in 1..=8");
}

/// The memory is worth more than the lines about deaths.
#[test]
fn a_memory_server_without_a_reader_goes_on() {
    let path = format!("/dev/shm/outlive-cli-unread-{}", std::process::id());
    let _bank = Bank(path.clone());
    let path = path.as_str();
    outlive(["store", "create", path]).succeeds();
    let memory = ["store", "memory", path, "--size", "1M"];
    let unread = Running::start_and_stop_reading(memory);
    let mut read = Running::start(memory);
    read.wait_for(&["serves 1 MiB"]);
    for _ in 0..2 {
        let mut victim = Running::start(memory);
        victim.wait_for(&["serves 1 MiB"]);
        victim.kill();
    }
    read.wait_for(&["died"]);
    let begin = std::time::Instant::now();
    while phases(path) != ["live", "live", "dead", "dead"] {
        assert!(begin.elapsed().as_secs() < 60, "{:?}", phases(path));
    }
    drop((unread, read));
    // The last one may have recorded the death of the other, and none has recorded its own.
    let ended = phases(path);
    assert!(ended[..2].contains(&"gone".into()), "{ended:?}");
    assert!(!ended.contains(&"live".into()), "{ended:?}");
    let text = outlive(["store", "status", path]).succeeds();
    assert!(text.contains("0 live memory servers"), "{text}");
    let checked = outlive(["store", "check", path]).says(1);
    assert!(checked.contains("its memory is lost"), "{checked}");
}

/// Runs SmallBank on three compute servers and three memory servers with these kills.
fn bench_with_kills(kills: &[&str]) -> Value {
    let arguments =
        "store bench smallbank --customers 2000 --compute 3 --memory 3 --seconds 2 --json";
    let kills = kills.iter().flat_map(|kill| ["--kill", *kill]);
    let printed = outlive(arguments.split(' ').chain(kills)).succeeds();
    assert_explained("## `outlive store bench", &printed);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(json["consistent"], true, "{json:#}");
    json
}

#[test]
fn a_benchmark_survives_the_death_of_a_compute_server() {
    let json = bench_with_kills(&["compute@500ms", "compute@1s"]);
    assert!(json["committed"].as_u64().unwrap() > 1000, "{json:#}");
    let failures = json["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 2, "{json:#}");
    for failure in failures {
        // Each coordinator that has committed a transaction has a log entry, that of its last one.
        let logged = failure["rolled_forward"].as_u64().unwrap();
        assert!((1..=8).contains(&logged), "{failure:#}");
        assert!(
            failure["recovered_us"].as_f64().unwrap() > 0.0,
            "{failure:#}"
        );
    }
}

#[test]
fn a_standby_takes_the_place_of_a_killed_server() {
    let arguments = "store bench smallbank --customers 2000 --compute 2 --seconds 1 --reuse --json \
                     --kill compute@300ms";
    let printed = outlive(arguments.split(' ')).succeeds();
    assert_explained("## `outlive store bench", &printed);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&json["consistent"], &json["reuse"]),
        (&true.into(), &true.into())
    );
    let failure = &json["failures"][0];
    let [recovered, reused] = ["recovered_us", "reused_us"].map(|it| failure[it].as_f64().unwrap());
    // It begins when the victim is recovered.
    assert!(recovered < reused, "{json:#}");
    let without = bench_with_kills(&["compute@500ms"]);
    assert!(without["failures"][0]["reused_us"].is_null(), "{without:#}");
}

#[test]
fn the_other_protocols_survive_the_deaths_of_servers() {
    for protocol in ["ford", "log-a-latch"] {
        let arguments = "store bench smallbank --customers 2000 --compute 3 --memory 3 --seconds 1 \
                         --kill both@400ms --json --protocol";
        let printed = outlive(arguments.split(' ').chain([protocol])).succeeds();
        let json: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(json["consistent"], true, "{json:#}");
        assert_eq!(json["protocol"], protocol);
        let timeline: Vec<u64> = serde_json::from_value(json["timeline"].clone()).unwrap();
        assert!(timeline[7..].iter().sum::<u64>() > 100, "{json:#}");
        // No latch is left for others to steal.
        assert_eq!(json["failures"][0]["stolen"], 0, "{json:#}");
    }
}

#[test]
fn a_benchmark_survives_the_loss_of_a_memory_server() {
    let json = bench_with_kills(&["both@700ms"]);
    let timeline: Vec<u64> = serde_json::from_value(json["timeline"].clone()).unwrap();
    let after: u64 = timeline[10..].iter().sum();
    assert!(after > 100, "{json:#}");
    let kinds: Vec<_> = { json["failures"].as_array().unwrap().iter() }
        .map(|failure| failure["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["compute", "memory"], "{json:#}");
}

#[test]
fn tatp_survives_the_deaths_of_servers() {
    let arguments = "store bench tatp --subscribers 2000 --compute 3 --memory 3 --seconds 1 --json";
    let kill = ["--kill", "both@500ms"];
    let printed = outlive(arguments.split(' ').chain(kill)).succeeds();
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(json["consistent"], true, "{json:#}");
    let [committed, failed] = ["committed", "failed"].map(|it| json[it].as_u64().unwrap() as f64);
    // About 24% of the transactions do not find their random record.
    let share = failed / (committed + failed);
    assert!((0.2..0.28).contains(&share), "{json:#}");
}

#[test]
fn the_conditions_of_tpcc_hold_after_the_deaths_of_servers() {
    let arguments =
        "store bench tpcc --warehouses 2 --orders 3000 --compute 3 --memory 3 --seconds 1 --json";
    let kill = ["--kill", "both@500ms"];
    let printed = outlive(arguments.split(' ').chain(kill)).succeeds();
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(json["consistent"], true, "{json:#}");
    assert!(json["committed"].as_u64().unwrap() > 100, "{json:#}");
}

#[test]
fn a_benchmark_runs_behind_an_emulated_link() {
    let text = outlive([
        "store",
        "bench",
        "micro",
        "--keys",
        "1000",
        "--write-percent",
        "100",
        "--hot",
        "50",
        "--seconds",
        "1",
        "--round-trip",
        "5us",
        "--jitter",
        "5us",
    ])
    .succeeds();
    assert!(text.contains("an emulated round trip of 5 µs"), "{text}");
    assert!(
        text.contains("consistent: the benchmark's invariant holds"),
        "{text}"
    );
}

#[test]
fn a_benchmark_goes_on_after_its_last_kill() {
    let arguments = "store bench smallbank --customers 2000 --kill compute@1s --json";
    let printed = outlive(arguments.split(' ')).succeeds();
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&json["seconds"], &json["consistent"]),
        (&6.0.into(), &true.into())
    );
    assert_eq!(json["failures"].as_array().unwrap().len(), 1);
}

#[test]
fn a_benchmark_refuses_what_it_cannot_do() {
    let bench = |arguments: &[&'static str]| {
        outlive(
            ["store", "bench", "micro"]
                .into_iter()
                .chain(arguments.iter().copied()),
        )
    };
    bench(&["--kill", "memory@1s", "--replicas", "1"]).fails(2, "raise --replicas");
    bench(&["--kill", "disk@1s"]).fails(2, "compute, memory or both");
    bench(&["--kill", "compute@9s", "--seconds", "9"]).fails(2, "raise --seconds");
    bench(&["--keys", "100000000", "--memory", "16"]).fails(1, "are needed");
    bench(&["--kill", "compute@1s", "--compute", "1"]).fails(2, "raise --compute");
    bench(&["--replicas", "3"]).fails(2, "raise --memory");
    bench(&["--kill", "1s"]).fails(2, "compute@2s");
    bench(&["--reuse"]).fails(2, "add `--kill compute@2s`");
    bench(&["--reuse", "--kill", "memory@2s"]).fails(2, "add `--kill compute@2s`");
}

#[test]
fn a_store_is_checked() {
    use outlive_store::servers::{Store, StoreOptions};
    use outlive_store::verbs::block_on;

    let bank = Bank(format!(
        "/dev/shm/outlive-cli-checked-{}",
        std::process::id()
    ));
    let path = bank.0.as_str();
    let store = Store::create(path, StoreOptions::new().replicas(1).members(32)).unwrap();
    let memory = store.serve_memory(1 << 20).unwrap();
    let compute = store.join_compute().unwrap();
    let accounts = compute.table::<u64>("accounts", 100).unwrap();
    let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
    for key in 0..100 {
        let inserting = coordinator.transaction(async |tx| tx.insert(accounts, key, &key).await);
        assert!(block_on(inserting).unwrap().value);
    }
    let printed = outlive(["store", "check", path, "--json"]).succeeds();
    assert_explained("## `outlive store check", &printed);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&json["keys"], &json["sound"]),
        (&100.into(), &true.into()),
        "{json:#}"
    );
    let status = outlive(["store", "status", path]).succeeds();
    assert!(
        status.contains("table 0, accounts: values of 8 bytes"),
        "{status}"
    );
    drop((coordinator, compute));
    drop(memory);
    // Its only replica is lost.
    let text = outlive(["store", "check", path]).says(1);
    assert!(text.contains("16 lost"), "{text}");
    assert!(text.contains("table 0: lost partitions: 0, 1, "), "{text}");
}
