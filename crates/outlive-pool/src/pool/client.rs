//! Clients: processes that allocate, and free.

use super::joined::{Held, Joined};
use super::{Pool, Reader};
use crate::coherent::{MOST_REPLICAS, Place, ServerId};
use crate::data::Counter;
use crate::error::PoolError;
use crate::layout::{Address, Use};
use crate::objects::ObjectStore;
use outlive::membership::{GroupEvents, Instance, Process};
use outlive::memory::Offset;
use std::sync::Arc;

/// The servers that get the slices of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The server that is this process.
    Here,
    /// This server.
    There(ServerId),
    /// All servers, slice by slice in turn.
    Spread,
    /// Any server that has free memory, one after the other.
    #[default]
    Any,
}

/// The redundancy of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Redundancy {
    /// The slices on a server that dies are [lost](PoolError::Lost).
    #[default]
    None,
    /// Each slice is on this number of servers, 1 to 3; 1 is the same as [`None`](Self::None). The
    /// slice is lost if all of them die before lost replicas are [rebuilt](Client::rebuild).
    Replicas(u8),
}

/// A process that uses a pool. It may be shared by threads.
///
/// Its allocations belong to it until they are [kept](Self::keep): when the client is dropped or
/// dies, they are freed.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) joined: Arc<Joined>,
    server: Option<ServerId>,
}

impl Client {
    pub(super) fn new(joined: Joined) -> Self {
        Self {
            joined: Arc::new(joined),
            server: None,
        }
    }

    pub(super) fn on(self, server: ServerId) -> Self {
        let server = Some(server);
        Self { server, ..self }
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Pool {
        &self.joined.pool
    }

    /// Returns the instance of the process.
    pub fn instance(&self) -> Instance {
        self.joined.process.instance()
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> Arc<super::joined::Entries> {
        Arc::clone(&self.joined.entries)
    }

    /// Returns the events of the pool's members from now on: their deaths, for example.
    pub fn events(&self) -> GroupEvents {
        self.joined.process.events()
    }

    /// Allocates `bytes` bytes of zeros, rounded up to whole slices, in one run of addresses. Waits
    /// for other threads of this process that allocate, keep, free or recover, and for no other
    /// process.
    ///
    /// The memory has no redundancy: the slices on a server that dies are
    /// [lost](PoolError::Lost).
    ///
    /// # Errors
    /// If there are not enough addresses or memory, or the server of the placement is not live.
    ///
    /// # Crash
    /// A survivor frees the memory.
    pub fn allocate(&self, bytes: u64, placement: Placement) -> Result<Address, PoolError> {
        self.allocate_with(bytes, placement, Redundancy::None)
    }

    /// As [`allocate`](Self::allocate), with redundancy. The placement is that of the first replica
    /// of each slice, which readers read; the others are on other servers.
    ///
    /// ```
    /// use outlive_pool::{Placement, Pool, PoolOptions, Redundancy};
    ///
    /// # let path = format!("/dev/shm/outlive-doc-replicas-{}", std::process::id());
    /// # {
    /// # let pool = Pool::create(&path, PoolOptions::new().slice_bytes(64 << 10))?;
    /// let servers = [pool.serve(1 << 20, 0)?, pool.serve(1 << 20, 0)?];
    /// let client = pool.join()?;
    /// let replicas = Redundancy::Replicas(2);
    /// let address = client.allocate_with(1 << 20, Placement::Any, replicas)?;
    /// let reader = client.reader()?;
    /// reader.write(address, b"on both servers.")?;
    /// # drop(reader);
    /// # drop((client, servers));
    /// # }
    /// # Pool::destroy(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As `allocate`, if there are fewer live servers than replicas, or if the number of replicas
    /// is not 1 to 3.
    ///
    /// # Crash
    /// A survivor frees the memory.
    pub fn allocate_with(
        &self,
        bytes: u64,
        placement: Placement,
        redundancy: Redundancy,
    ) -> Result<Address, PoolError> {
        let kind = match redundancy {
            Redundancy::None | Redundancy::Replicas(1) => Use::Plain,
            Redundancy::Replicas(replicas) if (2..=3).contains(&replicas) => {
                Use::Replicated(replicas)
            }
            Redundancy::Replicas(replicas) => {
                return Err(PoolError::Impossible {
                    what: "replicas of a slice",
                    asked: replicas.into(),
                    least: 1,
                    most: MOST_REPLICAS as u64,
                });
            }
        };
        self.allocate_for(kind, bytes, placement)
    }

    /// Returns the server of a placement; `None` if any server may get the slices.
    pub(crate) fn server_of(&self, placement: Placement) -> Result<Option<ServerId>, PoolError> {
        let server = match placement {
            Placement::Here => self.server.ok_or(PoolError::NotAServer)?,
            Placement::There(server) => server,
            Placement::Spread | Placement::Any => return Ok(None),
        };
        self.pool().live(server).map(|entry| Some(entry.id))
    }

    pub(crate) fn allocate_for(
        &self,
        kind: Use,
        bytes: u64,
        placement: Placement,
    ) -> Result<Address, PoolError> {
        let pool = self.pool();
        let place = match placement {
            Placement::Here => Place::At(self.server.ok_or(PoolError::NotAServer)?),
            Placement::There(server) => Place::At(server),
            Placement::Spread => Place::Spread,
            Placement::Any => Place::Any,
        };
        let slices = bytes.div_ceil(pool.coherent().sizes().slice_bytes()).max(1);
        let mut held = self.joined.entries.lock();
        self.joined.collect(&mut held);
        let allocate = |held: &mut Held| {
            let _mapped = pool.inner.here.hold();
            let coherent = pool.coherent();
            let allocated = coherent.allocate(self.instance(), slices, place, kind, pool);
            allocated.map_err(|failed| {
                held.remaining.extend(failed.remaining);
                *failed.error
            })
        };
        let allocated = allocate(&mut held);
        let is_full = matches!(
            allocated,
            Err(PoolError::OutOfMemory { .. } | PoolError::OutOfAddresses { .. })
        );
        // Members that left, or destroyed objects, may have memory that is not freed yet.
        if is_full && self.joined.recover(&mut held) {
            return allocate(&mut held);
        }
        allocated
    }

    /// Makes an allocation of this client independent of it: it exists until it is freed, by any
    /// client. One compare-and-swap in shared memory.
    ///
    /// # Errors
    /// If the address is not the first one of an allocation of this client.
    ///
    /// # Crash
    /// The allocation is kept, or a survivor frees it.
    pub fn keep(&self, address: Address) -> Result<(), PoolError> {
        let _held = self.joined.entries.lock();
        { self.pool().coherent() }.keep(self.instance(), address)
    }

    /// Frees the allocation at `address`, which belongs to this client or was kept. From now on the
    /// address is [freed](PoolError::Freed). If readers still use a slice of it, its memory is
    /// released by a later call of [`collect`](Self::collect).
    ///
    /// # Errors
    /// If the address was freed, is not the first one, or belongs to another client.
    ///
    /// # Crash
    /// A survivor completes the call, or it had no effect.
    pub fn free(&self, address: Address) -> Result<(), PoolError> {
        let mut held = self.joined.entries.lock();
        let run = { self.pool().coherent() }.begin_free(self.instance(), address)?;
        held.remaining.push(run);
        self.joined.collect(&mut held);
        Ok(())
    }

    /// Gives an allocation of this client to the object with its contents at `holder`.
    pub(crate) fn seal(&self, address: Address, holder: Offset) -> Result<(), PoolError> {
        let _held = self.joined.entries.lock();
        { self.pool().coherent() }.seal(self.instance(), address, holder)
    }

    /// Frees the memory of an object. This client owns the memory, or the object was destroyed,
    /// which the caller ensures.
    pub(crate) fn free_of_object(&self, address: Address) -> Result<(), PoolError> {
        let mut held = self.joined.entries.lock();
        let run = { self.pool().coherent() }.begin_free_object(self.instance(), address)?;
        held.remaining.push(run);
        self.joined.collect(&mut held);
        Ok(())
    }

    pub(crate) fn process(&self) -> &Process {
        &self.joined.process
    }

    /// Returns whether the process has died or left.
    pub(crate) fn is_gone(&self, process: Instance) -> bool {
        self.process().tables().generations().is_gone(process)
    }

    /// Opens the leased objects of the pool for the calling thread.
    ///
    /// # Errors
    /// If the pool has no free id for the thread, or the directory of objects is damaged.
    pub fn objects(&self) -> Result<ObjectStore, PoolError> {
        ObjectStore::open(self.clone())
    }

    /// Releases the freed memory of this client, that of members that left, if no reader uses it
    /// any more, that of destroyed objects, and the mappings of lost servers. Returns the number of
    /// allocations of this client that readers still use. Reads the owner of every slice; waits for
    /// no other process.
    ///
    /// Allocations and frees release the memory that this client has freed. A process that does
    /// neither calls this now and then: it may have the memory of dead members.
    pub fn collect(&self) -> usize {
        let mut held = self.joined.entries.lock();
        self.joined.recover(&mut held);
        self.joined.collect(&mut held);
        held.remaining.len()
    }

    /// Returns a reader for one thread.
    ///
    /// # Errors
    /// If the pool has its maximum number of readers.
    ///
    /// # Crash
    /// A survivor ends the reader's guards.
    pub fn reader(&self) -> Result<Reader, PoolError> {
        Reader::new(self.clone())
    }

    /// Returns the counter `index` in the coherent region, from 0; `None` if the pool has fewer.
    pub fn counter(&self, index: u16) -> Option<Counter> {
        Counter::new(self.pool().coherent(), index)
    }
}
