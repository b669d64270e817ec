//! The flags of every run, apart from its input: its hosts, the destination of its result, and the
//! format of its report.

use super::destination::is_standard_output;
use super::hosts::Hosts;
use super::report::Report;
use super::steps::Text;
use crate::failure::Failure;
use crate::output::To;
use clap::Args;
use outlive_run::driver::{Options, Outcome};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The flags that every run has. A program describes its `--output` by `mut_arg`.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(flatten)]
    hosts: Hosts,
    /// Write the result to FILE, which is replaced only after all is done; it cannot be an input
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the report as JSON. A report goes to standard error if --output is /dev/stdout
    #[arg(long)]
    json: bool,
}

/// The report of a run, for JSON.
#[derive(Serialize)]
struct Summary<'r, F> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'r F>,
    #[serde(flatten)]
    found: Option<&'r F>,
    #[serde(flatten)]
    report: &'r Report,
}

impl Flags {
    /// Returns the driver's options. Without `--kill`, `kills` hosts are killed.
    pub fn options(&self, kills: u32) -> Options {
        self.hosts.options(kills)
    }

    /// Returns the destination of the report: standard error if the result itself is written to
    /// standard output, so that a reader gets the result and nothing else: an archive, lines to be
    /// sorted.
    fn tell_to(&self) -> To {
        match self.output().is_some_and(is_standard_output) {
            true => To::Errors,
            false => To::Output,
        }
    }

    /// Returns the path of the destination of the result, if one was given.
    pub fn output(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    /// Prints the report of a run, with `text`.
    pub fn tell<F: Serialize>(
        &self,
        options: &Options,
        outcome: &Outcome<()>,
        text: Text<F>,
    ) -> Result<(), Failure> {
        let (report, to) = (Report::of(options, outcome), self.tell_to());
        if self.json {
            to.json(&Summary {
                result: (!text.is_flat).then_some(&text.found),
                found: text.is_flat.then_some(&text.found),
                report: &report,
            })?;
        } else {
            to.line(text.headline)?;
            report.tell(to)?;
            text.lines.into_iter().try_for_each(|line| to.line(line))?;
        }
        report.require_kills()
    }
}
