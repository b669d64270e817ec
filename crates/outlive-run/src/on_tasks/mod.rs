//! Programs of tasks, as a driver runs them and hosts execute them: a pool of workers in the pod,
//! and a job for each round.
//!
//! Such a program is a [`TaskProgram`]: the data that it puts into the pod, the task that its first
//! job begins with, and the way its result is read. Everything else is common to all of them and is
//! done here.
//!
//! * The *driver* creates the pool and the [`Record`], lets the program put its data there, submits
//!   the job of round 0 and waits. While it waits, it checks whether the run is cancelled. When a
//!   job is complete and has created no [next round](next_round), the run is done. The driver then
//!   sets the wanted number of workers to 0, and hosts end.
//! * A *worker* of a host works in the pool ([`PoolWork`]), without knowing which program it is.
//! * A *task* does a unit of work in [`unit()`], which records the unit for its worker, and halts
//!   before the commit if the host is to be killed there. A task that has more than its share of
//!   the work spawns others ([`spread`]).
//!
//! ```
//! use outlive::heap::LocalHeap;
//! use outlive_tasks::{PoolError, WorkerPool, task};
//! use outlive_run::host::HostError;
//! use outlive_run::on_tasks::{Ended, PoolOf, TaskProgram, spread, unit};
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

/// The number and the name by which workers find a program of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOf {
    /// The number of the program in the pod, different for each program, 16 or more.
    pub number: u64,
    /// The name of the program, and of its pool.
    pub name: &'static str,
}

/// A program of tasks with its input.
pub trait TaskProgram: Sync {
    /// The result of the program.
    type Result;

    /// The identity of the program for workers.
    const POOL: PoolOf;

    /// The name of round 0 for the progress, if its tasks do no [unit](unit()) but one [step] for
    /// each unit. The name of the other rounds is [`phase`](Self::phase).
    const FIRST_PHASE: Option<&'static str> = None;

    /// Checks the input, before anything is created.
    ///
    /// # Errors
    /// [`RunError::Impossible`], as a rule.
    fn check(&self) -> Result<(), RunError> {
        Ok(())
    }

    /// Returns the name of the program's phase for the progress, in one word.
    fn phase(&self) -> &'static str;

    /// Returns the number of units over which kills are spread: all units, or a number that every
    /// run reaches.
    fn units(&self) -> u64;

    /// Returns the total number of units if round `last` is the last one.
    fn units_until(&self, last: u64) -> u64 {
        let _ = last;
        self.units()
    }

    /// Returns the maximum number of rounds.
    fn rounds(&self) -> u64 {
        1
    }

    /// Returns the likely number of rounds for the progress. If it is 1, the progress counts units.
    fn likely_rounds(&self) -> u64 {
        self.rounds()
    }

    /// Returns the sizes in bytes of the blocks that it [puts](Self::put) into the pod, and of
    /// those that its tasks allocate. Many small blocks may be given as a few with the same total
    /// size.
    fn data_bytes(&self) -> Vec<u64>;

    /// Returns the number of bytes of heap that its data and its tasks' allocations take, with
    /// `places` for workers: by default, computed from [`data_bytes`](Self::data_bytes).
    ///
    /// # Errors
    /// If an input cannot be read, on which the number depends.
    fn room(&self, order: &Order, places: u32) -> Result<u64, RunError> {
        let _ = (order, places);
        // Whole blocks of powers of two. The buddy allocator takes the smallest free block that is
        // large enough, so it never has two free blocks of a size, and the initial blocks suffice
        // as long as the total does: earlier allocations waste none of them. A little is added for
        // small allocations that are not in the estimate.
        let whole = |bytes: u64| (bytes + BYTES_OF_A_NAME).next_power_of_two();
        let data: Vec<u64> = self.data_bytes().into_iter().map(whole).collect();
        let more = data.iter().max().map_or(0, |largest| largest / 4).min(MORE);
        Ok(data.iter().sum::<u64>() + more)
    }

    /// Returns the number of bytes, as [`room`](Self::room) does, after a segment was too small:
    /// see [`Program::heap_bytes_counted`].
    ///
    /// # Errors
    /// If an input cannot be read, on which the number depends.
    fn room_counted(
        &self,
        order: &Order,
        places: u32,
        stop: &Stop,
    ) -> Result<Option<u64>, RunError> {
        let _ = (order, places, stop);
        Ok(None)
    }

    /// Puts the program's data into the pool, the largest block first.
    ///
    /// # Errors
    /// If there is no free space.
    fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError>;

    /// Puts the inputs that hosts cannot read by a path into the pool, after its [data](Self::put).
    ///
    /// # Errors
    /// If there is no free space, or an input cannot be read.
    fn put_copies(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), HostError> {
        let _ = (pool, heap);
        Ok(())
    }

    /// Returns the task with which round 0 begins.
    fn begin(&self) -> Call;

    /// Does the driver's work after the job of a round is complete, while hosts continue with the
    /// next round if that was [created](next_round). If it was not, the returned task begins one.
    ///
    /// Work that may wait for others, a reader for example, has to check while it waits whether the
    /// run `goes_on`: a failure is reported only after this returns.
    ///
    /// # Errors
    /// If the run cannot continue; [`RunError::Interrupted`] if `goes_on` returned false.
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

    /// Returns the error that explains why tasks cancelled the run.
    fn explain(&self, why: CalledOff) -> RunError {
        RunError::CalledOff(why)
    }

    /// Reads the result after all rounds are complete.
    ///
    /// # Errors
    /// If the result cannot be read.
    fn result(
        &self,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        ended: &Ended,
    ) -> Result<Self::Result, HostError>;
}

/// The outcome of the job that ended last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The number of the job's round, from 0.
    pub round: u64,
    /// The [result](outlive_tasks::Context::result) of the job; empty if it has none.
    pub said: Vec<u8>,
}

impl Ended {
    /// Returns the result of the job as a value.
    ///
    /// # Errors
    /// If its size is not that of `T`.
    pub fn said<T: bytemuck::Pod>(&self) -> Result<T, HostError> {
        bytemuck::try_pod_read_unaligned(&self.said).map_err(|_| HostError::NoRun)
    }
}

/// The time for which the driver waits for a job between two checks of the run.
const LOOK: Duration = Duration::from_millis(20);
/// Additional places, for workers whose predecessors' ids are not retired yet.
const SPARE_PLACES: u32 = 16;
/// The maximum number of workers of a run.
const MOST_WORKERS: u32 = 4094 - SPARE_PLACES;
/// The heap that a worker needs for its tasks, and the pool in addition.
const BYTES_OF_A_WORKER: u64 = 512 << 10;
const BYTES_OF_A_POOL: u64 = 4 << 20;
/// The maximum that is added to the estimate.
const MORE: u64 = 4 << 20;
/// The heap that a round keeps allocated: its job.
const BYTES_OF_A_JOB: u64 = 1 << 10;
/// The number of bytes before the data in a named block.
pub const BYTES_OF_A_NAME: u64 = 64;

/// The number of workers that may die in one task, in addition to one for each kill of the run.
const CRASH_LIMIT: u32 = 5;

/// Returns the name of the job of a round.
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

/// Returns the number of places for workers.
fn places(order: &Order) -> u32 {
    order.crew.workers() + SPARE_PLACES
}

/// Returns the options of the pool.
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
        // Without spares, the pool takes all workers that come.
        (None, 0) => options,
        // With spares, the pool keeps this number of workers.
        (None, _) => as_hosts_have,
    }
}

/// Returns the number of bytes of heap that the pool and the record take.
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
                // The creator of the run reports the size to ask for.
                run.header().call_off(CalledOff::Full(bytes));
            }
            RunError::from(HostError::from(error))
        })
    };
    let mut suspects = Suspects::new(run.record(), pool);
    let mut overseer = Overseer::new(run.record(), pool, attendant);
    let (mut waited, mut round) = (submit(0, program.begin())?, 0);
    // Checked in each round: rounds that follow each other quickly never time out.
    while !over.is_stopped() && run.header().called_off().is_none() {
        suspects.look(heap.member().generations());
        overseer.look()?;
        match waited.wait(Some(LOOK)) {
            Ok(_) => {}
            Err(JobError::TimedOut { .. }) => continue,
            Err(error) => return Err(error.into()),
        }
        // A job that another one follows has created its successor.
        let created = pool.job(heap, &job(round + 1));
        let has_failed = || matches!(created, Some(next) if next.state() == JobState::Failed);
        let called_off = || run.header().called_off().is_some();
        // When no work is left, no worker has to live.
        let deserted = || created.is_some() && over.is_stopped();
        let goes_on = || !(has_failed() || called_off() || deserted());
        let call = match program.completed(round, pool, heap, &goes_on) {
            // The reason why it does not continue is known here, or to the driver.
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
                what: "the number of workers",
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
        // Before the pool: a process that finds the pool then finds its header too.
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
        // Whether it is done or not, no worker may continue.
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
