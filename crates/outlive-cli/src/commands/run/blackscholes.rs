//! `outlive run blackscholes`: prices options on hosts that may be killed.

use super::destination::Destination;
use super::flags::Flags;
use super::generated::{Number, numbers};
use super::play::loading;
use super::steps::{Run, Steps, Text, Verdict};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use outlive_programs::blackscholes::{Normal, Portfolio, Pricing, ReadError, prices_text, verify};
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// Arguments of `outlive run blackscholes`.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.help("Write all prices to this file in PARSEC's format: their number, then one price \
        per line with 18 decimals, in the order of the options. An existing file is replaced only \
        after all is done; it cannot be the input")
}))]
#[command(after_help = "Examples:\n  \
    outlive run blackscholes in_64K.txt --kill 2 --output prices.txt\n  \
    outlive run blackscholes random:1000000 --hosts 8 --kill 3 --verify\n\n\
    FILE has the format of PARSEC's inputs: the number of options, then one option per line: spot, \
    strike, rate, dividend yield, volatility, years, C (call) or P (put), dividends (0), and a \
    reference price. random:COUNT[:SEED] generates COUNT options.\n\n\
    Prices are computed by the formula of Black, Scholes and Merton in double precision. --normal \
    polynomial computes the normal distribution by PARSEC's polynomial (with an error of at most \
    7.5e-8), --normal accurate by the error function. --verify compares all prices with the \
    references, and an evenly spread sample of them with a numerical integration.\n\n\
    Each host is a process tree of its own (--processes) and a member of a pod in /dev/shm that is \
    created for the run and removed after it. Hosts are killed by SIGKILL. The prices are \
    identical to those of a run without failures, to the last bit.\n\n\
    JSON: result (options, normal, task_options, sum, verified), seconds, cpu_seconds, units, \
    units_redone, seed, pod, failures and more: docs/json.md names them all.")]
pub struct Command {
    /// Options as PARSEC writes them, or random:COUNT[:SEED]
    #[arg(value_name = "FILE")]
    file: OsString,
    #[command(flatten)]
    flags: Flags,
    /// Source of the normal distribution
    #[arg(long, value_enum, default_value_t = Which::Polynomial)]
    normal: Which,
    /// Maximum number of options that a task prices
    #[arg(long, value_name = "N", default_value_t = Pricing::TASK_OPTIONS,
          value_parser = clap::value_parser!(u64).range(1..))]
    task_options: u64,
    /// Compare all prices with the references, and some with a numerical integration
    #[arg(long)]
    verify: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Which {
    /// From PARSEC's polynomial
    Polynomial,
    /// From the error function
    Accurate,
}

/// The number of prices that are compared with an integration.
const SAMPLE: usize = 10_000;
/// The maximum number of generated options.
const MOST: u64 = 100_000_000;

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        let mut run = Run::begin(&self.flags, 0, self.verify)?;
        let form = [Number::up_to(MOST, "COUNT"), Number::SEED];
        let generated = numbers(&self.file, &form)?;
        let named = Path::new(&self.file);
        let read = generated.is_none().then_some(named);
        run.open_destination(read, "read")?;
        let shown = named.display();
        let portfolio = match generated {
            Some([count, seed]) => loading("generating options".into(), || {
                Ok(Portfolio::generate(count as usize, seed))
            }),
            None => loading(format!("reading {shown}"), || Portfolio::read(named)),
        };
        let portfolio = portfolio.map_err(|error| match error {
            ReadError::Unreadable { .. } => Failure::new(error),
            _ => Failure::new(format_args!("{shown}: {error}")),
        })?;
        let portfolio = Arc::new(portfolio);
        let normal = match self.normal {
            Which::Polynomial => Normal::Polynomial,
            Which::Accurate => Normal::Accurate,
        };
        let pricing = Pricing {
            normal,
            task_options: self.task_options,
            ..Pricing::new(&portfolio)
        };
        let count = portfolio.options().len();
        let steps = Steps {
            units: format!("parts of {count} options"),
            check: {
                let portfolio = Arc::clone(&portfolio);
                move |prices: Arc<Vec<f64>>| {
                    let sample = SAMPLE.min(count);
                    let right = format!(
                        "all prices agree with the references, and {sample} with the integration"
                    );
                    let checked = verify::verify(&portfolio, &prices, normal, SAMPLE);
                    Ok(Verdict::of(checked, right))
                }
            },
            write: |prices: &Vec<f64>, destination: Destination| {
                destination.write(|out| out.write_all(prices_text(prices).as_bytes()))
            },
            describe: |prices: &Vec<f64>, verdict: Option<&Verdict>| {
                let sum = prices.iter().sum();
                Text {
                    found: Found {
                        options: count,
                        normal: self.normal,
                        task_options: self.task_options,
                        sum,
                        verified: verdict.map(Verdict::is_right),
                    },
                    is_flat: false,
                    headline: format!("{count} options of {shown}, worth {sum:.6} together"),
                    lines: Vec::new(),
                }
            },
        };
        run.play(&pricing, steps)
    }
}

/// The result for JSON.
#[derive(Serialize)]
struct Found {
    options: usize,
    normal: Which,
    task_options: u64,
    /// The sum of all prices.
    sum: f64,
    /// Whether they were found right, if `--verify` was given.
    verified: Option<bool>,
}
