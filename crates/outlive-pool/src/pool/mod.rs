//! A pool in this process: the pod, the segments of servers, clients and readers.

mod client;
mod files;
mod guard;
mod here;
mod joined;
mod mover;
mod options;
mod rebalance;
mod rebuild;
mod recover;
mod server;
mod status;
mod write_guard;

pub use client::{Client, Placement, Redundancy};
pub use guard::{Guard, Reader};
pub use mover::{Drained, MoveBudget};
pub use options::PoolOptions;
pub use rebalance::{PlannedMove, Rebalanced, Rebalancer};
pub use rebuild::Rebuilt;
pub use server::Server;
pub use status::{PoolStatus, ServerStatus};
pub use write_guard::WriteGuard;

use crate::coherent::Coherent;
use crate::error::PoolError;
use files::Files;
use here::Here;
pub(crate) use here::View;
use joined::{Entries, Joined};
use outlive::membership::ProcessOptions;
use outlive::pod::Pod;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A memory pool that this process has opened. Clones share the mappings.
///
/// ```
/// use outlive_pool::{Placement, Pool, PoolOptions};
///
/// # let path = format!("/dev/shm/outlive-doc-pool-{}", std::process::id());
/// # {
/// let pool = Pool::create(&path, PoolOptions::new().slice_bytes(64 << 10))?;
/// let server = pool.serve(1 << 20, 0)?; // in a process of its own
///
/// let client = Pool::open(&path)?.join()?; // in another process
/// let address = client.allocate(100_000, Placement::Any)?;
/// let reader = client.reader()?;
/// reader.write(address, b"outlives")?;
/// let mut bytes = [0; 8];
/// reader.read(address, &mut bytes)?;
/// assert_eq!(&bytes, b"outlives");
///
/// client.free(address)?;
/// assert!(reader.read(address, &mut bytes).is_err()); // `PoolError::Freed`
/// # drop(reader);
/// # drop((client, server));
/// # }
/// # Pool::destroy(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pod: Pod,
    coherent: Coherent,
    files: Files,
    here: Here,
}

impl Pool {
    /// Creates a pool without servers in a new file at `path`, and opens it.
    ///
    /// # Errors
    /// If a file exists at `path`, there is not enough space, or an option is out of its range.
    ///
    /// # Crash
    /// No pool exists, an incomplete one (which [`destroy`](Self::destroy) removes), or the pool.
    pub fn create(path: impl AsRef<Path>, options: PoolOptions) -> Result<Self, PoolError> {
        Self::of(options.create(path.as_ref())?)
    }

    /// Opens the pool at `path`.
    ///
    /// # Errors
    /// If no pool is at `path`, or it is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, PoolError> {
        Self::of(Pod::open(path)?)
    }

    /// Opens the pool at `path` to read its [status](Self::status). See [`Pod::observe`].
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn observe(path: impl AsRef<Path>) -> Result<Self, PoolError> {
        Self::of(Pod::observe(path)?)
    }

    fn of(pod: Pod) -> Result<Self, PoolError> {
        let segment = pod.segment();
        let tables = pod.structures();
        let (at, bytes) = tables.map_or_else(Default::default, |area| (area.offset, area.size));
        let opened = Coherent::open(segment.memory(), at, bytes);
        let coherent = opened.map_err(|why| PoolError::NotAPool {
            path: segment.path().into(),
            why,
        })?;
        let inner = Inner {
            files: Files::of(segment),
            here: Here::new(segment.memory()),
            pod,
            coherent,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Returns the pod of the pool.
    pub fn pod(&self) -> &Pod {
        &self.inner.pod
    }

    /// Returns the tables of the pool, for proofs and tests: their operations can free memory that
    /// other code uses.
    #[doc(hidden)]
    pub fn coherent(&self) -> Coherent {
        self.inner.coherent
    }

    /// Joins the pool as a client, on a host of its own.
    ///
    /// # Errors
    /// If the process cannot join.
    ///
    /// # Crash
    /// A survivor frees the client's allocations that were not kept.
    pub fn join(&self) -> Result<Client, PoolError> {
        Ok(Client::new(self.join_process("pool client")?))
    }

    /// Joins the pool as a server on a host of its own, which lends `shared` bytes to the pool and
    /// keeps `private` bytes, both rounded up to whole slices. The segment has its largest size
    /// from the start, and is never truncated.
    ///
    /// # Errors
    /// If the process cannot join, or there is not enough memory.
    ///
    /// # Crash
    /// A survivor declares the server dead.
    pub fn serve(&self, shared: u64, private: u64) -> Result<Server, PoolError> {
        Server::join(self, shared, private)
    }

    fn join_process(&self, name: &str) -> Result<Joined, PoolError> {
        let options = ProcessOptions::on_own_host().name(name);
        let (pool, entries) = (self.clone(), Arc::<Entries>::default());
        let handler = recover::RecoverPool {
            pool: pool.clone(),
            entries: Arc::clone(&entries),
        };
        let pod = &self.inner.pod;
        let process = pod.join_with(options, |others| others.room(handler))?;
        entries.belong_to(process.instance());
        self.inner.here.add(process.instance());
        self.recover_departed(&mut entries.lock(), &process);
        Ok(Joined {
            pool,
            process,
            entries,
        })
    }

    /// Removes the pool at `path`: the segments of its servers and its pod. Processes that use it
    /// keep their mappings. Returns the path of a side file that such processes still use:
    /// `outlive pod clean --remove` removes it when they have ended.
    ///
    /// # Errors
    /// If no pod is at `path`, or its file cannot be removed.
    pub fn destroy(path: impl AsRef<Path>) -> Result<Option<PathBuf>, PoolError> {
        let path = path.as_ref();
        // A symbolic link is refused below. The files of the pool that it leads to remain.
        if !path.is_symlink()
            && let Ok(pool) = Self::observe(path)
        {
            pool.inner.files.remove_all();
        }
        Ok(Pod::destroy_forcibly(path)?)
    }
}
