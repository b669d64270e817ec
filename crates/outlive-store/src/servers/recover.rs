//! The recovery of a dead server's entries, and the files of the memory servers' segments.

use super::Configuration;
use crate::verbs::{Mapped, Region, ServerId};
use outlive::memory::Native;
use outlive::recovery::{RecoverError, RecoverRoom, Recovering};
use outlive::segment::{AreaKind, Segment};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The files of the segments of the store at a path.
#[derive(Clone, Debug)]
pub(super) struct Files {
    store: PathBuf,
    configuration: Configuration,
}

impl Files {
    pub fn of(store: &Path, configuration: Configuration) -> Self {
        Self {
            store: store.to_owned(),
            configuration,
        }
    }

    /// The file of the segment of `server`'s `incarnation`.
    pub fn path(&self, server: ServerId, incarnation: u64) -> PathBuf {
        let mut path = OsString::from(&self.store);
        path.push(format!(".memory-{}.{incarnation}", server.0));
        path.into()
    }
}

/// Returns the region of `segment`, whose remote key is a part of its uuid.
pub(super) fn region_of(segment: Segment) -> Option<(outlive::memory::Offset, Region)> {
    let area = segment.area(AreaKind::Payload)?;
    let region = Region {
        key: segment.uuid().as_u128() as u64,
        bytes: area.size,
    };
    Some((area.offset, region))
}

impl super::Segments for Files {
    fn remove(&self, server: ServerId, incarnation: u64) {
        let path = self.path(server, incarnation);
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "the segment of a memory server was not removed");
            }
        }
    }

    fn poison(&self, server: ServerId, incarnation: u64, region: Region) {
        let path = self.path(server, incarnation);
        let segment = match Segment::open(&path) {
            Ok(segment) => segment,
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "the segment of a dead server was not poisoned");
                return;
            }
        };
        if let Some((first, found)) = region_of(segment).filter(|(_, found)| *found == region) {
            let entry = self.configuration.memory_server(server);
            let liveness = entry.map(|entry| self.configuration.liveness(&entry));
            if let Some(liveness) = liveness {
                Mapped::new(segment.memory(), server, first, found, liveness).poison();
            }
        }
        if let Err(error) = segment.close() {
            tracing::warn!(%error, "the segment of a dead memory server was not closed");
        }
    }
}

/// The handler for the log of a dead instance.
pub(super) struct RecoverServers(pub Files);

impl RecoverRoom<Native> for RecoverServers {
    fn settle(&self, _: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        Ok(())
    }

    fn release(&self, dead: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        let Self(files) = self;
        let survivor = dead.member().instance();
        // A revisited log is that of an instance that left, which owns nothing.
        { files.configuration }.recover(survivor, dead.owner(), files);
        Ok(())
    }
}
