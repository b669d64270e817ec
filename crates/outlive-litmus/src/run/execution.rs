//! The execution of a transaction, statement by statement.

use super::client::Client;
use super::crashes::within_commit;
use super::keys::Keys;
use super::plan::Plan;
use crate::driver::{Connection, DriverError, StepError};
use crate::test::{Expression, Local, Step, Test};
use fastrand::Rng;
use std::fmt;
use std::time::{Duration, Instant};

/// The logarithm of the longest time from the request of a commit to the kill of its client, in
/// microseconds. The logarithm is chosen at random, because stores need from microseconds to tens
/// of milliseconds for a commit.
const LONGEST_TO_KILL: u32 = 14;

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its commit was acknowledged.
    Committed,
    /// The store aborted it.
    Aborted,
    /// Its user aborted it.
    AbortedByUser,
    /// An object was absent or existed already, or a value was computed from an absent one: it has
    /// no effect.
    Refused,
    /// The client crashed before the commit: it has no effect.
    Crashed,
    /// The connection was lost before the commit: it has no effect.
    Lost,
    /// The connection was lost, or the client killed, during the commit, so it is unknown whether
    /// it has happened.
    Unknown,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 7] = [
        Self::Committed,
        Self::Aborted,
        Self::AbortedByUser,
        Self::Refused,
        Self::Crashed,
        Self::Lost,
        Self::Unknown,
    ];

    /// Returns the name of the outcome in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Aborted => "aborted",
            Self::AbortedByUser => "aborted by its user",
            Self::Refused => "refused",
            Self::Crashed => "crashed",
            Self::Lost => "lost its connection",
            Self::Unknown => "unknown",
        }
    }

    /// Returns whether the transaction committed, `None` if that is unknown.
    pub fn is_committed(self) -> Option<bool> {
        match self {
            Self::Unknown => None,
            _ => Some(self == Self::Committed),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An executed transaction.
#[derive(Clone, Debug)]
pub(super) struct Execution {
    pub transaction: usize,
    pub outcome: Outcome,
    /// The values of its reads, by [`Local`]; absent if it ended before them.
    pub values: Vec<Option<i64>>,
    /// The objects and values that it has requested to write; `None` is a deletion.
    pub writes: Vec<(usize, Option<i64>)>,
    /// The position at which the client crashed.
    pub crashed: Option<usize>,
    pub begin: Instant,
    pub end: Instant,
}

impl Execution {
    /// Returns whether the two executions were concurrent, as the clients saw them.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.begin < other.end && other.begin < self.end
    }
}

/// The reason why a transaction ended before its commit.
enum End {
    Step(StepError),
    /// A value was computed from an absent one.
    Absent,
}

impl From<StepError> for End {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

/// Executes a transaction of `test` on the objects with these keys.
pub(super) fn execute(
    client: &mut Client,
    test: &Test,
    keys: Keys,
    plan: &Plan,
) -> Result<Execution, DriverError> {
    let mut rng = Rng::with_seed(plan.seed);
    let mut values = vec![None; test.transactions[plan.transaction].locals.len()];
    client.connection()?;
    plan.pace.wait(&mut rng);
    let begin = Instant::now();
    let connection = client.connection()?;
    let mut run = Running {
        connection,
        test,
        keys,
        plan,
        values: &mut values,
        writes: Vec::new(),
        crashed: None,
    };
    let (outcome, is_cut) = run.run(&mut rng);
    let (crashed, writes) = (run.crashed, run.writes);
    if is_cut {
        client.cut();
    }
    Ok(Execution {
        transaction: plan.transaction,
        outcome,
        values,
        writes,
        crashed,
        begin,
        end: Instant::now(),
    })
}

/// A transaction that runs.
struct Running<'r> {
    connection: &'r mut dyn Connection,
    test: &'r Test,
    keys: Keys,
    plan: &'r Plan,
    values: &'r mut [Option<i64>],
    writes: Vec<(usize, Option<i64>)>,
    crashed: Option<usize>,
}

impl Running<'_> {
    /// Executes all statements. Returns the outcome, and whether the connection has to be cut.
    fn run(&mut self, rng: &mut Rng) -> (Outcome, bool) {
        let test = self.test;
        let steps = &test.transactions[self.plan.transaction].steps;
        if let Err(error) = self.connection.begin() {
            return Self::failed(&error);
        }
        if self.crashes_after(0) {
            return (Outcome::Crashed, true);
        }
        for (at, step) in steps.iter().enumerate() {
            self.plan.pace.wait(rng);
            match self.perform(step) {
                Ok(()) => {}
                Err(End::Step(error)) => return Self::failed(&error),
                // Not every store can abort; a dropped connection has the same effect.
                Err(End::Absent) => return (Outcome::Refused, true),
            }
            let crashes = self.crashes_after(at + 1);
            if *step == Step::Abort {
                return (Outcome::AbortedByUser, crashes);
            }
            if crashes {
                return (Outcome::Crashed, true);
            }
        }
        self.plan.pace.wait(rng);
        let within_commit = within_commit(test, self.plan.transaction);
        if self.plan.crash == Some(within_commit) {
            let longest = 1 << rng.u32(0..=LONGEST_TO_KILL);
            let delay = Duration::from_micros(rng.u64(0..longest));
            return match self.connection.commit_and_kill(delay) {
                None => {
                    self.crashed = Some(within_commit);
                    (Outcome::Unknown, true)
                }
                // The answer was faster, so the crash is one after the commit.
                Some(Ok(())) => {
                    self.crashed = Some(steps.len() + 1);
                    (Outcome::Committed, true)
                }
                Some(Err(StepError::Lost(_))) => (Outcome::Unknown, true),
                Some(Err(error)) => (Self::failed(&error).0, true),
            };
        }
        match self.connection.commit() {
            Ok(()) => (Outcome::Committed, self.crashes_after(steps.len() + 1)),
            Err(StepError::Lost(_)) => (Outcome::Unknown, true),
            Err(error) => Self::failed(&error),
        }
    }

    /// Returns the outcome of a transaction that such an error ended.
    fn failed(error: &StepError) -> (Outcome, bool) {
        match error {
            StepError::Aborted(_) => (Outcome::Aborted, false),
            StepError::Refused => (Outcome::Refused, false),
            StepError::Lost(_) => (Outcome::Lost, true),
        }
    }

    /// Returns whether the client crashes after this position, which it has reached.
    fn crashes_after(&mut self, position: usize) -> bool {
        let crashes = self.plan.crash == Some(position);
        if crashes {
            self.crashed = Some(position);
        }
        crashes
    }

    fn perform(&mut self, step: &Step) -> Result<(), End> {
        let keys = self.keys;
        match step {
            Step::Read { object, into } => {
                self.values[into.0] = self.connection.read(keys.key(*object))?;
            }
            Step::Count { into } => {
                self.values[into.0] = Some(self.connection.count(keys.range())? as i64);
            }
            Step::Write { object, value } => {
                let value = self.evaluate(value)?;
                self.writes.push((*object, Some(value)));
                self.connection.write(keys.key(*object), value)?;
            }
            Step::Insert { object, value } => {
                let value = self.evaluate(value)?;
                self.writes.push((*object, Some(value)));
                self.connection.insert(keys.key(*object), value)?;
            }
            Step::Delete { object } => {
                self.writes.push((*object, None));
                self.connection.delete(keys.key(*object))?;
            }
            Step::Abort => self.connection.abort()?,
        }
        Ok(())
    }

    fn evaluate(&self, value: &Expression<Local>) -> Result<i64, End> {
        value.evaluate(&|it| self.values[it.0]).ok_or(End::Absent)
    }
}
