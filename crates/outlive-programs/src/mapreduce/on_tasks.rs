//! A reduction in the form that the driver runs.

use super::OnTasks;
use super::run::{LARGEST_UNIT, Plan, Run};
use super::tasks::{LOAD, REDUCE, RUN, Totals};
use crate::mapreduce::size;
use crate::wordcount;
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Offset};
use outlive::structures::CreateError;
use outlive::supervise::Stop;
use outlive_run::driver::{Order, RunError};
use outlive_run::header::CalledOff;
use outlive_run::host::HostError;
use outlive_run::input::{InputError, Inputs};
use outlive_run::on_tasks::{Ended, PoolOf, TaskProgram};
use outlive_tasks::{Call, PoolError, WorkerPool};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A MapReduce program and its input.
#[derive(Clone, Debug)]
pub struct MapReduction<P> {
    program: P,
    inputs: Inputs,
    unit: Option<u64>,
    workers: u32,
    seed: u64,
}

/// The result: every key with its total, by falling total, then by key.
pub type Counts = Vec<(Vec<u8>, u64)>;

impl<P> MapReduction<P> {
    /// Creates a reduction of `inputs` by `program`, for one worker.
    pub fn new(program: P, inputs: Inputs) -> Self {
        Self {
            program,
            inputs,
            unit: None,
            workers: 1,
            seed: 0,
        }
    }

    /// Sets the maximum size of a unit in bytes, 1 to [`LARGEST_UNIT`]. By default it is chosen
    /// from the size of the input and the number of workers.
    #[must_use]
    pub fn unit(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.unit = bytes.into();
        self
    }

    /// Sets the number of workers from which the size of units and the number of parts follow.
    /// Additional workers may join.
    #[must_use]
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// Sets the seed of the keys' hashes.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Returns the inputs.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// Returns the name of a file.
    fn name(&self, file: u32) -> PathBuf {
        let file = self.inputs.files().get(file as usize);
        file.map_or_else(PathBuf::new, |file| file.name().into())
    }
}

impl<P: OnTasks> MapReduction<P> {
    /// Returns the plan for `places` worker places.
    fn plan(&self, places: u32) -> Plan {
        let best = || Plan::unit_for(self.inputs.bytes(), self.workers);
        Plan {
            inputs: self.inputs.clone(),
            program: self.program.number(),
            workers: self.workers,
            places,
            unit: self.unit.unwrap_or_else(best),
            seed: self.seed,
        }
    }

    fn run(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<Run, HostError> {
        let data = pool.data(heap, RUN).ok_or(HostError::NoRun)?;
        let run = Run::open(heap.memory(), data.start(), data.len());
        run.ok_or(HostError::NoRun)
    }
}

impl<P: OnTasks> TaskProgram for MapReduction<P> {
    type Result = Counts;

    const POOL: PoolOf = P::POOL;
    const FIRST_PHASE: Option<&'static str> = Some("reading");

    fn check(&self) -> Result<(), RunError> {
        let asked = self.unit.unwrap_or(1);
        match (1..=LARGEST_UNIT).contains(&asked) {
            true => Ok(()),
            false => Err(RunError::Impossible {
                what: "the size of a unit",
                asked,
                least: 1,
                most: LARGEST_UNIT,
            }),
        }
    }

    fn phase(&self) -> &'static str {
        "mapping"
    }

    fn units(&self) -> u64 {
        self.plan(0).count()
    }

    fn rounds(&self) -> u64 {
        REDUCE + 1
    }

    fn likely_rounds(&self) -> u64 {
        // Units say more.
        1
    }

    fn data_bytes(&self) -> Vec<u64> {
        vec![self.plan(self.workers).bytes()]
    }

    fn room(&self, order: &Order, places: u32) -> Result<u64, RunError> {
        let keys = size::estimate(&self.inputs, &self.program)?;
        Ok(size::heap_bytes(
            &self.plan(places),
            order.crew.workers(),
            keys,
        ))
    }

    fn room_counted(
        &self,
        order: &Order,
        places: u32,
        stop: &Stop,
    ) -> Result<Option<u64>, RunError> {
        let keys = size::count(&self.inputs, &self.program, || !stop.is_stopped())?;
        let room = |keys| size::heap_bytes(&self.plan(places), order.crew.workers(), keys);
        Ok(keys.map(room))
    }

    fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError> {
        let plan = self.plan(pool.capacity());
        pool.put(heap, RUN, &vec![0; plan.bytes() as usize])?;
        // Nothing reads the data before the first job is submitted.
        let data = pool.data(heap, RUN);
        let run = data.and_then(|data| Run::create(&plan, heap.memory(), data.start(), data.len()));
        let run = run.ok_or(PoolError::Damaged {
            at: Offset::from_raw(0),
            what: "data that were just stored do not exist",
        })?;
        Totals::create_seeded(heap, run.totals_cell(), plan.seed)?;
        Ok(())
    }

    fn put_copies(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), HostError> {
        let (run, plan) = (self.run(pool, heap)?, self.plan(pool.capacity()));
        let mut text = Vec::new();
        for (index, unit) in (0..).zip(plan.units()) {
            let file = &self.inputs.files()[unit.file as usize];
            let Some(copied) = &file.copied else { continue };
            text.resize(unit.len as usize, 0);
            let read = copied.file().read_exact_at(&mut text, unit.from);
            read.map_err(|source| InputError::Unreadable {
                path: file.name().into(),
                source,
            })?;
            let (_, cell) = run.unit(index);
            let at = heap.allocate_into(unit.len.into(), cell)?;
            run.memory().copy_in(at, &text);
        }
        Ok(())
    }

    fn begin(&self) -> Call {
        P::phase(LOAD)
    }

    fn explain(&self, why: CalledOff) -> RunError {
        match why {
            CalledOff::Changed(file) => RunError::Changed {
                path: self.name(file),
            },
            CalledOff::TooLong(index) => {
                let unit = self.plan(0).units().nth(index as usize);
                unit.map_or(RunError::CalledOff(why), |unit| RunError::TooLong {
                    path: self.name(unit.file),
                    at: unit.from,
                })
            }
            other => RunError::CalledOff(other),
        }
    }

    fn result(
        &self,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        _: &Ended,
    ) -> Result<Counts, HostError> {
        let run = self.run(pool, heap)?;
        let totals = Totals::open(run.memory(), run.totals()).map_err(CreateError::from)?;
        let mut totals: Counts = totals.iter(heap).collect();
        let first = run.first_byte();
        totals.extend(first.and_then(|first| self.program.at_start(first)));
        wordcount::sort(&mut totals);
        Ok(totals)
    }
}
