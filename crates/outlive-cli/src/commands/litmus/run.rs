//! `outlive litmus run`: single tests against a store.

use super::choice::{self, Clients, Results};
use super::explanations::Explained;
use super::history::History;
use super::outage::Commands;
use super::report::Report;
use super::{junit, lines, progress};
use crate::failure::Failure;
use crate::{interruption, output, target};
use clap::Args;
use outlive_litmus::run::{Limit, TestReport, Verdict};
use outlive_litmus::test::Test;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `outlive litmus run`.
#[derive(Args, Debug)]
#[command(after_help = format!("Examples:\n  \
    outlive litmus run sqlite:/tmp/x.db write-skew\n  \
    outlive litmus run sqlite:/tmp/x.db my.litmus --instances 1000 --seed 7\n  \
    outlive litmus run 'exec:python3 store.py' write-skew --faults client --json\n\n\
    The command fails if a test finds a violation or proves nothing. The tests use a table of \
    their own, which is removed.\n\n\
    JSON: target, tests and more; docs/json.md says what they mean.\n\n{}\n\n{}",
    choice::COLUMNS, target::help()))]
pub struct Run {
    /// The store: a driver and its address, such as `sqlite:FILE`
    target: String,
    /// Names of shipped tests, or files of tests [default: all shipped tests]
    tests: Vec<String>,
    /// Duration of all tests together in seconds; longer with a slow store, because each test
    /// completes the instances that it has begun
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=864_000))]
    seconds: u64,
    /// End each test after this number of instances, instead of a time
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    instances: Option<u64>,
    #[command(flatten)]
    clients: Clients,
    #[command(flatten)]
    commands: Commands,
    #[command(flatten)]
    results: Results,
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        let stop = interruption::flag(&interruption::SIGNALS)?;
        if !self.results.dry_run {
            self.commands.start(&stop)?;
        }
        let driver = Arc::from(target::open(&self.target)?);
        let tests: Vec<Test> = choice::tests(&self.tests)?;
        let limit = match self.instances {
            Some(instances) => Limit::Instances(instances),
            None => Limit::Time(Duration::from_secs(self.seconds)),
        };
        if self.results.dry_run {
            let faults = self.clients.faults(&self.commands);
            let lines = choice::dry_run(&tests, &*driver, limit, &faults);
            return lines.into_iter().try_for_each(output::line);
        }
        let options = self.clients.options(limit);
        let (history, driver) = History::begin(self.results.history.as_deref(), driver)?;
        let report = progress::run(&driver, &tests, &options, &self.commands, &stop);
        history.end()?;
        let report = report?;
        let repeat = |_: &TestReport| {
            let limit = match self.instances {
                Some(instances) => format!("--instances {instances}"),
                None => format!("--seconds {}", self.seconds),
            };
            let places = [&self.target].into_iter().chain(&self.tests);
            let places: Vec<String> = places.map(|it| choice::shell_quoted(it)).collect();
            let repeated = self.clients.repeated(options.seed);
            let commands = self.commands.repeated();
            format!(
                "outlive litmus run {} {limit} {repeated}{commands}",
                places.join(" ")
            )
        };
        let fails = |test: &TestReport| test.verdict != Verdict::Passed;
        let explained = Explained::new(&tests, &report);
        // Neither the files nor the reader of the output hide the results from each other.
        let print = || {
            if self.results.json {
                let faults = self.clients.faults(&self.commands);
                output::json(&Report::new(&self.target, &explained, faults, &repeat))?;
            } else {
                for line in lines::lines(&explained, &repeat) {
                    output::line(line)?;
                }
                output::line(format_args!("seed {}", options.seed))?;
            }
            Ok(())
        };
        let printed: Result<(), Failure> = print();
        if let Some(path) = &self.results.junit {
            junit::write(path, &self.target, &report, fails)?;
        }
        if let Some(path) = &self.results.html {
            explained.write(
                path,
                &self.target,
                None,
                &self.clients.faults(&self.commands),
                &repeat,
            )?;
        }
        printed?;
        if report.is_stopped {
            return Err(choice::interrupted());
        }
        match report.tests.iter().any(fails) || report.left.is_some() {
            true => Err(Failure::Found),
            false => Ok(()),
        }
    }
}
