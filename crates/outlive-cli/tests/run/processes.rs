//! The processes of `outlive run wordcount`: trees that die as a whole, a driver that a terminal
//! does not stop, and no remnants, however it ends.

use crate::support::run::{
    Seen, Stage, assert_nothing_is_left, plainly, processes_of, read, text, wait_until,
};
use crate::support::{Running, outlive};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_tree_dies_with_its_first_process_and_starts_a_lost_child_again() {
    let stage = Stage::new("tree");
    // A process that lost its parent before it could ask to die with it does not begin.
    outlive(["run", "host", "--parent", "1"])
        .fails(1, "the process that started this one has ended");
    let text = text(8_000_000, 5);
    let mut expected = plainly(&[&text]);
    expected.values_mut().for_each(|count| *count *= 20);
    let path = stage.path("text");
    let mut file = fs::File::create(&path).unwrap();
    for _ in 0..20 {
        file.write_all(&text).unwrap();
        file.write_all(b"\n").unwrap();
    }
    drop(file);
    let pod = format!("/dev/shm/outlive-run-test-{}-tree", std::process::id());
    let output = stage.path("counts");
    let mut arguments = vec!["run", "wordcount", &path, "--json", "--output", &output];
    arguments.extend(["--pod", &pod, "--hosts", "1", "--processes", "2"]);
    arguments.extend(["--kill", "0", "--unit", "64K"]);
    let mut running = Running::start(arguments);
    let driver = running.id();
    let mut seconds: HashMap<u32, f64> = HashMap::new();
    let look = |seconds: &mut HashMap<u32, f64>| {
        let seen = processes_of(&pod);
        let all = seen.iter().copied().chain(Seen::of(driver));
        // A process that has ended and was not waited for shows none.
        seconds.extend(all.map(|one| (one.pid, one.seconds)));
        seen
    };
    let tree_at_work = |seconds: &mut HashMap<u32, f64>, enough: f64, but: &[u32]| {
        let mut found = None;
        wait_until("a tree works", || {
            let seen = look(seconds);
            let first = seen.iter().find(|one| one.parent == driver);
            let child = first.and_then(|first| seen.iter().find(|one| one.parent == first.pid));
            found = first
                .copied()
                .zip(child.copied())
                .filter(|(_, child)| child.seconds >= enough && !but.contains(&child.pid));
            found.is_some()
        });
        found.unwrap()
    };
    // Only the first process is killed.
    let (first, child) = tree_at_work(&mut seconds, 0.4, &[]);
    first.kill();
    let (second, next) = tree_at_work(&mut seconds, 0.05, &[child.pid]);
    assert_ne!(first.pid, second.pid);
    let gone = |one: Seen| !processes_of(&pod).iter().any(|seen| seen.pid == one.pid);
    assert!(gone(child), "the child of the dead process continues");
    // Only its child is killed.
    next.kill();
    let (same, _) = tree_at_work(&mut seconds, 0.02, &[child.pid, next.pid]);
    assert_eq!(same.pid, second.pid, "the whole host was started again");
    wait_until("it is over", || {
        processes_of(&pod).is_empty() || {
            look(&mut seconds);
            false
        }
    });
    let summary: Value = serde_json::from_str(&running.ends()).unwrap();
    assert!(read(&output) == expected, "{summary}");
    assert_nothing_is_left(&summary);
    // One host has failed without a kill of the driver.
    let failures = summary["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{summary}");
    assert!(failures[0]["killed_at"].is_null(), "{summary}");
    assert_eq!(failures[0]["processes_lost"], 2, "{summary}");
    assert_eq!(failures[0]["ended"], "signal: 9 (SIGKILL)", "{summary}");
    assert!(failures[0]["rejoined_at"].is_number(), "{summary}");
    // The processor time of all of them counts, including the first child, which lost its parent.
    let at_least: f64 = seconds.values().sum();
    let counted = summary["cpu_seconds"].as_f64().unwrap();
    assert!(
        counted + 0.1 >= at_least,
        "{counted} s of {at_least} s: {seconds:?}"
    );
    assert!(seconds[&child.pid] >= 0.4, "{seconds:?}");
}

#[test]
fn a_reader_of_stderr_that_goes_away_ends_nothing() {
    let stage = Stage::new("stderr");
    let path = stage.write("text", &text(2_000_000, 3));
    let mut run = Command::new(env!("CARGO_BIN_EXE_outlive"))
        .args(["run", "wordcount", &path, "--top", "1"])
        .env("RUST_LOG", "outlive=trace")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(run.stderr.take());
    let until = Instant::now() + Duration::from_secs(30);
    let ended = loop {
        if let Some(ended) = run.try_wait().unwrap() {
            break ended;
        }
        if Instant::now() > until {
            run.kill().unwrap();
            run.wait().unwrap();
            panic!("the run hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(ended.success(), "{ended}");
}

/// Starts a run that takes a while, in `pod` if that is given.
fn start_a_long_run(stage: &Stage, pod: Option<&str>, kills: &str) -> Running {
    let text = stage.path("long");
    if !fs::exists(&text).unwrap() {
        stage.write("long", &self::text(30_000_000, 5));
    }
    let mut arguments = vec!["run", "wordcount", &text, "--unit", "4K"];
    arguments.extend(["--processes", "2", "--kill", kills]);
    arguments.extend(pod.iter().flat_map(|pod| ["--pod", pod]));
    Running::start(arguments)
}

#[test]
fn a_terminal_does_not_stop_a_run() {
    let stage = Stage::new("stop");
    let pod = format!("/dev/shm/outlive-run-test-{}-stop", std::process::id());
    let mut running = start_a_long_run(&stage, Some(&pod), "0");
    wait_until("the pod is there", || fs::exists(&pod).unwrap());
    let status = fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    for signal in [Signal::TSTP, Signal::TTIN, Signal::TTOU] {
        let bit = 1 << (signal.as_raw() - 1);
        assert_ne!(ignored & bit, 0, "{signal:?} stops it");
    }
    running.interrupt();
    running.ends_with(1);
    assert!(!fs::exists(&pod).unwrap());
}

#[test]
fn what_a_killed_driver_left_is_removed_by_the_next_run() {
    let stage = Stage::new("stale");
    let mut running = start_a_long_run(&stage, None, "8");
    let name = format!("outlive-run-{}-", running.id());
    let find = || -> Option<PathBuf> {
        let files = fs::read_dir("/dev/shm").unwrap().flatten();
        let mut paths = files.map(|file| file.path());
        paths.find(|path| path.to_string_lossy().contains(&name))
    };
    let kept = |pod: &Path| -> Option<String> {
        let kept = outlive(["pod", "clean", "--json"]).succeeds();
        let kept: Value = serde_json::from_str(&kept).unwrap();
        let of = |kept: &&Value| kept["found"].as_str() == pod.to_str();
        let of = kept.as_array().unwrap().iter().find(of)?;
        Some(of["path"].as_str().unwrap().to_owned())
    };
    wait_until("the pod is there", || {
        find().is_some_and(|pod| kept(&pod).is_some())
    });
    let pod = find().unwrap();
    let side_file = kept(&pod).unwrap();
    let path = pod.to_str().unwrap();
    wait_until("all processes are there", || processes_of(path).len() == 8);
    // It can no longer kill the workers that have halted for their kill, so they do not end by
    // themselves.
    running.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(50));
    running.kill();
    let until = Instant::now() + Duration::from_secs(10);
    while !processes_of(path).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    let left = processes_of(path);
    left.iter().for_each(|one| one.kill());
    assert!(left.is_empty(), "{left:?} still run without the driver");
    let text = stage.write("text", b"a few words");
    wait_until("the next run has removed what was left", || {
        // Its hosts die with it, and keep the side file until they are gone.
        outlive(["run", "wordcount", &text]).succeeds();
        !fs::exists(&pod).unwrap()
    });
    if fs::exists(&side_file).unwrap() {
        outlive(["pod", "clean", "--remove"]).succeeds();
    }
    assert!(!fs::exists(&side_file).unwrap(), "{side_file} is left");
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let stage = Stage::new("interrupted");
    let pod = format!("/dev/shm/outlive-run-test-{}", std::process::id());
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let mut running = start_a_long_run(&stage, Some(&pod), "0");
        wait_until("the pod is there", || fs::exists(&pod).unwrap());
        std::thread::sleep(Duration::from_millis(60));
        running.signal(signal);
        // Completely: a test that kills it earlier leaves something.
        running.ends_with(1);
        assert!(!fs::exists(&pod).unwrap());
    }
}
