//! The compute server of a benchmark, a process that `outlive store bench` starts.

use super::program::Program;
use super::receipts::Receipts;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use hdrhistogram::Histogram;
use outlive_store::protocol::{Abort, Coordinator, Counts, Member, TransactionError, Worker};
use outlive_store::servers::Store;
use outlive_store::verbs::{block_on, join_all};
use outlive_store::workloads::{Benchmark, Books};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::io::BufRead;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Arguments of the hidden command `outlive store bench-compute`.
#[derive(Args, Debug)]
pub struct Compute {
    path: PathBuf,
    #[command(flatten)]
    program: Program,
    /// Whether compute servers are killed, so that they cannot count the changes of the invariant
    #[arg(long)]
    has_kills: bool,
    /// Whether acknowledged commits are recorded in the store and in a file
    #[arg(long)]
    receipts: bool,
}

/// A line that a compute server prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    /// It is ready to begin.
    Ready {
        /// Its process id in the store.
        server: u16,
    },
    /// Its counts so far, [`PERIOD`] after the previous message.
    Progress(Progress),
    /// The latches that it has stolen so far.
    Stolen(Vec<Theft>),
    /// Its results, at the end.
    Final {
        /// The counts.
        progress: Progress,
        /// The latencies of committed transactions in nanoseconds, with their numbers.
        latencies: Vec<(u64, u64)>,
        /// The changes of the benchmark's sum that it has counted.
        change: i64,
        /// The error that ended a coordinator.
        error: Option<String>,
    },
}

/// The counts of a compute server.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The time on the monotonic clock, in nanoseconds.
    pub at: u64,
    pub committed: u64,
    pub failed: u64,
    pub latched: u64,
    pub changed: u64,
    pub torn: u64,
    pub interrupted: u64,
    pub stalled: u64,
    /// The time of the first commit.
    pub first_committed: u64,
}

/// The latches that a compute server has stolen from a failed one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Theft {
    /// The process id of the failed server.
    pub victim: u16,
    pub latches: u64,
    /// The time at which the first of them was known, on the monotonic clock in nanoseconds.
    pub first: u64,
}

impl From<Counts> for Progress {
    fn from(counts: Counts) -> Self {
        Self {
            at: monotonic(),
            committed: counts.committed,
            failed: counts.user,
            latched: counts.latched,
            changed: counts.changed,
            torn: counts.torn,
            interrupted: counts.interrupted,
            stalled: counts.stalled,
            first_committed: 0,
        }
    }
}

/// The time between two messages of progress.
pub const PERIOD: Duration = Duration::from_millis(100);

/// Returns an empty histogram of latencies in nanoseconds.
pub fn histogram() -> Histogram<u64> {
    // Up to 100 s, with an error of at most 0.1%.
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("the bounds are sound")
}

/// Returns the monotonic clock of the operating system, which all processes share, in nanoseconds.
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the text of an error that ends a benchmark.
pub fn text_of(error: &TransactionError) -> String {
    match error {
        TransactionError::Stopping => "the benchmark has ended, because `outlive store stop` \
                                       stops all compute servers of the store"
            .into(),
        error => error.to_string(),
    }
}

fn say(message: &Message) -> Result<(), Failure> {
    let text = serde_json::to_string(message).map_err(Failure::new)?;
    output::line(text)
}

impl Compute {
    pub fn run(self) -> Result<(), Failure> {
        let store = Store::open(&self.path)?;
        let compute = store.join_compute()?;
        let books = match (self.receipts, self.has_kills) {
            (true, _) => Books::Commits,
            (false, true) => Books::Ledger,
            (false, false) => Books::Program,
        };
        let benchmark = self.program.open(&compute, books)?;
        let server = compute.id().get();
        say(&Message::Ready { server })?;
        // The command writes one line to begin: the duration of the measurement in milliseconds.
        // When it ends, the pipe closes.
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
            return Ok(());
        }
        let milliseconds = line.trim().parse().map_err(|error| {
            Failure::new(format_args!(
                "`{}` is not a duration: {error}; write 100ms, for example",
                line.trim()
            ))
        })?;
        let duration = Duration::from_millis(milliseconds);
        let watching = std::thread::Builder::new().spawn(|| {
            let _ = std::io::stdin().lock().read_line(&mut String::new());
            // The store is removed by the command, or left to `outlive store destroy`.
            std::process::exit(1);
        });
        watching.map_err(Failure::no_thread)?;
        match self.program.link() {
            None => self.measure(&compute.worker()?, (server, duration), &benchmark),
            Some(link) => {
                let worker = compute.worker_behind(link, self.program.seed)?;
                self.measure(&worker, (server, duration), &benchmark)
            }
        }
    }

    fn measure<V: Member>(
        &self,
        worker: &Rc<Worker<V>>,
        (server, duration): (u16, Duration),
        benchmark: &Benchmark,
    ) -> Result<(), Failure> {
        let coordinators = (0..self.program.coordinators).map(|_| worker.coordinator());
        let coordinators: Vec<_> =
            { coordinators.collect::<Result<_, _>>() }.map_err(Failure::new)?;
        let receipts = self.receipts.then(|| Receipts::open(&self.path));
        let run = Run {
            receipts: receipts.transpose()?,
            process: server,
            worker: Rc::clone(worker),
            end: Instant::now() + duration,
            is_over: Cell::new(false),
            latencies: RefCell::new(histogram()),
            change: Cell::new(0),
            thefts: RefCell::default(),
            stolen: Cell::new(0),
            first_committed: Cell::new(0),
            error: RefCell::default(),
        };
        let mut tasks: Vec<Task<'_>> = vec![Box::pin(run.report())];
        for coordinator in coordinators {
            let mut coordinator = coordinator.retry(self.program.retry());
            let number = u64::from(server) << 16 | u64::from(coordinator.number());
            let seed = self.program.seed.wrapping_add(number << 32);
            let run = &run;
            tasks.push(Box::pin(async move {
                run.execute(benchmark, &mut coordinator, seed).await;
                Ok(())
            }));
        }
        let ended: Result<Vec<()>, Failure> = block_on(join_all(tasks)).into_iter().collect();
        ended?;
        if run.stolen.get() > 0 {
            say(&Message::Stolen(run.thefts.borrow().clone()))?;
        }
        let progress = run.progress();
        let latencies = run.latencies.borrow();
        let counts = latencies.iter_recorded();
        let counts = counts.map(|it| (it.value_iterated_to(), it.count_since_last_iteration()));
        let latencies = counts.collect();
        say(&Message::Final {
            progress,
            latencies,
            change: run.change.get(),
            error: run.error.borrow().clone(),
        })
    }
}

type Task<'a> = core::pin::Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

struct Run<V: Member> {
    receipts: Option<Receipts>,
    /// The process id of the compute server.
    process: u16,
    worker: Rc<Worker<V>>,
    end: Instant,
    is_over: Cell<bool>,
    latencies: RefCell<Histogram<u64>>,
    change: Cell<i64>,
    thefts: RefCell<Vec<Theft>>,
    /// The number of latches in `thefts`.
    stolen: Cell<u64>,
    first_committed: Cell<u64>,
    error: RefCell<Option<String>>,
}

impl<V: Member> Run<V> {
    fn progress(&self) -> Progress {
        Progress {
            first_committed: self.first_committed.get(),
            ..self.worker.counts().into()
        }
    }

    /// Executes transactions until the end.
    async fn execute(&self, benchmark: &Benchmark, coordinator: &mut Coordinator<V>, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut executed = 0u64;
        while Instant::now() < self.end && !self.is_over.get() {
            let begin = Instant::now();
            match benchmark.execute(coordinator, &mut random).await {
                Ok(executed) => {
                    if let (Some(receipts), Some(row)) = (&self.receipts, executed.receipt)
                        && let Err(error) =
                            receipts.acknowledge(self.process, coordinator.number(), row)
                    {
                        *self.error.borrow_mut() = Some(error.to_string());
                        break;
                    }
                    let nanos = begin.elapsed().as_nanos() as u64;
                    self.latencies.borrow_mut().saturating_record(nanos.max(1));
                    self.change.set(self.change.get() + executed.change);
                    if self.first_committed.get() == 0 {
                        self.first_committed.set(monotonic());
                    }
                }
                Err(TransactionError::TooManyConflicts { .. })
                | Err(TransactionError::Aborted(Abort::User)) => {}
                Err(error) => {
                    *self.error.borrow_mut() = Some(text_of(&error));
                    break;
                }
            }
            self.note_thefts();
            executed += 1;
            // On mapped memory, verbs are complete when they are posted, so nothing else lets the
            // other coordinators run.
            if executed.is_multiple_of(8) {
                yield_once().await;
            }
        }
        self.is_over.set(true);
    }

    fn note_thefts(&self) {
        let stolen = self.worker.counts().stolen;
        if self.stolen.replace(stolen) == stolen {
            return;
        }
        let mut thefts = self.thefts.borrow_mut();
        for (victim, latches) in self.worker.thefts() {
            match thefts.iter_mut().find(|it| it.victim == victim) {
                Some(theft) => theft.latches = latches,
                None => thefts.push(Theft {
                    victim,
                    latches,
                    first: monotonic(),
                }),
            }
        }
    }

    /// Prints the progress until the end.
    async fn report(&self) -> Result<(), Failure> {
        let mut next = Instant::now() + PERIOD;
        let mut stolen = 0;
        while !self.is_over.get() {
            yield_once().await;
            if Instant::now() >= next {
                say(&Message::Progress(self.progress()))?;
                if self.stolen.get() != stolen {
                    stolen = self.stolen.get();
                    say(&Message::Stolen(self.thefts.borrow().clone()))?;
                }
                next += PERIOD;
            }
        }
        Ok(())
    }
}

/// Lets the other tasks of the thread run.
async fn yield_once() {
    let mut has_yielded = false;
    core::future::poll_fn(|_| match core::mem::replace(&mut has_yielded, true) {
        true => core::task::Poll::Ready(()),
        false => core::task::Poll::Pending,
    })
    .await;
}
