//! `outlive litmus`: tests of the isolation of transactional stores.

mod check;
mod choice;
mod explanations;
mod generate;
mod history;
mod judge;
mod junit;
mod lines;
mod list;
mod outage;
mod progress;
mod report;
mod run;
mod serve;
mod shell;
mod show;

use crate::failure::Failure;
use crate::output;
use clap::Subcommand;
use outlive_litmus::suite;
use outlive_litmus::test::Test;
use outlive_litmus::text;
use std::path::Path;

/// The commands of `outlive litmus`.
#[derive(Subcommand, Debug)]
pub enum LitmusCommand {
    /// List the shipped tests, or those of a file
    List(list::List),
    /// Print a test
    Show(show::Show),
    /// Check files of tests: their syntax, and that no assertion fails in a correct execution
    Check(check::Check),
    /// Run tests against a store
    Run(run::Run),
    /// Run all tests against a store, and report the isolation level that it gave
    Judge(judge::Judge),
    /// Answer requests on standard input for a store, as a process that a tester can kill
    Serve(serve::Serve),
    /// Print tests that are generated from the consistency model
    Generate(generate::Generate),
}

impl LitmusCommand {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Generate(command) => command.run(),
            Self::List(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Run(command) => command.run(),
            Self::Judge(command) => command.run(),
            Self::Serve(command) => command.run(),
        }
    }
}

/// Returns the tests of a file, or the shipped ones.
fn tests(file: Option<&Path>) -> Result<Vec<Test>, Failure> {
    match file {
        Some(file) => read(file).map_err(Failure::Failed),
        None => Ok(suite::tests()),
    }
}

/// Returns the tests of a file, or one paragraph that says why they cannot be read.
fn read(file: &Path) -> Result<Vec<Test>, String> {
    let name = output::printable(&file.display());
    let text = std::fs::read_to_string(file).map_err(|error| {
        format!("the tests in {name} cannot be read: {error}; name a text file of tests")
    })?;
    text::parse(&text).map_err(|it| {
        format!(
            "{name}:{}:{}: at {}: {}; {}",
            it.line, it.column, it.token, it.problem, it.instead
        )
    })
}
