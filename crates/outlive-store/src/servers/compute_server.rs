//! The process of a compute server.

use super::members::{Behind, Connector, Direct, Members};
use super::rights::{MappedServer, Rights};
use super::{Store, StoreError, TableError};
use crate::protocol::{Table, Worker};
use crate::tables::Geometry;
use crate::verbs::{Link, ServerId};
use bytemuck::Pod;
use core::fmt;
use core::time::Duration;
use outlive::membership::{Instance, Process};
use std::rc::Rc;
use std::sync::Arc;

/// The number of a compute server, 1 to 65,535, which its latch words will contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(u16);

impl ProcessId {
    /// Returns the number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "compute server {}", self.0)
    }
}

/// A compute server, which leaves when it and all its connections are dropped.
///
/// The threads of its process share it. Each segment to which it has connected stays mapped, even
/// after the memory server's death, because other threads may be using it.
#[derive(Debug)]
pub struct ComputeServer {
    rights: Arc<Rights>,
}

/// The number of addresses that a worker caches.
const CACHED_ADDRESSES_PER_WORKER: usize = 1 << 17;

impl ComputeServer {
    /// The number of partitions of a table.
    pub(crate) const PARTITIONS: u8 = 16;

    pub(super) fn join(store: &Store) -> Result<Self, StoreError> {
        let process = store.join("compute server")?;
        let configuration = store.configuration();
        if configuration.is_stopping(&process) {
            return Err(StoreError::Stopping);
        }
        let recycle = || {
            let recycled = store.recycle();
            recycled.unwrap_or_else(|error| {
                tracing::warn!(%error, "failed process ids could not be recycled");
                0
            })
        };
        if configuration.is_short_of_ids() {
            recycle();
        }
        let join = || configuration.join_compute(process.instance());
        // Others may have received the free ids since.
        let id = join().or_else(|| (recycle() > 0).then(join).flatten());
        let id = id.ok_or(StoreError::NoProcessId {
            process_ids: configuration.process_ids(),
        })?;
        // The stop may have begun since, and not have found the id.
        if configuration.is_stopping(&process) {
            configuration.leave_compute(id, process.instance());
            return Err(StoreError::Stopping);
        }
        Ok(Self {
            rights: Arc::new(Rights::new(store.clone(), ProcessId(id), process)),
        })
    }

    /// Returns the process id.
    pub fn id(&self) -> ProcessId {
        self.rights.id
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.rights.store
    }

    /// Returns the instance of the server's process.
    pub fn instance(&self) -> Instance {
        self.rights.process.instance()
    }

    /// Returns whether `instance` has left the store or is known to be dead.
    pub fn is_gone(&self, instance: Instance) -> bool {
        let generations = self.rights.process.tables().generations();
        generations.is_gone(instance)
    }

    pub(super) fn process(&self) -> &Process {
        &self.rights.process
    }

    /// Connects to a memory server. Connections of one compute server share a mapping.
    ///
    /// # Errors
    /// If the server is not live, or its segment cannot be opened or is not the registered one.
    pub fn connect(&self, server: ServerId) -> Result<MappedServer, StoreError> {
        MappedServer::new(&self.rights, server)
    }

    /// Opens the table `name` with values of type `T`, or creates it for `keys` keys.
    ///
    /// # Errors
    /// [`StoreError::Table`], with the reason.
    ///
    /// # Crash
    /// The table exists or does not.
    pub fn table<T: Pod>(&self, name: &str, keys: u64) -> Result<Table<T>, StoreError> {
        let number = self.table_of_bytes(name, keys, size_of::<T>() as u64)?;
        Ok(Table::new(number))
    }

    /// Opens the table `name` with values of `bytes` bytes, rounded up to words, or creates it for
    /// `keys` keys. Returns its number, for accesses to the words of its values, such as
    /// [`read_words`](crate::protocol::Transaction::read_words).
    ///
    /// # Errors
    /// [`StoreError::Table`], with the reason.
    ///
    /// # Crash
    /// The table exists or does not.
    pub fn table_of_bytes(&self, name: &str, keys: u64, bytes: u64) -> Result<u8, StoreError> {
        let words = bytes.div_ceil(8);
        let is_possible = (1..=Geometry::MAX_KEYS).contains(&keys)
            && (1..=Geometry::MAX_VALUE_WORDS.into()).contains(&words);
        if !is_possible {
            let name = name.into();
            return Err(TableError::BadSize { name, keys, bytes }.into());
        }
        let configuration = self.store().configuration();
        let most = configuration.log_area(0).value_words() as u64 * 8;
        if words * 8 > most {
            let (name, bytes) = (name.into(), words * 8);
            return Err(TableError::ValueTooLarge { name, bytes, most }.into());
        }
        let geometry = Geometry::for_keys(keys, words as u32, Self::PARTITIONS);
        loop {
            match configuration.create_table(self.instance(), name, geometry) {
                Ok(number) => return Ok(number),
                // If the other process dies, its recovery releases the catalogue.
                Err(TableError::Busy) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns a worker for the transactions of the calling thread.
    ///
    /// # Errors
    /// If no memory server is live, or too many compute servers have logs.
    pub fn worker(&self) -> Result<Rc<Worker<Members>>, StoreError> {
        self.worker_over(Direct)
    }

    /// Returns a worker behind emulated links. `seed` determines their jitter.
    ///
    /// # Errors
    /// Returns the errors of [`worker`](Self::worker).
    pub fn worker_behind(
        &self,
        link: Link,
        seed: u64,
    ) -> Result<Rc<Worker<Members<Behind>>>, StoreError> {
        self.worker_over(Behind::new(link, seed))
    }

    /// Returns a worker with connections that `connector` makes, for example over an emulated link
    /// or with a counter of verbs.
    ///
    /// # Errors
    /// Returns the errors of [`worker`](Self::worker).
    pub fn worker_over<C: Connector>(
        &self,
        connector: C,
    ) -> Result<Rc<Worker<Members<C>>>, StoreError> {
        let log = self.rights.log()?;
        let members = Members::new(&self.rights, connector);
        let addresses = CACHED_ADDRESSES_PER_WORKER;
        Ok((self.store()).worker(members, self.id().0, log, addresses))
    }

    /// Revokes the rights of the compute server whose process is `server`, and waits for that for
    /// at most `timeout`: see the [module](super). The instance distinguishes it from the next
    /// owner of its process id; [`Store::status`] lists both.
    ///
    /// If that server runs in the operating system process of the caller, the caller dies with it.
    ///
    /// # Errors
    /// If no live compute server is `server`, it is the caller, or it could not be fenced in time.
    /// After [`NotFenced`](StoreError::NotFenced) the request remains, and the fence may be
    /// completed later.
    ///
    /// # Crash
    /// The fence is requested, or not.
    pub fn revoke(&self, server: Instance, timeout: Duration) -> Result<(), StoreError> {
        let process = &self.rights.process;
        let mut entries = { self.store().configuration() }.compute_servers();
        let is_live = entries.any(|it| it.owner == server && !it.has_failed);
        if !is_live || server == process.instance() {
            return Err(StoreError::NoSuchProcess { server });
        }
        let generations = process.tables().generations();
        let mut events = process.events();
        let begin = std::time::Instant::now();
        process.fence(server)?;
        while !generations.is_gone(server) {
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(StoreError::NotFenced {
                    server,
                    waited: timeout,
                });
            }
            let left = left.min(Duration::from_secs(3600));
            events.wait_for_unless(left, || generations.is_gone(server));
        }
        Ok(())
    }
}
