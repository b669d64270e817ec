//! The operations of a worker on tasks: spawn, find, re-execute, commit (MODC §4).
//!
//! An [`Engine`] is a worker's handle on its [`slot`]. It does not run tasks itself: it hands them
//! to the caller, which reports their outcome.
//!
//! ```text
//!  loop:   next      own deque, others' deques, running slots of dead workers    READY -> RUNNING
//!          …         the caller runs it; spawn creates children                  NEW, private to the worker
//!          complete  nothing to publish                                          RUNNING -> DONE
//!                    else: chain the children, then                              RUNNING -> COMMITTING
//!                          publish outputs and children, in steps that can be repeated, then       -> DONE
//! ```
//!
//! # Exactly once
//!
//! A task may be begun several times: after a death, or on request. One store makes its effects
//! valid: from [`Running`](State::Running) to [`Done`](State::Done) or to
//! [`Committing`](State::Committing). The only holder makes it once. Before it, outputs are private
//! to the task, and children are chained only in the holder's memory, so an attempt that died has
//! spawned nothing. After it, the descriptor records all remaining work, and a worker that takes
//! over continues it. It is harmless to make a child ready and push it again, if it is not past
//! that state: the second entry leads to a task that already has a runner.
//!
//! # Takeover
//!
//! A task can be taken over if its holder's slot has no owner, or one that is gone (dead or
//! departed). The owner is read *after* the status. The slot may have a new owner by then, which
//! took over the task itself, or runs another one. If the owner that was read is gone, so are all
//! earlier ones, including the task's holder, which had claimed the slot before it wrote the
//! status. The log of the dead owner is then settled, and the compare-and-swap replaces exactly the
//! holder's tenure (see [`status`]).
//!
//! A new owner of a slot first handles the last task of its predecessor, because it is in the
//! slot's `running`, which will be reused for other tasks. While another live worker commits that
//! task, the slot cannot be claimed: see [`slot`].
//!
//! # Cost of a task
//!
//! Without deaths, without outputs and with at most 64 bytes of arguments: stores to the
//! descriptor, a deque entry, the note in the running slot, three statuses; one fence (pop) and one
//! compare-and-swap. No system call and no heap operation, unless the deque grows or the number of
//! descriptors in use reaches a new maximum.
//!
//! For the effects of a death at each point see the tables of [`slot`], [`deque`] and [`supply`],
//! and the crash points here.

mod claim;
mod commit;
pub mod deque;
pub mod descriptor;
pub(crate) mod error;
mod find;
mod hooks;
pub mod slot;
pub mod status;
pub mod supply;

pub use claim::ClaimPoint;
pub use commit::{CommitPoint, FailPoint, PostponePoint};
#[doc(hidden)]
pub use find::Taken;
pub use find::{StartWaitingPoint, TakePoint};
pub use hooks::{Batch, Hooks};

use crate::EngineError;
use crate::engine::deque::Deque;
use crate::engine::descriptor::{Arguments, Spec, Task};
use crate::engine::slot::{Occupant, Slot, Slots};
use crate::engine::status::{State, Status};
use crate::engine::supply::Supply;
use outlive::heap::LocalHeap;
use outlive::membership::Instance;
use outlive::memory::{Memory, Native};
use outlive::recovery::Recoverers;

outlive::memory::crash_points! {
    /// Crash points of a spawn.
    pub enum SpawnPoint for "tasks.spawn" {
        /// The descriptor is taken; its last life is over.
        Taken,
        /// The descriptor has a new life.
        Begun,
        /// The descriptor's contents are written.
        Described,
    }
}

/// A worker's handle on its slot.
///
/// ```
/// # use outlive::membership::{Generations, Instance, Level, Member, State, Status};
/// # use outlive::memory::{Memory, Native, Offset, PersistenceDomain};
/// # use outlive::recovery::{Logs, OwnLog};
/// # use outlive::heap::{self, Heap, LocalHeap};
/// # use outlive::sync;
/// # let memory = Native::leaked(1 << 21, PersistenceDomain::Flushed);
/// # let generations = Generations::new(memory, Offset::new(0), 4);
/// # let logs = Logs::new(memory, Offset::new(4096), 4);
/// # let live = State { generation: 1, host: 0, level: Some(Level::Thread), status: Status::Live };
/// # // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
/// # assert!(unsafe { generations.assume_state(0, State::FREE, live) });
/// # // SAFETY: this thread alone acts as 0.1, and no thread raises its generation.
/// # let member = unsafe { Member::assume(memory, generations, Instance::new(0, 1), logs.at(0), None) };
/// # OwnLog::open(&member).unwrap();
/// # let (state, region) = (Offset::new(1 << 17), Offset::new(1 << 20));
/// # let heap = Heap::create(memory, state, region, 1 << 20)?;
/// # let recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(logs)), heap);
/// # let local = LocalHeap::of(heap, &member, &recoverers);
/// # let (place, root) = (Offset::new(1 << 16), Offset::new(2048));
/// use outlive_tasks::{Engine, EngineError, Settings, Slots, Spec, Task};
///
/// let slots = Slots::create(memory, place, Settings::default())?;
/// let mut engine = Engine::claim(slots, &local, &recoverers, &mut ())?;
/// // A root, which no deque has; it spawns 31 tasks, by halves.
/// let root = Task::new(memory, root);
/// root.prepare_root(&local, &Spec::new(0, &[5]), outlive_tasks::State::Ready)?;
/// let mut next = engine.start(root)?;
/// let mut ran = 0;
/// while let Some(mut task) = next {
///     ran += 1;
///     let depth = task.task().arguments()?[0];
///     if depth > 1 {
///         engine.spawn(&mut task, &Spec::new(0, &[depth - 1]))?;
///         engine.spawn(&mut task, &Spec::new(0, &[depth - 1]))?;
///     }
///     engine.complete(&mut task, &mut ())?;
///     next = engine.next(&mut ())?;
/// }
/// assert_eq!(ran, 31);
/// engine.give_up()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Engine<'w, M: Memory = Native> {
    slots: Slots<M>,
    heap: &'w LocalHeap<'w, M>,
    recoverers: &'w Recoverers<M>,
    number: u32,
    slot: Slot<M>,
    deque: Deque<M>,
    supply: Supply<M>,
    /// The previous occupant, which the compare-and-swap that claimed the slot replaced.
    before: Option<Occupant>,
    /// The running slot contains the predecessor's task, which may be recorded nowhere else.
    inherited: bool,
    /// The task that the worker holds.
    held: Option<Task<M>>,
    /// The state of the random choice of victims.
    random: u64,
}

/// A task that the worker runs.
///
/// The worker must [complete](Engine::complete), [fail](Engine::fail) or [retry](Engine::retry) it.
/// If it is dropped instead, the worker holds the task until the worker leaves or dies.
#[derive(Debug)]
#[must_use = "a task that is neither completed nor failed is held until its worker leaves or dies"]
pub struct Running<M: Memory = Native> {
    task: Task<M>,
    status: Status,
    /// The child spawned last, or 0.
    children: u64,
    count: u64,
    spent: bool,
    /// The dead worker from which the task was taken over.
    dead: Option<Instance>,
}

impl<M: Memory> Running<M> {
    fn new(task: Task<M>, status: Status) -> Self {
        Self {
            task,
            status,
            children: 0,
            count: 0,
            spent: false,
            dead: None,
        }
    }

    /// Returns the dead worker from which the task was taken over, if any.
    #[inline]
    pub fn dead(&self) -> Option<Instance> {
        self.dead
    }

    /// Returns the task's descriptor.
    #[inline]
    pub fn task(&self) -> Task<M> {
        self.task
    }

    /// Returns the number of earlier attempts.
    #[inline]
    pub fn attempt(&self) -> u8 {
        self.status.attempt()
    }

    /// Returns the task's status while it runs.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Returns the number of the task's function.
    #[inline]
    pub fn function(&self) -> u32 {
        self.task.function()
    }

    /// Returns the word of the task's job.
    #[inline]
    pub fn job(&self) -> u64 {
        self.task.job()
    }

    /// Returns a copy of the task's arguments.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if the words that describe them are invalid.
    #[inline]
    pub fn arguments(&self) -> Result<Arguments, EngineError> {
        self.task.arguments()
    }

    /// Returns the number of children that this attempt has spawned.
    pub fn spawned(&self) -> u64 {
        self.count
    }

    /// Returns whether the task was completed or has failed, so that no further operation on it is
    /// possible. If that operation returned an error, [`Engine::next`] or a worker that takes over
    /// does the remaining work.
    pub fn is_spent(&self) -> bool {
        self.spent
    }
}

impl<M: Memory> Running<M> {
    /// Returns the word of the child spawned last, or 0.
    #[doc(hidden)]
    pub fn children(&self) -> u64 {
        self.children
    }
}

impl<'w, M: Memory> Engine<'w, M> {
    /// Returns the number of the worker's slot.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the worker's slot.
    pub fn slot(&self) -> Slot<M> {
        self.slot
    }

    /// Returns the previous occupant of the slot, if it died or left without giving up the slot.
    pub fn before(&self) -> Option<Occupant> {
        self.before
    }

    /// Returns the pool's slots.
    pub fn slots(&self) -> Slots<M> {
        self.slots
    }

    /// Returns the worker's heap handle.
    pub fn heap(&self) -> &'w LocalHeap<'w, M> {
        self.heap
    }

    /// Returns the approximate number of tasks in the worker's deque.
    pub fn queued(&self) -> u64 {
        self.deque.len()
    }

    /// Spawns a child of `parent`, which this worker runs. The child is private, and runs only when
    /// the parent is [completed](Self::complete). Lock-free; wait-free as long as there are free
    /// descriptors.
    ///
    /// # Errors
    /// If there is no memory for the child or its arguments, or they are too long. No child exists
    /// then.
    ///
    /// # Crash
    /// The child does not exist: the next attempt of the parent spawns its own.
    #[inline(always)]
    pub fn spawn(
        &mut self,
        parent: &mut Running<M>,
        spec: &Spec<'_>,
    ) -> Result<Task<M>, EngineError> {
        if parent.spent {
            return Err(self.busy(parent.task));
        }
        let memory = self.slots.memory();
        let task = self.supply.take(self.heap)?;
        memory.crash_point(SpawnPoint::Taken);
        let life = task.status()?.next_life(State::New);
        task.set_status(life);
        memory.crash_point(SpawnPoint::Begun);
        // A task that was given up still has its block of arguments.
        let described = task.free_block(self.heap);
        let described = described.and_then(|()| task.describe(self.heap, spec, self.number));
        if let Err(error) = described {
            task.set_status(life.with(State::Free));
            self.supply.put(task);
            return Err(error);
        }
        task.set_next(parent.children);
        memory.crash_point(SpawnPoint::Described);
        parent.children = task.offset().raw();
        parent.count += 1;
        Ok(task)
    }

    /// Frees the arrays that the worker's deque has outgrown. Call it at the end of a phase, when
    /// every steal that began in it has ended.
    ///
    /// # Errors
    /// If one cannot be freed.
    ///
    /// # Crash
    /// The next owner of the slot frees the remaining arrays.
    pub fn end_of_phase(&mut self) -> Result<(), EngineError> {
        self.deque.free_old(self.heap)
    }

    /// Returns whether a descriptor of the slot whose life is over was found with inputs since the
    /// last call.
    pub(crate) fn take_refused(&mut self) -> bool {
        self.supply.take_refused()
    }

    /// Gives up the slot in an orderly way. The remaining entries of its deque are stolen by other
    /// workers, or popped by the next owner.
    ///
    /// # Errors
    /// [`EngineError::Busy`] if the worker holds a task, which a survivor takes over later.
    ///
    /// # Crash
    /// The slot belongs to a dead owner, or has no owner.
    pub fn give_up(self) -> Result<(), EngineError> {
        if let Some(task) = self.held {
            return Err(self.busy(task));
        }
        if !self.inherited {
            self.slot.note(0);
        }
        self.slot.give_up();
        self.slots.memory().crash_point(ClaimPoint::GivenUp);
        Ok(())
    }

    #[cold]
    fn busy(&self, task: Task<M>) -> EngineError {
        let (slot, task) = (self.number, task.offset());
        EngineError::Busy { slot, task }
    }
}
