//! `outlive litmus judge`: the isolation level that a store really gives.

use super::choice::{self, Clients, Results};
use super::explanations::Explained;
use super::history::History;
use super::outage::{self, Commands};
use super::report::Report;
use super::{junit, lines, progress};
use crate::amount::Many;
use crate::failure::Failure;
use crate::{interruption, output, target};
use clap::Args;
use outlive_litmus::level::Level;
use outlive_litmus::run::{Judgement, Limit, Options, Survival, TestReport, Verdict};
use outlive_litmus::suite;
use outlive_litmus::test::{Family, Test};
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `outlive litmus judge`.
#[derive(Args, Debug)]
#[command(after_help = format!("Examples:\n  \
    outlive litmus judge sqlite:/tmp/x.db\n  \
    outlive litmus judge sqlite:/tmp/x.db --faults client --expect strict-serializable\n  \
    outlive litmus judge 'exec:python3 store.py' --seconds 300 --json\n  \
    outlive litmus judge exec:./client --kill 'kill -9 $(cat pid)' --recover ./serve.sh\n\n\
    The store gave a level if all tests whose outcomes the level forbids passed, in concurrent \
    executions. \
    The tests use a table of their own, which is removed.\n\n\
    JSON: target, level, tests and more; docs/json.md says what they mean.\n\n{}\n\n{}",
    choice::COLUMNS, target::help()))]
pub struct Judge {
    /// The store: a driver and its address, such as `sqlite:FILE`
    target: String,
    /// Duration of all tests together in seconds; longer with a slow store, because each test
    /// completes the instances that it has begun
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=864_000))]
    seconds: u64,
    /// Run the tests of one family only, such as `predicate`; may be repeated. These tests
    /// alone do not show a level, so --expect cannot be combined with it
    #[arg(long, value_name = "FAMILY", value_parser = choice::family, conflicts_with = "expect")]
    only: Vec<Family>,
    #[command(flatten)]
    clients: Clients,
    #[command(flatten)]
    commands: Commands,
    /// Number of kills of the store after the tests, while clients write: all acknowledged writes
    /// must be visible after each recovery
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    kills: u64,
    /// Fail unless the store gives this level, such as `strict-serializable` (docs/litmus.md lists
    /// the levels)
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    expect: Option<Level>,
    #[command(flatten)]
    results: Results,
}

/// Parses the name of a level.
fn level(name: &str) -> Result<Level, String> {
    Level::named(name).ok_or_else(|| {
        let names: Vec<String> = Level::all().map(|it| it.to_string()).collect();
        format!("the levels are {}", names.join(", "))
    })
}

impl Judge {
    pub fn run(self) -> Result<(), Failure> {
        let stop = interruption::flag(&interruption::SIGNALS)?;
        if !self.results.dry_run {
            self.commands.start(&stop)?;
        }
        let driver = Arc::from(target::open(&self.target)?);
        let tests = suite::tests();
        let is_chosen = |it: &Test| self.only.is_empty() || self.only.contains(&it.family);
        let tests: Vec<Test> = tests.into_iter().filter(is_chosen).collect();
        let limit = Limit::Time(Duration::from_secs(self.seconds));
        if self.results.dry_run {
            let faults = self.clients.faults(&self.commands);
            let mut lines = choice::dry_run(&tests, &*driver, limit, &faults);
            if self.commands.have_kills() {
                let kills = Many(self.kills, "kill");
                lines.push(format!("then {kills} of the store while clients write"));
            }
            return lines.into_iter().try_for_each(output::line);
        }
        let options = self.clients.options(limit);
        let (history, driver) = History::begin(self.results.history.as_deref(), driver)?;
        let report = progress::run(&driver, &tests, &options, &self.commands, &stop);
        let has_ended = report.as_ref().is_ok_and(|it| !it.is_stopped);
        let survives = has_ended && self.commands.have_kills();
        // Its error does not discard the report of the tests.
        let survival = match survives {
            true => {
                progress::survive(&driver, &self.commands, self.kills, &options, &stop).map(Some)
            }
            false => Ok(None),
        };
        let (survival, failure) = match survival {
            Ok(survival) => (survival, None),
            Err(failure) => (None, Some(failure)),
        };
        history.end()?;
        let report = report?;
        let judgement = Judgement::new(&report);
        let repeat = |test: &TestReport| self.repeat(test, &options);
        let explained = Explained::new(&tests, &report);
        // Neither the files nor the reader of the output hide the results from each other.
        let print = || {
            if self.results.json {
                let faults = self.clients.faults(&self.commands);
                let report = Report::new(&self.target, &explained, faults, &repeat);
                output::json(&report.judged(&judgement, &self.only, survival.as_ref()))?;
            } else {
                for line in lines::lines(&explained, &repeat) {
                    output::line(line)?;
                }
                output::line("")?;
                let conclusion = match report.is_stopped {
                    true => vec!["no level, because the run was interrupted".into()],
                    false => self.conclusion(&judgement, options.seed),
                };
                conclusion.into_iter().try_for_each(output::line)?;
                if let Some(survival) = &survival {
                    output::line(outage::line(survival))?;
                }
            }
            Ok(())
        };
        let printed: Result<(), Failure> = print();
        if let Some(path) = &self.results.junit {
            // As for the exit code.
            let misses = |test: &TestReport, level| {
                let is_missing = judgement.missing.contains(&test.name);
                is_missing && test.is_forbidden_at(level) && !judgement.gives(level)
            };
            let fails = |test: &TestReport| {
                let is_refuted = |level| test.refutes(level) || misses(test, level);
                has_broken(test) || test.lacks_crashes() || self.expect.is_some_and(is_refuted)
            };
            junit::write(path, &self.target, &report, fails)?;
        }
        if let Some(path) = &self.results.html {
            let (level, faults) = (judgement.to_string(), self.clients.faults(&self.commands));
            explained.write(path, &self.target, Some(&level), &faults, &repeat)?;
        }
        printed?;
        if report.is_stopped {
            return Err(choice::interrupted());
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        let is_given = self.expect.is_none_or(|level| judgement.gives(level));
        let lacks_crashes = report.tests.iter().any(TestReport::lacks_crashes);
        let is_wrong = |it: &Survival| it.lost.is_some() || it.blocked.is_some();
        let has_survived = !survival.as_ref().is_some_and(is_wrong);
        let is_whole =
            report.blocked().chain(report.failed()).count() == 0 && report.left.is_none();
        match is_given && !lacks_crashes && has_survived && is_whole {
            true => Ok(()),
            false => Err(Failure::Found),
        }
    }

    /// Returns the lines that say which level was given.
    fn conclusion(&self, judgement: &Judgement, seed: u64) -> Vec<String> {
        let faults = match self.clients.faults(&self.commands).is_empty() {
            true => "no faults".into(),
            false => format!("faults: {}", self.clients.faults(&self.commands).join(", ")),
        };
        let scope = match self.only.is_empty() {
            true => String::new(),
            false => {
                let names: Vec<&str> = self.only.iter().map(|it| it.name()).collect();
                format!(", tests of {} only", names.join(", "))
            }
        };
        let level = match judgement.levels == judgement.not_refuted {
            true => judgement.to_string(),
            false => format!("at least {judgement}"),
        };
        let mut lines = vec![format!("level: {level} ({faults}, seed {seed}{scope})")];
        if !judgement.missing.is_empty() {
            let levels: Vec<String> = judgement.not_refuted.iter().map(Level::to_string).collect();
            lines.push(format!(
                "no violation of {} was found, but these tests have no result, so it is not shown: \
                 {}",
                levels.join(" and "),
                judgement.missing.join(", ")
            ));
        }
        if let Some(expected) = self.expect
            && !judgement.gives(expected)
        {
            lines.push(format!("expected: {expected}"));
        }
        lines
    }

    /// Returns the command that repeats a test.
    fn repeat(&self, test: &TestReport, options: &Options) -> String {
        let seconds = (test.elapsed.as_secs() * 2).max(10);
        format!(
            "outlive litmus run {} {} --seconds {seconds} {}{}",
            choice::shell_quoted(&self.target),
            test.name,
            self.clients.repeated(options.seed),
            self.commands.repeated()
        )
    }
}

fn has_broken(test: &TestReport) -> bool {
    matches!(test.verdict, Verdict::Blocked(_) | Verdict::Failed(_))
}
