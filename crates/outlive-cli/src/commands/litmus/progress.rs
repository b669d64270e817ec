//! A run of litmus tests with a progress bar, until it ends or is interrupted.

use super::outage::Commands;
use crate::failure::Failure;
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use outlive_litmus::driver::Driver;
use outlive_litmus::run::{self, Options, Progress, Report, RunError, Survival};
use outlive_litmus::test::Test;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs the tests.
pub fn run(
    driver: &Arc<dyn Driver>,
    tests: &[Test],
    options: &Options,
    commands: &Commands,
    stop: &AtomicBool,
) -> Result<Report, Failure> {
    let bar = ProgressBar::new(tests.len() as u64);
    let template = "{pos}/{len} {wide_bar} {msg} {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    let mut progress = |now: Progress<'_>| {
        bar.set_position(now.ended as u64);
        bar.set_message(format!("{} {}", now.test, now.executions));
    };
    let outages = commands.outages();
    let report = run::run_with_outages(driver, tests, options, outages, stop, &mut progress);
    bar.finish_and_clear();
    report.map_err(failed)
}

/// Kills the store while clients write.
pub fn survive(
    driver: &Arc<dyn Driver>,
    commands: &Commands,
    kills: u64,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Survival, Failure> {
    run::survive(driver, commands, kills, options, stop).map_err(failed)
}

fn failed(error: RunError) -> Failure {
    // Targets and the messages of stores can contain control characters.
    Failure::new(output::printable(&error))
}
