//! The stop of all compute servers of a store. Its memory servers go on.
//!
//! While a live process has the claim of the stop, no attempt of a transaction begins, and a
//! compute server that begins to join is refused. Transactions that are under way end as usual.
//! Each program learns of the stop from
//! [`TransactionError::Stopping`](crate::protocol::TransactionError::Stopping) or
//! [`ComputeServer::is_stopping`], and drops its compute server, which removes its logs. The stop
//! is complete when no compute server is a member and no log area has an owner.

use super::claims::Operation;
use super::configuration::Configuration;
use super::{ComputeServer, Store, StoreError};
use core::time::Duration;
use outlive::membership::{Instance, Process};
use outlive::memory::Memory;
use std::time::Instant;

outlive::memory::crash_points! {
    /// Crash points of a stop.
    pub enum StopPoint for "store.stop" {
        /// No attempt of a transaction begins any more.
        Claimed,
        /// Attempts begin again.
        Released,
    }
}

/// The time between two polls of the compute servers.
const POLL: Duration = Duration::from_millis(5);

/// The time limit for a fence and the recovery of the fenced server.
const FENCE: Duration = Duration::from_secs(10);

/// The result of a stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// The number of compute servers that left, or died and were recovered.
    pub ended: usize,
    /// The number of compute servers that were fenced and recovered.
    pub fenced: usize,
}

impl<M: Memory> Configuration<M> {
    /// Claims the stop for `owner` while `wait` runs. Returns `None` if another process has the
    /// claim.
    ///
    /// # Crash
    /// The recovery of `owner` releases the claim.
    pub fn stop<T>(self, owner: Instance, wait: impl FnOnce() -> T) -> Option<T> {
        let claim = self.claim(Operation::Stop, owner)?;
        self.memory.crash_point(StopPoint::Claimed);
        let result = wait();
        drop(claim);
        self.memory.crash_point(StopPoint::Released);
        Some(result)
    }

    /// Returns the compute servers that have not left and have not failed.
    fn members(self) -> Vec<Instance> {
        let compute = self.compute_servers().filter(|it| !it.has_failed);
        compute.map(|it| it.owner).collect()
    }

    /// Returns whether all compute servers have left or are recovered.
    fn is_stopped(self) -> bool {
        self.members().is_empty() && self.log_owners().next().is_none()
    }
}

impl Store {
    /// Stops all compute servers, and waits until they have left or are recovered. Afterwards, no
    /// latch is held and no log is left, and compute servers can join again. The memory servers
    /// keep the data.
    ///
    /// Compute servers that have not left after `patience` are fenced if `fences` is set. A fence
    /// kills the whole process of the server, so neither the caller nor a memory server may be in
    /// it.
    ///
    /// # Errors
    /// [`StoreError::Stopping`] if another process is stopping the store, and
    /// [`StoreError::NotStopped`] if compute servers have not left and `fences` is not set, or if
    /// fences or recoveries were not complete ten seconds later.
    ///
    /// # Crash
    /// Transactions begin again. Compute servers that have left or were fenced remain so.
    pub fn stop(&self, patience: Duration, fences: bool) -> Result<Stopped, StoreError> {
        let process = self.join("stop")?;
        let configuration = self.configuration();
        let wait = || self.wait_for_stop(&process, patience, fences);
        let stopped = configuration.stop(process.instance(), wait);
        stopped.unwrap_or(Err(StoreError::Stopping))
    }

    fn wait_for_stop(
        &self,
        process: &Process,
        patience: Duration,
        fences: bool,
    ) -> Result<Stopped, StoreError> {
        let configuration = self.configuration();
        let generations = process.tables().generations();
        let (begin, first) = (Instant::now(), configuration.members());
        let mut events = process.events();
        let mut fenced: Vec<Instance> = Vec::new();
        let mut limit = patience + FENCE;
        while !configuration.is_stopped() {
            let waited = begin.elapsed();
            let live =
                { configuration.members().into_iter() }.filter(|it| !generations.is_gone(*it));
            let live: Vec<Instance> = live.collect();
            if waited >= patience && !live.is_empty() && !fences {
                return Err(StoreError::NotStopped {
                    servers: live,
                    waited: patience,
                });
            }
            if waited >= patience {
                for server in &live {
                    if !fenced.contains(server) && process.fence(*server).is_ok() {
                        fenced.push(*server);
                        limit = waited + FENCE;
                    }
                }
            }
            if waited >= limit {
                let servers = match live.is_empty() {
                    // Their logs are not recovered.
                    true => configuration.log_owners().collect(),
                    false => live,
                };
                return Err(StoreError::NotStopped { servers, waited });
            }
            // Recovers the entries of servers whose logs were recovered by a member of the pod that
            // is not one of the store.
            self.recover_settled(process);
            events.wait_for_unless(POLL, || configuration.is_stopped());
        }
        Ok(Stopped {
            ended: first.iter().filter(|it| !fenced.contains(it)).count(),
            fenced: fenced.len(),
        })
    }
}

impl ComputeServer {
    /// Returns whether the store is being [stopped](Store::stop), so that this compute server has
    /// to leave.
    pub fn is_stopping(&self) -> bool {
        let stopper = self.store().configuration().stopper();
        stopper.is_some_and(|stopper| !self.is_gone(stopper))
    }
}
