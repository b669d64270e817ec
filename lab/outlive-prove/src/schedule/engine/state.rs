//! The state of one execution: its memory, its threads, and the decisions so far.
//!
//! Its operations are in `switch` (which thread runs next), `death` and `points` (accesses).

use super::choices::Choices;
use super::model::Model;
use super::words::Words;
use crate::schedule::coverage::Coverage;
use crate::schedule::trace::Trace;
use std::collections::BTreeMap;

/// Bounds on the executions to explore.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) preemptions: u32,
    pub(crate) stale: u32,
    pub(crate) deaths: u32,
    pub(crate) steps: u32,
    /// Whether threads may die before every access, and not only where it makes a difference.
    pub(crate) everywhere: bool,
}

/// A thread's properties before it runs.
#[derive(Clone, Debug)]
pub(crate) struct ThreadPlan {
    pub(crate) name: String,
    pub(crate) host: usize,
    pub(crate) mortal: bool,
    pub(crate) after_death: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Until a death has been reported.
    Blocked,
    Ready,
    Waiting,
    Finished,
    Dead,
}

/// A value that a thread read since it last waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) word: usize,
    pub(super) stamp: u64,
    pub(super) value: u128,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) plan: ThreadPlan,
    pub(super) status: Status,
    /// Whether it acted since death was last on offer.
    pub(super) fresh: bool,
    /// Whether it was interrupted before an access that it will make when it continues.
    pub(super) at_point: bool,
    pub(super) seen: Vec<Seen>,
    /// The step at which it began to wait, for threads that wait without having read.
    pub(super) since: u32,
    /// Its next load of this word must find something newer.
    pub(super) force: Option<(usize, u64)>,
    pub(super) last_point: Option<(&'static str, usize)>,
}

/// What runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Thread(usize),
    Raise(usize),
    Die(usize),
    End,
    /// No thread can run, though this one waits.
    Stuck(usize),
}

/// Whether the running thread continues at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Go {
    On,
    Suspend,
    /// It is dead.
    Never,
}

/// The reason for which an execution failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) String);

/// The outcome of an execution.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) failed: Option<Failed>,
    /// By thread.
    pub(crate) died: Vec<bool>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) choices: Choices,
    pub(super) model: Model,
    pub(super) words: Words,
    pub(super) limits: Limits,
    pub(super) threads: Vec<Thread>,
    /// By host: whether its death is still to be reported to its hook.
    pub(super) raising: Vec<bool>,
    /// By host.
    pub(super) dead: Vec<bool>,
    pub(super) hooked: bool,
    /// The running thread; `None` in preparation, hooks and check, whose actor is `actor`.
    pub(super) running: Option<usize>,
    pub(super) actor: usize,
    pub(super) interrupted: Option<usize>,
    /// Whether the running thread was just chosen, and with it its next access that others see.
    pub(super) chosen: bool,
    pub(super) last: usize,
    pub(super) next: Option<Target>,
    pub(super) preemptions: u32,
    pub(super) stale: u32,
    pub(super) deaths: u32,
    pub(super) steps: u32,
    pub(super) patience: u32,
    pub(super) newest_only: bool,
    pub(super) failed: Option<Failed>,
    /// By byte: whether several threads touch its grain and one writes.
    pub(super) shared: Vec<bool>,
    pub(super) touched: BTreeMap<u64, (u32, u32)>,
    pub(super) grew: bool,
    pub(super) everything_shared: bool,
    pub(super) coverage: Coverage,
    pub(super) trace: Option<Trace>,
    pub(super) codes: Vec<u16>,
}

impl State {
    pub(super) fn new(
        plans: Vec<ThreadPlan>,
        size: u64,
        model: Model,
        limits: Limits,
        hooked: bool,
    ) -> Self {
        let hosts = plans.iter().map(|plan| plan.host + 1).max().unwrap_or(0);
        let thread = |plan| Thread {
            plan,
            status: Status::Ready,
            fresh: true,
            at_point: false,
            seen: Vec::new(),
            since: 0,
            force: None,
            last_point: None,
        };
        Self {
            choices: Choices::tree(),
            model,
            words: Words::new(size),
            limits,
            threads: plans.into_iter().map(thread).collect(),
            raising: vec![false; hosts],
            dead: vec![false; hosts],
            hooked,
            running: None,
            actor: 0,
            interrupted: None,
            chosen: false,
            last: 0,
            next: None,
            preemptions: 0,
            stale: 0,
            deaths: 0,
            steps: 0,
            patience: 0,
            newest_only: false,
            failed: None,
            shared: vec![false; size as usize],
            touched: BTreeMap::new(),
            grew: false,
            everything_shared: false,
            coverage: Coverage::default(),
            trace: None,
            codes: Vec::new(),
        }
    }

    pub(super) fn main(&self) -> usize {
        self.threads.len()
    }

    pub(super) fn memory_size(&self) -> u64 {
        self.words.size()
    }

    /// Resets the state for another execution.
    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.model.clear();
        for thread in &mut self.threads {
            thread.status = if thread.plan.after_death {
                Status::Blocked
            } else {
                Status::Ready
            };
            thread.fresh = true;
            thread.at_point = false;
            thread.seen.clear();
            thread.since = 0;
            thread.force = None;
            thread.last_point = None;
        }
        self.raising.fill(false);
        self.dead.fill(false);
        (self.running, self.interrupted, self.next) = (None, None, None);
        self.actor = self.main();
        (self.last, self.preemptions, self.stale, self.deaths) = (0, 0, 0, 0);
        (self.steps, self.patience, self.newest_only) = (0, 0, false);
        self.failed = None;
        self.touched.clear();
    }

    pub(super) fn ran(&self) -> Ran {
        let died = (self.threads.iter())
            .map(|t| self.dead[t.plan.host])
            .collect();
        Ran {
            failed: self.failed.clone(),
            died,
        }
    }

    pub(super) fn fail(&mut self, why: String) {
        self.failed.get_or_insert(Failed(why));
    }

    /// Ends the preparation, which happens before every thread.
    pub(super) fn start_threads(&mut self) {
        self.model.settle();
        for thread in 0..self.threads.len() {
            self.model.follow(self.main(), thread);
        }
    }

    /// Starts the check, which happens after everything.
    pub(super) fn start_check(&mut self) {
        self.running = None;
        self.actor = self.main();
        self.model.know_all(self.actor);
    }

    pub(super) fn set_running(&mut self, thread: usize) {
        self.running = Some(thread);
        self.actor = thread;
        self.last = thread;
        self.chosen = !std::mem::take(&mut self.threads[thread].at_point);
        // Others have run since: where the moment of a death matters, this is another.
        self.threads[thread].fresh |= self.model.deaths_are_timed();
    }

    /// Ends the running thread.
    pub(super) fn finish(&mut self) {
        let Some(current) = self.running.take() else {
            return;
        };
        self.note(|_| "ends".to_owned());
        self.threads[current].status = Status::Finished;
        self.interrupted = None;
    }

    pub(super) fn note(&mut self, line: impl FnOnce(u32) -> String) {
        // Rounds in which every thread polls in vain are all alike.
        if self.newest_only && self.patience > self.threads.len() as u32 {
            return;
        }
        let Some(trace) = &mut self.trace else { return };
        let name = match self.actor {
            actor if actor < self.threads.len() => self.threads[actor].plan.name.as_str(),
            actor if actor == self.threads.len() => "main",
            _ => "manager",
        };
        trace.push(name, line(self.steps));
    }
}
