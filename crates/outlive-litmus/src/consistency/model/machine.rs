//! One state of a model, and its next states.

use super::Rules;
use crate::test::{Assertion, Expression, Local, Step, Test};

/// A value of an object; `None` if it is absent.
type Value = Option<i64>;

/// A test with the number of its concurrent instances, under the rules of a model.
pub(super) struct Machine<'t> {
    pub(super) test: &'t Test,
    pub(super) instances: usize,
    pub(super) rules: Rules,
}

/// The state of a model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// The values in the store. If writes are in place, running transactions can have written them.
    pub(super) current: Vec<Value>,
    /// The values from the beginning on: one list for each commit, or for each write in place.
    /// Models that read only current values keep the first list only.
    past: Vec<Vec<Value>>,
    /// The number of commits before this state.
    commits: usize,
    /// For each object, the number of the last commit that wrote it.
    stamps: Vec<usize>,
    pub(super) running: Vec<Progress>,
}

/// The progress of a transaction of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Progress {
    pub(super) status: Status,
    /// The next step.
    step: usize,
    /// The values of reads and counts so far.
    pub(super) locals: Vec<Value>,
    /// The writes. In place: objects with the values before them, oldest first. Otherwise: objects
    /// with their values from the commit on.
    writes: Vec<(usize, Value)>,
    /// The objects that it read under a lock, one bit each.
    read_locks: u64,
    /// The number of commits that its snapshot holds.
    snapshot: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Status {
    Waiting,
    Running,
    Committed,
    Aborted,
}

/// The next states of a transaction.
pub(super) enum Next {
    /// It has ended, or must not begin yet.
    None,
    /// It waits for a lock.
    Blocked,
    /// It goes on to one of these.
    States(Vec<State>),
}

impl Machine<'_> {
    /// Returns the state before the first transaction.
    pub(super) fn initial(&self) -> State {
        let current: Vec<Value> = self.test.objects.iter().map(|it| it.initial).collect();
        let progress = |at: usize| Progress {
            status: Status::Waiting,
            step: 0,
            locals: vec![None; self.test.transactions[at].locals.len()],
            writes: Vec::new(),
            read_locks: 0,
            snapshot: 0,
        };
        let each = (0..self.instances).flat_map(|_| 0..self.test.transactions.len());
        State {
            past: vec![current.clone()],
            stamps: vec![0; current.len()],
            commits: 0,
            current,
            running: each.map(progress).collect(),
        }
    }

    /// Returns the next states in which transaction `at` has gone on by one step.
    pub(super) fn next(&self, state: &State, at: usize) -> Next {
        match state.running[at].status {
            Status::Committed | Status::Aborted => Next::None,
            Status::Waiting if !self.may_begin(state, at) => Next::None,
            Status::Waiting => {
                // Reads do not depend on the time of the begin, so it comes with the first step.
                let mut found = Vec::new();
                for begun in self.begun(state, at) {
                    match self.step(&begun, at) {
                        Next::States(states) => found.extend(states),
                        // A transaction that has to wait has not begun.
                        Next::Blocked | Next::None => return Next::Blocked,
                    }
                }
                Next::States(found)
            }
            Status::Running => self.step(state, at),
        }
    }

    /// Returns whether the transactions that must be acknowledged before this one have ended.
    fn may_begin(&self, state: &State, at: usize) -> bool {
        let size = self.test.transactions.len();
        let (instance, number) = (at / size, at % size);
        let has_ended = |it: usize| {
            let status = state.running[instance * size + it].status;
            matches!(status, Status::Committed | Status::Aborted)
        };
        let in_order = || {
            let before = self.test.order.iter().filter(|it| it.1 == number);
            before.clone().all(|it| has_ended(it.0))
        };
        let is_alone = || state.running.iter().all(|it| it.status != Status::Running);
        match self.rules {
            Rules::Serial { real_time: false } => is_alone(),
            Rules::Serial { real_time: true } => is_alone() && in_order(),
            _ => in_order(),
        }
    }

    /// Returns the states after the begin of a transaction: one for each snapshot that it can get.
    fn begun(&self, state: &State, at: usize) -> Vec<State> {
        let first = match self.rules {
            Rules::Snapshot { latest: false } => 0,
            _ => state.commits,
        };
        let begin = |snapshot: usize| {
            let mut state = state.clone();
            state.running[at].status = Status::Running;
            state.running[at].snapshot = snapshot;
            state
        };
        (first..=state.commits).map(begin).collect()
    }

    /// Returns the states after the next step of a running transaction.
    fn step(&self, state: &State, at: usize) -> Next {
        let steps = &self.test.transactions[at % self.test.transactions.len()].steps;
        let Some(step) = steps.get(state.running[at].step) else {
            return Next::States(vec![self.committed(state, at)]);
        };
        let mut next = state.clone();
        next.running[at].step += 1;
        match step {
            Step::Read { object, into } => {
                let has_locks = self.rules == Rules::ItemLocks;
                if has_locks && self.is_write_locked(state, at, *object) {
                    return Next::Blocked;
                }
                if has_locks {
                    next.running[at].read_locks |= 1 << object;
                }
                let keep = |value: Value| {
                    let mut next = next.clone();
                    next.running[at].locals[into.0] = value;
                    next
                };
                let values = self.readable(state, at, *object);
                Next::States(values.into_iter().map(keep).collect())
            }
            Step::Count { into } => {
                let number = self.count(state, at);
                next.running[at].locals[into.0] = Some(number);
                Next::States(vec![next])
            }
            Step::Write { object, value } | Step::Insert { object, value } => {
                let is_insertion = matches!(step, Step::Insert { .. });
                let value = evaluate(value, &state.running[at]);
                self.write(next, state, at, *object, value.map(Some), is_insertion)
            }
            Step::Delete { object } => self.write(next, state, at, *object, Some(None), false),
            Step::Abort => Next::States(vec![self.aborted(&next, at)]),
        }
    }

    /// Returns the values that a read of `object` can return.
    fn readable(&self, state: &State, at: usize, object: usize) -> Vec<Value> {
        match self.rules {
            Rules::Anything | Rules::Committed { stale: true }
                if self.own(state, at, object).is_none() =>
            {
                let mut values: Vec<Value> = state.past.iter().map(|it| it[object]).collect();
                values.sort_unstable();
                values.dedup();
                values
            }
            _ => vec![self.seen(state, at, object)],
        }
    }

    /// Returns the value of an object that the transaction has written, unless writes are in place.
    fn own(&self, state: &State, at: usize, object: usize) -> Option<Value> {
        let writes = &state.running[at].writes;
        let own = || {
            { writes.iter().rev() }
                .find(|it| it.0 == object)
                .map(|it| it.1)
        };
        (!self.is_in_place()).then(own).flatten()
    }

    /// Returns the value of an object that the transaction sees or overwrites.
    fn seen(&self, state: &State, at: usize, object: usize) -> Value {
        self.own(state, at, object)
            .unwrap_or_else(|| match self.rules {
                Rules::Snapshot { .. } => state.past[state.running[at].snapshot][object],
                _ => state.current[object],
            })
    }

    fn count(&self, state: &State, at: usize) -> i64 {
        let is_present = |&it: &usize| self.seen(state, at, it).is_some();
        (0..state.current.len()).filter(is_present).count() as i64
    }

    fn is_in_place(&self) -> bool {
        matches!(
            self.rules,
            Rules::Anything | Rules::Unprotected | Rules::WriteLocks
        )
    }

    fn is_write_locked(&self, state: &State, at: usize, object: usize) -> bool {
        let holds = |it: &Progress| {
            it.status == Status::Running && it.writes.iter().any(|it| it.0 == object)
        };
        let others = state.running.iter().enumerate().filter(|it| it.0 != at);
        others.clone().any(|it| holds(it.1))
    }

    fn is_read_locked(&self, state: &State, at: usize, object: usize) -> bool {
        let holds =
            |it: &Progress| it.status == Status::Running && it.read_locks >> object & 1 == 1;
        let others = state.running.iter().enumerate().filter(|it| it.0 != at);
        others.clone().any(|it| holds(it.1))
    }

    /// Returns the state `next` of transaction `at` with a write. No `value` means that it is
    /// computed from an absent one.
    fn write(
        &self,
        mut next: State,
        state: &State,
        at: usize,
        object: usize,
        value: Option<Value>,
        is_insertion: bool,
    ) -> Next {
        let has_locks = !matches!(
            self.rules,
            Rules::Anything | Rules::Unprotected | Rules::Snapshot { .. } | Rules::Serial { .. }
        );
        let is_locked =
            self.is_write_locked(state, at, object) || self.is_read_locked(state, at, object);
        if has_locks && is_locked {
            return Next::Blocked;
        }
        let before = self.seen(state, at, object);
        let (Some(value), true) = (value, before.is_none() == is_insertion) else {
            return Next::States(vec![self.aborted(&next, at)]);
        };
        if !self.is_in_place() {
            next.running[at].writes.push((object, value));
            return Next::States(vec![next]);
        }
        let mut newest = next.clone();
        newest.running[at].writes.push((object, before));
        newest.current[object] = value;
        if self.rules != Rules::Anything {
            return Next::States(vec![newest]);
        }
        let values = newest.current.clone();
        Next::States(
            { [newest, next].into_iter() }
                .map(|mut state| {
                    state.past.push(values.clone());
                    state
                })
                .collect(),
        )
    }

    /// Returns the state in which the transaction has aborted.
    pub(super) fn aborted(&self, state: &State, at: usize) -> State {
        let mut next = state.clone();
        let writes = std::mem::take(&mut next.running[at].writes);
        if self.is_in_place() {
            for (object, before) in writes.into_iter().rev() {
                next.current[object] = before;
            }
        }
        self.end(&mut next.running[at], Status::Aborted);
        next
    }

    /// Ends a transaction, and forgets the values that have no effect from here on: an assertion on
    /// the objects alone depends neither on reads nor on the outcomes of transactions.
    fn end(&self, progress: &mut Progress, status: Status) {
        progress.status = status;
        progress.step = 0;
        progress.snapshot = 0;
        progress.read_locks = 0;
        if matches!(self.test.assertion, Assertion::Always(_)) {
            progress.status = Status::Committed;
            progress.locals.clear();
        }
    }

    /// Returns the state with the instances in a fixed order: they are the same transactions.
    pub(super) fn canonical(&self, mut state: State) -> State {
        let size = self.test.transactions.len();
        let mut instances: Vec<Vec<Progress>> = state
            .running
            .chunks(size)
            .map(<[Progress]>::to_vec)
            .collect();
        instances.sort();
        state.running = instances.concat();
        state
    }

    /// Returns the state after the commit of a transaction, or after its abort for a conflict.
    fn committed(&self, state: &State, at: usize) -> State {
        let progress = &state.running[at];
        let is_new = |it: &(usize, Value)| state.stamps[it.0] > progress.snapshot;
        if matches!(self.rules, Rules::Snapshot { .. }) && progress.writes.iter().any(is_new) {
            return self.aborted(state, at);
        }
        let mut next = state.clone();
        let writes = std::mem::take(&mut next.running[at].writes);
        self.end(&mut next.running[at], Status::Committed);
        let keeps_past = matches!(
            self.rules,
            Rules::Snapshot { .. } | Rules::Committed { stale: true }
        );
        if !self.is_in_place() {
            next.commits += usize::from(!writes.is_empty() && keeps_past);
            for (object, value) in writes {
                next.current[object] = value;
                next.stamps[object] = next.commits;
            }
            if next.commits > state.commits {
                next.past.push(next.current.clone());
            }
        }
        next
    }
}

impl State {
    /// Returns whether all transactions have ended.
    pub(super) fn is_final(&self) -> bool {
        let has_ended = |it: &Progress| matches!(it.status, Status::Committed | Status::Aborted);
        self.running.iter().all(has_ended)
    }
}

fn evaluate(expression: &Expression<Local>, progress: &Progress) -> Option<i64> {
    expression.evaluate(&|local: Local| progress.locals[local.0])
}
