//! The hosts' side of a program of tasks, and the functions that its tasks call.

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

/// The maximum number of tasks that one task spawns.
const FAN_OUT: u64 = 16;

/// The interval at which a waiting worker checks the pool.
const NAP: Duration = Duration::from_millis(5);
/// The time for which a spare waits for the workers of other hosts that are to work before it. (A
/// host that dies before it joins is never seen.)
const FIRST_COME: Duration = Duration::from_secs(2);
/// The time without a worker after which a worker that cannot do a task tries again: others may be
/// about to come.
const DESERTED: Duration = Duration::from_millis(500);

/// The work of a host's worker: it executes the tasks of the pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolWork(pub PoolOf);

impl Work for PoolWork {
    fn work(&self, post: &Post<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let pool = WorkerPool::open(post.pod, self.0.name)?;
        let part = Part { pool, post };
        let worked = post.stand(|| {
            loop {
                match part.stand_by() {
                    // Others do that task, and may need this worker again if they die.
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
        // The creator of the run reports the size to ask for.
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
    /// Returns whether the run is over: the driver sets the number of wanted workers to 0 then.
    fn is_over(&self) -> bool {
        self.pool.wanted() == 0 || self.post.header.called_off().is_some()
    }

    /// Works whenever the pool has fewer workers than it wants, until the run is over: immediately
    /// if it wants all workers that join. Spares work when they are called, like hosts that have
    /// lost their places to a spare, and workers that a resized pool no longer needs.
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
                // The first access to a page costs as much as some work. If the memory is not
                // available now, the page is touched later.
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

    /// Waits until all places were taken, or one of the hosts that are to take them has died.
    fn let_hosts_come(&self) {
        let crew = self.post.header.crew();
        let generations = self.post.pod.tables().generations();
        let has_failed = |host| {
            let state = generations.state(host);
            state.is_ok_and(|it| matches!(it.status, Status::Dead | Status::Recovered))
        };
        let until = Instant::now() + FIRST_COME;
        while !self.is_over() && Instant::now() < until {
            // Additional workers, which take none of these places, are not counted.
            let have_come = self.pool.own_workers(self.post.heap) >= self.pool.wanted();
            if have_come || (0..crew.hosts - crew.spares).any(has_failed) {
                return;
            }
            std::thread::sleep(NAP);
        }
    }

    /// Waits until the run is over, or no worker has been seen for a while. Returns if it is over.
    fn waits_until_over(&self) -> bool {
        // A different time for each worker, so that not all retry at the same time.
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

    /// Logs why this worker took no part in a run that succeeded. A run that failed reports its own
    /// error.
    fn complain(&self, unable: &PoolError) {
        if Record::here().is_some_and(|run| run.last_round().is_some()) {
            tracing::error!("worker {} of the run: {unable}", self.post.number);
        }
    }
}

/// Executes `work`, which is unit `unit` of a run and makes all writes of the unit to the pod.
/// After this call the task may only return, or make the writes of `work` valid by one store.
///
/// The worker halts right after `work` if its host is to be killed there. The order of units does
/// not matter to kills: they are spread by the number of units about to be committed before.
///
/// # Errors
/// Returns the error of `work`.
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
    // The run cannot end before all kills are done.
    wait_at_gates(before + 1);
    may_die_before(record.commits());
    record.finishes(worker);
    Ok(made)
}

/// Records a step of the phase [before the units](super::TaskProgram::FIRST_PHASE), for the
/// progress.
pub fn step() {
    if let Some(record) = Record::here() {
        record.step();
    }
}

/// Records that round `number` begins, for the progress.
pub fn round(number: u64) {
    if let Some(record) = Record::here() {
        record.round(number);
    }
}

/// Creates the job of round `number`, which begins with `call` when the job of this task, which is
/// the previous round, is complete.
///
/// # Errors
/// If there is no free space.
pub fn next_round(context: &Context<'_>, number: u64, call: Call) -> TaskResult {
    context.spawn_job(&job(number), call)
}

/// Spawns tasks for all of `range`, at most 16: each is made by `call` for a part that begins at a
/// multiple of `step` from the start. Parts have `step` elements, or more if `range` is large; then
/// the tasks spread them further.
///
/// # Errors
/// If there is no free space.
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

/// Returns the error of a task that finds an impossible value in the pod.
pub fn damaged(what: impl fmt::Display) -> TaskError {
    TaskError::new(format_args!(
        "{what}; the segment is damaged: run `outlive pod check`"
    ))
}
