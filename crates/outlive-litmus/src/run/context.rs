//! The data that all threads of a test share.

use super::RunError;
use super::client::Client;
use super::conflicts::Conflicts;
use super::crashes::Crashes;
use super::evaluation;
use super::execution::{Execution, Outcome};
use super::exercise;
use super::keys::Keys;
use super::options::{Limit, Options};
use super::plan;
use super::report::{Executed, Kind, TestReport, Verdict, Violation};
use super::separate::SETTLES;
use super::shared::is_lost;
use super::state::{self, State};
use crate::driver::{Capabilities, Driver, DriverError};
use crate::test::{Step, Test};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The factor by which a test may exceed its limit, if some statement was not yet followed by a
/// crash.
const EXTENSION: u32 = 10;
/// The minimum of the extended time limit, for tests with a short limit.
const EXTENDED: Duration = Duration::from_secs(10);
/// The factor by which a test may exceed its limit, if too few instances were exercised.
const EXTENSION_TO_EXERCISE: u32 = 3;

/// The data that all threads of a test share.
pub(super) struct Context {
    pub driver: Arc<dyn Driver>,
    pub capabilities: Capabilities,
    pub test: Arc<Test>,
    pub options: Options,
    pub conflicts: Conflicts,
    /// Whether assertions are evaluated.
    pub asserts: bool,
    /// The number of the next free block of keys.
    pub keys: Arc<AtomicU64>,
    begin: Instant,
    stop: AtomicBool,
    /// Counts answers of the store.
    answers: AtomicU64,
    /// Counts connections that clients have lost or could not open, and failed settings of objects.
    pub lost: Arc<AtomicU64>,
    /// The number of kills of the store that are planned.
    planned_kills: u64,
    tally: Mutex<Tally>,
}

/// The counters and findings of a test.
struct Tally {
    executions: u64,
    instances: u64,
    outcomes: [u64; Outcome::ALL.len()],
    overlaps: u64,
    conflicts: u64,
    assertions: u64,
    undecided: u64,
    /// The number of instances on objects of their own, or of rounds on shared objects.
    trials: u64,
    /// The number of trials that could have shown a violation.
    exercised: u64,
    crashes: Crashes,
    /// The number of kills of the store by which clients have lost their connections.
    kills: u64,
    violations: Vec<Violation>,
    blocked: Option<String>,
    failed: Option<String>,
}

impl Context {
    pub(super) fn new(
        driver: &Arc<dyn Driver>,
        test: &Test,
        options: &Options,
        keys: &Arc<AtomicU64>,
        planned_kills: u64,
    ) -> Self {
        Self {
            driver: Arc::clone(driver),
            capabilities: driver.capabilities(),
            test: Arc::new(test.clone()),
            conflicts: Conflicts::of(test),
            asserts: true,
            options: options.clone(),
            keys: Arc::clone(keys),
            begin: Instant::now(),
            stop: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            lost: Arc::default(),
            planned_kills,
            tally: Mutex::new(Tally {
                executions: 0,
                instances: 0,
                outcomes: [0; Outcome::ALL.len()],
                overlaps: 0,
                conflicts: 0,
                assertions: 0,
                undecided: 0,
                trials: 0,
                exercised: 0,
                crashes: Crashes::new(test, driver.kills_in_commits()),
                kills: 0,
                violations: Vec::new(),
                blocked: None,
                failed: None,
            }),
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the store has answered.
    pub(super) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of the store's answers.
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Records the end of an execution: an answer, or a lost connection.
    pub(super) fn executed_one(&self, execution: &Execution) {
        self.answered();
        if is_lost(execution.outcome) && execution.crashed.is_none() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a client.
    pub(super) fn client(&self) -> Client {
        Client::new(&self.driver, self.options.patience, &self.lost)
    }

    /// Returns the number of connections that clients have lost or could not open.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts a kill of the store.
    pub(super) fn count_kill(&self) {
        self.tally().kills += 1;
    }

    /// Returns whether the objects of these executions have to be writable again: a client has
    /// crashed, or lost its connection, also by a fault that this run did not inject.
    pub(super) fn have_crashed(&self, executions: &[Execution]) -> bool {
        let is_hit = |it: &Execution| it.crashed.is_some() || is_lost(it.outcome);
        executions.iter().any(is_hit)
    }

    /// Returns whether an assertion that fails is evaluated again. If it holds at a later time, the
    /// first read was stale; otherwise the state is wrong. During the recovery from a kill of the
    /// store, a read can be stale for longer.
    pub(super) fn settles(&self, begin: Instant) -> bool {
        let longest = match self.planned_kills {
            0 => SETTLES,
            _ => SETTLES.max(self.options.patience),
        };
        begin.elapsed() < longest
    }

    /// Returns whether an object has the value of a transaction without effect.
    ///
    /// If the store cannot abort, a lost connection undoes no write: the one without an answer may
    /// have taken effect.
    pub(super) fn shows_aborted_write(&self, state: &State, executions: &[Execution]) -> bool {
        let undoes_lost = self.capabilities.abort;
        evaluation::shows_aborted_write(&self.test.objects, state, executions, undoes_lost)
    }

    /// Returns whether the test was ended.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the test.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    pub(super) fn executions(&self) -> u64 {
        self.tally().executions
    }

    /// Returns whether the test must end: it was stopped, or has reached its limit.
    pub(super) fn is_over(&self) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            return true;
        }
        let tally = self.tally();
        let lacks_crashes = self.options.crashes && !tally.crashes.are_complete()
            || tally.kills < self.planned_kills;
        let is_exercised = tally.exercised >= exercise::required(tally.trials);
        let (factor, least) = match (lacks_crashes, is_exercised) {
            (true, _) => (EXTENSION, EXTENDED),
            (_, false) => (EXTENSION_TO_EXERCISE, Duration::ZERO),
            _ => (1, Duration::ZERO),
        };
        match self.options.limit {
            Limit::Instances(limit) => tally.instances >= limit.saturating_mul(factor.into()),
            Limit::Time(limit) => self.elapsed() >= least.max(limit * factor),
        }
    }

    /// Returns the keys of the first one of `instances` instances; they were never used before.
    pub(super) fn new_keys(&self, instances: usize) -> Keys {
        let objects = self.test.objects.len();
        let counts = |it: &Step| matches!(it, Step::Count { .. });
        let counts = { self.test.transactions.iter() }.any(|it| it.steps.iter().any(counts));
        let blocks = instances as u64 * Keys::blocks(objects, counts);
        let first = self.keys.fetch_add(blocks, Ordering::Relaxed);
        Keys::new(first, objects, counts)
    }

    /// Sets the objects of `instances` instances, of which the first has these keys, to their
    /// initial values.
    pub(super) fn reset(&self, keys: Keys, instances: usize) -> Result<(), DriverError> {
        let initial = self.test.objects.iter().map(|it| it.initial);
        let of = |at| keys.instance(at).all().zip(initial.clone());
        let objects: Vec<_> = (0..instances).flat_map(of).collect();
        let begin = Instant::now();
        loop {
            match self.driver.set(&objects) {
                // The store is being recovered.
                Err(_) if self.planned_kills > 0 && begin.elapsed() < self.options.patience => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        self.answered();
        Ok(())
    }

    /// Adds executions on the same objects to the numbers.
    pub(super) fn count(&self, executions: &[Execution]) {
        let mut tally = self.tally();
        for execution in executions {
            tally.executions += 1;
            tally.outcomes[execution.outcome as usize] += 1;
            tally.crashes.count(execution);
        }
        tally.overlaps += with_another(executions, |a, b| a.overlaps(b));
        tally.conflicts += with_another(executions, |a, b| self.conflicts.met(a, b));
    }

    /// Adds a trial with this number of instances, and whether it could have shown a violation.
    pub(super) fn count_trial(&self, instances: u64, is_exercised: bool) {
        let mut tally = self.tally();
        tally.instances += instances;
        tally.trials += 1;
        tally.exercised += u64::from(is_exercised);
    }

    /// Adds evaluations of the assertion.
    pub(super) fn count_assertions(&self, assertions: u64) {
        self.tally().assertions += assertions;
    }

    /// Counts an instance whose assertion names too many unknown outcomes.
    pub(super) fn count_undecided(&self) {
        self.tally().undecided += 1;
    }

    /// Ends the test because the store is blocked.
    pub(super) fn block(&self, reason: String) {
        self.tally().blocked.get_or_insert(reason);
        self.stop();
    }

    /// Ends the test because of an error.
    pub(super) fn fail(&self, error: &RunError) {
        self.tally().failed.get_or_insert(error.to_string());
        self.stop();
    }

    /// Chooses the crash of a round or instance, if it has one: one of `clients`, a transaction and
    /// a position in it. First the positions are chosen in turn, twice each, because a transaction
    /// that the store aborts does not reach its crash; then alternately in turn and at random.
    pub(super) fn crash(&self, number: u64, clients: usize) -> Option<(usize, usize, usize)> {
        // Every second one has no crash, so it can show outcomes that need all transactions.
        if !self.options.crashes || number.is_multiple_of(2) {
            return None;
        }
        let positions = Crashes::new(&self.test, self.driver.kills_in_commits()).positions();
        let turn = (number / 2) as usize;
        let mut rng = plan::generator(self.options.seed, &self.test.name, usize::MAX, number);
        let at = if turn < 2 * positions.len() {
            turn % positions.len()
        } else if turn.is_multiple_of(2) {
            turn / 2 % positions.len()
        } else {
            rng.usize(0..positions.len())
        };
        let (transaction, position) = positions[at];
        Some((rng.usize(0..clients), transaction, position))
    }

    /// Asserts after the crash of a client or of the store that each object can be written.
    pub(super) fn assert_alive(&self, client: &mut Client, keys: Keys) -> Result<(), DriverError> {
        let can_insert = self.capabilities.insert_delete;
        let patience = self.options.patience;
        if let Some(object) = state::write_all(client, keys, can_insert, patience)? {
            self.block(format!(
                "{} cannot be written within {patience:?} after a crash",
                self.test.objects[object].name
            ));
        }
        self.answered();
        Ok(())
    }

    /// Reports a violation, the first one of its kind. A wrong state ends the test.
    pub(super) fn violate(&self, kind: Kind, state: &State, executions: &[Execution]) {
        let mut tally = self.tally();
        if tally.violations.iter().all(|it| it.kind != kind) {
            let names = self.test.objects.iter().map(|it| it.name.clone());
            let violation = Violation {
                kind,
                state: names.zip(state.iter().copied()).collect(),
                transactions: self.executed(executions),
                after: self.elapsed(),
                executions: tally.executions,
            };
            tally.violations.push(violation);
        }
        if kind == Kind::State {
            self.stop();
        }
    }

    fn executed(&self, executions: &[Execution]) -> Vec<Executed> {
        let Some(first) = executions.iter().map(|it| it.begin).min() else {
            return Vec::new();
        };
        let one = |it: &Execution| {
            let transaction = &self.test.transactions[it.transaction];
            let names = transaction.locals.iter().cloned();
            Executed {
                transaction: transaction.name.clone(),
                outcome: it.outcome,
                values: names.zip(it.values.iter().copied()).collect(),
                crashed_after: it.crashed,
                begin: it.begin - first,
                end: it.end - first,
            }
        };
        let mut all: Vec<Executed> = executions.iter().map(one).collect();
        all.sort_by_key(|it| it.begin);
        all
    }

    /// Returns the results.
    pub(super) fn report(&self) -> TestReport {
        let tally = self.tally();
        let crashes = match self.options.crashes {
            true => tally.crashes.report(&self.test),
            false => Vec::new(),
        };
        let missing = crashes.iter().find(|it| it.crashes == 0);
        let required = exercise::required(tally.trials);
        let verdict = match (&tally.blocked, missing) {
            (Some(reason), _) => Verdict::Blocked(reason.clone()),
            _ if tally.failed.is_some() => {
                Verdict::Failed(tally.failed.clone().unwrap_or_default())
            }
            _ if !tally.violations.is_empty() => Verdict::Violated,
            _ if !self.asserts => Verdict::NotExercised("no assertion was evaluated".into()),
            _ if tally.exercised < required => Verdict::NotExercised(format!(
                "conflicting transactions were concurrent, and one committed, in {} of {} trials; \
                 {required} are required",
                tally.exercised, tally.trials
            )),
            _ if tally.kills < self.planned_kills => Verdict::NotExercised(format!(
                "the store was killed {} times of {}",
                tally.kills, self.planned_kills
            )),
            (_, Some(it)) => Verdict::NotExercised(format!(
                "no client crashed after `{}` of {}",
                it.after, it.transaction
            )),
            (_, None) => Verdict::Passed,
        };
        let mut report = TestReport::not_run(&self.test, verdict);
        report.executions = tally.executions;
        report.instances = tally.instances;
        for (outcome, count) in &mut report.outcomes {
            *count = tally.outcomes[*outcome as usize];
        }
        report.overlaps = tally.overlaps;
        report.conflicts = tally.conflicts;
        (report.trials, report.exercised) = (tally.trials, tally.exercised);
        report.assertions = tally.assertions;
        report.undecided = tally.undecided;
        report.crashes = crashes;
        report.kills = tally.kills;
        report.planned_kills = self.planned_kills;
        report.violations = tally.violations.clone();
        report.elapsed = self.elapsed();
        report
    }
}

/// Returns the number of executions for which another one exists so that `both` is true.
fn with_another(executions: &[Execution], both: impl Fn(&Execution, &Execution) -> bool) -> u64 {
    let has_another = |(at, one): &(usize, &Execution)| {
        let mut others = executions.iter().enumerate();
        others.any(|(other, another)| other != *at && both(one, another))
    };
    executions.iter().enumerate().filter(has_another).count() as u64
}
