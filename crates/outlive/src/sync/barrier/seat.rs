//! A member's seat: arriving, waiting, releasing.

use super::change::Reach;
use super::word::{Epoch, Impossible, State};
use super::{BarrierError, BarrierPoint, GroupBarrier, Moment};
use crate::membership::Member;
use crate::sync::wait::{Rest, Waiter, Waiting};
use core::time::Duration;
use outlive_memory::{Memory, Native, Ordering};

/// What it means to have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Others have not: [wait](Seat::wait) for them.
    Waiting(Ticket),
    /// All members wait: [release](Seat::release) them, or look first whether that is right, or wait too.
    Last(Ticket),
}

/// Says when its seat has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// As it was with this arrival, nobody asleep.
    state: State,
    last: bool,
}

impl Ticket {
    /// Whether all members waited.
    pub fn is_last(&self) -> bool {
        self.last
    }

    /// What has become of the arrival by the time of `state`, if anything.
    fn outcome(&self, state: State) -> Option<Outcome> {
        // A release takes every member that is counted, so after a change there is none without this one:
        // if both sequences have moved, the release came first.
        if state.epoch.releases != self.state.epoch.releases {
            Some(Outcome::Released)
        } else if state.epoch.changes != self.state.epoch.changes {
            Some(Outcome::Changed)
        } else {
            None
        }
    }
}

/// How a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All had arrived and were released.
    Released,
    /// Members came, left or died, or an [interrupt](GroupBarrier::interrupt) told of work: the waiting is
    /// void. Help, and arrive again.
    Changed,
    /// The time is up. The seat has arrived still: wait on with the same ticket, or [withdraw](Seat::withdraw).
    TimedOut,
}

/// What came of a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The seat has not arrived any more.
    Withdrawn,
    /// All had been released before.
    Released,
    /// The waiting was void before.
    Changed,
    /// All members wait and the last of them decides: this one cannot come away alone. It has arrived still: it
    /// is to [wait](Seat::wait) on with its ticket (to arrive once more could be to arrive after the release).
    Complete,
}

/// A member's seat at a [`GroupBarrier`]. Dropping it [leaves](Self::leave).
///
/// An instance has one seat at a barrier at a time, and a seat is counted once however often it arrives.
#[derive(Debug)]
#[must_use = "the member leaves the barrier when this is dropped"]
pub struct Seat<'m, M: Memory = Native> {
    barrier: GroupBarrier<M>,
    member: &'m Member<M>,
    seat: u32,
    /// Its last arrival, unless it was withdrawn: in which epoch it counts, and whether as the last.
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

    /// The barrier.
    pub fn barrier(&self) -> GroupBarrier<M> {
        self.barrier
    }

    /// Whose it is.
    pub fn member(&self) -> &'m Member<M> {
        self.member
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.seat
    }

    /// Arrives: this member waits from now on, if only for itself. What it has done before is seen by all who
    /// are released with it. A seat that has arrived already is not counted twice.
    ///
    /// Lock-free: one compare-and-swap.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// It counts as arrived until it is buried, which voids that.
    pub fn arrive(&mut self) -> Result<Arrival, BarrierError> {
        loop {
            if let Some(arrival) = self.arrive_at(|_| true)? {
                return Ok(arrival);
            }
        }
    }

    /// [Arrives](Self::arrive) unless something has changed since `moment`, at which one had begun to look for
    /// work: `None` then. So no interrupt is lost between the look and the arrival.
    ///
    /// # Errors
    /// As for [`arrive`](Self::arrive).
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

    /// Waits until all are released, or something has changed. Whoever waits takes out the
    /// [gone](GroupBarrier::bury) that it finds, which is a change: every now and then while it is awake, and
    /// before each nap. So [`nap`](Waiting::nap) is the longest that a death is overlooked, if nobody else
    /// buries. Who has arrived as the last may wait too.
    ///
    /// Waits for the living.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// As for [`arrive`](Self::arrive).
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
        // Before the look at the word: whoever moves a sequence after that look rings after this.
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

    /// Whether nothing has happened since `ticket` was given: of the last to arrive, whether all members have
    /// waited all the time, so that what it has read since then (in whatever order) was read while nobody but
    /// it did anything; of another, whether it waits still.
    ///
    /// Wait-free.
    pub fn still(&self, ticket: &Ticket) -> bool {
        // Acquire: if something that was read before was written by one that had gone on, then the change by which
        // it went on is seen here (its release fence is in `go_on`).
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

    /// Releases all members, if all [still](Self::still) wait since this one has arrived as the last of them, and
    /// says whether it did. Only the last to arrive can.
    ///
    /// What it has done before is seen by the released. Lock-free.
    ///
    /// # Crash
    /// All are released or nobody is; sleepers may sleep to the end of their naps.
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

    /// Takes the arrival back, to look for work alone: the others wait on. Refused while all members wait, except
    /// to the last of them, so that it may rely on the others while it looks about.
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
                let what = Impossible("nobody waits, but one has arrived");
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

    /// The ordinary barrier: arrives and waits until all are released, arriving again whenever something
    /// changes; the last to arrive releases. Whether this was the last.
    ///
    /// Waits for the living.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// The others go on without it.
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

    /// Leaves the group in good order, by which all waiting is void. The seat is vacant then.
    ///
    /// Lock-free.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    ///
    /// # Crash
    /// It is a member still and is buried, or it has left and whoever changes members next vacates its seat.
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
            tracing::error!(%error, "a seat could not be left");
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
