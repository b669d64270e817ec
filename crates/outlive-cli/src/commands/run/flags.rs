//! What every run is told besides its input: its hosts, where the result goes, and for whom it is printed.

use super::destination::{Destination, is_standard_output};
use super::hosts::Hosts;
use super::play::Interrupted;
use super::report::Report;
use crate::failure::Failure;
use crate::output::To;
use clap::Args;
use outlive_workloads::driver::{Options, Outcome};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The flags that every run has. A program says by `mut_arg` what it writes to `--output`.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(flatten)]
    hosts: Hosts,
    /// Write the result there. What is there stays until all is done; it cannot be an input
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print what came of it as JSON; as all that is printed, to standard error if --output is /dev/stdout
    #[arg(long)]
    json: bool,
}

/// What came of a run, as programs read it.
#[derive(Serialize)]
struct Summary<'r, R> {
    result: &'r R,
    #[serde(flatten)]
    report: &'r Report,
}

impl Flags {
    /// What a driver is told. If nobody says otherwise, `kills` hosts are to be killed.
    pub fn options(&self, kills: u32) -> Options {
        self.hosts.options(kills)
    }

    /// Where what came of a run is printed: to standard error, if the result itself is written to standard output. So what is read
    /// there is the result and nothing else: an archive, lines to be sorted.
    pub fn tell_to(&self) -> To {
        match self.output.as_deref().is_some_and(is_standard_output) {
            true => To::Errors,
            false => To::Output,
        }
    }

    /// Whether programs read what is printed.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Where the result is written, if that was asked for. To be called first: what cannot be written is known before
    /// anything starts. It cannot be one of the files that `read` names: `to_be` says what is done with them. A pipe that nobody
    /// reads is waited for until somebody wants an end.
    pub fn destination<'i>(
        &self,
        read: impl IntoIterator<Item = &'i Path>,
        to_be: &str,
        interrupted: &Interrupted,
    ) -> Result<Option<Destination>, Failure> {
        let path = self.output.as_deref();
        path.map(|path| Destination::prepare(path, read, to_be, interrupted))
            .transpose()
    }

    /// Prints what came of a run: `result` for programs; for people `headline`, the report, and `lines`.
    pub fn tell<T, R: Serialize>(
        &self,
        options: &Options,
        outcome: &Outcome<T>,
        result: &R,
        headline: String,
        lines: impl IntoIterator<Item = String>,
    ) -> Result<(), Failure> {
        let (report, to) = (Report::of(options, outcome), self.tell_to());
        if self.json {
            to.json(&Summary {
                result,
                report: &report,
            })?;
        } else {
            to.line(headline)?;
            report.tell(to)?;
            lines.into_iter().try_for_each(|line| to.line(line))?;
        }
        report.require_kills()
    }
}
