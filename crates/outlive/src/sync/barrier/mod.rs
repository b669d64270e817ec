//! A group barrier whose members come, go and die while others wait (MODC §4).
//!
//! Members of a group wait until all have arrived. No member waits for a failed one: a survivor
//! that finds it dead removes it, which voids the waiting of all, so that they can take over the
//! dead member's work and arrive again.
//!
//! ```text
//!    0  the word, alone on its lines        128  slots, one for each seat, 16 bytes each
//!       changes | releases | asleep | last step, its seat | members | waiting      (module `word`)
//! ```
//!
//! *The word* is the paper's: two sequences (of changes of membership, and of releases) and the
//! number of waiting members, changed by one 128-bit compare-and-swap. To these it adds the number
//! of members, which in the paper each member counts in the vector of slots as it arrives. The
//! number changes only when the membership does, so it is right at the very instant of the
//! compare-and-swap, and an arrival touches one line. The slots name the members; no arrival reads
//! them.
//!
//! **Waiting.** The waiting number is exactly the number of members that have arrived in the
//! present *epoch* (the two sequences together) and have not withdrawn. It is never repaired: each
//! step of a sequence sets it to zero in the same compare-and-swap, and a member that finds its
//! ticket's epoch over knows that it is not counted and arrives again. So a dead member's arrival
//! is void at the latest with the step that removes the member. A member that died waiting may be
//! counted in *one* last release, as it had arrived.
//!
//! **The last to arrive** learns that it is the last, and no member is released until it decides
//! so. It may check first whether all is quiescent. While all members wait, none of them can
//! withdraw except the last: the word changes only by a [release](Seat::release) or a change. So if
//! the word is [still](Seat::still) the same, then all that the last member has read in between was
//! read while all members waited. (Two fences ensure that: a member that continues executes a
//! release fence before it writes, and `still` an acquire fence before it loads the word. Thus a
//! thread that has read even a relaxed store of a member that had gone on finds the word changed.)
//! Instead of releasing, the last member may wait with the others: an idle pool is a barrier at
//! which all have arrived and that is broken by an [interrupt](GroupBarrier::interrupt).
//!
//! **A change of two words.** A change of members concerns a slot and the word. A seat's slot goes
//! from vacant to claimed to seated and back, and the word records in *last step* which seat was
//! counted in or out last. A change takes place at the compare-and-swap of the word. The slot
//! follows: each thread that changes members first *settles* the recorded step. Hence, for the
//! word's value and a slot read after it,
//!
//! * seated, and not stepped out: counted, once. Its removal is either the word's next change or
//!   does not happen (the compare-and-swap fails otherwise). So any number of survivors remove a
//!   dead member exactly once, by one step of the sequence;
//! * claimed, and not stepped in: not counted. If its claimant was dead or departed *before* the
//!   word was read, it never will be counted, and the seat becomes vacant without a change.
//!
//! A thread that settles may be late. It reads the slot and then finds the sequence unchanged, so
//! the slot's value belonged to that step. A slot's turn makes its word never come back, so the
//! compare-and-swap does that step or nothing.
//!
//! # Deaths
//!
//! A member that is killed after
//!
//! * [`Claimed`](BarrierPoint::Claimed) leaves a claimed seat, not counted:
//!   [`bury`](GroupBarrier::bury) vacates it, or a member that finds no vacant seat;
//! * [`CountedIn`](BarrierPoint::CountedIn) leaves a member with a slot that is claimed only: the
//!   next thread that changes members settles it, and it is removed as a member;
//! * [`Seated`](BarrierPoint::Seated), [`Arrived`](BarrierPoint::Arrived),
//!   [`Dozing`](BarrierPoint::Dozing) or [`Withdrawn`](BarrierPoint::Withdrawn) leaves a member
//!   that does not come (any more): a waiting member removes it, or a caller of `bury`;
//! * [`Released`](BarrierPoint::Released) or [`Interrupted`](BarrierPoint::Interrupted) leaves
//!   sleepers that sleep to the end of their time-outs, or until `bury` removes the dead member,
//!   which always wakes them;
//! * [`CountedOut`](BarrierPoint::CountedOut) leaves a slot that names a former member: the next
//!   thread that changes members vacates it.
//!
//! Death is known by the generation only. The death of a removing thread needs no special
//! treatment: the next thread finds the word before the step or after it.
//!
//! **Sleeping.** No futex has 128 bits, so a waiting member sleeps at the layer's
//! [wake-up futexes](crate::host::Bells) (words in a file of the operating system: a segment may
//! lie in memory that has no futexes). A sleeper reads the futex, raises *asleep* in the word of
//! its epoch, and sleeps unless the futex has changed since. A step of a sequence clears the flag
//! by the same compare-and-swap, and its author wakes the sleepers if the flag was up: no wake-up
//! is missed, no fence is needed, and without sleepers there is no system call. A sleeper that dies
//! causes one needless wake-up. Across operating systems a waiter polls: it sleeps with a time-out.
//!
//! **Orderings.** Every change of the word acquires and releases. So the last to arrive, and all
//! that it releases, see all that the members did before they arrived; interrupted members see all
//! that the interrupter did. Slots are moved with release and read with acquire.
//!
//! **Proof.** `outlive-lab prove kill barrier`, `outlive-lab prove schedule barrier`: the scheduled
//! memory runs these very lines at every interleaving within bounds, under weaker orderings than
//! x86's and with deaths at any access, and the missed wake-up over a wake-up futex of its own.
//! (loom knows neither 128-bit words nor deaths; it would assume the properties of the word that
//! are to be proved.)
//!
//! Progress: [`join`](GroupBarrier::join), [`leave`](Seat::leave), [`arrive`](Seat::arrive),
//! [`release`](Seat::release), [`withdraw`](Seat::withdraw), [`interrupt`](GroupBarrier::interrupt)
//! and [`bury`](GroupBarrier::bury) are lock-free: a call retries only after another member's
//! change. [`wait`](Seat::wait) waits for live members.

mod change;
mod check;
mod seat;
mod word;

pub use check::{BarrierFinding, BarrierReport};
pub use seat::{Arrival, Outcome, Seat, Ticket, Withdrawal};

use crate::membership::{Instance, Member};
use outlive_memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use word::{Impossible, MOST_SEATS, Phase, Slot, State, Step};

const SLOTS: u64 = 128;
const SLOT: u64 = 16;

outlive_memory::crash_points! {
    /// The crash points of the use of a group barrier.
    pub enum BarrierPoint for "barrier" {
        /// A seat is claimed; its claimant is not counted.
        Claimed,
        /// The claimant is a member; its slot does not show it yet.
        CountedIn,
        /// The slot shows that the claimant is a member.
        Seated,
        /// A member has arrived and is counted.
        Arrived,
        /// A waiting member has asked to be woken.
        Dozing,
        /// All are released; sleepers are not woken.
        Released,
        /// A member that had arrived is not counted any more.
        Withdrawn,
        /// All waiting is void; sleepers are not woken.
        Interrupted,
        /// A member is removed; its slot still names it, sleepers are not woken.
        CountedOut,
        /// The slot is vacant.
        Vacated,
    }
}

/// The reason why a barrier could not be used. Nothing is changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// The caller has a seat already and would wait for itself.
    #[error("{instance} has seat {seat} of the barrier at {barrier} already; use that seat")]
    AlreadySeated {
        /// The caller.
        instance: Instance,
        /// The barrier.
        barrier: Offset,
        /// Its seat.
        seat: u32,
    },
    /// Live members have all seats.
    #[error(
        "all {seats} seats of the barrier at {barrier} are taken by live members; wait until one \
         leaves, or create a barrier with more seats"
    )]
    Full {
        /// The barrier.
        barrier: Offset,
        /// The number of seats.
        seats: u32,
    },
    /// Such a barrier cannot exist at this place.
    #[error("a barrier of {seats} seats cannot be placed at {barrier}: {what}")]
    Misplaced {
        /// The place.
        barrier: Offset,
        /// The requested number of seats.
        seats: u32,
        /// The reason.
        what: &'static str,
    },
    /// The memory there holds no valid state of a barrier.
    #[error("the barrier at {barrier} is damaged at {at}: {what}; run `outlive pod check`")]
    Damaged {
        /// The barrier.
        barrier: Offset,
        /// The offset of the damaged word.
        at: Offset,
        /// The impossible state.
        what: &'static str,
    },
}

/// A moment between two changes of a barrier. See [`Seat::arrive_since`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u64);

/// The state of a barrier at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// The number of members that must arrive, including dead ones that are not removed yet.
    pub members: u32,
    /// The number of members that have arrived since the last release or change.
    pub waiting: u32,
    /// The membership sequence: one step for each interrupt, join and removal of a member.
    pub changes: u64,
    /// The number of releases.
    pub releases: u64,
}

/// A barrier for a group whose members join, leave and die (MODC §4; the source of this module
/// describes the algorithm). For [`Flushed`](PersistenceDomain::Flushed) memory.
///
/// ```
/// # use outlive::membership::{Generations, Instance, Level, Member, State, Status};
/// # use outlive::memory::{Native, Offset, PersistenceDomain};
/// # use outlive::recovery::Logs;
/// use outlive::sync::{Arrival, GroupBarrier, Outcome, Waiting};
/// # let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
/// # let generations = Generations::new(memory, Offset::new(0), 4);
/// # let logs = Logs::new(memory, Offset::new(4096), 4);
/// # let enter = |id| {
/// #     let live = State { generation: 1, host: 0, level: Some(Level::Thread), status: Status::Live };
/// #     // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
/// #     assert!(unsafe { generations.assume_state(id, State::FREE, live) });
/// #     // SAFETY: this thread alone acts as this instance, and stops when it raises its generation.
/// #     unsafe { Member::assume(memory, generations, Instance::new(id, 1), logs.at(id), None) }
/// # };
/// # let (ours, theirs) = (enter(0), enter(1));
/// # let dies = || {
/// #     let live = generations.state(1).unwrap();
/// #     // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
/// #     assert!(unsafe { generations.assume_state(1, live, State { generation: 2, status: Status::Dead, ..live }) });
/// # };
/// let barrier = GroupBarrier::new(memory, Offset::new(1024), 16);
/// let mut seat = barrier.join(&ours)?;
/// let theirs = barrier.join(&theirs)?;
/// let Arrival::Waiting(ticket) = seat.arrive()? else { panic!("there are two of us") };
/// # core::mem::forget(theirs);
/// dies(); // the other is killed: we are not to wait, but to help
/// assert_eq!(seat.wait(&ticket, Waiting::DEFAULT, None)?, Outcome::Changed);
/// let Arrival::Last(ticket) = seat.arrive()? else { panic!("the dead do not count") };
/// assert!(seat.still(&ticket)); // no member did anything since this arrival
/// assert!(seat.release(&ticket));
/// assert!(seat.enter(Waiting::DEFAULT)?); // all that in one, where nothing is to be looked at
/// # Ok::<(), outlive::sync::BarrierError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GroupBarrier<M: Memory = Native> {
    memory: M,
    at: Offset,
    seats: u32,
}

impl<M: Memory> GroupBarrier<M> {
    /// The largest number of seats of a barrier.
    pub const MOST: u32 = MOST_SEATS;

    /// Returns the size of a barrier of `seats` seats: two lines, and 16 bytes for each seat.
    pub const fn bytes(seats: u32) -> u64 {
        SLOTS + (seats as u64 * SLOT).next_multiple_of(128)
    }

    /// Returns the barrier of `seats` seats at `at` (aligned to 64): zeroed memory at first, empty.
    ///
    /// # Panics
    /// If there are no seats or more than [`MOST`](Self::MOST), if it is not inside the memory, and
    /// on [`WriteBack`](PersistenceDomain::WriteBack) memory: no member could repair a count that
    /// falls back with a dead host's caches.
    pub fn new(memory: M, at: Offset, seats: u32) -> Self {
        Self::open(memory, at, seats).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the barrier at a place that was read from the segment and so may not be a barrier's.
    /// The contents are checked when they are used; [`check`](Self::check) checks them all.
    ///
    /// # Errors
    /// [`Misplaced`](BarrierError::Misplaced).
    pub fn open(memory: M, at: Offset, seats: u32) -> Result<Self, BarrierError> {
        let misplaced = |what| BarrierError::Misplaced {
            barrier: at,
            seats,
            what,
        };
        if seats == 0 || seats > Self::MOST {
            return Err(misplaced("a barrier has 1 to 4096 seats"));
        }
        if memory.domain() != PersistenceDomain::Flushed {
            return Err(misplaced("it needs memory in the flushed domain"));
        }
        Offset::checked(at.raw(), Self::bytes(seats), 64, memory.size())
            .map_err(|_| misplaced("it is not inside the memory, or not aligned to 64"))?;
        Ok(Self { memory, at, seats })
    }

    /// Returns the barrier's offset.
    pub fn at(&self) -> Offset {
        self.at
    }

    /// Returns the number of seats.
    pub fn seats(&self) -> u32 {
        self.seats
    }

    /// Returns the current state. Wait-free, and only one load: for a caller that checks whether
    /// any member waits before it [interrupts](Self::interrupt) them.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    pub fn view(&self) -> Result<View, BarrierError> {
        let state = self.load()?;
        Ok(View {
            members: state.members,
            waiting: state.waiting,
            changes: state.epoch.changes,
            releases: state.epoch.releases,
        })
    }

    /// Returns the current moment, for a member that searches for work before it
    /// [arrives](Seat::arrive_since). Wait-free.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    pub fn moment(&self) -> Result<Moment, BarrierError> {
        Ok(Moment(self.load()?.epoch.changes))
    }

    /// Returns the occupied seats and their occupants, each read when the iterator reaches it. They
    /// include dead members and claimants that are not members yet.
    pub fn occupants(&self) -> impl Iterator<Item = (u32, Instance)> + use<M> {
        let barrier = *self;
        (0..self.seats).filter_map(move |seat| {
            let slot = barrier.slot(seat).ok()?;
            Some((seat, Instance::from_word(slot.occupant)?))
        })
    }

    /// Returns the seat that `member` has without a [`Seat`], not arrived: for proofs that let
    /// members join in their preparation.
    #[doc(hidden)]
    pub fn seat_of<'m>(&self, member: &'m Member<M>) -> Option<Seat<'m, M>> {
        let mine = |(_, occupant): &(u32, Instance)| *occupant == member.instance();
        let (seat, _) = self.occupants().find(mine)?;
        Some(Seat::new(*self, member, seat))
    }

    #[inline]
    fn load(&self) -> Result<State, BarrierError> {
        // Acquire: the work of the members that have arrived, released, changed or interrupted.
        let word = self.memory.load::<u128>(self.at, Ordering::Acquire);
        State::from_word(word, self.seats).map_err(|what| self.damaged(self.at, what))
    }

    /// Replaces `from` by `to`; returns whether the word still was `from`.
    #[inline]
    fn swap(&self, from: State, to: State) -> bool {
        // AcqRel: see "Orderings" at the top. A failed one is followed by a load.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.memory
            .compare_exchange(self.at, from.to_word(), to.to_word(), order.0, order.1)
            .is_ok()
    }

    fn slot_at(&self, seat: u32) -> Offset {
        self.at + SLOTS + u64::from(seat) * SLOT
    }

    fn slot(&self, seat: u32) -> Result<Slot, BarrierError> {
        let at = self.slot_at(seat);
        // Acquire: the step of the word that moved it.
        let word = self.memory.load::<u128>(at, Ordering::Acquire);
        Slot::from_word(word).map_err(|what| self.damaged(at, what))
    }

    fn swap_slot(&self, seat: u32, from: Slot, to: Slot) -> bool {
        let at = self.slot_at(seat);
        // Release: the step of the word. The load of `from` acquired the slot's earlier contents.
        let order = (Ordering::Release, Ordering::Relaxed);
        self.memory
            .compare_exchange(at, from.to_word(), to.to_word(), order.0, order.1)
            .is_ok()
    }

    /// Updates the slot of the last step to agree with it. Returns `false` if the barrier has
    /// changed concurrently.
    fn settle(&self, state: State) -> Result<bool, BarrierError> {
        let (seat, before) = match state.last {
            Step::None => return Ok(true),
            Step::In(seat) => (seat, Phase::Claimed),
            Step::Out(seat) => (seat, Phase::Seated),
        };
        let slot = self.slot(seat)?;
        if slot.phase != before {
            // The slot has followed, or is of a later time; then no swap from `state` succeeds.
            return Ok(true);
        }
        if self.load()?.epoch.changes != state.epoch.changes {
            return Ok(false);
        }
        let after = match before {
            Phase::Claimed => slot.seated(),
            _ => slot.vacated(),
        };
        // If it fails, another member has done it.
        self.swap_slot(seat, slot, after);
        Ok(true)
    }

    /// Wakes the members that slept in the epoch whose last state was `before`.
    #[inline]
    fn wake(&self, member: &Member<M>, before: State) {
        if before.asleep {
            self.ring(member);
        }
    }

    #[cold]
    fn ring(&self, member: &Member<M>) {
        if let Some(bells) = member.bells() {
            bells.ring(self.at.raw());
        }
    }

    #[cold]
    fn damaged(&self, at: Offset, what: Impossible) -> BarrierError {
        BarrierError::Damaged {
            barrier: self.at,
            at,
            what: what.0,
        }
    }
}
