//! Recovery itself: claim, redo, operation, locks, settle.

use super::handler::{RecoverLock, RecoverOperation, RecoverRoom, Recovering};
use super::operation::{BadOperation, OperationKind};
use super::{LockEntry, LockKind, Log, Logs, redo};
use crate::membership::{Instance, InstanceId, Member, Status};
use core::fmt;
use outlive_memory::{Memory, Native, Offset, OffsetOutOfRange, Ordering};
use std::collections::BTreeMap;

outlive_memory::crash_points! {
    /// Crash points of a recovery.
    pub enum RecoverPoint for "log.recover" {
        /// The log is claimed; nothing has been done.
        Claimed,
        /// The committed transaction is carried out and retired.
        Replayed,
        /// The log's scratch area is settled.
        RoomSettled,
        /// The running operation is settled.
        OperationSettled,
        /// A lock is released and still listed.
        LockReleased,
        /// The entry of a lock is cleared.
        LockStruck,
        /// The resources that the dead instance held through its log's scratch area are released.
        RoomReleased,
        /// The last operation is kept for the next incarnation.
        Inherited,
        /// The log has no claimant; the id still counts as dead.
        Settled,
        /// The id is recovered.
        Announced,
    }
}

/// The outcome of an attempt to recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// The caller has recovered it.
    Completed {
        /// The instance that had died.
        owner: Instance,
        /// The number of stores of a committed transaction that were carried out.
        redone: usize,
        /// Whether an operation had been running.
        operation: bool,
        /// The number of locks that it held or was taking.
        locks: usize,
    },
    /// No dead instance is to be recovered under this id, or another instance has recovered it.
    NothingLeft,
    /// This live instance is recovering the dead one. No other instance takes over the recovery
    /// while it lives.
    ByAnother(Instance),
}

/// The reason why a recovery failed. The log has been left to another recoverer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The id does not exist.
    #[error("id {id} does not exist: the pod has the logs of {capacity} ids, from 0 on")]
    NoSuchId {
        /// The id.
        id: InstanceId,
        /// The number of ids that have a log.
        capacity: u32,
    },
    /// A claim, or another word that should name an instance, names one that cannot exist.
    #[error(
        "the word at {at} names {named}, which cannot be an instance of this pod; the segment is damaged: run `outlive pod check`"
    )]
    ForeignInstance {
        /// The offset of the word.
        at: Offset,
        /// The instance that it names.
        named: Instance,
    },
    /// The state word of the id is not a valid state.
    #[error(
        "the state of id {id} is invalid ({word:#x}); the segment is damaged: run `outlive pod \
         check`"
    )]
    BadState {
        /// The id.
        id: InstanceId,
        /// The word.
        word: u64,
    },
    /// A committed record's target is outside the memory.
    #[error(
        "the redo log of {owner} cannot be replayed: {target}; the segment is damaged: run \
         `outlive pod check`"
    )]
    BadRecord {
        /// The instance whose log it is.
        owner: Instance,
        /// The target.
        target: OffsetOutOfRange,
    },
    /// An operation descriptor is corrupt.
    #[error(transparent)]
    BadOperation(#[from] BadOperation),
    /// This program has no handler for the operation that was running.
    #[error("{owner} died in an operation of kind {}, which this program cannot recover; register its handler", .kind.get())]
    NoHandler {
        /// The dead instance.
        owner: Instance,
        /// The operation's kind.
        kind: OperationKind,
    },
    /// The handler returned without having settled the operation.
    #[error(
        "the handler for operations of kind {} left operation {sequence} of {owner} running; it \
         has to finish the operation before it returns",
        .kind.get()
    )]
    Unsettled {
        /// The dead instance.
        owner: Instance,
        /// The operation's kind.
        kind: OperationKind,
        /// The operation's number.
        sequence: u64,
    },
    /// This program does not know the kind of lock that was held.
    #[error(
        "{owner} died while it held a lock of unknown kind {} at {}; register a handler for that \
         kind",
        .entry.kind.get(), .entry.lock
    )]
    UnknownLock {
        /// The dead instance.
        owner: Instance,
        /// The log's entry.
        entry: LockEntry,
    },
    /// A lock's word is impossible.
    #[error("the lock at {lock} is damaged: {what}; run `outlive pod check`")]
    BadLock {
        /// The lock.
        lock: Offset,
        /// What is wrong.
        what: &'static str,
    },
    /// A handler asked for the recovery that it is part of.
    #[error(
        "{by} is recovering id {id} already; a handler must not recover the id for which it was \
         called"
    )]
    Reentered {
        /// The recoverer.
        by: Instance,
        /// The id.
        id: InstanceId,
    },
    /// The recovering member is about to leave. The log is left to another member, or to the next
    /// one that joins.
    #[error("{member} leaves the pod, and leaves the recovery to another member")]
    Leaving {
        /// The member that leaves.
        member: Instance,
    },
    /// A handler failed for a reason of its own.
    #[error("{0}")]
    Handler(String),
}

/// Runs a handler. A panic of the handler is an error here: if it unwound, it would end this
/// recoverer and every later one.
fn guarded(handler: impl FnOnce() -> Result<(), RecoverError>) -> Result<(), RecoverError> {
    std::panic::catch_unwind(core::panic::AssertUnwindSafe(handler)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(RecoverError::Handler(format!(
            "a recovery handler panicked: {message}"
        )))
    })
}

/// The recovery handlers of a pod: its logs, and a handler for each kind of operation and of lock.
///
/// The modules above register their handlers when a pod is opened; [`recover`](Self::recover) runs
/// them.
pub struct Recoverers<M: Memory = Native> {
    logs: Logs<M>,
    operations: BTreeMap<OperationKind, Box<dyn RecoverOperation<M>>>,
    locks: BTreeMap<LockKind, Box<dyn RecoverLock<M>>>,
    rooms: Vec<Box<dyn RecoverRoom<M>>>,
}

impl<M: Memory> Recoverers<M> {
    /// Returns an instance without handlers. It cannot recover even the locks of
    /// [`sync`](crate::sync); see [`sync::recoverers`](crate::sync::recoverers).
    pub fn bare(logs: Logs<M>) -> Self {
        Self {
            logs,
            operations: BTreeMap::new(),
            locks: BTreeMap::new(),
            rooms: Vec::new(),
        }
    }

    /// Registers the handler for operations of `kind`.
    ///
    /// # Panics
    /// If there is one: two modules use the same number.
    pub fn operation(
        mut self,
        kind: OperationKind,
        by: impl RecoverOperation<M> + 'static,
    ) -> Self {
        let before = self.operations.insert(kind, Box::new(by));
        assert!(before.is_none(), "two handlers for {kind:?}");
        self
    }

    /// Registers the handler for locks of `kind`.
    ///
    /// # Panics
    /// If there is one.
    pub fn lock(mut self, kind: LockKind, by: impl RecoverLock<M> + 'static) -> Self {
        let before = self.locks.insert(kind, Box::new(by));
        assert!(before.is_none(), "two handlers for {kind:?}");
        self
    }

    /// Registers a handler for the scratch areas of logs. Handlers settle in the order of their
    /// registration, and release in the opposite order.
    pub fn room(mut self, by: impl RecoverRoom<M> + 'static) -> Self {
        self.rooms.push(Box::new(by));
        self
    }

    /// Returns the logs.
    pub fn logs(&self) -> Logs<M> {
        self.logs
    }

    /// Recovers the dead instance that the log of `id` belongs to, as `member`, unless another
    /// instance has recovered it or is recovering it. Any member may call this at any time, in
    /// particular a new incarnation of `id` before it [opens](super::OwnLog::open) its log, and a
    /// member that waits for a lock whose owner died.
    ///
    /// Does not wait for other members. After `Completed`, the id is [`Status::Recovered`] (unless
    /// `member` is the next incarnation itself).
    ///
    /// # Errors
    /// See [`RecoverError`]; the log is left to another recoverer.
    ///
    /// # Crash
    /// If `member` dies in here, the next caller begins again once `member`'s generation has been
    /// raised. Completed steps are re-executed with the same effect or found done.
    pub fn recover(&self, member: &Member<M>, id: InstanceId) -> Result<Recovered, RecoverError> {
        let generations = member.generations();
        let capacity = self.logs.capacity().min(generations.capacity());
        if id >= capacity {
            return Err(RecoverError::NoSuchId { id, capacity });
        }
        let (memory, log, me) = (member.memory(), self.logs.of(id), member.instance());
        let at = log.claim_at();
        // Read before the log is found settled: if the state changes after that, the transition
        // fails.
        let state = |id| {
            let bad = |word| RecoverError::BadState { id, word };
            generations.state(id).map_err(bad)
        };
        let mut before = state(id)?;
        loop {
            let held: u64 = memory.load(at, Ordering::Acquire);
            let Some(holder) = Instance::from_word(held) else {
                // Settled. If the id still counts as dead, the recoverer that settled the log died
                // before it announced that (or the instance died before it opened its log).
                if before.status == Status::Dead {
                    self.announce(member, id, before);
                }
                return Ok(Recovered::NothingLeft);
            };
            if holder.id >= capacity {
                let named = holder;
                return Err(RecoverError::ForeignInstance { at, named });
            }
            let own = holder == me;
            if own && log.owner() != Some(me) {
                return Err(RecoverError::Reentered { by: me, id });
            }
            if own || !generations.is_gone(holder) {
                return Ok(if holder.id == id && log.owner() == Some(holder) {
                    Recovered::NothingLeft
                } else {
                    Recovered::ByAnother(holder)
                });
            }
            // AcqRel: acquire, to see the writes of the dead instance and of an earlier claimant;
            // release, so that an instance that takes the claim from this one sees them too.
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let claim = memory.compare_exchange(at, held, me.to_word(), order.0, order.1);
            if claim.is_ok() {
                break;
            }
            before = state(id)?;
        }
        memory.persist(at, 8);
        memory.crash_point(RecoverPoint::Claimed);
        // The state may be older than the death of the instance that the claim was just taken from.
        before = state(id)?;
        let claim = Claim {
            log,
            back_to: log.owner().unwrap_or(Instance::new(id, before.generation)),
        };
        let done = self.finish_for(member, log)?;
        core::mem::forget(claim);
        self.settled(member, id);
        Ok(done)
    }

    /// Runs the scratch-area handlers again on the log of `id`, whose last incarnation is dead or
    /// has left, to give up resources that could not be given up while other members were reading
    /// them. `member` holds the claim during this, like a recoverer; a new incarnation of the id
    /// waits for its release. Does not wait for other members.
    ///
    /// Returns `NothingLeft`, also if the id has an incarnation again.
    ///
    /// # Errors
    /// Returns the errors of [`recover`](Self::recover). The log is then left to another recoverer.
    ///
    /// # Crash
    /// The log stays claimed by a dead instance. The next [`recover_all`](Self::recover_all), or
    /// another call for `id`, takes the claim.
    pub fn revisit(&self, member: &Member<M>, id: InstanceId) -> Result<Recovered, RecoverError> {
        let capacity = self.logs.capacity();
        if id >= capacity {
            return Err(RecoverError::NoSuchId { id, capacity });
        }
        let (memory, log) = (member.memory(), self.logs.of(id));
        let at = log.claim_at();
        // AcqRel: as for any claim.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let me = member.instance().to_word();
        let claim = memory.compare_exchange(at, Instance::NONE, me, order.0, order.1);
        if claim.is_err() {
            // Another instance holds the claim. If it is dead, `member` takes its place.
            return self.recover(member, id);
        }
        memory.persist(at, 8);
        memory.crash_point(RecoverPoint::Claimed);
        let Some(owner) = log.owner() else {
            self.settled(member, id);
            return Ok(Recovered::NothingLeft);
        };
        // If a handler fails, the claim goes back to the log's last owner, which is dead or has
        // left: another recoverer finds it.
        let claim = Claim {
            log,
            back_to: owner,
        };
        let dead = Recovering {
            member,
            log,
            logs: self.logs,
            owner,
        };
        for room in &self.rooms {
            guarded(|| room.settle(&dead))?;
        }
        for room in self.rooms.iter().rev() {
            guarded(|| room.release(&dead))?;
        }
        core::mem::forget(claim);
        self.settled(member, id);
        Ok(Recovered::NothingLeft)
    }

    /// Settles the log of `id`, in which nothing is left. Sets the id's state to recovered if it
    /// counts as dead: by the death that led here, or because another incarnation has died since,
    /// before it could open the log.
    fn settled(&self, member: &Member<M>, id: InstanceId) {
        self.logs.of(id).settle();
        let memory = member.memory();
        memory.crash_point(RecoverPoint::Settled);
        // Either the thread that reports the death finds the log settled (see `recover_all`), or
        // this thread sees the death here.
        memory.fence(Ordering::SeqCst);
        if let Ok(state) = member.generations().state(id)
            && state.status == Status::Dead
            && self.logs.of(id).claimant().is_none()
        {
            self.announce(member, id, state);
        }
    }

    /// Recovers every dead id that no other instance is recovering, and returns their number. Call
    /// it when a death is reported, and after joining.
    ///
    /// # Errors
    /// The first error met, another one than [`RecoverError::Leaving`] if there is one. The other
    /// ids have been recovered nevertheless.
    pub fn recover_all(&self, member: &Member<M>) -> Result<usize, RecoverError> {
        let (mut done, mut failed) = (0, None);
        // If a recoverer settles a log without seeing the death that was reported to this thread,
        // this thread sees the log settled.
        member.memory().fence(Ordering::SeqCst);
        for id in 0..self.logs.capacity().min(member.generations().capacity()) {
            let due = self.is_due(member, id);
            match due.then(|| self.recover(member, id)) {
                Some(Ok(Recovered::Completed { .. })) => done += 1,
                // `Leaving` hides no other error.
                Some(Err(error)) if matches!(failed, None | Some(RecoverError::Leaving { .. })) => {
                    failed = Some(error);
                }
                _ => {}
            }
        }
        failed.map_or(Ok(done), Err)
    }

    /// Returns whether `id` is dead, or its log is claimed by a dead instance, which died while it
    /// [revisited](Self::revisit) the log. `id` must be below the capacity.
    pub(crate) fn is_due(&self, member: &Member<M>, id: InstanceId) -> bool {
        match member.generations().state(id).map(|state| state.status) {
            Ok(Status::Dead) => true,
            Ok(Status::Free | Status::Left | Status::Recovered | Status::Retired) => {
                let claimant = self.logs.of(id).claimant();
                claimant.is_some_and(|holder| member.generations().is_gone(holder))
            }
            // The incarnation that is about to join recovers the log.
            Ok(Status::Joining | Status::Live | Status::Fencing) | Err(_) => false,
        }
    }

    fn announce(&self, member: &Member<M>, id: InstanceId, dead: crate::membership::State) {
        let recovered = crate::membership::State {
            status: Status::Recovered,
            ..dead
        };
        member.generations().transition(id, dead, recovered);
        member.memory().crash_point(RecoverPoint::Announced);
    }

    /// Runs the steps between claim and settlement.
    fn finish_for(&self, member: &Member<M>, log: Log<M>) -> Result<Recovered, RecoverError> {
        let memory = member.memory();
        let Some(owner) = log.owner() else {
            // The first incarnation died before it had opened its log.
            return Ok(Recovered::NothingLeft);
        };
        let dead = Recovering {
            member,
            log,
            logs: self.logs,
            owner,
        };
        let redone = redo::committed(log, owner).unwrap_or(0);
        if let Some(target) = redo::bad_target(log, redone) {
            return Err(RecoverError::BadRecord { owner, target });
        }
        if redone > 0 {
            redo::apply(log, redone);
        } else {
            redo::retire(log);
        }
        memory.crash_point(RecoverPoint::Replayed);
        for room in &self.rooms {
            guarded(|| room.settle(&dead))?;
        }
        memory.crash_point(RecoverPoint::RoomSettled);

        let mut operation = false;
        if let Some(running) = dead.unsettled()? {
            operation = true;
            let kind = running.kind;
            let Some(handler) = self.operations.get(&kind) else {
                return Err(RecoverError::NoHandler { owner, kind });
            };
            guarded(|| handler.recover(&dead, &running))?;
            if dead.unsettled()?.is_some() {
                let sequence = running.sequence;
                return Err(RecoverError::Unsettled {
                    owner,
                    kind,
                    sequence,
                });
            }
            memory.crash_point(RecoverPoint::OperationSettled);
        }

        let mut locks = 0;
        // Innermost first, as the owner would have released them.
        for slot in (0..Logs::<M>::LOCKS).rev() {
            let Some(entry) = log.lock_entry(slot) else {
                continue;
            };
            let Some(kind) = self.locks.get(&entry.kind) else {
                return Err(RecoverError::UnknownLock { owner, entry });
            };
            guarded(|| kind.release(&dead, entry))?;
            memory.crash_point(RecoverPoint::LockReleased);
            // Release: the lock is free before its entry is cleared.
            memory.store(log.lock_at(slot), 0u64, Ordering::Release);
            memory.persist(log.lock_at(slot), 8);
            memory.crash_point(RecoverPoint::LockStruck);
            locks += 1;
        }
        for room in self.rooms.iter().rev() {
            guarded(|| room.release(&dead))?;
        }
        memory.crash_point(RecoverPoint::RoomReleased);
        log.keep_for_heir(owner)?;
        memory.crash_point(RecoverPoint::Inherited);
        Ok(Recovered::Completed {
            owner,
            redone,
            operation,
            locks,
        })
    }
}

impl<M: Memory> fmt::Debug for Recoverers<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recoverers")
            .field("operations", &self.operations.keys())
            .field("locks", &self.locks.keys())
            .field("rooms", &self.rooms.len())
            .finish_non_exhaustive()
    }
}

/// Gives the claim back when a recovery fails or a handler panics. (The claim of a recoverer that
/// dies is taken over.)
struct Claim<M: Memory> {
    log: Log<M>,
    back_to: Instance,
}

impl<M: Memory> Drop for Claim<M> {
    fn drop(&mut self) {
        let (memory, at) = (self.log.memory(), self.log.claim_at());
        // Release: the next claimant sees the steps that were done.
        memory.store(at, self.back_to.to_word(), Ordering::Release);
        memory.persist(at, 8);
    }
}
