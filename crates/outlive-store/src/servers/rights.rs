//! The rights of a compute server to the memory servers, which its connections and workers share.

use super::epochs::attempt_before;
use super::recover::region_of;
use super::{Phase, ProcessId, Store, StoreError};
use crate::protocol::{LogArea, Member, Slot, View};
use crate::tables::{TableLayout, TransactionId};
use crate::verbs::{
    Batch, Completed, Connection, Emulated, Link, Mapped, Region, ServerId, VerbError,
};
use core::cell::Cell;
use core::future::Ready;
use outlive::membership::Process;
use outlive::segment::Segment;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A process id and the membership that it rests on. Connections share the rights, so that no other
/// process receives the id while one of them can post.
#[derive(Debug)]
pub(super) struct Rights {
    pub store: Store,
    pub id: ProcessId,
    pub process: Process,
    /// Each segment to which the server has connected stays mapped.
    connections: Mutex<HashMap<(ServerId, u64), Mapped>>,
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
            connections: Mutex::default(),
            area: OnceLock::new(),
            slots: Mutex::default(),
            has_latches: AtomicBool::new(false),
        }
    }

    /// Returns the mapped memory of a server. All connections to the server share the mapping.
    pub fn map(&self, server: ServerId) -> Result<Mapped, StoreError> {
        let store = &self.store;
        let configuration = store.configuration();
        let not_live = |phase| StoreError::NotLive { server, phase };
        let entry = configuration.memory_server(server);
        let entry = entry.ok_or_else(|| not_live(Phase::Free))?;
        if entry.phase != Phase::Live {
            return Err(not_live(entry.phase));
        }
        let mut connections = { self.connections.lock() }.unwrap_or_else(PoisonError::into_inner);
        let key = (server, entry.incarnation);
        if let Some(mapped) = connections.get(&key) {
            return Ok(*mapped);
        }
        let (mapped, _) = store.map(&entry)?;
        connections.insert(key, mapped);
        Ok(mapped)
    }

    /// Returns the log area of this compute server, with live log servers in place of those that
    /// are lost in `epoch`. Claims an area at the first call.
    pub fn log(&self, epoch: u64) -> Result<LogArea, StoreError> {
        // While the slots are locked, no other thread replaces log servers.
        let mut slots = { self.slots.lock() }.unwrap_or_else(PoisonError::into_inner);
        let configuration = self.store.configuration();
        if let Some(area) = self.area.get() {
            let mut failed = None;
            let clear = |server, area: &LogArea| {
                let cleared = self.clear_log(server, area);
                cleared.map_err(|error| failed = Some(error)).is_ok()
            };
            let area = configuration.replace_log_servers(*area, epoch, clear);
            return failed.map_or(Ok(area), Err);
        }
        let owner = self.process.instance();
        let claimed = configuration.claim_log_area(owner, self.id.get())?;
        let (number, area) = claimed.ok_or(StoreError::TooManyComputeServers {
            most: configuration.sizes().log_areas,
        })?;
        // The slots of an area that is free hold no entries on live servers. Cleared all the same,
        // because an entry of another life of this process id would be recovered as its own.
        self.clear_logs(&area)?;
        let before = attempt_before(owner);
        // The slot that was returned last is used first.
        slots.extend((0..area.coordinators).rev().map(|it| Slot::new(it, before)));
        self.area.get_or_init(|| number);
        Ok(area)
    }

    /// Returns the number of the log area. A coordinator exists, so it is claimed.
    fn area(&self) -> u16 {
        *self.area.get().expect("a worker has claimed the log area")
    }

    fn clear_logs(&self, area: &LogArea) -> Result<(), StoreError> {
        { area.servers.iter() }.try_for_each(|server| self.clear_log(*server, area))
    }

    fn clear_log(&self, server: ServerId, area: &LogArea) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        for coordinator in 0..area.coordinators {
            batch.write(area.checksum(coordinator), &[0]);
        }
        match self.map(server) {
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
        // If a panic has ended this, the id keeps its owner, and the next member that joins
        // recovers its logs and marks it as failed.
        if std::thread::panicking() {
            return;
        }
        let configuration = self.store.configuration();
        let owner = self.process.instance();
        if *self.has_latches.get_mut() {
            // No connection exists any more, so this server recovers itself as a survivor would. If
            // that fails, the next member that joins does it.
            configuration.fail_compute(self.id.get(), owner, &self.store);
            return;
        }
        if self.area.get().is_some()
            && let Ok(area) = self.log(0)
        {
            // Entries that remain are those of committed transactions. The next owner of the area
            // clears them.
            let _ = self.clear_logs(&area);
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
            mapped: rights.map(server)?,
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
            self.rights.has_latches.store(true, Ordering::Relaxed);
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

/// The store as a worker of a compute server sees it.
#[derive(Debug)]
pub struct Members {
    rights: Arc<Rights>,
}

impl Members {
    pub(super) fn new(rights: &Arc<Rights>) -> Self {
        Self {
            rights: Arc::clone(rights),
        }
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

impl View for Members {
    type Connection = MappedServer;

    fn connect(&self, server: ServerId) -> Result<MappedServer, VerbError> {
        MappedServer::new(&self.rights, server).map_err(|error| verb_error(server, &error))
    }

    fn layout(&self, table: u8) -> Option<TableLayout> {
        self.rights.store.configuration().layout(table)
    }

    fn has_failed(&self, process: u16) -> bool {
        self.rights.store.configuration().has_failed(process)
    }

    fn epoch(&self) -> u64 {
        self.rights.store.configuration().epoch()
    }

    fn lost(&self, epoch: u64) -> Vec<ServerId> {
        self.rights.store.configuration().lost(epoch).collect()
    }

    fn record_commit(&self, transaction: TransactionId) {
        self.rights.store.configuration().record_commit(transaction);
    }
}

impl Member for Members {
    fn is_over(&self, epoch: u64) -> bool {
        self.rights.store.configuration().is_over(epoch)
    }

    fn is_settled(&self, epoch: u64) -> bool {
        self.rights.store.configuration().is_settled(epoch)
    }

    fn is_under_recovery(&self, process: u16) -> bool {
        let configuration = self.rights.store.configuration();
        let generations = self.rights.process.tables().generations();
        let owner = configuration.owner_of(process);
        owner.is_some_and(|owner| generations.is_gone(owner)) && !configuration.has_failed(process)
    }

    fn stragglers(&self, epoch: u64) -> Vec<TransactionId> {
        let own = self.rights.process.instance();
        let all = self.rights.store.configuration().stragglers(epoch);
        all.filter(|(process, _)| *process != own)
            .map(|(_, it)| it)
            .collect()
    }

    fn fence(&self, transaction: TransactionId) {
        let owner = self
            .rights
            .store
            .configuration()
            .owner_of(transaction.process());
        let Some(server) = owner.filter(|it| *it != self.rights.process.instance()) else {
            return;
        };
        tracing::warn!(%server, %transaction, "a commit delays an epoch; its server is fenced");
        if let Err(error) = self.rights.process.fence(server) {
            tracing::error!(%server, %error, "a compute server is not fenced");
        }
    }

    fn enter_commit(&self, transaction: TransactionId, epoch: u64) -> bool {
        let configuration = self.rights.store.configuration();
        configuration.enter_commit(self.rights.area(), transaction, epoch)
    }

    fn leave_commit(&self, transaction: TransactionId, is_committed: bool) {
        let configuration = self.rights.store.configuration();
        configuration.leave_commit(self.rights.area(), transaction, is_committed);
    }

    fn log(&self, epoch: u64) -> Result<LogArea, VerbError> {
        self.rights.log(epoch).map_err(|error| {
            tracing::error!(%error, "lost log servers are not replaced");
            VerbError::Unreachable {
                server: ServerId(u16::MAX),
            }
        })
    }

    fn take_slot(&self) -> Option<Slot> {
        let mut slots = { self.rights.slots.lock() }.unwrap_or_else(PoisonError::into_inner);
        slots.pop()
    }

    fn leave_latches(&self) {
        // Relaxed: the last owner of the rights reads it when no other thread has them.
        self.rights.has_latches.store(true, Ordering::Relaxed);
    }

    fn return_slot(&self, slot: Slot) {
        let mut slots = { self.rights.slots.lock() }.unwrap_or_else(PoisonError::into_inner);
        slots.push(slot);
    }
}

/// The store as a worker behind emulated links sees it.
#[derive(Debug)]
pub struct Behind {
    members: Members,
    link: Link,
    seed: Cell<u64>,
}

impl Behind {
    pub(super) fn new(members: Members, link: Link, seed: u64) -> Self {
        Self {
            members,
            link,
            seed: Cell::new(seed),
        }
    }
}

impl View for Behind {
    type Connection = Emulated<MappedServer>;

    fn connect(&self, server: ServerId) -> Result<Self::Connection, VerbError> {
        let connection = self.members.connect(server)?;
        self.seed.set(self.seed.get().wrapping_add(1));
        Ok(connection.behind(self.link, self.seed.get()))
    }

    fn layout(&self, table: u8) -> Option<TableLayout> {
        self.members.layout(table)
    }

    fn has_failed(&self, process: u16) -> bool {
        self.members.has_failed(process)
    }

    fn epoch(&self) -> u64 {
        self.members.epoch()
    }

    fn lost(&self, epoch: u64) -> Vec<ServerId> {
        self.members.lost(epoch)
    }

    fn record_commit(&self, transaction: TransactionId) {
        self.members.record_commit(transaction);
    }
}

impl Member for Behind {
    fn is_over(&self, epoch: u64) -> bool {
        self.members.is_over(epoch)
    }

    fn is_settled(&self, epoch: u64) -> bool {
        self.members.is_settled(epoch)
    }

    fn is_under_recovery(&self, process: u16) -> bool {
        self.members.is_under_recovery(process)
    }

    fn stragglers(&self, epoch: u64) -> Vec<TransactionId> {
        self.members.stragglers(epoch)
    }

    fn fence(&self, transaction: TransactionId) {
        self.members.fence(transaction);
    }

    fn enter_commit(&self, transaction: TransactionId, epoch: u64) -> bool {
        self.members.enter_commit(transaction, epoch)
    }

    fn leave_commit(&self, transaction: TransactionId, is_committed: bool) {
        self.members.leave_commit(transaction, is_committed);
    }

    fn log(&self, epoch: u64) -> Result<LogArea, VerbError> {
        self.members.log(epoch)
    }

    fn take_slot(&self) -> Option<Slot> {
        self.members.take_slot()
    }

    fn leave_latches(&self) {
        self.members.leave_latches();
    }

    fn return_slot(&self, slot: Slot) {
        self.members.return_slot(slot);
    }
}

pub(super) fn close(segment: Segment) {
    if let Err(error) = segment.close() {
        tracing::warn!(%error, "a segment that is not used was not closed");
    }
}

impl Store {
    /// Maps the region of a memory server.
    pub(super) fn map(&self, entry: &super::MemoryEntry) -> Result<(Mapped, Segment), StoreError> {
        let (configuration, server) = (self.configuration(), entry.id);
        let path = self.segment_path(entry);
        let opened = Segment::open(&path);
        // The server may have left or died in between.
        let now = configuration.memory_server(server).unwrap_or(*entry);
        if now != *entry {
            if let Ok(segment) = opened {
                close(segment);
            }
            let phase = now.phase;
            return Err(StoreError::NotLive { server, phase });
        }
        let segment = opened.map_err(|source| StoreError::OpenSegment { server, source })?;
        let found = region_of(segment).filter(|(_, region)| *region == entry.region);
        let Some((first, region)) = found else {
            close(segment);
            return Err(StoreError::ForeignSegment { server, path });
        };
        let liveness = configuration.liveness(entry);
        let mapped = Mapped::new(segment.memory(), server, first, region, liveness);
        Ok((mapped, segment))
    }
}
