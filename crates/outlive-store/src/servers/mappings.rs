//! The mappings of memory servers, which the members of a process share if they joined by clones of
//! one handle.

use super::recover::region_of;
use super::{MemoryEntry, Phase, Store, StoreError};
use crate::verbs::{Mapped, ServerId};
use outlive::segment::Segment;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The mappings that a handle of a store and its clones share.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    /// Each segment to which this process has connected stays mapped, because other threads may be
    /// using it. Recoveries find it mapped.
    mapped: Mutex<HashMap<(ServerId, u64), Mapped>>,
}

impl Mappings {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
}

impl Store {
    /// Returns the mapped memory of a server. All connections of this process share the mapping.
    pub(super) fn mapped(&self, server: ServerId) -> Result<Mapped, StoreError> {
        let not_live = |phase| StoreError::NotLive { server, phase };
        let entry = self.configuration().memory_server(server);
        let entry = entry.ok_or_else(|| not_live(Phase::Free))?;
        if entry.phase != Phase::Live {
            return Err(not_live(entry.phase));
        }
        let mappings = self.mappings().mapped.lock();
        let mut mappings = mappings.unwrap_or_else(PoisonError::into_inner);
        let key = (server, entry.incarnation);
        if let Some(mapped) = mappings.get(&key) {
            return Ok(*mapped);
        }
        let mapped = self.map(&entry)?;
        mappings.insert(key, mapped);
        Ok(mapped)
    }

    /// Maps the region of a memory server.
    fn map(&self, entry: &MemoryEntry) -> Result<Mapped, StoreError> {
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
        Ok(Mapped::new(
            segment.memory(),
            server,
            first,
            region,
            liveness,
        ))
    }
}

fn close(segment: Segment) {
    if let Err(error) = segment.close() {
        tracing::warn!(%error, "a segment that is not used was not closed");
    }
}
