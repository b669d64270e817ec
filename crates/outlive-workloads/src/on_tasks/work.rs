//! What hosts do for a program of tasks, and what its tasks call.

use super::{PoolOf, Record, job};
use crate::header::CalledOff;
use crate::host::{Post, Work, may_die_before};
use core::fmt;
use core::ops::Range;
use outlive::supervise::Stop;
use outlive_tasks::{Call, Context, TaskError, TaskResult, WorkerPool};
use std::error::Error;
use std::time::Duration;

/// How many tasks are spawned by one task.
const FAN_OUT: u64 = 16;

/// How long a worker waits for a place before it asks again.
const NO_PLACE_NAP: Duration = Duration::from_millis(5);

/// What a worker of a host does: the tasks of the pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolWork(pub PoolOf);

impl Work for PoolWork {
    fn work(&self, post: &Post<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let pool = WorkerPool::open(post.pod, self.0.name)?;
        // The driver says when it is over, by wanting no workers. If others have taken all places, one waits until they go.
        let worked = post.stand(|| {
            loop {
                match pool.work(post.heap, &Stop::default()) {
                    Err(error) if error.is_no_place() => {
                        if pool.wanted() == 0 || post.header.called_off().is_some() {
                            return Ok(());
                        }
                        std::thread::sleep(NO_PLACE_NAP);
                    }
                    ended => return ended.map(drop),
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
    record.begins(worker, unit, context.attempt());
    let made = work()?;
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
