//! Changing the name of an object, for which its state is claimed.

use super::directory::Directory;
use super::lease::{Lease, settle_name};
use super::record::{Record, State};
use outlive_memory::{Memory, crash_points};

crash_points! {
    /// The places where the unlinking of an object may be cut short.
    pub enum UnlinkPoint for "objects.unlink" {
        /// Its name is claimed.
        Claimed,
        /// Its entry is removed.
        Removed,
        /// Its state is unlinked.
        Unlinked,
    }
}

crash_points! {
    /// The places where the renaming of an object may be cut short.
    pub enum RenamePoint for "objects.rename" {
        /// Its name is claimed.
        Claimed,
        /// The new name is written.
        Written,
        /// An entry leads from the new name to it.
        Inserted,
        /// The new name is its name.
        Renamed,
        /// The entry of the old name is removed.
        Removed,
        /// Its name is no longer claimed.
        Released,
    }
}

/// The claim of an object's name: no other member renames or unlinks the object. Dropping it makes
/// the object live under the name that it has, or unlinked if the map does not lead from there to
/// it.
pub(super) struct Naming<'l, 'h, M: Memory> {
    lease: &'l Lease<'h, M>,
}

impl<'l, 'h, M: Memory> Naming<'l, 'h, M> {
    /// Claims the name; `None` if the object has none any more. Waits for another member that has
    /// claimed it, or for the recovery of that member. Removes what a former renamer left.
    pub fn claim(lease: &'l Lease<'h, M>) -> Option<Self> {
        let (memory, record) = (lease.heap().memory(), lease.record());
        let mut tries = 0u32;
        loop {
            match record.state() {
                Some(live @ State::Live(_)) => {
                    if record.change_state(live, State::Renamed(lease.slot())) {
                        break;
                    }
                }
                Some(State::Renamed(_)) => {
                    tries += 1;
                    memory.spin_hint();
                    if tries.is_multiple_of(TRIES) {
                        lease.heap().recover_the_dead();
                        std::thread::yield_now();
                    }
                }
                _ => return None,
            }
        }
        let this = Self { lease };
        if let Some(other) = record.other_name()
            && !record.is_named(&other)
        {
            this.remove(&other);
        }
        Some(this)
    }

    pub fn record(&self) -> Record<M> {
        self.lease.record()
    }

    fn directory(&self) -> &Directory<M> {
        self.lease.directory()
    }

    /// Removes the entry of `name` if it leads to the object.
    pub fn remove(&self, name: &str) -> bool {
        let (heap, at) = (self.lease.heap(), self.lease.at().raw());
        let names = self.directory().names();
        names
            .remove_if(heap, name, |leads_to| leads_to == at)
            .is_some()
    }

    /// Makes the object unlinked, whose entries are removed.
    pub fn unlink(self) {
        self.record().set_state(State::Unlinked);
        self.lease
            .heap()
            .memory()
            .crash_point(UnlinkPoint::Unlinked);
    }
}

impl<M: Memory> Drop for Naming<'_, '_, M> {
    fn drop(&mut self) {
        let heap = self.lease.heap();
        // A panic may have left an operation on the map running. Then the recovery settles it.
        if heap.is_idle() {
            let (record, slot) = (self.record(), self.lease.slot());
            settle_name(heap, self.directory(), record, slot, false);
        }
    }
}

/// The number of looks at a claimed name between two recoveries of dead members.
const TRIES: u32 = 64;
