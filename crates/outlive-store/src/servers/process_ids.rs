//! The process ids of compute servers: their owners, their failures, and their recycling.
//!
//! One word holds the owner of an id, and whether it has failed. The word of a failed owner is the
//! *incarnation* that has failed. An id passes through these states, each by a compare-and-swap
//! from the word before, so that a delayed survivor cannot mark the next owner as failed:
//!
//! ```text
//! 0 --join--> owner --leave--> 0
//!                  \--fail--> failed owner --recycle--> 0
//! ```

use super::configuration::Configuration;
use super::entries::ComputeEntry;
use super::recover::Survivor;
use super::{Direct, Store};
use crate::protocol::{LogArea, release_stray};
use crate::verbs::{VerbError, block_on};
use core::time::Duration;
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};
use std::collections::HashMap;
use std::time::Instant;

outlive::memory::crash_points! {
    /// Crash points of the recycling of failed process ids.
    pub enum RecyclePoint for "store.compute.recycle" {
        /// No latch has a failed id any more. No id is free yet.
        Released,
    }
}

/// The bit of an owner word that tells that the owner has failed and its logs are recovered. The
/// ids of instances are smaller.
const FAILED: u64 = 1 << 31;

/// Ids are recycled when this share of them, in percent, is in use or has failed.
const RECYCLE_AT_PERCENT: u32 = 95;

/// The longest wait of a scan for the record of a memory server's loss.
const PATIENCE: Duration = Duration::from_secs(2);

impl<M: Memory> Configuration<M> {
    pub(super) fn owner_at(self, id: u16) -> Offset {
        self.at + self.sizes.owners_at() + u64::from(id) * 8
    }

    /// Returns the owner word of a process id, or 0.
    fn owner_word(self, id: u16) -> u64 {
        let is_id = (1..=self.process_ids()).contains(&id);
        if is_id {
            self.load(self.owner_at(id))
        } else {
            0
        }
    }

    /// Returns the process that has this process id, or had it when it failed.
    pub fn owner_of(self, id: u16) -> Option<Instance> {
        Instance::from_word(self.owner_word(id) & !FAILED)
    }

    fn swap_owner(self, id: u16, from: u64, to: u64) -> bool {
        // AcqRel: an owner sees the stores of the previous one, and of the recovery after it.
        let (memory, order) = (self.memory, (Ordering::AcqRel, Ordering::Relaxed));
        let swapped = memory.compare_exchange(self.owner_at(id), from, to, order.0, order.1);
        swapped.is_ok()
    }

    /// Assigns a process id to `owner`: the lowest that has no owner. Returns `None` if all are in
    /// use or have failed.
    ///
    /// # Crash
    /// No id is assigned, or a survivor marks the assigned id as failed.
    pub fn join_compute(self, owner: Instance) -> Option<u16> {
        let mut ids = 1..=self.process_ids();
        let id =
            ids.find(|id| self.owner_word(*id) == 0 && self.swap_owner(*id, 0, owner.to_word()));
        // The fence precedes the owner's read of the claim of a stop: see the memory ordering of
        // `stop`.
        self.memory.fence(Ordering::SeqCst);
        id
    }

    /// Frees the process id `id` of `owner`, if `owner` has it, and its log area. No latch may
    /// contain the id, and its logs are removed.
    ///
    /// # Crash
    /// A survivor marks the id as failed, or it is free.
    pub fn leave_compute(self, id: u16, owner: Instance) {
        self.leave_logs(owner, id);
        self.swap_owner(id, owner.to_word(), 0);
    }

    /// Marks the id `id` of the dead process `owner` as failed, unless it has another owner.
    pub(super) fn fail(self, id: u16, owner: Instance) {
        self.swap_owner(id, owner.to_word(), owner.to_word() | FAILED);
    }

    /// Returns whether the process id `id` has failed, so that its latches may be stolen.
    pub fn has_failed(self, id: u16) -> bool {
        self.failed(id).is_some()
    }

    /// Returns the incarnation of the process id `id` that has failed, until the id is recycled.
    pub fn failed(self, id: u16) -> Option<u64> {
        Some(self.owner_word(id)).filter(|word| word & FAILED != 0)
    }

    /// Returns whether the process id `id` has failed with the owner `owner`.
    pub(super) fn is_failed(self, id: u16, owner: Instance) -> bool {
        self.failed(id) == Some(owner.to_word() | FAILED)
    }

    /// Returns the compute servers that have a process id, or had one when they failed.
    pub fn compute_servers(self) -> impl Iterator<Item = ComputeEntry> {
        (1..=self.process_ids()).filter_map(move |id| {
            let word = self.owner_word(id);
            Some(ComputeEntry {
                id,
                owner: Instance::from_word(word & !FAILED)?,
                has_failed: word & FAILED != 0,
            })
        })
    }

    /// Returns the failed process ids with their incarnations.
    ///
    /// A log area can still name a failed id, if its survivor died before it freed the area. The
    /// next survivor marks the owner of the id as failed, so such an id keeps its owner.
    fn recyclable(self) -> HashMap<u16, u64> {
        let failed = (1..=self.process_ids()).filter_map(|id| Some((id, self.failed(id)?)));
        failed
            .filter(|(id, _)| self.log_area_of(*id).is_none())
            .collect()
    }

    /// Makes failed process ids available again. `release` releases all latches with these ids and
    /// incarnations. Returns the number of ids that are free now.
    ///
    /// Any number of processes may call this concurrently.
    ///
    /// # Errors
    /// Returns the errors of `release`. No id is free then.
    ///
    /// # Crash
    /// Each id is free, or has failed as before.
    pub fn recycle<E>(
        self,
        release: impl FnOnce(&HashMap<u16, u64>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let ids = self.recyclable();
        if ids.is_empty() {
            return Ok(0);
        }
        release(&ids)?;
        self.memory.crash_point(RecyclePoint::Released);
        let freed = ids
            .into_iter()
            .filter(|(id, failed)| self.swap_owner(*id, *failed, 0));
        Ok(freed.count())
    }

    /// Returns whether most process ids are in use or have failed.
    pub(super) fn is_short_of_ids(self) -> bool {
        let used = self.compute_servers().count() as u64;
        used * 100 >= u64::from(self.process_ids()) * u64::from(RECYCLE_AT_PERCENT)
    }
}

impl Store {
    /// Recycles the failed process ids: see [`Configuration::recycle`]. Transactions may run at the
    /// same time.
    pub(super) fn recycle(&self) -> Result<usize, VerbError> {
        let configuration = self.configuration();
        configuration.recycle(|ids| {
            let is_stray = |id: u16, incarnation| ids.get(&id) == Some(&incarnation);
            let begin = Instant::now();
            loop {
                let survivor = Survivor::new(self, Direct);
                let worker = self.worker(survivor, 0, LogArea::default(), 0);
                let tables = configuration.tables().map(|table| table.number);
                match block_on(release_stray(&worker, tables, is_stray)) {
                    // Retry until the loss is in the list. The new primaries have no stray latches.
                    // If the survivor that records it has died, a later join completes that.
                    Err(VerbError::ServerDied { .. }) if begin.elapsed() < PATIENCE => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    other => return other.map(drop),
                }
            }
        })
    }
}
