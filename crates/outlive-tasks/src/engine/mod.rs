//! What a worker does with tasks: spawn, find, run again, commit (MODC §4).
//!
//! An [`Engine`] is a worker's hand on its [slot](crate::slot). It runs nothing itself: it hands out tasks, and is told what
//! came of them.
//!
//! ```text
//!  loop:   next      own deque, others' deques, running slots of the dead        READY -> RUNNING
//!          …         the caller runs it; spawn makes children                    NEW, known to the worker alone
//!          complete  nothing to publish                                          RUNNING -> DONE
//!                    else: chain the children, then                              RUNNING -> COMMITTING
//!                          publish outputs and children, in steps that can be repeated, then       -> DONE
//! ```
//!
//! # Exactly once
//!
//! A task may be begun several times: after a death, or on request. What it did counts by one store, from
//! [`Running`](State::Running) to [`Done`](State::Done) or to [`Committing`](State::Committing), and that is made once:
//! by the only holder of the task. Until then its outputs are its own and its children are chained nowhere but in the
//! holder's memory; so an attempt that died has spawned nothing. From then on all that remains is said by the descriptor,
//! and whoever takes over goes on: to make a child ready and to push it again, if it is not beyond that, is harmless, for
//! a second entry leads to a task that somebody has.
//!
//! # Who may take over
//!
//! A task that is held, by a slot whose owner is gone, or that has none. The slot's owner is read *after* the status: the
//! slot may have a new owner, who took the task over himself, or has another one. If the owner read is gone, so are all
//! before, the task's holder among them, for that one had claimed the slot before it wrote the status. What it has left in
//! its log is settled then; and the compare-and-swap replaces that very tenure (see [`status`](crate::status)).
//!
//! A new owner of a slot first looks at what its predecessor was about: it is in the slot's `running`, which is about to
//! be used for other tasks. While somebody else who lives commits that task, the slot cannot be had: see
//! [`slot`](crate::slot).
//!
//! # What a task costs
//!
//! Without deaths, without outputs and with at most 64 bytes of arguments: stores to the descriptor, an entry, the note
//! in the running slot, three statuses; one fence (pop) and one compare-and-swap. No system call and no heap, unless the
//! deque grows or more descriptors are needed than ever before.
//!
//! What dies with whom at which point: the tables in [`slot`](crate::slot), [`deque`](crate::deque) and
//! [`supply`](crate::supply), and the crash points here.

mod claim;
mod commit;
mod find;
mod hooks;

pub use claim::ClaimPoint;
pub use commit::{CommitPoint, FailPoint, PostponePoint};
pub use find::{StartWaitingPoint, TakePoint};
pub use hooks::{Batch, Hooks};

use crate::EngineError;
use crate::deque::Deque;
use crate::descriptor::{Arguments, Spec, Task};
use crate::slot::{Occupant, Slot, Slots};
use crate::status::{State, Status};
use crate::supply::Supply;
use outlive::heap::LocalHeap;
use outlive::membership::Instance;
use outlive::memory::{Memory, Native};
use outlive::recovery::Recoverers;

outlive::memory::crash_points! {
    /// Where a spawn may be cut short.
    pub enum SpawnPoint for "tasks.spawn" {
        /// The descriptor is taken; its last life is over.
        Taken,
        /// It has a new life.
        Begun,
        /// It is described.
        Described,
    }
}

/// A worker's hand on its slot.
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
/// # // SAFETY: this thread alone acts as 0.1, and nobody raises its generation.
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
    /// Who died where it works: what the step that claimed the slot put it in the place of.
    before: Option<Occupant>,
    /// The predecessor's task is in the running slot, and may be nowhere else.
    inherited: bool,
    /// The task that is held.
    held: Option<Task<M>>,
    /// Where to steal next.
    random: u64,
}

/// A task that the worker runs.
///
/// It is to be [completed](Engine::complete), [failed](Engine::fail) or [run again](Engine::retry). Should it be dropped,
/// the worker is in the middle of it until it is gone.
#[derive(Debug)]
#[must_use = "a task that is neither completed nor failed is held until its worker is gone"]
pub struct Running<M: Memory = Native> {
    task: Task<M>,
    status: Status,
    /// The child spawned last, or 0.
    children: u64,
    count: u64,
    spent: bool,
    /// The worker that died in it, from which it was taken over.
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

    /// The worker that died in it, if it was taken over from one.
    #[inline]
    pub fn dead(&self) -> Option<Instance> {
        self.dead
    }

    /// Which task.
    #[inline]
    pub fn task(&self) -> Task<M> {
        self.task
    }

    /// How often it was begun before.
    #[inline]
    pub fn attempt(&self) -> u8 {
        self.status.attempt()
    }

    /// Its status while it runs.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The number of its function.
    #[inline]
    pub fn function(&self) -> u32 {
        self.task.function()
    }

    /// Its job.
    #[inline]
    pub fn job(&self) -> u64 {
        self.task.job()
    }

    /// Its arguments.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if its words cannot be.
    #[inline]
    pub fn arguments(&self) -> Result<Arguments, EngineError> {
        self.task.arguments()
    }

    /// How many children this attempt has spawned.
    pub fn spawned(&self) -> u64 {
        self.count
    }

    /// Whether it has been completed, or has failed: nothing can be done with it any more. If that returned an error
    /// nevertheless, what remains is done by [`Engine::next`], or by whoever takes over from a dead worker.
    pub fn is_spent(&self) -> bool {
        self.spent
    }
}

impl<'w, M: Memory> Engine<'w, M> {
    /// The number of its slot.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its slot.
    pub fn slot(&self) -> Slot<M> {
        self.slot
    }

    /// Who worked there before, if he died there or went without giving the slot up.
    pub fn before(&self) -> Option<Occupant> {
        self.before
    }

    /// All slots.
    pub fn slots(&self) -> Slots<M> {
        self.slots
    }

    /// The worker's way to the heap.
    pub fn heap(&self) -> &'w LocalHeap<'w, M> {
        self.heap
    }

    /// How many tasks its deque has, about.
    pub fn queued(&self) -> u64 {
        self.deque.len()
    }

    /// Makes a child of `parent`, which runs. It is known to nobody, and is run if and when the parent is
    /// [completed](Self::complete). Lock-free; wait-free as long as there are free descriptors.
    ///
    /// # Errors
    /// If there is no room for the child or its arguments, or they are too long. The parent has no such child then.
    ///
    /// # Crash
    /// There is no child: whoever runs the parent again spawns its own.
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
        // A task that was given up has kept its block.
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

    /// Frees the arrays that the worker's deque has grown out of: at the end of a phase, when every steal that began in it
    /// has ended.
    ///
    /// # Errors
    /// If one cannot be freed.
    ///
    /// # Crash
    /// The next owner of the slot frees what is left.
    pub fn end_of_phase(&mut self) -> Result<(), EngineError> {
        self.deque.free_old(self.heap)
    }

    /// Whether a descriptor of the slot whose life is over had inputs still since this was asked last.
    pub(crate) fn take_refused(&mut self) -> bool {
        self.supply.take_refused()
    }

    /// Gives up the slot, in good order. What its deque has is stolen by others, or had by the next owner.
    ///
    /// # Errors
    /// [`EngineError::Busy`] if it holds a task: that is the survivors' once the member is gone.
    ///
    /// # Crash
    /// The slot is a dead one's, or nobody's.
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
