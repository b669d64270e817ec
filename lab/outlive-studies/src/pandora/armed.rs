//! A compute server whose coordinators each log a transaction and stop there, so that all of them
//! are between their log and their commit when the process is killed.
//!
//! Its connections hold back the WRITEs of commits. Each coordinator first commits one transaction
//! that writes, so that its log slot has an entry. When all have done so, it executes transactions
//! until one of them is logged: the WRITEs of its commit are not posted, and never complete. If
//! each attempt meets the latches of others (the rows of TPC-C's districts are few), the entry of
//! the committed transaction remains, which recovery rolls forward.

use super::subject::Subject;
use crate::StudyError;
use crate::children::{say, sleep_for_ever};
use outlive_store::protocol::{Abort, Coordinator, Member, Retry, TransactionError};
use outlive_store::servers::{Connector, MappedServer, Store};
use outlive_store::verbs::{Batch, Completed, Connection, Region, ServerId, VerbKind};
use outlive_store::workloads::{Benchmark, Books};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A compute server that waits until it is killed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Armed {
    pub store: PathBuf,
    pub subject: Subject,
    pub coordinators: u16,
    /// Whether coordinators stop after their log; if not, after their first commit.
    pub stops: bool,
    pub seed: u64,
}

/// The line that the process writes when all its coordinators have stopped.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Its process id in the store.
    pub process: u16,
    /// The number of coordinators that are between log and commit.
    pub stopped: u64,
    /// The sum of the changes of committed transactions.
    pub change: i64,
}

/// The number of transactions that a coordinator tries to log.
const TRIES: usize = 16;

impl Armed {
    pub fn play(self) -> Result<(), StudyError> {
        let store = Store::open(&self.store)?;
        let compute = store.join_compute()?;
        let benchmark = self.subject.open(&compute, Books::Program)?;
        let brake = Rc::new(Brake {
            log_bytes: store.configuration().log_bytes(),
            current: Cell::new(0),
            states: RefCell::new(vec![State::Free; self.coordinators.into()]),
            change: Cell::new(0),
        });
        let worker = compute.worker_over(Braking(Rc::clone(&brake)))?;
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for number in 0..self.coordinators {
            let coordinator = worker.coordinator().map_err(StudyError::void_of)?;
            let once = Retry {
                attempts: 1,
                ..Retry::default()
            };
            let (coordinator, brake) = (coordinator.retry(once), &brake);
            let seed = self.seed << 16 | u64::from(number);
            let arming = arm(&benchmark, coordinator, brake, number, (seed, self.stops));
            tasks.push(Box::pin(arming));
        }
        let ended = brake.run(&mut tasks);
        // Dropping the tasks would complete the commits that are held back.
        std::mem::forget(tasks);
        ended?;
        let ready = Ready {
            process: compute.id().get(),
            stopped: brake.count(State::Stopped),
            change: brake.change.get(),
        };
        say(&ready);
        sleep_for_ever()
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = Result<(), StudyError>> + 'a>>;

/// Executes transactions of one coordinator until it has stopped, or its tries are used up.
async fn arm<V: Member>(
    benchmark: &Benchmark,
    mut coordinator: Coordinator<V>,
    brake: &Brake,
    number: u16,
    (seed, stops): (u64, bool),
) -> Result<(), StudyError> {
    let mut random = fastrand::Rng::with_seed(seed);
    while brake.state(number) == State::Free {
        execute(benchmark, &mut coordinator, &mut random, brake).await?;
    }
    if stops {
        // The latches of a coordinator that has stopped may keep all others from committing.
        poll_fn(|_| match brake.count(State::Free) {
            0 => Poll::Ready(()),
            _ => Poll::Pending,
        })
        .await;
        brake.set(number, State::Armed);
        for _ in 0..TRIES {
            execute(benchmark, &mut coordinator, &mut random, brake).await?;
        }
        brake.set(number, State::Committed);
    }
    Ok(())
}

/// Executes a random transaction once, which may end with a conflict.
async fn execute<V: Member>(
    benchmark: &Benchmark,
    coordinator: &mut Coordinator<V>,
    random: &mut fastrand::Rng,
    brake: &Brake,
) -> Result<(), StudyError> {
    match benchmark.execute(coordinator, random).await {
        Ok(executed) => {
            brake.change.set(brake.change.get() + executed.change);
            Ok(())
        }
        Err(TransactionError::TooManyConflicts { .. } | TransactionError::Aborted(Abort::User)) => {
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has not committed yet.
    Free,
    /// It has committed a transaction that writes.
    Committed,
    /// Its next commit stops.
    Armed,
    /// Its commit was held back.
    Stopped,
}

/// The states of the coordinators. The tasks are polled one at a time, so the one that posts is
/// known.
#[derive(Debug)]
struct Brake {
    log_bytes: u64,
    current: Cell<u16>,
    states: RefCell<Vec<State>>,
    /// The sum of the changes of committed transactions.
    change: Cell<i64>,
}

impl Brake {
    fn state(&self, number: u16) -> State {
        self.states.borrow()[usize::from(number)]
    }

    fn set(&self, number: u16, state: State) {
        self.states.borrow_mut()[usize::from(number)] = state;
    }

    fn count(&self, state: State) -> u64 {
        let states = self.states.borrow();
        states.iter().filter(|it| **it == state).count() as u64
    }

    /// Notes a batch that is about to be posted. Returns whether it is held back.
    fn holds(&self, batch: &Batch) -> bool {
        // Unlatching writes zeros only, a commit also a version, which is not zero.
        let mut verbs = batch.verbs().iter();
        let is_commit = verbs.any(|verb| {
            verb.kind == VerbKind::Write
                && verb.at.get() >= self.log_bytes
                && batch.buffer()[verb.local()].iter().any(|word| *word != 0)
        });
        let number = self.current.get();
        match (is_commit, self.state(number)) {
            (false, _) => false,
            (true, State::Armed | State::Stopped) => {
                self.set(number, State::Stopped);
                true
            }
            (true, State::Free | State::Committed) => {
                self.set(number, State::Committed);
                false
            }
        }
    }

    /// Polls all tasks until each is ready or has stopped.
    fn run(&self, tasks: &mut [Task<'_>]) -> Result<(), StudyError> {
        let mut context = Context::from_waker(Waker::noop());
        let mut left: Vec<u16> = (0..tasks.len() as u16).collect();
        let mut failed = None;
        while !left.is_empty() && failed.is_none() {
            left.retain(|number| {
                self.current.set(*number);
                match tasks[usize::from(*number)].as_mut().poll(&mut context) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => failed = Some(error),
                    Poll::Pending => return self.state(*number) != State::Stopped,
                }
                false
            });
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Makes connections that hold back commits.
#[derive(Debug)]
struct Braking(Rc<Brake>);

impl Connector for Braking {
    type Connection = Braked;

    fn connect(&self, server: MappedServer) -> Braked {
        Braked {
            server,
            brake: Rc::clone(&self.0),
        }
    }
}

#[derive(Debug)]
struct Braked {
    server: MappedServer,
    brake: Rc<Brake>,
}

impl Connection for Braked {
    type Completion = Held;

    fn server(&self) -> ServerId {
        self.server.server()
    }

    fn region(&self) -> Region {
        self.server.region()
    }

    fn post(&self, batch: Batch) -> Held {
        match self.brake.holds(&batch) {
            true => Held(None),
            false => Held(Some(self.server.post(batch))),
        }
    }
}

/// A completion, or `None` for a batch that was held back.
#[derive(Debug)]
struct Held(Option<std::future::Ready<Completed>>);

impl Future for Held {
    type Output = Completed;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completed> {
        match &mut self.0 {
            Some(completion) => Pin::new(completion).poll(context),
            None => Poll::Pending,
        }
    }
}
