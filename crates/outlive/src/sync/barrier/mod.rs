//! A group barrier whose members come, go and die while others wait (MODC §4).
//!
//! Members of a group wait until all have arrived. A failed member is not waited for: whoever finds it gone takes
//! it out, by which everybody's waiting is void, so that all may look for what the dead one has left to do, and
//! arrive again.
//!
//! ```text
//!    0  the word, alone on its lines        128  slots, one for each seat, 16 bytes each
//!       changes | releases | asleep | last step, its seat | members | waiting      (`word.rs`)
//! ```
//!
//! *The word* is the paper's: two sequences (of changes of membership, and of releases) and the number that
//! wait, changed by one 128-bit compare-and-swap. To these it adds the number of members, which the paper has
//! each member count in the vector of slots as it arrives. Counted once, when it changes, it is right at the
//! very instant of the compare-and-swap, and an arrival touches one line. Slots say *who* the members are;
//! nobody reads one to arrive.
//!
//! **Who waits.** The waiting number is exactly the number of those that have arrived in the present *epoch*
//! (the two sequences together) and have not withdrawn. It is never mended: whatever moves a sequence sets it
//! to zero in the same compare-and-swap, and who finds its ticket's epoch gone knows that it is not counted and
//! arrives again. So what the dead had counted is void at the latest with the step that takes it out; a member
//! that died waiting may be counted in *one* last release, as it had arrived.
//!
//! **The last to arrive** is told so, and nobody is released until it says so. It may look whether all is
//! quiescent first. While all members wait none of them can come away alone, except the last: the word stands
//! still but for a [release](Seat::release) or a change. So if it is [still](Seat::still) what it was, then all
//! that the last one has read meanwhile was read while everybody waited. (A fence of each side sees to it: a
//! member that goes on has a release fence behind it before it writes, and `still` an acquire fence before it
//! looks; thus whoever has read even a relaxed store of one that had gone on finds the word changed.) Without a
//! release it may also wait with the others: an idle pool is a barrier at which everybody has arrived and that
//! is broken by an [interrupt](GroupBarrier::interrupt).
//!
//! **Two words at once.** A change of members concerns a slot and the word. A seat's slot goes from vacant to
//! claimed to seated and back, and the word records in *last step* which seat was counted in or out last. The
//! compare-and-swap of the word is where a change takes place; the slot follows it, moved by whoever needs that
//! next: before anybody changes members it *settles* the step that stands there. Hence, of the word's value and
//! a slot read after it,
//!
//! * seated, and not stepped out: counted, once. Its removal is the word's next change or nobody's (the
//!   compare-and-swap fails otherwise), so the dead are taken out exactly once by however many: one step of the
//!   sequence for each;
//! * claimed, and not stepped in: not counted. If its claimant is gone and was so *before* the word was read,
//!   it never will be, and the seat falls vacant without a change.
//!
//! Who settles may be late. It reads the slot and then finds the sequence still where it was: so the slot's
//! value was of that time, and since a slot's turn makes its word never come back, the compare-and-swap does
//! that step or nothing.
//!
//! # Deaths
//!
//! | killed after | leaves | who goes on |
//! | --- | --- | --- |
//! | [`Claimed`](BarrierPoint::Claimed) | a claimed seat, not counted | [`bury`](GroupBarrier::bury) vacates it, or whoever finds no seat |
//! | [`CountedIn`](BarrierPoint::CountedIn) | a member whose slot is claimed only | whoever changes members next settles it; it is buried as a member |
//! | [`Seated`](BarrierPoint::Seated), [`Arrived`](BarrierPoint::Arrived), [`Dozing`](BarrierPoint::Dozing) | a member that does not come (any more) | whoever waits takes it out, or calls `bury` |
//! | [`Released`](BarrierPoint::Released), [`Interrupted`](BarrierPoint::Interrupted) | sleepers that nobody wakes | the end of their naps, or the bell that `bury` always rings |
//! | [`CountedOut`](BarrierPoint::CountedOut) | no member; its slot names one | whoever changes members next |
//! | [`Withdrawn`](BarrierPoint::Withdrawn) | a member that works | as above |
//!
//! Death is known by the generation only; a burier that dies is not a member's concern: the next one finds the
//! word before its step or after it.
//!
//! **Sleeping.** Nobody can sleep on 128 bits, so one sleeps at the house's [bells](crate::host::Bells) (futex
//! words in a file of the operating system: a segment may lie in memory that has no futexes). A sleeper reads
//! the bell, raises *asleep* in the word of its epoch, and sleeps unless the bell has rung since. What moves a
//! sequence clears the flag by the same compare-and-swap and rings if it was up: no ring is missed, nothing has
//! to be fenced, and without sleepers there is no system call. A sleeper that dies leaves one needless ring.
//! Across operating systems one polls: a nap at a time.
//!
//! **Orderings.** Every change of the word acquires and releases, so what members did before they arrived is
//! seen by the last and by all whom it releases, and what an interrupter did by those whom it has interrupted.
//! Slots are released by who moves them and acquired by who reads them.
//!
//! **Proof.** `outlive-lab prove kill barrier`, `outlive-lab prove schedule barrier`: the scheduled memory runs these
//! very lines at every interleaving within bounds, under weaker orderings than x86's and with deaths at any
//! access, and the lost ring over a bell of its own. That is what loom would do, which knows neither 128-bit
//! words nor deaths: over it the word would stand behind a lock, and what is to be shown of the word would be
//! assumed.
//!
//! Progress: [`join`](GroupBarrier::join), [`leave`](Seat::leave), [`arrive`](Seat::arrive),
//! [`release`](Seat::release), [`withdraw`](Seat::withdraw), [`interrupt`](GroupBarrier::interrupt) and
//! [`bury`](GroupBarrier::bury) are lock-free: one tries again only when another's change was made.
//! [`wait`](Seat::wait) waits for the living.

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
    /// Where the use of a group barrier may be cut short.
    pub enum BarrierPoint for "barrier" {
        /// A seat is claimed; its claimant is not counted.
        Claimed,
        /// The claimant is a member; its slot does not say so.
        CountedIn,
        /// The slot says so.
        Seated,
        /// A member has arrived and is counted.
        Arrived,
        /// A member that waits has asked to be woken.
        Dozing,
        /// All are released; sleepers are not woken.
        Released,
        /// A member that had arrived is not counted any more.
        Withdrawn,
        /// All waiting is void; sleepers are not woken.
        Interrupted,
        /// A member is out; its slot names it, sleepers are not woken.
        CountedOut,
        /// The slot is vacant.
        Vacated,
    }
}

/// Why a barrier could not be used. Nothing is changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// The caller would wait for itself.
    #[error("{instance} has seat {seat} of the barrier at {barrier} already")]
    AlreadySeated {
        /// The caller.
        instance: Instance,
        /// The barrier.
        barrier: Offset,
        /// Its seat.
        seat: u32,
    },
    /// The living have all seats.
    #[error("all {seats} seats of the barrier at {barrier} are taken, and nobody there is gone")]
    Full {
        /// The barrier.
        barrier: Offset,
        /// How many there are.
        seats: u32,
    },
    /// There can be no such barrier there.
    #[error("there is no barrier of {seats} seats at {barrier}: {what}")]
    Misplaced {
        /// Where it was looked for.
        barrier: Offset,
        /// How many seats it was to have.
        seats: u32,
        /// Why not.
        what: &'static str,
    },
    /// What stands there is no state of a barrier.
    #[error("the barrier at {barrier} is damaged at {at}: {what}; run `outlive pod check`")]
    Damaged {
        /// The barrier.
        barrier: Offset,
        /// Where.
        at: Offset,
        /// What cannot be.
        what: &'static str,
    },
}

/// A moment in a barrier's life: between two changes. See [`Seat::arrive_since`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u64);

/// A barrier as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// How many must arrive; those that are dead and not buried are among them.
    pub members: u32,
    /// How many have arrived since the last release or change.
    pub waiting: u32,
    /// The membership sequence: one for every member that came, left or was buried, and for every interrupt.
    pub changes: u64,
    /// How often all were released.
    pub releases: u64,
}

/// A barrier for a group whose members come, go and die (MODC §4; see `sync/barrier/mod.rs` for how). For
/// [`Flushed`](PersistenceDomain::Flushed) memory.
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
/// assert!(seat.still(&ticket)); // nobody did anything since we arrived
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
    /// How many seats a barrier can have.
    pub const MOST: u32 = MOST_SEATS;

    /// How many bytes a barrier of `seats` seats takes: two lines, and 16 bytes for each seat.
    pub const fn bytes(seats: u32) -> u64 {
        SLOTS + (seats as u64 * SLOT).next_multiple_of(128)
    }

    /// The barrier of `seats` seats at `at` (aligned to 64), which is zeroed memory at first: without members.
    ///
    /// # Panics
    /// If there are no seats or more than [`MOST`](Self::MOST), if it is not inside the memory, and on
    /// [`WriteBack`](PersistenceDomain::WriteBack) memory: a count that falls back with a dead host's caches is
    /// nobody's to mend.
    pub fn new(memory: M, at: Offset, seats: u32) -> Self {
        Self::open(memory, at, seats).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The barrier at a place that was read from the segment, and so may be no place of one. What stands there is
    /// looked at when it is used; [`check`](Self::check) looks at all of it.
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
            .map_err(|_| misplaced("not inside the memory, or not aligned to 64"))?;
        Ok(Self { memory, at, seats })
    }

    /// Where it is.
    pub fn at(&self) -> Offset {
        self.at
    }

    /// How many seats it has.
    pub fn seats(&self) -> u32 {
        self.seats
    }

    /// How it stands now. Wait-free, and no more than one load: to see whether anybody waits at all before one
    /// [interrupts](Self::interrupt) them.
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

    /// The present moment, for a member that looks for work before it [arrives](Seat::arrive_since). Wait-free.
    ///
    /// # Errors
    /// [`Damaged`](BarrierError::Damaged).
    pub fn moment(&self) -> Result<Moment, BarrierError> {
        Ok(Moment(self.load()?.epoch.changes))
    }

    /// Who is on which seat, one after another as they are read, the dead and those that are about to be
    /// members among them.
    pub fn occupants(&self) -> impl Iterator<Item = (u32, Instance)> + use<M> {
        let barrier = *self;
        (0..self.seats).filter_map(move |seat| {
            let slot = barrier.slot(seat).ok()?;
            Some((seat, Instance::from_word(slot.occupant)?))
        })
    }

    /// The seat that `member` has and nobody holds, not arrived: for proofs whose members joined in their
    /// preparation.
    #[doc(hidden)]
    pub fn seat_of<'m>(&self, member: &'m Member<M>) -> Option<Seat<'m, M>> {
        let mine = |(_, occupant): &(u32, Instance)| *occupant == member.instance();
        let (seat, _) = self.occupants().find(mine)?;
        Some(Seat::new(*self, member, seat))
    }

    #[inline]
    fn load(&self) -> Result<State, BarrierError> {
        // Acquire: what those did who have arrived, released, changed or interrupted.
        let word = self.memory.load::<u128>(self.at, Ordering::Acquire);
        State::from_word(word, self.seats).map_err(|what| self.damaged(self.at, what))
    }

    /// Puts `to` in the place of `from`, if that still stands there.
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
        // Release: the step of the word. What stood there before was acquired when `from` was loaded.
        let order = (Ordering::Release, Ordering::Relaxed);
        self.memory
            .compare_exchange(at, from.to_word(), to.to_word(), order.0, order.1)
            .is_ok()
    }

    /// Lets the slot of the last step follow it. `false` if the barrier has changed since `state` was loaded.
    fn settle(&self, state: State) -> Result<bool, BarrierError> {
        let (seat, before) = match state.last {
            Step::None => return Ok(true),
            Step::In(seat) => (seat, Phase::Claimed),
            Step::Out(seat) => (seat, Phase::Seated),
        };
        let slot = self.slot(seat)?;
        if slot.phase != before {
            // It has followed. (Or is of a later time: then nothing comes of `state`.)
            return Ok(true);
        }
        if self.load()?.epoch.changes != state.epoch.changes {
            return Ok(false);
        }
        let after = match before {
            Phase::Claimed => slot.seated(),
            _ => slot.vacated(),
        };
        // If it fails another has done it.
        self.swap_slot(seat, slot, after);
        Ok(true)
    }

    /// Wakes those who slept in the epoch that `before` was the last state of.
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
