//! `outlive run wordcount` as people and programs meet it: hosts are killed, and the counts are those of an
//! independent count.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::{Ended, Running, outlive};

/// A directory for one test, with a text in it. The tests run one after another: each fills the machine.
struct Stage {
    directory: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Stage {
    fn new(name: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let directory =
            std::env::temp_dir().join(format!("outlive-run-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Self {
            directory,
            _turn: turn,
        }
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &[u8]) -> String {
        let path = self.path(name);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Counts, and what the command says of it.
    fn count(&self, arguments: &[&str]) -> (BTreeMap<Vec<u8>, u64>, Value) {
        let output = self.path("counts");
        let mut all = vec!["run", "wordcount", "--json", "--output", &output];
        all.extend(arguments);
        let summary: Value = serde_json::from_str(&outlive(all).succeeds()).unwrap();
        let counts = read(&output);
        let words: u64 = counts.values().sum();
        assert_eq!(summary["words"], words);
        assert_eq!(summary["distinct"], counts.len());
        assert_nothing_is_left(&summary);
        (counts, summary)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Reads `count<TAB>word` lines, which are in order.
fn read(path: &str) -> BTreeMap<Vec<u8>, u64> {
    let text = fs::read(path).unwrap();
    let mut counts = BTreeMap::new();
    let mut before: Option<(u64, &[u8])> = None;
    for line in text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let tab = line.iter().position(|byte| *byte == b'\t').unwrap();
        let count: u64 = std::str::from_utf8(&line[..tab]).unwrap().parse().unwrap();
        let word = &line[tab + 1..];
        if let Some((last, same)) = before {
            assert!(last > count || last == count && same < word, "out of order");
        }
        before = Some((count, word));
        assert!(counts.insert(word.to_vec(), count).is_none(), "twice");
    }
    counts
}

/// The independent count.
fn plainly(texts: &[&[u8]]) -> BTreeMap<Vec<u8>, u64> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for text in texts {
        let text = String::from_utf8_lossy(text);
        for word in text.split(|c: char| !c.is_alphanumeric()) {
            if !word.is_empty() {
                let word = word.chars().flat_map(char::to_lowercase).collect();
                *counts.entry(word).or_default() += 1;
            }
        }
    }
    let bytes = |(word, count): (String, u64)| (word.into_bytes(), count);
    counts.into_iter().map(bytes).collect()
}

/// No pod, no side file and no process of it.
fn assert_nothing_is_left(summary: &Value) {
    let pod = summary["pod"].as_str().unwrap();
    assert!(!fs::exists(pod).unwrap(), "{pod} is left");
    let left = processes_of(pod);
    assert!(left.is_empty(), "{left:?} are left");
    let kept = outlive(["pod", "clean", "--json"]).succeeds();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    let of = |kept: &&Value| kept["found"].as_str() == Some(pod);
    assert_eq!(kept.as_array().unwrap().iter().find(of), None);
}

/// A process of a host.
#[derive(Clone, Copy, Debug)]
struct Seen {
    pid: u32,
    parent: u32,
    /// Its processor time.
    seconds: f64,
}

impl Seen {
    fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u32>().ok();
        Some(Self {
            pid,
            parent: number(1)?,
            seconds: f64::from(number(11)? + number(12)?) / 100.0,
        })
    }

    fn kill(self) {
        let pid = Pid::from_raw(self.pid as i32).unwrap();
        // It may have ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The processes that were told to join `pod`, and live.
fn processes_of(pod: &str) -> Vec<Seen> {
    let told = format!("OUTLIVE_POD={pod}").into_bytes();
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|it| it == told)
        })
        .filter_map(Seen::of)
        .collect()
}

/// Some megabytes of words, of which a few are frequent and many are rare, with umlauts and long ones among them.
fn text(bytes: usize, mut seed: u64) -> Vec<u8> {
    let mut text = String::with_capacity(bytes + 100);
    let separators = [" ", " ", " ", ", ", ".\n", " — ", "\u{a0}"];
    while text.len() < bytes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let random = seed >> 33;
        let rank = (random % 1000) * (random / 1000 % 1000) * (random / 1_000_000 % 50) / 900;
        match random % 97 {
            0 => text += &format!("Ärger{rank}"),
            1 => text += &format!("averyverylongwordthatfitsnoentry{rank}"),
            2 => text += &format!("ЖУК{}", rank % 50),
            _ => text += &format!("W{rank}"),
        }
        text += separators[(random / 7 % separators.len() as u64) as usize];
    }
    text.into_bytes()
}

#[test]
fn the_shipped_text_is_counted_while_hosts_are_killed() {
    let stage = Stage::new("shipped");
    let (counts, summary) = stage.count(&[]);
    assert_eq!(counts[&b"the"[..]], 63_919);
    assert_eq!(counts[&b"jerusalem"[..]], 814);
    assert_eq!((counts.len(), &summary["words"]), (12_544, &791_450.into()));
    let failures = summary["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 2);
    for failure in failures {
        let time = |what: &str| {
            failure[what]
                .as_f64()
                .unwrap_or_else(|| panic!("{failure}"))
        };
        assert!(time("killed_at") <= time("detected_at"));
        assert!(time("detected_at") <= time("recovered_at"));
        assert_eq!(failure["units_redone"], 1, "{failure}");
        // Somebody else's process proved it.
        assert!(failure["detected_by"].is_string(), "{failure}");
        assert_ne!(failure["detected_by_host"], failure["host"], "{failure}");
    }
    assert_eq!(summary["units_redone"], 2);
    // And for people.
    let shown = outlive(["run", "wordcount", "--top", "3"]).succeeds();
    assert!(shown.contains("nothing was lost"), "{shown}");
    assert!(shown.contains("63919  the"), "{shown}");
}

#[test]
fn counts_are_exact_however_hosts_are_killed() {
    let stage = Stage::new("killed");
    let text = text(3_000_000, 1);
    let expected = plainly(&[&text]);
    let path = stage.write("text", &text);
    for (hosts, threads, kills) in [(1, 1, 1), (2, 2, 1), (3, 1, 2), (4, 1, 3), (4, 2, 6)] {
        for supervise in ["restart", "none"] {
            if supervise == "none" && kills >= hosts {
                continue;
            }
            for at in ["commit", "random"] {
                for _ in 0..3 {
                    let (hosts, kills) = (hosts.to_string(), kills.to_string());
                    let threads = threads.to_string();
                    let (counts, summary) = stage.count(&[
                        &path,
                        "--hosts",
                        &hosts,
                        "--threads",
                        &threads,
                        "--kill",
                        &kills,
                        "--kill-at",
                        at,
                        "--supervise",
                        supervise,
                    ]);
                    assert!(counts == expected, "{summary}");
                    let redone = summary["units_redone"].as_u64().unwrap();
                    let lost: u64 = kills.parse::<u64>().unwrap() * threads.parse::<u64>().unwrap();
                    assert!(redone <= lost, "{summary}");
                    if at == "commit" {
                        assert_eq!(summary["kills_too_late"], 0, "{summary}");
                        assert!(redone >= kills.parse().unwrap(), "{summary}");
                    }
                }
            }
        }
    }
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

#[test]
fn what_says_that_it_is_empty_and_is_not_is_refused() {
    outlive(["run", "wordcount", "/proc/cpuinfo"]).fails(1, "/proc/cpuinfo says that it is empty");
}

#[test]
fn trees_of_processes_are_killed_and_come_back_as_a_whole() {
    let stage = Stage::new("trees");
    let text = text(6_000_000, 11);
    let expected = plainly(&[&text]);
    let path = stage.write("text", &text);
    let tree = ["--hosts", "2", "--processes", "2", "--threads", "2"];
    let mut whole = 0;
    for (supervise, kills) in [("restart", 2), ("none", 1)] {
        for at in ["commit", "random"] {
            for _ in 0..4 {
                let kill = kills.to_string();
                let mut arguments = vec![&path[..], "--kill", &kill, "--kill-at", at];
                arguments.extend(["--supervise", supervise, "--unit", "32K"]);
                arguments.extend(tree);
                let (counts, summary) = stage.count(&arguments);
                assert!(counts == expected, "{summary}");
                assert_eq!(
                    (&summary["processes"], &summary["threads"]),
                    (&2.into(), &2.into())
                );
                let failures = summary["failures"].as_array().unwrap();
                let number = |of: &Value, what: &str| of[what].as_u64().unwrap();
                let late = number(&summary, "kills_too_late");
                assert_eq!(failures.len() as u64 + late, kills, "{summary}");
                let mut threads_lost = 0;
                for failure in failures {
                    let processes = number(failure, "processes_lost");
                    let threads = number(failure, "threads_lost");
                    let redone = number(failure, "units_redone");
                    assert!(processes <= 2 && threads <= 2 * processes, "{failure}");
                    assert!(redone <= threads, "{failure}");
                    assert!(failure["recovered_at"].is_number(), "{failure}");
                    let lost = failure["lost"].as_array().unwrap();
                    assert_eq!(lost.len() as u64, processes + threads, "{failure}");
                    threads_lost += threads;
                    whole += u32::from((processes, threads) == (2, 4));
                }
                let redone = number(&summary, "units_redone");
                assert!(redone <= threads_lost, "{summary}");
                if at == "commit" {
                    assert_eq!(late, 0, "{summary}");
                    assert!(redone >= kills, "{summary}");
                }
            }
        }
    }
    // Some had all their members when they were hit.
    assert!(whole >= 4, "{whole} whole trees were killed");
}

#[test]
fn a_tree_dies_with_its_first_process_and_starts_a_lost_child_again() {
    let stage = Stage::new("tree");
    // Who lost its parent before it could ask to die with it does not begin.
    outlive(["run", "host", "--parent", "1"]).fails(1, "the process that started this one is gone");
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
        // What has ended and was not waited for shows none.
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
    // The first process is killed, and only that.
    let (first, child) = tree_at_work(&mut seconds, 0.4, &[]);
    first.kill();
    let (second, next) = tree_at_work(&mut seconds, 0.05, &[child.pid]);
    assert_ne!(first.pid, second.pid);
    let gone = |one: Seen| !processes_of(&pod).iter().any(|seen| seen.pid == one.pid);
    assert!(gone(child), "the child of the dead goes on");
    // Its child is killed, and only that.
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
    // One host has failed, which nobody had told to.
    let failures = summary["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{summary}");
    assert!(failures[0]["killed_at"].is_null(), "{summary}");
    assert!(failures[0]["processes_lost"].is_null(), "{summary}");
    assert!(failures[0]["rejoined_at"].is_number(), "{summary}");
    // The processor time of all of them counts, that of the first child, which lost its parent, too.
    let at_least: f64 = seconds.values().sum();
    let counted = summary["cpu_seconds"].as_f64().unwrap();
    assert!(
        counted + 0.1 >= at_least,
        "{counted} s of {at_least} s: {seconds:?}"
    );
    assert!(seconds[&child.pid] >= 0.4, "{seconds:?}");
}

/// What the pipeline counts, of files that are ended with a line feed where they are not.
fn pipeline(paths: &[&str]) -> BTreeMap<Vec<u8>, u64> {
    let mut text = Vec::new();
    for path in paths {
        text.extend(fs::read(path).unwrap());
        if paths.len() > 1 && text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
    }
    let mut whole = tempfile::tempfile().unwrap();
    whole.write_all(&text).unwrap();
    whole.rewind().unwrap();
    let script = "LC_ALL=C tr -s '[:space:]' '\\n' | LC_ALL=C sort | LC_ALL=C uniq -c";
    let pipeline = Command::new("sh")
        .args(["-c", script])
        .stdin(whole)
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let mut counts = BTreeMap::new();
    for line in pipeline.stdout.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii_start();
        if let Some(at) = line.iter().position(|byte| *byte == b' ') {
            let count = std::str::from_utf8(&line[..at]).unwrap().parse().unwrap();
            counts.insert(line[at + 1..].to_vec(), count);
        }
    }
    counts
}

#[test]
fn white_space_separates_as_the_pipeline_has_it() {
    let stage = Stage::new("pipeline");
    let mut bytes = text(400_000, 7);
    bytes.insert(0, b'x');
    bytes.extend_from_slice(b" \x0b\x0c\r\n tail\xff\xfe \t bytes");
    let path = stage.write("text", &bytes);
    let (counts, _) = stage.count(&[&path, "--tokens", "whitespace", "--kill", "1"]);
    assert!(counts == pipeline(&[&path]));
    // A text that begins with white space has an empty line, one.
    bytes.splice(0..0, *b"\t \r\n");
    let begins = stage.write("begins", &bytes);
    let (counts, _) = stage.count(&[&begins, "--tokens", "whitespace", "--unit", "1K"]);
    assert_eq!(counts.get(&b""[..]), Some(&1));
    assert!(counts == pipeline(&[&begins]));
    for small in ["", "\n", " \t ", "word", " word", "a  b\n"] {
        let path = stage.write("small", small.as_bytes());
        let (counts, _) = stage.count(&[&path, "--tokens", "whitespace"]);
        assert_eq!(counts, pipeline(&[&path]), "{small:?}");
    }
    let empty = stage.write("empty", b"");
    for files in [[&empty[..], &begins, &path], [&path, &begins, &empty]] {
        let mut arguments = files.to_vec();
        arguments.extend(["--tokens", "whitespace"]);
        let (counts, _) = stage.count(&arguments);
        assert!(counts == pipeline(&files), "{files:?}");
    }
}

#[test]
fn many_files_and_small_units_lose_nothing_at_their_borders() {
    let stage = Stage::new("files");
    let texts: Vec<Vec<u8>> = (0..12)
        .map(|n| text([0, 1, 7, 100, 5000, 70_000][n % 6], n as u64))
        .map(|mut text| {
            // Files end within words, and do not run into one another.
            text.truncate(text.len().saturating_sub(3));
            text
        })
        .collect();
    for (n, text) in texts.iter().enumerate() {
        stage.write(&format!("in/{}/{n}", n % 3), text);
    }
    let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let expected = plainly(&slices);
    for unit in ["64", "1000", "16K"] {
        let (counts, _) = stage.count(&[&stage.path("in"), "--unit", unit, "--kill", "2"]);
        assert!(counts == expected, "units of {unit}");
    }
    let empty = stage.write("empty", b"");
    let (counts, summary) = stage.count(&[&empty]);
    assert_eq!((counts.len(), &summary["units"]), (0, &0.into()));
}

#[test]
fn what_cannot_be_counted_is_refused_before_anything_starts() {
    let stage = Stage::new("refused");
    let run = |arguments: &[&str]| -> Ended {
        let mut all = vec!["run", "wordcount"];
        all.extend(arguments);
        outlive(all)
    };
    let missing = stage.path("missing");
    run(&[&missing]).fails(1, "missing cannot be read: No such file");
    let empty = stage.path("empty");
    fs::create_dir(&empty).unwrap();
    run(&[&empty]).fails(1, "there is no file in the directory");
    run(&["/dev/null"]).fails(1, "neither a file nor a directory");
    let text = stage.write("text", &text(3_000_000, 3));
    run(&[&text, "--output", "/nowhere/counts"]).fails(1, "/nowhere/counts cannot be written");
    run(&[&text, "--size", "5M"]).fails(1, "--size");
    run(&[&text, "--hosts", "0"]).fails(2, "--hosts");
    run(&[&text, "--hosts", "2", "--kill", "2", "--supervise", "none"])
        .fails(1, "all 2 hosts are dead");
    let taken = stage.write("taken", b"something");
    run(&[&text, "--pod", &taken]).fails(1, "exists already");
}

#[test]
fn a_pod_that_is_too_small_is_refused_with_the_size_to_ask_for() {
    let stage = Stage::new("small");
    let text = stage.write("text", &text(3_000_000, 3));
    for size in ["6M", "7M", "8M", "9M", "10M", "12M"] {
        let ended = outlive(["run", "wordcount", &text, "--hosts", "2", "--size", size]);
        if ended.code != Some(0) {
            ended.fails(1, "with --size ");
        }
    }
}

#[test]
fn what_is_there_stays_until_all_is_counted() {
    let stage = Stage::new("output");
    let bytes = text(300_000, 3);
    let text = stage.write("in/text", &bytes);
    let run = |arguments: &[&str]| -> Ended {
        let mut all = vec!["run", "wordcount"];
        all.extend(arguments);
        outlive(all)
    };
    // An input, by whatever name, is not replaced.
    let link = stage.path("link");
    std::os::unix::fs::symlink(&text, &link).unwrap();
    for output in [&text, &link] {
        run(&[&text, "--output", output]).fails(1, "one of the files to be counted");
    }
    run(&[&stage.path("in"), "--output", &text]).fails(1, "one of the files to be counted");
    assert!(fs::read(&text).unwrap() == bytes);
    // An earlier result outlives a run that fails.
    let earlier = stage.write("earlier", b"1\tword\n");
    let fails = [
        "--hosts",
        "1",
        "--kill",
        "1",
        "--supervise",
        "none",
        "--output",
    ];
    let mut arguments = vec![&text[..]];
    arguments.extend(fails);
    arguments.push(&earlier);
    run(&arguments).fails(1, "hosts are dead");
    assert_eq!(fs::read(&earlier).unwrap(), b"1\tword\n");
    // One that succeeds replaces it, what a link leads to as well, and keeps who may read it.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&earlier, fs::Permissions::from_mode(0o640)).unwrap();
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&earlier, &link).unwrap();
    run(&[&text, "--output", &link]).succeeds();
    assert!(read(&earlier) == plainly(&[&bytes]));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let mode = fs::metadata(&earlier).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    run(&[&text, "--output", "/dev/null"]).succeeds();
    // Nothing else is left beside them.
    let mut names: Vec<_> = fs::read_dir(&stage.directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["earlier", "in", "link"]);
}

/// Starts a run that takes a while, in `pod` if it is named.
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

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_terminal_does_not_stop_a_run() {
    let stage = Stage::new("stop");
    let pod = format!("/dev/shm/outlive-run-test-{}-stop", std::process::id());
    let running = start_a_long_run(&stage, Some(&pod), "0");
    wait_until("the pod is there", || fs::exists(&pod).unwrap());
    let status = fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    for signal in [Signal::TSTP, Signal::TTIN, Signal::TTOU] {
        let bit = 1 << (signal.as_raw() - 1);
        assert_ne!(ignored & bit, 0, "{signal:?} stops it");
    }
    running.interrupt();
    wait_until("the pod is gone", || !fs::exists(&pod).unwrap());
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
    // It cannot kill those any more that wait for that, and so they do not end by themselves.
    running.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(50));
    running.kill();
    let until = Instant::now() + Duration::from_secs(10);
    while !processes_of(path).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    let left = processes_of(path);
    left.iter().for_each(|one| one.kill());
    assert!(left.is_empty(), "{left:?} live on without the driver");
    let text = stage.write("text", b"a few words");
    wait_until("the next run has swept", || {
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
        let running = start_a_long_run(&stage, Some(&pod), "0");
        wait_until("the pod is there", || fs::exists(&pod).unwrap());
        std::thread::sleep(Duration::from_millis(60));
        running.signal(signal);
        wait_until("the pod is gone", || !fs::exists(&pod).unwrap());
    }
}
