//! The interface between a driver and a program: how the program is put into a pod, its progress,
//! and its result.

use super::{RunError, Turns};
use crate::blocks::Blocks;
use crate::crew::Crew;
use crate::header::{CalledOff, Header, ROOT, RunHeader};
use crate::host::HostError;
use outlive::heap::LocalHeap;
use outlive::membership::Process;
use outlive::memory::{Native, Offset};
use outlive::pod::Pod;
use outlive::supervise::Stop;
use outlive_tasks::{Band, Trigger};
use std::time::Duration;

/// A program with its input.
pub trait Program: Sync {
    /// The program once it is in a pod.
    type Running: Running;

    /// Returns the number of bytes of heap that the program needs for the workers of `order`.
    ///
    /// # Errors
    /// If an input cannot be read, on which the number depends.
    fn heap_bytes(&self, order: &Order) -> Result<u64, RunError>;

    /// Returns the number of bytes of heap that the program needs, after a segment was too small.
    /// The program may now count quantities that it estimated before. The count may take long, and
    /// ends early at `stop`. `None`, the default, means that [the estimate](Self::heap_bytes) is
    /// the best number available. The driver then requests that number, or twice the former size.
    ///
    /// # Errors
    /// If an input cannot be read, on which the number depends.
    fn heap_bytes_counted(&self, order: &Order, stop: &Stop) -> Result<Option<u64>, RunError> {
        let _ = (order, stop);
        Ok(None)
    }

    /// Puts the program into a pod, in a block that begins with a [header](Header), and publishes
    /// the block. Hosts are started after this call.
    ///
    /// # Errors
    /// If the program does not fit, or a root of its name already exists.
    fn begin(&self, order: &Order, stage: &Stage<'_>) -> Result<Self::Running, RunError>;

    /// Does the driver's part of the work on a thread of its own while hosts work: gives them work,
    /// and waits for its end. Returns soon when `over` says that no host works any more, or when
    /// the run is cancelled.
    ///
    /// # Errors
    /// If the work ends before it is complete. The hosts have been notified to end by then.
    fn attend(
        &self,
        running: &Self::Running,
        attendant: &Attendant<'_>,
        over: &Stop,
    ) -> Result<(), RunError> {
        let _ = (running, attendant, over);
        Ok(())
    }

    /// Returns the error that explains why the run was cancelled. Reasons common to all programs
    /// do not come here: an interruption, a full heap, a worker that failed and has reported why.
    fn explain(&self, running: &Self::Running, why: CalledOff) -> RunError;

    /// Reads the result of a finished run from the pod, in which no host works any more.
    ///
    /// # Errors
    /// If the result cannot be read.
    fn result(
        &self,
        running: &Self::Running,
        pod: &Pod,
        heap: &LocalHeap<'_>,
    ) -> Result<<Self::Running as Running>::Result, HostError>;
}

/// The driver's thread that does the driver's part of a run, and its handles on the pod.
#[derive(Clone, Copy, Debug)]
pub struct Attendant<'a> {
    /// The pod of the run.
    pub pod: &'a Pod,
    /// The driver's process.
    pub process: &'a Process,
    /// The thread's heap handle.
    pub heap: &'a LocalHeap<'a>,
    /// The limit for one task, if there is one.
    pub deadline: Option<Deadline>,
}

/// The requirements of a run, which a program receives when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The hosts and workers of the run.
    pub crew: Crew,
    /// The number of hosts to be killed.
    pub kills: u32,
    /// The limits for the number of workers, if it may change.
    pub elastic: Option<Elastic>,
    /// The time for which a worker's heartbeat may stand still, if the user has set it.
    pub freeze: Option<Duration>,
}

/// The time that a worker may take for one task, as measured by the driver
/// ([`Deadlines`](outlive_tasks::Deadlines)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The limit. A worker that exceeds it is reported.
    pub limit: Duration,
    /// Whether the worker's host is fenced too, so that another worker re-executes the task.
    pub fences: bool,
}

/// The limits within which the number of workers follows the number of ready tasks
/// ([`Options::elastic`](outlive_tasks::Options::elastic)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elastic {
    /// The minimum number of workers.
    pub least: u32,
    /// The maximum number of workers.
    pub most: u32,
    /// The range of ready tasks for each worker outside which the pool is resized.
    pub band: Band,
}

/// The context in which a program begins: a pod, and the driver's thread in it.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'s> {
    /// The pod of the run.
    pub pod: &'s Pod,
    /// The driver's access to the large blocks of the pod's heap.
    pub blocks: Blocks<'s, Native>,
    /// The driver's heap handle.
    pub heap: &'s LocalHeap<'s>,
    /// A word owned by the driver, for the block that begins with the header.
    pub cell: Offset,
}

impl Stage<'_> {
    /// Publishes the header at `at` as a root.
    ///
    /// # Errors
    /// If the table of roots is full.
    pub fn publish(&self, at: Offset) -> Result<(), RunError> {
        let published = self.pod.roots().publish::<RunHeader>(ROOT, at);
        published
            .map(drop)
            .map_err(HostError::from)
            .map_err(RunError::from)
    }
}

/// A program in a pod, as the driver sees it while hosts work.
pub trait Running: Copy + Send + Sync {
    /// The result of the program.
    type Result;

    /// Returns the header of the run.
    fn header(&self) -> Header;

    /// Returns whether everything is done.
    fn is_done(&self) -> bool;

    /// Returns the number of units of work; once the run is done, the actual number.
    fn units(&self) -> u64 {
        self.header().units()
    }

    /// Returns the current phase and its progress.
    fn stretch(&self) -> Stretch;

    /// Returns the approximate number of units that workers have begun. Kills at random are spread
    /// over the range of this number.
    fn drawn(&self) -> u64;

    /// Returns the number of units that are done.
    fn done(&self) -> u64;

    /// Returns the unit that worker `number` has begun and not committed. Called while it is dead.
    fn attempting(&self, number: u32) -> Option<u64>;

    /// Returns the number of units that worker `number` has begun in all its incarnations. By it, a
    /// spare that works is distinguished from one that is on standby.
    fn begun(&self, number: u32) -> u64 {
        let _ = number;
        0
    }

    /// Returns the reason and the circumstances of the last start of worker `number`, if they are
    /// known and the worker was on standby before. After the worker has [begun](Self::begun) a
    /// unit, they are those of the start that led to this unit.
    fn came(&self, number: u32) -> Option<Came> {
        let _ = number;
        None
    }

    /// Returns the total number of units that were begun and not committed, after the run.
    fn redone(&self) -> u64;

    /// Returns the numbers of workers that started and stopped working, as far as they are known.
    fn turns(&self) -> Turns {
        Turns::default()
    }
}

/// The reason and the circumstances of a worker's last start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// The reason for which the worker started.
    pub why: Trigger,
    /// The number of the dead worker whose slot the worker took, if any.
    pub after: Option<u32>,
    /// Whether the worker has become surplus since then, and is on standby again.
    pub is_away: bool,
    /// The number of times that the worker has started to work, in all its incarnations.
    pub times: u32,
}

/// A phase of a program, and its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The name of the phase: one word.
    pub phase: &'static str,
    /// The approximate number of units of the phase that are done.
    pub done: u64,
    /// The number of all units of the phase.
    pub units: u64,
}
