//! `outlive-lab litmus-bugs`: searches for the bugs of FORD, and for other flaws, by litmus tests.

mod hunts;
mod report;
mod scratch;

use crate::failure::Failure;
use crate::output;
use clap::Args;
use hunts::{Hunt, Plan};
use outlive_cli::table::Table;
use outlive_store::protocol::Protocol;
use report::{Outcome, Row};
use scratch::Scratch;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Arguments of `outlive-lab litmus-bugs`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive-lab litmus-bugs --quick\n  \
    outlive-lab litmus-bugs --full --json          # ten seeds for each bug: up to two hours\n  \
    outlive-lab litmus-bugs lost-decision --seeds 3\n  \
    outlive-lab litmus-bugs covert-latches --repeats 10\n  \
    outlive-lab litmus-bugs --matrix --quick       # each bug by each family: up to 11 minutes\n  \
    outlive-lab litmus-bugs --mutants              # the other flaws\n\n\
    For each bug and protocol, a store with two memory servers is created, and the litmus tests of \
    the family that finds the bug in the thesis (table 5.1) run through the driver `exec:`, with \
    one `outlive-lab litmus-store` process for each connection. At its crash points such a process \
    kills itself. The time to detection begins with the first test, and includes the starts of \
    processes and the recoveries. `sound` is the protocol without a flaw, under all tests and \
    crash points.\n\n\
    The command fails if a bug is found in fewer than 8 of 10 seeds or in more than 60 s in the \
    median, if crashes did not happen, or if anything is found in a sound protocol.\n\n\
    JSON: an array of {flaw, protocol, category, families, seeds, found, ...}; docs/json.md says \
    what they mean.")]
pub struct LitmusBugs {
    /// The names of flaws, or `sound` [default: all of this list]
    #[arg(value_name = "FLAW")]
    names: Vec<String>,
    /// Search with this protocol only [default: all that can have the flaw]
    #[arg(long, value_parser = protocol)]
    protocol: Option<Protocol>,
    /// Search once for each, for at most 20 s
    #[arg(long)]
    quick: bool,
    /// Search with ten seeds for each, for at most 60 s
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Number of seeds for each [default: 3]
    #[arg(long, conflicts_with_all = ["quick", "full"],
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// The longest search for each flaw and seed, in seconds [default: 60]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Search again, this many times, with the first seed that found the flaw: a seed determines
    /// the choices of the clients, but not the timing
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(..=1000))]
    repeats: u64,
    /// Search for the flaws that FORD does not have
    #[arg(long)]
    mutants: bool,
    /// Search for each bug with each family of the thesis alone; the family that the thesis names
    /// for it, marked by an asterisk, has to find it
    #[arg(long, conflicts_with = "mutants")]
    matrix: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl LitmusBugs {
    pub fn run(self) -> Result<(), Failure> {
        let chosen = self.chosen()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| {
                Failure::new(format_args!(
                    "the handler of signal {signal} cannot be installed: {error}"
                ))
            })?;
        }
        let seeds = match (self.quick, self.full) {
            (true, _) => 1,
            (_, true) => 10,
            _ => self.seeds.unwrap_or(3),
        };
        let seconds = self.seconds.unwrap_or(if self.quick { 20 } else { 60 });
        let mut rows = Vec::new();
        for hunt in &chosen {
            let search = |seed| -> Result<Outcome, Failure> {
                let outcome = search(hunt, seed, Duration::from_secs(seconds), &stop)?;
                output::note(format_args!("{}: seed {seed}: {outcome}", hunt.title()));
                Ok(outcome)
            };
            let (mut outcomes, mut repeats) = (Vec::new(), Vec::new());
            if hunt.unreachable.is_none() {
                for seed in self.seed..self.seed.saturating_add(seeds) {
                    let outcome = search(seed)?;
                    if outcome.found.is_some() && repeats.is_empty() {
                        repeats = (0..self.repeats)
                            .map(|_| search(seed))
                            .collect::<Result<_, _>>()?;
                    }
                    outcomes.push(outcome);
                }
            }
            rows.push(Row::new(hunt, &outcomes, &repeats));
        }
        match self.json {
            true => output::json(&rows)?,
            false if self.matrix => print_matrix(&rows)?,
            false => print(&rows)?,
        }
        // A mutant need not be found.
        match rows.iter().any(|it| it.is_wrong(self.mutants)) {
            true => Err(Failure::Found),
            false => Ok(()),
        }
    }

    fn chosen(&self) -> Result<Vec<Hunt>, Failure> {
        let all = match self.mutants {
            true => hunts::mutants(),
            false => hunts::bugs(),
        };
        let names: Vec<String> = all.iter().map(Hunt::name).collect();
        if let Some(unknown) = self.names.iter().find(|it| !names.contains(it)) {
            return Err(Failure::Usage(format!(
                "`{unknown}` is not in this list: {}",
                names.join(", ")
            )));
        }
        let is_named = |it: &Hunt| self.names.is_empty() || self.names.contains(&it.name());
        let has_protocol = |it: &Hunt| self.protocol.is_none_or(|protocol| it.protocol == protocol);
        let is_chosen = |it: &Hunt| is_named(it) && has_protocol(it);
        let chosen = all.into_iter().filter(is_chosen);
        Ok(match self.matrix {
            false => chosen.collect(),
            true => { chosen.filter(|it| it.flaw.is_some()) }
                .flat_map(|it| it.by_family().collect::<Vec<_>>())
                .collect(),
        })
    }
}

/// Returns the protocol with this name.
fn protocol(name: &str) -> Result<Protocol, String> {
    let found = Protocol::ALL.into_iter().find(|it| it.name() == name);
    found.ok_or_else(|| {
        let names = Protocol::ALL.map(Protocol::name).join(", ");
        format!("the protocols are {names}")
    })
}

/// Searches for a flaw with one seed.
fn search(hunt: &Hunt, seed: u64, limit: Duration, stop: &AtomicBool) -> Result<Outcome, Failure> {
    let (mut all, mut begin) = (Outcome::default(), None);
    loop {
        let mut scratch = Scratch::new(hunt)?;
        // The first store is created before the time begins.
        let begin = *begin.get_or_insert_with(Instant::now);
        all.elapsed = begin.elapsed();
        let plan = Plan {
            seed,
            first: all.tests,
            limit: limit.saturating_sub(all.elapsed),
        };
        let outcome = match hunt.loses_memory {
            true => scratch.while_losing_memory(|it| it.search(hunt, plan, stop)),
            false => scratch.search(hunt, plan, stop),
        }?;
        // A store that its flaw has damaged refuses all tests: the search goes on in a new one.
        let is_over = outcome.errors == 0 || begin.elapsed() >= limit;
        all = all.then(outcome);
        if is_over {
            return Ok(all);
        }
    }
}

/// Prints the rows of each bug, one for each family, as one line.
fn print_matrix(rows: &[Row]) -> Result<(), Failure> {
    let [one, two, three] = hunts::LITMUS.map(|it| it.name());
    let mut table = Table::new(["flaw", "category", "protocol", one, two, three]);
    for rows in rows.as_chunks::<3>().0 {
        let [flaw, category, protocol] = rows[0].bug();
        let [one, two, three] = rows.each_ref().map(Row::cell);
        table.row([flaw, category, protocol, one, two, three]);
    }
    table.lines().try_for_each(output::line)
}

fn print(rows: &[Row]) -> Result<(), Failure> {
    let mut table = Table::new([
        "flaw",
        "category",
        "protocol",
        "families",
        "found",
        "found again",
        "seconds (median)",
        "transactions (median)",
        "processes that died",
        "found by",
    ]);
    for row in rows {
        table.row(row.cells());
    }
    table.lines().try_for_each(output::line)?;
    { rows.iter() }
        .filter_map(|row| Some(format!("{}: {}", row.flaw, row.why_not?)))
        .try_for_each(output::line)
}
