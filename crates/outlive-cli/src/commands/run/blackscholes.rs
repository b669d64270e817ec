//! `outlive run blackscholes`: prices options on hosts that may be killed.

use super::flags::Flags;
use super::generated::{Number, numbers};
use super::play::{Interrupted, loading, play};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use outlive_workloads::blackscholes::{Normal, Portfolio, Pricing, ReadError, prices_text, verify};
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// The pricing of a portfolio.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.help("Write all prices there as PARSEC does: how many there are, then one a line with 18 decimals, in the order of the \
        options. What is there stays until all is done; it cannot be FILE")
}))]
#[command(after_help = "Examples:\n  \
    outlive run blackscholes in_64K.txt --kill 2 --output prices.txt\n  \
    outlive run blackscholes random:1000000 --hosts 8 --kill 3 --verify\n\n\
    FILE is as PARSEC's inputs: the number of options, and an option in each of the following lines: spot, strike, rate, dividend \
    yield, volatility, years, C (call) or P (put), dividends (0), and a reference price. random:COUNT[:SEED] are generated \
    options.\n\n\
    Prices are those of Black, Scholes and Merton, in double precision. --normal polynomial has the normal distribution from PARSEC's \
    polynomial (7.5e-8 off at most), --normal accurate from the error function. --verify compares all prices with the references and \
    some of them, evenly spread, with a numerical integration.\n\n\
    Each host is a process tree of its own (--processes), a member of a pod in /dev/shm that is made for the run and removed after it. \
    Killed hosts get SIGKILL. The prices are those of a run without failures, to the last bit.\n\n\
    JSON: result (options, normal, task_options, sum, verified), seconds, cpu_seconds, units, units_redone, seed, pod, failures and \
    more: docs/json.md names them all.")]
pub struct Command {
    /// Options as PARSEC writes them, or random:COUNT[:SEED]
    #[arg(value_name = "FILE")]
    file: OsString,
    #[command(flatten)]
    flags: Flags,
    /// Where the normal distribution comes from
    #[arg(long, value_enum, default_value_t = Which::Polynomial)]
    normal: Which,
    /// How many options a task prices at most
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

/// How many prices are compared with an integration.
const SAMPLE: usize = 10_000;
/// How many options are generated at most.
const MOST: u64 = 100_000_000;

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        let interrupted = Interrupted::listen()?;
        let form = [
            Number {
                name: "COUNT",
                default: None,
                range: 1..=MOST,
            },
            Number {
                name: "SEED",
                default: Some(1),
                range: 0..=u64::MAX,
            },
        ];
        let generated = numbers(&self.file, &form)?;
        let named = Path::new(&self.file);
        let read = generated.is_none().then_some(named);
        let destination = self.flags.destination(read, "read", &interrupted)?;
        let shown = named.display();
        let portfolio = match generated {
            Some([count, seed]) => loading("drawing options".into(), || {
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
        let options = self.flags.options(0);
        let count = portfolio.options().len();
        let what = format!("parts of {count} options");
        let outcome = play(&options, &pricing, &interrupted, what)?;
        let prices = &outcome.result;
        let wrong = match self.verify {
            true => {
                let (portfolio, prices) = (Arc::clone(&portfolio), prices.clone());
                let check = move || verify::verify(&portfolio, &prices, normal, SAMPLE);
                interrupted.unless(check)?.err()
            }
            false => None,
        };
        // What is wrong replaces nothing.
        if let (Some(destination), None) = (destination, &wrong) {
            destination.write(|out| out.write_all(prices_text(prices).as_bytes()))?;
        }
        let found = Found {
            options: count,
            normal: self.normal,
            task_options: self.task_options,
            sum: prices.iter().sum(),
            verified: self.verify.then_some(wrong.is_none()),
        };
        let headline = format!(
            "{count} options of {shown}, worth {:.6} together",
            found.sum
        );
        let checked = (found.verified == Some(true)).then(|| {
            format!(
                "all prices are as the references say, and {} as integration says",
                SAMPLE.min(count)
            )
        });
        self.flags
            .tell(&options, &outcome, &found, headline, checked)?;
        wrong.map_or(Ok(()), |wrong| Err(Failure::new(wrong)))
    }
}

/// What came of it, as programs read it.
#[derive(Serialize)]
struct Found {
    options: usize,
    normal: Which,
    task_options: u64,
    /// Of all prices.
    sum: f64,
    /// Whether they were found right, if that was asked for.
    verified: Option<bool>,
}
