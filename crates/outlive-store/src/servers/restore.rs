//! The restorer: a compute server that replaces lost replicas, while transactions run.

use super::claims::Operation;
use super::configuration::Configuration;
use super::restoration::RestorePoint;
use super::{ComputeServer, Missing, StoreError};
use crate::protocol::{
    Abort, Coordinator, Copied, Member, NoSlot, TransactionError, Worker, copy_partition, reach,
};
use crate::verbs::block_on;
use core::time::Duration;
use outlive::membership::Instance;
use outlive::memory::Memory;
use std::rc::Rc;

/// The result of a restoration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The number of replicas of partitions that were filled.
    pub replicas: u64,
    /// The amounts that were copied to them.
    pub copied: Copied,
    /// The number of replicas for which no live server has enough space.
    pub without_space: u64,
    /// The partitions that still have too few replicas.
    pub missing: Missing,
}

/// The reason why a restoration failed. Replicas that were already restored remain, and the next
/// restoration continues.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Another compute server is restoring.
    #[error("{restorer} is restoring the store; wait until it has finished or died")]
    Busy {
        /// The process of the other compute server.
        restorer: Instance,
    },
    /// The list of changes is full.
    #[error(
        "the store has had as many restorations as its configuration can record; copy its tables \
         to a new store"
    )]
    TooManyRestorations,
    /// All log slots of the compute server are in use.
    #[error(transparent)]
    NoSlot(#[from] NoSlot),
    /// The copy of an object failed.
    #[error("an object could not be copied: {0}; restore again")]
    Copy(#[from] TransactionError),
}

/// Replaces all lost replicas as `owner`, with the transactions of `worker`: see the
/// [module](super).
///
/// # Errors
/// [`RestoreError`].
///
/// # Crash
/// The next restoration continues: see the module `restoration`.
pub fn restore<M: Memory, V: Member>(
    configuration: Configuration<M>,
    owner: Instance,
    worker: &Rc<Worker<V>>,
) -> Result<Restored, RestoreError> {
    let mut coordinator = worker.coordinator()?;
    let mut restored = Restored::default();
    loop {
        if let Some(_claim) = configuration.claim(Operation::Restoration, owner) {
            configuration.memory.crash_point(RestorePoint::Claimed);
            while restore_once(configuration, owner, &mut coordinator, &mut restored)? {}
            break;
        }
        // The other restoration may have ended since the claim failed.
        if let Some(restorer) = configuration.restorer() {
            return Err(RestoreError::Busy { restorer });
        }
    }
    // The caller may drop the worker. The restoration is complete, even if latches are left.
    if let Err(error) = block_on(worker.finish()) {
        tracing::warn!(%error, "latches of a restoration were not released");
    }
    configuration.memory.crash_point(RestorePoint::Finished);
    restored.missing = configuration.missing();
    Ok(restored)
}

/// Completes the restoration that is under way, or executes another one. Returns `false` if nothing
/// is left to restore. The caller has the claim.
fn restore_once<M: Memory, V: Member>(
    configuration: Configuration<M>,
    owner: Instance,
    coordinator: &mut Coordinator<V>,
    restored: &mut Restored,
) -> Result<bool, RestoreError> {
    let memory = configuration.memory;
    let mut step = configuration.steps(configuration.epoch());
    if step.is_multiple_of(2) {
        step += 1;
        while !configuration.claim_catalogue(owner) {
            // If the owner dies, its recovery releases the catalogue.
            std::thread::sleep(Duration::from_millis(1));
        }
        memory.crash_point(RestorePoint::Reserving);
        let reserved = configuration.reserve(step);
        configuration.release_catalogue(owner);
        memory.crash_point(RestorePoint::Reserved);
        restored.without_space = reserved.without_space;
        if reserved.replicas == 0 {
            return Ok(false);
        }
        if !configuration.can_restore() {
            return Err(RestoreError::TooManyRestorations);
        }
        let servers = configuration.placed_servers();
        reach(coordinator, servers.into_iter().map(|it| it.id))?;
        configuration.append_step(step);
        memory.crash_point(RestorePoint::Begun);
    } else {
        // A copy that could not reach one would hold its latch for ever: it is not logged.
        let new = configuration.new_places(step);
        reach(coordinator, new.map(|it| it.server))?;
    }
    for (table, partition) in configuration.joining(step) {
        match block_on(copy_partition(coordinator, table, partition)) {
            Ok(copied) => restored.copied += copied,
            Err(TransactionError::Aborted(Abort::Lost { .. })) => {
                configuration.give_up(table, partition, step);
            }
            Err(error) => return Err(error.into()),
        }
        memory.crash_point(RestorePoint::Copied);
    }
    restored.replicas += configuration.new_places(step).count() as u64;
    configuration.append_step(step + 1);
    memory.crash_point(RestorePoint::Completed);
    Ok(true)
}

impl ComputeServer {
    /// Replaces the replicas that were lost with memory servers by new ones in live memory servers,
    /// and fills these, while transactions run: see [`restore`].
    ///
    /// A replica stays missing if each live memory server has another one of its partition, or not
    /// enough space.
    ///
    /// # Errors
    /// [`StoreError::Restore`], or as [`worker`](Self::worker).
    ///
    /// # Crash
    /// The next restoration continues.
    pub fn restore(&self) -> Result<Restored, StoreError> {
        let worker = self.worker()?;
        let configuration = self.store().configuration();
        Ok(restore(configuration, self.instance(), &worker)?)
    }
}
