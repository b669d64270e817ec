//! What a driver has to know of a program: how it is put into a pod, how far it is, and what comes of it.

use super::{RunError, Turns};
use crate::crew::Crew;
use crate::header::{CalledOff, Header, ROOT, RunHeader};
use crate::host::HostError;
use crate::table::Blocks;
use outlive::heap::LocalHeap;
use outlive::membership::Process;
use outlive::memory::{Native, Offset};
use outlive::pod::Pod;
use outlive::supervise::Stop;
use outlive_tasks::{Band, Trigger};
use std::time::Duration;

/// A program, and what it works on.
pub trait Program: Sync {
    /// It, once it is in a pod.
    type Running: Running;

    /// How many bytes of a heap it needs if so many work.
    ///
    /// # Errors
    /// If that cannot be known: an input cannot be read.
    fn heap_bytes(&self, order: &Order) -> Result<u64, RunError>;

    /// How many bytes of a heap it needs, now that a segment was too small: what was estimated may be counted, which
    /// may take long, until `stop`. `None`, which is the default, if nothing better is known than
    /// [the estimate](Self::heap_bytes); it is then asked for, or for twice as much as there was.
    ///
    /// # Errors
    /// If that cannot be known: an input cannot be read.
    fn heap_bytes_counted(&self, order: &Order, stop: &Stop) -> Result<Option<u64>, RunError> {
        let _ = (order, stop);
        Ok(None)
    }

    /// Puts it into a pod: a block that begins with a [header](Header), published, which hosts are told of after
    /// this.
    ///
    /// # Errors
    /// If it has no room, or something is in the way.
    fn begin(&self, order: &Order, stage: &Stage<'_>) -> Result<Self::Running, RunError>;

    /// What a thread of the driver's does for it while hosts work: gives them work, and waits for its end. It returns
    /// soon when `over` says that no host works any more, or when the run is called off.
    ///
    /// # Errors
    /// If it ends without being done. Hosts have been told to end, then.
    fn attend(
        &self,
        running: &Self::Running,
        attendant: &Attendant<'_>,
        over: &Stop,
    ) -> Result<(), RunError> {
        let _ = (running, attendant, over);
        Ok(())
    }

    /// Why the run was called off, for people. Not asked of what can happen to any program: an interruption, a heap
    /// without room, a worker that failed and has said why.
    fn explain(&self, running: &Self::Running, why: CalledOff) -> RunError;

    /// What came of it, now that it is done: read from the pod, in which nobody works any more.
    ///
    /// # Errors
    /// If it cannot be read.
    fn result(
        &self,
        running: &Self::Running,
        pod: &Pod,
        heap: &LocalHeap<'_>,
    ) -> Result<<Self::Running as Running>::Result, HostError>;
}

/// The driver's thread that attends a run, and its place in the pod.
#[derive(Clone, Copy, Debug)]
pub struct Attendant<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The driver's process.
    pub process: &'a Process,
    /// The thread's heap handle.
    pub heap: &'a LocalHeap<'a>,
    /// The limit for one task, if there is one.
    pub deadline: Option<Deadline>,
}

/// For whom a program is begun.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Who works.
    pub crew: Crew,
    /// How many hosts are to be killed.
    pub kills: u32,
    /// Within what the number of workers changes, if it does.
    pub elastic: Option<Elastic>,
    /// How long a worker's heart may stand still, if that was said.
    pub freeze: Option<Duration>,
}

/// The time that a worker may take for one task, as measured by the driver
/// ([`Deadlines`](outlive_tasks::Deadlines)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The limit. A worker that exceeds it is reported.
    pub limit: Duration,
    /// Whether its host is fenced too, so that another worker re-executes the task.
    pub fences: bool,
}

/// How the number of workers follows what there is to do ([`Options::elastic`](outlive_tasks::Options::elastic)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elastic {
    /// How few there are.
    pub least: u32,
    /// How many.
    pub most: u32,
    /// When there are to be others.
    pub band: Band,
}

/// Where a program is begun: a pod, and the driver's thread in it.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'s> {
    /// The pod.
    pub pod: &'s Pod,
    /// The driver's way to the large blocks of the pod's heap.
    pub blocks: Blocks<'s, Native>,
    /// The driver's way to all blocks.
    pub heap: &'s LocalHeap<'s>,
    /// A word of the driver's own, for the block that begins with the header.
    pub cell: Offset,
}

impl Stage<'_> {
    /// Lets the header at `at` be found.
    ///
    /// # Errors
    /// If it has no room among the roots.
    pub fn publish(&self, at: Offset) -> Result<(), RunError> {
        let published = self.pod.roots().publish::<RunHeader>(ROOT, at);
        published
            .map(drop)
            .map_err(HostError::from)
            .map_err(RunError::from)
    }
}

/// A program in a pod, as the driver looks at it while others work.
pub trait Running: Copy + Send + Sync {
    /// What comes of it.
    type Result;

    /// What it begins with.
    fn header(&self) -> Header;

    /// Whether everything is done.
    fn is_done(&self) -> bool;

    /// How many units of work there are, or were if it is done.
    fn units(&self) -> u64 {
        self.header().units()
    }

    /// How far it is.
    fn stretch(&self) -> Stretch;

    /// How many units have been given out, about: kills at any moment are spread by this.
    fn drawn(&self) -> u64;

    /// How many units are done.
    fn done(&self) -> u64;

    /// The unit that worker `number` has begun and not committed. Asked while the worker is dead.
    fn attempting(&self, number: u32) -> Option<u64>;

    /// How many units worker `number` has begun, in all its lives: what tells a spare that works from one that stands by.
    fn begun(&self, number: u32) -> u64 {
        let _ = number;
        0
    }

    /// What is known of how worker `number` came last, if it stood by before. When it has [begun](Self::begun) a unit, that is how it
    /// came to it.
    fn came(&self, number: u32) -> Option<Came> {
        let _ = number;
        None
    }

    /// How many units were begun and not committed, in all, now that nobody works any more.
    fn redone(&self) -> u64;

    /// Which workers came and went, as far as that is known.
    fn turns(&self) -> Turns {
        Turns::default()
    }
}

/// How a worker came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// Why.
    pub why: Trigger,
    /// Which of the run's workers had died in the place that it took.
    pub after: Option<u32>,
    /// Whether it was sent away since: it stands by again.
    pub is_away: bool,
    /// How often it has come, in all its lives.
    pub times: u32,
}

/// How far a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// What it does now: one word.
    pub phase: &'static str,
    /// How many units of that are done, about.
    pub done: u64,
    /// Of how many.
    pub units: u64,
}
