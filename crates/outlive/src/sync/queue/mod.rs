//! A recoverable queue lock: first come, first served, among the living.
//!
//! Bohannon, Lieuwen and Silberschatz made the MCS lock recoverable (SPDP '96; LUPIN §3.5 uses theirs).
//! Their difficulty is a window: a process that dies after it has exchanged the queue's tail and before
//! it has linked itself to its predecessor cuts the queue in two, and the cut must be mended from what
//! all processes had announced. This lock keeps their means, an announced intent and a mended queue,
//! but has no such window. It is linked from each waiter to its *predecessor* (as in Craig's, and Landin
//! and Hagersten's, lock), and the link is written before the tail is moved by compare-and-swap. So
//! whoever is in the queue has a predecessor on record.
//!
//! ```text
//!  lock:   0  tail: the last waiter's ticket, or 0      node, in the waiter's log, one per lock entry:
//!         64  who mends the queue, or 0                   0  turn: which use of the node this is
//!         72  poison, 32 bits: a holder that panicked     8  the predecessor's ticket
//!  ticket: | turn, 42 bits | node + 1, 6 | id, 16 |      16  done: the last turn that is over
//!                                                        24  whether the successor sleeps
//! ```
//!
//! *Who holds it.* Following predecessors from the tail visits everybody in the queue, latest first. A
//! waiter holds the lock when its predecessor's turn is done, or it has none. Every ticket but the tail is
//! the predecessor of exactly one in the queue, so one holds it, and it passes in the order of the
//! compare-and-swaps. To release it, one says that one's turn is done. Each waiter spins on a line that
//! nobody else waits on.
//!
//! *Mending.* A dead instance is cut out of the queue by whoever recovers it, and a waiter that runs out
//! of time cuts itself out: `mend.rs`.
//!
//! *Turns.* A node is used again at once, so "done" is a number that grows, also across incarnations. A
//! waiter that finds its predecessor done looks once more at the link: had the predecessor died and its id
//! been reborn and the new incarnation been through a turn meanwhile, then the link would have been mended
//! before that, and so the look shows it.

mod guard;
mod mend;

pub use guard::QueueGuard;
pub(super) use mend::LeaveQueue;

use super::LockError;
use super::wait::{Waiter, Waiting};
use crate::membership::{InstanceId, Member};
use crate::recovery::{Listed, LockKind, Logs, OwnLog, Recovered, Recoverers};
use core::time::Duration;
use outlive_memory::{Memory, Native, Offset, Ordering, PersistenceDomain};

const TURN: u64 = 0;
const PREDECESSOR: u64 = 8;
const DONE: u64 = 16;
const SLEEPER: u64 = 24;
/// In the lock: the id of a holder that panicked + 1, or 0.
const POISON: u64 = 72;

outlive_memory::crash_points! {
    /// Where the use of a queue lock may be cut short.
    pub enum QueuePoint for "queue.lock" {
        /// The log lists the lock; the node belongs to an earlier turn.
        Listed,
        /// A predecessor is on record; the tail is not moved.
        Linked,
        /// In the queue.
        Queued,
        /// Holds the lock.
        Held,
        /// The turn is done; the lock is still listed.
        Released,
        /// The lock is struck out.
        Struck,
        /// Somebody mends the queue; nothing is changed yet.
        Mending,
        /// A dead or impatient instance is out of the queue; the mender is not done.
        Cut,
    }
}

/// A place in a queue: the use number `turn` of node `slot` of `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticket {
    id: InstanceId,
    slot: usize,
    turn: u64,
}

const TURN_BITS: u32 = 42;
const TURN_MASK: u64 = (1 << TURN_BITS) - 1;
const NOBODY: u64 = 0;

impl Ticket {
    #[inline(always)]
    fn to_word(self) -> u64 {
        self.turn << 22 | (self.slot as u64 + 1) << 16 | u64::from(self.id)
    }

    #[inline(always)]
    fn from_word(word: u64, ids: u32) -> Option<Self> {
        let (id, node) = (word as u16 as u32, (word >> 16) as usize & 63);
        let possible = id < ids && (1..=Logs::<Native>::LOCKS).contains(&node);
        possible.then(|| Self {
            id,
            slot: node - 1,
            turn: word >> 22,
        })
    }
}

/// Whether a node whose last done turn is `done` is through with `turn`. Turns wrap; nobody waits for half
/// of them.
fn is_over(done: u64, turn: u64) -> bool {
    done.wrapping_sub(turn) & TURN_MASK <= TURN_MASK >> 1
}

/// A recoverable queue lock, noted in its users' logs: first come, first served, among the living.
///
/// Waits for live instances only: for the holder and those before, or for a live recoverer of a dead one.
/// Nobody gets it from a dead owner before that has been recovered. For
/// [`Flushed`](PersistenceDomain::Flushed) memory.
///
/// ```
/// # use outlive::membership::{Generations, Instance, Level, Member, State, Status};
/// # use outlive::memory::{Native, Offset, PersistenceDomain};
/// # use outlive::recovery::{Logs, OwnLog};
/// # use outlive::sync::{self, QueueLock};
/// # let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
/// # let generations = Generations::new(memory, Offset::new(0), 4);
/// # let logs = Logs::new(memory, Offset::new(4096), 4);
/// # let live = State { generation: 1, host: 0, level: Some(Level::Thread), status: Status::Live };
/// # // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
/// # assert!(unsafe { generations.assume_state(0, State::FREE, live) });
/// # // SAFETY: this thread alone acts as 0.1, and nobody raises its generation.
/// # let member = unsafe { Member::assume(memory, generations, Instance::new(0, 1), logs.at(0), None) };
/// let recoverers = sync::recoverers(logs);
/// OwnLog::open(&member).unwrap();
/// let lock = QueueLock::new(memory, Offset::new(1024));
/// let held = lock.lock(&member, &recoverers)?;
/// assert!(lock.is_held(logs));
/// drop(held);
/// # Ok::<(), sync::LockError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct QueueLock<M: Memory = Native> {
    memory: M,
    at: Offset,
    waiting: Waiting,
}

impl<M: Memory> QueueLock<M> {
    /// How many bytes the lock takes: two lines, the second touched only when a queue is mended.
    ///
    /// These bytes may be reused when no member waits for the lock, and every member that died
    /// waiting for it has been recovered: the recovery repairs the queue.
    pub const BYTES: u64 = 128;

    /// The lock at `at` (aligned to 64), which is zeroed memory at first: free.
    ///
    /// # Panics
    /// On [`WriteBack`](PersistenceDomain::WriteBack) memory: a tail that falls back with a dead host's
    /// caches would put two waiters behind one.
    pub fn new(memory: M, at: Offset) -> Self {
        assert!(
            memory.domain() == PersistenceDomain::Flushed,
            "a queue lock needs memory in the flushed domain; use `Tatas`"
        );
        Self {
            memory,
            at,
            waiting: Waiting::DEFAULT,
        }
    }

    /// The same lock, waited for differently.
    pub fn waiting(self, waiting: Waiting) -> Self {
        Self { waiting, ..self }
    }

    /// Where the lock is.
    pub fn at(self) -> Offset {
        self.at
    }

    /// Whether somebody, alive or dead, holds it or waits for it.
    pub fn is_held(&self, logs: Logs<M>) -> bool {
        let tail: u64 = self.memory.load(self.at, Ordering::Acquire);
        Ticket::from_word(tail, logs.capacity()).is_some_and(|last| !self.left(logs, last))
    }

    /// Acquires it, recovering dead predecessors.
    ///
    /// # Errors
    /// See [`LockError`].
    #[inline(always)]
    pub fn lock<'m>(
        &self,
        member: &'m Member<M>,
        recoverers: &Recoverers<M>,
    ) -> Result<QueueGuard<'m, M>, LockError> {
        let place = Place::take(*self, member)?;
        if !place.enter_at_once(recoverers.logs()) {
            let held = self.queue(member, recoverers, place.listed, None)?;
            assert!(held, "a wait without end has ended without the lock");
        }
        self.memory.crash_point(QueuePoint::Held);
        Ok(place.guard())
    }

    /// Acquires it unless that takes longer than `timeout`. To leave the queue takes a look at every log.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn lock_for<'m>(
        &self,
        member: &'m Member<M>,
        recoverers: &Recoverers<M>,
        timeout: Duration,
    ) -> Result<Option<QueueGuard<'m, M>>, LockError> {
        let place = Place::take(*self, member)?;
        if !place.enter_at_once(recoverers.logs())
            && !self.queue(member, recoverers, place.listed, Some(timeout))?
        {
            return Ok(None);
        }
        self.memory.crash_point(QueuePoint::Held);
        Ok(Some(place.guard()))
    }

    /// Acquires the lock if no live member holds it or waits for it; never enters the queue
    /// otherwise. Returns `None` also after three tries at each of which another member was faster.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn try_lock<'m>(
        &self,
        member: &'m Member<M>,
        recoverers: &Recoverers<M>,
    ) -> Result<Option<QueueGuard<'m, M>>, LockError> {
        let logs = recoverers.logs();
        for _ in 0..Waiting::TRIES {
            let tail: u64 = self.memory.load(self.at, Ordering::Acquire);
            if tail != NOBODY {
                let last = self.ticket(logs, tail)?;
                if !self.left(logs, last) {
                    match self.look_after(member, recoverers, last)? {
                        Look::Alive => return Ok(None),
                        Look::Changed => continue,
                    }
                }
            }
            let place = Place::take(*self, member)?;
            if place.enter(tail) {
                self.memory.crash_point(QueuePoint::Held);
                return Ok(Some(place.guard()));
            }
            place.strike();
            self.memory.spin_hint();
        }
        Ok(None)
    }

    /// Whether the link of `place`, which is `link` and leads to `before`, makes it the holder.
    #[inline(always)]
    fn comes_after(
        &self,
        place: &Place<'_, M>,
        logs: Logs<M>,
        link: u64,
        before: Option<Ticket>,
    ) -> bool {
        // `left` acquires, so this second look at the link comes after it: see "Turns" at the top.
        before.is_none_or(|before| self.left(logs, before) && place.link() == link)
    }

    /// Whom a link leads to.
    #[inline(always)]
    fn before(&self, logs: Logs<M>, link: u64) -> Result<Option<Ticket>, LockError> {
        if link == NOBODY {
            return Ok(None);
        }
        self.ticket(logs, link).map(Some)
    }

    /// Enters the queue with the entry `listed` and waits until that place is the holder's; otherwise it has
    /// been left. (The place is found anew from its entry, for the fast path to keep its own in registers.)
    #[cold]
    #[inline(never)]
    fn queue(
        &self,
        member: &Member<M>,
        recoverers: &Recoverers<M>,
        listed: Listed,
        timeout: Option<Duration>,
    ) -> Result<bool, LockError> {
        let (place, logs) = (Place::find(*self, member, listed), recoverers.logs());
        let mut waiter = Waiter::new(member, self.waiting, None, timeout);
        loop {
            let tail: u64 = self.memory.load(self.at, Ordering::Acquire);
            // Checked before it is relied on, and before this instance stands behind it.
            if let Err(error) = self.before(logs, tail) {
                place.strike();
                return Err(error);
            }
            if place.enter(tail) {
                break;
            }
            if !waiter.tries_again() {
                place.strike();
                return Ok(false);
            }
            self.memory.spin_hint();
        }
        let failed = loop {
            let link = place.link();
            let before = match self.before(logs, link) {
                Ok(before) => before,
                // A damaged link: there is nobody to wait for.
                Err(error) => break Some(error),
            };
            if self.comes_after(&place, logs, link, before) {
                return Ok(true);
            }
            let Some(before) = before else {
                continue;
            };
            if waiter.spins() {
                continue;
            }
            if place.is_second(logs) {
                place.leave(logs);
                let (instance, lock) = (member.instance(), self.at);
                return Err(LockError::AlreadyHeld { instance, lock });
            }
            match self.look_after(member, recoverers, before) {
                Ok(Look::Alive) => {}
                Ok(Look::Changed) if waiter.tries_again() => continue,
                Ok(Look::Changed) => break None,
                Err(error) => break Some(error),
            }
            waiter.watch(logs.of(before.id).node(before.slot) + SLEEPER);
            if !waiter.pause(|| !self.left(logs, before) && place.link() == link) {
                break None;
            }
        };
        place.leave(logs);
        failed.map_or(Ok(false), Err)
    }

    /// Sees whether the owner of a ticket that is in the way lives, and recovers it otherwise.
    fn look_after(
        &self,
        member: &Member<M>,
        recoverers: &Recoverers<M>,
        before: Ticket,
    ) -> Result<Look, LockError> {
        let owner = recoverers.logs().of(before.id).owner();
        if owner.is_some_and(|owner| !member.generations().is_dead(owner)) {
            return Ok(Look::Alive);
        }
        match recoverers.recover(member, before.id) {
            Ok(Recovered::Completed { .. }) => Ok(Look::Changed),
            // A live recoverer, or one that has just finished: the link will change, or has changed.
            Ok(Recovered::ByAnother(_) | Recovered::NothingLeft) => Ok(Look::Alive),
            Err(source) => Err(LockError::Unrecovered {
                lock: self.at,
                source,
            }),
        }
    }

    #[inline(always)]
    fn ticket(&self, logs: Logs<M>, word: u64) -> Result<Ticket, LockError> {
        let lock = self.at;
        Ticket::from_word(word, logs.capacity()).ok_or(LockError::ForeignOwner { lock, word })
    }

    /// Whether the turn is over, however long ago: a lock that nobody wanted while its last holder went through
    /// half of all turns elsewhere is not held for that.
    fn left(&self, logs: Logs<M>, ticket: Ticket) -> bool {
        let node = logs.of(ticket.id).node(ticket.slot);
        // Acquire: as in `over`. A node is used again only when its turn is over.
        let begun = || self.memory.load::<u64>(node + TURN, Ordering::Acquire);
        self.over(logs, ticket) || begun() != ticket.turn
    }

    #[inline(always)]
    fn over(&self, logs: Logs<M>, ticket: Ticket) -> bool {
        let node = logs.of(ticket.id).node(ticket.slot);
        // Acquire: what was done under the lock in that turn.
        is_over(
            self.memory.load(node + DONE, Ordering::Acquire),
            ticket.turn,
        )
    }
}

/// What became of a ticket that is in the way.
enum Look {
    /// Its owner, or its owner's recoverer, lives.
    Alive,
    /// It is out of the way.
    Changed,
}

/// An entry in the log with its node: a place in the queue, or the intent to take one.
struct Place<'m, M: Memory> {
    lock: QueueLock<M>,
    member: &'m Member<M>,
    listed: Listed,
    node: Offset,
    turn: u64,
}

impl<'m, M: Memory> Place<'m, M> {
    #[inline(always)]
    fn take(lock: QueueLock<M>, member: &'m Member<M>) -> Result<Self, LockError> {
        let log = OwnLog::of(member);
        let listed = log.list(lock.at, LockKind::QUEUE)?;
        let (memory, node) = (lock.memory, log.node(listed));
        memory.crash_point(QueuePoint::Listed);
        let entry = log.entry(listed);
        let there = memory.has_word::<u128>(node + TURN)
            && memory.has_word::<u128>(node + DONE)
            && memory.has_word::<u64>(entry);
        if !there {
            no_node(node);
        }
        // Relaxed, as all of the node until the tail is moved: that releases it.
        // SAFETY: half of the word that was asked for; so is the link in `enter`.
        let turn: u64 = unsafe { memory.load_unchecked(node + TURN, Ordering::Relaxed) };
        let turn = turn.wrapping_add(1) & TURN_MASK;
        // SAFETY: as above.
        // Release: whoever sees a later turn of the node sees what was done under the lock in those before.
        unsafe { memory.store_unchecked(node + TURN, turn, Ordering::Release) };
        Ok(Self {
            lock,
            member,
            listed,
            node,
            turn,
        })
    }

    /// The place that `member` has taken, by [`take`](Self::take), with the entry `listed`.
    fn find(lock: QueueLock<M>, member: &'m Member<M>, listed: Listed) -> Self {
        let node = OwnLog::of(member).node(listed);
        // Relaxed: only its owner writes it.
        let turn = lock.memory.load(node + TURN, Ordering::Relaxed);
        Self {
            lock,
            member,
            listed,
            node,
            turn,
        }
    }

    #[inline(always)]
    fn ticket(&self) -> u64 {
        self.ticket_of(self.turn)
    }

    /// The ticket of the turn before. It is over: nobody lists a lock anew before that.
    #[inline(always)]
    fn last_ticket(&self) -> u64 {
        self.ticket_of(self.turn.wrapping_sub(1) & TURN_MASK)
    }

    #[inline(always)]
    fn ticket_of(&self, turn: u64) -> u64 {
        let (id, slot) = (self.member.instance().id, self.listed.slot());
        Ticket { id, slot, turn }.to_word()
    }

    /// Enters the queue behind `tail` if that is still the last.
    #[inline(always)]
    fn enter(&self, tail: u64) -> bool {
        let (memory, lock) = (self.lock.memory, self.lock.at);
        // SAFETY: `take` has asked for the word that the turn and the link are the halves of.
        unsafe { memory.store_unchecked(self.node + PREDECESSOR, tail, Ordering::Relaxed) };
        memory.crash_point(QueuePoint::Linked);
        // Release: whoever sees the ticket sees the entry, the turn and the link. Acquire: the same of
        // those before.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let entered = memory.compare_exchange(lock, tail, self.ticket(), order.0, order.1);
        if entered.is_ok() {
            memory.crash_point(QueuePoint::Queued);
        }
        entered.is_ok()
    }

    /// Enters the queue if that alone makes one the holder: nobody is in it.
    ///
    /// The last ticket's turn is seen to be over before the tail is moved from it. A ticket that is cut out
    /// of the queue leaves the tail first, for good, and only then may its node be used again; so the
    /// turn that was over is the ticket's own, and the link need not be looked at again.
    #[inline(always)]
    fn enter_at_once(&self, logs: Logs<M>) -> bool {
        let lock = self.lock;
        let tail: u64 = lock.memory.load(lock.at, Ordering::Acquire);
        // One's own last turn is over without a look at the node; a compare-and-swap waits for the loads before
        // it, and that one would have to wait for the tail.
        let nobody = tail == NOBODY
            || tail == self.last_ticket()
            || Ticket::from_word(tail, logs.capacity()).is_some_and(|last| lock.over(logs, last));
        nobody && self.enter(tail)
    }

    #[inline(always)]
    fn link(&self) -> u64 {
        // Acquire: a mender has released what the dead did under the lock.
        let at = self.node + PREDECESSOR;
        self.lock.memory.load(at, Ordering::Acquire)
    }

    /// Whether this instance has another place in the same queue.
    fn is_second(&self, logs: Logs<M>) -> bool {
        let log = logs.of(self.member.instance().id);
        let mut entries = log.locks();
        entries.any(|entry| entry.lock == self.lock.at && entry.slot != self.listed.slot())
    }

    #[inline(always)]
    fn guard(self) -> QueueGuard<'m, M> {
        QueueGuard {
            member: self.member,
            memory: self.lock.memory,
            listed: self.listed,
            node: self.node,
            entry: OwnLog::of(self.member).entry(self.listed),
            turn: self.turn,
        }
    }

    /// Leaves the queue without having held the lock.
    fn leave(self, logs: Logs<M>) {
        mend::cut(self.lock, self.member, logs, self.node, self.ticket());
        self.strike();
    }

    /// Gives up a place that nobody names.
    fn strike(self) {
        let memory = self.lock.memory;
        memory.store(self.node + DONE, self.turn, Ordering::Release);
        OwnLog::of(self.member).unlist(self.listed);
    }
}

/// A member's log, and so its nodes, are in its memory.
#[cold]
#[inline(never)]
fn no_node(node: Offset) -> ! {
    unreachable!("the queue node at {node} is outside the member's memory")
}
