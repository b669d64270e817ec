//! Leases: the slots by which members use objects.

use super::client;
use super::directory::{Directory, GIVEN_UP, RETIRING, TAGS};
use super::object::Class;
use super::record::{Record, State};
use crate::heap::LocalHeap;
use crate::structures::dismantle;
use core::panic::AssertUnwindSafe;
use outlive_memory::{Memory, Offset, Ordering, crash_points};

crash_points! {
    /// The crash points of the leasing of an object.
    pub enum LeasePoint for "objects.lease" {
        /// A block of slots is cleared; the pending-allocation cell leads to it.
        Filled,
        /// The block is linked to the member's other blocks.
        Linked,
        /// A slot leads to the object; whether that holds is not known yet.
        Leased,
    }
}

crash_points! {
    /// The crash points of the end of a lease.
    pub enum ReleasePoint for "objects.release" {
        /// The slot no longer counts as a use.
        GivenUp,
        /// The slot has claimed the object.
        Claimed,
        /// The contents are destroyed.
        Destroyed,
        /// The slot says that the object is being retired.
        Retiring,
        /// The object is retired.
        Retired,
        /// The slot is clear.
        Cleared,
    }
}

/// A lease of an object. Dropping it gives it up.
#[derive(Debug)]
pub(super) struct Lease<'h, M: Memory> {
    heap: &'h LocalHeap<'h, M>,
    directory: Directory<M>,
    slot: Offset,
    at: Offset,
    /// Whether ending the lease must look up in the map whether the object is linked.
    pub is_unsure: bool,
}

impl<'h, M: Memory> Lease<'h, M> {
    /// Leases the object at `at` in a free slot of the caller's.
    pub fn new(
        heap: &'h LocalHeap<'h, M>,
        directory: Directory<M>,
        slot: Offset,
        at: Offset,
    ) -> Self {
        let memory = heap.memory();
        // Relaxed: the full fence, or the insertion into the map, that follows orders it.
        memory.store(slot, at.raw(), Ordering::Relaxed);
        memory.persist(slot, 8);
        Self {
            heap,
            directory,
            slot,
            at,
            is_unsure: false,
        }
    }

    pub fn heap(&self) -> &'h LocalHeap<'h, M> {
        self.heap
    }

    pub fn directory(&self) -> &Directory<M> {
        &self.directory
    }

    pub fn slot(&self) -> Offset {
        self.slot
    }

    pub fn at(&self) -> Offset {
        self.at
    }

    pub fn record(&self) -> Record<M> {
        Record::of(self.heap.memory(), self.at)
    }
}

impl<M: Memory> Drop for Lease<'_, M> {
    fn drop(&mut self) {
        // Relaxed: the caller's own word.
        let word: u64 = self.heap.memory().load(self.slot, Ordering::Relaxed);
        // A panic may have left an operation running that names the object: then the lease stays
        // until its recovery. So does one that is dropped in an operation's closure, until the rest
        // is given up.
        if word & !TAGS == self.at.raw() && self.heap.is_idle() {
            let end = || give_up(self.heap, &self.directory, self.slot, self.is_unsure);
            if std::thread::panicking() {
                // The cause of the panic may make this panic too, which would end the process. The
                // lease then ends with the member.
                let _ = std::panic::catch_unwind(AssertUnwindSafe(end));
            } else {
                end();
            }
        }
    }
}

/// Gives up the lease in `slot`, which is not clear, and destroys the object if that was its last
/// use. With `is_unsure` it looks up in the map whether the object is linked. Can be cut short
/// anywhere, and begun again in the dead member's name.
pub(super) fn give_up<M: Memory>(
    heap: &LocalHeap<'_, M>,
    directory: &Directory<M>,
    slot: Offset,
    is_unsure: bool,
) {
    let memory = heap.memory();
    // Relaxed: the caller's own word, or acquired with the claim on the dead member's log.
    let word: u64 = memory.load(slot, Ordering::Relaxed);
    let Ok(record) = Record::checked(memory, word & !TAGS) else {
        // Damage: no object is there. It is not followed.
        tracing::warn!(%slot, word, "a lease leads to no object");
        return clear(memory, slot);
    };
    let at = record.at();
    // From before the lease ends: the block may be retired by another member, but not freed. No
    // block is taken off the caller's list, so the recovery sees whether this one is the last.
    let _pin = heap.pin();
    if word & TAGS == RETIRING {
        return retire(heap, slot, at);
    }
    if word & TAGS == 0 {
        if record.class() == Some(Class::Client) {
            client::release(heap, record, slot);
        }
        // Release: after the last use.
        memory.store(slot, at.raw() | GIVEN_UP, Ordering::Release);
        memory.persist(slot, 8);
        memory.crash_point(ReleasePoint::GivenUp);
    }
    // Of the members that end leases at the same time, the last sees no lease and the unlinked
    // state.
    memory.fence(Ordering::SeqCst);
    settle_name(heap, directory, record, slot, is_unsure);
    // The state is read, or changed, before the leases are.
    memory.fence(Ordering::SeqCst);
    let own = State::Claimed(slot);
    let state = record.state();
    let was_claimed = state == Some(own);
    let claims = state == Some(State::Unlinked)
        && directory.users(at, slot).next().is_none()
        && record.change_state(State::Unlinked, own);
    if claims {
        memory.crash_point(ReleasePoint::Claimed);
    }
    if claims || was_claimed {
        if record.class() == Some(Class::Structure)
            && let Err(error) = dismantle(heap, record.contents(), !was_claimed)
        {
            // Damage. What cannot be followed stays allocated.
            tracing::warn!(%at, %error, "the contents of an object were not all freed");
        }
        memory.crash_point(ReleasePoint::Destroyed);
        memory.store(slot, at.raw() | RETIRING, Ordering::Release);
        memory.persist(slot, 8);
        memory.crash_point(ReleasePoint::Retiring);
        return retire(heap, slot, at);
    }
    clear(memory, slot);
}

/// Settles the name of an object that the owner of `slot` was renaming or unlinking. With
/// `is_unsure`, also that of a live one, which may never have been linked.
pub(super) fn settle_name<M: Memory>(
    heap: &LocalHeap<'_, M>,
    directory: &Directory<M>,
    record: Record<M>,
    slot: Offset,
    is_unsure: bool,
) {
    loop {
        let before = match record.state() {
            Some(state @ State::NameLocked(by)) if by == slot => state,
            Some(state @ State::Live(_)) if is_unsure => state,
            _ => return,
        };
        // An object whose name is damaged may be linked.
        let (is_linked, version) = match record.name() {
            Ok((name, version)) => (directory.leads_to(heap, &name, record.at()), version),
            Err(_) => (true, record.version()),
        };
        let after = match is_linked {
            true => State::Live(version),
            false => State::Unlinked,
        };
        if before == after || record.change_state(before, after) {
            return;
        }
        // Another member has renamed or unlinked it meanwhile.
    }
}

/// Retires the object at `at`, unless that is done, and clears the slot, which is tagged as
/// retiring. Nothing else is retired between the tag and the clearing.
fn retire<M: Memory>(heap: &LocalHeap<'_, M>, slot: Offset, at: Offset) {
    if !heap.is_last_retired(at) {
        heap.retire(at);
    }
    heap.memory().crash_point(ReleasePoint::Retired);
    clear(heap.memory(), slot);
}

fn clear<M: Memory>(memory: M, slot: Offset) {
    // Release: the object is retired, or another slot takes care of it.
    memory.store(slot, 0u64, Ordering::Release);
    memory.persist(slot, 8);
    memory.crash_point(ReleasePoint::Cleared);
}

/// Finishes the retirement that a dead member left, before its operation is settled.
pub(super) fn finish_retiring<M: Memory>(
    heap: &LocalHeap<'_, M>,
    directory: &Directory<M>,
    slot: Offset,
) {
    let word: u64 = heap.memory().load(slot, Ordering::Relaxed);
    if word & TAGS == RETIRING {
        give_up(heap, directory, slot, true);
    }
}
