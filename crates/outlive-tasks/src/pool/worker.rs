//! The loop of a worker.
//!
//! ```text
//!  find a task   own deque, others' deques, tasks of dead workers, roots of open jobs,
//!                waiting tasks whose inputs exist                                        -> run it
//!  otherwise     arrive at the barrier, unless it has changed since the search began
//!     the last   judges: ends jobs, opens others; releases all workers if there are tasks now
//!     another    waits: 50 us at first, up to 1 ms, then searches again, since a spawn wakes no worker;
//!                if all wait, until a job is submitted, or a worker joins or dies
//! ```
//!
//! A pool without work sleeps: each worker checks five times a second whether it was stopped.
//! Spawning and stealing make no system call.
//!
//! A task that fails, by an error or a panic, is retried immediately, up to the pool's limit; then
//! its job fails. If a worker cannot do a task for a reason of its own, it leaves the task to other
//! workers, and leaves the pool. A panic ends neither the thread nor its membership. A worker whose
//! tasks all fail [pauses between tasks](crate::pool::setback). A task in which several workers
//! have died is poisoned: it is not run again, and its job fails.

use super::load::{is_surplus, living, why_came};
use super::resizer::Resizer;
use super::turn::Turn;
use crate::engine::slot::Occupant;
use crate::functions::context::Context;
use crate::functions::registry::{Definition, Registry, TaskError};
use crate::pool::crew::{Crew, Judged, ticket_of};
use crate::pool::frontier::Frontier;
use crate::pool::setback::Setback;
use crate::store::jobs::SUBMIT;
use crate::store::layout::{Hand, Layout};
use crate::store::trigger::Trigger;
use crate::{JobState, PoolError, Running, SubmitError, Task};
use core::any::Any;
use core::cell::{Cell, OnceCell, RefCell};
use core::time::Duration;
use outlive::memory::{Native, Offset};
use outlive::supervise::Stop;
use outlive::sync::{Outcome, Seat, Ticket, Waiting, Withdrawal};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// The statistics of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// The number of tasks that the worker ran.
    pub tasks: u64,
    /// The number of these that a dead worker had begun.
    pub taken_over: u64,
    /// The number of retries of failed tasks.
    pub retried: u64,
    /// The number of tasks that the worker skipped, because their jobs had failed.
    pub skipped: u64,
    /// The number of descriptors that the worker scanned for tasks that waited although their
    /// inputs existed.
    pub looked: u64,
}

/// The first and the longest time that a worker sleeps at the barrier while others work.
const NAPS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));
/// The time that it sleeps while no worker works.
const IDLE: Duration = Duration::from_millis(200);
/// The number of tasks between two checks for anything else.
const TASKS_PER_LOOK: u64 = 64;

/// One worker at work.
pub(crate) struct Worker<'w> {
    crew: Crew<'w>,
    registry: &'w Registry,
    layout: Layout,
    hand: Hand<'w>,
    served: Served,
    stop: &'w Stop,
    resizer: Resizer,
    /// Whether no other worker came for a task that this one cannot do: such a task fails.
    is_last: bool,
    /// Whether it is a guest, which works also when the pool has as many workers as it wants.
    besides: bool,
    /// A task that it cannot do, and leaves to other workers.
    left: Option<Running>,
    setback: Setback,
}

/// The reason why a worker stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The worker was stopped.
    Stopped,
    /// The pool wants fewer workers.
    Surplus,
}

impl<'w> Worker<'w> {
    pub fn new(
        layout: Layout,
        hand: Hand<'w>,
        registry: &'w Registry,
        stop: &'w Stop,
        besides: bool,
    ) -> Result<Self, PoolError> {
        let crew = match besides {
            true => Crew::claim_as_guest(layout, hand)?,
            false => Crew::claim(layout, hand)?,
        };
        Ok(Self {
            crew,
            registry,
            layout,
            hand,
            served: Served::default(),
            stop,
            resizer: Resizer::new(layout),
            is_last: false,
            besides,
            left: None,
            setback: Setback::default(),
        })
    }

    /// Marks the worker as the last one: no other worker was available for a task that this worker
    /// could not do.
    pub fn left_alone(self) -> Self {
        let is_last = true;
        Self { is_last, ..self }
    }

    /// Returns the reason why the worker started, and the worker that it replaces, as recorded by
    /// the claim of its slot.
    pub fn turn(&self) -> Turn {
        let (before, generations) = (
            self.crew.engine.before(),
            self.hand.heap.member().generations(),
        );
        let why = why_came(self.layout, generations, before);
        let is_follower = |one: &Occupant| why == Trigger::Failures && !one.is_guest;
        Turn::Comes {
            why,
            after: before.filter(is_follower).map(|one| one.worker),
        }
    }

    /// Gives up the worker's slot, in which it has executed no task.
    pub fn leave(self) -> Result<(), PoolError> {
        Ok(self.crew.engine.give_up()?)
    }

    /// Executes tasks until the worker is stopped or surplus.
    pub fn work(mut self) -> Result<(Served, Ended), PoolError> {
        let mut seat = match self.layout.barrier.join(self.hand.heap.member()) {
            Ok(seat) => seat,
            Err(error) => {
                // Otherwise the slot would be taken as long as the thread lives.
                self.crew.engine.give_up()?;
                return Err(error.into());
            }
        };
        let ended = self.rounds(&mut seat);
        self.served.looked = self.crew.lookout.looked;
        if let Some(run) = self.left.take() {
            // Before it leaves the barrier: a worker that this interrupts must find the task.
            self.crew.engine.leave_to_others(run)?;
            seat.leave()?;
            return Ok((self.served, ended?));
        }
        // Also after an error, so that the others are not held up.
        seat.leave()?;
        let ended = ended?;
        self.crew.engine.give_up()?;
        Ok((self.served, ended))
    }

    fn rounds(&mut self, seat: &mut Seat<'_>) -> Result<Ended, PoolError> {
        let mut idle = 0u32;
        loop {
            if let Some(ended) = self.is_to_end() {
                return Ok(ended);
            }
            let moment = self.layout.barrier.moment()?;
            // A worker that pauses does not search for tasks, and waits with the idle ones. The
            // existing tasks keep the judge from sending all workers to sleep.
            while !self.steps_back()
                && let Some(run) = self.crew.find()?
            {
                idle = 0;
                self.run(run)?;
                if self.served.tasks.is_multiple_of(TASKS_PER_LOOK) {
                    self.beat()?;
                    if let Some(ended) = self.is_to_end() {
                        return Ok(ended);
                    }
                }
            }
            self.beat()?;
            let Some(arrival) = seat.arrive_since(moment)? else {
                continue;
            };
            let (ticket, last) = ticket_of(arrival);
            if last {
                match self.judge(seat, &ticket)? {
                    Judged::Run(run) => {
                        idle = 0;
                        self.run(run)?;
                        continue;
                    }
                    Judged::GoOn => {
                        self.crew.tidy()?;
                        // The work may belong to a worker that has not come to the barrier yet.
                        if idle > 4 {
                            std::thread::sleep(NAPS.1.min(NAPS.0 * (1 << idle.min(8))));
                        }
                        idle = idle.saturating_add(1);
                        continue;
                    }
                    Judged::Idle => {}
                }
            }
            if let Some(ended) = self.wait(seat, &ticket, &mut idle)? {
                return Ok(ended);
            }
        }
    }

    /// Returns whether the worker takes no task now, because its last ones have failed and other
    /// workers can take them.
    #[inline]
    fn steps_back(&mut self) -> bool {
        self.setback.pauses() && !self.is_alone()
    }

    fn judge(&mut self, seat: &mut Seat<'_>, ticket: &Ticket) -> Result<Judged<Native>, PoolError> {
        let registry = self.registry;
        self.crew.judge(seat, ticket, |task| shown(registry, task))
    }

    /// Waits at the barrier until something happens, or it is time to search again.
    fn wait(
        &mut self,
        seat: &mut Seat<'_>,
        ticket: &Ticket,
        idle: &mut u32,
    ) -> Result<Option<Ended>, PoolError> {
        loop {
            let view = self.layout.barrier.view()?;
            let all = view.waiting == view.members;
            let nap = if all {
                IDLE
            } else {
                NAPS.1.min(NAPS.0 * (1 << (*idle).min(8)))
            };
            *idle = idle.saturating_add(1);
            let waiting = Waiting {
                spins: 50,
                yielding: Duration::from_micros(5),
                nap,
            };
            match seat.wait(ticket, waiting, Some(nap))? {
                Outcome::Released => {
                    self.crew.tidy()?;
                    return Ok(None);
                }
                Outcome::Changed => return Ok(None),
                Outcome::TimedOut => {}
            }
            self.beat()?;
            if let Some(ended) = self.is_to_end() {
                return Ok(Some(ended));
            }
            match seat.withdraw(ticket)? {
                // All members wait, or this one is alone: a submitter may have died before it
                // raised the version.
                Withdrawal::Complete => {
                    if self.crew.has_news() {
                        seat.interrupt()?;
                        return Ok(None);
                    }
                }
                Withdrawal::Released => {
                    self.crew.tidy()?;
                    return Ok(None);
                }
                Withdrawal::Withdrawn | Withdrawal::Changed => return Ok(None),
            }
        }
    }

    fn frontier(&self) -> Frontier {
        Frontier::new(
            self.layout.memory,
            self.layout.frontier_at(),
            self.layout.slots,
        )
    }

    fn beat(&mut self) -> Result<(), PoolError> {
        let generations = self.hand.heap.member().generations();
        self.frontier().beat(generations, self.crew.engine.number());
        self.resizer.look(self.layout, self.hand)
    }

    /// Returns the reason why the worker must end, if it was stopped or is surplus.
    pub fn is_to_end(&self) -> Option<Ended> {
        if self.stop.is_stopped() {
            return Some(Ended::Stopped);
        }
        let generations = self.hand.heap.member().generations();
        let mine = self.crew.engine.number();
        let is_surplus = match self.besides {
            true => self.layout.wanted() == 0,
            false => is_surplus(self.layout, generations, mine),
        };
        is_surplus.then_some(Ended::Surplus)
    }

    /// Returns whether this is the only live worker.
    fn is_alone(&self) -> bool {
        living(self.layout, self.hand.heap.member().generations()) <= 1
    }

    /// Runs a task to its end.
    fn run(&mut self, mut run: Running) -> Result<(), PoolError> {
        // (A removed job had failed, and had no such task.)
        if matches!(
            self.crew.job(&run).state(),
            JobState::Failed | JobState::Removed
        ) {
            self.served.skipped += 1;
            self.crew.begin(&run)?;
            return self.crew.complete(&mut run);
        }
        self.served.tasks += 1;
        let (tries, crash_limit) = self.layout.limits();
        if run.attempt() > 0 {
            self.served.taken_over += 1;
            if let Some(why) = self.poisoned(&run, crash_limit) {
                tracing::error!(why, "a task is poisoned");
                return self.crew.fail(&mut run, &why, None);
            }
        }
        let mut tried = 0;
        loop {
            if run.attempt() > 0 {
                self.crew.begin(&run)?;
            }
            let (why, wanted) = match self.attempt(&mut run) {
                Ok(()) => match self.crew.complete(&mut run) {
                    // There was no space for its children.
                    Err(error) if !run.is_spent() => (error.to_string(), error.wanted()),
                    done => {
                        self.setback.succeeds();
                        return done;
                    }
                },
                Err((why, _)) if why.is_unable() && !(self.is_last && self.is_alone()) => {
                    let task = shown(self.registry, run.task());
                    self.left = Some(run);
                    let why = why.to_string();
                    return Err(PoolError::Unable { task, why });
                }
                Err((why, wanted)) => (why.to_string(), wanted),
            };
            tried += 1;
            tracing::debug!(task = ?run.task(), why, "a task failed");
            if tried < tries && self.crew.engine.retry(&mut run)? {
                self.served.retried += 1;
                continue;
            }
            let shown = shown(self.registry, run.task());
            let why = format!("task {shown} failed: {why}");
            if let Some(pause) = self.setback.fails(Instant::now()) {
                tracing::warn!(?pause, why, "a worker whose tasks fail pauses");
            }
            self.crew.begin(&run)?;
            return self.crew.fail(&mut run, &why, wanted);
        }
    }

    /// Records the death of the worker from which the task was taken over. Returns why the task is
    /// poisoned, if `crash_limit` workers have died in it.
    fn poisoned(&self, run: &Running, crash_limit: u32) -> Option<String> {
        let dead = run.dead()?;
        let (crashes, records) = (self.layout.crashes, self.hand.heap.member().records());
        let (task, life) = (run.task().offset(), run.status().sequence());
        crashes.note(task, life, dead, records);
        let mut died = crashes.of(task, life);
        if (died.len() as u64) < u64::from(crash_limit) {
            crashes.learn_ends(&mut died, records);
            return None;
        }
        crashes.await_last_end(&mut died, records);
        let all: Vec<String> = died.iter().map(ToString::to_string).collect();
        Some(format!(
            "task {} is poisoned: {} workers died in it: {}",
            shown(self.registry, run.task()),
            died.len(),
            all.join(", ")
        ))
    }

    /// Runs a task's function once. An error comes with the number of bytes that could not be
    /// allocated.
    fn attempt(&mut self, run: &mut Running) -> Result<(), (TaskError, Option<u64>)> {
        let arguments = run.arguments().map_err(|error| (error.into(), None))?;
        if run.function() == SUBMIT {
            return self.submit(&arguments);
        }
        let Some(definition) = self.registry.get(run.function()) else {
            let number = run.function();
            let why =
                format_args!("no task function has the number {number}; run `outlive pod check`");
            return Err((TaskError::new(why), None));
        };
        self.call(definition, run, &arguments)
    }

    #[inline]
    fn call(
        &mut self,
        definition: &'static Definition,
        run: &mut Running,
        arguments: &[u8],
    ) -> Result<(), (TaskError, Option<u64>)> {
        let context = Context {
            layout: self.layout,
            hand: self.hand,
            registry: self.registry,
            definition,
            engine: RefCell::new(&mut self.crew.engine),
            run: RefCell::new(run),
            broken: Cell::new(false),
            ported: Cell::new(false),
            pin: OnceCell::new(),
            wanted: Cell::new(None),
        };
        // A panic leaves nothing half-done that is used again: the task's children are freed, its
        // outputs are cleared, and guards have repaired the state that they guard.
        let ended = catch_unwind(AssertUnwindSafe(|| definition.run(&context, arguments)));
        let (broken, ported) = (context.broken.get(), context.ported.get());
        let wanted = context.wanted.get();
        // Unpins the data that it read and the blocks that it retired: both may be freed now.
        drop(context);
        if ported {
            self.crew.has_ports();
        }
        let result = match ended {
            Ok(Ok(())) if broken => Err(TaskError::new(match wanted {
                Some(bytes) => format!(
                    "it requested {bytes} bytes, which the pod's heap does not have, and ignored \
                     the error"
                ),
                None => "one of its calls failed, and it ignored the error".to_owned(),
            })),
            Ok(result) => result,
            Err(panic) => Err(TaskError::new(format_args!(
                "it panicked: {}",
                said(&*panic)
            ))),
        };
        result.map_err(|why| (why, wanted))
    }

    /// Submits a job that a task has created.
    fn submit(&self, arguments: &[u8]) -> Result<(), (TaskError, Option<u64>)> {
        let damaged = || {
            let why = "the record of a job is damaged; run `outlive pod check`";
            (TaskError::new(why), None)
        };
        let (len, rest) = arguments.split_at_checked(8).ok_or_else(damaged)?;
        let len = u64::from_ne_bytes(len.try_into().expect("eight bytes"));
        let (name, record) = rest.split_at_checked(len as usize).ok_or_else(damaged)?;
        let submitted = self.layout.submit_bytes(self.hand, name, record);
        submitted.map(drop).map_err(|error| {
            let wanted = match &error {
                SubmitError::Heap(error) => error.asked(),
                _ => None,
            };
            (error.into(), wanted)
        })
    }
}

/// Returns the message of a panic.
fn said(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// Formats a task with its arguments as text.
pub(crate) fn shown(registry: &Registry, task: Task) -> String {
    let arguments = task.arguments();
    match (registry.get(task.function()), arguments) {
        (Some(definition), Ok(arguments)) => {
            format!("`{}({})`", definition.name(), definition.show(&arguments))
        }
        _ if task.function() == SUBMIT => "that submits a job".to_owned(),
        (Some(definition), Err(_)) => format!("`{}`", definition.name()),
        (None, _) => format!("at {}", Offset::from_raw(task.offset().raw())),
    }
}
