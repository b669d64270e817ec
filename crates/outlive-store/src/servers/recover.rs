//! The recovery of a dead server's entries, and the files of the memory servers' segments.

use super::rights::verb_error;
use super::{Configuration, Connector, Direct, Phase, Segments, Store};
use crate::protocol::{
    Checked, LogArea, RecoverLogsError, Recovered, View, Worker, check, recover_logs, slots_in_use,
};
use crate::tables::{TableLayout, TransactionId};
use crate::verbs::{Mapped, Region, ServerId, VerbError, block_on};
use outlive::membership::Instance;
use outlive::memory::Native;
use outlive::pod::Presence;
use outlive::recovery::{RecoverError, RecoverRoom, Recovering};
use outlive::segment::{AreaKind, Segment};
use rustix::fs::{FallocateFlags, fallocate};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The files of the segments of the store at a path.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// The path of the store's file without symbolic links, so that all members use the same files.
    store: PathBuf,
    /// Distinguishes the files of this store from those of an earlier store at the same path.
    tag: u32,
    configuration: Configuration,
}

impl Files {
    pub fn of(store: Segment, configuration: Configuration) -> Self {
        let path = store.path();
        Self {
            store: std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            tag: store.uuid().as_u128() as u32,
            configuration,
        }
    }

    /// Returns the file of the segment of `server`'s `incarnation`.
    pub fn path(&self, server: ServerId, incarnation: u64) -> PathBuf {
        let mut path = OsString::from(&self.store);
        path.push(format!(
            ".{:08x}.memory-{}.{incarnation}",
            self.tag, server.0
        ));
        path.into()
    }

    /// Returns all files of segments of this store.
    pub fn all(&self) -> Vec<PathBuf> {
        let mut prefix = self.store.file_name().unwrap_or_default().to_owned();
        prefix.push(format!(".{:08x}.memory-", self.tag));
        let entries = self
            .store
            .parent()
            .and_then(|it| std::fs::read_dir(it).ok());
        let names = entries.into_iter().flatten().flatten();
        let is_ours = |name: OsString| {
            let (name, prefix) = (name.into_encoded_bytes(), prefix.as_encoded_bytes());
            name.starts_with(prefix)
        };
        names
            .filter(|it| is_ours(it.file_name()))
            .map(|it| it.path())
            .collect()
    }
}

/// Removes the file of a segment, if it exists. With `empties`, the memory is freed even if compute
/// servers have it mapped.
pub(super) fn remove_file(path: &Path, empties: bool) {
    let empty = || -> std::io::Result<()> {
        let file = std::fs::OpenOptions::new().write(true).open(path)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&file, flags, 0, file.metadata()?.len())?)
    };
    // On a filesystem that cannot punch holes, the memory is freed when the mappings end.
    if empties && let Err(error) = empty() {
        let path = path.display();
        tracing::debug!(%path, %error, "the segment of a memory server was not emptied");
    }
    let removed = std::fs::remove_file(path);
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let path = path.display();
            tracing::warn!(%path, %error, "the segment of a memory server was not removed");
        }
        _ => {}
    }
}

/// Returns the region of `segment`. Its remote key is a part of the segment's uuid.
pub(super) fn region_of(segment: Segment) -> Option<(outlive::memory::Offset, Region)> {
    let area = segment.area(AreaKind::Payload)?;
    let region = Region {
        key: segment.uuid().as_u128() as u64,
        bytes: area.size,
    };
    Some((area.offset, region))
}

impl Files {
    /// Removes the file of a segment.
    pub fn remove(&self, server: ServerId, incarnation: u64) {
        // A batch that reads the holes also reads that the server is not live. A store that poisons
        // keeps the poison in place, so that tests can detect such a batch.
        let empties = !self.configuration.poisons();
        remove_file(&self.path(server, incarnation), empties);
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

impl Store {
    /// Checks all tables: see [`check`](crate::protocol::check). No transaction runs at the same
    /// time. Counts the dead compute servers whose logs are not recovered: their transactions can
    /// be incomplete. Counts the log slots that are not empty and whose log area has no owner.
    ///
    /// # Errors
    /// If the memory of a live server cannot be read.
    pub fn check(&self) -> Result<Checked, VerbError> {
        let area = LogArea::default();
        let worker = Worker::new(Survivor::new(self, Direct), 0, area, 0);
        let configuration = self.configuration();
        let tables = configuration.tables().map(|table| table.number);
        let live: Vec<u16> = { configuration.compute_servers() }
            .filter(|it| !it.has_failed)
            .map(|it| it.id)
            .collect();
        let is_live = |process: u16| live.contains(&process);
        let mut checked = block_on(check(&worker, tables, is_live))?;
        let gone = self.gone();
        checked.unrecovered = configuration.unrecovered(|owner| !gone.contains(&owner));
        for area in configuration.free_log_areas() {
            let worker = Worker::new(Survivor::new(self, Direct), 0, area, 0);
            checked.logs += block_on(slots_in_use(&worker))?;
        }
        for server in configuration.memory_servers() {
            if server.phase == Phase::Live && server.owner.is_some_and(|it| gone.contains(&it)) {
                checked.problems.push(format!(
                    "{} has died, and its memory is lost; the next process that joins the store \
                     records the loss",
                    server.id
                ));
            }
        }
        Ok(checked)
    }

    /// Returns the owners of memory servers' entries and of log areas that have died or left, and
    /// are not recovered.
    pub fn gone(&self) -> Vec<Instance> {
        let status = self.pod().status();
        let presences = self.pod().presences(&status);
        let is_gone = |owner: &Instance| {
            let member = status.members.iter().find(|it| it.id == owner.id);
            member.is_some_and(|it| it.state.generation != owner.generation)
                || presences.get(&owner.id) == Some(&Presence::Gone)
        };
        let configuration = self.configuration();
        let servers = configuration.memory_servers().filter_map(|it| it.owner);
        let owners = servers.chain(configuration.log_owners());
        owners.filter(is_gone).collect()
    }
}

impl Segments for Store {
    fn remove(&self, server: ServerId, incarnation: u64) {
        self.files().remove(server, incarnation);
    }

    fn poison(&self, server: ServerId, incarnation: u64, region: Region) {
        self.files().poison(server, incarnation, region);
    }

    fn recover_logs(&self, process: u16, area: &LogArea) -> Option<Recovered> {
        #[cfg(feature = "measurements")]
        let result = self.recover_measured(process, area);
        #[cfg(not(feature = "measurements"))]
        let result = self.recover_over(Direct, process, area);
        match result {
            Ok(recovered) => {
                let Recovered { forward, back, .. } = recovered;
                tracing::info!(
                    process,
                    forward,
                    back,
                    "recovered the logs of a compute server"
                );
                Some(recovered)
            }
            Err(error) => {
                tracing::error!(
                    process,
                    %error,
                    "the logs of a compute server could not be recovered; the next member that \
                     joins retries"
                );
                None
            }
        }
    }
}

impl Store {
    pub(super) fn recover_over<C: Connector<Mapped>>(
        &self,
        connector: C,
        process: u16,
        area: &LogArea,
    ) -> Result<Recovered, RecoverLogsError> {
        let survivor = Survivor::new(self, connector);
        let worker = self.worker(survivor, process, area.clone(), 0);
        block_on(recover_logs(&worker))
    }
}

/// The store as the member that recovers a dead compute server's logs sees it.
#[derive(Debug)]
pub(super) struct Survivor<C = Direct> {
    store: Store,
    connector: C,
}

impl<C> Survivor<C> {
    pub(super) fn new(store: &Store, connector: C) -> Self {
        let store = store.clone();
        Self { store, connector }
    }
}

impl<C: Connector<Mapped>> View for Survivor<C> {
    type Connection = C::Connection;

    fn connect(&self, server: ServerId) -> Result<C::Connection, VerbError> {
        let mapped = self.store.mapped(server);
        let mapped = mapped.map_err(|error| verb_error(server, &error))?;
        Ok(self.connector.connect(mapped))
    }

    fn layout(&self, table: u8) -> Option<TableLayout> {
        self.store.configuration().layout(table)
    }

    fn failed(&self, process: u16) -> Option<u64> {
        self.store.configuration().failed(process)
    }

    fn epoch(&self) -> u64 {
        self.store.configuration().epoch()
    }

    fn lost(&self, epoch: u64) -> Vec<ServerId> {
        self.store.configuration().lost(epoch).collect()
    }

    fn steps(&self, epoch: u64) -> u8 {
        self.store.configuration().steps(epoch)
    }

    fn begun(&self, process: u16, coordinator: u16) -> Option<TransactionId> {
        self.store.configuration().begun(process, coordinator)
    }

    fn record_commit(&self, transaction: TransactionId) {
        self.store.configuration().record_commit(transaction);
    }

    fn leave_latches(&self) {}
}

/// The recovery handler that recovers the entries of a dead instance with its log.
pub(super) struct RecoverServers(pub Store);

impl RecoverRoom<Native> for RecoverServers {
    fn settle(&self, _: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        Ok(())
    }

    fn release(&self, dead: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        let Self(store) = self;
        let survivor = dead.member().instance();
        // If the log is a revisited one, its owner has left or is recovered, and has no entries.
        let recovery = { store.configuration() }.recover(survivor, dead.owner(), store);
        match recovery.is_complete {
            true => Ok(()),
            false => Err(RecoverError::Handler(format!(
                "the transactions of {} could not be recovered",
                dead.owner()
            ))),
        }
    }
}
