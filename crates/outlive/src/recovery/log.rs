//! The log of an instance: the view of other members, and the writing view of its owner.

use super::Logs;
use super::kinds::CoreLock;
use super::layout::{
    CLAIM, INHERITED, LOCKS, NODE_BYTES, NODES, OPERATION_BYTES, OPERATIONS, OWNER, ROOM,
};
use super::operation::{self, BadOperation, Operation, OperationKind, RunningOperation};
use super::redo::{self, Redo, RedoError};
use crate::membership::{Instance, Member};
use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroU32;
use outlive_memory::{Link, Memory, Native, Offset, Ordering, PersistenceDomain};

outlive_memory::crash_points! {
    /// Crash points of the opening of a log by a new incarnation.
    pub enum LogOpenPoint for "log.open" {
        /// The new incarnation has claimed the log; the contents still name the old one as owner.
        Claimed,
        /// The log is open.
        Opened,
    }
}

outlive_memory::crash_points! {
    /// Crash points of the closing of a log.
    pub enum LogClosePoint for "log.close" {
        /// The last operation of the instance has been kept for its successor.
        Inherited,
        /// The log has no claimant.
        Settled,
    }
}

/// The kind of a lock, 1 to 15: selects the handler that releases the lock for a dead owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockKind(u8);

impl LockKind {
    /// A [`Tatas`](crate::sync::Tatas) lock.
    pub const TATAS: Self = Self(CoreLock::Tatas as u8);
    /// A [`QueueLock`](crate::sync::QueueLock).
    pub const QUEUE: Self = Self(CoreLock::Queue as u8);
    /// A bare TATAS lock: a dead owner leaves it to the next owner.
    pub const BARE: Self = Self(CoreLock::Bare as u8);

    /// Returns the kind `number`, for locks of programs: 4 to 15.
    ///
    /// # Panics
    /// If it is not one of those.
    pub const fn new(number: u8) -> Self {
        assert!(4 <= number && number <= 15, "kinds of locks are 4 to 15");
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// A lock that an instance holds or is about to take, as its log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockEntry {
    /// The offset of the lock.
    pub lock: Offset,
    /// The kind of lock.
    pub kind: LockKind,
    /// The index of this entry in the log; the queue node of the same number belongs to it.
    pub slot: usize,
}

/// Read access to the log of one id. Values read from a live owner's log may have changed since.
#[derive(Clone, Copy, Debug)]
pub struct Log<M: Memory = Native> {
    memory: M,
    at: Offset,
}

impl<M: Memory> Log<M> {
    #[inline(always)]
    pub(super) fn new(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    pub(super) fn memory(self) -> M {
        self.memory
    }

    /// Returns the offset of the log.
    pub fn at(self) -> Offset {
        self.at
    }

    /// Returns the instance that the contents belong to; `None` before the id's first incarnation.
    pub fn owner(self) -> Option<Instance> {
        Instance::from_word(self.memory.load(self.at + OWNER, Ordering::Acquire))
    }

    /// Returns the instance that may write to the log now: its owner, or the owner's recoverer;
    /// `None` if the log is settled.
    pub fn claimant(self) -> Option<Instance> {
        Instance::from_word(self.memory.load(self.at + CLAIM, Ordering::Acquire))
    }

    /// Returns the locks that are held or being taken, in no particular order.
    pub fn locks(self) -> impl Iterator<Item = LockEntry> {
        (0..Logs::<M>::LOCKS).filter_map(move |slot| self.lock_entry(slot))
    }

    pub(super) fn lock_entry(self, slot: usize) -> Option<LockEntry> {
        let word: u64 = self.memory.load(self.lock_at(slot), Ordering::Acquire);
        if word == 0 {
            return None;
        }
        let link = Link::from_word(word);
        Some(LockEntry {
            lock: link.offset(),
            kind: LockKind(link.tags()),
            slot,
        })
    }

    /// Returns the operation that was begun last, running or done; `None` if there has been none.
    ///
    /// # Errors
    /// If the descriptor is corrupt.
    pub fn operation(self) -> Result<Option<Operation>, BadOperation> {
        operation::latest(self)
    }

    /// Returns the last operation of the previous incarnation, as its recovery left it, until the
    /// current incarnation calls [`forget_inherited`](OwnLog::forget_inherited).
    ///
    /// # Errors
    /// If the descriptor is corrupt.
    pub fn inherited(self) -> Result<Option<Operation>, BadOperation> {
        operation::read(self, self.inherited_at())
    }

    /// Returns whether a redo transaction is committed and not yet retired.
    pub fn redo_committed(self) -> bool {
        self.owner()
            .is_some_and(|owner| redo::committed(self, owner).is_some())
    }

    /// Returns the offset of the log's scratch area: [`Logs::ROOM`] bytes for the modules above. A
    /// module that uses it registers a handler that recovers it.
    pub fn room(self) -> Offset {
        self.at + ROOM
    }

    /// Returns the offset of the program's part of the [scratch area](Self::room): 1 KiB.
    pub fn program_room(self) -> Offset {
        self.room() + Logs::<M>::ROOM / 2
    }

    /// Returns the cache line that a queue lock may use as its node while entry `slot` is listed.
    #[inline]
    pub fn node(self, slot: usize) -> Offset {
        if slot >= Logs::<M>::LOCKS {
            no_such_entry(slot);
        }
        self.at + NODES + slot as u64 * NODE_BYTES
    }

    pub(super) fn claim_at(self) -> Offset {
        self.at + CLAIM
    }

    pub(super) fn owner_at(self) -> Offset {
        self.at + OWNER
    }

    #[inline(always)]
    pub(super) fn lock_at(self, slot: usize) -> Offset {
        self.at + LOCKS + slot as u64 * 8
    }

    #[inline(always)]
    pub(super) fn operation_at(self, sequence: u64) -> Offset {
        self.at + OPERATIONS + (sequence & 1) * OPERATION_BYTES
    }

    pub(super) fn inherited_at(self) -> Offset {
        self.at + INHERITED
    }

    /// Keeps the latest operation for the next incarnation, if `owner` began it. Only for the
    /// holder of the claim.
    pub(super) fn keep_for_heir(self, owner: Instance) -> Result<(), BadOperation> {
        match self.operation()? {
            Some(last) if last.instance == owner => {
                operation::copy(self, last.sequence);
                Ok(())
            }
            // The owner began no operation: the one that it inherited itself stays for its
            // successor.
            _ => Ok(()),
        }
    }

    /// Clears the claim. Only for the holder of the claim, when nothing is left in the log.
    pub(super) fn settle(self) {
        let claim = self.claim_at();
        // Release: a thread that finds the log settled also finds it empty.
        self.memory.store(claim, Instance::NONE, Ordering::Release);
        self.memory.persist(claim, 8);
    }
}

/// The instance holds or is taking as many locks as its log has entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{instance} already holds {} locks, as many as its log can name; release one first", Logs::<Native>::LOCKS)]
pub struct TooManyLocks {
    /// The instance whose log is full.
    pub instance: Instance,
}

/// The reason why a log could not be closed. It stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The instance does not own the log: it was never opened, or it is being recovered.
    #[error("the log of {instance} is not open: it was never opened, or it is being recovered")]
    NotOpen {
        /// The instance that tried to close it.
        instance: Instance,
    },
    /// A lock is still held.
    #[error("{instance} cannot leave: it still holds the lock at {lock}; release it first")]
    HoldsLock {
        /// The instance.
        instance: Instance,
        /// The lock.
        lock: Offset,
    },
    /// An operation is still running.
    #[error(
        "{instance} cannot leave: operation {sequence} of kind {kind:?} is not finished; finish it \
         first"
    )]
    OperationRuns {
        /// The instance.
        instance: Instance,
        /// The operation's number.
        sequence: u64,
        /// Its kind.
        kind: OperationKind,
    },
    /// The descriptor of the last operation is corrupt.
    #[error(transparent)]
    BadOperation(#[from] BadOperation),
}

/// An entry for a lock in the log of the instance that listed it. For implementations of further
/// locks.
///
/// It belongs to one log and is consumed by [`OwnLog::unlist`]. Given to another member's log, or a
/// second time, it clears the entry of a different lock, and that lock is lost if its holder dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an entry stays listed until it is given to `unlist`"]
pub struct Listed {
    /// One more than the slot, so that an optional entry is one word too.
    number: NonZeroU32,
}

impl Listed {
    /// Returns the index of the entry.
    #[inline(always)]
    pub fn slot(self) -> usize {
        self.number.get() as usize - 1
    }
}

/// Returns the word of an entry.
#[inline(always)]
fn entry(lock: Offset, kind: LockKind) -> u64 {
    Link::new(lock).with_tags(kind.0).to_word()
}

/// Out of line, and with plain values.
#[cold]
#[inline(never)]
#[track_caller]
fn no_such_entry(slot: usize) -> ! {
    panic!("a log has no entry {slot}")
}

/// Writes `word` into a free entry; `first` is the offset of the first entry. Called for nested
/// locks and on write-back memory. (The arguments fit into registers; those of a method of
/// [`OwnLog`] would not.)
#[inline(never)]
fn list_slowly<M: Memory>(memory: M, first: Offset, word: u64) -> Option<Listed> {
    for number in 1..=Logs::<M>::LOCKS as u32 {
        let at = first + u64::from(number - 1) * 8;
        // Relaxed: only this thread writes these words while it lives.
        if memory.load::<u64>(at, Ordering::Relaxed) == 0 {
            memory.store(at, word, Ordering::Relaxed);
            memory.persist(at, 8);
            return NonZeroU32::new(number).map(|number| Listed { number });
        }
    }
    None
}

/// Write access to the log of a live member.
///
/// ```
/// use outlive::membership::{Generations, Instance, Level, Member, State, Status};
/// use outlive::memory::{Native, Offset, PersistenceDomain};
/// use outlive::recovery::{Logs, OperationKind, OwnLog};
///
/// let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
/// let generations = Generations::new(memory, Offset::new(0), 4);
/// let logs = Logs::new(memory, Offset::new(4096), 4);
/// let live = State { generation: 1, host: 0, level: Some(Level::Thread), status: Status::Live };
/// // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
/// assert!(unsafe { generations.assume_state(2, State::FREE, live) });
/// // SAFETY: this thread alone acts as 2.1, and no thread raises its generation.
/// let member = unsafe {
///     Member::assume(memory, generations, Instance::new(2, 1), logs.at(2), None)
/// };
/// let log = OwnLog::open(&member).expect("a settled log");
/// let transfer = log.begin(OperationKind::new(70), &[1, 2, 500]);
/// // ... make the change ...
/// transfer.finish(&[0]);
/// assert_eq!(logs.of(2).operation().unwrap().unwrap().result[0], 0);
/// log.close().expect("nothing is held");
/// ```
#[derive(Clone, Copy)]
pub struct OwnLog<'m, M: Memory = Native> {
    log: Log<M>,
    instance: Instance,
    member: PhantomData<&'m Member<M>>,
}

impl<'m, M: Memory> OwnLog<'m, M> {
    /// Returns the log of `member`, which has been [opened](Self::open).
    #[inline(always)]
    pub fn of(member: &'m Member<M>) -> Self {
        Self {
            log: Log::new(member.memory(), member.log()),
            instance: member.instance(),
            member: PhantomData,
        }
    }

    /// Opens the log for a new incarnation: once, while it joins, before any other use of the log.
    /// Has no effect on a log that is open already. Wait-free.
    ///
    /// For proofs and for programs with a membership of their own;
    /// [`Pod::join`](crate::pod::Pod::join) calls it.
    ///
    /// # Errors
    /// Returns the claimant if the log is not settled: the previous incarnation has not been
    /// recovered. [Recover](super::Recoverers::recover) it, or wait for its recoverer.
    ///
    /// # Crash
    /// A death in here leaves a log without contents, settled or claimed by the dead member.
    #[doc(hidden)]
    pub fn open(member: &'m Member<M>) -> Result<Self, Instance> {
        let own = Self::of(member);
        let (memory, log) = (own.log.memory, own.log);
        let word = own.instance.to_word();
        // Acquire: the last recoverer's changes to the log are visible. Release: a thread that
        // reads this claim sees the generation that this instance joined with.
        let taken = memory.compare_exchange(
            log.claim_at(),
            Instance::NONE,
            word,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match taken.map_err(Instance::from_word) {
            Err(Some(holder)) if holder != own.instance => return Err(holder),
            // Only damage leaves a nonzero word that names no instance. The log counts as settled.
            Err(None) => memory.store(log.claim_at(), word, Ordering::Relaxed),
            // The log is open already: an operation under way in it is kept.
            Err(Some(_)) if log.owner() == Some(own.instance) => return Ok(own),
            _ => {}
        }
        memory.persist(log.claim_at(), 8);
        memory.crash_point(LogOpenPoint::Claimed);
        // Clears the busy flag of a transaction that a former owner left open.
        redo::forget(log);
        memory.store(log.owner_at(), word, Ordering::Release);
        memory.persist(log.owner_at(), 8);
        memory.crash_point(LogOpenPoint::Opened);
        Ok(own)
    }

    /// Closes the log when its owner leaves. Wait-free.
    ///
    /// For proofs and for programs with a membership of their own: a [`Member`] of a pod closes its
    /// log when it is dropped. No recovery finds a lock that the instance takes after this call.
    ///
    /// # Errors
    /// If a lock is held or an operation runs; nothing is changed then.
    #[doc(hidden)]
    pub fn close(self) -> Result<(), CloseError> {
        let (log, instance) = (self.log, self.instance);
        match log.claimant() {
            // Settled: never opened, and a predecessor left nothing.
            None => return Ok(()),
            Some(claimant) if claimant == instance && log.owner() == Some(instance) => {}
            Some(_) => return Err(CloseError::NotOpen { instance }),
        }
        if let Some(entry) = log.locks().next() {
            let lock = entry.lock;
            return Err(CloseError::HoldsLock { instance, lock });
        }
        if let Some(last) = log.operation()?
            && last.instance == instance
            && !last.is_done()
        {
            let (sequence, kind) = (last.sequence, last.kind);
            return Err(CloseError::OperationRuns {
                instance,
                sequence,
                kind,
            });
        }
        log.keep_for_heir(instance)?;
        log.memory.crash_point(LogClosePoint::Inherited);
        log.settle();
        log.memory.crash_point(LogClosePoint::Settled);
        Ok(())
    }

    /// Returns read access to the log.
    #[inline(always)]
    pub fn log(self) -> Log<M> {
        self.log
    }

    /// Returns the instance that owns this log.
    #[inline(always)]
    pub fn instance(self) -> Instance {
        self.instance
    }

    /// Records that the lock of `kind` at `lock` is about to be taken. Call it *before* the first
    /// step that makes the caller the owner. Wait-free.
    ///
    /// The entry's store is relaxed. That step itself must order it, as a compare-and-swap or
    /// exchange with release. On write-back memory the entry is in memory when this returns.
    ///
    /// # Errors
    /// If the log has no free entry.
    #[inline(always)]
    pub fn list(self, lock: Offset, kind: LockKind) -> Result<Listed, TooManyLocks> {
        if let Some(listed) = self.list_at_once(lock, kind) {
            return Ok(listed);
        }
        let (memory, first, word) = (self.log.memory, self.log.lock_at(0), entry(lock, kind));
        let instance = self.instance;
        list_slowly(memory, first, word).ok_or(TooManyLocks { instance })
    }

    /// Records a lock as [`list`](Self::list) does, by one store. Returns `None` unless the first
    /// entry is free and no write-back is needed.
    #[inline(always)]
    pub(crate) fn list_at_once(self, lock: Offset, kind: LockKind) -> Option<Listed> {
        let (memory, first) = (self.log.memory, self.log.lock_at(0));
        // Relaxed: only this thread writes these words while it lives.
        if memory.domain() != PersistenceDomain::Flushed
            || memory.load::<u64>(first, Ordering::Relaxed) != 0
        {
            return None;
        }
        memory.store(first, entry(lock, kind), Ordering::Relaxed);
        Some(Listed {
            number: NonZeroU32::MIN,
        })
    }

    /// Clears an entry. Call it *after* the step by which the caller ceases to be the lock's owner.
    #[inline(always)]
    pub fn unlist(self, listed: Listed) {
        let (memory, at) = (self.log.memory, self.log.lock_at(listed.slot()));
        // Release: the lock was given up before; no recoverer examines a lock without an entry.
        memory.store(at, 0u64, Ordering::Release);
        memory.persist(at, 8);
    }

    /// Returns the offset of the last entry.
    #[inline(always)]
    pub(crate) fn last_entry(self) -> Offset {
        self.log.lock_at(Logs::<M>::LOCKS - 1)
    }

    /// Returns the offset of an entry.
    #[inline(always)]
    pub(crate) fn entry(self, listed: Listed) -> Offset {
        self.log.lock_at(listed.slot())
    }

    /// Returns the entry of the lock at `lock`; `None` if the log does not name it.
    pub(crate) fn entry_of(self, lock: Offset) -> Option<Listed> {
        let entry = self.log.locks().find(|entry| entry.lock == lock)?;
        let number = NonZeroU32::new(entry.slot as u32 + 1)?;
        Some(Listed { number })
    }

    /// Returns the offset of the lock that an entry names.
    pub(crate) fn lock_of(self, listed: Listed) -> Offset {
        let word: u64 = (self.log.memory).load(self.log.lock_at(listed.slot()), Ordering::Relaxed);
        Link::from_word(word).offset()
    }

    /// Returns whether the log names the lock at `lock`.
    pub fn lists(self, lock: Offset) -> bool {
        self.log.locks().any(|entry| entry.lock == lock)
    }

    /// Returns the queue node that belongs to an entry.
    #[inline(always)]
    pub fn node(self, listed: Listed) -> Offset {
        self.log.at + NODES + listed.slot() as u64 * NODE_BYTES
    }

    /// Begins a detectable operation: until it is finished, a recoverer runs the handler of its
    /// `kind` if this instance dies. Wait-free.
    ///
    /// # Panics
    /// If there are more than [`Operation::ARGUMENTS`] arguments.
    #[inline(always)]
    pub fn begin(self, kind: OperationKind, arguments: &[u64]) -> RunningOperation<'m, M> {
        operation::begin(self, kind, arguments)
    }

    /// Begins a redo transaction under `guards`, references to the guards of the locks that exclude
    /// other members from the words that it stores to. None of these locks is released, or
    /// reacquired, before the transaction ends. A single guard has a method for this, such as
    /// [`TatasGuard::redo`](crate::sync::TatasGuard::redo).
    ///
    /// # Errors
    /// If another transaction is open, or no lock is listed under which it could be replayed.
    #[inline]
    pub fn redo_under<'g, G: Copy + 'g>(self, guards: G) -> Result<Redo<'g, M>, RedoError>
    where
        'm: 'g,
    {
        let _ = guards; // only their lifetime counts
        redo::begin(self)
    }

    /// Marks the [inherited](Log::inherited) operation as read.
    pub fn forget_inherited(self) {
        operation::erase(self.log, self.log.inherited_at());
    }
}

impl<M: Memory> fmt::Debug for OwnLog<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnLog({} at {})", self.instance, self.log.at)
    }
}
