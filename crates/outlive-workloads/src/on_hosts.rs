//! MapReduce as a driver runs it and as hosts do it.

use crate::driver::{Order, Program, RunError, Running, Stage, Stretch};
use crate::header::{CalledOff, Header};
use crate::host::{HostError, Post, Work};
use crate::input::{InputError, Inputs};
use crate::mapreduce::{MapReduce, Totals, Worker, results};
use crate::run::{LARGEST_UNIT, Plan, Run};
use crate::size;
use crate::wordcount::{self, WordCount};
use outlive::heap::LocalHeap;
use outlive::pod::Pod;
use outlive::structures::CreateError;
use outlive::supervise::Stop;
use std::error::Error;
use std::io;
use std::path::PathBuf;

/// A program of MapReduce and what it reads.
#[derive(Clone, Debug)]
pub struct OnHosts<P> {
    /// The number by which workers know the program.
    pub number: u64,
    /// The program.
    pub program: P,
    /// What is read.
    pub inputs: Inputs,
    /// How large units are at most; if nobody says, chosen by the inputs.
    pub unit: Option<u64>,
}

impl OnHosts<WordCount> {
    /// The counting of what is in `inputs`.
    pub fn counting(program: WordCount, inputs: Inputs) -> Self {
        Self {
            number: program.number(),
            program,
            inputs,
            unit: None,
        }
    }
}

impl<P: MapReduce> OnHosts<P> {
    fn plan(&self, order: &Order) -> Result<Plan, RunError> {
        let asked = self.unit.unwrap_or(1);
        if !(1..=LARGEST_UNIT).contains(&asked) {
            return Err(RunError::Impossible {
                what: "a size of units",
                asked,
                least: 1,
                most: LARGEST_UNIT,
            });
        }
        let workers = order.crew.workers();
        Ok(Plan {
            inputs: self.inputs.clone(),
            program: self.number,
            crew: order.crew,
            unit: self
                .unit
                .unwrap_or_else(|| Plan::unit_for(self.inputs.bytes(), workers)),
            seed: order.seed,
            kills: order.kills,
        })
    }
}

/// What comes out: every key with its total, by falling total, then by key.
pub type Counts = Vec<(Vec<u8>, u64)>;

impl<P: MapReduce + Sync> Program for OnHosts<P> {
    type Running = Run;

    fn heap_bytes(&self, order: &Order) -> Result<u64, RunError> {
        let plan = self.plan(order)?;
        let keys = size::estimate(&self.inputs, &self.program)?;
        Ok(size::heap_bytes(&plan, keys))
    }

    fn heap_bytes_counted(&self, order: &Order, stop: &Stop) -> Result<Option<u64>, RunError> {
        let plan = self.plan(order)?;
        let keys = size::count(&self.inputs, &self.program, || !stop.is_stopped())?;
        Ok(keys.map(|keys| size::heap_bytes(&plan, keys)))
    }

    fn begin(&self, order: &Order, stage: &Stage<'_>) -> Result<Run, RunError> {
        let plan = self.plan(order)?;
        let memory = stage.pod.segment().memory();
        let run = Run::create(&plan, stage.blocks, memory, stage.cell).map_err(HostError::from)?;
        Totals::create_seeded(stage.heap, run.totals_cell(), plan.seed).map_err(HostError::from)?;
        Ok(run)
    }

    fn explain(&self, run: &Run, why: CalledOff) -> RunError {
        let path = |file: u32| {
            let file = self.inputs.files().get(file as usize);
            file.map_or_else(PathBuf::new, |file| file.path.clone())
        };
        match why {
            CalledOff::Unreadable(file, error) => InputError::Unreadable {
                path: path(file),
                source: io::Error::from_raw_os_error(error),
            }
            .into(),
            CalledOff::Changed(file) => RunError::Changed { path: path(file) },
            CalledOff::TooLong(unit) => {
                let (unit, _) = run.unit(unit);
                RunError::TooLong {
                    path: path(unit.file),
                    at: unit.from,
                }
            }
            other => RunError::CalledOff(other),
        }
    }

    fn result(&self, run: &Run, _pod: &Pod, heap: &LocalHeap<'_>) -> Result<Counts, HostError> {
        let mut totals = results(*run, heap).map_err(CreateError::from)?;
        let first = run.first_byte();
        totals.extend(first.and_then(|first| self.program.at_start(first)));
        wordcount::sort(&mut totals);
        Ok(totals)
    }
}

impl Running for Run {
    type Result = Counts;

    fn header(&self) -> Header {
        Run::header(*self)
    }

    fn is_done(&self) -> bool {
        Run::is_done(*self)
    }

    fn stretch(&self) -> Stretch {
        let (loaded, units) = (self.loading().drawn(), self.mapping().count());
        let (phase, done) = match loaded < units {
            true => ("reading", loaded),
            false => ("mapping", self.mapping().drawn()),
        };
        Stretch { phase, done, units }
    }

    fn drawn(&self) -> u64 {
        self.mapping().drawn()
    }

    fn done(&self) -> u64 {
        self.mapping().done()
    }

    fn attempting(&self, number: u32) -> Option<u64> {
        self.table(number).attempting()
    }

    fn redone(&self) -> u64 {
        (0..self.workers())
            .map(|number| self.table(number))
            .map(|table| u64::from(table.attempts() - table.committed()))
            .sum()
    }
}

impl<P: MapReduce + Sync> Work for P {
    fn work(&self, post: &Post<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let run = Run::of(post.header).ok_or(HostError::NoRun)?;
        let mut worker = Worker::new(run, post.heap, post.blocks, post.number);
        match worker.work(self, |unit| post.may_die_before(unit)) {
            Ok(()) => Ok(()),
            // What the run was called off for is known to whoever began it, unless it is only that a worker failed.
            Err(error) => match error.why(post.number) {
                CalledOff::Failed(_) => Err(error.into()),
                _ => Ok(()),
            },
        }
    }
}
