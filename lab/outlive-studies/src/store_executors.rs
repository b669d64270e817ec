//! `store-executors`: the executor of a compute server's coordinators. Ours is a loop that polls
//! all of them in turn (`verbs::join_all`); the peer is a kept executor with a queue of those that
//! were woken. On mapped memory a verb is complete when it is posted, so coordinators only take
//! turns; behind an emulated link they overlap their round trips.

use crate::paired::{Comparison, Paired};
use crate::row::{Goal, How};
use crate::scratch::fresh_path;
use crate::{Run, Study, StudyError};
use async_executor::LocalExecutor;
use outlive_store::protocol::{Abort, Coordinator, Member, TransactionError, Worker};
use outlive_store::servers::{ComputeServer, MemoryServer, Store, StoreOptions};
use outlive_store::verbs::{Link, block_on, join_all};
use outlive_store::workloads::{Benchmark, Books, SmallBank};
use std::cell::Cell;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

pub const STUDY: Study = Study {
    name: "store-executors",
    about: "coordinators of a store: a loop that polls all of them beside a kept executor",
    body: study,
};

const PEER: &str = "async-executor";

fn void(error: impl std::fmt::Display) -> StudyError {
    StudyError::void(error.to_string())
}

/// A store whose servers are all in this process. The fields are dropped in their order.
struct Bank {
    compute: ComputeServer,
    _memory: [MemoryServer; 2],
    _path: Removed,
}

/// Removes a store when it is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // A drop cannot report an error.
        let _ = Store::destroy(&self.0);
    }
}

impl Bank {
    fn new(coordinators: u16) -> Result<Self, StudyError> {
        let path = Removed(fresh_path("store"));
        let options = StoreOptions::new().compute_servers(4, coordinators);
        Store::create(&path.0, options).map_err(void)?;
        let serve = || Store::open(&path.0)?.serve_memory(64 << 20);
        Ok(Self {
            _memory: [serve().map_err(void)?, serve().map_err(void)?],
            compute: { Store::open(&path.0) }
                .and_then(|it| it.join_compute())
                .map_err(void)?,
            _path: path,
        })
    }
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let most = *COORDINATORS.last().expect("several numbers");
    let bank = Bank::new(most)?;
    let customers = run.effort().of(1_000, 100_000, 100_000);
    let benchmark = SmallBank::open(&bank.compute, customers, Books::Program);
    let benchmark = Benchmark::SmallBank(benchmark.map_err(void)?);
    {
        let worker = bank.compute.worker().map_err(void)?;
        let mut coordinator = worker.coordinator().map_err(void)?;
        benchmark.load(&mut coordinator).map_err(void)?;
    }
    for coordinators in COORDINATORS {
        let worker = bank.compute.worker().map_err(void)?;
        compare(run, &worker, &benchmark, coordinators, How::Measured)?;
    }
    for coordinators in COORDINATORS {
        let worker = bank.compute.worker_behind(Link::default(), 1);
        let worker = worker.map_err(void)?;
        compare(run, &worker, &benchmark, coordinators, How::Emulated)?;
    }
    Ok(())
}

const COORDINATORS: [u16; 3] = [1, 8, 64];

fn compare<V: Member>(
    run: &mut Run<'_>,
    worker: &Rc<Worker<V>>,
    benchmark: &Benchmark,
    coordinators: u16,
    how: How,
) -> Result<(), StudyError> {
    let backend = match how {
        How::Emulated => "an emulated link",
        _ => "mapped memory",
    };
    let case = format!("SmallBank on {backend}, {coordinators} coordinators");
    run.begin(&case);
    let rounds = run.effort().of(2, 15, 61);
    let period = Duration::from_millis(run.effort().of(2, 50, 100));
    let taken = (0..coordinators).map(|_| worker.coordinator());
    let taken: Result<Vec<_>, _> = taken.collect();
    // Both sides have the same coordinators, one after the other.
    let taken = Cell::new(Some(taken.map_err(void)?));
    let measure = |executes: fn(Vec<Task<'_>>)| {
        let mut coordinators = taken.take().expect("the other side has ended");
        let nanos = each(&mut coordinators, benchmark, period, executes);
        taken.set(Some(coordinators));
        nanos
    };
    let paired = Paired::measure(
        run,
        rounds,
        || measure(|tasks| _ = block_on(join_all(tasks))),
        || measure(in_executor),
    )?;
    let comparison = Comparison {
        case: &case,
        metric: "time per committed transaction",
        unit: "ns",
        peer: PEER,
        paper: None,
        goal: Some(Goal::ratio_at_most(1.0)),
    };
    run.answer(comparison.rows(&paired).map(|row| row.how(how)));
    Ok(())
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

fn in_executor(tasks: Vec<Task<'_>>) {
    let executor = LocalExecutor::new();
    let tasks: Vec<_> = { tasks.into_iter() }.map(|it| executor.spawn(it)).collect();
    block_on(executor.run(async {
        for task in tasks {
            task.await;
        }
    }));
}

/// Returns the nanoseconds for each transaction that is committed in `period`.
fn each<V: Member>(
    coordinators: &mut [Coordinator<V>],
    benchmark: &Benchmark,
    period: Duration,
    executes: fn(Vec<Task<'_>>),
) -> Result<f64, StudyError> {
    let (committed, failure) = (Cell::new(0u64), Cell::new(None));
    let begin = Instant::now();
    let tasks = coordinators.iter_mut().map(|coordinator| -> Task<'_> {
        let (committed, failure) = (&committed, &failure);
        Box::pin(async move {
            let mut random = fastrand::Rng::with_seed(coordinator.number().into());
            while begin.elapsed() < period {
                match benchmark.execute(coordinator, &mut random).await {
                    Ok(_) => committed.set(committed.get() + 1),
                    Err(TransactionError::Aborted(Abort::User)) => {}
                    Err(error) => return failure.set(Some(error)),
                }
                take_turns().await;
            }
        })
    });
    executes(tasks.collect());
    match failure.take() {
        Some(error) => Err(void(error)),
        None => Ok(begin.elapsed().as_nanos() as f64 / committed.get().max(1) as f64),
    }
}

/// Lets the other coordinators run.
async fn take_turns() {
    let mut has_waited = false;
    core::future::poll_fn(|context| match core::mem::replace(&mut has_waited, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}
