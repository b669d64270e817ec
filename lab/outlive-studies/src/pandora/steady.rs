//! A compute server in this process that executes transactions in rounds, without failures.

use super::Backend;
use super::scratch_store::{ScratchStore, Shape};
use super::subject::Subject;
use crate::{StudyError, clock};
use outlive_store::protocol::{Abort, Coordinator, Counts, Protocol, TransactionError, Worker};
use outlive_store::servers::{Connector, MappedServer, Members};
use outlive_store::verbs::{
    Batch, Completed, Connection, Emulated, Link, Region, ServerId, block_on, join_all,
};
use outlive_store::workloads::Books;
use std::cell::Cell;
use std::future::{Future, Ready, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A compute server with its store.
pub struct Steady {
    // Dropped in this order.
    coordinators: Vec<(Coordinator<View>, fastrand::Rng)>,
    worker: Rc<Worker<View>>,
    scratch: ScratchStore,
    verbs: Rc<Cell<u64>>,
    /// The sum of the changes that the program has counted.
    change: i64,
}

type View = Members<Counting>;

/// The results of a round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    pub committed: u64,
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// The mean latency of committed transactions in microseconds.
    pub latency: f64,
    pub verbs: u64,
}

impl Round {
    pub fn throughput(&self) -> f64 {
        self.committed as f64 / self.seconds
    }

    pub fn verbs_each(&self) -> f64 {
        self.verbs as f64 / self.committed.max(1) as f64
    }

    /// The processor time of a committed transaction in microseconds.
    pub fn cpu_each(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.committed.max(1) as f64
    }
}

/// The end of a round.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this time.
    Time(Duration),
    /// After this number of transactions of each coordinator.
    Transactions(u64),
}

impl Steady {
    /// Creates a store, fills its tables, and joins it with `coordinators`.
    pub fn new(
        subject: Subject,
        protocol: Protocol,
        backend: Backend,
        coordinators: u16,
    ) -> Result<Self, StudyError> {
        let shape = Shape {
            protocol,
            compute_servers: 2,
            coordinators: coordinators + 1,
            books: Books::Program,
        };
        let scratch = ScratchStore::new(subject, shape)?;
        let verbs = Rc::new(Cell::new(0));
        let counting = Counting {
            link: backend.to_link(),
            verbs: Rc::clone(&verbs),
        };
        let worker = scratch.compute().worker_over(counting)?;
        let coordinators = (0..coordinators).map(|number| {
            let random = fastrand::Rng::with_seed(number.into());
            Ok((worker.coordinator().map_err(StudyError::void_of)?, random))
        });
        Ok(Self {
            coordinators: coordinators.collect::<Result<_, StudyError>>()?,
            worker,
            scratch,
            verbs,
            change: 0,
        })
    }

    /// Sets whether the worker would steal stray latches. There are none.
    pub fn set_steals_latches(&self, steals: bool) {
        self.worker.set_steals_latches(steals);
    }

    /// Sets the number of addresses that the worker caches, at least one.
    pub fn set_cached_addresses(&self, addresses: usize) {
        self.worker.set_cached_addresses(addresses);
    }

    pub fn counts(&self) -> Counts {
        self.worker.counts()
    }

    /// Lets the coordinators execute transactions.
    pub fn round(&mut self, until: Until) -> Result<Round, StudyError> {
        let benchmark = self.scratch.benchmark();
        let start = clock::now();
        let end = match until {
            Until::Time(time) => start + time.as_nanos() as u64,
            Until::Transactions(_) => u64::MAX,
        };
        let (committed, nanos, change) = (Cell::new(0u64), Cell::new(0u64), Cell::new(0));
        let (cpu, verbs) = (clock::thread_cpu_seconds(), self.verbs.get());
        let tasks = self.coordinators.iter_mut().map(|(coordinator, random)| {
            let (committed, nanos, change) = (&committed, &nanos, &change);
            async move {
                let mut executed = 0;
                loop {
                    let begin = clock::now();
                    let is_over = match until {
                        Until::Time(_) => begin >= end,
                        Until::Transactions(most) => executed == most,
                    };
                    if is_over {
                        return Ok(());
                    }
                    executed += 1;
                    match benchmark.execute(coordinator, random).await {
                        Ok(executed) => {
                            committed.set(committed.get() + 1);
                            nanos.set(nanos.get() + (clock::now() - begin));
                            change.set(change.get() + executed.change);
                        }
                        Err(TransactionError::TooManyConflicts { .. })
                        | Err(TransactionError::Aborted(Abort::User)) => {}
                        Err(error) => return Err(error),
                    }
                    // On mapped memory a transaction does not wait, so it lets the others run.
                    yield_once().await;
                }
            }
        });
        let ended = block_on(join_all(tasks.collect()));
        ended.into_iter().collect::<Result<Vec<()>, _>>()?;
        self.change += change.get();
        let committed = committed.get();
        Ok(Round {
            committed,
            seconds: (clock::now() - start) as f64 * 1e-9,
            cpu_seconds: clock::thread_cpu_seconds() - cpu,
            latency: nanos.get() as f64 / 1e3 / committed.max(1) as f64,
            verbs: self.verbs.get() - verbs,
        })
    }

    /// Checks the benchmark's invariant and all tables.
    pub fn check(self) -> Result<(), StudyError> {
        let Self {
            coordinators,
            worker,
            scratch,
            change,
            ..
        } = self;
        // The last latches are released by WRITEs that are under way. An emulated link executes
        // them when it is dropped.
        drop((coordinators, worker));
        scratch.check(change)
    }
}

/// Lets the other tasks of the thread run.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|_| match std::mem::replace(&mut has_yielded, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Makes connections that count verbs.
#[derive(Debug)]
pub struct Counting {
    link: Option<Link>,
    verbs: Rc<Cell<u64>>,
}

impl Connector for Counting {
    type Connection = Counted;

    fn connect(&self, server: MappedServer) -> Counted {
        let way = match self.link {
            None => Way::Bare(server),
            Some(link) => Way::Link(server.behind(link, 1)),
        };
        let verbs = Rc::clone(&self.verbs);
        Counted { way, verbs }
    }
}

#[derive(Debug)]
enum Way {
    Bare(MappedServer),
    Link(Emulated<MappedServer>),
}

/// A connection that counts verbs.
#[derive(Debug)]
pub struct Counted {
    way: Way,
    verbs: Rc<Cell<u64>>,
}

/// The completion of a counted batch.
#[derive(Debug)]
pub enum Completion {
    Bare(Ready<Completed>),
    Link(<Emulated<MappedServer> as Connection>::Completion),
}

impl Connection for Counted {
    type Completion = Completion;

    fn server(&self) -> ServerId {
        match &self.way {
            Way::Bare(server) => server.server(),
            Way::Link(server) => server.server(),
        }
    }

    fn region(&self) -> Region {
        match &self.way {
            Way::Bare(server) => server.region(),
            Way::Link(server) => server.region(),
        }
    }

    fn post(&self, batch: Batch) -> Completion {
        self.verbs.set(self.verbs.get() + batch.len() as u64);
        match &self.way {
            Way::Bare(server) => Completion::Bare(server.post(batch)),
            Way::Link(server) => Completion::Link(server.post(batch)),
        }
    }
}

impl Future for Completion {
    type Output = Completed;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completed> {
        match self.get_mut() {
            Self::Bare(completion) => Pin::new(completion).poll(context),
            Self::Link(completion) => Pin::new(completion).poll(context),
        }
    }
}
