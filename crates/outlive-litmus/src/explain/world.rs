//! The transactions of a violation with the values that they read and wrote.

use crate::consistency::Change;
use crate::run::{Executed, Kind, Outcome, Violation};
use crate::test::{Expression, Local, Step, Test};
use std::time::Duration;

/// The name of the transaction that read the state.
pub(super) const ASSERTION: &str = "assertion";

/// A read, count or write, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    Read {
        object: usize,
        value: Option<i64>,
    },
    Count {
        number: i64,
    },
    Write {
        object: usize,
        change: Change,
        value: Option<i64>,
    },
}

impl Action {
    /// Returns the value that a write gives to `of`.
    pub(super) fn written(&self, of: usize) -> Option<Option<i64>> {
        match self {
            Self::Write { object, value, .. } if *object == of => Some(*value),
            _ => None,
        }
    }
}

/// An execution of a transaction.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// The transaction of the test; `None` for the one of the assertion.
    pub transaction: Option<usize>,
    pub name: String,
    pub outcome: Outcome,
    /// All actions of a committed transaction; the writes that another one can have made.
    pub actions: Vec<Action>,
    pub begin: Duration,
    pub end: Duration,
}

impl Attempt {
    /// Returns whether it committed. An unknown commit is taken as one: a candidate leaves it out
    /// if it has not happened.
    pub(super) fn commits(&self) -> bool {
        matches!(self.outcome, Outcome::Committed | Outcome::Unknown)
    }

    /// Returns whether it ended before `other` began.
    pub(super) fn precedes(&self, other: &Self) -> bool {
        self.end <= other.begin && self.begin < other.end
    }

    /// Returns whether the executions differ in time only.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.transaction == other.transaction
            && self.outcome == other.outcome
            && self.actions == other.actions
    }
}

/// A test with the executions of a violation.
pub(super) struct World<'t> {
    pub test: &'t Test,
    /// The values before the first transaction.
    pub initial: Vec<Option<i64>>,
    pub attempts: Vec<Attempt>,
    /// The state that the transaction of the assertion read.
    pub state: Option<Vec<Option<i64>>>,
    pub kind: Kind,
}

impl<'t> World<'t> {
    pub(super) fn new(test: &'t Test, violation: &Violation) -> Self {
        let attempts = { violation.transactions.iter() }.filter_map(|it| attempt(test, it));
        let state: Vec<Option<i64>> = violation.state.iter().map(|it| it.1).collect();
        Self {
            test,
            initial: test.objects.iter().map(|it| it.initial).collect(),
            attempts: attempts.filter(|it| !it.actions.is_empty()).collect(),
            state: (state.len() == test.objects.len()).then_some(state),
            kind: violation.kind,
        }
    }

    /// Returns the transaction that read the state.
    pub(super) fn assertion(&self) -> Option<Attempt> {
        let read = |(object, value): (usize, &Option<i64>)| Action::Read {
            object,
            value: *value,
        };
        let state = self.state.as_ref()?;
        let last = self.attempts.iter().map(|it| it.end).max();
        // A concurrent assertion has no place in time: only its values are recorded.
        let (begin, end) = match self.kind {
            Kind::ConcurrentRead => (Duration::ZERO, Duration::MAX),
            _ => (last.unwrap_or_default(), Duration::MAX),
        };
        Some(Attempt {
            transaction: None,
            name: ASSERTION.into(),
            outcome: Outcome::Committed,
            actions: state.iter().enumerate().map(read).collect(),
            begin,
            end,
        })
    }
}

/// Returns an execution with its values; `None` if the test has no such transaction.
fn attempt(test: &Test, executed: &Executed) -> Option<Attempt> {
    let named = |it: &crate::test::Transaction| it.name == executed.transaction;
    let number = test.transactions.iter().position(named)?;
    let commits = matches!(executed.outcome, Outcome::Committed | Outcome::Unknown);
    let steps = &test.transactions[number].steps;
    let reached = match executed.crashed_after {
        Some(position) if !commits => position.min(steps.len()),
        _ => steps.len(),
    };
    let local = |it: Local| executed.values.get(it.0).and_then(|it| it.1);
    let mut actions = Vec::new();
    for step in &steps[..reached] {
        let number = |value: &Expression<Local>| value.evaluate(&local);
        let write = |object: usize, change, value| Action::Write {
            object,
            change,
            value,
        };
        let action = match step {
            Step::Read { object, into } => Action::Read {
                object: *object,
                value: local(*into),
            },
            Step::Count { into } => match local(*into) {
                Some(number) => Action::Count { number },
                None => break,
            },
            Step::Write { object, value } => match number(value) {
                Some(value) => write(*object, Change::Update, Some(value)),
                None => break,
            },
            Step::Insert { object, value } => match number(value) {
                Some(value) => write(*object, Change::Insert, Some(value)),
                None => break,
            },
            Step::Delete { object } => write(*object, Change::Delete, None),
            Step::Abort => break,
        };
        // Isolation is promised to transactions that commit: the reads of others prove nothing.
        if commits || matches!(action, Action::Write { .. }) {
            actions.push(action);
        }
    }
    Some(Attempt {
        transaction: Some(number),
        name: executed.transaction.clone(),
        outcome: executed.outcome,
        actions,
        begin: executed.begin,
        end: executed.end,
    })
}
