//! Programs of tasks as a driver runs them and as hosts do them: a pool of workers in the pod, and a job for each round.
//!
//! Such a program is a [`TaskProgram`]: what it puts into the pod, the task that its first job begins with, and how its
//! result is read. All the rest is the same for all of them and is done here.
//!
//! * The *driver* makes the pool and the [`Record`], lets the program put its data there, submits the job of round 0 and
//!   waits, and looks meanwhile whether the run is called off. When a job is complete and no
//!   [next round](next_round) was created by it, all is done. Then the pool wants no workers, and hosts end.
//! * A *worker* of a host works in the pool ([`PoolWork`]), without knowing which program it is.
//! * A *task* that does a unit of the work does it in [`unit()`], which notes who is about what, and where hosts are killed that are
//!   to be killed: right before the commit. A task that has more than its part of the work spawns others ([`spread`]).
//!
//! ```
//! use outlive::heap::LocalHeap;
//! use outlive_tasks::{PoolError, WorkerPool, task};
//! use outlive_workloads::host::HostError;
//! use outlive_workloads::on_tasks::{Ended, PoolOf, TaskProgram, spread, unit};
//!
//! /// The squares of the numbers below `numbers`.
//! struct Squares {
//!     numbers: u64,
//! }
//!
//! task! {
//!     fn squares(context, from: u64, to: u64) {
//!         if to - from > 100 {
//!             return spread(context, from..to, 100, |part| squares(part.start, part.end));
//!         }
//!         // Units are numbered as the program likes.
//!         unit(context, from / 100, || {
//!             let all = context.array::<u64>("squares")?;
//!             (from..to).for_each(|number| all.set(number as usize, number * number));
//!             Ok(())
//!         })
//!     }
//! }
//!
//! impl TaskProgram for Squares {
//!     type Result = Vec<u64>;
//!     const POOL: PoolOf = PoolOf { number: 1000, name: "squares" };
//!
//!     fn phase(&self) -> &'static str {
//!         "squaring"
//!     }
//!
//!     fn units(&self) -> u64 {
//!         self.numbers.div_ceil(100)
//!     }
//!
//!     fn data_bytes(&self) -> Vec<u64> {
//!         vec![self.numbers * 8]
//!     }
//!
//!     fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError> {
//!         let len = self.numbers as usize;
//!         pool.put_array(heap, "squares", len, |all| all.fill(0..len, 0u64)).map(drop)
//!     }
//!
//!     fn begin(&self) -> outlive_tasks::Call {
//!         squares(0, self.numbers)
//!     }
//!
//!     fn result(
//!         &self,
//!         pool: &WorkerPool,
//!         heap: &LocalHeap<'_>,
//!         _: &Ended,
//!     ) -> Result<Vec<u64>, HostError> {
//!         Ok(pool.array(heap, "squares").ok_or(HostError::NoRun)?.to_vec())
//!     }
//! }
//! ```

mod overdue;
mod record;
mod suspects;
mod work;

pub use record::{Record, TaskRun};
pub use work::{PoolWork, damaged, next_round, round, spread, step, unit};

use crate::driver::{Attendant, Elastic, Order, Program, RunError, Running, Stage};
use crate::header::{Beginning, CalledOff};
use crate::host::HostError;
use outlive::heap::LocalHeap;
use outlive::memory::Memory;
use outlive::pod::Pod;
use outlive::supervise::Stop;
use outlive_tasks::{Call, JobError, JobState, Options, PoolError, WorkerPool};
use overdue::Overseer;
use std::time::Duration;
use suspects::Suspects;

/// By what workers know a program of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOf {
    /// The number that stands in the pod: one of its own for each program, 16 or more.
    pub number: u64,
    /// What it is called; so is its pool.
    pub name: &'static str,
}

/// A program of tasks, and what it works on.
pub trait TaskProgram: Sync {
    /// What comes of it.
    type Result;

    /// By what workers know it.
    const POOL: PoolOf;

    /// What round 0 does, for the progress, if its tasks do no [unit](unit()) but take a [step] for each of as many. The
    /// others do what [`phase`](Self::phase) says.
    const FIRST_PHASE: Option<&'static str> = None;

    /// Refuses what cannot be. Asked before anything is made.
    ///
    /// # Errors
    /// [`RunError::Impossible`], as a rule.
    fn check(&self) -> Result<(), RunError> {
        Ok(())
    }

    /// What it does, in one word, for the progress.
    fn phase(&self) -> &'static str;

    /// Over how many units the kills are spread: all of them, or as many as are surely there.
    fn units(&self) -> u64;

    /// How many units there are in all if round `last` is the last one.
    fn units_until(&self, last: u64) -> u64 {
        let _ = last;
        self.units()
    }

    /// How many rounds there are at most.
    fn rounds(&self) -> u64 {
        1
    }

    /// How many there are likely, for the progress. Where there is one, the progress counts units.
    fn likely_rounds(&self) -> u64 {
        self.rounds()
    }

    /// How many bytes each of the blocks has that it [puts](Self::put) into the pod, and each of those that its tasks allocate:
    /// where there are many of these, as few blocks with as many bytes.
    fn data_bytes(&self) -> Vec<u64>;

    /// How many bytes of a heap its data and what its tasks allocate take, where there are `places` for workers: by default, what
    /// [`data_bytes`](Self::data_bytes) say.
    ///
    /// # Errors
    /// If that cannot be known: an input cannot be read.
    fn room(&self, order: &Order, places: u32) -> Result<u64, RunError> {
        let _ = (order, places);
        // Whole blocks of powers of two. The buddy allocator takes the smallest free block that is large enough, so it never has two
        // of a size, and blocks that were there from the start are found as long as there is room for all: none is lost by
        // what comes before them. A little more, for what is not estimated.
        let whole = |bytes: u64| (bytes + BYTES_OF_A_NAME).next_power_of_two();
        let data: Vec<u64> = self.data_bytes().into_iter().map(whole).collect();
        let more = data.iter().max().map_or(0, |largest| largest / 4).min(MORE);
        Ok(data.iter().sum::<u64>() + more)
    }

    /// The same, now that a segment was too small: see [`Program::heap_bytes_counted`].
    ///
    /// # Errors
    /// If that cannot be known: an input cannot be read.
    fn room_counted(
        &self,
        order: &Order,
        places: u32,
        stop: &Stop,
    ) -> Result<Option<u64>, RunError> {
        let _ = (order, places, stop);
        Ok(None)
    }

    /// Puts its data into the pool, the largest first.
    ///
    /// # Errors
    /// If there is no room.
    fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError>;

    /// Puts the inputs that hosts cannot read by a path into the pool, after its [data](Self::put).
    ///
    /// # Errors
    /// If there is no free space, or an input cannot be read.
    fn put_copies(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), HostError> {
        let _ = (pool, heap);
        Ok(())
    }

    /// The task with which round 0 begins.
    fn begin(&self) -> Call;

    /// What the driver does when the job of a round is complete, while hosts go on with the next round if that was
    /// [created](next_round). If it was not, the task that is returned begins one.
    ///
    /// What may wait for others, a reader for example, asks meanwhile whether the run `goes_on`: a failure is told when this
    /// returns.
    ///
    /// # Errors
    /// If the run cannot go on; [`RunError::Interrupted`] where it does not.
    fn completed(
        &self,
        round: u64,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Call>, RunError> {
        let _ = (round, pool, heap, goes_on);
        Ok(None)
    }

    /// Why tasks called the run off, for people.
    fn explain(&self, why: CalledOff) -> RunError {
        RunError::CalledOff(why)
    }

    /// What came of it, now that all is done.
    ///
    /// # Errors
    /// If it cannot be read.
    fn result(
        &self,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        ended: &Ended,
    ) -> Result<Self::Result, HostError>;
}

/// How the last job ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The number of its round, from 0.
    pub round: u64,
    /// The [result](outlive_tasks::Context::result) of the job; nothing if it said none.
    pub said: Vec<u8>,
}

impl Ended {
    /// What was said, as a value.
    ///
    /// # Errors
    /// If that has another size.
    pub fn said<T: bytemuck::Pod>(&self) -> Result<T, HostError> {
        bytemuck::try_pod_read_unaligned(&self.said).map_err(|_| HostError::NoRun)
    }
}

/// How long the driver waits for a job before it looks whether it is still to wait.
const LOOK: Duration = Duration::from_millis(20);
/// Places for workers whose predecessors are not buried yet.
const SPARE_PLACES: u32 = 16;
/// How many workers there can be besides.
const MOST_WORKERS: u32 = 4094 - SPARE_PLACES;
/// What a worker needs for its tasks, and what the pool needs besides.
const BYTES_OF_A_WORKER: u64 = 512 << 10;
const BYTES_OF_A_POOL: u64 = 4 << 20;
/// What is added at most to what is estimated.
const MORE: u64 = 4 << 20;
/// What a round leaves in the pool: its job.
const BYTES_OF_A_JOB: u64 = 1 << 10;
/// What stands before data in their block.
pub(crate) const BYTES_OF_A_NAME: u64 = 64;

/// The number of workers that may die in one task, in addition to one for each kill of the run.
const CRASH_LIMIT: u32 = 5;

/// The name of the job of a round.
fn job(round: u64) -> String {
    format!("round {round}")
}

fn beginning<P: TaskProgram>(program: &P, order: &Order) -> Beginning {
    Beginning {
        program: P::POOL.number,
        crew: order.crew,
        kills: order.kills,
        units: program.units(),
    }
}

/// How many places for workers there are.
fn places(order: &Order) -> u32 {
    order.crew.workers() + SPARE_PLACES
}

/// How the pool is made.
fn options_of(order: &Order) -> Options {
    // A kill is not caused by the task.
    let crash_limit = CRASH_LIMIT + order.kills;
    let options = Options::new()
        .capacity(places(order))
        .crash_limit(crash_limit);
    let options = match order.freeze {
        Some(freeze) => options.freeze(freeze),
        None => options,
    };
    let as_hosts_have = options.workers(order.crew.places());
    match (order.elastic, order.crew.spares) {
        (Some(Elastic { least, most, band }), _) => as_hosts_have.elastic(least..=most, band),
        // Whoever comes is welcome.
        (None, 0) => options,
        // With spares it is to have as many workers at any time.
        (None, _) => as_hosts_have,
    }
}

/// How many bytes of a heap the pool and the record take.
fn besides<P: TaskProgram>(program: &P, order: &Order) -> u64 {
    let record = Record::bytes(&beginning(program, order)).next_power_of_two();
    let workers = u64::from(places(order)) * BYTES_OF_A_WORKER;
    record + workers + program.rounds() * BYTES_OF_A_JOB + BYTES_OF_A_POOL
}

/// Submits the first job and waits for the last.
fn wait<P: TaskProgram>(
    program: &P,
    run: &TaskRun<P::Result>,
    pool: &WorkerPool,
    attendant: &Attendant<'_>,
    over: &Stop,
) -> Result<(), RunError> {
    let heap = attendant.heap;
    let submit = |round: u64, call| {
        let submitted = pool.submit(heap, &job(round), call);
        submitted.map_err(|error| {
            if let Some(bytes) = error.wanted() {
                // Whoever began the run says how much room there should be.
                run.header().call_off(CalledOff::Full(bytes));
            }
            RunError::from(HostError::from(error))
        })
    };
    let mut suspects = Suspects::new(run.record(), pool);
    let mut overseer = Overseer::new(run.record(), pool, attendant);
    let (mut waited, mut round) = (submit(0, program.begin())?, 0);
    // Looked at in each round: rounds that follow each other quickly leave no time without one.
    while !over.is_stopped() && run.header().called_off().is_none() {
        suspects.look(heap.member().generations());
        overseer.look()?;
        match waited.wait(Some(LOOK)) {
            Ok(_) => {}
            Err(JobError::TimedOut { .. }) => continue,
            Err(error) => return Err(error.into()),
        }
        // A job that is followed by another one has created that.
        let created = pool.job(heap, &job(round + 1));
        let has_failed = || matches!(created, Some(next) if next.state() == JobState::Failed);
        let called_off = || run.header().called_off().is_some();
        // Where nothing is left to be worked at, nobody has to live for it.
        let deserted = || created.is_some() && over.is_stopped();
        let goes_on = || !(has_failed() || called_off() || deserted());
        let call = match program.completed(round, pool, heap, &goes_on) {
            // Why it does not go on is known here or to the driver.
            Err(RunError::Interrupted) if !goes_on() => match created.filter(|_| has_failed()) {
                Some(failed) => return Ok(failed.wait(Some(Duration::ZERO)).map(drop)?),
                None => return Ok(()),
            },
            completed => completed?,
        };
        let submitted = || call.map(|call| submit(round + 1, call));
        match created.map(Ok).or_else(submitted).transpose()? {
            Some(next) => (waited, round) = (next, round + 1),
            None => {
                run.record().is_through(round, program.units_until(round));
                return Ok(());
            }
        }
    }
    Ok(())
}

impl<P: TaskProgram> Program for P {
    type Running = TaskRun<P::Result>;

    fn heap_bytes(&self, order: &Order) -> Result<u64, RunError> {
        self.check()?;
        if order.crew.workers() > MOST_WORKERS {
            return Err(RunError::Impossible {
                what: "a number of workers",
                asked: order.crew.workers().into(),
                least: 1,
                most: MOST_WORKERS.into(),
            });
        }
        Ok(self.room(order, places(order))? + besides(self, order))
    }

    fn heap_bytes_counted(&self, order: &Order, stop: &Stop) -> Result<Option<u64>, RunError> {
        let room = self.room_counted(order, places(order), stop)?;
        Ok(room.map(|room| room + besides(self, order)))
    }

    fn begin(&self, order: &Order, stage: &Stage<'_>) -> Result<Self::Running, RunError> {
        let beginning = beginning(self, order);
        let memory = stage.pod.segment().memory();
        let bytes = Record::bytes(&beginning);
        let at = stage.blocks.allocate_into(bytes, stage.cell);
        let at = at.map_err(HostError::from)?;
        memory.copy_in(at, &vec![0; bytes as usize]);
        let record = Record::create(memory, at, beginning);
        // Before the pool: whoever finds that sees in the header how to come to it.
        stage.publish(at)?;
        let pool = WorkerPool::create(stage.pod, stage.heap, P::POOL.name, options_of(order));
        let pool = pool.map_err(HostError::from)?;
        let put = self.put(&pool, stage.heap).map_err(HostError::from);
        if let Err(error) = put.and_then(|()| self.put_copies(&pool, stage.heap)) {
            // Workers that have come already must not wait for a run that never begins.
            pool.resize(stage.heap, 0).map_err(HostError::from)?;
            return Err(error.into());
        }
        let phases = (P::FIRST_PHASE, self.phase());
        Ok(TaskRun::new(record, phases, self.likely_rounds()))
    }

    fn attend(
        &self,
        run: &Self::Running,
        attendant: &Attendant<'_>,
        over: &Stop,
    ) -> Result<(), RunError> {
        let pool = WorkerPool::open(attendant.pod, P::POOL.name).map_err(HostError::from)?;
        let waited = wait(self, run, &pool, attendant, over);
        // Done or not, nobody is to work any more.
        let resized = pool.resize(attendant.heap, 0).map_err(HostError::from);
        waited.and(resized.map_err(RunError::from))
    }

    fn explain(&self, _: &Self::Running, why: CalledOff) -> RunError {
        TaskProgram::explain(self, why)
    }

    fn result(
        &self,
        run: &Self::Running,
        pod: &Pod,
        heap: &LocalHeap<'_>,
    ) -> Result<P::Result, HostError> {
        let pool = WorkerPool::open(pod, P::POOL.name)?;
        let round = run.record().last_round().ok_or(HostError::NoRun)?;
        let last = pool.job(heap, &job(round)).ok_or(HostError::NoRun)?;
        let said = last.wait(Some(Duration::ZERO)).unwrap_or_default();
        TaskProgram::result(self, &pool, heap, &Ended { round, said })
    }
}
