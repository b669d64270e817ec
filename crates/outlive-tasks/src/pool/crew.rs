//! One worker's role in a pool: it finds tasks, publishes the outputs of those that it commits, and
//! judges jobs at the barrier.
//!
//! This module does not run the functions of tasks. [`worker`](crate::pool::worker) does, and so do
//! the proofs, over other memories.

use crate::engine::supply;
use crate::pool::judge::{Verdict, judge};
use crate::pool::lookout::Lookout;
use crate::store::jobs::{JobState, Record};
use crate::store::layout::{Hand, Layout};
use crate::store::names::Ports;
use crate::store::task_ports::{free_unwritten, ports_of};
use crate::{Batch, Engine, EngineError, Hooks, PoolError, Running, Task};
use outlive::memory::{Memory, Native, Offset};
use outlive::sync::{Arrival, Seat, Ticket};

/// The part of a task's commit that concerns named data: binds the outputs, and makes each child
/// ready or registers it with the inputs for which it waits.
#[derive(Clone, Copy, Debug)]
pub struct Publisher<'h, M: Memory = Native> {
    pub layout: Layout<M>,
    pub hand: Hand<'h, M>,
}

impl<M: Memory> Publisher<'_, M> {
    fn ports(&self, task: Task<M>) -> Option<Ports<M>> {
        ports_of(self.layout.memory, task)
    }

    fn job(&self, task: Task<M>) -> Record<M> {
        Record::at(self.layout.memory, Offset::from_raw(task.job()))
    }
}

impl<M: Memory> Hooks<M> for Publisher<'_, M> {
    type Error = PoolError;

    #[inline]
    fn has_outputs(&mut self, task: Task<M>) -> bool {
        task.inputs() != 0
    }

    /// The [lookout](crate::pool::lookout) and the [judge](crate::pool::judge) find such tasks.
    fn finds_waiting(&self) -> bool {
        true
    }

    fn postponed(&mut self) {
        self.layout.note_wait();
        self.layout.call();
    }

    fn committed(
        &mut self,
        task: Task<M>,
        _attempt: u8,
        batch: &mut Batch<'_, '_, M>,
    ) -> Result<(), PoolError> {
        let Some(ports) = self.ports(task) else {
            return Ok(());
        };
        let memory = self.layout.memory;
        ports.bind(self.hand.heap, |waiter| {
            let (task, life) = waiter.task();
            if waiter.are_complete() {
                batch.ready_in(Task::new(memory, Offset::from_raw(task)), life)?;
            }
            Ok(())
        })
    }

    #[inline]
    fn child(&mut self, child: Task<M>, batch: &mut Batch<'_, '_, M>) -> Result<(), PoolError> {
        let Some(ports) = self.ports(child) else {
            return Ok(batch.ready(child)?);
        };
        if !ports.are_complete() {
            self.layout.note_wait();
            child.wait_for_inputs()?;
            ports.wait();
        }
        if ports.are_complete() {
            batch.ready(child)?;
        }
        Ok(())
    }

    fn failed(
        &mut self,
        task: Task<M>,
        _attempt: u8,
        _batch: &mut Batch<'_, '_, M>,
    ) -> Result<(), PoolError> {
        if let Some(ports) = self.ports(task) {
            ports.clear(self.hand.heap)?;
        }
        // The worker that failed the task has recorded the reason, unless it died before.
        let why = "a task failed, and its worker died before it recorded the reason";
        let job = self.job(task);
        self.layout.fail_job(self.hand, job, why)?;
        Ok(())
    }
}

/// A worker of a pool.
#[derive(Debug)]
pub struct Crew<'w, M: Memory = Native> {
    pub layout: Layout<M>,
    pub hand: Hand<'w, M>,
    pub engine: Engine<'w, M>,
    publisher: Publisher<'w, M>,
    /// The jobs that are not over, as of `version`.
    jobs: Vec<Record<M>>,
    version: Option<u64>,
    /// The `fingerprint` of all jobs at that version, including those that are over.
    listed: u64,
    /// Whether descriptors of the slot may have ports to be freed.
    ported: bool,
    pub lookout: Lookout,
}

impl<'w, M: Memory> Crew<'w, M> {
    /// Claims the first slot that is available, for an own worker.
    pub fn claim(layout: Layout<M>, hand: Hand<'w, M>) -> Result<Self, PoolError> {
        let (heap, recoverers) = (hand.heap, hand.recoverers);
        let hooks = &mut Publisher { layout, hand };
        let engine = Engine::claim(layout.slots, heap, recoverers, hooks)?;
        Ok(Self::of(layout, hand, engine))
    }

    /// Claims a slot for a guest, which works in addition to the pool's own workers.
    pub fn claim_as_guest(layout: Layout<M>, hand: Hand<'w, M>) -> Result<Self, PoolError> {
        // Start beyond the slots of the own workers. A guest in one of these would displace the
        // last own worker to a higher slot.
        let first = layout.wanted();
        let (heap, recoverers) = (hand.heap, hand.recoverers);
        let hooks = &mut Publisher { layout, hand };
        let engine = Engine::claim_guest(layout.slots, first, heap, recoverers, hooks)?;
        Ok(Self::of(layout, hand, engine))
    }

    fn of(layout: Layout<M>, hand: Hand<'w, M>, engine: Engine<'w, M>) -> Self {
        Self {
            layout,
            hand,
            engine,
            publisher: Publisher { layout, hand },
            jobs: Vec::new(),
            version: None,
            listed: 0,
            ported: true,
            lookout: Lookout::default(),
        }
    }

    /// Returns the next task: from a deque, from a dead worker, the root of a job, or a task that
    /// waits although its inputs exist.
    pub fn find(&mut self) -> Result<Option<Running<M>>, PoolError> {
        if let Some(run) = self.find_ready()? {
            return Ok(Some(run));
        }
        self.find_waiting()
    }

    /// Returns the next task as [`find`](Self::find) does, but never a waiting task.
    pub fn find_ready(&mut self) -> Result<Option<Running<M>>, PoolError> {
        if let Some(run) = self.engine.next(&mut self.publisher)? {
            return Ok(Some(run));
        }
        self.find_root()
    }

    /// Returns a task that waits although its inputs exist. Called by a worker without other work.
    #[inline(never)]
    fn find_waiting(&mut self) -> Result<Option<Running<M>>, PoolError> {
        loop {
            if let Some(run) = self.start_found()? {
                return Ok(Some(run));
            }
            if !self.lookout.look(self.layout)? {
                return Ok(None);
            }
        }
    }

    /// Starts the first of the tasks found by the lookout that no other worker has begun.
    fn start_found(&mut self) -> Result<Option<Running<M>>, PoolError> {
        while let Some((at, life)) = self.lookout.take() {
            let task = Task::new(self.layout.memory, at);
            if let Some(run) = self.engine.start_waiting(task, life)? {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    #[inline(never)]
    fn find_root(&mut self) -> Result<Option<Running<M>>, PoolError> {
        // Pin before the version is read. The version is raised before the record of a listed job
        // is retired, so if it is unchanged, the listed records stay valid under this pin.
        let _pin = self.hand.heap.pin();
        let version = self.layout.version();
        if self.version != Some(version) {
            self.jobs = self.layout.all_jobs(self.hand);
            self.listed = fingerprint(self.jobs.iter().copied());
            self.jobs.retain(|job| !job.state().is_over());
            self.version = Some(version);
        }
        for &job in &self.jobs {
            self.layout.advance_job(self.hand, job)?;
            if job.state() == JobState::Open
                && let Some(task) = job.root_task(self.layout)
                && let Some(run) = self.engine.start(task)?
            {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// Returns the job of a task.
    pub fn job(&self, run: &Running<M>) -> Record<M> {
        Record::at(self.layout.memory, Offset::from_raw(run.job()))
    }

    /// Returns whether the pool's jobs have changed since this worker last listed them.
    pub fn has_news(&mut self) -> bool {
        if self.version != Some(self.layout.version()) {
            return true;
        }
        // All jobs are read, because a submitter may die before it raises the version. Their
        // numbers are compared and not only counted, because removal raises the version before the
        // job leaves the map.
        let _pin = self.hand.heap.pin();
        let there = fingerprint(self.layout.all_jobs(self.hand).into_iter());
        if there != self.listed {
            self.version = None;
        }
        there != self.listed
    }

    /// Records that descriptors of the slot have ports.
    pub fn has_ports(&mut self) {
        self.ported = true;
    }

    /// Clears the outputs of earlier attempts of `run` that died or failed.
    pub fn begin(&mut self, run: &Running<M>) -> Result<(), PoolError> {
        match self.publisher.ports(run.task()) {
            Some(ports) => ports.clear(self.hand.heap)?,
            None => free_unwritten(self.hand.heap, run.task())?,
        }
        Ok(())
    }

    /// Commits the task.
    pub fn complete(&mut self, run: &mut Running<M>) -> Result<(), PoolError> {
        self.engine.complete(run, &mut self.publisher)
    }

    /// Fails the task without a retry. `wanted` is the size in bytes that it could not allocate, if
    /// that is the reason.
    pub fn fail(
        &mut self,
        run: &mut Running<M>,
        why: &str,
        wanted: Option<u64>,
    ) -> Result<(), PoolError> {
        let job = self.job(run);
        self.layout.fail_job_for(self.hand, job, why, wanted)?;
        self.engine.fail(run, &mut self.publisher)
    }

    /// Determines whether the pool has work, as the last worker that arrived at the barrier, and
    /// releases the other workers if it has. Returns a task that can be run, if one was found.
    pub fn judge(
        &mut self,
        seat: &mut Seat<'_, M>,
        ticket: &Ticket,
        name: impl Fn(Task<M>) -> String,
    ) -> Result<Judged<M>, PoolError> {
        let verdict = judge(self.layout, self.hand, || seat.still(ticket), name)?;
        Ok(match verdict {
            Verdict::Work | Verdict::Ended => {
                // The judge may have seen a job that is not listed.
                self.version = None;
                seat.release(ticket);
                Judged::GoOn
            }
            Verdict::Runnable(found) => {
                self.lookout.keep(found);
                let run = self.start_found()?;
                seat.release(ticket);
                run.map_or(Judged::GoOn, Judged::Run)
            }
            Verdict::Void => Judged::GoOn,
            Verdict::Idle => Judged::Idle,
        })
    }

    /// Frees memory that is no longer reachable, after a release of the barrier.
    pub fn tidy(&mut self) -> Result<(), PoolError> {
        self.engine.end_of_phase()?;
        // A thief that ran a task of this slot may have given it ports for a result.
        self.ported |= self.engine.take_refused();
        if self.ported {
            self.ported = self.free_ports()?;
        }
        Ok(())
    }

    /// Frees the ports of tasks that are over. Returns whether other ports remain.
    fn free_ports(&mut self) -> Result<bool, PoolError> {
        let (layout, hand) = (self.layout, self.hand);
        let quiets = layout.quiets();
        let mut left = false;
        let chunk = layout.slots.settings().chunk;
        supply::each(layout.memory, self.engine.slot(), chunk, |task| {
            if task.inputs() == 0 {
                return Ok(());
            }
            if !task.status()?.state().is_over() {
                left = true;
                return Ok(());
            }
            // A task that was given up while it waited stays in the lists of its cells.
            let hangs = |ports: Ports<M>| -> Result<bool, EngineError> {
                Ok(task.status()?.is_given_up() && ports.hang())
            };
            match ports_of(layout.memory, task) {
                Some(ports) if !ports.can_go(quiets) || hangs(ports)? => left = true,
                Some(ports) => {
                    ports.clear(hand.heap)?;
                    hand.heap.free_from(task.inputs_at(), 0)?;
                }
                None => free_unwritten(hand.heap, task)?,
            }
            Ok::<(), PoolError>(())
        })?;
        Ok(left)
    }
}

/// Returns a value that tells a list of jobs from others regardless of their order: the sum of
/// their hashed numbers.
fn fingerprint<M: Memory>(jobs: impl Iterator<Item = Record<M>>) -> u64 {
    jobs.fold(0, |sum, job| {
        let number = job
            .number()
            .wrapping_add(1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        sum.wrapping_add((number ^ number >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93))
    })
}

/// The result of a judgement.
#[derive(Debug)]
pub enum Judged<M: Memory> {
    /// There may be work: the worker searches again.
    GoOn,
    /// The worker must run this task.
    Run(Running<M>),
    /// There is no work for any worker: wait.
    Idle,
}

/// Returns the arrival's ticket, and whether it was the last.
pub fn ticket_of(arrival: Arrival) -> (Ticket, bool) {
    match arrival {
        Arrival::Last(ticket) => (ticket, true),
        Arrival::Waiting(ticket) => (ticket, false),
    }
}
