//! A store: the pod with the configuration.

use super::mappings::Mappings;
#[cfg(feature = "measurements")]
use super::measured::Measured;
use super::recover::{Files, RecoverServers, remove_file};
use super::sizes::MAX_LOG_SLOT;
use super::{
    ComputeEntry, ComputeServer, Configuration, MemoryEntry, MemoryServer, Missing, Phase, Sizes,
    StoreError, TableEntry,
};
#[cfg(feature = "proofs")]
use crate::protocol::Policy;
use crate::protocol::{Counts, LogArea, Outcome, Protocol, Recovered, View, Worker};
use crate::tables::TransactionId;
use core::time::Duration;
use outlive::membership::{Instance, Process, ProcessOptions, Settings};
use outlive::pod::{Pod, PodOptions};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
#[cfg(feature = "proofs")]
use std::sync::OnceLock;

/// The options of a new store.
///
/// ```
/// use outlive_store::servers::StoreOptions;
/// let options = StoreOptions::new().replicas(3).process_ids(1000);
/// ```
#[derive(Clone, Debug)]
#[must_use = "options create nothing until Store::create() is called"]
pub struct StoreOptions {
    sizes: Sizes,
    members: u32,
    mode: u32,
    poisons: bool,
    /// The interval of heartbeats, and the suspicion time.
    heartbeats: Option<(Duration, Duration)>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreOptions {
    /// Returns the options of a store with 2 replicas of each object, 64 memory servers in its
    /// life, 65,535 process ids, 32 tables, logs for 16 compute servers of 64 coordinators with log
    /// slots of 4 KiB, and 256 members.
    pub fn new() -> Self {
        Self {
            sizes: Sizes {
                replicas: 2,
                memory_servers: 64,
                process_ids: Configuration::<outlive::memory::Native>::MAX_PROCESS_IDS,
                tables: 32,
                log_areas: 16,
                coordinators: 64,
                log_slot_bytes: 4096,
                protocol: Protocol::Pandora,
            },
            members: 256,
            mode: 0o600,
            poisons: false,
            heartbeats: None,
        }
    }

    /// Sets the number of replicas of each object, f + 1: the store survives the death of f memory
    /// servers at a time.
    pub fn replicas(mut self, replicas: u16) -> Self {
        self.sizes.replicas = replicas;
        self
    }

    /// Sets the maximum number of memory servers in the life of the store, up to 256. Each one that
    /// is lost while tables name it uses a number for good. The store can have one and a half times
    /// as many restorations, and 127 at most.
    pub fn memory_servers(mut self, servers: u16) -> Self {
        self.sizes.memory_servers = servers;
        self
    }

    /// Sets the number of process ids. Each live compute server and each one that has failed uses
    /// one.
    pub fn process_ids(mut self, ids: u16) -> Self {
        self.sizes.process_ids = ids;
        self
    }

    /// Sets the maximum number of tables.
    pub fn tables(mut self, tables: u16) -> Self {
        self.sizes.tables = tables;
        self
    }

    /// Sets the maximum number of compute servers that execute transactions at one time, and of
    /// coordinators in each of them. Each memory server reserves a log slot for each coordinator.
    pub fn compute_servers(mut self, servers: u16, coordinators: u16) -> Self {
        self.sizes.log_areas = servers;
        self.sizes.coordinators = coordinators;
        self
    }

    /// Sets the number of bytes of a coordinator's log slot, rounded up to a multiple of 64: the
    /// maximum for the addresses and old values of the objects that a transaction writes.
    pub fn log_slot(mut self, bytes: u64) -> Self {
        // A size beyond the range is refused by `Store::create`.
        self.sizes.log_slot_bytes = bytes.min(1 << 40).next_multiple_of(64);
        self
    }

    /// Sets the protocol. Default: [`Pandora`](Protocol::Pandora). [`Ford`](Protocol::Ford) and
    /// [`LogALatch`](Protocol::LogALatch) need up to five times the [log slot](Self::log_slot) for
    /// the same transactions: their recovery has half of each slot, and each object has a header of
    /// its own.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.sizes.protocol = protocol;
        self
    }

    /// Sets the maximum number of hosts, processes and threads that use the store at one time. A
    /// server counts as a host and a process, and each of its threads that enters the pod as one.
    pub fn members(mut self, members: u32) -> Self {
        self.members = members;
        self
    }

    /// Sets the interval at which servers beat and are polled, and the time without a beat after
    /// which a server is suspected and fenced. Default: those of the core, 50 ms, 100 ms and 2 s.
    ///
    /// On one operating system the kernel reports the end of a process at once, so heartbeats find
    /// only servers that are stopped or hang. Servers that run are fenced as well if they, or the
    /// whole machine, pause for longer than `suspicion`: pauses of 29 to 52 ms were seen on 2 busy
    /// cores. [`CoreDetector::fences`](super::CoreDetector::fences) counts the fences.
    ///
    /// A fenced memory server is lost like one that has died. If all f + 1 memory servers with the
    /// replicas of an object do not beat for `suspicion`, all of them are fenced, and the object is
    /// lost. A pause of the whole machine can do that, so `suspicion` must be longer than such
    /// pauses.
    pub fn heartbeats(mut self, heartbeat: Duration, suspicion: Duration) -> Self {
        self.heartbeats = Some((heartbeat, suspicion));
        self
    }

    /// Sets the permissions of the store's files. Default: 0600.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode & 0o777;
        self
    }

    /// Sets whether the memory of a dead memory server is overwritten with
    /// [poison](crate::verbs::POISON) before its death is reported, for tests.
    pub fn poison_dead(mut self, poison: bool) -> Self {
        self.poisons = poison;
        self
    }
}

/// The status of a store at one time.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    /// The epoch: the number of memory servers that were lost, and of steps of restorations.
    pub epoch: u64,
    /// The protocol of the transactions.
    pub protocol: Protocol,
    /// The number of replicas of each object.
    pub replicas: u16,
    /// The partitions with fewer live replicas than `replicas`.
    pub missing: Missing,
    /// The number of process ids.
    pub process_ids: u16,
    /// The number of recoveries of compute servers that have begun.
    pub recoveries: u64,
    /// The numbers of transactions that recoveries have rolled forward and back. The other fields
    /// are 0.
    pub recovered: Recovered,
    /// The totals of events in transactions; workers add to them from time to time.
    pub counts: Counts,
    /// The memory servers that exist or have died.
    pub memory: Vec<MemoryEntry>,
    /// For each entry of `memory`, the number of replicas of partitions on it, complete or not.
    pub placed: Vec<u64>,
    /// The compute servers that exist or have failed.
    pub compute: Vec<ComputeEntry>,
    /// The tables of the store.
    pub tables: Vec<TableEntry>,
}

/// A store that this process has opened.
#[derive(Clone, Debug)]
pub struct Store {
    pod: Pod,
    configuration: Configuration,
    files: Files,
    mappings: Arc<Mappings>,
    #[cfg(feature = "measurements")]
    measured: Measured,
    /// The policy of all workers, if it is not the sound one.
    #[cfg(feature = "proofs")]
    policy: Arc<OnceLock<Policy>>,
}

impl Store {
    /// Creates a store without servers in a new file at `path`, and opens it.
    ///
    /// # Errors
    /// If a file exists at `path`, there is not enough space, or an option is out of its range.
    ///
    /// # Crash
    /// No store exists, an incomplete one (which `outlive store destroy` removes), or the store.
    pub fn create(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self, StoreError> {
        let path = path.as_ref();
        if let Some((what, asked, least, most)) = options.sizes.out_of_range() {
            return Err(StoreError::Impossible {
                what,
                asked,
                least,
                most,
            });
        }
        let (asked, least) = (options.sizes.log_slot_bytes, options.sizes.least_log_slot());
        let has_slots = options.sizes.log_areas > 0 && options.sizes.coordinators > 0;
        if has_slots && asked < least {
            return Err(StoreError::Impossible {
                what: "bytes in a log slot",
                asked,
                least,
                most: MAX_LOG_SLOT,
            });
        }
        let is_memfd = path.as_os_str().as_encoded_bytes().starts_with(b"memfd:");
        let is_device = path.metadata().is_ok_and(|it| !it.is_file()) || path.starts_with("/sys");
        if is_memfd || is_device {
            return Err(StoreError::NotAFile { path: path.into() });
        }
        let bytes = options.sizes.bytes();
        // The membership's tables need about 9 KiB for each member, and additionally 1 MiB.
        let size = bytes + u64::from(options.members) * (12 << 10) + (4 << 20);
        let mut pod = PodOptions::new();
        if let Some((heartbeat, suspicion)) = options.heartbeats {
            pod = pod.settings(Settings {
                heartbeat,
                poll: heartbeat,
                suspicion,
                uid: rustix::process::geteuid().as_raw(),
                ..Settings::default()
            });
        }
        let pod = pod
            .size(size)
            .ids(options.members)
            .groups(0)
            .mode(options.mode)
            .without_heap()
            .structures(bytes, move |memory, area| {
                Configuration::create(memory, area.offset, options.sizes, options.poisons);
            });
        Self::of(Pod::create(path, pod)?)
    }

    /// Opens the store at `path`.
    ///
    /// # Errors
    /// If no store is at `path`, or it is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::of(Pod::open(path)?)
    }

    /// Opens the store at `path` to read its [status](Self::status). See [`Pod::observe`].
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open).
    pub fn observe(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::of(Pod::observe(path)?)
    }

    fn of(pod: Pod) -> Result<Self, StoreError> {
        let segment = pod.segment();
        let tables = pod.structures();
        let (at, bytes) = tables.map_or_else(Default::default, |area| (area.offset, area.size));
        let opened = Configuration::open(segment.memory(), at, bytes);
        let configuration = opened.map_err(|source| StoreError::NotAStore {
            path: segment.path().into(),
            source,
        })?;
        Ok(Self {
            files: Files::of(segment, configuration),
            mappings: Mappings::new(),
            #[cfg(feature = "measurements")]
            measured: Measured::default(),
            #[cfg(feature = "proofs")]
            policy: Arc::default(),
            pod,
            configuration,
        })
    }

    /// Returns the pod of the store.
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Returns the configuration.
    pub fn configuration(&self) -> Configuration {
        self.configuration
    }

    pub(super) fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    #[cfg(feature = "measurements")]
    pub(super) fn measured(&self) -> &Measured {
        &self.measured
    }

    /// Sets the policy of the workers that this handle and its clones make from now on: those of
    /// transactions, recoveries, restorations, and scans for stray latches. Later calls have no
    /// effect.
    #[cfg(feature = "proofs")]
    pub fn set_policy(&self, policy: Policy) {
        self.policy.get_or_init(|| policy);
    }

    /// Returns a worker, as [`Worker::new`] does.
    pub(super) fn worker<V: View>(
        &self,
        view: V,
        process: u16,
        log: LogArea,
        addresses: usize,
    ) -> Rc<Worker<V>> {
        let worker = Worker::new(view, process, log, addresses);
        #[cfg(feature = "proofs")]
        if let Some(policy) = self.policy.get() {
            worker.set_policy(*policy);
        }
        worker
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the file of the segment of the memory server that `entry` describes.
    pub fn segment_path(&self, entry: &MemoryEntry) -> PathBuf {
        self.files.path(entry.id, entry.incarnation)
    }

    /// Returns the outcome of an attempt of a transaction, for a client that has received no answer
    /// from its coordinator, but has received the [attempt's id](crate::protocol::Transaction::id)
    /// and the [instance](ComputeServer::instance) of the compute server. (A later compute server
    /// may have the same process id, and so the same ids of attempts.)
    ///
    /// After the compute server has failed or left, the outcome of the last commit of each
    /// coordinator is known, until another compute server receives its log area.
    pub fn outcome(&self, server: Instance, attempt: TransactionId) -> Outcome {
        self.configuration().outcome(server, attempt)
    }

    /// Returns the current status of the store: its servers, tables and totals.
    pub fn status(&self) -> StoreStatus {
        let configuration = self.configuration;
        let memory: Vec<MemoryEntry> = configuration.memory_servers().collect();
        StoreStatus {
            epoch: configuration.epoch(),
            protocol: configuration.sizes().protocol,
            replicas: configuration.replicas(),
            missing: configuration.missing(),
            process_ids: configuration.process_ids(),
            recoveries: configuration.recoveries(),
            recovered: configuration.recovered(),
            counts: configuration.counts(),
            placed: { memory.iter() }
                .map(|it| configuration.replicas_in(it.id))
                .collect(),
            memory,
            compute: configuration.compute_servers().collect(),
            tables: configuration.tables().collect(),
        }
    }

    /// Joins the pod as a process on a host of its own, and recovers the entries of departed
    /// servers with recovered logs.
    pub(super) fn join(&self, name: &str) -> Result<Process, StoreError> {
        let options = ProcessOptions::on_own_host().name(name);
        let handler = RecoverServers(self.clone());
        let process = self.pod.join_with(options, |others| others.room(handler))?;
        self.recover_settled(&process);
        // Remove the files that a survivor could not remove.
        for entry in self.configuration.memory_servers() {
            if entry.phase == Phase::Dead && entry.owner.is_none() {
                self.files.remove(entry.id, entry.incarnation);
            }
        }
        Ok(process)
    }

    /// Recovers, as `process`, the entries of departed servers whose logs were recovered by a
    /// member of the pod that is not one of the store.
    pub(super) fn recover_settled(&self, process: &Process) {
        let (generations, logs) = (process.tables().generations(), self.pod.logs());
        let is_settled = |owner: Instance| {
            let has_log = owner.id < logs.capacity() && logs.of(owner.id).owner() == Some(owner);
            // A log without a claimant is recovered. While it has a claimant, that member, or the
            // member that recovers it, recovers the entries.
            generations.is_gone(owner) && !(has_log && logs.of(owner.id).claimant().is_some())
        };
        self.configuration
            .recover_settled(process.instance(), is_settled, self);
    }

    /// Joins the store as a memory server with a region of `bytes` bytes, rounded up to whole
    /// pages.
    ///
    /// # Errors
    /// If the process cannot join, or its segment cannot be created.
    ///
    /// # Crash
    /// A survivor declares the server dead, or, if it was not live, removes its segment.
    pub fn serve_memory(&self, bytes: u64) -> Result<MemoryServer, StoreError> {
        MemoryServer::join(self, bytes)
    }

    /// Joins the store as a compute server.
    ///
    /// # Errors
    /// If the process cannot join, no process id is free, or the compute servers are being stopped.
    ///
    /// # Crash
    /// The process id is marked as failed, or was not assigned.
    pub fn join_compute(&self) -> Result<ComputeServer, StoreError> {
        ComputeServer::join(self)
    }

    /// Removes the store at `path`: the segments of its memory servers and its pod. Processes that
    /// use it keep their mappings. If the store is too damaged to be opened, the segments remain.
    /// Returns the path of a side file that such processes still use. `outlive pod clean --remove`
    /// removes it when they have ended.
    ///
    /// # Errors
    /// If no pod is at `path`, or its file cannot be removed.
    pub fn destroy(path: impl AsRef<Path>) -> Result<Option<PathBuf>, StoreError> {
        let path = path.as_ref();
        // A symbolic link is refused below. The files of the store that it leads to remain.
        if !path.is_symlink()
            && let Ok(store) = Self::observe(path)
        {
            let files = store.files.all();
            files.iter().for_each(|file| remove_file(file, false));
        }
        Ok(Pod::destroy_forcibly(path)?)
    }
}
