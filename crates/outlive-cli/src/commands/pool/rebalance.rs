//! `outlive pool rebalance`: slices move to the servers whose processes use them.

use super::Which;
use crate::amount::{self, Bytes, Many};
use crate::failure::Failure;
use crate::interruption;
use crate::output;
use clap::Args;
use outlive_pool::{MoveBudget, PlannedMove, Pool, Rebalancer};
use serde::Serialize;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Arguments of `outlive pool rebalance`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool rebalance /dev/shm/pool                           # until Ctrl-C\n  \
    outlive pool rebalance /dev/shm/pool --period 10s --budget 100M\n  \
    outlive pool rebalance /dev/shm/pool --periods 1 --plan --json # moves nothing\n\n\
    About one of 64 guards of each reader is sampled. A slice moves to the server whose process \
    has used it most, if it has used it at least twice as often as the process of the server that \
    has the slice; then it stays for ten periods. Run one such command for a pool.\n\n\
    JSON: a line for each period: period, moves (address, from, to, here, there, refused), bytes \
    and postponed; docs/json.md says what they mean.")]
pub struct Rebalance {
    #[command(flatten)]
    which: Which,
    /// Time for which accesses are sampled before slices move
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    period: Duration,
    /// Number of periods; without it until interrupted
    #[arg(long)]
    periods: Option<u64>,
    /// Largest copy rate in bytes per second, also with K, M, G or T; unlimited by default
    #[arg(long, value_parser = amount::size)]
    budget: Option<u64>,
    /// Print the moves, and do not carry them out
    #[arg(long)]
    plan: bool,
    /// Print a line of JSON for each period
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Period {
    period: u64,
    moves: Vec<Moved>,
    bytes: u64,
    postponed: usize,
}

#[derive(Serialize)]
struct Moved {
    address: String,
    from: u16,
    to: u16,
    here: f64,
    there: f64,
    refused: Option<String>,
}

impl Moved {
    fn of(it: &PlannedMove, refused: Option<String>) -> Self {
        Self {
            address: it.address.to_string(),
            from: it.from.0,
            to: it.to.0,
            here: it.here,
            there: it.there,
            refused,
        }
    }
}

impl Rebalance {
    pub fn run(self) -> Result<(), Failure> {
        let stop = interruption::flag(&interruption::SIGNALS)?;
        let client = Pool::open(&self.which.path)?.join()?;
        let slice_bytes = client.pool().status().sizes.slice_bytes();
        let budget = MoveBudget {
            bytes_per_second: self.budget,
            ..MoveBudget::default()
        };
        let mut rebalancer = Rebalancer::new();
        rebalancer.observe(&client);
        for period in 1..=self.periods.unwrap_or(u64::MAX) {
            let begin = Instant::now();
            while begin.elapsed() < self.period {
                if stop.load(Ordering::Acquire) {
                    return Ok(());
                }
                let left = self.period.saturating_sub(begin.elapsed());
                std::thread::sleep(left.min(Duration::from_millis(50)));
            }
            let (moves, count, postponed) = match self.plan {
                true => {
                    rebalancer.observe(&client);
                    let planned = rebalancer.plan(&client);
                    let moves = planned.iter().map(|it| Moved::of(it, None));
                    (moves.collect(), planned.len(), 0)
                }
                false => {
                    let done = client.rebalance(&mut rebalancer, self.period, budget);
                    let moved = done.moved.iter().map(|it| Moved::of(it, None));
                    let refused = done.refused.iter();
                    let refused = refused.map(|(it, why)| Moved::of(it, Some(why.to_string())));
                    let moves: Vec<_> = moved.chain(refused).collect();
                    (moves, done.moved.len(), done.postponed)
                }
            };
            self.print(&Period {
                period,
                moves,
                bytes: count as u64 * slice_bytes,
                postponed,
            })?;
        }
        Ok(())
    }

    fn print(&self, period: &Period) -> Result<(), Failure> {
        if self.json {
            return output::line(serde_json::to_string(period).map_err(Failure::new)?);
        }
        let verb = if self.plan { "would move" } else { "moved" };
        let moved = period
            .moves
            .iter()
            .filter(|it| it.refused.is_none())
            .count() as u64;
        if period.moves.is_empty() && period.postponed == 0 {
            return Ok(());
        }
        output::line(format_args!(
            "period {}: {} of {} {verb}, {} postponed",
            period.period,
            Many(moved, "slice"),
            Bytes(period.bytes),
            period.postponed
        ))?;
        for it in &period.moves {
            let (from, to) = (it.from, it.to);
            let counts = format!(
                "{:.0} sampled accesses there, {:.0} here",
                it.there, it.here
            );
            let line = format!("  {} from server {from} to {to}: {counts}", it.address);
            match &it.refused {
                None => output::line(line)?,
                Some(why) => output::line(format_args!("{line}; not moved: {why}"))?,
            }
        }
        Ok(())
    }
}
