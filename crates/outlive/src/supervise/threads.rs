//! The control thread: runs bodies on threads of their own, and restarts them.

use super::report::{OnReport, log};
use super::{Failure, GaveUp, Outlook, Report, RestartPolicy, Restarts, Stop, Verdict, What};
use crate::membership::{Instance, InstanceId, JoinError, Level, Member, Process, Status};
use core::any::Any;
use core::fmt;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// The interval at which the supervisor checks its threads without an event.
const LOOK: Duration = Duration::from_millis(20);
/// The interval at which it checks whether a due thread can be started.
const PENDING: Duration = Duration::from_millis(1);

/// The result of a supervised thread's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The thread's work is done; it is not started again.
    Finished,
    /// The thread could not continue, and is started again.
    Failed,
}

/// One run of a supervised thread's closure.
#[derive(Clone, Debug)]
pub struct Attempt {
    number: u32,
    stop: Stop,
}

impl Attempt {
    /// Returns how often this supervisor had started the thread before: 0 on the first run.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether the supervisor has been asked to end. A body that runs forever polls this
    /// from time to time and returns.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_stopped()
    }
}

type Body = Arc<dyn Fn(&Member, Attempt) -> Outcome + Send + Sync>;

/// The supervisor of a process's threads (LUPIN §3.4: the control thread).
///
/// Each body runs on a thread of its own, a member of the pod under an id that stays the same. A
/// thread that panics, dies, or returns without being finished is started again under its id, as
/// the next generation, as its policy allows.
///
/// A panic is not a death. The body's values are dropped while the panic unwinds, so that guards
/// repair and release what they guard; then the thread leaves the pod in good order. (With
/// `panic = "abort"` a panic is the death of the process, and is left to a
/// [`ProcessSupervisor`](super::ProcessSupervisor).) A thread that the kernel ended alone is
/// reported by its obituary, and restarted once its state has been recovered.
///
/// ```no_run
/// use outlive::membership::ProcessOptions;
/// use outlive::pod::Pod;
/// use outlive::supervise::{Outcome, ThreadSupervisor};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let process = Pod::open("/dev/shm/shop")?.join(ProcessOptions::on_host(2).id(10))?;
/// let mut supervisor = ThreadSupervisor::new(process)
///     .thread(20, "orders", |member, attempt| {
///         println!("{} on attempt {}", member.instance(), attempt.number());
///         Outcome::Finished
///     });
/// supervisor.run();
/// # Ok(())
/// # }
/// ```
pub struct ThreadSupervisor {
    process: Process,
    policy: RestartPolicy,
    on_report: Option<OnReport>,
    threads: Vec<Supervised>,
    stop: Stop,
    began: Instant,
}

struct Supervised {
    id: InstanceId,
    name: String,
    body: Body,
    restarts: Restarts,
    phase: Phase,
    attempts: u32,
}

enum Phase {
    /// To be started at this time.
    Absent {
        from: Duration,
    },
    /// Its thread has been started.
    Started {
        progress: Arc<Mutex<Progress>>,
        thread: JoinHandle<()>,
    },
    Finished,
    GivenUp,
}

/// The progress that a supervised thread reports.
enum Progress {
    Joining,
    Joined(Instance),
    /// Reported before the member leaves.
    Ended(Result<(), Ended>),
}

/// An unsuccessful end.
enum Ended {
    Unfinished,
    Panicked(String),
    NotJoined(JoinError),
    /// It panicked while it joined.
    Silently,
}

impl ThreadSupervisor {
    /// Creates a supervisor of threads of `process`.
    pub fn new(process: Process) -> Self {
        Self {
            process,
            policy: RestartPolicy::default(),
            on_report: None,
            threads: Vec::new(),
            stop: Stop::default(),
            began: Instant::now(),
        }
    }

    /// Sets the policy of the threads that are added after this call.
    pub fn policy(mut self, policy: RestartPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Adds a thread that runs `body` as the member `id`. `name` is only shown: it names the thread
    /// and its record.
    ///
    /// # Panics
    /// If there already is one with this id.
    pub fn thread(
        mut self,
        id: InstanceId,
        name: impl Into<String>,
        body: impl Fn(&Member, Attempt) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        assert!(
            self.threads.iter().all(|known| known.id != id),
            "two threads with the id {id}"
        );
        self.threads.push(Supervised {
            id,
            name: name.into(),
            body: Arc::new(body),
            restarts: Restarts::new(self.policy),
            phase: Phase::Absent {
                from: Duration::ZERO,
            },
            attempts: 0,
        });
        self
    }

    /// Sets the receiver of the reports, on the supervisor's thread. They go to `tracing` as well.
    pub fn on_report(mut self, receiver: impl FnMut(&Report) + Send + 'static) -> Self {
        self.on_report = Some(Box::new(receiver));
        self
    }

    /// Returns a handle that stops this supervisor. A stopped supervisor starts no thread any more,
    /// and [`Attempt::is_stopping`] returns true.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Supervises with the calling thread until every thread is finished or given up, or the
    /// supervisor was stopped and every body has returned. Returns the outlook of each thread.
    pub fn run(&mut self) -> Vec<(InstanceId, Outlook)> {
        // Subscribed before the first look, so that every change after a look wakes us.
        let mut events = self.process.events();
        loop {
            self.look();
            let runs = |thread: &Supervised| matches!(thread.phase, Phase::Started { .. });
            let waits = |thread: &Supervised| {
                matches!(thread.phase, Phase::Absent { .. }) && !self.stop.is_stopped()
            };
            if !self
                .threads
                .iter()
                .any(|thread| runs(thread) || waits(thread))
            {
                break;
            }
            if events.wait_for(self.nap()).is_some() {
                // The tables say what happened; an event only says that something did.
                while events.poll().is_some() {}
            }
        }
        self.threads
            .iter()
            .map(|thread| {
                let outlook = match thread.phase {
                    Phase::Finished => Outlook::Finished,
                    Phase::GivenUp => Outlook::GaveUp,
                    _ => Outlook::Unsettled,
                };
                (thread.id, outlook)
            })
            .collect()
    }

    /// Returns how long to sleep without an event.
    fn nap(&self) -> Duration {
        let now = self.began.elapsed();
        self.threads
            .iter()
            .filter_map(|thread| match thread.phase {
                Phase::Absent { from } => Some(from.saturating_sub(now)),
                _ => None,
            })
            // A thread that is due and not started waits for a recovery, whose end is not reported.
            .map(|nap| if nap.is_zero() { PENDING } else { nap })
            .min()
            .map_or(LOOK, |nap| nap.min(LOOK))
    }

    fn look(&mut self) {
        for i in 0..self.threads.len() {
            let now = self.began.elapsed();
            if let Some(what) = self.check_thread(i, now) {
                self.report(i, what);
            }
            let due = matches!(self.threads[i].phase, Phase::Absent { from } if from <= now);
            if due && !self.stop.is_stopped() && self.is_recovered(i) {
                let what = self.start(i, now);
                self.report(i, what);
            }
        }
    }

    /// Returns whether nothing of the last incarnation is left to be recovered.
    fn is_recovered(&self, i: usize) -> bool {
        let (id, tables) = (self.threads[i].id, self.process.tables());
        // An id that cannot be looked up is refused by joining, with the reason.
        id >= tables.extent().ids
            || tables
                .generations()
                .state(id)
                .map_or(true, |state| state.status != Status::Dead)
    }

    /// Checks whether thread `i` has ended, and how.
    fn check_thread(&mut self, i: usize, now: Duration) -> Option<What> {
        let generations = self.process.tables().generations();
        let thread = &mut self.threads[i];
        let Phase::Started {
            progress,
            thread: of,
        } = &thread.phase
        else {
            return None;
        };
        // Before its report is read: a thread that has ended reports nothing more.
        let silent = of.is_finished();
        let end = match &mut *lock(progress) {
            Progress::Ended(end) => Some(core::mem::replace(end, Ok(()))),
            Progress::Joining if silent => Some(Err(Ended::Silently)),
            Progress::Joining => return None,
            // No other thread joins under the id in between, so a raised generation is its death.
            Progress::Joined(instance) if generations.is_dead(*instance) => None,
            Progress::Joined(_) => return None,
        };
        let before = core::mem::replace(&mut thread.phase, Phase::GivenUp);
        if end.is_some()
            && let Phase::Started { thread, .. } = before
        {
            // It is past its body and leaves; the id is free when it has ended. The handle of a
            // thread that the kernel ended is only dropped: it can no longer be joined.
            let _ = thread.join();
        }
        let how = match end {
            None => Failure::Died { status: None },
            Some(Ok(())) => {
                thread.phase = Phase::Finished;
                return Some(What::Finished);
            }
            Some(Err(Ended::Unfinished)) => Failure::Unfinished,
            Some(Err(Ended::Panicked(message))) => Failure::Panicked { message },
            Some(Err(Ended::Silently)) => Failure::NotStarted {
                why: "its thread ended before it had joined".into(),
            },
            Some(Err(Ended::NotJoined(error))) => {
                let how = Failure::NotStarted {
                    why: error.to_string(),
                };
                if is_hopeless(&error) {
                    let why = GaveUp::Hopeless;
                    return Some(What::GaveUp { how, why });
                }
                how
            }
        };
        Some(thread.failed(now, how))
    }

    fn start(&mut self, i: usize, now: Duration) -> What {
        let host = self.process.host().id;
        let thread = &mut self.threads[i];
        let attempt = Attempt {
            number: thread.attempts,
            stop: self.stop.clone(),
        };
        let progress = Arc::new(Mutex::new(Progress::Joining));
        let (process, body) = (self.process.clone(), Arc::clone(&thread.body));
        let (id, name, says) = (thread.id, thread.name.clone(), Arc::clone(&progress));
        let spawned = std::thread::Builder::new()
            .name(thread.name.clone())
            .spawn(move || run_once(&process, id, &name, &*body, attempt, &says));
        match spawned {
            Ok(handle) => {
                thread.phase = Phase::Started {
                    progress,
                    thread: handle,
                };
                thread.attempts += 1;
                What::Started {
                    attempt: thread.attempts - 1,
                    host,
                }
            }
            Err(error) => {
                let why = error.to_string();
                thread.failed(now, Failure::NotStarted { why })
            }
        }
    }

    fn report(&mut self, i: usize, what: What) {
        let report = Report {
            id: self.threads[i].id,
            level: Level::Thread,
            what,
        };
        log(&report);
        if let Some(receiver) = &mut self.on_report {
            receiver(&report);
        }
    }
}

impl Supervised {
    fn failed(&mut self, now: Duration, how: Failure) -> What {
        match self.restarts.failed(now) {
            Verdict::RestartAt(from) => {
                self.phase = Phase::Absent { from };
                let wait = from.saturating_sub(now);
                What::Failed { how, wait }
            }
            Verdict::GiveUp { restarts } => {
                self.phase = Phase::GivenUp;
                let why = GaveUp::Limit { restarts };
                What::GaveUp { how, why }
            }
        }
    }
}

/// Runs a body once, on its own thread.
///
/// The end is reported while the thread is still a member: the event of its leaving, which wakes
/// the supervisor, then comes after the state that the supervisor checks.
fn run_once(
    process: &Process,
    id: InstanceId,
    name: &str,
    body: &(dyn Fn(&Member, Attempt) -> Outcome + Send + Sync),
    attempt: Attempt,
    says: &Mutex<Progress>,
) {
    let member = match process.enter(Some(id), name) {
        Ok(member) => member,
        Err(error) => {
            *lock(says) = Progress::Ended(Err(Ended::NotJoined(error)));
            return;
        }
    };
    *lock(says) = Progress::Joined(member.instance());
    // Unwind safety: state in the pod that a panic leaves incomplete is repaired by the guards that
    // it drops. A body is shared by all its runs (`Fn + Sync`), so its own state is its own
    // concern.
    let end = match catch_unwind(AssertUnwindSafe(|| body(&member, attempt))) {
        Ok(Outcome::Finished) => Ok(()),
        Ok(Outcome::Failed) => Err(Ended::Unfinished),
        Err(panic) => Err(Ended::Panicked(message_of(&*panic))),
    };
    *lock(says) = Progress::Ended(end);
    drop(member);
}

/// Returns whether another attempt cannot help.
fn is_hopeless(error: &JoinError) -> bool {
    matches!(
        error,
        JoinError::NoSuchId { .. }
            | JoinError::Retired { .. }
            | JoinError::Unfenceable { .. }
            // Our own process is leaving or is being fenced.
            | JoinError::Gone { .. }
    )
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    if let Some(message) = panic.downcast_ref::<&str>() {
        (*message).to_owned()
    } else if let Some(message) = panic.downcast_ref::<String>() {
        message.clone()
    } else {
        "no message".to_owned()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for ThreadSupervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadSupervisor")
            .field("process", &self.process)
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}
