//! `outlive-lab prove machine-crash`: nodes of the simulated machine die at many moments of a run.

use super::Proof;
use super::explained;
use super::selection::{self, Choice, Selection};
use crate::amount;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
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
    outlive-lab prove machine-crash \"recxl-adaptive ycsb\"   # one of them; without quotes, all that has either\n  \
    outlive-lab prove machine-crash ycsb --points 5000\n  \
    outlive-lab prove machine-crash --all --full --json\n\n\
    A configuration or program that is named whole is that alone, and none whose name is longer.\n\n\
    Each program is run on a small machine of four or five nodes, and the run is forked at many of its moments: a node dies there (of drawn \
    programs, ycsb and raytrace also two or three, one soon after the other), some of its last messages are lost, the others detect that and recover, and \
    what is left is judged: what had been committed to a dead node's lines must be there, no directory may name the dead, every \
    value that the living read must be the last, and they must go on; if they need nothing of the dead (drawn programs, ycsb and \
    raytrace), they must end, and memory and logs must hold all that was committed. Of wb, which does nothing against a death, it is shown that the judge sees what it loses. The same points come \
    with the same seed. Exits with 1 if anything else is found.\n\n\
    JSON: an array of {name, points, failures, seconds, messages, ...}; docs/json.md names the rest."
)]
pub struct MachineCrash {
    #[command(flatten)]
    selection: Selection,
    /// So many points of each that, with --all, at least 100,000 may lose nothing: a quarter of an hour
    #[arg(long)]
    full: bool,
    /// How many points of each program are tried on each configuration: at least 20, as many as programs are drawn [default: 100]
    #[arg(long, value_name = "N", conflicts_with_all = ["full", "list"], value_parser = points, allow_negative_numbers = true)]
    points: Option<u64>,
    /// What the points and all that a machine leaves to chance follow from
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "list", value_parser = amount::whole, allow_negative_numbers = true)]
    seed: u64,
    /// Print what was found as JSON: one array, one object for each proof
    #[arg(long)]
    json: bool,
}

const PROOFS: Choice = Choice {
    command: "machine-crash",
    things: "configurations and programs",
    example: "ycsb",
    has_words: true,
};

/// How many points are tried in full, over all proofs in which nothing may be lost.
const FULL: u64 = 100_000;
/// How few of each can be wanted.
const LEAST: u64 = 20;
/// How many of each by default.
const SOME: u64 = 100;

#[derive(Serialize)]
struct Details {
    seed: u64,
    /// Of the runs that are crashed.
    events: u64,
    /// That came to their end, where nothing was lost.
    recoveries: u64,
    /// Commits before the deaths, over all points.
    stores: u64,
    /// Lines of dead owners to which these gave contents.
    restored: u64,
    /// Points after whose recovery a thread gave up on what the dead have left half done.
    given_up: u64,
    /// Points after which committed stores were missing: failures, unless the configuration does nothing against that.
    lost: u64,
    protects: bool,
    /// What is wrong, for people.
    messages: Vec<String>,
}

impl MachineCrash {
    pub fn run(self) -> Result<(), Failure> {
        let all = crash::Proof::all();
        let names: Vec<String> = all.iter().map(crash::Proof::name).collect();
        let is_chosen = self.selection.among(&names, &PROOFS)?;
        let is_chosen = |(_, name): &(&crash::Proof, &String)| is_chosen(name);
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

/// Reads how many points are tried: of drawn programs each has one at least.
fn points(text: &str) -> Result<u64, String> {
    let points = amount::whole(text)?;
    match points >= LEAST {
        true => Ok(points),
        false => Err(format!("give {LEAST} at least: as many programs are drawn")),
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
    proof: &crash::Proof,
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
            let blind =
                "nothing was lost, though nothing was done against that: the judge sees nothing";
            (1, vec![blind.to_owned()])
        }
        (false, false) => {
            let others = report.failed - report.lost;
            let message =
                format!("{others} points were followed by something worse than lost stores");
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
        points => format!("; after {points} a thread gave up on what the dead had left half done"),
    };
    let verdict = match (proof.failures, more.protects) {
        (0, true) => "nothing lost".to_owned(),
        (0, false) => format!(
            "stores lost after {} of the points, as it must be",
            more.lost
        ),
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
        "{} proofs, {} points ({safe} of which may lose nothing), {} recoveries that lost nothing, {} stores judged, {} lines restored: {} failures",
        proofs.len(),
        sum(|proof| proof.points),
        sum(|proof| proof.more.recoveries),
        sum(|proof| proof.more.stores),
        sum(|proof| proof.more.restored),
        sum(|proof| proof.failures),
    ))
}
