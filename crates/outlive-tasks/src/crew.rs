//! One worker's part in a pool: where it finds tasks, what their commits publish, and what it does at the barrier.
//!
//! It runs no functions: [`worker`](crate::worker) does, and so do the proofs, over other memories.

use crate::desk::Desk;
use crate::jobs::{JobState, Record, Root};
use crate::judge::{Verdict, judge};
use crate::layout::{DESKS_IN_ALL, Hand, Layout};
use crate::lookout::Lookout;
use crate::names::Ports;
use crate::{Batch, Engine, EngineError, Hooks, PoolError, Running, Task, supply};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::sync::{Arrival, Seat, Ticket};

/// What a task's commit does besides: outputs, and children that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publisher<'h, M: Memory = Native> {
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

    /// The [lookout](crate::lookout) does, and the [judge](crate::judge).
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
        // Whoever had it fail has said why, unless he died before.
        let why = "a task failed, and its worker died before it said why";
        let job = self.job(task);
        self.layout.fail_job(self.hand, job, why)?;
        Ok(())
    }
}

/// A worker of a pool.
#[derive(Debug)]
pub(crate) struct Crew<'w, M: Memory = Native> {
    pub layout: Layout<M>,
    pub hand: Hand<'w, M>,
    pub engine: Engine<'w, M>,
    publisher: Publisher<'w, M>,
    /// The jobs that are not over, as of a version of the list.
    jobs: Vec<Record<M>>,
    version: Option<u64>,
    /// What tells that list from others.
    listed: u64,
    /// Whether descriptors of the slot may have ports to be freed.
    ported: bool,
    pub lookout: Lookout,
    /// Wrong: starts what waits without a note. For the proofs that see it.
    pub forgets_to_note: bool,
}

impl<'w, M: Memory> Crew<'w, M> {
    /// A worker of the first slot that can be had.
    pub fn claim(layout: Layout<M>, hand: Hand<'w, M>) -> Result<Self, PoolError> {
        let (heap, recoverers) = (hand.heap, hand.recoverers);
        let hooks = &mut Publisher { layout, hand };
        let engine = Engine::claim(layout.slots, heap, recoverers, hooks)?;
        Ok(Self::of(layout, hand, engine))
    }

    /// A worker besides those whom the pool wants.
    pub fn claim_as_guest(layout: Layout<M>, hand: Hand<'w, M>) -> Result<Self, PoolError> {
        // Beyond the places of those whom the pool wants: else it would have one of these, and the last of them another.
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
            forgets_to_note: false,
        }
    }

    /// The next task: from a deque, of a dead worker, the root of a job, or one that waits and need not.
    pub fn find(&mut self) -> Result<Option<Running<M>>, PoolError> {
        if let Some(run) = self.find_ready()? {
            return Ok(Some(run));
        }
        self.find_waiting()
    }

    /// The same but for those that wait.
    pub fn find_ready(&mut self) -> Result<Option<Running<M>>, PoolError> {
        if let Some(run) = self.engine.next(&mut self.publisher)? {
            return Ok(Some(run));
        }
        self.find_root()
    }

    /// One that waits and need not. The worker has nothing else to do.
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

    /// The first of those that the lookout has in mind that nobody else has begun.
    fn start_found(&mut self) -> Result<Option<Running<M>>, PoolError> {
        while let Some((at, life)) = self.lookout.next() {
            let task = Task::new(self.layout.memory, at);
            let run = match self.forgets_to_note {
                true => self.engine.start_waiting_unnoted(task, life)?,
                false => self.engine.start_waiting(task, life)?,
            };
            if run.is_some() {
                return Ok(run);
            }
        }
        Ok(None)
    }

    #[inline(never)]
    fn find_root(&mut self) -> Result<Option<Running<M>>, PoolError> {
        // Before the version is read: a job of the list is removed after that was raised, and is a job to us until then.
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

    /// The job of a task.
    pub fn job(&self, run: &Running<M>) -> Record<M> {
        Record::at(self.layout.memory, Offset::from_raw(run.job()))
    }

    /// Whether jobs have come that were not in the list.
    pub fn has_news(&mut self) -> bool {
        if self.version != Some(self.layout.version()) {
            return true;
        }
        // They are walked, not asked for: who submits may die before he has counted his job. Their numbers are looked at, not
        // how many there are: who removes one raises the version before it is gone.
        let _pin = self.hand.heap.pin();
        let there = fingerprint(self.layout.all_jobs(self.hand).into_iter());
        if there != self.listed {
            self.version = None;
        }
        there != self.listed
    }

    /// Notes that descriptors of the slot have ports.
    pub fn has_ports(&mut self) {
        self.ported = true;
    }

    /// Clears what attempts of `run` that died or failed have written.
    pub fn begin(&mut self, run: &Running<M>) -> Result<(), PoolError> {
        match self.publisher.ports(run.task()) {
            Some(ports) => ports.clear(self.hand.heap)?,
            None => free_unwritten(self.hand.heap, run.task())?,
        }
        Ok(())
    }

    /// The task takes effect.
    pub fn complete(&mut self, run: &mut Running<M>) -> Result<(), PoolError> {
        self.engine.complete(run, &mut self.publisher)
    }

    /// The task has failed for good; for want of so many bytes, if that was why.
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

    /// As the last to arrive: judges, and releases the others if there is something to do. A task that can be run is
    /// returned.
    pub fn judge(
        &mut self,
        seat: &mut Seat<'_, M>,
        ticket: &Ticket,
        name: impl Fn(Task<M>) -> String,
    ) -> Result<Judged<M>, PoolError> {
        let verdict = judge(self.layout, self.hand, || seat.still(ticket), name)?;
        Ok(match verdict {
            Verdict::Work | Verdict::Ended => {
                // The judge may have seen a job that is not in the list.
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

    /// Frees what nobody can come by any more: after a release of the barrier.
    pub fn tidy(&mut self) -> Result<(), PoolError> {
        self.engine.end_of_phase()?;
        // A thief may have written a result.
        self.ported |= self.engine.take_refused();
        if self.ported {
            self.ported = self.free_ports()?;
        }
        Ok(())
    }

    /// Frees the ports of tasks that are over; whether there are others.
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
            // One that was given up while it waited stays in the lists that it is in.
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

/// What tells a list of jobs from others, in whatever order they come: a sum of their numbers, scattered.
fn fingerprint<M: Memory>(jobs: impl Iterator<Item = Record<M>>) -> u64 {
    jobs.fold(0, |sum, job| {
        let number = job
            .number()
            .wrapping_add(1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        sum.wrapping_add((number ^ number >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93))
    })
}

/// In the word of a task's outputs: its ports are written. Before, their block holds anything.
pub(crate) const WRITTEN: u64 = 1;

/// The ports of a task, if it has any and they are written.
#[inline]
pub(crate) fn ports_of<M: Memory>(memory: M, task: Task<M>) -> Option<Ports<M>> {
    let word = task.inputs();
    (word != 0 && task.outputs() == WRITTEN).then(|| Ports::at(memory, Offset::from_raw(word)))
}

/// Frees the block of ports that were never written: whoever allocated it died.
fn free_unwritten<M: Memory>(heap: &LocalHeap<'_, M>, task: Task<M>) -> Result<(), PoolError> {
    if task.inputs() != 0 && task.outputs() != WRITTEN {
        heap.free_from(task.inputs_at(), 0)?;
    }
    Ok(())
}

/// Allocates and writes the ports of a task that nobody else knows, and that has none.
///
/// # Crash
/// The block is the task's; it is known whether it is written.
pub(crate) fn give_ports<M: Memory>(
    hand: Hand<'_, M>,
    task: Task<M>,
    inputs: &[Offset],
    outputs: &[Offset],
) -> Result<Ports<M>, EngineError> {
    let memory = hand.heap.memory();
    // A descriptor whose ports were freed says so still.
    memory.store(task.outputs_at(), 0u64, Ordering::Relaxed);
    let bytes = Ports::<M>::bytes(inputs.len(), outputs.len());
    // Release, by the allocation: after that store.
    let at = hand.heap.allocate_into(bytes, task.inputs_at())?;
    let ports = Ports::write(memory, at, task.offset().raw(), inputs, outputs);
    ports.set_life(task.status()?.sequence());
    // Release: what was written.
    memory.store(task.outputs_at(), WRITTEN, Ordering::Release);
    Ok(ports)
}

/// The same by names: cells that stay cells, with an output more for the job's result. Any number of times.
///
/// # Crash
/// As [`give_ports`].
pub(crate) fn give_named_ports<M: Memory>(
    layout: Layout<M>,
    hand: Hand<'_, M>,
    task: Task<M>,
    reads: &[Vec<u8>],
    writes: &[Vec<u8>],
) -> Result<(), EngineError> {
    // Until the ports have them, the cells stay cells; then it is seen whether they are still.
    let _pin = hand.heap.pin();
    let cells = || -> Result<(Vec<Offset>, Vec<Offset>), EngineError> {
        let cell = |key: &Vec<u8>| Ok(layout.names.cell(hand.heap, key)?.offset());
        let of = |keys: &[Vec<u8>]| {
            keys.iter()
                .map(cell)
                .collect::<Result<Vec<_>, EngineError>>()
        };
        let mut outputs = of(writes)?;
        outputs.push(Offset::from_raw(0));
        Ok((of(reads)?, outputs))
    };
    let (mut inputs, mut outputs) = cells()?;
    loop {
        let ports = match ports_of(layout.memory, task) {
            None => give_ports(hand, task, &inputs, &outputs)?,
            Some(ports) => ports.rewrite(task.offset().raw(), &inputs, &outputs),
        };
        if ports.keep() {
            return Ok(());
        }
        // What a name had is being removed: then it leads to another cell. If who does so is dead, it is done here.
        while cells()? == (inputs.clone(), outputs.clone()) {
            settle_removals(layout, hand)?;
            layout.memory.spin_hint();
        }
        (inputs, outputs) = cells()?;
    }
}

/// Brings to their end the removals of the dead, who hold up whoever names what they removed.
fn settle_removals<M: Memory>(layout: Layout<M>, hand: Hand<'_, M>) -> Result<(), EngineError> {
    match Desk::settle_those_of_the_gone(layout, hand) {
        Err(PoolError::Engine(error)) => Err(error),
        Err(PoolError::Free(error)) => Err(error.into()),
        Err(PoolError::Recover(error)) => Err(error.into()),
        Err(PoolError::Full(error)) => Err(error.into()),
        // Nothing else is done there.
        _ => Ok(()),
    }
}

/// What came of a judgement.
#[derive(Debug)]
pub(crate) enum Judged<M: Memory> {
    /// There may be something to find.
    GoOn,
    /// This is to be run.
    Run(Running<M>),
    /// Nothing is to be done by anybody: wait.
    Idle,
}

/// Every task that has ports, written or not.
fn ported<M: Memory>(layout: Layout<M>) -> Result<Vec<Task<M>>, PoolError> {
    let mut all = Vec::new();
    for number in 0..layout.slots.used() {
        let slot = layout.slots.slot(number);
        let chunk = layout.slots.settings().chunk;
        supply::each(layout.memory, slot, chunk, |task| {
            // A descriptor that was never used has no inputs.
            if task.inputs() != 0 {
                all.push(task);
            }
            Ok::<(), PoolError>(())
        })?;
    }
    Ok(all)
}

/// Every block of the heap that the pool consists of; while nobody works.
pub(crate) fn blocks_of<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
) -> Result<Vec<Offset>, PoolError> {
    let mut blocks = vec![layout.at, layout.text_block()];
    blocks.extend(layout.names.blocks(heap));
    blocks.extend(layout.jobs.blocks());
    blocks.extend(layout.errors.blocks());
    blocks.extend(layout.slots.blocks()?);
    for task in ported(layout)? {
        match ports_of(layout.memory, task) {
            Some(ports) => blocks.extend(ports.blocks()),
            None => blocks.push(Offset::from_raw(task.inputs())),
        }
    }
    for number in 0..layout.roots {
        let root = Root::of(layout, number);
        blocks.extend(root.blocks()?);
        let task = root.task();
        let block: u64 = layout.memory.load(task.block_at(), Ordering::Relaxed);
        if block != 0 {
            blocks.push(Offset::from_raw(block));
        }
    }
    blocks.extend(Ports::abandoned(layout.memory, layout.abandoned_at()));
    for number in 0..DESKS_IN_ALL {
        blocks.extend(Desk::at(layout, number).block(heap));
    }
    Ok(blocks)
}

/// Frees the ports of all tasks in the slots' descriptors, and what hangs on the roots'. For the last who uses the pool, any
/// number of times.
pub(crate) fn free_all_ports<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
) -> Result<(), PoolError> {
    for task in ported(layout)? {
        if let Some(ports) = ports_of(layout.memory, task) {
            ports.clear(heap)?;
        }
        heap.free_from(task.inputs_at(), 0)?;
    }
    for number in 0..layout.roots {
        Root::of(layout, number).dismantle(heap)?;
    }
    Ok(Ports::free_abandoned(heap, layout.abandoned_at())?)
}

/// Whether the arrival was the last, and by which ticket.
pub(crate) fn ticket_of(arrival: Arrival) -> (Ticket, bool) {
    match arrival {
        Arrival::Last(ticket) => (ticket, true),
        Arrival::Waiting(ticket) => (ticket, false),
    }
}
