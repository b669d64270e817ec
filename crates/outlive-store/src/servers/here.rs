//! The state that the members of a process share, if they joined by clones of one handle: the
//! mappings of memory servers, and the link of recoveries.

use super::recover::region_of;
use super::{MemoryEntry, Phase, Store, StoreError};
use crate::protocol::Recovered;
use crate::verbs::{Link, Mapped, ServerId};
use core::time::Duration;
use outlive::segment::Segment;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A recovery of a dead compute server's logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecovery {
    /// The process id of the dead compute server.
    pub process: u16,
    /// The result.
    pub recovered: Recovered,
    /// The duration, from the first verb to the last one. Detection and the claim of the logs are
    /// not in it.
    pub duration: Duration,
}

/// The state that a handle of a store and its clones share.
#[derive(Debug, Default)]
pub(super) struct Here {
    /// Each segment to which this process has connected stays mapped, because other threads may be
    /// using it. Recoveries find it mapped.
    mappings: Mutex<HashMap<(ServerId, u64), Mapped>>,
    recoveries: Mutex<Recoveries>,
}

#[derive(Debug, Default)]
struct Recoveries {
    link: Option<Link>,
    last: Option<LogRecovery>,
}

impl Here {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn recoveries(&self) -> MutexGuard<'_, Recoveries> {
        { self.recoveries.lock() }.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Sets an emulated link, over which the members of this process recover the logs of dead
    /// compute servers from now on, for measurements. Without one, the default, verbs access mapped
    /// memory when they are posted.
    pub fn set_recovery_link(&self, link: Option<Link>) {
        self.here().recoveries().link = link;
    }

    pub(super) fn recovery_link(&self) -> Option<Link> {
        self.here().recoveries().link
    }

    /// The last recovery of logs that a member of this process has completed.
    pub fn last_recovery(&self) -> Option<LogRecovery> {
        self.here().recoveries().last
    }

    pub(super) fn note_recovery(&self, recovery: LogRecovery) {
        self.here().recoveries().last = Some(recovery);
    }

    /// Returns the mapped memory of a server. All connections of this process share the mapping.
    pub(super) fn mapped(&self, server: ServerId) -> Result<Mapped, StoreError> {
        let not_live = |phase| StoreError::NotLive { server, phase };
        let entry = self.configuration().memory_server(server);
        let entry = entry.ok_or_else(|| not_live(Phase::Free))?;
        if entry.phase != Phase::Live {
            return Err(not_live(entry.phase));
        }
        let mappings = self.here().mappings.lock();
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
