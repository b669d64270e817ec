//! Runs tests against a store repeatedly, and judges the level that it gave.
//!
//! A test with [`Assertion::Always`] runs on one set of objects for all clients, a test with
//! [`Assertion::Never`] on objects of its own for each instance. The keys of an instance are
//! spread over all keys, unless it counts objects. Clients wait for random times between
//! statements, and crash if [`Options::crashes`] is set; a seed repeats all choices of the clients,
//! but not those of the store and of the scheduler.
//!
//! A test has [passed](Verdict::Passed) only if conflicting transactions were concurrent in enough
//! instances (`exercise`), and if each planned crash has happened. The [`Kind`] of a violation says
//! which part of the store's work is wrong: the transaction of an assertion is itself subject to
//! the store's isolation.
//!
//! Tests: tests/judged.rs and tests/outages.rs, with stores in memory that are correct or wrong in
//! one respect.

mod client;
mod conflicts;
mod context;
mod crashes;
mod evaluation;
mod execution;
mod exercise;
mod judgement;
mod keys;
mod options;
mod outage;
mod plan;
mod report;
mod separate;
mod shared;
mod state;
mod worker;

pub use crashes::Crash;
pub use execution::Outcome;
pub use judgement::Judgement;
pub use options::{Limit, Options};
pub use outage::{LostWrite, Outage, Outages, Survival, survive};
pub use report::{Executed, Kind, Report, TestReport, Verdict, Violation};

use crate::driver::{Capabilities, Driver, DriverError};
use crate::test::{Assertion, Step, Test};
use context::Context;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thiserror::Error;

/// A store that does not answer for this many times [`Options::patience`] is blocked. The factor is
/// not 1, because a client repeats some requests for that time.
const PATIENCES: u32 = 3;

/// The number of failed tests in sequence after which no other test runs: each of them can wait for
/// [`Options::patience`] for a store that is gone.
pub const MOST_FAILURES: usize = 3;

/// The reason why a test has no result if the run is stopped before its end.
const STOPPED: &str = "the run was interrupted";

/// The reason why a run failed. Violations by the store are results, not failures.
#[derive(Debug, Error)]
pub enum RunError {
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}; run fewer clients, or raise `ulimit -u`")]
    Thread(io::Error),
    /// A thread of the driver has panicked.
    #[error("a client's thread has panicked; the driver printed the reason")]
    Panicked,
    /// The store cannot be killed or started.
    #[error("{0}")]
    Outage(String),
    /// No connection was lost when the store was killed.
    #[error(
        "no client lost its connection when the store was killed; the command has to kill the \
         process that serves the target"
    )]
    NotKilled,
    /// No write was acknowledged before the store was killed.
    #[error(
        "no write was acknowledged before the store was to be killed, so nothing could be lost; \
         the store must accept writes, or raise the time that it has for them"
    )]
    NothingAcknowledged,
    /// The run was stopped.
    #[error("the run was interrupted")]
    Stopped,
}

/// The state of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'p> {
    /// The test that runs.
    pub test: &'p str,
    /// The number of tests that have ended.
    pub ended: usize,
    /// The number of all tests.
    pub tests: usize,
    /// The number of executed transactions of this test.
    pub executions: u64,
}

/// Runs `tests` one after another in the driver's table, which is created and destroyed.
///
/// [`Limit::Time`] is for all tests together: each has an equal part of the time that is left.
/// `progress` is called several times a second. When `stop` is set, the run ends early, and the
/// report has the results until then.
///
/// An error in a test ends it with [`Verdict::Failed`], and the other tests run. After
/// [`MOST_FAILURES`] failed tests in sequence, the others are [`Verdict::NotExercised`].
///
/// # Errors
/// If the table cannot be created.
pub fn run(
    driver: &Arc<dyn Driver>,
    tests: &[Test],
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, RunError> {
    run_with_outages(driver, tests, options, None, stop, progress)
}

/// Runs tests as [`run`] does, and kills the store during each of them.
///
/// Instances continue during and after an outage. The outcomes of interrupted commits are unknown;
/// assertions are evaluated after the recovery, when each object of an interrupted instance has to
/// be writable within [`Options::patience`].
///
/// # Errors
/// Returns the errors of [`run`].
pub fn run_with_outages(
    driver: &Arc<dyn Driver>,
    tests: &[Test],
    options: &Options,
    outages: Option<Outages<'_>>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, RunError> {
    let runner = Runner {
        driver,
        options,
        outages,
        asserts: true,
        keys: Arc::default(),
        stop,
        progress,
    };
    runner.run_in_table(tests)
}

/// Executes the transactions of tests as [`run`] does, without assertions and without crashes. No
/// test has a result; the time that they take shows the cost of assertions.
///
/// # Errors
/// Returns the errors of [`run`].
pub fn run_without_assertions(
    driver: &Arc<dyn Driver>,
    tests: &[Test],
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, RunError> {
    let options = &Options {
        crashes: false,
        ..options.clone()
    };
    let runner = Runner {
        driver,
        options,
        outages: None,
        asserts: false,
        keys: Arc::default(),
        stop,
        progress,
    };
    runner.run_in_table(tests)
}

/// Returns the reason why a store cannot run a test, if there is one.
pub fn not_applicable(test: &Test, capabilities: Capabilities) -> Option<&'static str> {
    let has = |wanted: fn(&Step) -> bool| {
        { test.transactions.iter() }.any(|transaction| transaction.steps.iter().any(wanted))
    };
    let inserts = |it: &Step| matches!(it, Step::Insert { .. } | Step::Delete { .. });
    if has(inserts) && !capabilities.insert_delete {
        Some("the store or its driver cannot insert and delete objects")
    } else if has(|it| matches!(it, Step::Count { .. })) && !capabilities.count {
        Some("the store or its driver cannot count objects in a range")
    } else if has(|it| matches!(it, Step::Count { .. })) && test.objects.len() as u64 > keys::BLOCK
    {
        Some("the runner counts at most 64 objects")
    } else if has(|it| matches!(it, Step::Abort)) && !capabilities.abort {
        Some("the store or its driver cannot abort a transaction for its user")
    } else {
        None
    }
}

struct Runner<'r, 'p> {
    driver: &'r Arc<dyn Driver>,
    options: &'r Options,
    outages: Option<Outages<'r>>,
    asserts: bool,
    keys: Arc<AtomicU64>,
    stop: &'r AtomicBool,
    progress: &'r mut (dyn FnMut(Progress<'_>) + 'p),
}

impl Runner<'_, '_> {
    /// Runs the tests in the driver's table, which is created and destroyed.
    fn run_in_table(mut self, tests: &[Test]) -> Result<Report, RunError> {
        self.driver.create()?;
        let mut report = self.run(tests);
        // Threads that wait for a blocked store still use the table.
        let is_blocked = report.blocked().count() > 0;
        report.left = match is_blocked {
            true => Some("the store is blocked, and threads may still use the table".into()),
            false => self.driver.destroy().err().map(|it| it.to_string()),
        };
        Ok(report)
    }

    fn run(&mut self, tests: &[Test]) -> Report {
        let begin = Instant::now();
        let capabilities = self.driver.capabilities();
        let mut reports: Vec<TestReport> = Vec::new();
        let mut blocked: Option<String> = None;
        let mut failures = 0;
        for (at, test) in tests.iter().enumerate() {
            let report = if let Some(why) = not_applicable(test, capabilities) {
                TestReport::not_run(test, Verdict::NotApplicable(why.into()))
            } else if let Some(why) = &blocked {
                TestReport::not_run(test, Verdict::NotExercised(why.clone()))
            } else if self.is_stopped() {
                TestReport::not_run(test, Verdict::NotExercised(STOPPED.into()))
            } else {
                let left = tests[at..].iter();
                let left = left.filter(|it| not_applicable(it, capabilities).is_none());
                let options = Options {
                    limit: self.share(begin.elapsed(), left.count(), tests.len()),
                    ..self.options.clone()
                };
                self.run_test(test, &options, (at, tests.len()))
            };
            match &report.verdict {
                Verdict::Blocked(_) => {
                    blocked = Some(format!("the store blocked during the test {}", test.name));
                }
                Verdict::Failed(_) => {
                    failures += 1;
                    if failures == MOST_FAILURES {
                        blocked = Some(format!("{failures} tests in sequence have failed"));
                    }
                }
                Verdict::NotApplicable(_) => {}
                _ => failures = 0,
            }
            reports.push(report);
        }
        Report {
            seed: self.options.seed,
            crashes: self.options.crashes,
            tests: reports,
            left: None,
            is_stopped: self.is_stopped(),
        }
    }

    /// Returns the limit of the next test, if `left` tests have not ended.
    fn share(&self, elapsed: Duration, left: usize, tests: usize) -> Limit {
        match self.options.limit {
            Limit::Instances(instances) => Limit::Instances(instances),
            Limit::Time(all) => {
                let fair = all.saturating_sub(elapsed) / left.max(1) as u32;
                // If tests needed more time than their part, each of the others still has a quarter
                // of its part.
                Limit::Time(fair.max(all / (4 * tests.max(1) as u32)))
            }
        }
    }

    fn run_test(
        &mut self,
        test: &Test,
        options: &Options,
        (ended, tests): (usize, usize),
    ) -> TestReport {
        let kills = self.outages.map_or(0, |it| it.each);
        let mut context = Context::new(self.driver, test, options, &self.keys, kills);
        context.asserts = self.asserts;
        let context = Arc::new(context);
        let threads = match start(&context) {
            Ok(threads) => threads,
            Err(error) => {
                context.fail(&error);
                return context.report();
            }
        };
        // The store runs again when the scope ends.
        thread::scope(|scope| {
            if let Some(outages) = self.outages {
                let context = &context;
                let kill = move || {
                    if let Err(error) = outages.run(context) {
                        context.fail(&error);
                    }
                };
                if let Err(error) = thread::Builder::new().spawn_scoped(scope, kill) {
                    context.fail(&RunError::Thread(error));
                }
            }
            self.wait(&context, threads, (ended, tests));
            // Ends the kills.
            context.stop();
        });
        let mut report = context.report();
        if report.verdict == Verdict::Passed && self.is_stopped() {
            report.verdict = Verdict::NotExercised(STOPPED.into());
        }
        report
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for the end of the threads of a test.
    fn wait(
        &mut self,
        context: &Context,
        mut threads: Vec<JoinHandle<Result<(), RunError>>>,
        (ended, tests): (usize, usize),
    ) {
        let patience = context.options.patience;
        let mut last_answer = (context.answers(), Instant::now());
        while !threads.is_empty() {
            thread::sleep(Duration::from_millis(5));
            if self.is_stopped() {
                context.stop();
            }
            let (over, running) = threads.into_iter().partition(JoinHandle::is_finished);
            threads = running;
            for thread in over {
                if let Err(error) = join(thread) {
                    context.fail(&error);
                }
            }
            let answers = context.answers();
            if answers != last_answer.0 {
                last_answer = (answers, Instant::now());
            } else if last_answer.1.elapsed() > patience * PATIENCES {
                // The threads are abandoned: they wait for the store.
                context.block(format!(
                    "the store did not answer for {:?}",
                    patience * PATIENCES
                ));
                break;
            }
            (self.progress)(Progress {
                test: &context.test.name,
                ended,
                tests,
                executions: context.executions(),
            });
        }
    }
}

fn join(thread: JoinHandle<Result<(), RunError>>) -> Result<(), RunError> {
    thread.join().unwrap_or(Err(RunError::Panicked))
}

/// Starts the threads of a test.
fn start(context: &Arc<Context>) -> Result<Vec<JoinHandle<Result<(), RunError>>>, RunError> {
    let spawn = |client: Option<usize>| {
        let shared = Arc::clone(context);
        let run = move || match (&shared.test.assertion, client) {
            (Assertion::Always(condition), _) => shared::run(&shared, condition),
            (Assertion::Never(condition), client) => {
                separate::run(&shared, condition, client.unwrap_or_default())
            }
        };
        thread::Builder::new().spawn(run).map_err(RunError::Thread)
    };
    let threads: Vec<_> = match context.test.assertion {
        Assertion::Always(_) => vec![spawn(None)],
        Assertion::Never(_) => (0..context.options.clients)
            .map(|it| spawn(Some(it)))
            .collect(),
    };
    let threads: Result<Vec<_>, _> = threads.into_iter().collect();
    if threads.is_err() {
        context.stop();
    }
    threads
}
