//! The process of a compute server.

use super::recover::region_of;
use super::{Phase, Store, StoreError};
use crate::verbs::{Batch, Completed, Connection, Emulated, Link, Mapped, Region, ServerId};
use core::fmt;
use core::future::Ready;
use core::time::Duration;
use outlive::membership::{GroupEvents, Instance, Process};
use outlive::segment::Segment;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of a compute server, 1 to 65,535, which its latch words will contain.
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

/// A compute server, which leaves when it and all its connections are dropped.
///
/// The threads of its process share it. Each segment to which it has connected stays mapped, also
/// after the memory server's death, because other threads may be using it.
#[derive(Debug)]
pub struct ComputeServer {
    rights: Arc<Rights>,
    connections: Mutex<HashMap<(ServerId, u64), Mapped>>,
}

/// A process id and the membership that it rests on. Connections share the rights, so that no other
/// process receives the id while one of them can post.
#[derive(Debug)]
struct Rights {
    store: Store,
    id: ProcessId,
    process: Process,
}

impl Drop for Rights {
    fn drop(&mut self) {
        // After a panic, latches may be held. The id keeps its owner, and the next member that
        // joins marks it as failed.
        if !std::thread::panicking() {
            let configuration = self.store.configuration();
            configuration.leave_compute(self.id.0, self.process.instance());
        }
    }
}

/// A connection of a [`ComputeServer`] to a memory server.
#[derive(Clone, Debug)]
pub struct MappedServer {
    mapped: Mapped,
    _rights: Arc<Rights>,
}

impl MappedServer {
    /// Returns the connection behind an emulated link. `seed` determines the jitter.
    pub fn behind(self, link: Link, seed: u64) -> Emulated<Self> {
        Emulated::new(self, link, seed)
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

impl ComputeServer {
    pub(super) fn join(store: &Store) -> Result<Self, StoreError> {
        let process = store.join("compute server")?;
        let configuration = store.configuration();
        let id = configuration.join_compute(process.instance());
        let id = id.ok_or(StoreError::NoProcessId {
            process_ids: configuration.process_ids(),
        })?;
        Ok(Self {
            rights: Arc::new(Rights {
                store: store.clone(),
                id: ProcessId(id),
                process,
            }),
            connections: Mutex::default(),
        })
    }

    /// The process id.
    pub fn id(&self) -> ProcessId {
        self.rights.id
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.rights.store
    }

    /// The instance of the server's process.
    pub fn instance(&self) -> Instance {
        self.rights.process.instance()
    }

    /// The events of the store's members from now on: their deaths, for example.
    pub fn events(&self) -> GroupEvents {
        self.rights.process.events()
    }

    /// Connects to a memory server. Connections of one compute server share a mapping.
    ///
    /// # Errors
    /// If the server is not live, or its segment cannot be opened or is not the registered one.
    pub fn connect(&self, server: ServerId) -> Result<MappedServer, StoreError> {
        let store = &self.rights.store;
        let configuration = store.configuration();
        let not_live = |phase| StoreError::NotLive { server, phase };
        let entry = configuration.memory_server(server);
        let entry = entry.ok_or_else(|| not_live(Phase::Free))?;
        if entry.phase != Phase::Live {
            return Err(not_live(entry.phase));
        }
        let mut connections = { self.connections.lock() }.unwrap_or_else(PoisonError::into_inner);
        let with_rights = |mapped| MappedServer {
            mapped,
            _rights: Arc::clone(&self.rights),
        };
        let key = (server, entry.incarnation);
        if let Some(mapped) = connections.get(&key) {
            return Ok(with_rights(*mapped));
        }
        let path = store.segment_path(&entry);
        let opened = Segment::open(&path);
        // The server may have left or died in between.
        let now = configuration.memory_server(server).unwrap_or(entry);
        if now != entry {
            if let Ok(segment) = opened {
                close(segment);
            }
            return Err(not_live(now.phase));
        }
        let segment = opened.map_err(|source| StoreError::OpenSegment { server, source })?;
        let found = region_of(segment).filter(|(_, region)| *region == entry.region);
        let Some((first, region)) = found else {
            close(segment);
            return Err(StoreError::ForeignSegment { server, path });
        };
        let liveness = configuration.liveness(&entry);
        let mapped = Mapped::new(segment.memory(), server, first, region, liveness);
        connections.insert(key, mapped);
        Ok(with_rights(mapped))
    }

    /// Revokes the rights of the compute server `id`, and waits for that for at most `timeout`: see
    /// the [module](super). Returns the instance of the revoked server's process.
    ///
    /// If that server runs in the operating system process of the caller, the caller dies with it.
    ///
    /// # Errors
    /// If no live compute server has the id, the id is the caller's own, or the server could not be
    /// fenced in time. After [`NotFenced`](StoreError::NotFenced) the request remains, and the
    /// fence may be completed later.
    ///
    /// # Crash
    /// The fence is requested, or not.
    pub fn revoke(&self, id: u16, timeout: Duration) -> Result<Instance, StoreError> {
        let process = &self.rights.process;
        let mut entries = { self.store().configuration() }.compute_servers();
        let entry = entries.find(|it| it.id == id && !it.has_failed);
        let entry = entry.filter(|it| it.owner != process.instance());
        let server = entry.ok_or(StoreError::NoSuchProcess { id })?.owner;
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
        Ok(server)
    }
}

fn close(segment: Segment) {
    if let Err(error) = segment.close() {
        tracing::warn!(%error, "a segment that is not used was not closed");
    }
}
