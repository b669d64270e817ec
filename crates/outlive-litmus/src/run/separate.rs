//! Tests with [`Assertion::Never`](crate::test::Assertion::Never): each instance has objects of its
//! own, and each of its transactions runs once, on a connection of its own.

use super::RunError;
use super::client::Client;
use super::context::Context;
use super::evaluation::{self, Occurrence};
use super::execution::{self, Execution, Outcome};
use super::keys::Keys;
use super::plan::{self, Pace, Plan};
use super::report::Kind;
use super::shared::{is_lost, received};
use super::state::{self, State};
use super::worker::Worker;
use crate::driver::DriverError;
use crate::test::{Condition, Seen, Test};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The number of instances whose objects are set at once.
const BATCH: usize = 16;
/// The time for which a failing assertion is evaluated again.
pub(super) const SETTLES: Duration = Duration::from_millis(500);

/// Runs one client until the test is over.
pub(super) fn run(
    context: &Arc<Context>,
    condition: &Condition<Seen>,
    client: usize,
) -> Result<(), RunError> {
    let mut instances = Instances::start(context, condition, client)?;
    let mut keys = context.new_keys(BATCH);
    for batch in 0.. {
        if context.is_over() {
            break;
        }
        context.reset(keys, BATCH)?;
        let mut has_lost = false;
        for at in 0..BATCH {
            if context.is_over() {
                break;
            }
            let number = (batch * BATCH + at) as u64;
            let executions = instances.run(keys.instance(at), number)?;
            has_lost |= executions.iter().any(|it| is_lost(it.outcome));
        }
        // A commit whose answer was lost could still be running.
        if has_lost {
            keys = context.new_keys(BATCH);
        }
    }
    Ok(())
}

/// A client of instances: a connection for each transaction, and one for the state after them.
struct Instances<'i> {
    context: &'i Context,
    condition: &'i Condition<Seen>,
    /// Whether the assertion names objects.
    names_objects: bool,
    number: usize,
    workers: Vec<Worker<(Keys, Plan)>>,
    executions: Receiver<Result<Execution, RunError>>,
    client: Client,
}

impl<'i> Instances<'i> {
    fn start(
        context: &'i Arc<Context>,
        condition: &'i Condition<Seen>,
        number: usize,
    ) -> Result<Self, RunError> {
        let (results, executions) = mpsc::channel();
        let start = |_| {
            Worker::start(context, results.clone(), {
                let context = Arc::clone(context);
                move |client, (keys, plan): (Keys, Plan)| {
                    let execution = execution::execute(client, &context.test, keys, &plan)?;
                    context.executed_one(&execution);
                    Ok(execution)
                }
            })
        };
        let workers = context.test.transactions.iter().map(start);
        let names = evaluation::names(condition);
        Ok(Self {
            context,
            condition,
            names_objects: names.iter().any(|it| matches!(it, Seen::Object(_))),
            number,
            workers: workers.collect::<Result<_, _>>()?,
            executions,
            client: context.client(),
        })
    }

    /// Runs an instance and evaluates the assertion. Returns the executions by transaction.
    fn run(&mut self, keys: Keys, number: u64) -> Result<Vec<Execution>, RunError> {
        let context = self.context;
        let executions = self.execute(keys, &self.plans(number))?;
        context.count(&executions);
        let is_exercised = could_show(context, &executions);
        context.count_trial(1, is_exercised);
        if !context.asserts {
            return Ok(executions);
        }
        let may_show =
            |it: &Execution| it.outcome.is_committed() == Some(false) && !it.writes.is_empty();
        let is_read = self.names_objects || executions.iter().any(may_show);
        let state = match is_read {
            true => self.state(keys)?,
            false => Some(State::new()),
        };
        if let Some(state) = state {
            if context.shows_aborted_write(&state, &executions) {
                context.violate(Kind::AbortedWrite, &state, &executions);
            }
            match evaluation::occurs(self.condition, &state, &executions) {
                Occurrence::Undecided => context.count_undecided(),
                Occurrence::NotShown => context.count_assertions(1),
                Occurrence::Occurs => {
                    context.count_assertions(1);
                    if let Some(kind) = self.kind(keys, &executions)? {
                        context.violate(kind, &state, &executions);
                    }
                }
            }
        }
        if context.have_crashed(&executions) {
            context.assert_alive(&mut self.client, keys)?;
        }
        Ok(executions)
    }

    /// Chooses delays and crashes.
    fn plans(&self, number: u64) -> Vec<Plan> {
        let (options, test) = (&self.context.options, &self.context.test);
        let mut rng = plan::generator(options.seed, &test.name, self.number, number);
        let pace = Pace::choose(&mut rng);
        let one = |transaction| Plan {
            transaction,
            crash: None,
            pace,
            seed: rng.u64(..),
        };
        let mut plans: Vec<Plan> = (0..test.transactions.len()).map(one).collect();
        // Each client takes the positions in turn, and begins with a different one.
        if let Some((_, transaction, position)) = self.context.crash(number, 1) {
            plans[transaction].crash = Some(position);
        }
        plans
    }

    /// Executes the transactions concurrently, except that a transaction begins after those before
    /// it in the test's order have ended.
    fn execute(&self, keys: Keys, plans: &[Plan]) -> Result<Vec<Execution>, RunError> {
        let order = &self.context.test.order;
        let mut ended: Vec<Option<Execution>> = vec![None; plans.len()];
        let mut has_begun = vec![false; plans.len()];
        for _ in plans {
            for (at, plan) in plans.iter().enumerate() {
                let mut before = order.iter().filter(|(_, later)| *later == at);
                if !has_begun[at] && before.all(|(earlier, _)| ended[*earlier].is_some()) {
                    has_begun[at] = true;
                    self.workers[at].give((keys, *plan));
                }
            }
            let execution = received(&self.executions)?;
            let at = execution.transaction;
            ended[at] = Some(execution);
        }
        Ok(ended.into_iter().flatten().collect())
    }

    /// Returns the state after an instance; `None` if the store is blocked.
    fn state(&mut self, keys: Keys) -> Result<Option<State>, DriverError> {
        let patience = self.context.options.patience;
        let state = state::read_at_rest(&mut self.client, keys, patience)?;
        self.context.answered();
        if state.is_none() {
            let reason = "no transaction that reads all objects commits";
            self.context.block(reason.into());
        }
        Ok(state)
    }

    /// Distinguishes a wrong state from a stale read of the state. Returns `None` if the test ends
    /// before that is decided.
    fn kind(&mut self, keys: Keys, executions: &[Execution]) -> Result<Option<Kind>, DriverError> {
        if !self.names_objects {
            return Ok(Some(Kind::State));
        }
        let begin = Instant::now();
        while self.context.settles(begin) {
            if self.context.is_stopped() && begin.elapsed() >= SETTLES {
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(5));
            // Another connection may reach another member of the store.
            self.client.cut();
            let Some(state) = self.state(keys)? else {
                return Ok(None);
            };
            let found = evaluation::occurs(self.condition, &state, executions);
            if found != Occurrence::Occurs {
                return Ok(Some(Kind::StaleRead));
            }
        }
        Ok(Some(Kind::State))
    }
}

/// Returns whether an instance could show a violation: two conflicting transactions without an
/// order between them were concurrent, or, if all such pairs are ordered, all transactions ended as
/// their users requested.
fn could_show(context: &Context, executions: &[Execution]) -> bool {
    let count = executions.len();
    let order = ordered(&context.test);
    let pairs = || (0..count).flat_map(|a| (0..a).map(move |b| (a, b)));
    let mut free = pairs()
        .filter(|(a, b)| context.conflicts.are(*a, *b) && !order[*a][*b] && !order[*b][*a])
        .peekable();
    if free.peek().is_none() {
        let has_ended = |outcome| matches!(outcome, Outcome::Committed | Outcome::AbortedByUser);
        return executions.iter().all(|it| has_ended(it.outcome));
    }
    let has_committed = executions.iter().any(|it| it.outcome == Outcome::Committed);
    has_committed && free.any(|(a, b)| executions[a].overlaps(&executions[b]))
}

/// Returns the transitive closure of a test's order.
fn ordered(test: &Test) -> Vec<Vec<bool>> {
    let count = test.transactions.len();
    let mut order = vec![vec![false; count]; count];
    for &(earlier, later) in &test.order {
        order[earlier][later] = true;
    }
    for through in 0..count {
        for from in 0..count {
            for to in 0..count {
                order[from][to] |= order[from][through] && order[through][to];
            }
        }
    }
    order
}
