//! Tasks that outlive the workers running them (MODC: Memory-Oriented Distributed Computing).
//!
//! A program's work is *tasks*: Rust functions with plain arguments, that may be run twice. They spawn tasks, write data under
//! names and read what others wrote, and create *jobs*, collections of tasks that follow one another. *Workers*, threads of
//! any processes of a pod, run them; they come, go and are killed at any time. Everything that there is to know stands in
//! the pod's memory: there is no server, no scheduler, nobody who must not die.
//!
//! * A task [takes effect](Context) wholly or not at all: what it spawned and wrote is seen when it is completed. A
//!   worker that dies in the middle leaves nothing visible, and another runs the task again.
//! * A task that [reads](Call::reads) what nobody has written yet waits for it, and holds no worker.
//! * A job is complete when its workers agree that it is; then the jobs begin that depend on it.
//! * A task that fails is tried again, then its job fails, and says why. So does a job that can never end. The pool goes
//!   on.
//!
//! ```
//! use outlive::membership::ProcessOptions;
//! use outlive::pod::{Pod, PodOptions};
//! use outlive::supervise::Stop;
//! use outlive_tasks::{Options, WorkerPool, task};
//!
//! task! {
//!     /// The sum of the numbers from `from` to before `to`, under a name, by halves.
//!     fn sum(context, from: u64, to: u64) {
//!         if to - from <= 1000 {
//!             return context.output_of(&format!("{from}..{to}"), &(from..to).sum::<u64>());
//!         }
//!         let middle = from.midpoint(to);
//!         let (one, two) = (format!("{from}..{middle}"), format!("{middle}..{to}"));
//!         context.spawn(sum(from, middle).writes(&one))?;
//!         context.spawn(sum(middle, to).writes(&two))?;
//!         // Runs when both are there. What this task was to write, that one does.
//!         context.spawn(add(from, to).reads(one).reads(two).writes(format!("{from}..{to}")))
//!     }
//!
//!     fn add(context, from: u64, to: u64) {
//!         let middle = from.midpoint(to);
//!         let one: u64 = context.input_of(&format!("{from}..{middle}"))?;
//!         let two: u64 = context.input_of(&format!("{middle}..{to}"))?;
//!         context.output_of(&format!("{from}..{to}"), &(one + two))
//!     }
//!
//!     fn total(context, to: u64) {
//!         context.spawn(sum(0, to).writes(format!("0..{to}")))?;
//!         context.spawn(tell(to).reads(format!("0..{to}")))
//!     }
//!
//!     fn tell(context, to: u64) {
//!         let total: u64 = context.input_of(&format!("0..{to}"))?;
//!         context.result_of(&total)
//!     }
//! }
//!
//! # let path = format!("/dev/shm/outlive-tasks-doc-{}", std::process::id());
//! # struct Gone(String);
//! # impl Drop for Gone {
//! #     fn drop(&mut self) {
//! #         let _ = Pod::destroy(&self.0);
//! #     }
//! # }
//! # let _gone = Gone(path.clone());
//! let pod = Pod::create(&path, PodOptions::new().size(32 << 20))?;
//! let process = pod.join(ProcessOptions::on_host(0))?;
//! let member = process.enter(None, "caller")?;
//! let heap = member.heap(&pod)?;
//! let pool = WorkerPool::create(&pod, &heap, "sums", Options::new())?;
//!
//! let stop = Stop::default();
//! std::thread::scope(|scope| {
//!     for _ in 0..3 {
//!         // So do threads of other processes, which open the pod and the pool.
//!         scope.spawn(|| {
//!             let member = process.enter(None, "worker").unwrap();
//!             let heap = member.heap(&pod).unwrap();
//!             pool.work(&heap, &stop).unwrap()
//!         });
//!     }
//!     let job = pool.submit(&heap, "the sum", total(100_000));
//!     let sum = job.map(|job| job.wait_for::<u64>(None));
//!     stop.stop();
//!     assert_eq!(sum??, Some(4_999_950_000));
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The rooms
//!
//! For programs: [`registry`] makes tasks of functions, [`Context`] is what they run in, [`mod@array`] is large data that they fill,
//! [`pool`] is the front door, [`Volunteer`] a process that comes to work, [`frontier`] suspects who is not heard of.
//!
//! The engine, from the ground up; each uses only those before it:
//!
//! * [`status`]: the word of a task that alone decides who runs it.
//! * [`descriptor`]: what a task is: function, arguments, job, children.
//! * [`slot`]: the vector of workers.
//! * [`deque`]: a worker's queue, from which others steal.
//! * [`supply`]: where descriptors come from.
//! * [`engine`]: what a worker does with them: spawn, find, run again, commit.
//!
//! And what makes jobs of tasks:
//!
//! * `layout`: where all of a pool stands.
//! * [`names`]: cells, which are bound once; who waits for them. `desk`: how those bring data who are no workers.
//! * `jobs`: records by name, from submission to their end; roots of open jobs.
//! * `judge`: the consensus of the workers that a job is complete, or stuck. `lookout`: who is idle looks for tasks that wait for nothing.
//! * `crew`: a worker's part in all that; `worker`: the loop around it, which runs functions.
//!
//! [`sweeps`] and [`scenarios`] prove the engine, [`proofs`] the rest; [`chaos`] kills workers of whole pools. The deque is explored by the scenarios, over a
//! memory that is weaker than x86's and in which threads die, on the very code that runs on native memory.
//!
//! A word is not written back before it is published: all this is for
//! [flushed](outlive::memory::PersistenceDomain::Flushed) memory, which is all that a pod can be created on today.

#[doc(hidden)]
pub use inventory;

pub mod array;
pub mod chaos;
mod context;
mod crashes;
mod crew;
pub mod deque;
pub mod descriptor;
mod desk;
pub mod engine;
mod error;
mod failure;
mod fixtures;
pub mod frontier;
mod jobs;
mod judge;
mod layout;
mod lookout;
pub mod names;
pub mod pool;
pub mod proofs;
pub mod registry;
pub mod scenarios;
mod setback;
pub mod slot;
pub mod status;
pub mod supply;
pub mod sweeps;
mod volunteer;
mod worker;

pub use array::{Array, Element};
pub use context::Context;
pub use descriptor::{Spec, Task};
pub use desk::PutPoint;
pub use engine::{Batch, Engine, Hooks, Running, StartWaitingPoint};
pub use error::EngineError;
pub use failure::PoolError;
pub use jobs::{EndPoint, JobState, OpenPoint, RemoveJobPoint, SubmitError, SubmitPoint};
pub use judge::JudgePoint;
pub use names::Data;
pub use pool::{
    Advice, Band, Deadlines, Job, JobError, Options, Overdue, PoolStatus, Trigger, Turn, WorkerPool,
};
pub use registry::{Call, Registry, TaskError, TaskResult};
pub use slot::{Settings, Slots};
pub use status::{State, Status};
pub use volunteer::{Volunteer, VolunteerError};
pub use worker::{Ended, Served};
