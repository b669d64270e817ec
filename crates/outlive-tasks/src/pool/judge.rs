//! When a job is complete, and when it can never be: the consensus of the workers (MODC §4).
//!
//! Workers that find nothing to do meet at the barrier, and the last to arrive judges. While all
//! wait no worker changes anything, so the judge sees a consistent state *if* it read all of it
//! while all waited. It reads everything first, and then checks the barrier once more
//! ([`Seat::still`](outlive::sync::Seat::still)). Its findings are then stable facts, whatever
//! other threads do after that:
//!
//! * a job is *complete* if it is open, its root is over, and no task of it is ready, held or
//!   waiting: only tasks of a job spawn tasks of it;
//! * a job is *stuck* if it has waiting tasks, no job has become complete, none can be opened and
//!   nothing can be run: the data that its tasks wait for would have to be written by a task, and
//!   none will ever run. If a submitted job without a root would write data that some stuck jobs
//!   wait for, the other stuck jobs are ended first, since the submitted job may get one of their
//!   roots.
//!
//! A judge that dies has recorded all its findings, some, or none: each is one compare-and-swap of
//! a job. Its death voids the waiting, and another worker judges. A finding about a job that has
//! ended since has no effect.
//!
//! Processes without workers can submit jobs at any time. Such a job may write data that another
//! job waits for. So no job is called stuck unless the list of jobs is unchanged since it was read.
//! (Data from outside is put into the pod *before* the job that reads it is submitted.)

use crate::engine::supply;
use crate::pool::lookout::has_all;
use crate::store::jobs::{JobState, Record, Root, shown_cell};
use crate::store::layout::{Hand, Layout};
use crate::store::names::Ports;
use crate::store::task_ports::ports_of;
use crate::{PoolError, State, Task};
use outlive::memory::{Memory, Offset};

outlive::memory::crash_points! {
    /// The crash points of a judgement.
    pub enum JudgePoint for "tasks.judge" {
        /// No worker had anything to do.
        Quiet,
        /// All state was read, and is unchanged.
        Judged,
        /// One job was ended.
        Said,
    }
}

/// The result of a judgement.
#[derive(Debug)]
pub enum Verdict {
    /// There is work; the caller must release the barrier.
    Work,
    /// These tasks wait, each in the given life, although all their inputs exist. The binder of the
    /// last input was not a worker, or died, or had no space for them in its deque.
    Runnable(Vec<(Offset, u64)>),
    /// The state has changed during the judgement, which has no result.
    Void,
    /// Jobs have ended; the caller must release the barrier.
    Ended,
    /// There is no work at all.
    Idle,
}

/// A task that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting<M: Memory> {
    task: Task<M>,
    ports: Ports<M>,
    job: Record<M>,
}

/// Determines whether the pool has work, while all workers wait at the barrier; ends jobs that are
/// complete or can never complete. `still` returns whether all members have waited without
/// interruption; `name` returns the name of a task's function, with arguments.
pub fn judge<M: Memory>(
    layout: Layout<M>,
    hand: Hand<'_, M>,
    still: impl Fn() -> bool,
    name: impl Fn(Task<M>) -> String,
) -> Result<Verdict, PoolError> {
    // Jobs that end during the judgement may be removed.
    let _pin = hand.heap.pin();
    let quiets = layout.quiets();
    if !layout.slots.is_quiet()? {
        return Ok(Verdict::Work);
    }
    layout.memory.crash_point(JudgePoint::Quiet);
    let version = layout.version();
    let jobs: Vec<_> = { layout.all_jobs(hand) }
        .into_iter()
        .filter(|job| !job.state().is_over())
        .collect();
    let (waits, may_wait) = layout.waits();
    let waiting = if may_wait {
        match waiting(layout)? {
            Waits::Runnable(found) => return Ok(Verdict::Runnable(found)),
            Waits::All(waiting) => waiting,
        }
    } else {
        Vec::new()
    };
    let mut complete = Vec::new();
    for &job in &jobs {
        match job.state() {
            JobState::Open => {
                let Some(task) = job.root_task(layout) else {
                    // The root has not been described.
                    return Ok(Verdict::Work);
                };
                let root = task.status()?.state();
                if root == State::Ready || root.is_held() {
                    return Ok(Verdict::Work);
                }
                let waits = waiting.iter().any(|wait| wait.job == job);
                if root.is_over() && !waits {
                    complete.push(job);
                }
            }
            JobState::Submitted if job.can_advance(layout, hand)? => {
                // The root that this job is to get may itself wait for this quiet moment.
                if still() {
                    layout.note_quiet(quiets);
                }
                return Ok(Verdict::Work);
            }
            _ => {}
        }
    }
    let stuck: Vec<_> = if complete.is_empty() {
        let waits = |job: &Record<M>| waiting.iter().any(|wait| wait.job == *job);
        let stuck: Vec<_> = jobs.iter().copied().filter(waits).collect();
        let hopeless = without_hope(layout, hand, &jobs, &stuck, &waiting);
        { hopeless.into_iter() }
            .map(|job| (job, explain(layout, hand, job, &waiting, &name)))
            .collect()
    } else {
        Vec::new()
    };
    if layout.version() != version || !still() {
        return Ok(Verdict::Void);
    }
    layout.note_quiet(quiets);
    layout.memory.crash_point(JudgePoint::Judged);
    if waiting.is_empty() && may_wait {
        layout.settle_waits(waits);
    }
    let mut ended = false;
    for job in complete {
        ended |= layout.complete_job(hand, job);
        layout.memory.crash_point(JudgePoint::Said);
    }
    for (job, why) in stuck {
        ended |= layout.fail_job(hand, job, &why)?;
        layout.memory.crash_point(JudgePoint::Said);
    }
    Ok(if ended { Verdict::Ended } else { Verdict::Idle })
}

/// The waiting tasks.
enum Waits<M: Memory> {
    /// Tasks with all inputs, also those of failed jobs, which are to be skipped.
    Runnable(Vec<(Offset, u64)>),
    /// Tasks of open jobs, each with a missing input.
    All(Vec<Waiting<M>>),
}

/// Returns all waiting tasks that can be run; if there is none, those of open jobs that cannot.
fn waiting<M: Memory>(layout: Layout<M>) -> Result<Waits<M>, PoolError> {
    let (mut found, mut runnable) = (Vec::new(), Vec::new());
    let mut look = |task: Task<M>| -> Result<(), PoolError> {
        let status = task.status()?;
        if status.state() != State::Waiting {
            return Ok(());
        }
        if has_all(layout.memory, task, status) {
            runnable.push((task.offset(), status.sequence()));
            return Ok(());
        }
        let job = Record::at(layout.memory, Offset::from_raw(task.job()));
        if job.state() == JobState::Open
            && let Some(ports) = ports_of(layout.memory, task)
        {
            found.push(Waiting { task, ports, job });
        }
        Ok(())
    };
    for number in 0..layout.slots.used() {
        let slot = layout.slots.slot(number);
        supply::each(layout.memory, slot, layout.slots.settings().chunk, |task| {
            look(task)
        })?;
    }
    for number in 0..layout.roots {
        let root = Root::of(layout, number);
        if root.life() != 0 {
            look(root.task())?;
        }
    }
    Ok(match runnable.is_empty() {
        true => Waits::All(found),
        false => Waits::Runnable(runnable),
    })
}

/// Returns the `stuck` jobs that do not depend on data that a submitted job would write: ending
/// them may give that job a root. If there are none, returns all of `stuck`.
fn without_hope<M: Memory>(
    layout: Layout<M>,
    hand: Hand<'_, M>,
    jobs: &[Record<M>],
    stuck: &[Record<M>],
    waiting: &[Waiting<M>],
) -> Vec<Record<M>> {
    let mut hoped: Vec<Offset> = Vec::new();
    for job in jobs {
        if job.state() == JobState::Submitted
            && let Some(contents) = job.contents()
        {
            let cells =
                { contents.writes.iter() }.filter_map(|key| layout.names.find(hand.heap, key));
            hoped.extend(cells.map(|cell| cell.offset()));
        }
    }
    let has_hope = |wait: &Waiting<M>, hoped: &[Offset]| {
        let mut missing = wait.ports.inputs().filter(|cell| !cell.is_bound());
        missing.any(|cell| hoped.contains(&cell.offset()))
    };
    // The outputs of these tasks may be inputs of others.
    let mut left: Vec<_> = waiting.iter().collect();
    while !hoped.is_empty() {
        let (with, without): (Vec<&Waiting<M>>, Vec<&Waiting<M>>) =
            left.iter().partition(|wait| has_hope(wait, &hoped));
        if with.is_empty() {
            break;
        }
        for wait in with {
            let cells = { wait.ports.outputs() }.filter_map(|output| output.cell());
            hoped.extend(cells.map(|cell| cell.offset()));
        }
        left = without;
    }
    let hopes =
        |job: &Record<M>| { waiting.iter() }.any(|wait| wait.job == *job && has_hope(wait, &hoped));
    let hopeless: Vec<_> = { stuck.iter().copied() }
        .filter(|job| !hopes(job))
        .collect();
    if hopeless.is_empty() {
        stuck.to_vec()
    } else {
        hopeless
    }
}

/// The maximum number of tasks that a message names.
const NAMED: usize = 4;

/// Explains why a job is stuck: which data its tasks wait for, and which tasks were to write that.
fn explain<M: Memory>(
    layout: Layout<M>,
    hand: Hand<'_, M>,
    job: Record<M>,
    waiting: &[Waiting<M>],
    name: &impl Fn(Task<M>) -> String,
) -> String {
    let own: Vec<_> = waiting.iter().filter(|wait| wait.job == job).collect();
    let mut said: Vec<String> = Vec::new();
    for wait in own.iter().take(NAMED) {
        // Follow the writers of the missing data, until one does not exist or comes twice.
        let (mut way, mut text) = (vec![wait.task], String::new());
        let mut at: &Waiting<M> = wait;
        loop {
            let Some(cell) = at.ports.inputs().find(|cell| !cell.is_bound()) else {
                break;
            };
            let missing = shown_cell(layout, hand, cell);
            if text.is_empty() {
                text = format!("task {} waits for {missing}", name(at.task));
            } else {
                text += &format!(", which waits for {missing}");
            }
            let writes = |other: &&Waiting<M>| {
                let cells = { other.ports.outputs() }.filter_map(|output| output.cell());
                { cells }.any(|written| written.offset() == cell.offset())
            };
            let Some(writer) = waiting.iter().find(writes) else {
                text += ", which nothing writes";
                break;
            };
            if way.contains(&writer.task) {
                text += &format!(", which task {} is to write: a cycle", name(writer.task));
                break;
            }
            text += &format!(", which task {} is to write", name(writer.task));
            way.push(writer.task);
            at = writer;
        }
        if !text.is_empty() && !said.contains(&text) {
            said.push(text);
        }
    }
    let more = own.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!("; and {more} more tasks wait")
    } else {
        String::new()
    };
    format!("it can never finish: {}{more}", said.join("; "))
}
