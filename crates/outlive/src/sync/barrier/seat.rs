//! The seat of a member: arriving, waiting, releasing.

use super::change::Reach;
use super::word::{Epoch, Impossible, State};
use super::{BarrierError, BarrierPoint, GroupBarrier, Moment};
use crate::membership::Member;
use crate::sync::wait::{Rest, Waiter, Waiting};
use core::time::Duration;
use outlive_memory::{Memory, Native, Ordering};

/// The result of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Other members have not arrived: [wait](Seat::wait) for them.
    Waiting(Ticket),
    /// All members wait: [release](Seat::release) them, perhaps after a check, or wait too.
    Last(Ticket),
}

/// The proof of an arrival: the epoch in which the seat arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The barrier's state just after this arrival, with `asleep` cleared.
    state: State,
    last: bool,
}

impl Ticket {
    /// Returns whether this arrival was the last one, so that all members had arrived.
    pub fn is_last(&self) -> bool {
        self.last
    }

    /// Returns how the arrival has ended by `state`; `None` if it still counts.
    fn outcome(&self, state: State) -> Option<Outcome> {
        // A release needs every member that is counted, so after a change there is none without
        // this member: if both sequences have moved, the release came first.
        if state.epoch.releases != self.state.epoch.releases {
            Some(Outcome::Released)
        } else if state.epoch.changes != self.state.epoch.changes {
            Some(Outcome::Changed)
        } else {
            None
        }
    }
}

/// The way in which a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All members had arrived and were released.
    Released,
    /// The wait is void, because members joined, left or died, or an
    /// [interrupt](GroupBarrier::interrupt) announced work. The caller searches for work, and then
    /// arrives again.
    Changed,
    /// The time-out has passed. The seat still counts as arrived: wait again with the same ticket,
    /// or [withdraw](Seat::withdraw).
    TimedOut,
}

/// The result of a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The seat no longer counts as arrived.
    Withdrawn,
    /// All members had been released already.
    Released,
    /// The wait was void already.
    Changed,
    /// All members wait, and the last of them decides about the release, so this member cannot
    /// withdraw. It still counts as arrived, and must [wait](Seat::wait) again with its ticket (a
    /// second arrival could take place after the release).
    Complete,
}

/// A member's seat at a [`GroupBarrier`]. Dropping it [leaves](Self::leave).
///
/// An instance has at most one seat at a barrier. A seat that arrives repeatedly is counted once.
#[derive(Debug)]
#[must_use = "the member leaves the barrier when this is dropped"]
pub struct Seat<'m, M: Memory = Native> {
    barrier: GroupBarrier<M>,
    member: &'m Member<M>,
    seat: u32,
    /// The last arrival, unless it was withdrawn: the epoch in which it counts, and whether it was
    /// the last of all.
    arrived: Option<(Epoch, bool)>,
    has_left: bool,
}

impl<'m, M: Memory> Seat<'m, M> {
    pub(super) fn new(barrier: GroupBarrier<M>, member: &'m Member<M>, seat: u32) -> Self {
        Self {
            barrier,
            member,
            seat,
            arrived: None,
            has_left: false,
        }
    }

    /// Returns the barrier.
    pub fn barrier(&self) -> GroupBarrier<M> {
        self.barrier
    }

    /// Returns the member that has the seat.
    pub fn member(&self) -> &'m Member<M> {
        self.member
    }

    /// Returns the seat's number.
    pub fn number(&self) -> u32 {
        self.seat
    }

    /// Arrives: this member waits from now on, even if it is the only one. The members that are
    /// released with it see its earlier writes. A seat that has arrived already is not counted
    /// twice.
    ///
    /// Lock-free: one compare-and-swap.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// It counts as arrived until it is removed, which voids the arrival.
    pub fn arrive(&mut self) -> Result<Arrival, BarrierError> {
        loop {
            if let Some(arrival) = self.arrive_at(|_| true)? {
                return Ok(arrival);
            }
        }
    }

    /// [Arrives](Self::arrive) unless the barrier has changed since `moment`; then returns `None`.
    /// With a `moment` from before a search for work, no interrupt is lost in between.
    ///
    /// # Errors
    /// Returns the errors of [`arrive`](Self::arrive).
    pub fn arrive_since(&mut self, moment: Moment) -> Result<Option<Arrival>, BarrierError> {
        self.arrive_at(|state| state.epoch.changes == moment.0)
    }

    fn arrive_at(
        &mut self,
        wanted: impl Fn(State) -> bool,
    ) -> Result<Option<Arrival>, BarrierError> {
        let barrier = self.barrier;
        loop {
            let state = barrier.load()?;
            if !wanted(state) {
                return Ok(None);
            }
            if let Some((epoch, last)) = self.arrived
                && epoch == state.epoch
            {
                return Ok(Some(arrival(state, last)));
            }
            if state.waiting >= state.members {
                let what = Impossible("all its members wait, but one has not arrived");
                return Err(barrier.damaged(barrier.at, what));
            }
            let next = state.arrived();
            if barrier.swap(state, next) {
                barrier.memory.crash_point(BarrierPoint::Arrived);
                let last = next.is_complete();
                self.arrived = Some((next.epoch, last));
                return Ok(Some(arrival(next, last)));
            }
        }
    }

    /// Waits until all members are released, the barrier changes, or `timeout` has passed. While it
    /// waits, a member [removes](GroupBarrier::bury) dead and departed members, at intervals while
    /// it is awake and before each sleep; a removal is a change. So a death remains unnoticed for
    /// at most [`nap`](Waiting::nap), even if no other thread removes dead members. The last member
    /// that arrived may wait, too.
    ///
    /// Waits for live members.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// The outcome is that of a crash in [`arrive`](Self::arrive).
    pub fn wait(
        &self,
        ticket: &Ticket,
        waiting: Waiting,
        timeout: Option<Duration>,
    ) -> Result<Outcome, BarrierError> {
        let barrier = self.barrier;
        let mut waiter = Waiter::new(self.member, waiting, None, timeout);
        loop {
            if let Some(outcome) = ticket.outcome(barrier.load()?) {
                barrier.go_on();
                return Ok(outcome);
            }
            if waiter.looks_about() && barrier.sweep(self.member, Reach::Members)?.0 > 0 {
                continue;
            }
            match waiter.rest() {
                Rest::Over => return Ok(Outcome::TimedOut),
                Rest::Awake => {}
                Rest::Sleep(nap) => {
                    if barrier.sweep(self.member, Reach::Members)?.0 == 0 {
                        self.sleep(ticket, &waiter, nap)?;
                    }
                }
            }
        }
    }

    /// Sleeps in the ticket's epoch.
    #[cold]
    fn sleep(
        &self,
        ticket: &Ticket,
        waiter: &Waiter<'_, M>,
        nap: Duration,
    ) -> Result<(), BarrierError> {
        let barrier = self.barrier;
        let Some(bells) = self.member.bells() else {
            waiter.nap_unheard(nap);
            return Ok(());
        };
        // Before the load of the word: a thread that moves a sequence after that wakes us after
        // this.
        let seen = bells.read(barrier.at.raw());
        loop {
            let state = barrier.load()?;
            if ticket.outcome(state).is_some() {
                return Ok(());
            }
            let dozing = State {
                asleep: true,
                ..state
            };
            if state.asleep || barrier.swap(state, dozing) {
                break;
            }
        }
        barrier.memory.crash_point(BarrierPoint::Dozing);
        bells.wait(barrier.at.raw(), seen, nap);
        Ok(())
    }

    /// Returns whether the barrier has had no release and no change since `ticket` was given. To
    /// the member that arrived last, true means that all other members have waited since then, so
    /// that everything that it has read in that time, in any order, was read while no other member
    /// acted. To another member, true means that it still has to wait.
    ///
    /// Wait-free.
    pub fn still(&self, ticket: &Ticket) -> bool {
        // Acquire: if this thread has read a value written by a member that had gone on, then it
        // sees here the change by which that member went on (its release fence is in `go_on`).
        self.barrier.memory.fence(Ordering::Acquire);
        let stands = |state| self.stands(ticket, state);
        let still = self.barrier.load().is_ok_and(stands);
        if !still {
            self.barrier.go_on();
        }
        still
    }

    fn stands(&self, ticket: &Ticket, state: State) -> bool {
        let counted = self.arrived == Some((ticket.state.epoch, ticket.last));
        let same = if ticket.last {
            state.awake() == ticket.state
        } else {
            state.epoch == ticket.state.epoch
        };
        counted && same
    }

    /// Releases all members if all have [still](Self::still) waited since this one arrived as the
    /// last. Returns whether it did. Only the last member to arrive releases the others. All
    /// members see its earlier writes. Lock-free.
    ///
    /// # Crash
    /// All members are released or none; sleepers may sleep to the end of their time-outs.
    pub fn release(&mut self, ticket: &Ticket) -> bool {
        let barrier = self.barrier;
        // Acquire: as in `still`.
        barrier.memory.fence(Ordering::Acquire);
        let before = loop {
            let Ok(state) = barrier.load() else {
                return false;
            };
            if !ticket.last || !self.stands(ticket, state) {
                return false;
            }
            if barrier.swap(state, state.released()) {
                break state;
            }
        };
        barrier.memory.crash_point(BarrierPoint::Released);
        barrier.wake(self.member, before);
        barrier.go_on();
        true
    }

    /// Withdraws the arrival, so that this member can search for work while the other members
    /// continue to wait. Refused while all members wait, except for the member that arrived last:
    /// it can rely on the other members to wait during a check.
    ///
    /// Lock-free.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// It took place or not.
    pub fn withdraw(&mut self, ticket: &Ticket) -> Result<Withdrawal, BarrierError> {
        let barrier = self.barrier;
        let done = loop {
            let state = barrier.load()?;
            match ticket.outcome(state) {
                Some(Outcome::Released) => break Withdrawal::Released,
                Some(_) => break Withdrawal::Changed,
                None => {}
            }
            let last = match self.arrived {
                Some((epoch, last)) if epoch == state.epoch => last,
                _ => break Withdrawal::Withdrawn, // before
            };
            if state.is_complete() && !last {
                return Ok(Withdrawal::Complete);
            }
            if state.waiting == 0 {
                let what = Impossible("it counts no waiting member, but one has arrived");
                return Err(barrier.damaged(barrier.at, what));
            }
            if barrier.swap(state, state.withdrawn()) {
                barrier.memory.crash_point(BarrierPoint::Withdrawn);
                self.arrived = None;
                break Withdrawal::Withdrawn;
            }
        };
        barrier.go_on();
        Ok(done)
    }

    /// Waits until all members have arrived, as at an ordinary barrier. The last member to arrive
    /// releases the other members. If the members change while this one waits, it arrives again.
    /// Returns whether this member was the last.
    ///
    /// Waits for live members.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// The others continue without this member.
    pub fn enter(&mut self, waiting: Waiting) -> Result<bool, BarrierError> {
        loop {
            match self.arrive()? {
                Arrival::Last(ticket) => {
                    if self.release(&ticket) {
                        return Ok(true);
                    }
                }
                Arrival::Waiting(ticket) => {
                    if self.wait(&ticket, waiting, None)? == Outcome::Released {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Voids all waiting: [`GroupBarrier::interrupt`].
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    pub fn interrupt(&self) -> Result<(), BarrierError> {
        self.barrier.interrupt(self.member)
    }

    /// Leaves the group in good order, which voids all waiting. The seat is vacant afterwards.
    ///
    /// Lock-free.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// The caller is still a member and will be removed, or it has left, and the next thread that
    /// changes the members vacates its seat.
    pub fn leave(mut self) -> Result<(), BarrierError> {
        self.has_left = true;
        self.barrier.leave(self.member, self.seat)
    }
}

impl<M: Memory> Drop for Seat<'_, M> {
    fn drop(&mut self) {
        if !self.has_left
            && let Err(error) = self.barrier.leave(self.member, self.seat)
        {
            tracing::error!(%error, "a seat could not be released");
        }
    }
}

fn arrival(state: State, last: bool) -> Arrival {
    let ticket = Ticket {
        state: state.awake(),
        last,
    };
    if last {
        Arrival::Last(ticket)
    } else {
        Arrival::Waiting(ticket)
    }
}
