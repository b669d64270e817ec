//! A store that exists for the duration of a measurement.

use super::subject::{Subject, not_sound};
use crate::StudyError;
use crate::scratch::fresh_path;
use outlive_store::protocol::{Protocol, release_stray};
use outlive_store::servers::{ComputeServer, MemoryServer, Store, StoreOptions};
use outlive_store::verbs::block_on;
use outlive_store::workloads::{Benchmark, Books, bytes_per_server};
use std::path::{Path, PathBuf};

/// The properties of a store.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub protocol: Protocol,
    /// The largest number of compute servers with logs at one time, the loader included.
    pub compute_servers: u16,
    /// The number of coordinators of each.
    pub coordinators: u16,
    pub books: Books,
}

/// The numbers of memory servers and of replicas: those of the thesis's fail-over experiments.
pub const MEMORY_SERVERS: u16 = 2;
pub const REPLICAS: u16 = 2;

/// A store in /dev/shm with a filled benchmark. This process is a compute server of it, which has
/// filled the tables and recovers dead ones. A drop destroys the store.
#[derive(Debug)]
pub struct ScratchStore {
    path: PathBuf,
    subject: Subject,
    store: Store,
    // Dropped in this order.
    compute: Option<ComputeServer>,
    memory: Vec<MemoryServer>,
    benchmark: Option<Benchmark>,
}

impl ScratchStore {
    /// Creates a store whose memory servers are members of this process, and fills the tables.
    pub fn new(subject: Subject, shape: Shape) -> Result<Self, StudyError> {
        let mut scratch = Self::without_memory(subject, shape)?;
        for _ in 0..MEMORY_SERVERS {
            let bytes = scratch.bytes_per_server();
            scratch.memory.push(scratch.store.serve_memory(bytes)?);
        }
        scratch.fill(shape.books)?;
        Ok(scratch)
    }

    /// Creates a store without memory servers.
    pub fn without_memory(subject: Subject, shape: Shape) -> Result<Self, StudyError> {
        let path = fresh_path("store");
        let options = StoreOptions::new()
            .replicas(REPLICAS)
            .protocol(shape.protocol)
            .compute_servers(shape.compute_servers, shape.coordinators)
            .log_slot(subject.log_slot(shape.protocol))
            .members(128);
        let store = Store::create(&path, options)?;
        Ok(Self {
            path,
            subject,
            store,
            compute: None,
            memory: Vec::new(),
            benchmark: None,
        })
    }

    /// The number of bytes that each memory server serves.
    pub fn bytes_per_server(&self) -> u64 {
        let sizes = self.store.configuration().sizes();
        let tables = (self.subject).tables(sizes.log_areas, sizes.coordinators);
        bytes_per_server(&tables, MEMORY_SERVERS, REPLICAS)
    }

    /// Adds a memory server of this process.
    pub fn serve_memory(&mut self) -> Result<(), StudyError> {
        let bytes = self.bytes_per_server();
        self.memory.push(self.store.serve_memory(bytes)?);
        Ok(())
    }

    /// Joins as a compute server, and fills the tables.
    pub fn fill(&mut self, books: Books) -> Result<(), StudyError> {
        let compute = self.compute.insert(self.store.join_compute()?);
        let benchmark = self.subject.open(compute, books)?;
        let mut coordinator = (compute.worker()?.coordinator()).map_err(StudyError::void_of)?;
        benchmark.load(&mut coordinator)?;
        self.benchmark = Some(benchmark);
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The compute server of this process.
    pub fn compute(&self) -> &ComputeServer {
        self.compute.as_ref().expect("the tables are filled")
    }

    pub fn benchmark(&self) -> &Benchmark {
        self.benchmark.as_ref().expect("the tables are filled")
    }

    /// Releases the stray latches that earlier kills have left.
    pub fn release_stray(&self) -> Result<(), StudyError> {
        let tables = self.store.configuration().tables().map(|it| it.number);
        let worker = self.compute().worker()?;
        block_on(release_stray(&worker, tables, |_, _| true))
            .map(drop)
            .map_err(StudyError::void_of)
    }

    /// Checks the benchmark's invariant and all tables. `counted` is the sum of the changes that
    /// programs have counted. No transaction runs at the same time.
    ///
    /// # Errors
    /// [`StudyError::Void`] if the store is not consistent.
    pub fn check(&self, counted: i64) -> Result<(), StudyError> {
        let name = self.subject.kind.name();
        let mut coordinator =
            (self.compute().worker()?.coordinator()).map_err(StudyError::void_of)?;
        let surplus = self.benchmark().surplus(&mut coordinator, counted)?;
        if surplus != 0 {
            let what = format_args!("the benchmark's sum is off by {surplus}");
            return Err(not_sound(name, what));
        }
        let checked = self.store.check().map_err(StudyError::void_of)?;
        let is_sound = checked.problems.is_empty() && checked.held == 0 && checked.lost() == 0;
        match is_sound {
            true => Ok(()),
            false => Err(not_sound(name, format_args!("{checked:?}"))),
        }
    }
}

impl Drop for ScratchStore {
    fn drop(&mut self) {
        self.compute = None;
        self.memory.clear();
        // A drop cannot report an error; `outlive store destroy` removes a store that stays.
        let destroyed = Store::destroy(&self.path);
        debug_assert!(
            std::thread::panicking() || destroyed.is_ok(),
            "something of {} remains: {destroyed:?}",
            self.path.display()
        );
    }
}
