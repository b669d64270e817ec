//! The lock on the name of an object.

use super::ObjectError;
use super::directory::Directory;
use super::lease::{Lease, settle_name};
use super::record::{Record, State};
use crate::membership::{State as MemberState, Status};
use core::panic::AssertUnwindSafe;
use outlive_memory::{Memory, Offset, crash_points};

crash_points! {
    /// The crash points of the unlinking of an object.
    pub enum UnlinkPoint for "objects.unlink" {
        /// Its name is locked.
        Locked,
        /// Its entry is removed.
        Removed,
        /// Its state is unlinked.
        Unlinked,
    }
}

crash_points! {
    /// The crash points of the renaming of an object.
    pub enum RenamePoint for "objects.rename" {
        /// Its name is locked.
        Locked,
        /// The new name is written.
        Written,
        /// An entry leads from the new name to it.
        Inserted,
        /// The new name is its name.
        Renamed,
        /// The entry of the old name is removed.
        Removed,
        /// Its name is unlocked.
        Unlocked,
    }
}

/// The lock on an object's name: no other member renames or unlinks the object. On drop, the object
/// becomes live under its current name, or unlinked if no entry of that name leads to it.
pub(super) struct NameLock<'l, 'h, M: Memory> {
    lease: &'l Lease<'h, M>,
}

/// The number of polls of a locked name between two attempts to recover dead members.
const POLLS_BETWEEN_RECOVERIES: u32 = 64;

impl<'l, 'h, M: Memory> NameLock<'l, 'h, M> {
    /// Locks the name; returns `None` if the object has no name any more. Waits while another
    /// member holds the lock, and recovers that member if it is dead. Removes the stale entry that
    /// an earlier renamer left.
    ///
    /// # Errors
    /// If the holder is dead and cannot be recovered, or the object is damaged.
    pub fn acquire(lease: &'l Lease<'h, M>) -> Result<Option<Self>, ObjectError> {
        let (memory, record) = (lease.heap().memory(), lease.record());
        let mut polls = 0u32;
        loop {
            match record.state() {
                Some(live @ State::Live(_)) => {
                    if record.change_state(live, State::NameLocked(lease.slot())) {
                        break;
                    }
                }
                Some(locked @ State::NameLocked(by)) => {
                    polls = polls.wrapping_add(1);
                    memory.spin_hint();
                    if polls.is_multiple_of(POLLS_BETWEEN_RECOVERIES) {
                        Self::demand_holder(lease, by, locked)?;
                        std::thread::yield_now();
                    }
                }
                _ => return Ok(None),
            }
        }
        let this = Self { lease };
        let (name, version) = record.name().inspect_err(|_| this.undo())?;
        if !this.directory().leads_to(lease.heap(), &name, record.at()) {
            // Without this, dropping the lock would mark a damaged object unlinked and destroy it.
            this.undo();
            let what = "its name does not lead to it";
            return Err(record.damaged(what));
        }
        let other = record.other_name(version);
        if let Some(other) = other.filter(|other| *other != name) {
            this.remove(&other);
        }
        Ok(Some(this))
    }

    /// Recovers the holder of the lock in slot `by`, if it is dead. Returns an error if that fails,
    /// or if no other member can hold the lock: then it will never be released.
    fn demand_holder(lease: &Lease<'h, M>, by: Offset, locked: State) -> Result<(), ObjectError> {
        let (heap, record) = (lease.heap(), lease.record());
        // This thread holds no other lock, unless a panic has left it.
        let holder = lease.directory().holder(by);
        let holder = holder.filter(|id| *id != heap.instance().id);
        if let Some(id) = holder {
            // The dead members that cannot be recovered may be others.
            heap.recover_if_dead(id)?;
        }
        let may_hold = holder.is_some_and(|id| {
            let state = heap.member().generations().state(id);
            // Another member is recovering a dead holder; the recovery releases the lock.
            let may_hold =
                |state: MemberState| state.status.may_write() || state.status == Status::Dead;
            state.is_ok_and(may_hold)
        });
        match may_hold || record.state() != Some(locked) {
            true => Ok(()),
            false => Err(record.damaged("no member can unlock its name")),
        }
    }

    /// Releases the lock of a damaged object, which stays live.
    fn undo(&self) {
        self.record()
            .set_state(State::Live(self.record().version()));
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

    /// Marks the object unlinked. Its entries have been removed.
    pub fn unlink(self) {
        self.record().set_state(State::Unlinked);
        self.lease
            .heap()
            .memory()
            .crash_point(UnlinkPoint::Unlinked);
    }
}

impl<M: Memory> Drop for NameLock<'_, '_, M> {
    fn drop(&mut self) {
        let heap = self.lease.heap();
        // A panic may have left an operation on the map running. Then the recovery settles it.
        if heap.is_idle() {
            let settle = || {
                let (record, slot) = (self.record(), self.lease.slot());
                settle_name(heap, self.directory(), record, slot, false);
            };
            if std::thread::panicking() {
                // The cause of the panic may make this panic too, which would end the process.
                let _ = std::panic::catch_unwind(AssertUnwindSafe(settle));
            } else {
                settle();
            }
        }
    }
}
