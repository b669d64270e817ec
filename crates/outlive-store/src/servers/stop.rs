//! The stop of all compute servers of a store. Its memory servers continue to run.
//!
//! While a live process has the claim of the stop, an attempt that is about to begin fails, and a
//! compute server that joins is refused. Transactions that are under way, and attempts that wait
//! for an epoch or a recovery before they begin, end as usual. Each program learns of the stop from
//! [`TransactionError::Stopping`](crate::protocol::TransactionError::Stopping) or
//! [`ComputeServer::is_stopping`], and drops its compute server, which removes its logs. The stop
//! is complete when no compute server is a member and no log area has an owner.
//!
//! # Memory ordering
//!
//! A stop claims and then reads the process ids; a compute server
//! [takes an id](Configuration::join_compute) and then reads the claim. A SeqCst fence separates
//! the two steps on both sides, so either the stop finds the compute server, or that finds the
//! claim and leaves before its first transaction.

use super::claims::Operation;
use super::configuration::Configuration;
use super::{ComputeServer, Store, StoreError};
use core::time::Duration;
use outlive::membership::{Instance, Process};
use outlive::memory::{Memory, Ordering};
use std::time::Instant;

outlive::memory::crash_points! {
    /// Crash points of a stop.
    pub enum StopPoint for "store.stop" {
        /// Attempts that are about to begin fail.
        Claimed,
        /// Attempts begin again.
        Released,
    }
}

/// The time between two polls of the compute servers.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The time for which a stop waits for the end of another one.
const OTHER_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The time between two recoveries of entries that members other than those of the store left.
const SETTLE_INTERVAL: Duration = Duration::from_secs(1);

/// The time limit for a fence and the recovery of the fenced server.
const FENCE_TIMEOUT: Duration = Duration::from_secs(10);

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
        // See the module's memory ordering.
        self.memory.fence(Ordering::SeqCst);
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

    /// Returns the dead compute servers whose recovery delays a stop. No compute server is live.
    fn not_recovered(self) -> Vec<Instance> {
        let areas = (0..self.sizes.log_areas).filter(|area| self.log_owner(*area).is_some());
        let mut all = self.members();
        all.extend(areas.filter_map(|area| self.last_user(area)));
        sort(&mut all);
        all
    }

    /// Returns whether all compute servers have left or are recovered.
    fn is_stopped(self) -> bool {
        self.members().is_empty() && self.log_owners().next().is_none()
    }
}

/// Sorts instances, and removes duplicates.
fn sort(all: &mut Vec<Instance>) {
    all.sort_by_key(|it| (it.id, it.generation));
    all.dedup();
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
        let first = self.configuration().members();
        let begin = Instant::now();
        loop {
            let wait = || self.wait_for_stop(&process, first.clone(), patience, fences);
            if let Some(stopped) = self.configuration().stop(process.instance(), wait) {
                return stopped;
            }
            if begin.elapsed() >= OTHER_STOP_TIMEOUT {
                return Err(StoreError::Stopping);
            }
            std::thread::sleep(POLL_INTERVAL);
            if !self.configuration().is_stopping(&process) {
                // The process that has the claim has died.
                self.recover_settled(&process);
            }
        }
    }

    fn wait_for_stop(
        &self,
        process: &Process,
        mut seen: Vec<Instance>,
        patience: Duration,
        fences: bool,
    ) -> Result<Stopped, StoreError> {
        let configuration = self.configuration();
        let generations = process.tables().generations();
        let begin = Instant::now();
        let mut events = process.events();
        let mut fenced: Vec<Instance> = Vec::new();
        let mut limit = patience.saturating_add(FENCE_TIMEOUT);
        let mut settled = begin;
        while !configuration.is_stopped() {
            let waited = begin.elapsed();
            let live =
                { configuration.members().into_iter() }.filter(|it| !generations.is_gone(*it));
            let live: Vec<Instance> = live.collect();
            seen.extend(&live);
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
                        limit = waited.saturating_add(FENCE_TIMEOUT);
                    }
                }
            }
            if waited >= limit {
                let servers = match live.is_empty() {
                    true => configuration.not_recovered(),
                    false => live,
                };
                return Err(StoreError::NotStopped { servers, waited });
            }
            // Recovers the entries of servers whose logs were recovered by a member of the pod that
            // is not one of the store. This is done rarely, because the other recoveries are under
            // way.
            if settled.elapsed() >= SETTLE_INTERVAL {
                self.recover_settled(process);
                settled = Instant::now();
            }
            events.wait_for_unless(POLL_INTERVAL, || configuration.is_stopped());
        }
        sort(&mut seen);
        Ok(Stopped {
            ended: seen.iter().filter(|it| !fenced.contains(it)).count(),
            fenced: fenced.len(),
        })
    }
}

impl Configuration {
    /// Returns whether a process that `process` does not know to be dead has the claim of the stop.
    #[inline]
    pub(super) fn is_stopping(self, process: &Process) -> bool {
        let generations = process.tables().generations();
        self.stopper().is_some_and(|it| !generations.is_gone(it))
    }
}

impl ComputeServer {
    /// Returns whether the store is being [stopped](Store::stop), so that this compute server has
    /// to leave.
    pub fn is_stopping(&self) -> bool {
        let configuration = self.store().configuration();
        configuration.is_stopping(self.process())
    }
}
