//! Runs programs on hosts, which are this program started again.

use crate::StudyError;
use crate::children::{Launcher, Part};
use outlive::supervise::{Place, Stop};
use outlive_run::driver::{self, Options, Outcome, Program, Running};
use outlive_run::host;
use std::time::{Duration, Instant};

/// Runs `program` in a pod of its own.
///
/// # Errors
/// If the run has no result.
pub fn run<P: Program>(
    launcher: &Launcher,
    options: &Options,
    program: &P,
) -> Result<Outcome<<P::Running as Running>::Result>, StudyError> {
    let launcher = launcher.clone();
    let command = move || launcher.command(&Part::Host);
    let before = if cfg!(debug_assertions) {
        mapped()
    } else {
        Vec::new()
    };
    let outcome = driver::run(options, program, command, &Stop::default(), &mut |_| ());
    // A study has hundreds of runs: pods that they leave mapped would fill the memory.
    debug_assert!(
        lets_go_beyond(&before),
        "a run leaves its pod mapped: {:?}, before {before:?}",
        mapped()
    );
    outcome.map_err(|error| StudyError::void(error.to_string()))
}

/// A pod that is mapped in this process: its inode, and whether its file was removed.
type Mapped = (u64, bool);

/// Returns all mapped pods. (The files by which the kernel reports deaths stay mapped; they are far
/// smaller than a pod.)
fn mapped() -> Vec<Mapped> {
    const POD: u64 = 1 << 20;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let pod = |line: &str| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let at = |end| u64::from_str_radix(end, 16).ok();
        let inode = words.nth(3)?.parse().ok()?;
        (at(to)? - at(from)? >= POD).then_some((inode, line.ends_with("(deleted)")))
    };
    let pods = maps.lines().filter(|line| line.contains("/dev/shm/"));
    pods.filter_map(pod).collect()
}

/// Returns whether, within 10 seconds, no removed pod is mapped except those that were mapped
/// `before`. Threads that are ending may hold a mapping for a moment.
fn lets_go_beyond(before: &[Mapped]) -> bool {
    let known = |inode: u64| before.iter().any(|(other, _)| *other == inode);
    let begun = Instant::now();
    loop {
        let left = mapped();
        if !left
            .iter()
            .any(|(inode, removed)| *removed && !known(*inode))
        {
            return true;
        }
        if begun.elapsed() > Duration::from_secs(10) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Executes the role of a host of a run.
pub fn play() -> Result<(), StudyError> {
    let place = Place::from_env().map_err(|error| StudyError::void(error.to_string()))?;
    let launcher = Launcher::this_program(std::env::args_os().skip(1))?;
    let command = move || launcher.command(&Part::Host);
    host::work(&place, outlive_programs::by_number, command).map_err(|error| StudyError::Part {
        what: error.to_string(),
    })
}
