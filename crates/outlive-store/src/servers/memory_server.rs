//! The process of a memory server.

use super::recover::region_of;
use super::{MemoryEntry, Store, StoreError};
use crate::verbs::{Region, ServerId};
use outlive::membership::{GroupEvents, Instance, Process};
use outlive::segment::{AreaKind, Segment};
use std::os::unix::fs::PermissionsExt;

/// A memory server. When it is dropped, it leaves, and its memory is lost.
///
/// Verbs use no processor time of its process. An operating system process may run several memory
/// servers, which die together.
#[derive(Debug)]
pub struct MemoryServer {
    store: Store,
    entry: MemoryEntry,
    segment: Segment,
    process: Process,
}

/// The number of bytes of a segment that are reserved for the data outside its region.
const BESIDE_REGION: u64 = 64 << 10;

impl MemoryServer {
    pub(super) fn join(store: &Store, bytes: u64) -> Result<Self, StoreError> {
        let most = 1 << 42;
        if bytes > most {
            return Err(StoreError::Impossible {
                what: "bytes of memory in a server",
                asked: bytes,
                least: 1,
                most,
            });
        }
        let logs = store.configuration().log_bytes();
        let bytes = bytes.max(1).next_multiple_of(4096) + logs;
        let process = store.join("memory server")?;
        let mut segment = None;
        let create = |id, incarnation| -> Result<Region, StoreError> {
            let metadata = { store.pod().segment().file() }.metadata();
            // The mode of the store's file, or 0600 if that cannot be read.
            let mode = metadata.map_or(0o600, |it| it.permissions().mode() & 0o777);
            let created = Segment::builder()
                .size(bytes.saturating_add(BESIDE_REGION))
                .mode(mode)
                .area(AreaKind::Payload, bytes)
                .create(store.files().path(id, incarnation))?;
            segment = Some(created);
            let (_, region) = region_of(created).expect("the area was requested");
            Ok(region)
        };
        let configuration = store.configuration();
        let joined = configuration.join_memory(process.instance(), store, create)?;
        let (Some(entry), Some(segment)) = (joined, segment) else {
            return Err(StoreError::TooManyMemoryServers {
                most: configuration.sizes().memory_servers,
            });
        };
        Ok(Self {
            store: store.clone(),
            entry,
            segment,
            process,
        })
    }

    /// Returns the number of the server.
    pub fn id(&self) -> ServerId {
        self.entry.id
    }

    /// Returns the memory that the server has registered.
    pub fn region(&self) -> Region {
        self.entry.region
    }

    /// Returns the instance of the server's process.
    pub fn instance(&self) -> Instance {
        self.process.instance()
    }

    /// Returns the events of the store's members from now on: their deaths, for example.
    pub fn events(&self) -> GroupEvents {
        self.process.events()
    }
}

impl Drop for MemoryServer {
    fn drop(&mut self) {
        { self.store.configuration() }.leave_memory(&self.entry, &self.store);
        if let Err(error) = self.segment.close() {
            tracing::warn!(%error, "the segment of a memory server was not closed");
        }
    }
}
