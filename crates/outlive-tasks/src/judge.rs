//! When a job is complete, and when it can never be: the consensus of the workers (MODC §4).
//!
//! Workers that find nothing to do meet at the barrier, and the last to arrive judges. While all wait nobody of them
//! does anything, so what is read then is how things stand, *provided that* it was read while all waited: the judge
//! looks at everything first and at the barrier once more afterwards ([`Seat::still`](outlive::sync::Seat::still)).
//! What it says then are facts that do not change any more, whatever the others do meanwhile:
//!
//! * *complete* is an open job whose root is over and of which no task is ready, held or waiting: only tasks of a job
//!   make tasks of it;
//! * *stuck* is a job with tasks that wait, when no job has become complete, none can be opened and nothing can be run:
//!   whatever its tasks wait for would have to be written by a task, and none will ever run. If a job that has found no root yet would
//!   write what some of them wait for, the others are ended first: it may have one of theirs.
//!
//! A judge that dies has said all of it, or some, by one compare-and-swap for each job, or nothing; its death voids the waiting, and
//! another judges. What it was about to say of jobs that others have ended since has no effect.
//!
//! Jobs can be submitted by those who are no workers, at any time. Such a job may write what another waits for; so nothing
//! is said to be stuck unless the list of jobs is the one that was looked at. (Data from outside is put into the pod *before*
//! the job is submitted that reads it.)

use crate::crew::ports_of;
use crate::jobs::{JobState, Record, Root, shown_cell};
use crate::layout::{Hand, Layout};
use crate::lookout::has_all;
use crate::names::Ports;
use crate::supply;
use crate::{PoolError, State, Task};
use outlive::memory::{Memory, Offset};

outlive::memory::crash_points! {
    /// Where a judgement may be cut short.
    pub enum JudgePoint for "tasks.judge" {
        /// All was looked at, and is still so.
        Judged,
        /// Of one job it was said.
        Said,
    }
}

/// What a judge found.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// There is something to do; the barrier is to be released.
    Work,
    /// These tasks wait, each in that life, and all their inputs are there: whoever bound the last was no worker, or died, or had
    /// no room for them in his deque.
    Runnable(Vec<(Offset, u64)>),
    /// Something has happened meanwhile.
    Void,
    /// Jobs have ended; the barrier is to be released.
    Ended,
    /// There is nothing to do at all.
    Idle,
}

/// A task that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting<M: Memory> {
    task: Task<M>,
    ports: Ports<M>,
    job: Record<M>,
}

/// Judges. `still` says whether all have waited all the time; `name` is that of a task's function, with arguments.
pub(crate) fn judge<M: Memory>(
    layout: Layout<M>,
    hand: Hand<'_, M>,
    still: impl Fn() -> bool,
    name: impl Fn(Task<M>) -> String,
) -> Result<Verdict, PoolError> {
    judge_slowly(layout, hand, || (), still, name)
}

/// The same, with a `pause` after the look at the workers: for the proofs.
pub(crate) fn judge_slowly<M: Memory>(
    layout: Layout<M>,
    hand: Hand<'_, M>,
    pause: impl FnOnce(),
    still: impl Fn() -> bool,
    name: impl Fn(Task<M>) -> String,
) -> Result<Verdict, PoolError> {
    // Jobs that end while this looks at them may be removed.
    let _pin = hand.heap.pin();
    let quiets = layout.quiets();
    if !layout.slots.is_quiet()? {
        return Ok(Verdict::Work);
    }
    pause();
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
                    // It has not been described.
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
                // It may be what the root waits for that it is to have.
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

/// Which tasks wait.
enum Waits<M: Memory> {
    /// These for nothing; also those of jobs that have failed, to be skipped.
    Runnable(Vec<(Offset, u64)>),
    /// These, of open jobs, each for something.
    All(Vec<Waiting<M>>),
}

/// All tasks that wait and can be run; if there is none, those of open jobs that cannot.
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

/// Those of the `stuck` jobs that wait for nothing that a job would write which is only submitted: that may get
/// the root of one of them. If there are none, all.
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
    // What they write may be what others wait for.
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

/// How many tasks a message names.
const NAMED: usize = 4;

/// Why a job is stuck: what its tasks wait for, and who was to write that.
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
        // Along who is to write what is missing, until nobody is, or somebody comes twice.
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
