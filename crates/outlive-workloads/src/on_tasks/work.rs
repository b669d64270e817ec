//! What hosts do for a program of tasks, and what its tasks call.

use super::{PoolOf, Record, job};
use crate::header::CalledOff;
use crate::host::{Post, Work, may_die_before, wait_at_gates};
use core::fmt;
use core::ops::Range;
use outlive::membership::Status;
use outlive::supervise::Stop;
use outlive_tasks::{Call, Context, PoolError, TaskError, TaskResult, WorkerPool};
use std::error::Error;
use std::time::{Duration, Instant};

/// How many tasks are spawned by one task.
const FAN_OUT: u64 = 16;

/// How long a worker waits for a place, or for others, before it asks again.
const NAP: Duration = Duration::from_millis(5);
/// For how long a spare waits for hosts to come that are to work before it. (One that dies on its way is never seen.)
const FIRST_COME: Duration = Duration::from_secs(2);
/// For how long nobody works before one who cannot do a task tries again: others may be about to come.
const DESERTED: Duration = Duration::from_millis(500);

/// What a worker of a host does: the tasks of the pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolWork(pub PoolOf);

impl Work for PoolWork {
    fn work(&self, post: &Post<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let pool = WorkerPool::open(post.pod, self.0.name)?;
        let part = Part { pool, post };
        let worked = post.stand(|| {
            loop {
                match part.stand_by() {
                    // Others do that task, and may want this one again if they die.
                    Err(unable @ PoolError::Unable { .. }) => {
                        if part.waits_until_over() {
                            part.complain(&unable);
                            return Ok(());
                        }
                    }
                    ended => return ended,
                }
            }
        });
        let full = match &worked {
            Ok(_) => return Ok(()),
            Err(error) => error.wanted(),
        };
        let why = full.map_or(CalledOff::Failed(post.number), CalledOff::Full);
        post.header.call_off(why);
        // Whoever began the run says how much room there should be.
        match why {
            CalledOff::Full(_) => Ok(()),
            _ => Ok(worked?),
        }
    }
}

/// A worker's part in a run.
struct Part<'p> {
    pool: WorkerPool,
    post: &'p Post<'p>,
}

impl Part<'_> {
    /// The driver says when it is over, by wanting no workers.
    fn is_over(&self) -> bool {
        self.pool.wanted() == 0 || self.post.header.called_off().is_some()
    }

    /// Works whenever the pool has fewer workers than it wants, until it is over: at once where it wants all who come; spares do when
    /// they are called, hosts whose places a spare has taken, and those whom a pool that is resized has sent away.
    fn stand_by(&self) -> Result<(), PoolError> {
        if self.post.header.crew().is_spare(self.post.host) {
            self.let_hosts_come();
        }
        let mut is_warm = false;
        let goes_on = || {
            if self.is_over() {
                return false;
            }
            if !is_warm {
                // A page that is touched for the first time costs as much as some work. If it cannot be had now, it is then.
                let _ = self.post.pod.segment().prefault();
                is_warm = true;
            }
            !self.is_over()
        };
        let (heap, never) = (self.post.heap, Stop::default());
        let turns = |turn| {
            if let Some(record) = Record::here() {
                record.turn(self.post.number, turn);
            }
        };
        let stood = self.pool.stand_by_while(heap, &never, goes_on, turns);
        stood.map(drop)
    }

    /// Waits until all places were taken, or one of those who are to take them has died.
    fn let_hosts_come(&self) {
        let crew = self.post.header.crew();
        let generations = self.post.pod.tables().generations();
        let has_failed = |host| {
            let state = generations.state(host);
            state.is_ok_and(|it| matches!(it.status, Status::Dead | Status::Recovered))
        };
        let until = Instant::now() + FIRST_COME;
        while !self.is_over() && Instant::now() < until {
            // Who works besides has none of their places.
            let have_come = self.pool.own_workers(self.post.heap) >= self.pool.wanted();
            if have_come || (0..crew.hosts - crew.spares).any(has_failed) {
                return;
            }
            std::thread::sleep(NAP);
        }
    }

    /// Waits until it is over, and says so; or until nobody has worked for a while, and it is not.
    fn waits_until_over(&self) -> bool {
        // Not all at once.
        let patience = DESERTED + NAP * (self.post.number % 64);
        let mut last_seen = Instant::now();
        loop {
            if self.is_over() {
                return true;
            }
            if self.pool.workers(self.post.heap) > 0 {
                last_seen = Instant::now();
            } else if last_seen.elapsed() > patience {
                return false;
            }
            std::thread::sleep(NAP);
        }
    }

    /// Says why this worker had no part in a run that is done nevertheless; else the run's own error says it.
    fn complain(&self, unable: &PoolError) {
        if Record::here().is_some_and(|run| run.last_round().is_some()) {
            tracing::error!("worker {} of the run: {unable}", self.post.number);
        }
    }
}

/// Does `work`, which is unit `unit` of a run: its task has nothing left to do but to return, or to say by one store that what
/// `work` wrote counts. What the unit leaves in the pod is written by `work`.
///
/// The worker stops right behind `work` if its host is to be killed there. In which order units are done does not matter to
/// kills: they are spread by how many were about to be committed before.
///
/// # Errors
/// That of `work`.
pub fn unit<T>(
    context: &Context<'_>,
    unit: u64,
    work: impl FnOnce() -> Result<T, TaskError>,
) -> Result<T, TaskError> {
    let record = Record::here();
    let me = context.member().instance().id;
    let Some((record, worker)) = record.and_then(|it| Some((it, it.worker_of(me)?))) else {
        return work();
    };
    let before = record.begins(worker, unit, context.attempt());
    wait_at_gates(before);
    let made = work().inspect_err(|_| record.leaves(worker))?;
    // The run is not over while a host is still to be killed.
    wait_at_gates(before + 1);
    may_die_before(record.commits());
    record.finishes(worker);
    Ok(made)
}

/// Notes a step of what comes [before the units](super::TaskProgram::FIRST_PHASE), for the progress.
pub fn step() {
    if let Some(record) = Record::here() {
        record.step();
    }
}

/// Notes that round `number` begins, for the progress.
pub fn round(number: u64) {
    if let Some(record) = Record::here() {
        record.round(number);
    }
}

/// Creates the job of round `number`, which begins with `call` when the job of this task is complete: its task is of the
/// round before.
///
/// # Errors
/// If there is no room.
pub fn next_round(context: &Context<'_>, number: u64, call: Call) -> TaskResult {
    context.spawn_job(&job(number), call)
}

/// Spawns tasks for all of `range`: each as `call` says, for a part that begins a multiple of `step` behind the beginning. There are
/// a few of them or fewer; they are of `step`, or of more where `range` is large: then they spread it themselves.
///
/// # Errors
/// If there is no room.
pub fn spread(
    context: &Context<'_>,
    range: Range<u64>,
    step: u64,
    call: impl Fn(Range<u64>) -> Call,
) -> TaskResult {
    let mut each = step.max(1);
    while range.end.saturating_sub(range.start).div_ceil(each) > FAN_OUT {
        each = each.saturating_mul(FAN_OUT);
    }
    let mut from = range.start;
    while from < range.end {
        let to = from.saturating_add(each).min(range.end);
        context.spawn(call(from..to))?;
        from = to;
    }
    Ok(())
}

/// The error of a task that finds in the pod what cannot be there.
pub fn damaged(what: impl fmt::Display) -> TaskError {
    TaskError::new(format_args!(
        "{what}; the segment is damaged: run `outlive pod check`"
    ))
}
