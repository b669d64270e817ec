//! The servers of a run: processes that a study starts, and kills.

use super::board::{Board, Lane};
use super::caps::keep_on;
use super::subject::Subject;
use crate::children::{ready, say, sleep_for_ever};
use crate::{StudyError, clock};
use outlive_store::protocol::{Abort, Coordinator, Member, Retry, TransactionError, Worker};
use outlive_store::servers::Store;
use outlive_store::verbs::Link;
use outlive_store::workloads::{Benchmark, Books};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A memory server that serves until it is killed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Memory {
    pub store: PathBuf,
    pub bytes: u64,
}

impl Memory {
    pub fn play(self) -> Result<(), StudyError> {
        let server = Store::open(&self.store)?.serve_memory(self.bytes)?;
        ready();
        let _server = server;
        sleep_for_ever()
    }
}

/// A compute server that executes transactions until the end of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compute {
    pub store: PathBuf,
    /// The path of the board's pod, and the number of the server's lane.
    pub board: PathBuf,
    pub lane: u64,
    pub subject: Subject,
    pub coordinators: u16,
    /// The round trip of the emulated link; `None` on bare memory.
    pub round_trip: Option<Duration>,
    /// That of its recoveries of other servers.
    pub recovery_round_trip: Option<Duration>,
    /// The transactions that begin in each second; `None` for as many as possible.
    pub rate: Option<f64>,
    /// The processor on which it is kept; `None` if it may use all.
    pub processor: Option<usize>,
    /// Whether it begins when the victim of the run is recovered, in its place.
    pub is_standby: bool,
    /// The number of polls for which an access may wait for a recovery.
    pub stall: u32,
    pub seed: u64,
}

/// The longest sleep of a server without due transactions.
const NAP: Duration = Duration::from_micros(100);

/// Returns a link with this round trip.
fn link(round_trip: Duration) -> Link {
    Link {
        round_trip,
        ..Link::default()
    }
}

impl Compute {
    pub fn play(self) -> Result<(), StudyError> {
        self.processor.map_or(Ok(()), keep_on)?;
        // Sleeps end when they should, so that the pace has no gaps of its own.
        // SAFETY: sets a number of this thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let board = Board::open(&self.board)?;
        let store = Store::open(&self.store)?;
        store.set_recovery_link(self.recovery_round_trip.map(link));
        let compute = store.join_compute()?;
        let benchmark = self.subject.open(&compute, Books::Ledger)?;
        let process = compute.id().get();
        match self.round_trip {
            None => self.work(board, &store, &benchmark, (process, &compute.worker()?)),
            Some(round_trip) => {
                let worker = compute.worker_behind(link(round_trip), self.seed)?;
                self.work(board, &store, &benchmark, (process, &worker))
            }
        }
    }

    fn work<V: Member>(
        &self,
        board: Board,
        store: &Store,
        benchmark: &Benchmark,
        (process, worker): (u16, &Rc<Worker<V>>),
    ) -> Result<(), StudyError> {
        let coordinators = (0..self.coordinators).map(|_| worker.coordinator());
        let coordinators: Vec<_> =
            { coordinators.collect::<Result<_, _>>() }.map_err(StudyError::void_of)?;
        say(&process);
        let (mut start, end) = board.await_start();
        if self.is_standby {
            let configuration = store.configuration();
            while !configuration.has_failed(board.victim()) {
                if clock::now() >= end {
                    return Ok(());
                }
                std::thread::sleep(NAP);
            }
            start = clock::now();
        }
        let pace = Pace {
            rate: self.rate,
            start,
            end,
            begun: Cell::new(0),
            active: Cell::new(0),
            lane: board.lane(self.lane),
            error: RefCell::default(),
        };
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for coordinator in coordinators {
            let coordinator = coordinator.retry(Retry {
                stall: self.stall,
                ..Retry::default()
            });
            let seed = self.seed << 20 | u64::from(coordinator.number());
            tasks.push(Box::pin(pace.coordinate(
                benchmark,
                coordinator,
                worker,
                seed,
            )));
        }
        pace.run(tasks)
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The pace of a server: an open loop, in which transactions begin when they are due.
struct Pace {
    rate: Option<f64>,
    start: u64,
    end: u64,
    begun: Cell<u64>,
    /// The number of transactions under way.
    active: Cell<u64>,
    lane: Lane,
    error: RefCell<Option<StudyError>>,
}

impl Pace {
    /// The number of transactions that should have begun by `now`.
    fn due(&self, now: u64) -> u64 {
        self.rate.map_or(u64::MAX, |rate| {
            (now.saturating_sub(self.start) as f64 * 1e-9 * rate) as u64
        })
    }

    fn is_over(&self, now: u64) -> bool {
        now >= self.end || self.error.borrow().is_some()
    }

    /// Executes a coordinator's transactions, each when it is due.
    async fn coordinate<V: Member>(
        &self,
        benchmark: &Benchmark,
        mut coordinator: Coordinator<V>,
        worker: &Worker<V>,
        seed: u64,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut has_yielded = false;
        loop {
            let begins = poll_fn(|_| {
                let now = clock::now();
                if self.is_over(now) {
                    return Poll::Ready(false);
                }
                // On mapped memory a transaction does not wait, so it lets the others run first.
                let may_begin = self.begun.get() < self.due(now) && has_yielded;
                has_yielded = !may_begin;
                match may_begin {
                    true => Poll::Ready(true),
                    false => Poll::Pending,
                }
            });
            if !begins.await {
                return;
            }
            self.begun.set(self.begun.get() + 1);
            self.active.set(self.active.get() + 1);
            let executed = benchmark.execute(&mut coordinator, &mut random).await;
            let now = clock::now();
            self.active.set(self.active.get() - 1);
            match executed {
                Ok(_) => self.lane.commit(now),
                Err(TransactionError::TooManyConflicts { .. })
                | Err(TransactionError::Aborted(Abort::User)) => {}
                Err(error) => *self.error.borrow_mut() = Some(error.into()),
            }
            self.lane.note(worker.counts(), now);
        }
    }

    fn run(&self, mut tasks: Vec<Task<'_>>) -> Result<(), StudyError> {
        let mut context = Context::from_waker(Waker::noop());
        while !tasks.is_empty() {
            tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
            let now = clock::now();
            if self.active.get() == 0 && self.begun.get() >= self.due(now) {
                std::thread::sleep(NAP);
            }
        }
        self.error.take().map_or(Ok(()), Err)
    }
}
