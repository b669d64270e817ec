//! `outlive-lab prove kill`: a death at every instruction.

use super::explained;
use super::selection::{self, Choice, Selection};
use super::{Progress, Proof};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use core::ops::ControlFlow;
use outlive_prove::Event;
use outlive_prove::kill::{Plan, SuiteReport, SweepReport};
use serde::Serialize;

/// Kill sweeps of every recoverable operation.
#[derive(Args, Debug)]
#[command(
    override_usage = "outlive-lab prove kill <--all|NAME...|--list [NAME...]> [--full] [--json]",
    after_help = "Examples:\n  \
    outlive-lab prove kill --list\n  \
    outlive-lab prove kill group              # every operation with \"group\" in its name\n  \
    outlive-lab prove kill --all --full --json\n\n\
    A child runs one operation under single-stepping. A survivor recovers the memory that a death \
    after each of its instructions leaves behind, checks it, and does so twice; the recovery \
    itself is swept in turn. Operations are swept in parallel, one on each processor. Exits with 1 \
    if anything failed or a declared crash point was not covered. Needs ptrace.\n\n\
    JSON: an array of {name, points, failures, seconds, messages, ...}; see docs/json.md."
)]
pub struct Kill {
    #[command(flatten)]
    selection: Selection,
    /// Really kill after every instruction, and sweep the recovery of every image: about an hour.
    /// Sweeps of joining, where every kill needs a pod of its own, take an evenly spread share,
    /// which the report gives
    #[arg(long)]
    full: bool,
    /// Print the findings as JSON: one array, one object for each operation
    #[arg(long)]
    json: bool,
}

const OPERATIONS: Choice = Choice {
    command: "kill",
    things: "operations",
    example: "buddy",
    has_words: false,
};

#[derive(Default, Serialize)]
struct Details {
    instructions: u64,
    images: u64,
    kills: u64,
    /// Where every kill needs its own world: the number of instructions after which one was made.
    killed_after: Option<u64>,
    recoveries: u64,
    /// The crash states of recoverers that were killed in turn.
    second_kills: u64,
    /// The faults, for people.
    messages: Vec<String>,
}

impl Kill {
    pub fn run(self) -> Result<(), Failure> {
        let suite = outlive_proofs::sweeps();
        let names = suite.names();
        let chosen = self.selection.among(&names, &OPERATIONS)?;
        let mut names = names;
        names.retain(|name| chosen(name));
        if self.selection.lists() {
            return selection::list(
                &names,
                |name| explained::of(explained::KILL, name),
                self.json,
            );
        }
        let progress = Progress::new(names.len());
        let plan = if self.full {
            Plan::full()
        } else {
            Plan::quick()
        };
        let mut unheard = None;
        let mut proofs = Vec::new();
        let outcome = suite.run(&plan, chosen, |name, event| {
            let report = match event {
                Event::Begins => {
                    progress.begin(name);
                    return ControlFlow::Continue(());
                }
                Event::Ends(report) => report,
            };
            proofs.push(proof(report));
            let shown = progress.end(name, || match self.json {
                true => Ok(()),
                false => output::line(alone(report)),
            });
            // If the output is closed, the proofs have no reader, so they end.
            shown.map_or_else(
                |failure| {
                    unheard = Some(failure);
                    ControlFlow::Break(())
                },
                ControlFlow::Continue,
            )
        });
        drop(progress);
        if let Some(failure) = unheard {
            return Err(failure);
        }
        match outcome {
            Ok(found) => self.judge(&found, proofs),
            Err(error) => {
                let operation = error.operation().unwrap_or("any").to_owned();
                let failure = Failure::new(error);
                if self.json {
                    proofs.push(not_made(operation, &failure));
                    output::json(&proofs)?;
                }
                Err(failure)
            }
        }
    }

    fn judge(&self, found: &SuiteReport, mut proofs: Vec<Proof<Details>>) -> Result<(), Failure> {
        if self.json {
            let coverage = found
                .missing
                .iter()
                .map(|point| format!("not covered: {point}"));
            proofs.push(Proof {
                name: "kill: coverage of declared crash points".into(),
                points: found.coverage.points().count() as u64,
                failures: found.missing.len() as u64,
                seconds: 0.0,
                more: Details {
                    messages: coverage.collect(),
                    ..Details::default()
                },
            });
            output::json(&proofs)?;
        } else {
            for point in &found.missing {
                output::line(format_args!(
                    "not covered: no kill was at the declared crash point {point}"
                ))?;
            }
            let sum =
                |of: fn(&Details) -> u64| proofs.iter().map(|proof| of(&proof.more)).sum::<u64>();
            output::line(format_args!(
                "{} operations, {} instructions swept, {} images, {} kills, {} recoveries: {} failures",
                proofs.len(),
                sum(|more| more.instructions),
                sum(|more| more.images + more.second_kills),
                sum(|more| more.kills),
                sum(|more| more.recoveries),
                proofs.iter().map(|proof| proof.failures).sum::<u64>() + found.missing.len() as u64,
            ))?;
        }
        if found.is_clean() {
            Ok(())
        } else {
            Err(Failure::Found)
        }
    }
}

fn proof(report: &SweepReport) -> Proof<Details> {
    Proof {
        name: format!("kill: {}", report.operation),
        points: report.images + report.second_kills + report.kills,
        failures: report.failures.len() as u64,
        seconds: report.seconds,
        more: Details {
            instructions: report.instructions,
            images: report.images,
            kills: report.kills,
            killed_after: report.share.map(|(killed, _)| killed),
            recoveries: report.recoveries,
            second_kills: report.second_kills,
            messages: report.failures.iter().map(ToString::to_string).collect(),
        },
    }
}

/// Returns the entry of a proof that was not possible.
fn not_made(name: String, failure: &Failure) -> Proof<Details> {
    let message = match failure {
        Failure::Failed(paragraph) => paragraph.clone(),
        _ => String::new(),
    };
    Proof {
        name: format!("kill: {name}"),
        points: 0,
        failures: 1,
        seconds: 0.0,
        more: Details {
            messages: vec![message],
            ..Details::default()
        },
    }
}

/// Returns the report without the crash points that other sweeps must cover.
fn alone(report: &SweepReport) -> SweepReport {
    let mut report = report.clone();
    report.missing.clear();
    report
}
