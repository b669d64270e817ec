//! `outlive pod check`.

use super::Which;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use serde::Serialize;
use std::path::Path;

/// Whatever is wrong in a pod.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod check /dev/shm/demo\n  \
    outlive pod check /dev/shm/demo --json | jq '.violations[]'\n\n\
    Changes nothing, and may be run while the pod is used. Exits with 1 if anything is violated.")]
pub struct Check {
    #[command(flatten)]
    which: Which,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Checked<'a> {
    path: &'a Path,
    ids: u32,
    alive: u32,
    groups: u32,
    events: u64,
    violations: Vec<Violation>,
}

#[derive(Serialize)]
struct Violation {
    room: &'static str,
    /// Bytes from the segment's start.
    offset: Option<u64>,
    what: String,
}

impl Check {
    pub fn run(self) -> Result<(), Failure> {
        let check = self.which.open()?.check();
        if self.json {
            output::json(&Checked {
                path: self.which.path(),
                ids: check.ids,
                alive: check.alive,
                groups: check.groups,
                events: check.events,
                violations: check
                    .violations
                    .iter()
                    .map(|violation| Violation {
                        room: violation.room,
                        offset: violation.at.map(|at| at.byte()),
                        what: violation.what.clone(),
                    })
                    .collect(),
            })?;
        } else {
            for violation in &check.violations {
                output::line(violation)?;
            }
            let found = match check.violations.len() {
                0 => "nothing is wrong".into(),
                1 => "1 violation".into(),
                many => format!("{many} violations"),
            };
            output::line(format_args!(
                "{}: looked at {} ids ({} members), {} groups, {} events: {found}",
                self.which.path().display(),
                check.ids,
                check.alive,
                check.groups,
                check.events,
            ))?;
        }
        if check.is_clean() {
            Ok(())
        } else {
            Err(Failure::Found)
        }
    }
}
