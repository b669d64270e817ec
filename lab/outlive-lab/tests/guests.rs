//! A pod of two operating systems: the study `guests`, which starts virtual machines.

#[path = "../../../crates/outlive-cli/tests/support/mod.rs"]
mod support;

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use support::command;

/// A study in a directory of its own. When dropped, it is killed, and its virtual machines with it.
struct Studying {
    child: Child,
    output: PathBuf,
}

impl Studying {
    fn start(name: &str) -> Self {
        let name = format!("outlive-cli-guests-{}-{name}", std::process::id());
        let output = std::env::temp_dir().join(name);
        fs::create_dir_all(&output).unwrap();
        let file = |name: &str| fs::File::create(output.join(name)).unwrap();
        let child = command(["study", "guests", "--quick", "--json", "--output"])
            .arg(&output)
            .stdout(Stdio::from(file("rows")))
            .stderr(Stdio::from(file("errors")))
            .spawn()
            .unwrap();
        Self { child, output }
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.output.join(name)).unwrap()
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    fn ends(&mut self, limit: Duration) -> ExitStatus {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(
                Instant::now() < until,
                "not within {limit:?}: {}",
                self.said("errors")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns whether it was skipped, and prints the reason.
    fn is_skipped(&self) -> bool {
        let errors = self.said("errors");
        let why = errors.strip_prefix("the study guests is skipped: it needs ");
        if let Some(why) = why {
            print!("skipped: needs {why}");
        }
        why.is_some()
    }

    /// The virtual machines that it has started.
    fn machines(&self) -> Vec<String> {
        let directory = format!("outlive-study-{}-", self.child.id());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|it| fs::read_to_string(it.path().join("cmdline")).ok());
        lines
            .filter(|line| line.contains("qemu") && line.contains(&directory))
            .collect()
    }

    fn leaves_nothing(&self) {
        assert_eq!(self.machines(), Vec::<String>::new());
        let directory = format!("outlive-study-{}-", self.child.id());
        let files = fs::read_dir("/dev/shm").unwrap().flatten();
        let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
        let left: Vec<_> = names.filter(|name| name.starts_with(&directory)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Studying {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.output);
    }
}

/// Emulated processors are slow, and other tests run at the same time.
const LIMIT: Duration = Duration::from_secs(900);

#[test]
fn two_guests_share_a_pod_and_one_of_them_is_killed_and_one_stopped() {
    let mut study = Studying::start("whole");
    let status = study.ends(LIMIT);
    if study.is_skipped() {
        assert!(status.success());
        return;
    }
    assert!(status.success(), "{}", study.said("errors"));
    let rows: Value = serde_json::from_str(&study.said("rows")).unwrap();
    let rows = rows.as_array().unwrap();
    let goals: Vec<&Value> = rows.iter().filter(|row| !row["goal"].is_null()).collect();
    assert_eq!(goals.len(), 5, "{rows:#?}");
    assert!(goals.iter().all(|row| row["holds"] == true), "{goals:#?}");
    let tasks = { rows.iter() }.find(|row| row["unit"] == "tasks").unwrap();
    assert!(tasks["ours"].as_f64().unwrap() > 0.0, "{tasks}");
    study.leaves_nothing();
}

#[test]
fn an_interrupted_study_leaves_no_guest() {
    let mut study = Studying::start("interrupted");
    let until = Instant::now() + Duration::from_secs(60);
    while study.machines().is_empty() {
        if study.ended().is_some() && study.is_skipped() {
            return;
        }
        assert!(Instant::now() < until, "{}", study.said("errors"));
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&study.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = study.ends(Duration::from_secs(30));
    assert_eq!(status.code(), Some(1), "{}", study.said("errors"));
    assert!(study.said("errors").contains("was interrupted"));
    study.leaves_nothing();
}
