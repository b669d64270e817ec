//! Runs the word count: a directory with texts for each test, an independent count, and the
//! processes of a run.

use super::outlive;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A directory for one test, with a text in it. Tests with one run one at a time: each uses all
/// processors.
pub struct Stage {
    pub directory: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Stage {
    pub fn new(name: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let directory =
            std::env::temp_dir().join(format!("outlive-run-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Self {
            directory,
            _turn: turn,
        }
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    pub fn write(&self, name: &str, text: &[u8]) -> String {
        let path = self.path(name);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Counts. Returns the counts and the report.
    pub fn count(&self, arguments: &[&str]) -> (BTreeMap<Vec<u8>, u64>, Value) {
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
pub fn read(path: &str) -> BTreeMap<Vec<u8>, u64> {
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

/// Counts independently.
pub fn plainly(texts: &[&[u8]]) -> BTreeMap<Vec<u8>, u64> {
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

/// Returns some megabytes of words, a few frequent and many rare, some of them long or with
/// umlauts.
pub fn text(bytes: usize, mut seed: u64) -> Vec<u8> {
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

/// Requires that no pod, no side file and no process of the run is left.
pub fn assert_nothing_is_left(summary: &Value) {
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
pub struct Seen {
    pub pid: u32,
    pub parent: u32,
    /// Its processor time in seconds.
    pub seconds: f64,
}

impl Seen {
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u32>().ok();
        Some(Self {
            pid,
            parent: number(1)?,
            seconds: f64::from(number(11)? + number(12)?) / 100.0,
        })
    }

    /// Returns whether nothing of it is left, including its locks: it releases its environment
    /// before them, and its first thread may be a zombie while others still hold the shared
    /// resources.
    pub fn has_ended(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).map_or(0, Iterator::count);
        match state {
            None | Some(b'X') => true,
            Some(b'Z') => threads <= 1,
            Some(_) => false,
        }
    }

    pub fn kill(self) {
        let pid = Pid::from_raw(self.pid as i32).unwrap();
        // It may have ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Returns the live processes that were started to join `pod`.
pub fn processes_of(pod: &str) -> Vec<Seen> {
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

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
