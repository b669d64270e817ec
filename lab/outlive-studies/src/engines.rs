//! Runs programs of other projects to their end and times them.

use crate::cost::Cost;
use crate::{StudyError, clock};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// The outcome of a program.
pub struct Ended {
    pub status: ExitStatus,
    /// The cost from its start to its end, with its children.
    pub cost: Cost,
    /// Its standard error.
    pub said: String,
}

impl Ended {
    /// Returns the error for a program that has no result.
    pub fn void(&self, who: &str) -> StudyError {
        let said: Vec<&str> = self
            .said
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let said = said[said.len().saturating_sub(12)..].join("; ");
        StudyError::void(format!("{who} ended with {}: {said}", self.status))
    }
}

/// Runs a program to its end. It dies with this thread. Ctrl-C in a terminal does not interrupt it.
pub fn timed(command: &mut Command) -> Result<Ended, StudyError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let dies_with_us = || Ok(set_parent_process_death_signal(Some(Signal::TERM))?);
    // SAFETY: the closure makes one system call between fork and exec.
    unsafe { command.pre_exec(dies_with_us) };
    let (began, cpu) = (Instant::now(), clock::children_cpu_seconds());
    let output = command.output();
    let output = output.map_err(StudyError::io(format!("starting {program}")))?;
    let cost = Cost {
        wall: began.elapsed().as_secs_f64(),
        cpu: clock::children_cpu_seconds() - cpu,
    };
    Ok(Ended {
        status: output.status,
        cost,
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
