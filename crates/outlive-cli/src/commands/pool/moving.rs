//! What `outlive pool drain` and `outlive pool rebuild` have in common: they move slices within a
//! budget, and exit with 1 if some remain.

use super::Which;
use crate::amount::{self, Bytes, Many};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_pool::{Address, Client, MoveBudget, Pool, PoolError};
use serde::Serialize;
use std::time::Instant;

/// The arguments of a command that moves slices.
#[derive(Args, Debug)]
pub struct Moving {
    #[command(flatten)]
    which: Which,
    /// Largest copy rate in bytes per second, also with K, M, G or T; unlimited by default
    #[arg(long, value_parser = amount::size)]
    budget: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A slice that was not moved or rebuilt.
#[derive(Serialize)]
struct Remaining {
    address: String,
    why: String,
}

/// The result of a command.
pub struct Moved {
    pub count: u64,
    pub remaining: Vec<(Address, PoolError)>,
}

/// The words for the result of a command.
pub struct Words<'w> {
    /// A thing that was moved.
    pub thing: &'static str,
    /// For all of them.
    pub done: &'w str,
    /// For each remaining one.
    pub remains: &'w str,
}

/// The result for programs: `Own` has the fields of one command.
#[derive(Serialize)]
struct Answer<Own: Serialize> {
    path: String,
    #[serde(flatten)]
    own: Own,
    bytes: u64,
    seconds: f64,
    remaining: Vec<Remaining>,
}

impl Moving {
    /// Joins the pool, moves slices by `act`, and prints the result.
    pub fn run<Own: Serialize>(
        &self,
        act: impl FnOnce(&Client, MoveBudget) -> Result<Moved, PoolError>,
        own: impl FnOnce(u64) -> Own,
        words: Words<'_>,
    ) -> Result<(), Failure> {
        let client = Pool::open(&self.which.path)?.join()?;
        let budget = MoveBudget {
            bytes_per_second: self.budget,
            ..MoveBudget::default()
        };
        let begin = Instant::now();
        let moved = act(&client, budget)?;
        let seconds = begin.elapsed().as_secs_f64();
        let remaining = moved.remaining.iter().map(|(address, why)| Remaining {
            address: address.to_string(),
            why: why.to_string(),
        });
        let answer = Answer {
            path: self.which.path.display().to_string(),
            own: own(moved.count),
            bytes: moved.count * client.pool().status().sizes.slice_bytes(),
            seconds,
            remaining: remaining.collect(),
        };
        // A reader that closes the output does not hide that slices remain.
        let printed = match self.json {
            true => output::json(&answer),
            false => print(&answer, moved.count, words),
        };
        match answer.remaining.is_empty() {
            true => printed,
            false => Err(Failure::Found),
        }
    }
}

fn print<Own: Serialize>(
    answer: &Answer<Own>,
    count: u64,
    words: Words<'_>,
) -> Result<(), Failure> {
    output::line(format_args!(
        "{} of {} {} in {:.3} s",
        Many(count, words.thing),
        Bytes(answer.bytes),
        words.done,
        answer.seconds,
    ))?;
    answer.remaining.iter().try_for_each(|it| {
        let why = output::printable(&it.why);
        output::line(format_args!("  {} {}: {why}", it.address, words.remains))
    })
}
