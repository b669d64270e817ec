//! A recoverable queue lock: first come, first served, among live members.
//!
//! Bohannon, Lieuwen and Silberschatz made the MCS lock recoverable (SPDP '96; LUPIN §3.5 uses
//! their lock). Their difficulty is a window: a process that dies after it has exchanged the
//! queue's tail and before it has linked itself to its predecessor cuts the queue in two, and the
//! cut must be repaired from the intents that all processes have announced. This lock keeps their
//! means, an announced intent and a repaired queue, but has no such window. It is linked from each
//! waiter to its *predecessor* (as in the locks of Craig, and of Landin and Hagersten), and the
//! link is written before the tail is moved by compare-and-swap. So each waiter has a predecessor
//! on record.
//!
//! ```text
//!  lock:   0  tail: the last waiter's ticket, or 0      node, in the waiter's log, one per lock entry:
//!         64  the repairing instance, or 0            0  turn: which use of the node this is
//!         72  poison, 32 bits: a holder that panicked     8  the predecessor's ticket
//!  ticket: | turn, 42 bits | node + 1, 6 | id, 16 |      16  done: the last turn that is over
//!                                                        24  whether the successor sleeps
//! ```
//!
//! *The holder.* Following predecessors from the tail visits all members in the queue, latest
//! first. A waiter holds the lock when its predecessor's turn is done, or it has none. Every ticket
//! but the tail is the predecessor of exactly one in the queue, so one member holds the lock, and
//! the lock passes in the order of the compare-and-swaps. To release it, the holder marks its turn
//! as done. Each waiter spins on a line that no other member waits on.
//!
//! *Repair.* The recovering member cuts a dead instance out of the queue, and a waiter that runs
//! out of time cuts itself out: see the module `repair`.
//!
//! *Turns.* A node is reused immediately, so "done" is a number that grows, also across
//! incarnations. A waiter that finds its predecessor done loads the link once more. If the
//! predecessor had died, its id had been joined again, and the new incarnation had completed a turn
//! meanwhile, then the link would have been repaired before that, and the second load shows it.

mod guard;
mod repair;

pub use guard::QueueGuard;
pub(super) use repair::LeaveQueue;

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
    /// The crash points of the use of a queue lock.
    pub enum QueuePoint for "queue.lock" {
        /// The log lists the lock; the node belongs to an earlier turn.
        Listed,
        /// A predecessor is on record; the tail is not moved.
        Linked,
        /// The instance is in the queue.
        Queued,
        /// The instance holds the lock.
        Held,
        /// The turn is done; the lock is still listed.
        Released,
        /// The lock's entry is cleared.
        Struck,
        /// A member repairs the queue; nothing is changed yet.
        Repairing,
        /// An instance that died or timed out is out of the queue; the repair is not finished.
        Cut,
    }
}

/// A place in a queue: use number `turn` of node `slot` of `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticket {
    id: InstanceId,
    slot: usize,
    turn: u64,
}

const TURN_BITS: u32 = 42;
const TURN_MASK: u64 = (1 << TURN_BITS) - 1;
const NONE: u64 = 0;

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

/// Returns whether `turn` is over on a node whose last finished turn is `done`. Turns wrap; no
/// member waits for half of them.
fn is_over(done: u64, turn: u64) -> bool {
    done.wrapping_sub(turn) & TURN_MASK <= TURN_MASK >> 1
}

/// A recoverable queue lock, listed in its users' logs: first come, first served, among live
/// members.
///
/// Waits for live instances only: for the holder and earlier waiters, or for a live recovering
/// member of a dead one. The lock passes on from a dead owner only after the owner has been
/// recovered. For [`Flushed`](PersistenceDomain::Flushed) memory.
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
/// # // SAFETY: this thread alone acts as 0.1, and no thread raises its generation.
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
    /// The number of bytes of the lock: two lines; the second is used only to repair the queue.
    ///
    /// These bytes may be reused when no member waits for the lock, and every member that died
    /// waiting for it has been recovered: the recovery repairs the queue.
    pub const BYTES: u64 = 128;

    /// Returns the lock at `at` (aligned to 64). The memory is zeroed at first: free.
    ///
    /// # Panics
    /// On [`WriteBack`](PersistenceDomain::WriteBack) memory: a tail that falls back with a dead
    /// host's caches would put two waiters behind one.
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

    /// Returns the same lock with another way of waiting.
    pub fn waiting(self, waiting: Waiting) -> Self {
        Self { waiting, ..self }
    }

    /// Returns the offset of the lock.
    pub fn at(self) -> Offset {
        self.at
    }

    /// Returns whether a live or dead member holds the lock or waits for it.
    pub fn is_held(&self, logs: Logs<M>) -> bool {
        let tail: u64 = self.memory.load(self.at, Ordering::Acquire);
        Ticket::from_word(tail, logs.capacity()).is_some_and(|last| !self.left(logs, last))
    }

    /// Acquires the lock, recovering dead predecessors.
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
            assert!(held, "a wait without a limit has ended without the lock");
        }
        self.memory.crash_point(QueuePoint::Held);
        Ok(place.guard())
    }

    /// Acquires the lock unless that takes longer than `timeout`. Leaving the queue reads all logs.
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

    /// Acquires the lock without waiting in its queue, and recovers a dead last waiter for this.
    /// Returns `None` if the last waiter lives or another member recovers it, and after three
    /// unsuccessful tries.
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
            if tail != NONE {
                let last = self.ticket(logs, tail)?;
                if !self.left(logs, last) {
                    match self.check_predecessor(member, recoverers, last)? {
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

    /// Returns whether the link of `place` (`link`, which leads to `before`) makes it the holder.
    #[inline(always)]
    fn comes_after(
        &self,
        place: &Place<'_, M>,
        logs: Logs<M>,
        link: u64,
        before: Option<Ticket>,
    ) -> bool {
        // `left` acquires, so this second load of the link comes after it: see "Turns" at the top.
        before.is_none_or(|before| self.left(logs, before) && place.link() == link)
    }

    /// Returns the ticket that a link leads to.
    #[inline(always)]
    fn before(&self, logs: Logs<M>, link: u64) -> Result<Option<Ticket>, LockError> {
        if link == NONE {
            return Ok(None);
        }
        self.ticket(logs, link).map(Some)
    }

    /// Enters the queue with the entry `listed` and waits until that place is the holder's. If it
    /// returns otherwise, it has left the queue. (The place is found again from its entry, so that
    /// the fast path can keep its own in registers.)
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
            // Checked before this instance relies on it and stands behind it.
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
                // A damaged link: there is no member to wait for.
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
            match self.check_predecessor(member, recoverers, before) {
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

    /// Checks whether the owner of the preceding ticket lives, and recovers it otherwise.
    fn check_predecessor(
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
            // A member recovers it, or has just finished: the link will change, or has changed.
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

    /// Returns whether the ticket's turn is over, however long ago. (A lock is free even if its
    /// last holder has since gone through half of all turns elsewhere.)
    fn left(&self, logs: Logs<M>, ticket: Ticket) -> bool {
        let node = logs.of(ticket.id).node(ticket.slot);
        // Acquire: as in `over`. A node is used again only when its turn is over.
        let begun = || self.memory.load::<u64>(node + TURN, Ordering::Acquire);
        self.over(logs, ticket) || begun() != ticket.turn
    }

    #[inline(always)]
    fn over(&self, logs: Logs<M>, ticket: Ticket) -> bool {
        let node = logs.of(ticket.id).node(ticket.slot);
        // Acquire: the work done under the lock in that turn.
        is_over(
            self.memory.load(node + DONE, Ordering::Acquire),
            ticket.turn,
        )
    }
}

/// The state of a preceding ticket.
enum Look {
    /// The owner, or a member that recovers it, lives.
    Alive,
    /// The owner has been recovered; the queue has changed.
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
        // Relaxed, as are all accesses to the node until the tail is moved: that releases it.
        // SAFETY: half of the word that was checked; so is the link in `enter`.
        let turn: u64 = unsafe { memory.load_unchecked(node + TURN, Ordering::Relaxed) };
        let turn = turn.wrapping_add(1) & TURN_MASK;
        // SAFETY: as above. Release: a thread that sees a later turn of the node sees the work done
        // under the lock in the earlier turns.
        unsafe { memory.store_unchecked(node + TURN, turn, Ordering::Release) };
        Ok(Self {
            lock,
            member,
            listed,
            node,
            turn,
        })
    }

    /// Returns the place that `member` has taken, by [`take`](Self::take), with the entry `listed`.
    fn find(lock: QueueLock<M>, member: &'m Member<M>, listed: Listed) -> Self {
        let node = OwnLog::of(member).node(listed);
        // Relaxed: only the owner writes it.
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

    /// Returns the ticket of the turn before. It is over: the entry is listed again only after
    /// that.
    #[inline(always)]
    fn last_ticket(&self) -> u64 {
        self.ticket_of(self.turn.wrapping_sub(1) & TURN_MASK)
    }

    #[inline(always)]
    fn ticket_of(&self, turn: u64) -> u64 {
        let (id, slot) = (self.member.instance().id, self.listed.slot());
        Ticket { id, slot, turn }.to_word()
    }

    /// Enters the queue behind `tail` if that is still the last ticket.
    #[inline(always)]
    fn enter(&self, tail: u64) -> bool {
        let (memory, lock) = (self.lock.memory, self.lock.at);
        // SAFETY: `take` has checked the word that the turn and the link are the halves of.
        unsafe { memory.store_unchecked(self.node + PREDECESSOR, tail, Ordering::Relaxed) };
        memory.crash_point(QueuePoint::Linked);
        // Release: a thread that sees the ticket sees the entry, the turn and the link. Acquire:
        // those of earlier tickets.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let entered = memory.compare_exchange(lock, tail, self.ticket(), order.0, order.1);
        if entered.is_ok() {
            memory.crash_point(QueuePoint::Queued);
        }
        entered.is_ok()
    }

    /// Enters the queue if that alone makes this member the holder: the queue is empty.
    ///
    /// The last ticket's turn is seen to be over before the tail is moved from it. A ticket that is
    /// cut out of the queue leaves the tail first, for good, and only then may its node be used
    /// again. So the turn that was over is the ticket's own, and the link need not be loaded again.
    #[inline(always)]
    fn enter_at_once(&self, logs: Logs<M>) -> bool {
        let lock = self.lock;
        let tail: u64 = lock.memory.load(lock.at, Ordering::Acquire);
        // The member's own last turn is over, without a load of the node; a compare-and-swap waits
        // for earlier loads, and that load would have to wait for the tail.
        let nobody = tail == NONE
            || tail == self.last_ticket()
            || Ticket::from_word(tail, logs.capacity()).is_some_and(|last| lock.over(logs, last));
        nobody && self.enter(tail)
    }

    #[inline(always)]
    fn link(&self) -> u64 {
        // Acquire: the repairing member has released the dead member's work under the lock.
        let at = self.node + PREDECESSOR;
        self.lock.memory.load(at, Ordering::Acquire)
    }

    /// Returns whether this instance has another place in the same queue.
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
        repair::cut(self.lock, self.member, logs, self.node, self.ticket());
        self.strike();
    }

    /// Gives up a place that no link names.
    fn strike(self) {
        let memory = self.lock.memory;
        memory.store(self.node + DONE, self.turn, Ordering::Release);
        OwnLog::of(self.member).unlist(self.listed);
    }
}

/// Panics: a member's log, and so its nodes, are in its memory.
#[cold]
#[inline(never)]
fn no_node(node: Offset) -> ! {
    unreachable!("the queue node at {node} is outside the member's memory")
}
