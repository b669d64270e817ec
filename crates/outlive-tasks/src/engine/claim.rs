//! The claim of a slot by a worker.

use super::find::Taken;
use super::{Engine, EngineError, Hooks};
use crate::engine::deque::Deque;
use crate::engine::slot::{Occupant, Slots};
use crate::engine::status::State;
use crate::engine::supply::Supply;
use outlive::heap::LocalHeap;
use outlive::memory::Memory;
use outlive::recovery::{Recovered, Recoverers};

outlive::memory::crash_points! {
    /// Crash points of the claim of a slot.
    pub enum ClaimPoint for "tasks.claim" {
        /// The slot is among the used ones, which other workers check and steal from.
        Used,
        /// The slot is claimed, and as the last owner left it.
        Claimed,
        /// The deque belongs to the new owner.
        DequeAdopted,
        /// The chunks belong to the new owner.
        Adopted,
        /// The slot has no owner again.
        GivenUp,
    }
}

impl<'w, M: Memory> Engine<'w, M> {
    /// Claims the first available slot: one without an owner, or whose owner has died or left.
    /// Finishes the last owner's commit or failure, and takes over its deque and chunks.
    /// [`next`](Self::next) first returns the task that the last owner ran. Lock-free. `heap` is
    /// the worker's heap handle.
    ///
    /// # Errors
    /// [`EngineError::NoSlot`] if no slot is available; if the heap has no block for a deque; a
    /// hook's error.
    ///
    /// # Crash
    /// The slot belongs to a dead owner, and can be claimed again.
    pub fn claim<H: Hooks<M>>(
        slots: Slots<M>,
        heap: &'w LocalHeap<'w, M>,
        recoverers: &'w Recoverers<M>,
        hooks: &mut H,
    ) -> Result<Self, H::Error> {
        Self::claim_any((slots, 0, false), heap, recoverers, hooks)
    }

    /// Claims a slot as a guest (an additional worker, which the pool did not request): the first
    /// available slot from `first` on, or else before it. The claiming step marks it as a guest's.
    /// The slot of a dead worker that was not a guest is kept for its successor: a guest would
    /// replace no worker, and would erase the death from which the pool decides on a replacement.
    ///
    /// # Errors
    /// Returns the errors of [`claim`](Self::claim), and [`EngineError::NoGuestSlot`] if the only
    /// free slots are kept for successors.
    ///
    /// # Crash
    /// The slot belongs to a dead guest, and can be claimed again.
    pub fn claim_guest<H: Hooks<M>>(
        slots: Slots<M>,
        first: u32,
        heap: &'w LocalHeap<'w, M>,
        recoverers: &'w Recoverers<M>,
        hooks: &mut H,
    ) -> Result<Self, H::Error> {
        Self::claim_any((slots, first, true), heap, recoverers, hooks)
    }

    fn claim_any<H: Hooks<M>>(
        (slots, first, is_guest): (Slots<M>, u32, bool),
        heap: &'w LocalHeap<'w, M>,
        recoverers: &'w Recoverers<M>,
        hooks: &mut H,
    ) -> Result<Self, H::Error> {
        let capacity = slots.settings().capacity;
        let first = first.min(capacity);
        for number in (first..capacity).chain(0..first) {
            let place = (slots, number, is_guest);
            if let Some(engine) = Self::claim_place(place, heap, recoverers, hooks)? {
                return Ok(engine);
            }
        }
        let kept = (0..capacity).filter(|number| {
            let occupant = slots.slot(*number).occupant();
            let died = |one: Occupant| heap.member().generations().is_gone(one.worker);
            is_guest && occupant.is_some_and(|one| !one.is_guest && died(one))
        });
        match kept.count() as u32 {
            0 => Err(EngineError::NoSlot { capacity }.into()),
            kept => Err(EngineError::NoGuestSlot { capacity, kept }.into()),
        }
    }

    /// Claims slot `number`. Returns `None` if it is not available now.
    ///
    /// # Errors
    /// Returns the errors of [`claim`](Self::claim).
    ///
    /// # Panics
    /// If the slot does not exist.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`claim`](Self::claim).
    pub fn claim_slot<H: Hooks<M>>(
        slots: Slots<M>,
        number: u32,
        heap: &'w LocalHeap<'w, M>,
        recoverers: &'w Recoverers<M>,
        hooks: &mut H,
    ) -> Result<Option<Self>, H::Error> {
        Self::claim_place((slots, number, false), heap, recoverers, hooks)
    }

    fn claim_place<H: Hooks<M>>(
        (slots, number, is_guest): (Slots<M>, u32, bool),
        heap: &'w LocalHeap<'w, M>,
        recoverers: &'w Recoverers<M>,
        hooks: &mut H,
    ) -> Result<Option<Self>, H::Error> {
        let (memory, member, slot) = (slots.memory(), heap.member(), slots.slot(number));
        let before = slot.occupant();
        if let Some(Occupant {
            worker: owner,
            is_guest: was_guest,
        }) = before
        {
            if !member.generations().is_gone(owner) || is_guest && !was_guest {
                return Ok(None);
            }
            // Before the claim: the operations of the dead owner complete in cells of this slot.
            let settled = recoverers
                .recover(member, owner.id)
                .map_err(EngineError::from)?;
            if matches!(settled, Recovered::ByAnother(_)) {
                return Ok(None);
            }
        }
        let me = Occupant {
            worker: member.instance(),
            is_guest,
        };
        // Before the claim: a worker that dies in it is counted among the dead.
        slots.use_slot(number);
        memory.crash_point(ClaimPoint::Used);
        if !slot.claim(before, me) {
            return Ok(None);
        }
        memory.crash_point(ClaimPoint::Claimed);
        let given_up = |error: EngineError| {
            slot.give_up();
            error
        };
        let settings = slots.settings();
        let deque = Deque::adopt(slot, heap, settings.smallest).map_err(given_up)?;
        memory.crash_point(ClaimPoint::DequeAdopted);
        let mut engine = Self {
            slots,
            heap,
            recoverers,
            number,
            slot,
            before,
            deque,
            supply: Supply::none(slot, memory, settings.chunk),
            inherited: true,
            held: None,
            random: me.worker.to_word().wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        };
        // While another worker commits the predecessor's task, the children must not change.
        match engine.is_free_of_commits(hooks) {
            Ok(true) => {}
            Ok(false) => {
                slot.give_up();
                memory.crash_point(ClaimPoint::GivenUp);
                return Ok(None);
            }
            Err(error) => {
                slot.give_up();
                return Err(error);
            }
        }
        engine.supply = Supply::adopt(slot, heap, settings.chunk).map_err(given_up)?;
        engine.inherited = match slot.running(memory).map_err(given_up)? {
            None => false,
            Some(task) => {
                let status = task.status().map_err(given_up)?;
                matches!(status.state(), State::Ready | State::Running)
            }
        };
        memory.crash_point(ClaimPoint::Adopted);
        Ok(Some(engine))
    }

    /// Finishes the commit or the failure of the predecessor's task. Returns `false` if another
    /// live worker is doing so.
    fn is_free_of_commits<H: Hooks<M>>(&mut self, hooks: &mut H) -> Result<bool, H::Error> {
        let Some(task) = self.slot.running(self.slots.memory())? else {
            return Ok(true);
        };
        loop {
            match task.status()?.state() {
                State::Committing | State::Failing => match self.take(task, hooks)? {
                    Taken::Finished => return Ok(true),
                    Taken::Run(_) => unreachable!("a commit is not run again"),
                    Taken::Nothing if !task.status()?.state().is_held() => {}
                    Taken::Nothing => return Ok(false),
                },
                _ => return Ok(true),
            }
        }
    }
}
