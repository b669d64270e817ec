//! Changes of the barrier: members join, leave and are removed, and waiting is interrupted.

use super::word::{Impossible, Phase, Slot, State, Step};
use super::{BarrierError, BarrierPoint, GroupBarrier, Seat};
use crate::membership::{Instance, Member};
use outlive_memory::{Memory, Ordering};

/// The seats that are searched for dead and departed occupants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Seats in order, until as many seated ones have been seen as there are members.
    Members,
    /// Every seat: a claimant that died before it was counted may have claimed any of them.
    Everywhere,
}

/// The way in which a member is taken out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    /// The member leaves by itself.
    Leaves,
    /// The member was dead or departed before the call.
    Buried,
}

/// The result of taking an occupant off its seat.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    /// The occupant was a member; this call has removed it.
    Out,
    /// The occupant's claim is withdrawn.
    Unclaimed,
    /// The occupant was no longer there.
    Already,
}

impl<M: Memory> GroupBarrier<M> {
    /// Makes `member` a member of the group, which voids all waiting. If no seat is vacant, the
    /// seats of dead and departed members are vacated first.
    ///
    /// Lock-free.
    ///
    /// # Errors
    /// [`AlreadySeated`](BarrierError::AlreadySeated), [`Full`](BarrierError::Full),
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// `member` has joined or not; [`bury`](Self::bury) cleans up either state.
    pub fn join<'m>(&self, member: &'m Member<M>) -> Result<Seat<'m, M>, BarrierError> {
        let (seat, slot) = self.claim(member)?;
        self.memory.crash_point(BarrierPoint::Claimed);
        let before = match self.count_in(seat) {
            Ok(before) => before,
            Err(error) => {
                self.swap_slot(seat, slot, slot.vacated());
                return Err(error);
            }
        };
        self.memory.crash_point(BarrierPoint::CountedIn);
        // If it fails, another member has done it.
        self.swap_slot(seat, slot, slot.seated());
        self.memory.crash_point(BarrierPoint::Seated);
        self.wake(member, before);
        self.go_on();
        Ok(Seat::new(*self, member, seat))
    }

    /// Removes all dead and departed occupants
    /// ([`is_gone`](crate::membership::Generations::is_gone)) and returns how many were members.
    /// The removal of a member is one change, made by exactly one of any number of callers, and
    /// voids all waiting. Claims of instances that died before they were members are withdrawn too,
    /// without a change.
    ///
    /// A member that [waits](Seat::wait) does this by itself at intervals. Lock-free.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// Some are removed and others not yet; sleepers may sleep to the end of their time-outs.
    pub fn bury(&self, member: &Member<M>) -> Result<u32, BarrierError> {
        let (buried, _) = self.sweep(member, Reach::Everywhere)?;
        self.go_on();
        Ok(buried)
    }

    /// Voids all waiting, without a change of members: there is work to steal, or new work. A
    /// member that searches for work at this moment will not wait either, if it arrives by
    /// [`arrive_since`](Seat::arrive_since).
    ///
    /// The members that it wakes see all earlier writes of the caller. Lock-free. One
    /// compare-and-swap of a line that all share: where work is created all the time, check
    /// [first](Self::view) whether any member waits.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// The interruption took place or not; if it did, sleepers may sleep to the end of their
    /// time-outs.
    pub fn interrupt(&self, member: &Member<M>) -> Result<(), BarrierError> {
        let before = loop {
            let state = self.load()?;
            if self.swap(state, state.changed()) {
                break state;
            }
        };
        self.memory.crash_point(BarrierPoint::Interrupted);
        self.wake(member, before);
        self.go_on();
        Ok(())
    }

    /// Orders the caller's later writes after the barrier's state that it has seen: a thread that
    /// reads one of them also finds the barrier changed. See [`Seat::still`].
    #[inline]
    pub(super) fn go_on(&self) {
        self.memory.fence(Ordering::Release);
    }

    /// Claims the lowest vacant seat.
    fn claim(&self, member: &Member<M>) -> Result<(u32, Slot), BarrierError> {
        let me = member.instance();
        'again: loop {
            let mut vacant = None;
            for seat in 0..self.seats() {
                let slot = self.slot(seat)?;
                if slot.occupant == me.to_word() {
                    return Err(BarrierError::AlreadySeated {
                        instance: me,
                        barrier: self.at,
                        seat,
                    });
                }
                if slot.phase == Phase::Vacant && vacant.is_none() {
                    vacant = Some((seat, slot));
                }
            }
            let Some((seat, slot)) = vacant else {
                let (buried, unclaimed) = self.sweep(member, Reach::Everywhere)?;
                if buried + unclaimed > 0 {
                    continue 'again;
                }
                return Err(BarrierError::Full {
                    barrier: self.at,
                    seats: self.seats,
                });
            };
            let claimed = slot.claimed_by(me.to_word());
            if self.swap_slot(seat, slot, claimed) {
                return Ok((seat, claimed));
            }
        }
    }

    /// Counts the claimant of `seat` as a member.
    fn count_in(&self, seat: u32) -> Result<State, BarrierError> {
        loop {
            let state = self.load()?;
            if !self.settle(state)? {
                continue;
            }
            if state.members == self.seats() {
                return Err(self.damaged(
                    self.at,
                    Impossible("it counts a member for each seat, but a seat has none"),
                ));
            }
            let next = State {
                members: state.members + 1,
                last: Step::In(seat),
                ..state.changed()
            };
            if self.swap(state, next) {
                return Ok(state);
            }
        }
    }

    /// Removes the calling member from `seat`.
    pub(super) fn leave(&self, member: &Member<M>, seat: u32) -> Result<(), BarrierError> {
        match self.take_out(member, seat, member.instance().to_word(), Going::Leaves)? {
            Gone::Out => {
                self.go_on();
                Ok(())
            }
            _ => Err(self.damaged(
                self.slot_at(seat),
                Impossible("the seat of a member has another occupant"),
            )),
        }
    }

    /// Removes dead and departed occupants; returns the numbers of members and of claims.
    pub(super) fn sweep(
        &self,
        member: &Member<M>,
        reach: Reach,
    ) -> Result<(u32, u32), BarrierError> {
        let generations = member.generations();
        let members = match reach {
            Reach::Members => self.load()?.members,
            Reach::Everywhere => u32::MAX,
        };
        let (mut seen, mut buried, mut unclaimed) = (0, 0, 0);
        for seat in 0..self.seats() {
            if seen == members {
                break;
            }
            let slot = self.slot(seat)?;
            if slot.phase == Phase::Vacant {
                continue;
            }
            seen += u32::from(slot.phase == Phase::Seated);
            let Some(occupant) = Instance::from_word(slot.occupant) else {
                let what = Impossible("a seat's occupant is not an instance");
                return Err(self.damaged(self.slot_at(seat), what));
            };
            if generations.is_gone(occupant) {
                match self.take_out(member, seat, slot.occupant, Going::Buried)? {
                    Gone::Out => buried += 1,
                    Gone::Unclaimed => unclaimed += 1,
                    Gone::Already => {}
                }
            }
        }
        Ok((buried, unclaimed))
    }

    /// Takes `occupant` off `seat` if it is there. It must not be able to count itself in any more.
    fn take_out(
        &self,
        member: &Member<M>,
        seat: u32,
        occupant: u64,
        going: Going,
    ) -> Result<Gone, BarrierError> {
        loop {
            // After the check of the generation: the load sees all changes that the dead member
            // made.
            let state = self.load()?;
            if !self.settle(state)? {
                continue;
            }
            let slot = self.slot(seat)?;
            if slot.occupant != occupant {
                return Ok(Gone::Already);
            }
            if slot.phase == Phase::Claimed {
                if going == Going::Leaves {
                    // The step was settled above, so the word does not count this claim.
                    return Ok(Gone::Already);
                }
                let vacated = self.swap_slot(seat, slot, slot.vacated());
                self.memory.crash_point(BarrierPoint::Vacated);
                return Ok(if vacated {
                    Gone::Unclaimed
                } else {
                    Gone::Already
                });
            }
            if state.members == 0 {
                let what = Impossible("it counts no members, but a seat is taken");
                return Err(self.damaged(self.at, what));
            }
            let next = State {
                members: state.members - 1,
                last: Step::Out(seat),
                ..state.changed()
            };
            if !self.swap(state, next) {
                continue;
            }
            self.memory.crash_point(BarrierPoint::CountedOut);
            // If it fails, another member has done it, or the last member has left, the barrier was
            // freed, and its memory holds another object.
            self.swap_slot(seat, slot, slot.vacated());
            self.memory.crash_point(BarrierPoint::Vacated);
            match going {
                Going::Leaves => self.wake(member, state),
                // The dead member may have died before it woke the sleepers.
                Going::Buried => self.ring(member),
            }
            return Ok(Gone::Out);
        }
    }
}
