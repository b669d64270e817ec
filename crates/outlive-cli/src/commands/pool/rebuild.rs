//! `outlive pool rebuild`: replicas that were lost with their servers are rebuilt on others.

use super::{Remaining, Which};
use crate::amount::{self, Bytes, Many};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_pool::{MoveBudget, Pool};
use serde::Serialize;
use std::time::Instant;

/// Arguments of `outlive pool rebuild`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool rebuild /dev/shm/pool\n  \
    outlive pool rebuild /dev/shm/pool --budget 500M\n\n\
    Readers and writers continue. `outlive pool serve` does the same every few seconds. A slice is \
    rebuilt on a server that has no other replica of it. The command exits with 1 if it could not \
    rebuild a replica; a server may be rebuilding it.\n\n\
    JSON: path, rebuilt, bytes, seconds and remaining (address, why).")]
pub struct Rebuild {
    #[command(flatten)]
    which: Which,
    /// Largest copy rate in bytes per second, also with K, M, G or T; unlimited by default
    #[arg(long, value_parser = amount::size)]
    budget: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer {
    path: String,
    rebuilt: u64,
    bytes: u64,
    seconds: f64,
    remaining: Vec<Remaining>,
}

impl Rebuild {
    pub fn run(self) -> Result<(), Failure> {
        let client = Pool::open(&self.which.path)?.join()?;
        let budget = MoveBudget {
            bytes_per_second: self.budget,
            ..MoveBudget::default()
        };
        let begin = Instant::now();
        let result = client.rebuild(budget);
        let slice_bytes = client.pool().status().sizes.slice_bytes();
        let answer = Answer {
            path: self.which.path.display().to_string(),
            rebuilt: result.rebuilt,
            bytes: result.rebuilt * slice_bytes,
            seconds: begin.elapsed().as_secs_f64(),
            remaining: { result.remaining.iter() }.map(Remaining::of).collect(),
        };
        // A reader that closes the output does not hide that replicas are lost.
        let printed = self.print(&answer);
        match answer.remaining.is_empty() {
            true => printed,
            false => Err(Failure::Found),
        }
    }

    fn print(&self, answer: &Answer) -> Result<(), Failure> {
        if self.json {
            return output::json(answer);
        }
        output::line(format_args!(
            "{} of {} rebuilt in {:.3} s",
            Many(answer.rebuilt, "replica"),
            Bytes(answer.bytes),
            answer.seconds,
        ))?;
        let mut lines = answer.remaining.iter();
        lines.try_for_each(|it| output::line(it.line("is lost")))
    }
}
