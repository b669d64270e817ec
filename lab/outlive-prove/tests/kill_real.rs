//! Sweeps by real kills: replacing a file, and a victim with a second thread.

use outlive_memory::{Memory, Native, Offset, PersistenceDomain};
use outlive_prove::kill::{
    At, Crash, Plan, PointKind, RealSweep, Sample, SweepReport, Window, sweep_for_real,
    unless_forbidden,
};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

outlive_memory::crash_points! {
    /// The points at which replacing a file may be cut short.
    enum ReplacePoint for "file.replace" {
        /// The new file is being written beside the old one.
        Writing,
        /// The new file is whole.
        Written,
        /// The name refers to the new file.
        Renamed,
    }
}

fn swept<S: RealSweep>(operation: &S, plan: &Plan) -> Option<SweepReport> {
    unless_forbidden(sweep_for_real(operation, plan))
}

const OLD: &str = "the old contents";
const NEW: &str = "and the new contents, which are longer";

#[derive(Debug, PartialEq, Eq)]
enum Flaw {
    None,
    WritesInPlace,
    RemovesFirst,
    /// Its recovery moves the only good file away for a moment.
    RecoversByMoving,
}

struct Replace(Flaw);

impl Replace {
    fn paths(directory: &TempDir) -> (PathBuf, PathBuf) {
        let path = directory.path();
        (path.join("file"), path.join("file.new"))
    }
}

impl RealSweep for Replace {
    type World = TempDir;

    fn name(&self) -> String {
        format!("file.replace {:?}", self.0)
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        vec![PointKind::of::<ReplacePoint>()]
    }

    fn prepare(&self) -> Result<TempDir, String> {
        let directory = TempDir::new().map_err(|error| error.to_string())?;
        fs::write(Self::paths(&directory).0, OLD).map_err(|error| error.to_string())?;
        Ok(directory)
    }

    fn operate(&self, directory: &TempDir, window: Window) {
        let (file, new) = Self::paths(directory);
        let marks = window.mark(Native::leaked(4096, PersistenceDomain::Flushed));
        window.begin();
        marks.crash_point(ReplacePoint::Writing);
        let target = if self.0 == Flaw::WritesInPlace {
            &file
        } else {
            &new
        };
        let mut writing = File::create(target).expect("a new file");
        let (first, second) = NEW.split_at(10);
        writing.write_all(first.as_bytes()).expect("the first part");
        writing
            .write_all(second.as_bytes())
            .expect("the second part");
        marks.crash_point(ReplacePoint::Written);
        if self.0 == Flaw::RemovesFirst {
            fs::remove_file(&file).expect("the old file");
        }
        if self.0 != Flaw::WritesInPlace {
            fs::rename(&new, &file).expect("the name is free");
        }
        marks.crash_point(ReplacePoint::Renamed);
        window.end();
        fs::remove_dir_all(directory.path()).expect("nothing after the end is executed");
    }

    fn recover(&self, directory: &TempDir, window: Window, crash: &Crash) {
        let victim = crash.process.expect("a real victim");
        assert!(
            !fs::exists(format!("/proc/{victim}")).expect("/proc"),
            "lives on"
        );
        window.begin();
        let (file, new) = Self::paths(directory);
        if self.0 == Flaw::RecoversByMoving {
            let aside = directory.path().join("aside");
            fs::rename(&file, &aside).expect("a file to be checked");
            fs::rename(&aside, &file).expect("the file checked");
        }
        match fs::remove_file(new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
    }

    fn check(&self, directory: &TempDir, crash: &Crash) -> Result<(), String> {
        let (file, new) = Self::paths(directory);
        if fs::exists(new).map_err(|error| error.to_string())? {
            return Err("left a file behind".to_owned());
        }
        let contents = fs::read_to_string(file).map_err(|error| error.to_string())?;
        match contents.as_str() {
            NEW => Ok(()),
            OLD if crash.passed(ReplacePoint::Renamed) => Err("lost".to_owned()),
            OLD => Ok(()),
            torn => Err(format!("torn: {torn}")),
        }
    }
}

/// The plan of these tests: every system call, and a few instructions.
fn plan() -> Plan {
    let mut plan = Plan::quick();
    plan.real.kills = Sample::UpTo(24);
    plan.real.recoveries = Sample::UpTo(2);
    plan.real.second_kills = Sample::UpTo(4);
    plan
}

#[test]
fn replacing_a_file_survives_kills_at_every_system_call() {
    let Some(report) = swept(&Replace(Flaw::None), &plan()) else {
        return;
    };
    report.assert_clean();
    assert_eq!(report.recoveries_swept, 2);
    assert_eq!(report.second_kills, 8);
    // openat, two writes, rename; each entered and left.
    assert!(report.images >= 24 + 8, "{report}");
    assert_eq!(report.recoveries, report.images + report.second_kills);
}

#[test]
fn writing_in_place_is_found_at_a_system_call() {
    let mut plan = plan();
    plan.real.kills = Sample::NONE;
    let Some(report) = swept(&Replace(Flaw::WritesInPlace), &plan) else {
        return;
    };
    assert!(!report.failures.is_empty(), "{report}");
    let at_call = |at: At| matches!(at, At::SystemCall(_));
    assert!(report.failures.iter().all(|failure| at_call(failure.at)));
    assert!(
        report
            .failures
            .iter()
            .all(|failure| failure.message.contains("torn"))
    );
}

#[test]
fn removing_the_old_file_first_is_found() {
    let mut plan = plan();
    plan.real.kills = Sample::NONE;
    let Some(report) = swept(&Replace(Flaw::RemovesFirst), &plan) else {
        return;
    };
    assert!(!report.failures.is_empty(), "{report}");
}

#[test]
fn a_recovery_that_must_not_die_is_found_by_killing_it() {
    let mut plan = plan();
    plan.real.second_kills = Sample::UpTo(40);
    let Some(report) = swept(&Replace(Flaw::RecoversByMoving), &plan) else {
        return;
    };
    assert!(!report.failures.is_empty(), "{report}");
    let second = |failure: &outlive_prove::kill::Failure| failure.recovery_at.is_some();
    assert!(report.failures.iter().all(second), "{report}");
}

/// A victim whose second thread counts in shared memory.
struct TwoThreads;

const COUNT: Offset = Offset::new(0);

impl RealSweep for TwoThreads {
    type World = TempDir;

    fn name(&self) -> String {
        "two threads".to_owned()
    }

    fn prepare(&self) -> Result<TempDir, String> {
        TempDir::new().map_err(|error| error.to_string())
    }

    fn operate(&self, directory: &TempDir, window: Window) {
        let path = directory.path().join("count");
        window.begin();
        thread::spawn(move || {
            for count in 0u64.. {
                fs::write(&path, count.to_string()).expect("a directory while it runs");
            }
        });
        for _ in 0..100 {
            core::hint::black_box(COUNT);
        }
    }

    fn recover(&self, _: &TempDir, window: Window, _: &Crash) {
        window.begin();
    }

    fn check(&self, directory: &TempDir, _: &Crash) -> Result<(), String> {
        let path = directory.path().join("count");
        let before = fs::read(&path).ok();
        thread::sleep(Duration::from_millis(2));
        match fs::read(&path).ok() == before {
            true => Ok(()),
            false => Err("a thread of the victim continues".to_owned()),
        }
    }
}

#[test]
fn all_threads_of_a_victim_die_with_it() {
    let mut plan = plan();
    plan.real.recoveries = Sample::NONE;
    if let Some(report) = swept(&TwoThreads, &plan) {
        report.assert_clean();
    }
}
