//! `outlive-lab prove schedule`: every interleaving, with deaths.

use super::explained;
use super::selection::{Choice, Selection};
use super::{Progress, Proof as Proven};
use crate::amount;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use core::ops::ControlFlow;
use outlive_prove::proof::Proof;
use outlive_prove::schedule::ScheduleReport;
use outlive_prove::{Event, in_lanes};
use serde::Serialize;

/// Every interleaving of small scenarios, with deaths.
#[derive(Args, Debug)]
#[command(
    override_usage = "outlive-lab prove schedule <--all|NAME...|--list [NAME...]> [--full] [--seed SEED] [--json]",
    after_help = "Examples:\n  \
    outlive-lab prove schedule --list\n  \
    outlive-lab prove schedule queue          # every scenario with \"queue\" in its name\n  \
    outlive-lab prove schedule --all --full --json\n\n\
    --list prints the scenarios and how far each is explored by default and with --full: every \
    execution within bounds, or N random executions. (Of two scenarios with the same name, the \
    second one draws.) A failure of a random execution is printed with its seed: `outlive-lab \
    prove schedule NAME --seed SEED` runs it first, with or without --full as before.\n\n\
    Two to four threads run the real algorithms over a memory whose model is weaker than x86's; \
    each thread may die at any access. All executions within the bounds are tried, or a sample \
    where there are too many. Exits with 1 if one failed, and prints its trace.\n\n\
    JSON: an array of {name, points, failures, seconds, complete, seed, deaths, messages}; see \
    docs/json.md."
)]
pub struct Schedule {
    #[command(flatten)]
    selection: Selection,
    /// Use wider bounds and larger samples: takes long
    #[arg(long)]
    full: bool,
    /// The first seed of random executions, instead of each scenario's own
    #[arg(long, conflicts_with = "list", value_parser = amount::whole, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Print the findings as JSON: one array, one object for each scenario
    #[arg(long)]
    json: bool,
}

const SCENARIOS: Choice = Choice {
    command: "schedule",
    things: "scenarios",
    example: "queue",
    has_words: false,
};

/// A scenario in the list.
#[derive(Serialize)]
struct Listed {
    name: String,
    /// One line that explains the proof.
    about: String,
    /// How far it is explored, for people.
    default: String,
    full: String,
}

#[derive(Serialize)]
struct Details {
    /// Whether every execution within the bounds was tried.
    complete: bool,
    /// The first seed, if executions are drawn at random.
    seed: Option<u64>,
    deaths: u64,
    /// The faults, for people, each with its schedule.
    messages: Vec<String>,
}

impl Schedule {
    pub fn run(self) -> Result<(), Failure> {
        let mut scenarios = outlive_proofs::scenarios();
        let names: Vec<_> = scenarios.iter().map(Proof::name).collect();
        let chosen = self.selection.among(&names, &SCENARIOS)?;
        scenarios.retain(|proof| chosen(&proof.name()));
        if self.selection.lists() {
            return self.list(&scenarios);
        }
        let progress = Progress::new(scenarios.len());
        let mut proofs = Vec::new();
        let mut unheard = None;
        in_lanes(
            &scenarios,
            |scenario| scenario.run_from(self.full, self.seed),
            |at, event| {
                let name = scenarios[at].name();
                let report = match event {
                    Event::Begins => {
                        progress.begin(&name);
                        return ControlFlow::Continue(());
                    }
                    Event::Ends(report) => report,
                };
                let shown = progress.end(&name, || match self.json {
                    true => Ok(()),
                    // A report ends its lines itself.
                    false => output::print(&report),
                });
                proofs.push(proven(&report));
                shown.map_or_else(
                    |failure| {
                        unheard = Some(failure);
                        ControlFlow::Break(())
                    },
                    ControlFlow::Continue,
                )
            },
        );
        drop(progress);
        if let Some(failure) = unheard {
            return Err(failure);
        }
        let failures: u64 = proofs.iter().map(|proof| proof.failures).sum();
        if self.json {
            output::json(&proofs)?;
        } else {
            output::line(format_args!(
                "{} scenarios, {} executions, {} deaths: {failures} failures",
                proofs.len(),
                proofs.iter().map(|proof| proof.points).sum::<u64>(),
                proofs.iter().map(|proof| proof.more.deaths).sum::<u64>(),
            ))?;
        }
        match failures {
            0 => Ok(()),
            _ => Err(Failure::Found),
        }
    }

    fn list(&self, scenarios: &[Proof]) -> Result<(), Failure> {
        let listed = scenarios.iter().map(|proof| Listed {
            name: proof.name(),
            about: explained::of(explained::SCHEDULE, &proof.name()),
            default: proof.extent(false),
            full: proof.extent(true),
        });
        if self.json {
            return output::json(&listed.collect::<Vec<_>>());
        }
        let mut table = Table::new(["SCENARIO", "WHAT IT DOES", "BY DEFAULT", "WITH --full"]);
        for one in listed {
            table.row([one.name, one.about, one.default, one.full]);
        }
        table.lines().try_for_each(output::line)
    }
}

fn proven(report: &ScheduleReport) -> Proven<Details> {
    Proven {
        name: format!("schedule: {}", report.scenario),
        points: report.executions,
        failures: report.failures.len() as u64,
        seconds: report.seconds,
        more: Details {
            complete: report.complete,
            seed: report.seed,
            deaths: report.deaths,
            messages: report.failures.iter().map(ToString::to_string).collect(),
        },
    }
}
