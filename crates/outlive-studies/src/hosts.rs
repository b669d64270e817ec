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
    let outcome = driver::run(options, program, command, &Stop::default(), &mut |_| ());
    outcome.map_err(|error| StudyError::void(error.to_string()))
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
