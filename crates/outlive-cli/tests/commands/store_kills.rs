//! `outlive store bench --kill-every`: servers that are killed at random and replaced; and
//! benchmarks that others end.

use crate::support::explained::assert_explained;
use crate::support::{Running, command, outlive, send};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The time limit of a run. The tables of TPC-C take most of it to be filled and checked.
const LIMIT: Duration = Duration::from_secs(180);

/// The store of a running benchmark, which is removed even if the benchmark is killed.
struct Scratch(String);

impl Scratch {
    fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir("/dev/shm").unwrap().flatten();
        let names = files.map(|it| it.file_name().to_string_lossy().into_owned());
        let is_own = |name: &str| match name.strip_prefix(&self.0) {
            Some(rest) => !rest.starts_with(|next: char| next.is_ascii_digit()),
            None => false,
        };
        names.filter(|name| is_own(name)).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = outlive_store::servers::Store::destroy(format!("/dev/shm/{}", self.0));
        for file in self.files() {
            let _ = std::fs::remove_file(format!("/dev/shm/{file}"));
        }
    }
}

/// Runs a benchmark in which servers of both kinds are killed, and requires that it is consistent
/// and leaves nothing behind.
fn killed_at_random(arguments: &str) -> Value {
    let arguments = format!("store bench {arguments} --compute 3 --memory 3 --replicas 2 --json");
    let mut running = Running::start(arguments.split(' '));
    let scratch = Scratch(format!("outlive-bench-{}", running.id()));
    let printed = running.ends_within(LIMIT, 0);
    assert_eq!(scratch.files(), [""; 0]);
    assert_explained("## `outlive store bench", &printed);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&json["consistent"], &json["problems"]),
        (&true.into(), &Value::Array(Vec::new())),
        "{json:#}"
    );
    let kills = &json["random_kills"];
    let count = |name: &str| kills[name].as_u64().unwrap();
    let killed = ["compute_killed", "memory_killed", "restorers_killed"].map(count);
    let failures = json["failures"].as_array().unwrap();
    assert_eq!(failures.len() as u64, killed.iter().sum::<u64>());
    for kind in ["compute", "memory"] {
        let [killed, started] = ["killed", "started"].map(|it| count(&format!("{kind}_{it}")));
        assert!(killed > 0 && started == killed, "{kills:#}");
        let of_kind = failures.iter().filter(|it| it["kind"] == kind);
        assert_eq!(of_kind.count() as u64, killed, "{kills:#}");
    }
    // Each loss but those that follow at once is restored, with 16 partitions of each table.
    assert!(count("restorations") > 0, "{kills:#}");
    assert!(count("restored_replicas") > 0, "{kills:#}");
    let [acknowledged, recorded] = ["acknowledged", "recorded"].map(count);
    assert!(acknowledged > 0 && recorded >= acknowledged, "{kills:#}");
    json
}

#[test]
fn smallbank_survives_random_kills() {
    let json = killed_at_random("smallbank --customers 2000 --seconds 6 --kill-every 400ms");
    assert!(json["committed"].as_u64().unwrap() > 1000, "{json:#}");
}

#[test]
fn tpcc_survives_random_kills() {
    killed_at_random("tpcc --orders 3000 --seconds 6 --kill-every 700ms");
}

#[test]
fn random_kills_that_cannot_happen_are_refused_or_reported() {
    let bench = |arguments: &str| {
        let arguments = format!("store bench smallbank --customers 100 {arguments}");
        outlive(arguments.split(' '))
    };
    bench("--kill-every 10ms").fails(2, "50ms");
    bench("--kill-every 9s").fails(2, "50ms to 5s, the duration");
    bench("--kill-every 1s --compute 1").fails(2, "raise --compute or --replicas");
    bench("--kill-every 1s --replicas 1").fails(2, "raise --compute or --replicas");
    bench("--kill-every 1s --kill both@1s").fails(2, "cannot be used with");
    // The first kill is at a random time; with this seed, it is later than the end.
    let text = bench("--seconds 1 --kill-every 1s --seed 22").says(1);
    assert!(text.contains("no memory server was killed"), "{text}");
    assert!(text.contains("NOT consistent"), "{text}");
}

/// Lets `end` end a benchmark whose two compute servers have joined, and returns its message. `end`
/// receives the path of the store, and the pid of one of the compute servers.
fn ended(end: impl FnOnce(&str, u32)) -> String {
    let bench = "store bench smallbank --customers 100 --seconds 10 --compute 2";
    let mut bench = command(bench.split(' '));
    bench.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = bench.spawn().unwrap();
    let own = child.id();
    let scratch = Scratch(format!("outlive-bench-{own}"));
    let path = format!("/dev/shm/{}", scratch.0);
    let begin = Instant::now();
    let server = loop {
        assert!(begin.elapsed() < LIMIT, "no compute server has joined");
        let status = outlive(["store", "status", &path, "--json"]);
        let status: Value = serde_json::from_str(&status.output).unwrap_or_default();
        let servers = status["compute"].as_array().into_iter().flatten();
        let pids = servers.filter_map(|it| u32::try_from(it["pid"].as_u64()?).ok());
        let pids: Vec<u32> = pids.filter(|pid| *pid != own).collect();
        if pids.len() == 2 {
            break pids[0];
        }
    };
    end(&path, server);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(scratch.files(), [""; 0]);
    String::from_utf8(ended.stderr).unwrap()
}

#[test]
fn a_benchmark_says_what_has_ended_it() {
    let killed = ended(|_, server| send(server, Signal::KILL));
    assert!(killed.contains("was killed by signal 9"), "{killed}");
    let stopped = ended(|path, _| drop(outlive(["store", "stop", path]).succeeds()));
    assert!(stopped.contains("`outlive store stop` stops"), "{stopped}");
}
