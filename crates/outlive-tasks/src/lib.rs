//! Tasks that outlive the workers running them (MODC: Memory-Oriented Distributed Computing).
//!
//! A program's work is *tasks*: Rust functions with plain arguments, which may run twice. A task
//! spawns tasks, writes data under names, reads data that other tasks wrote, and creates *jobs*:
//! collections of tasks that follow one another. *Workers*, which are threads of any processes of a
//! pod, run the tasks. They come, leave and are killed at any time. All state is in the pod's
//! memory: there is no server, no scheduler, and no process that must survive.
//!
//! * A task [takes effect](Context) completely or not at all: the tasks that it spawned and the
//!   data that it wrote become visible when it is completed. If a worker dies in a task, nothing of
//!   the attempt is visible, and another worker re-executes the task.
//! * A task that [reads](Call::reads) data that has not been written yet waits for it, and occupies
//!   no worker.
//! * A job is complete when its workers agree that it is. Then the jobs that depend on it begin.
//! * A task that fails is retried. After its last attempt its job fails, with the reason. A job
//!   that can never end fails, too. The pool continues.
//!
//! ```
#![doc = include_str!("../examples/sum.rs")]
//! ```
//!
//! # Layers
//!
//! From the bottom up. Each layer uses only those before it (`lab/outlive-tidy/tests/layers.rs`
//! checks this):
//!
//! * [`engine`]: descriptors of tasks, slots and deques of workers, and the operations of a worker
//!   on them: spawn, find, re-execute, commit.
//! * `store`: the other contents of the segment: names and their data, jobs, staging slots, deaths.
//! * [`registry`] makes tasks of functions, [`Context`] is the environment of a running task, and
//!   [`mod@array`] is large data that tasks fill.
//! * `pool`: a worker's role in a pool: the loop that runs functions, the decision that a job is
//!   complete, the detection of workers without a heartbeat ([`frontier`]), and the number of
//!   workers.
//! * the interface: [`WorkerPool`], [`Job`], [`Volunteer`].
//!
//! Proofs: lab/outlive-proofs/src/tasks. They kill workers after each instruction, explore the
//! deque and other algorithms on a memory model weaker than x86's, and kill workers of whole pools.
//! They execute the same code that runs on native memory.
//!
//! Words are not written back before they are published: the crate requires
//! [flushed](outlive::memory::PersistenceDomain::Flushed) memory, the only kind on which a pod can
//! be created today.

#[doc(hidden)]
pub use inventory;

pub mod engine;
mod functions;
mod interface;
#[allow(
    missing_docs,
    reason = "reached only through `internals`, except for the items that are named below"
)]
mod pool;
#[allow(
    missing_docs,
    reason = "reached only through `internals`, except for the items that are named below"
)]
mod store;

/// Items for the proofs. Programs must not use them: they change without notice.
#[doc(hidden)]
pub mod internals {
    pub use crate::pool::crew::*;
    pub use crate::pool::header::*;
    pub use crate::pool::judge::*;
    pub use crate::pool::load::*;
    pub use crate::pool::lookout::*;
    pub use crate::pool::turn::*;
    pub use crate::store::band::*;
    pub use crate::store::crashes::*;
    pub use crate::store::jobs::*;
    pub use crate::store::layout::*;
    pub use crate::store::names::*;
    pub use crate::store::staging::*;
    pub use crate::store::task_ports::*;
    pub use crate::store::trigger::*;
}

pub use engine::descriptor::{Spec, Task};
pub use engine::error::EngineError;
pub use engine::slot::{Settings, Slots};
pub use engine::status::{State, Status};
pub use engine::{Batch, Engine, Hooks, Running, StartWaitingPoint};
pub use functions::array::{Array, Element};
pub use functions::context::Context;
pub use functions::registry::{Call, Registry, TaskError, TaskResult};
pub use functions::{array, registry};
pub use interface::{
    Deadlines, Job, JobError, Options, Overdue, PoolStatus, Volunteer, VolunteerError, WorkerPool,
    WorkerStatus,
};
pub use pool::frontier;
pub use pool::judge::JudgePoint;
pub use pool::load::Advice;
pub use pool::turn::Turn;
pub use pool::worker::{Ended, Served};
pub use store::band::Band;
pub use store::failure::PoolError;
pub use store::jobs::{EndPoint, JobState, OpenPoint, RemoveJobPoint, SubmitError, SubmitPoint};
pub use store::names::Data;
pub use store::staging::PutPoint;
pub use store::trigger::Trigger;
