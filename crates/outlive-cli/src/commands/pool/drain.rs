//! `outlive pool drain`: the slices of a server move to the other servers.

use super::{Remaining, Which};
use crate::amount::{self, Bytes, Many};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_pool::{MoveBudget, Pool, ServerId};
use serde::Serialize;
use std::time::Instant;

/// Arguments of `outlive pool drain`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool drain /dev/shm/pool 1\n  \
    outlive pool drain /dev/shm/pool 1 --budget 500M\n\n\
    Readers and writers continue, and addresses stay the same. The slices go to the servers with \
    the most free memory. Those of leased objects do not move. The command exits with 1 if slices \
    remain. Clients can still allocate on the server. To remove a server, end `outlive pool serve` \
    with Ctrl-C, which moves its slices as well.\n\n\
    JSON: path, server, moved, bytes, seconds and remaining (address, why).")]
pub struct Drain {
    #[command(flatten)]
    which: Which,
    /// Number of the server
    server: u16,
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
    server: u16,
    moved: u64,
    bytes: u64,
    seconds: f64,
    remaining: Vec<Remaining>,
}

impl Drain {
    pub fn run(self) -> Result<(), Failure> {
        let client = Pool::open(&self.which.path)?.join()?;
        let budget = MoveBudget {
            bytes_per_second: self.budget,
            ..MoveBudget::default()
        };
        let begin = Instant::now();
        let drained = client.drain(ServerId(self.server), budget)?;
        let slice_bytes = client.pool().status().sizes.slice_bytes();
        let answer = Answer {
            path: self.which.path.display().to_string(),
            server: self.server,
            moved: drained.moved,
            bytes: drained.moved * slice_bytes,
            seconds: begin.elapsed().as_secs_f64(),
            remaining: { drained.remaining.iter() }.map(Remaining::of).collect(),
        };
        // A reader that closes the output does not hide that slices remain.
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
            "{} of {} moved from server {} in {:.3} s",
            Many(answer.moved, "slice"),
            Bytes(answer.bytes),
            answer.server,
            answer.seconds,
        ))?;
        let mut lines = answer.remaining.iter();
        lines.try_for_each(|it| output::line(it.line("remains")))
    }
}
