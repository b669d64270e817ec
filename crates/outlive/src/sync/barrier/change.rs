//! Changes of the barrier: members come, leave and are buried, and waiting is interrupted.

use super::word::{Impossible, Phase, Slot, State, Step};
use super::{BarrierError, BarrierPoint, GroupBarrier, Seat};
use crate::membership::{Instance, Member};
use outlive_memory::{Memory, Ordering};

/// How far one looks for the gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Until as many seats have been seen as there are members.
    Members,
    /// At every seat: claims of those that died before they were counted may stand anywhere.
    Everywhere,
}

/// How a member goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    /// By itself.
    Leaves,
    /// It is gone, and was so before this was asked.
    Buried,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    /// It was a member and is none now, by this call.
    Out,
    /// Its claim is taken back.
    Unclaimed,
    /// It was not there any more.
    Already,
}

impl<M: Memory> GroupBarrier<M> {
    /// Makes `member` a member of the group, by which all waiting is void. The seats of the gone are vacated if
    /// there is no other.
    ///
    /// Lock-free.
    ///
    /// # Errors
    /// [`AlreadySeated`](BarrierError::AlreadySeated), [`Full`](BarrierError::Full),
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// It is a member or not; either is [buried](Self::bury).
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
        // If it fails another has done it.
        self.swap_slot(seat, slot, slot.seated());
        self.memory.crash_point(BarrierPoint::Seated);
        self.wake(member, before);
        self.go_on();
        Ok(Seat::new(*self, member, seat))
    }

    /// Takes all out that are gone ([`is_gone`](crate::membership::Generations::is_gone)); returns how many
    /// members that were. Each is one change, made by one of however many callers, and voids all waiting;
    /// claims of those that died before they were members are taken back too, without a change.
    ///
    /// Whoever [waits](Seat::wait) does this by itself every now and then. Lock-free.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// Some are out and others not yet; sleepers may sleep to the end of their naps.
    pub fn bury(&self, member: &Member<M>) -> Result<u32, BarrierError> {
        let (buried, _) = self.sweep(member, Reach::Everywhere)?;
        self.go_on();
        Ok(buried)
    }

    /// Voids all waiting, without a change of members: there is work to steal, or new work. A member that looks
    /// for work at this moment will not wait either, if it [asks](Seat::arrive_since).
    ///
    /// What was written before is seen by those that it wakes. Lock-free. One compare-and-swap of a line that
    /// all share: where work is made all the time, look first whether [anybody waits](Self::view).
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// It took place or not; if it did, sleepers may sleep to the end of their naps.
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

    /// Whoever goes on from here writes nothing that could be read by one who then finds the barrier as it was
    /// before: see [`Seat::still`].
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

    /// Counts the claimant of `seat` in.
    fn count_in(&self, seat: u32) -> Result<State, BarrierError> {
        loop {
            let state = self.load()?;
            if !self.settle(state)? {
                continue;
            }
            if state.members == self.seats() {
                return Err(self.damaged(self.at, Impossible("it counts members without seats")));
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

    /// The member on `seat` leaves.
    pub(super) fn leave(&self, member: &Member<M>, seat: u32) -> Result<(), BarrierError> {
        match self.take_out(member, seat, member.instance().to_word(), Going::Leaves)? {
            Gone::Out => {
                self.go_on();
                Ok(())
            }
            _ => Err(self.damaged(
                self.slot_at(seat),
                Impossible("a member's seat is not its own"),
            )),
        }
    }

    /// Takes the gone out: members, and claims.
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

    /// Takes `occupant`, which counts itself in no more, off `seat`, if it is there.
    fn take_out(
        &self,
        member: &Member<M>,
        seat: u32,
        occupant: u64,
        going: Going,
    ) -> Result<Gone, BarrierError> {
        loop {
            // After the look at the generation: what the dead had done to the word is in it.
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
                    // Settled above, so it is the word that does not know of it.
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
                let what = Impossible("it counts no members, but somebody is seated");
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
            // If the swap fails, another member has done it. It also fails if the barrier was freed
            // after its last member had left and its memory holds another object.
            self.swap_slot(seat, slot, slot.vacated());
            self.memory.crash_point(BarrierPoint::Vacated);
            match going {
                Going::Leaves => self.wake(member, state),
                // The dead may have owed its sleepers a ring.
                Going::Buried => self.ring(member),
            }
            return Ok(Gone::Out);
        }
    }
}
