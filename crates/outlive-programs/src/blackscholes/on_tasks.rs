//! The prices of a portfolio by tasks.
//!
//! The driver puts the options into the pod. Each task writes the prices of its own options there,
//! which are not read before all tasks are done. An option has one price, whichever worker computes
//! it and however often.

use super::{EuropeanOption, Normal, Portfolio, kernel};
use core::ops::Range;
use outlive::heap::LocalHeap;
use outlive_run::driver::RunError;
use outlive_run::host::HostError;
use outlive_run::on_tasks::{Ended, PoolOf, TaskProgram, damaged, spread, unit};
use outlive_tasks::{Array, Call, Context, PoolError, TaskError, WorkerPool, task};

/// The names of the prices, and of the [plan](Plan).
const PRICES: &str = "prices";
const PLAN: &str = "plan";
/// The number of options in one array: as many as fit into a block of 4 MiB. (One block for all
/// might be twice as large as they are, and would need as much again beside it in the heap.)
const TOGETHER: usize = ((4 << 20) - 64) / size_of::<EuropeanOption>();
/// The number of prices that are computed before they are written into the pod.
const BLOCK: usize = 512;

/// The program of tasks that prices a portfolio.
#[derive(Clone, Copy, Debug)]
pub struct Pricing<'p> {
    /// The options to be priced.
    pub portfolio: &'p Portfolio,
    /// The method of computing the normal distribution.
    pub normal: Normal,
    /// The maximum number of options of a task.
    pub task_options: u64,
}

impl<'p> Pricing<'p> {
    /// The default number of options of a task: some milliseconds' work.
    pub const TASK_OPTIONS: u64 = 50_000;

    /// Creates the pricing of `portfolio`, as PARSEC does it.
    pub fn new(portfolio: &'p Portfolio) -> Self {
        Self {
            portfolio,
            normal: Normal::default(),
            task_options: Self::TASK_OPTIONS,
        }
    }

    fn options(&self) -> u64 {
        self.portfolio.options().len() as u64
    }
}

/// Returns the name of array `number` of options, as words.
fn options(number: usize) -> String {
    format!("options {number}")
}

/// The parameters for tasks.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Plan {
    /// The maximum number of options of a task.
    each: u64,
    /// Whether the distribution is the accurate one.
    is_accurate: u64,
}

impl TaskProgram for Pricing<'_> {
    type Result = Vec<f64>;

    const POOL: PoolOf = PoolOf {
        number: 19,
        name: "blackscholes",
    };

    fn check(&self) -> Result<(), RunError> {
        match self.task_options {
            0 => Err(RunError::Impossible {
                what: "the number of options of a task",
                asked: 0,
                least: 1,
                most: u64::MAX,
            }),
            _ => Ok(()),
        }
    }

    fn phase(&self) -> &'static str {
        "pricing"
    }

    fn units(&self) -> u64 {
        self.options().div_ceil(self.task_options)
    }

    fn data_bytes(&self) -> Vec<u64> {
        let arrays = self.portfolio.options().chunks(TOGETHER);
        let bytes = arrays.map(|options| size_of_val(options) as u64);
        bytes.chain([self.options() * 8]).collect()
    }

    fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError> {
        let count = self.portfolio.options().len();
        pool.put_array(heap, PRICES, count, |prices: Array<f64>| {
            prices.fill(0..count, 0.0);
        })?;
        for (number, together) in self.portfolio.options().chunks(TOGETHER).enumerate() {
            let words: &[u64] = bytemuck::cast_slice(together);
            let put = |array: Array<u64>| array.write(0, words);
            pool.put_array(heap, &options(number), words.len(), put)?;
        }
        let plan = Plan {
            each: self.task_options,
            is_accurate: u64::from(self.normal == Normal::Accurate),
        };
        pool.put(heap, PLAN, bytemuck::bytes_of(&plan))
    }

    fn begin(&self) -> Call {
        price_part(0, self.options())
    }

    fn result(
        &self,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        _: &Ended,
    ) -> Result<Vec<f64>, HostError> {
        let prices = pool.array::<f64>(heap, PRICES).ok_or(HostError::NoRun)?;
        Ok(prices.to_vec())
    }
}

task! {
    /// Prices options `from..to`, or spawns tasks that do.
    pub fn price_part(context, from: u64, to: u64) {
        let plan: Plan = context.input_of(PLAN)?;
        if plan.each == 0 {
            return Err(damaged("the number of options of a task is 0"));
        }
        if to.saturating_sub(from) > plan.each {
            return spread(context, from..to, plan.each, |part| price_part(part.start, part.end));
        }
        if to == from {
            return Ok(());
        }
        unit(context, from / plan.each, || {
            price(context, plan.is_accurate != 0, from as usize..to as usize)
        })
    }
}

fn price(context: &Context<'_>, is_accurate: bool, range: Range<usize>) -> Result<(), TaskError> {
    let prices = context.array::<f64>(PRICES)?;
    let damaged = || damaged("the array of options is too short");
    if range.end > prices.len() {
        return Err(damaged());
    }
    let normal = match is_accurate {
        true => Normal::Accurate,
        false => Normal::Polynomial,
    };
    let (mut at, mut block) = (range.start, [0.0; BLOCK]);
    while at < range.end {
        let words = context.array::<u64>(&options(at / TOGETHER))?;
        // SAFETY: the options were put into the pod before the job was submitted, no task writes to
        // them, and their name exists as long as the pool.
        let words = unsafe { words.as_slice() };
        let together = bytemuck::try_cast_slice::<u64, EuropeanOption>(words);
        let (first, begin) = (at % TOGETHER, at);
        at += (TOGETHER - first).min(range.end - at);
        let together = together
            .ok()
            .and_then(|all| all.get(first..first + at - begin));
        for (number, options) in together.ok_or_else(damaged)?.chunks(BLOCK).enumerate() {
            let block = &mut block[..options.len()];
            kernel::price(options, normal, block);
            prices.write(begin + number * BLOCK, block);
        }
    }
    Ok(())
}
