//! Runs of programs on hosts, which are this program started again.

use crate::StudyError;
use crate::children::{Launcher, Part};
use outlive::supervise::{Place, Stop};
use outlive_workloads::driver::{self, Options, Outcome, Program, Running};
use outlive_workloads::{host, programs};

/// Runs `program` in a pod of its own.
///
/// # Errors
/// If it has no result.
pub fn run<P: Program>(
    launcher: &Launcher,
    options: &Options,
    program: &P,
) -> Result<Outcome<<P::Running as Running>::Result>, StudyError> {
    let launcher = launcher.clone();
    let command = move || launcher.command(&Part::Host);
    let before = if cfg!(debug_assertions) {
        mapped_and_removed()
    } else {
        0
    };
    let outcome = driver::run(options, program, command, &Stop::default(), &mut |_| ());
    // A study has hundreds of runs: what each left mapped would fill the memory.
    debug_assert_eq!(mapped_and_removed(), before, "a run leaves its pod mapped");
    outcome.map_err(|error| StudyError::void(error.to_string()))
}

/// The bytes of pods that are mapped here and have no name any more. (The files by which the kernel tells of deaths, far smaller
/// than a pod, stay mapped.)
fn mapped_and_removed() -> u64 {
    const POD: u64 = 1 << 20;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let bytes = |line: &str| {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        let at = |end| u64::from_str_radix(end, 16).ok();
        Some(at(to)? - at(from)?)
    };
    let removed = maps
        .lines()
        .filter(|line| line.contains("/dev/shm/") && line.ends_with("(deleted)"));
    removed.filter_map(bytes).filter(|it| *it >= POD).sum()
}

/// A host of a run.
pub fn play() -> Result<(), StudyError> {
    let place = Place::from_env().map_err(|error| StudyError::void(error.to_string()))?;
    let launcher = Launcher::this_program(std::env::args_os().skip(1))?;
    let command = move || launcher.command(&Part::Host);
    host::work(&place, programs::of, command).map_err(|error| StudyError::Part {
        what: error.to_string(),
    })
}
