//! `outlive-lab prove machine-crash`: nodes of the simulated machine die at many moments of a run.

use super::Proof;
use super::explained;
use super::selection::{self, Choice, Selection};
use crate::amount;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use outlive_kernels::crash as kernels;
use outlive_machine::crash::{self, Failed, Report};
use serde::Serialize;
use std::time::Instant;

/// Crashes of nodes of the simulated machine.
#[derive(Args, Debug)]
#[command(
    override_usage = "outlive-lab prove machine-crash <--all|NAME...|--list [NAME...]> [--full|--points N] [--seed N] [--json]",
    after_help = "Examples:\n  \
    outlive-lab prove machine-crash --list\n  \
    outlive-lab prove machine-crash recxl-adaptive      # every program, on this configuration\n  \
    outlive-lab prove machine-crash \"recxl-adaptive ycsb\"   # one of them; without quotes, all \
    with either name\n  \
    outlive-lab prove machine-crash ycsb --points 5000\n  \
    outlive-lab prove machine-crash --all --full --json\n\n\
    The whole name of a configuration or program selects only that one, and none with a longer \
    name.\n\n\
    Each program runs on a small machine of four or five nodes, and the run is forked at many \
    points. There a node dies (with drawn programs, ycsb and raytrace also two or three nodes, \
    shortly after each other), some of its last messages are lost, and the other nodes detect the \
    death and recover. Then the result is judged: the lines of a dead node must hold the values \
    committed to them, no directory may name a dead node, every value that a surviving thread \
    reads must be the last one, and surviving threads must continue. Programs whose threads do not \
    need each other (drawn programs, ycsb and raytrace) must end, and memory and logs must hold \
    all committed values. wb does nothing against a death: its runs must show that the judge \
    detects losses. The seed determines the points. Exits with 1 if anything else is found.\n\n\
    JSON: an array of {name, points, failures, seconds, messages, ...}; see docs/json.md."
)]
pub struct MachineCrash {
    #[command(flatten)]
    selection: Selection,
    /// Try enough points of each program that --all covers at least 100,000 at which nothing may be
    /// lost: a quarter of an hour
    #[arg(long)]
    full: bool,
    /// The number of points of each program on each configuration: at least 20, the number of drawn
    /// programs [default: 100]
    #[arg(long, value_name = "N", conflicts_with_all = ["full", "list"], value_parser = points, allow_negative_numbers = true)]
    points: Option<u64>,
    /// The seed of the points and of all that a machine leaves to chance
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "list", value_parser = amount::whole, allow_negative_numbers = true)]
    seed: u64,
    /// Print the findings as JSON: one array, one object for each proof
    #[arg(long)]
    json: bool,
}

const PROOFS: Choice = Choice {
    command: "machine-crash",
    things: "configurations and programs",
    example: "ycsb",
    has_words: true,
};

/// The number of points tried in full, over all proofs in which nothing may be lost.
const FULL: u64 = 100_000;
/// The minimum number of points of each program.
const LEAST: u64 = 20;
/// The default number of points of each program.
const SOME: u64 = 100;

#[derive(Serialize)]
struct Details {
    seed: u64,
    /// Of the runs that are crashed.
    events: u64,
    /// The recoveries that ended, where nothing was lost.
    recoveries: u64,
    /// Commits before the deaths, over all points.
    stores: u64,
    /// Lines of dead owners to which these gave contents.
    restored: u64,
    /// Points after whose recovery a thread gave up on work that a dead node left half done.
    given_up: u64,
    /// Points after which committed stores were missing: failures, unless the configuration does
    /// not protect them.
    lost: u64,
    protects: bool,
    /// The faults, for people.
    messages: Vec<String>,
}

impl MachineCrash {
    pub fn run(self) -> Result<(), Failure> {
        let all = kernels::Proof::all();
        let names: Vec<String> = all.iter().map(kernels::Proof::name).collect();
        let is_chosen = self.selection.among(&names, &PROOFS)?;
        let is_chosen = |(_, name): &(&kernels::Proof, &String)| is_chosen(name);
        let chosen: Vec<_> = all.iter().zip(&names).filter(is_chosen).collect();
        if self.selection.lists() {
            let names = chosen.into_iter().map(|(_, name)| name);
            return selection::list(names, explained::of_machine, self.json);
        }
        let protecting = all.iter().filter(|proof| proof.protects()).count() as u64;
        let points = match self.full {
            true => FULL.div_ceil(protecting),
            false => self.points.unwrap_or(SOME),
        };
        crash::silence_judges();
        let bar = bar(points * chosen.len() as u64);
        let mut proofs = Vec::new();
        for (proof, name) in chosen {
            bar.set_message(name.clone());
            let begun = Instant::now();
            let report = proof
                .run(points, self.seed, &|more| bar.inc(more))
                .map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
            let found = found(
                proof,
                name,
                &report,
                begun.elapsed().as_secs_f64(),
                self.seed,
            );
            if !self.json {
                bar.suspend(|| say(&found))?;
            }
            proofs.push(found);
        }
        bar.finish_and_clear();
        match self.json {
            true => output::json(&proofs)?,
            false => say_all(&proofs)?,
        }
        match proofs.iter().all(|proof| proof.failures == 0) {
            true => Ok(()),
            false => Err(Failure::Found),
        }
    }
}

/// Reads the number of points. Each drawn program has at least one.
fn points(text: &str) -> Result<u64, String> {
    let points = amount::whole(text)?;
    match points >= LEAST {
        true => Ok(points),
        false => Err(format!(
            "give at least {LEAST}, the number of drawn programs"
        )),
    }
}

fn bar(points: u64) -> ProgressBar {
    let bar = ProgressBar::new(points);
    match ProgressStyle::with_template("{pos}/{len} points {elapsed} {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn found(
    proof: &kernels::Proof,
    name: &str,
    report: &Report,
    seconds: f64,
    seed: u64,
) -> Proof<Details> {
    let tell = |failed: &Failed| format!("{}: {}", failed.point, failed.what);
    let (failures, messages) = match (proof.holds(report), proof.protects()) {
        (true, _) => (0, Vec::new()),
        (false, true) => (report.failed, report.failures.iter().map(tell).collect()),
        (false, false) if report.failed == report.lost => {
            let blind = "no store was lost, though this configuration does not protect stores: the \
                         judge does not detect losses";
            (1, vec![blind.to_owned()])
        }
        (false, false) => {
            let others = report.failed - report.lost;
            let message = format!("{others} points led to failures other than lost stores");
            let first = report.failures.iter().map(tell);
            (others, std::iter::once(message).chain(first).collect())
        }
    };
    Proof {
        name: format!("machine-crash: {name}"),
        points: report.points,
        failures,
        seconds,
        more: Details {
            seed,
            events: report.events,
            recoveries: report.recoveries,
            stores: report.stores,
            restored: report.restored,
            given_up: report.given_up,
            lost: report.lost,
            protects: proof.protects(),
            messages,
        },
    }
}

fn say(proof: &Proof<Details>) -> Result<(), Failure> {
    let more = &proof.more;
    let given_up = match more.given_up {
        0 => String::new(),
        points => format!(
            "; after {points} a thread gave up on an operation that a dead one had left half done"
        ),
    };
    let verdict = match (proof.failures, more.protects) {
        (0, true) => "nothing lost".to_owned(),
        (0, false) => format!("stores lost after {} of the points, as expected", more.lost),
        (failures, _) => format!("{failures} failures"),
    };
    output::line(format_args!(
        "{}: {} points, {} recoveries that lost nothing, {} stores judged, {} lines restored: {verdict}{given_up}",
        proof.name, proof.points, more.recoveries, more.stores, more.restored
    ))?;
    more.messages
        .iter()
        .try_for_each(|message| output::line(format_args!("  {message}")))
}

fn say_all(proofs: &[Proof<Details>]) -> Result<(), Failure> {
    let sum = |of: fn(&Proof<Details>) -> u64| proofs.iter().map(of).sum::<u64>();
    let safe = sum(|proof| if proof.more.protects { proof.points } else { 0 });
    output::line(format_args!(
        "{} proofs, {} points ({safe} of which must lose nothing), {} recoveries that lost \
         nothing, {} stores judged, {} lines restored: {} failures",
        proofs.len(),
        sum(|proof| proof.points),
        sum(|proof| proof.more.recoveries),
        sum(|proof| proof.more.stores),
        sum(|proof| proof.more.restored),
        sum(|proof| proof.failures),
    ))
}
