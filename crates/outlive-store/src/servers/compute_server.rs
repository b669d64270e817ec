//! The process of a compute server.

use super::recover::region_of;
use super::{Phase, Store, StoreError};
use crate::verbs::{Mapped, ServerId};
use core::fmt;
use core::time::Duration;
use outlive::membership::{Instance, Process};
use outlive::segment::Segment;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The number of a compute server, 1 to 65,535, which its latches name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(u16);

impl ProcessId {
    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "compute server {}", self.0)
    }
}

/// A compute server, until it is dropped.
///
/// Its threads share it. It keeps the segments that it connected to mapped, also those of servers
/// that have died: other threads may be using them.
#[derive(Debug)]
pub struct ComputeServer {
    store: Store,
    id: ProcessId,
    connections: Mutex<HashMap<(ServerId, u64), Mapped>>,
    process: Process,
}

impl ComputeServer {
    pub(super) fn join(store: &Store) -> Result<Self, StoreError> {
        let process = store.join("compute server")?;
        let configuration = store.configuration();
        let id = configuration.join_compute(process.instance());
        let id = id.ok_or(StoreError::NoProcessId {
            process_ids: configuration.process_ids(),
        })?;
        Ok(Self {
            store: store.clone(),
            id: ProcessId(id),
            connections: Mutex::default(),
            process,
        })
    }

    /// Its process id.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The process, whose [events](Process::events) report deaths.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Connects to a memory server. The connection is a copy of the one that other threads have.
    ///
    /// # Errors
    /// If the server is not live, or its segment cannot be opened.
    pub fn connect(&self, server: ServerId) -> Result<Mapped, StoreError> {
        let configuration = self.store.configuration();
        let not_live = |phase| StoreError::NotLive { server, phase };
        let entry = configuration.memory_server(server);
        let entry = entry.ok_or_else(|| not_live(Phase::Free))?;
        if entry.phase != Phase::Live {
            return Err(not_live(entry.phase));
        }
        let mut connections = { self.connections.lock() }.unwrap_or_else(PoisonError::into_inner);
        let key = (server, entry.incarnation);
        if let Some(connection) = connections.get(&key) {
            return Ok(*connection);
        }
        let path = self.store.segment_path(&entry);
        let segment = Segment::open(&path);
        let segment = segment.map_err(|source| StoreError::OpenSegment { server, source })?;
        let found = region_of(segment).filter(|(_, region)| *region == entry.region);
        let Some((first, region)) = found else {
            return Err(StoreError::ForeignSegment { server, path });
        };
        let liveness = configuration.liveness(&entry);
        let connection = Mapped::new(segment.memory(), server, first, region, liveness);
        connections.insert(key, connection);
        Ok(connection)
    }

    /// Revokes the rights of the compute server `id`, and waits at most `timeout`: see the
    /// [module](super). Returns the instance of its process.
    ///
    /// # Errors
    /// If `id` has no live compute server, is this one, or could not be fenced in time. After
    /// [`NotFenced`](StoreError::NotFenced) the request stays, and may be completed later.
    ///
    /// # Crash
    /// The fence is requested or not.
    pub fn revoke(&self, id: u16, timeout: Duration) -> Result<Instance, StoreError> {
        let entries = { self.store.configuration() }.compute_servers();
        let entry = entries.into_iter().find(|it| it.id == id && !it.has_failed);
        let entry = entry.filter(|it| it.owner != self.process.instance());
        let server = entry.ok_or(StoreError::NoSuchProcess { id })?.owner;
        let generations = self.process.tables().generations();
        let mut events = self.process.events();
        self.process.fence(server)?;
        let until = Instant::now() + timeout;
        while !generations.is_gone(server) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StoreError::NotFenced {
                    server,
                    waited: timeout,
                });
            }
            events.wait_for_unless(left, || generations.is_gone(server));
        }
        Ok(server)
    }
}

impl Drop for ComputeServer {
    fn drop(&mut self) {
        { self.store.configuration() }.leave_compute(self.id.0);
    }
}
