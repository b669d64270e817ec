//! `outlive-lab prove model`: the model of commit and recovery, checked exhaustively.

use super::selection::{Choice, Selection};
use super::{Progress, Proof};
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use core::time::Duration;
use outlive_model::check::{Report, find, prove};
use outlive_model::flaws::Flaw;
use outlive_model::scenarios::{self, Scenario};
use serde::Serialize;

/// The model of commit and recovery, checked exhaustively.
#[derive(Args, Debug)]
#[command(
    override_usage = "outlive-lab prove model <--all|NAME...|--list [NAME...]> [--full] [--threads N] [--limit TIME] [--json]",
    after_help = "Examples:\n  \
    outlive-lab prove model --list\n  \
    outlive-lab prove model covert-latches     # the shortest counterexample, step by step\n  \
    outlive-lab prove model --all --full --threads 2\n\n\
    The model has two compute servers, two or three memory servers and two objects. Every order of \
    the verbs' effects and every moment of the deaths is explored. A scenario must hold; a broken \
    variant (\"broken: ...\") must be found, and its shortest counterexample is printed. --all \
    leaves out the large scenarios (\"full-...\") unless --full is given. Exits with 1 if a \
    scenario does not hold or was not explored completely, or a broken variant was not found.\n\n\
    JSON: an array of {name, points, failures, seconds, complete, depth, steps, messages}; see \
    docs/json.md."
)]
pub struct Model {
    #[command(flatten)]
    selection: Selection,
    /// Explore the large scenarios too: minutes, and gigabytes of memory
    #[arg(long)]
    full: bool,
    /// The number of threads that explore a scenario
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// The longest time for one scenario, such as 10m [default: none]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    limit: Option<Duration>,
    /// Print the findings as JSON: one array, one object for each scenario and broken variant
    #[arg(long)]
    json: bool,
}

const CHOICE: Choice = Choice {
    command: "model",
    things: "scenarios and broken variants",
    example: "skew",
    has_words: false,
};

enum Subject {
    Scenario(Scenario),
    Broken(Flaw),
}

/// A subject in the list.
#[derive(Serialize)]
struct Listed {
    name: String,
    about: String,
}

#[derive(Serialize)]
struct Details {
    /// Whether all states were explored. A broken variant is explored until it is found.
    complete: bool,
    /// The number of states on the longest path.
    depth: u64,
    /// The number of steps, from all states.
    steps: u64,
    /// The counterexamples, for people.
    messages: Vec<String>,
}

impl Subject {
    fn all() -> Vec<Self> {
        let scenarios = scenarios::ALL.into_iter().map(Self::Scenario);
        scenarios.chain(Flaw::ALL.map(Self::Broken)).collect()
    }

    fn name(&self) -> String {
        match self {
            Self::Scenario(scenario) => scenario.name.to_owned(),
            Self::Broken(flaw) => format!("broken: {}", flaw.name()),
        }
    }

    fn about(&self) -> String {
        match self {
            Self::Scenario(scenario) => scenario.about.to_owned(),
            Self::Broken(flaw) => {
                let (scenario, assertion) = flaw.finder();
                format!("in {scenario}, against: {assertion}")
            }
        }
    }

    fn is_large(&self) -> bool {
        matches!(self, Self::Scenario(scenario) if !scenario.is_small)
    }
}

impl Model {
    pub fn run(self) -> Result<(), Failure> {
        let mut subjects = Subject::all();
        let names: Vec<_> = subjects.iter().map(Subject::name).collect();
        let is_chosen = self.selection.among(&names, &CHOICE)?;
        subjects.retain(|it| is_chosen(&it.name()));
        if self.selection.lists() {
            return self.list(&subjects);
        }
        if self.selection.is_all() && !self.full {
            subjects.retain(|it| !it.is_large());
        }
        let progress = Progress::new(subjects.len());
        let mut proofs = Vec::new();
        for subject in &subjects {
            let name = subject.name();
            progress.begin(&name);
            let proof = self.explore(subject);
            progress.end(&name, || match self.json {
                true => Ok(()),
                false => say(&proof),
            })?;
            proofs.push(proof);
        }
        drop(progress);
        let failures: u64 = proofs.iter().map(|proof| proof.failures).sum();
        if self.json {
            output::json(&proofs)?;
        } else {
            output::line(format_args!(
                "{} proofs, {} states, {:.1} s: {failures} failures",
                proofs.len(),
                proofs.iter().map(|proof| proof.points).sum::<u64>(),
                proofs.iter().map(|proof| proof.seconds).sum::<f64>(),
            ))?;
        }
        match failures {
            0 => Ok(()),
            _ => Err(Failure::Found),
        }
    }

    fn explore(&self, subject: &Subject) -> Proof<Details> {
        let (report, failures) = match subject {
            Subject::Scenario(scenario) => {
                let report = prove(*scenario, self.threads.into(), self.limit);
                let failures = !report.holds();
                (report, failures)
            }
            Subject::Broken(flaw) => {
                let report = find(*flaw);
                let failures = report.violated.is_empty();
                (report, failures)
            }
        };
        Proof {
            name: format!("model: {}", subject.name()),
            points: report.states as u64,
            failures: failures.into(),
            seconds: report.time.as_secs_f64(),
            more: details(&report),
        }
    }

    fn list(&self, subjects: &[Subject]) -> Result<(), Failure> {
        let listed = subjects.iter().map(|it| Listed {
            name: it.name(),
            about: it.about(),
        });
        if self.json {
            return output::json(&listed.collect::<Vec<_>>());
        }
        let mut table = Table::new(["NAME", "WHAT IT DOES"]);
        for one in listed {
            table.row([one.name, one.about]);
        }
        table.lines().try_for_each(output::line)
    }
}

fn details(report: &Report) -> Details {
    let violated = report.violated.iter().map(|(assertion, steps)| {
        let steps = steps.join("\n    ");
        format!("violated: {assertion}\n    {steps}")
    });
    let missed = { report.missed.iter() }.map(|event| format!("did not happen: {event}"));
    Details {
        complete: report.is_complete,
        depth: report.depth as u64,
        steps: report.steps as u64,
        messages: violated.chain(missed).collect(),
    }
}

fn say(proof: &Proof<Details>) -> Result<(), Failure> {
    let more = &proof.more;
    let verdict = match (proof.failures, more.messages.is_empty(), more.complete) {
        (0, true, _) => "holds",
        (0, false, _) => "found",
        (_, true, true) => "not found",
        (_, true, false) => "not explored completely",
        (_, false, _) => "does not hold",
    };
    output::line(format_args!(
        "{}: {} states, {} steps, depth {}, {:.2} s: {verdict}",
        proof.name, proof.points, more.steps, more.depth, proof.seconds
    ))?;
    { more.messages.iter() }.try_for_each(|it| output::line(format_args!("  {it}")))
}
