//! How a worker comes by a slot.

use super::find::Taken;
use super::{Engine, EngineError, Hooks};
use crate::deque::Deque;
use crate::slot::{Occupant, Slots};
use crate::status::State;
use crate::supply::Supply;
use outlive::heap::LocalHeap;
use outlive::memory::Memory;
use outlive::recovery::{Recovered, Recoverers};

outlive::memory::crash_points! {
    /// Where the claim of a slot may be cut short.
    pub enum ClaimPoint for "tasks.claim" {
        /// It is among those that others look at, and steal from.
        Used,
        /// It is claimed; all is as the last owner left it.
        Claimed,
        /// Its deque is the new owner's.
        DequeAdopted,
        /// Its chunks are.
        Adopted,
        /// The slot is nobody's again.
        GivenUp,
    }
}

impl<'w, M: Memory> Engine<'w, M> {
    /// A worker of the first slot that can be had: one that nobody owns, or whose owner is gone. It goes on with what the
    /// last owner left: its commit or failure here, its deque, its chunks; the task that it ran is the first that
    /// [`next`](Self::next) finds. Lock-free. `heap` is the worker's way to the pod's heap.
    ///
    /// # Errors
    /// [`EngineError::NoSlot`] if there is none; if there is no room for a deque; what a hook says.
    ///
    /// # Crash
    /// The slot is a dead one's, and can be claimed again.
    pub fn claim<H: Hooks<M>>(
        slots: Slots<M>,
        heap: &'w LocalHeap<'w, M>,
        recoverers: &'w Recoverers<M>,
        hooks: &mut H,
    ) -> Result<Self, H::Error> {
        Self::claim_any((slots, 0, false), heap, recoverers, hooks)
    }

    /// A worker of the first slot from number `first` on that can be had, of the others if there is none: besides those whom the
    /// pool wants. That it is a guest is said by the step that claims the slot. A slot in which one of those has died is kept for
    /// his successor: a guest there would be nobody's, and the dead one forgotten who is to be replaced, or need not be.
    ///
    /// # Errors
    /// As [`claim`](Self::claim); [`EngineError::NoGuestSlot`] if there are only slots of such dead.
    ///
    /// # Crash
    /// The slot is a dead guest's, and can be claimed again.
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

    /// The same of slot `number`; `None` if it cannot be had now.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    ///
    /// # Panics
    /// If there is no such slot.
    ///
    /// # Crash
    /// As [`claim`](Self::claim).
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
            // Before the claim: the dead one's steps ended in cells of this slot.
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
        // Before the claim: whoever dies in it is counted among the dead.
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
        // While somebody commits the predecessor's task, the children's descriptors stay as they are.
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
        engine.inherited = match slot.running(memory)? {
            None => false,
            Some(task) => matches!(task.status()?.state(), State::Ready | State::Running),
        };
        memory.crash_point(ClaimPoint::Adopted);
        Ok(Some(engine))
    }

    /// Brings the commit of the predecessor's task to its end, or its failure; `false` if somebody who lives is at it.
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
