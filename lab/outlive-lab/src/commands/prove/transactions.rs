//! `outlive-lab prove transactions`: transactions on the simulated network, with deaths.

use super::Proof;
use super::selection::{self, Choice, Selection};
use crate::amount;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use outlive_proofs::store::transactions::{Counts, Plan, Step, Steps, Victim, run};
use outlive_store::protocol::Protocol;
use serde::Serialize;
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Transactions on the simulated network.
#[derive(Args, Debug)]
#[command(
    override_usage = "outlive-lab prove transactions <--all|NAME...|--list [NAME...]> [--full|--runs N] [--seed N] [--json]",
    after_help = "Examples:\n  \
    outlive-lab prove transactions --list\n  \
    outlive-lab prove transactions losses            # with each protocol\n  \
    outlive-lab prove transactions \"ford losses\" --runs 10000\n  \
    outlive-lab prove transactions losses --seed 4711 --runs 1\n\n\
    Three compute servers execute random transactions on a table with two replicas in three memory \
    servers, over a simulated network with delays, losses, repetitions and lost answers. Compute \
    servers, the first detector of their deaths and the first recoverer die at random moments; a \
    memory server is lost, connections break, and process ids are recycled, as the kind of the run \
    says. Each history is searched for an order that explains all results and agrees \
    with real time (strict serializability); the outcomes that the clients of dead servers \
    find out are part of it. Afterwards each key has to be writable in a few attempts, the \
    replicas must be equal, no latch may have a live holder, and no log may be left of a server \
    that was recovered. A seed repeats a run. Exits with 1 if one of these checks fails.\n\n\
    JSON: an array of {name, points, failures, seconds, messages, ...}; see docs/json.md."
)]
pub struct Transactions {
    #[command(flatten)]
    selection: Selection,
    /// Execute as many runs as --all needs for 100,000 (some minutes); require that compute
    /// servers died after each kind of batch, and that connections broke and memory servers died
    /// with each
    #[arg(long)]
    full: bool,
    /// The number of runs of each kind [default: 200]
    #[arg(long, value_name = "N", conflicts_with_all = ["full", "list"],
        value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// The seed of the first run
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "list",
        value_parser = amount::whole, allow_negative_numbers = true)]
    seed: u64,
    /// Print the findings as JSON: one array, one object for each kind
    #[arg(long)]
    json: bool,
}

const KINDS: Choice = Choice {
    command: "transactions",
    things: "kinds of runs",
    example: "losses",
    has_words: true,
};

/// The number of runs in full, over all kinds.
const FULL: u64 = 100_000;
/// The default number of runs of a kind.
const SOME: u64 = 200;
/// The largest number of failures that are described.
const DESCRIBED: usize = 5;

#[derive(Default, Serialize)]
struct Details {
    seed: u64,
    committed: u64,
    unknown: u64,
    found_committed: u64,
    found_without_effect: u64,
    rolled_forward: u64,
    rolled_back: u64,
    recovered_again: u64,
    detectors_died: u64,
    detected_again: u64,
    detected_late: u64,
    lost_servers: u64,
    stolen: u64,
    snapshots: u64,
    fenced: u64,
    recycled: u64,
    recycled_commits: u64,
    /// The deaths of compute servers, by what they posted last.
    client_deaths: BTreeMap<&'static str, u64>,
    recoverer_deaths: BTreeMap<&'static str, u64>,
    restorer_deaths: BTreeMap<&'static str, u64>,
    /// The batches that were outstanding when their connection broke.
    client_breaks: BTreeMap<&'static str, u64>,
    recoverer_breaks: BTreeMap<&'static str, u64>,
    restorer_breaks: BTreeMap<&'static str, u64>,
    lost_answers: u64,
    /// The batches that were outstanding at a memory server when it died.
    client_losses: BTreeMap<&'static str, u64>,
    recoverer_losses: BTreeMap<&'static str, u64>,
    restorer_losses: BTreeMap<&'static str, u64>,
    messages: Vec<String>,
}

impl Transactions {
    pub fn run(self) -> Result<(), Failure> {
        let all: Vec<(String, &str, Plan)> = { Protocol::ALL.iter() }
            .flat_map(|protocol| {
                Plan::ALL
                    .map(|(kind, plan)| (format!("{protocol} {kind}"), kind, plan.of(*protocol)))
            })
            .collect();
        let names: Vec<String> = all.iter().map(|(name, ..)| name.clone()).collect();
        let is_chosen = self.selection.among(&names, &KINDS)?;
        let chosen: Vec<_> = all.iter().filter(|(name, ..)| is_chosen(name)).collect();
        if self.selection.lists() {
            let about = |name: &str| {
                let kind = all.iter().find(|(it, ..)| it == name);
                kind.map(|(_, kind, _)| about(kind).to_owned())
                    .unwrap_or_default()
            };
            return selection::list(chosen.iter().map(|(name, ..)| name), about, self.json);
        }
        let runs = match self.full {
            true => FULL.div_ceil(all.len() as u64),
            false => self.runs.unwrap_or(SOME),
        };
        let bar = bar(runs * chosen.len() as u64);
        let mut proofs = Vec::new();
        let mut together = Counts::default();
        let (chosen_kinds, has_all) = (chosen.len() as u64, chosen.len() == all.len());
        for (name, _, plan) in chosen {
            bar.set_message(name.clone());
            let (proof, counts) = self.prove(name, *plan, runs, &bar);
            together.add(&counts);
            if !self.json {
                bar.suspend(|| say(&proof))?;
            }
            proofs.push(proof);
        }
        bar.finish_and_clear();
        if self.full && has_all {
            let proof = self.coverage(&together);
            if !self.json {
                say_coverage(&proof)?;
            }
            proofs.push(proof);
        }
        let failures: u64 = proofs.iter().map(|proof| proof.failures).sum();
        match self.json {
            true => output::json(&proofs)?,
            false => output::line(format_args!(
                "{} kinds, {} runs: {failures} failures",
                proofs.len() - usize::from(self.full && has_all),
                runs * chosen_kinds,
            ))?,
        }
        match failures {
            0 => Ok(()),
            _ => Err(Failure::Found),
        }
    }

    /// Executes the runs of a kind on all processors.
    fn prove(
        &self,
        name: &str,
        plan: Plan,
        runs: u64,
        bar: &ProgressBar,
    ) -> (Proof<Details>, Counts) {
        let begun = Instant::now();
        let (next, found) = (
            AtomicU64::new(0),
            Mutex::new((Counts::default(), Vec::new())),
        );
        let work = || loop {
            // Relaxed: the numbers of the runs are distinct, and that suffices.
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= runs {
                return;
            }
            let seed = self.seed.wrapping_add(number);
            let result = catch_unwind(|| run(plan, seed))
                .unwrap_or_else(|_| Err("the run panicked; see above".into()));
            let mut found = found.lock().expect("no thread panics with the lock");
            match result {
                Ok(counts) => found.0.add(&counts),
                Err(error) => found.1.push((seed, error)),
            }
            bar.inc(1);
        };
        std::thread::scope(|scope| {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            (0..threads).for_each(|_| _ = scope.spawn(work));
        });
        let (counts, mut failures) = found.into_inner().expect("no thread panics with the lock");
        failures.sort();
        let mut messages: Vec<String> = { failures.iter().take(DESCRIBED) }
            .map(|(seed, error)| format!("seed {seed}: {error}"))
            .collect();
        let mut never = Vec::new();
        if self.full && plan.deaths > 0 {
            // A restorer posts few batches. It releases a latch by CAS only if a change ends its
            // attempt, and does not wait for the release by WRITE.
            let is_rare = |(victim, step): &(Victim, Step)| {
                *victim == Victim::Restorer && matches!(step, Step::Release | Step::Unlatch)
            };
            let all = missing(&counts.deaths, &plan).filter(|it| !is_rare(it));
            never.extend(all.map(|(victim, step)| {
                format!("no {victim:?} died after a batch of {}", step.name())
            }));
        }
        if self.full && plan.breaks > 0 {
            // The batches of restorers are few.
            let all = missing(&counts.breaks, &plan).filter(|it| it.0 != Victim::Restorer);
            never.extend(all.map(|(victim, step)| {
                let step = step.name();
                format!("no connection broke with a batch of {step} of a {victim:?}")
            }));
        }
        if self.full && plan.memory_dies {
            // Recoverers and restorers are seldom at work when a server is lost, and a client
            // seldom releases a latch by CAS at that moment.
            let is_frequent = |(victim, step): &(Victim, Step)| {
                *victim == Victim::Client && *step != Step::Release
            };
            let all = missing(&counts.losses, &plan).filter(is_frequent);
            never.extend(all.map(|(victim, step)| {
                let step = step.name();
                format!("no memory server died with a batch of {step} of a {victim:?}")
            }));
        }
        let failed = (failures.len() + never.len()) as u64;
        messages.extend(never);
        let named = |all: &Steps, of: Victim| {
            let all = all.iter().filter(|((victim, _), _)| *victim == of);
            all.map(|((_, step), count)| (step.name(), *count))
                .collect()
        };
        let proof = Proof {
            name: format!("transactions: {name}"),
            points: runs,
            failures: failed,
            seconds: begun.elapsed().as_secs_f64(),
            more: Details {
                seed: self.seed,
                committed: counts.committed as u64,
                unknown: counts.unknown as u64,
                found_committed: counts.found_committed as u64,
                found_without_effect: counts.found_without_effect as u64,
                rolled_forward: counts.forward,
                rolled_back: counts.back,
                recovered_again: counts.again,
                detectors_died: counts.detectors_died,
                detected_again: counts.detected_again,
                detected_late: counts.detected_late,
                lost_servers: counts.lost,
                stolen: counts.stolen,
                snapshots: counts.snapshots,
                fenced: counts.fenced,
                recycled: counts.recycled,
                recycled_commits: counts.recycled_commits as u64,
                client_deaths: named(&counts.deaths, Victim::Client),
                recoverer_deaths: named(&counts.deaths, Victim::Recoverer),
                restorer_deaths: named(&counts.deaths, Victim::Restorer),
                client_breaks: named(&counts.breaks, Victim::Client),
                recoverer_breaks: named(&counts.breaks, Victim::Recoverer),
                restorer_breaks: named(&counts.breaks, Victim::Restorer),
                lost_answers: counts.lost_answers,
                client_losses: named(&counts.losses, Victim::Client),
                recoverer_losses: named(&counts.losses, Victim::Recoverer),
                restorer_losses: named(&counts.losses, Victim::Restorer),
                messages,
            },
        };
        (proof, counts)
    }

    /// Checks, over all kinds of runs together, that each victim died, lost a connection and lost a
    /// memory server at each step. A single kind may not cover all of these.
    fn coverage(&self, together: &Counts) -> Proof<Details> {
        let plan = Plan::RESTORATIONS;
        // A restorer releases a latch by CAS only after a loss has ended its attempt, and no run
        // loses another server at that moment.
        let is_impossible = |what: &str, step: &(Victim, Step)| {
            what.contains("memory") && *step == (Victim::Restorer, Step::Release)
        };
        let events = [
            ("died after", &together.deaths),
            ("lost a connection with", &together.breaks),
            ("lost a memory server with", &together.losses),
        ];
        let messages = events.iter().flat_map(|(what, seen)| {
            let missing = missing(seen, &plan).filter(move |it| !is_impossible(what, it));
            missing.map(move |(victim, step)| {
                format!("no {victim:?} {what} a batch of {}", step.name())
            })
        });
        let messages: Vec<String> = messages.collect();
        Proof {
            name: "transactions: coverage of all kinds".into(),
            points: (events.len() * missing(&Steps::new(), &plan).count()) as u64 - 1,
            failures: messages.len() as u64,
            seconds: 0.0,
            more: Details {
                seed: self.seed,
                messages,
                ..Details::default()
            },
        }
    }
}

/// Returns the steps that runs of the plan have and that are not among those that were `seen`.
fn missing(seen: &Steps, plan: &Plan) -> impl Iterator<Item = (Victim, Step)> {
    let possible = { Victim::ALL.iter() }.flat_map(|victim| {
        let steps = Step::ALL.iter().filter(|step| step.is_of(*victim, plan));
        steps.map(|step| (*victim, *step))
    });
    possible.filter(|step| !seen.contains_key(step))
}

/// One line that explains a kind of runs.
fn about(kind: &str) -> &'static str {
    match kind {
        "clean" => "transactions without deaths",
        "deaths" => "two compute servers, the first recoverer and the first detector die",
        "losses" => "as deaths; a memory server is lost as well",
        "single" => "as deaths, with transactions of one access to one key",
        "stalls" => "as losses; attempts wait at latches of servers under recovery",
        "snapshots" => "as losses; a third of the transactions read the whole table",
        "restorations" => "as losses; the replicas are restored, and another server is lost later",
        "broken-connections" => "as losses; connections with outstanding verbs break",
        "suspicions" => "as losses; a live compute server is recovered, and runs without rights",
        "dropped-workers" => "the same; workers are dropped while they release latches",
        "broken-restorations" => "as restorations; connections with outstanding verbs break",
        "chains" => "as restorations; buckets join and leave a chain all the time",
        "recycled-restorations" => "as recycled-ids; the replicas of lost memory are restored",
        "recycled-ids" => {
            "as losses; new servers receive the process ids of dead ones, and may die"
        }
        "restorations-of-three" => "the same with three replicas, and the loss in the restoration",
        _ => "",
    }
}

fn bar(runs: u64) -> ProgressBar {
    let bar = ProgressBar::new(runs);
    match ProgressStyle::with_template("{pos}/{len} {elapsed} {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn say_coverage(proof: &Proof<Details>) -> Result<(), Failure> {
    output::line(format_args!(
        "{}: {} pairs of a step and a failure, {} did not occur",
        proof.name, proof.points, proof.failures
    ))?;
    proof.more.messages.iter().try_for_each(output::line)
}

fn say(proof: &Proof<Details>) -> Result<(), Failure> {
    let Proof {
        name,
        points,
        failures,
        seconds,
        more,
    } = proof;
    let each = |steps: &BTreeMap<&str, u64>| -> String {
        let each: Vec<_> = steps
            .iter()
            .map(|(step, n)| format!("{n} {step}"))
            .collect();
        each.join(", ")
    };
    output::line(format_args!(
        "{name}: {points} runs, {failures} failures, {seconds:.1} s; {} committed, {} without an \
         answer ({} found committed, {} without effect); {} rolled forward, {} back; {} \
         recoveries continued; {} memory servers lost; {} latches stolen",
        more.committed,
        more.unknown,
        more.found_committed,
        more.found_without_effect,
        more.rolled_forward,
        more.rolled_back,
        more.recovered_again,
        more.lost_servers,
        more.stolen,
    ))?;
    if more.detectors_died > 0 {
        let (died, steps, late) = (more.detectors_died, more.detected_again, more.detected_late);
        output::line(format_args!(
            "  {died} detectors died; second ones recorded {steps} suspicions, deaths and losses; \
             {late} were recorded by the other detector in the meantime"
        ))?;
    }
    if more.recycled > 0 {
        let (ids, commits) = (more.recycled, more.recycled_commits);
        output::line(format_args!(
            "  {ids} process ids were recycled, {commits} transactions committed under them"
        ))?;
    }
    if more.lost_answers > 0 {
        let answers = more.lost_answers;
        output::line(format_args!(
            "  {answers} batches took effect and lost their answer"
        ))?;
    }
    for (what, steps) in [
        ("clients died after", &more.client_deaths),
        ("recoverers died after", &more.recoverer_deaths),
        ("restorers died after", &more.restorer_deaths),
        ("connections of clients broke with", &more.client_breaks),
        (
            "connections of recoverers broke with",
            &more.recoverer_breaks,
        ),
        ("connections of restorers broke with", &more.restorer_breaks),
        (
            "memory servers died with batches of clients",
            &more.client_losses,
        ),
        (
            "memory servers died with batches of recoverers",
            &more.recoverer_losses,
        ),
        (
            "memory servers died with batches of restorers",
            &more.restorer_losses,
        ),
    ] {
        if !steps.is_empty() {
            output::line(format_args!("  {what}: {}", each(steps)))?;
        }
    }
    more.messages.iter().try_for_each(output::line)
}
