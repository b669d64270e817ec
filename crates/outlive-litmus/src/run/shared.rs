//! Tests with [`Assertion::Always`](crate::test::Assertion::Always): all clients run transactions
//! on one set of objects, concurrently with transactions of the assertion.
//!
//! A test runs in rounds. In a round each client executes a few transactions; then, with no
//! transaction left, the assertion is evaluated once more, and the objects are set to their initial
//! values for the next round: later transactions can hide a wrong state.

use super::RunError;
use super::client::Client;
use super::context::Context;
use super::evaluation;
use super::execution::{self, Execution, Outcome};
use super::keys::Keys;
use super::plan::{self, Pace, Plan};
use super::report::Kind;
use super::separate::SETTLES;
use super::state::{self, State};
use super::worker::Worker;
use crate::driver::DriverError;
use crate::test::{Condition, Seen};
use fastrand::Rng;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The maximum number of transactions of a client in a round.
const MOST_TRANSACTIONS: usize = 5;
/// The maximum number of executions of a transaction that the store aborts.
const MOST_ATTEMPTS: u64 = 4;
/// The longest time until the first transaction of the assertion in a round, in microseconds. The
/// bound doubles with each further interval: the lengths of rounds differ widely, and reads delay
/// the store.
const FIRST_INTERVAL: u64 = 600;
/// The longest time between the two evaluations after a crash, in microseconds.
const LONGEST_RECOVERY: u64 = 20_000;

/// A round.
#[derive(Clone)]
struct Round {
    keys: Keys,
    /// Ends the round early, after the running transactions.
    is_over: Arc<AtomicBool>,
}

/// The assertions of a round. They go on until the other end of `ending` is dropped, also after an
/// error.
struct Assertions {
    round: Round,
    ending: Receiver<Infallible>,
    seed: u64,
}

/// The executions of a client in a round.
type Executions = Result<Vec<Execution>, RunError>;

/// The number of evaluated assertions, and a state that fails.
type Evaluated = Result<(u64, Option<State>), RunError>;

/// Runs the test until it is over.
pub(super) fn run(context: &Arc<Context>, condition: &Condition<Seen>) -> Result<(), RunError> {
    let (clients, executions) = start_clients(context)?;
    let (results, assertions) = mpsc::channel();
    let asserter = Worker::start(context, results, {
        let condition = condition.clone();
        move |client, job| evaluate(client, &condition, &job)
    })?;
    let mut client = context.client();
    let mut keys = context.new_keys(1);
    for number in 0.. {
        if context.is_over() {
            break;
        }
        context.reset(keys, 1)?;
        let round = Round {
            keys,
            is_over: Arc::default(),
        };
        let mut rng = plan::generator(context.options.seed, &context.test.name, 0, number);
        // Assertions take locks in some stores, so every third round has none.
        let has_assertions = rng.u8(0..3) > 0 && context.asserts;
        let (is_running, ending) = mpsc::channel();
        if has_assertions {
            asserter.give(Assertions {
                round: round.clone(),
                ending,
                seed: rng.u64(..),
            });
        }
        let plans = plans(context, number);
        let planned = plans.iter().map(Vec::len).sum::<usize>();
        for (client, plans) in clients.iter().zip(plans) {
            client.give((round.clone(), plans));
        }
        let mut all = Vec::new();
        for _ in &clients {
            all.extend(received(&executions)?);
        }
        drop(is_running);
        context.count(&all);
        let can_show = all.iter().any(|it| it.outcome == Outcome::Committed);
        let instances = planned / context.test.transactions.len();
        let is_exercised = can_show && context.conflicts.any_met(&all);
        context.count_trial(instances.max(1) as u64, is_exercised);
        if !context.asserts {
            continue;
        }
        let failing = match has_assertions {
            true => received(&assertions)?,
            false => (0, None),
        };
        context.count_assertions(failing.0 + 1);
        let patience = context.options.patience;
        let Some(last) = state::read_at_rest(&mut client, keys, patience)? else {
            context.block("no transaction that reads all objects commits".into());
            break;
        };
        context.answered();
        if context.shows_aborted_write(&last, &all) {
            context.violate(Kind::AbortedWrite, &last, &all);
        }
        if !evaluation::holds(condition, &last) {
            if let Some(kind) = kind_at_rest(context, &mut client, keys, condition)? {
                context.violate(kind, &last, &all);
            }
        } else if let Some(failing) = &failing.1 {
            context.violate(Kind::ConcurrentRead, failing, &all);
        }
        let crashes = |it: &Execution| it.crashed.is_some() || is_lost(it.outcome);
        if all.iter().any(crashes) && evaluation::holds(condition, &last) {
            // A store recovers from the crash after that, and may undo the wrong writes.
            thread::sleep(Duration::from_micros(rng.u64(0..=LONGEST_RECOVERY)));
            let Some(late) = state::read_at_rest(&mut client, keys, patience)? else {
                context.block("no transaction that reads all objects commits".into());
                break;
            };
            context.answered();
            context.count_assertions(1);
            if !evaluation::holds(condition, &late)
                && let Some(kind) = kind_at_rest(context, &mut client, keys, condition)?
            {
                context.violate(kind, &late, &all);
            }
        }
        if context.have_crashed(&all) {
            context.assert_alive(&mut client, keys)?;
        }
        // A commit whose answer was lost could still be running.
        if all.iter().any(|it| is_lost(it.outcome)) {
            keys = context.new_keys(1);
        }
    }
    Ok(())
}

/// Distinguishes a wrong state from a stale read of the state, after all transactions have ended.
/// Returns `None` if the test ends before that is decided.
fn kind_at_rest(
    context: &Context,
    client: &mut Client,
    keys: Keys,
    condition: &Condition<Seen>,
) -> Result<Option<Kind>, DriverError> {
    let begin = Instant::now();
    while context.settles(begin) {
        if context.is_stopped() && begin.elapsed() >= SETTLES {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
        // Another connection may reach another member of the store.
        client.cut();
        let state = state::read_at_rest(client, keys, context.options.patience)?;
        context.answered();
        match state {
            None => {
                context.block("no transaction that reads all objects commits".into());
                return Ok(None);
            }
            Some(state) if evaluation::holds(condition, &state) => {
                return Ok(Some(Kind::StaleRead));
            }
            Some(_) => {}
        }
    }
    Ok(Some(Kind::State))
}

/// Returns whether the connection was lost.
pub(super) fn is_lost(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Lost | Outcome::Unknown)
}

/// Returns the next result of a worker.
pub(super) fn received<T>(results: &Receiver<Result<T, RunError>>) -> Result<T, RunError> {
    results.recv().unwrap_or(Err(RunError::Panicked))
}

type Clients = (Vec<Worker<(Round, Vec<Plan>)>>, Receiver<Executions>);

fn start_clients(context: &Arc<Context>) -> Result<Clients, RunError> {
    let (results, executions) = mpsc::channel();
    let start = |_| {
        Worker::start(context, results.clone(), {
            let context = Arc::clone(context);
            move |client, (round, plans): (Round, Vec<Plan>)| {
                execute(client, &context, &round, &plans)
            }
        })
    };
    let clients = (0..context.options.clients.max(2)).map(start);
    Ok((clients.collect::<Result<_, _>>()?, executions))
}

/// Chooses the transactions of each client in a round, each with its own generator.
fn plans(context: &Context, round: u64) -> Vec<Vec<Plan>> {
    let (options, test) = (&context.options, &context.test);
    let clients = options.clients.max(2);
    let crash = context.crash(round, clients);
    let of_client = |client: usize| {
        let mut rng = plan::generator(options.seed, &test.name, client + 1, round);
        let pace = Pace::choose(&mut rng);
        // Short rounds show a wrong state before another transaction hides it.
        let count = match rng.bool() {
            true => 1,
            false => rng.usize(1..=MOST_TRANSACTIONS),
        };
        let one = |_| Plan {
            transaction: rng.usize(0..test.transactions.len()),
            crash: None,
            pace,
            seed: rng.u64(..),
        };
        let mut plans: Vec<Plan> = (0..MOST_TRANSACTIONS).map(one).collect();
        match crash {
            // Some positions are reached only after other transactions: an object has to exist.
            Some((crashing, transaction, position)) if crashing == client => {
                let plan = &mut plans[rng.usize(0..MOST_TRANSACTIONS)];
                plan.transaction = transaction;
                plan.crash = Some(position);
            }
            _ => plans.truncate(count),
        }
        plans
    };
    (0..clients).map(of_client).collect()
}

/// Executes the transactions of a client in a round. A transaction that the store aborts is
/// repeated as a new one.
fn execute(client: &mut Client, context: &Context, round: &Round, plans: &[Plan]) -> Executions {
    let mut all = Vec::new();
    for plan in plans {
        for attempt in 0..MOST_ATTEMPTS {
            if round.is_over.load(Ordering::Relaxed) {
                return Ok(all);
            }
            let plan = Plan {
                seed: plan.seed.wrapping_add(attempt),
                ..*plan
            };
            let execution = execution::execute(client, &context.test, round.keys, &plan)?;
            context.executed_one(&execution);
            let outcome = execution.outcome;
            // In every second round with a crash, no transaction begins after it that could hide
            // what it left.
            if execution.crashed.is_some() && plan.seed.is_multiple_of(2) {
                round.is_over.store(true, Ordering::Relaxed);
            }
            all.push(execution);
            if outcome != Outcome::Aborted {
                break;
            }
        }
    }
    Ok(all)
}

/// Evaluates the assertion at random intervals until the round is over. A failing assertion ends
/// the round.
fn evaluate(client: &mut Client, condition: &Condition<Seen>, job: &Assertions) -> Evaluated {
    let Assertions {
        round,
        ending,
        seed,
    } = job;
    let mut rng = Rng::with_seed(*seed);
    let (mut count, mut longest) = (0, FIRST_INTERVAL);
    loop {
        let interval = Duration::from_micros(rng.u64(0..=longest));
        let is_running = ending.recv_timeout(interval) == Err(RecvTimeoutError::Timeout);
        if !is_running || round.is_over.load(Ordering::Relaxed) {
            return Ok((count, None));
        }
        longest = longest.saturating_mul(2);
        let pace = Pace::choose(&mut rng);
        let mut wait = || pace.wait(&mut rng);
        // Its answers do not count as progress: with versions, reads go on while a lock that a
        // crashed client has left blocks all writers.
        let state = state::read(client, round.keys, &mut wait)?;
        // An assertion whose transaction does not commit proves nothing.
        let Some(state) = state else { continue };
        count += 1;
        if !evaluation::holds(condition, &state) {
            round.is_over.store(true, Ordering::Relaxed);
            return Ok((count, Some(state)));
        }
    }
}
