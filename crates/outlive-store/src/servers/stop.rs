//! The stop of all compute servers of a store. Its memory servers go on.
//!
//! While a live process has the claim of the stop, no attempt of a transaction begins, and no
//! compute server joins. Transactions that are under way end as usual. Each program learns from
//! [`TransactionError::Stopping`](crate::protocol::TransactionError::Stopping), or from
//! [`ComputeServer::is_stopping`], that its compute server has to leave. A compute server that
//! leaves removes its logs, so a store without compute servers has no log.

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

/// The time between two looks at the compute servers.
const POLL: Duration = Duration::from_millis(5);

/// The time in which a fence has to be complete, and the fenced server recovered.
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
    /// Compute servers that have not left after `patience` are fenced if `fences` is set. They
    /// must not run in the process of the caller, which would end with them.
    ///
    /// # Errors
    /// [`StoreError::Stopping`] if another process is stopping the store, and
    /// [`StoreError::NotStopped`] if compute servers have not left and are not to be fenced, or a
    /// fence and the recovery after it were not complete within ten seconds.
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
            // The entries of a server that was recovered by a foreign member.
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
