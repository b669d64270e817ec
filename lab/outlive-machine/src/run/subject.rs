//! What can be run: programs that compute, and traces of programs that have.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::program::{
    Coroutine, Image, Origin, Recording, Synchronisation, Word, Workload, WrongResult,
};
use crate::trace::{Replay, Replayed, Trace, TraceError, TraceThread};

/// What is to be run. It can be run as often as wanted, on any machine with cores enough.
#[derive(Clone, Debug)]
pub struct Subject(Kind);

#[derive(Clone)]
enum Kind {
    Program(Box<Workload>),
    Trace(Box<Traced>),
}

/// A trace with what it is run with. Threads that have not begun are cloned for each run.
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
    /// A program, with its own check.
    pub fn program(workload: Workload) -> Self {
        Self(Kind::Program(Box::new(workload)))
    }

    /// A trace that is done again. All of it is read once, to see whether it is whole. It has no check, since a trace does not
    /// say what must come out.
    ///
    /// # Errors
    ///
    /// If anything in it is damaged or cannot be read, or there is nothing in it to be done.
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

    /// The trace in a file; see [`trace`](Self::trace).
    ///
    /// # Errors
    ///
    /// If it cannot be opened or read, is not a trace, is damaged, or there is nothing in it to be done.
    pub fn trace_file(path: &Path, replay: Replay) -> Result<Self, TraceError> {
        Self::trace(&Trace::open(path)?, replay)
    }

    /// The same, with a check of what a trace must leave in memory: it says what is wrong. A program keeps its own.
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

    /// How many threads it has.
    pub fn thread_count(&self) -> usize {
        match &self.0 {
            Kind::Program(workload) => workload.thread_count(),
            Kind::Trace(traced) => traced.replayed.threads.len(),
        }
    }

    /// What memory holds at the beginning.
    pub fn image(&self) -> &Image {
        match &self.0 {
            Kind::Program(workload) => workload.image(),
            Kind::Trace(traced) => &traced.replayed.image,
        }
    }

    /// What a program stands for, and what is published of it.
    pub fn origin(&self) -> Option<Origin> {
        match &self.0 {
            Kind::Program(workload) => Some(workload.origin()),
            Kind::Trace(_) => None,
        }
    }

    /// Lines of shared memory.
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

    /// Whether `memory` holds what must have come out; `false` if nobody can say.
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
