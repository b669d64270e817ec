//! The subjects of runs: programs that compute, and traces of earlier executions.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::program::{
    Coroutine, Image, Origin, Recording, Synchronisation, Word, Workload, WrongResult,
};
use crate::trace::{Replay, Replayed, Trace, TraceError, TraceThread};

/// A program or trace to run. It can be run any number of times, on any machine with enough cores.
#[derive(Clone, Debug)]
pub struct Subject(Kind);

#[derive(Clone)]
enum Kind {
    Program(Box<Workload>),
    Trace(Box<Traced>),
}

/// A trace with its parameters. Threads that have not begun are cloned for each run.
#[derive(Clone)]
struct Traced {
    replayed: Replayed,
    check: Option<Check>,
}

type Check = Arc<dyn Fn(&dyn Fn(Word) -> u64) -> Result<(), String> + Send + Sync>;

/// Threads at their beginning.
pub(super) enum Threads {
    Program(Vec<Coroutine>),
    Trace(Vec<TraceThread>),
}

impl Subject {
    /// Creates a subject from a program, with its own check.
    pub fn program(workload: Workload) -> Self {
        Self(Kind::Program(Box::new(workload)))
    }

    /// Creates a subject that replays a trace. The whole trace is read once, to see whether it is
    /// intact. It has no check, since a trace does not contain the expected result.
    ///
    /// # Errors
    ///
    /// If any of it is damaged or cannot be read, or it contains nothing to replay.
    pub fn trace(trace: &Trace, replay: Replay) -> Result<Self, TraceError> {
        if trace.is_empty()? {
            let region_only = trace.about().region_only;
            return Err(TraceError::Empty { region_only });
        }
        Ok(Self(Kind::Trace(Box::new(Traced {
            replayed: trace.replayed(replay)?,
            check: None,
        }))))
    }

    /// Creates a subject from the trace in a file; see [`trace`](Self::trace).
    ///
    /// # Errors
    ///
    /// If it cannot be opened or read, is not a trace, is damaged, or contains nothing to replay.
    pub fn trace_file(path: &Path, replay: Replay) -> Result<Self, TraceError> {
        Self::trace(&Trace::open(path)?, replay)
    }

    /// Adds a check of the result of a trace in memory, which returns a description of an error. A
    /// program keeps its own check.
    #[must_use]
    pub fn with_check(
        mut self,
        check: impl Fn(&dyn Fn(Word) -> u64) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        if let Kind::Trace(traced) = &mut self.0 {
            traced.check = Some(Arc::new(check));
        }
        self
    }

    /// Returns the number of its threads.
    pub fn thread_count(&self) -> usize {
        match &self.0 {
            Kind::Program(workload) => workload.thread_count(),
            Kind::Trace(traced) => traced.replayed.threads.len(),
        }
    }

    /// Returns the initial contents of memory.
    pub fn image(&self) -> &Image {
        match &self.0 {
            Kind::Program(workload) => workload.image(),
            Kind::Trace(traced) => &traced.replayed.image,
        }
    }

    /// Returns the program that a workload stands for, and its published figures.
    pub fn origin(&self) -> Option<Origin> {
        match &self.0 {
            Kind::Program(workload) => Some(workload.origin()),
            Kind::Trace(_) => None,
        }
    }

    /// Returns the number of lines of shared memory.
    pub(super) fn lines(&self) -> u64 {
        self.image().words.div_ceil(Word::PER_LINE)
    }

    pub(super) fn synchronisation(&self) -> &Synchronisation {
        match &self.0 {
            Kind::Program(workload) => workload.synchronisation(),
            Kind::Trace(traced) => &traced.replayed.synchronisation,
        }
    }

    pub(super) fn threads(&self) -> Threads {
        match &self.0 {
            Kind::Program(workload) => Threads::Program(workload.threads(Recording::Off)),
            Kind::Trace(traced) => Threads::Trace(traced.replayed.threads.clone()),
        }
    }

    /// Returns whether `memory` holds the expected result; `false` if there is no check.
    pub(super) fn check(&self, memory: &dyn Fn(Word) -> u64) -> Result<bool, WrongResult> {
        match &self.0 {
            Kind::Program(workload) => workload.check(memory).map(|()| true),
            Kind::Trace(traced) => match &traced.check {
                None => Ok(false),
                Some(check) => check(memory).map(|()| true).map_err(|what| WrongResult {
                    workload: "the trace",
                    what,
                }),
            },
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(workload) => workload.fmt(f),
            Self::Trace(traced) => f
                .debug_struct("Trace")
                .field("threads", &traced.replayed.threads.len())
                .field("words", &traced.replayed.image.words)
                .finish_non_exhaustive(),
        }
    }
}
