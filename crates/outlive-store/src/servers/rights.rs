//! The rights of a compute server to the memory servers, which its connections and workers share.

use super::epochs::attempt_before;
use super::{ProcessId, Store, StoreError};
use crate::protocol::{LogArea, Slot};
use crate::verbs::{
    Batch, Completed, Connection, Emulated, Link, Mapped, Region, ServerId, VerbError,
};
use core::future::Ready;
use outlive::membership::Process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A process id and the membership that it rests on. Connections share the rights, so that no other
/// process receives the id while one of them can post.
#[derive(Debug)]
pub(super) struct Rights {
    pub store: Store,
    pub id: ProcessId,
    pub process: Process,
    /// The number of the log area.
    area: OnceLock<u16>,
    /// The log slots that no coordinator uses.
    slots: Mutex<Vec<Slot>>,
    /// Whether latches with the process id may remain.
    has_latches: AtomicBool,
}

impl Rights {
    pub fn new(store: Store, id: ProcessId, process: Process) -> Self {
        Self {
            store,
            id,
            process,
            area: OnceLock::new(),
            slots: Mutex::default(),
            has_latches: AtomicBool::new(false),
        }
    }

    /// Returns the log slots that no coordinator uses.
    pub fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        { self.slots.lock() }.unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that latches with the process id may remain.
    pub fn leave_latches(&self) {
        // Relaxed: the last owner of the rights reads it when no other thread has them, and a wait
        // for an epoch reads it repeatedly.
        self.has_latches.store(true, Ordering::Relaxed);
    }

    /// Returns whether latches with the process id may remain.
    pub fn has_left_latches(&self) -> bool {
        // Relaxed: the caller has waited for a second, and asks again later.
        self.has_latches.load(Ordering::Relaxed)
    }

    /// Returns the log area of this compute server, and claims one at the first call.
    pub fn log(&self) -> Result<LogArea, StoreError> {
        let mut slots = self.slots();
        let configuration = self.store.configuration();
        if let Some(area) = self.area.get() {
            return Ok(configuration.log_area(*area));
        }
        let owner = self.process.instance();
        let claimed = configuration.claim_log_area(owner, self.id.get())?;
        let (number, area) = claimed.ok_or(StoreError::TooManyComputeServers {
            most: configuration.sizes().log_areas,
        })?;
        // A free area has no entries on live servers. Its slots are cleared nevertheless, because a
        // recovery would take an entry of an earlier incarnation of this process id for one of this
        // incarnation.
        let cleared = { area.servers.iter() }.try_for_each(|it| self.clear_log(*it, &area));
        if let Err(error) = cleared {
            // A server has one area at most, so that its recovery finds all its logs.
            configuration.abandon_logs(owner, self.id.get());
            return Err(error);
        }
        let before = attempt_before(owner);
        // The slot that was returned last is used first.
        slots.extend(
            { 0..area.coordinators }
                .rev()
                .map(|it| Slot::new(it, before)),
        );
        self.area.get_or_init(|| number);
        Ok(area)
    }

    /// Replaces the log servers that are lost in `epoch`, and returns the log area.
    pub fn complete_log(&self, epoch: u64) -> Result<LogArea, VerbError> {
        // While the slots are locked, no other thread replaces log servers.
        let _slots = self.slots();
        let clear = |server, area: &LogArea| {
            let cleared = self.clear_log(server, area);
            cleared.map_err(|error| verb_error(server, &error))
        };
        { self.store.configuration() }.replace_log_servers(self.area(), epoch, clear)
    }

    /// Returns the number of the log area. A coordinator exists, so it is claimed.
    pub fn area(&self) -> u16 {
        *self.area.get().expect("a worker has claimed the log area")
    }

    fn clear_log(&self, server: ServerId, area: &LogArea) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        for coordinator in 0..area.coordinators {
            for checksum in area.checksums(coordinator) {
                batch.write(checksum, &[0]);
            }
        }
        match self.store.mapped(server) {
            // If the server dies now, its logs are lost.
            Ok(mapped) => drop(mapped.post(batch).into_inner()),
            Err(StoreError::NotLive { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        // During a panic, the id keeps its owner, and the next member that joins recovers its logs
        // and marks it as failed.
        if std::thread::panicking() {
            return;
        }
        let configuration = self.store.configuration();
        let owner = self.process.instance();
        if *self.has_latches.get_mut() {
            // No connection exists any more, so no posted verb takes effect later, and this server
            // recovers itself as a survivor would. If that fails, the next member that joins does.
            configuration.fail_compute(self.id.get(), owner, &self.store);
            return;
        }
        if let Some(area) = self.area.get() {
            let area = configuration.log_area(*area);
            // Entries that remain are those of committed transactions. The next owner of the area
            // clears them.
            let _ = { area.servers.iter() }.try_for_each(|it| self.clear_log(*it, &area));
        }
        configuration.leave_compute(self.id.get(), owner);
    }
}

/// A connection of a [`ComputeServer`](super::ComputeServer) to a memory server.
#[derive(Clone, Debug)]
pub struct MappedServer {
    mapped: Mapped,
    rights: Arc<Rights>,
}

impl MappedServer {
    pub(super) fn new(rights: &Arc<Rights>, server: ServerId) -> Result<Self, StoreError> {
        Ok(Self {
            mapped: rights.store.mapped(server)?,
            rights: Arc::clone(rights),
        })
    }

    /// Returns the connection behind an emulated link. `seed` determines the jitter.
    pub fn behind(self, link: Link, seed: u64) -> Emulated<Self> {
        Emulated::new(self, link, seed)
    }
}

impl Drop for MappedServer {
    fn drop(&mut self) {
        // A thread that panics may leave latches of its own.
        if std::thread::panicking() {
            self.rights.leave_latches();
        }
    }
}

impl Connection for MappedServer {
    type Completion = Ready<Completed>;

    fn server(&self) -> ServerId {
        self.mapped.server()
    }

    fn region(&self) -> Region {
        self.mapped.region()
    }

    #[inline]
    fn post(&self, batch: Batch) -> Self::Completion {
        self.mapped.post(batch)
    }
}

/// Returns the error of a verb to a server to which the process cannot connect.
pub(super) fn verb_error(server: ServerId, error: &StoreError) -> VerbError {
    match error {
        StoreError::NotLive { .. } => VerbError::ServerDied { server },
        error => {
            tracing::error!(%server, %error, "a live memory server cannot be reached");
            VerbError::Unreachable { server }
        }
    }
}
