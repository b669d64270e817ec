//! Chaos over named objects: worker processes, each on a host of its own, create, rename, unlink
//! and remove objects under a few names, use their contents, and are killed at random.
//!
//! A worker notes each operation in its ledger, before and after it. It *owns* the objects that it
//! creates under some of the names. Only the owner renames and removes them, so its ledgers
//! determine which objects exist, and under which names. Another worker's object can take a name at
//! any time, and every worker uses all objects. All workers rename and remove the objects under the
//! other, *common* names. Each worker also adds to totals by requests of its client. Its next
//! incarnation asks the client for the outcome of the last request.
//!
//! Periodically, all workers are killed. When they are recovered, the pod is compared with the
//! account of all ledgers. An operation that a kill interrupted may have taken effect or not:
//!
//! * each object of a worker exists, whole, under exactly one of its possible names, and no other
//!   object exists;
//! * the contents of each object count the additions to it;
//! * the totals count exactly the requests that took effect;
//! * no lease is left, no block of the heap is lost or reached twice, and the pod is clean.

mod account;
mod contents;
mod ledger;
mod names;
mod worker;

pub use crate::killing::Until;
pub use worker::work;

use crate::killing::{self, Processes, Schedule, text};
use account::{Account, Found};
use contents::Used;
use core::fmt;
use ledger::{Ledger, What};
use outlive::pod::Session;
use outlive_prove::chaos::Broken;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The environment variables of a worker: its number, its incarnation, the seed of its operations,
/// and the way in which it is broken.
const WORKER: &str = "OUTLIVE_CHAOS_WORKER";
const INCARNATION: &str = "OUTLIVE_CHAOS_INCARNATION";
const SEED: &str = "OUTLIVE_CHAOS_SEED";
const BROKEN: &str = "OUTLIVE_CHAOS_BROKEN";

/// The size of the pod in bytes.
const BYTES: u64 = 128 << 20;
/// The name of the map of totals, and the number of totals.
const TOTALS: &str = "totals";
const KEYS: u64 = 4;
/// The time between two checks.
const BETWEEN_CHECKS: Duration = Duration::from_secs(2);
/// One in this number of kills hits several workers at once.
const SEVERAL_ONE_IN: u64 = 8;
/// The maximal number of faults that are reported with their text.
const MAX_REPORTED_FAULTS: usize = 16;

fn client_name(worker: u32) -> String {
    format!("client {worker}")
}

/// The options of a chaos run over objects.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The end of the kills.
    pub until: Until,
    /// The seed of the kills and of the workers' operations.
    pub seed: u64,
    /// The number of workers, at most 63.
    pub processes: u32,
    /// The way in which the workers are broken: [`Broken::Forgetful`] ones do not ask for the
    /// outcome of their last request, and [`Broken::Loses`] ones unlink objects without a note.
    pub broken: Option<Broken>,
    /// Ends the kills early when it is set; the final check follows. For signal handlers.
    pub enough: Arc<AtomicBool>,
}

impl Options {
    /// Returns options for eight workers.
    pub fn new(until: Until, seed: u64) -> Self {
        Self {
            until,
            seed,
            processes: 8,
            broken: None,
            enough: Arc::default(),
        }
    }
}

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The time since the start.
    pub elapsed: Duration,
    /// The number of processes killed.
    pub kills: u64,
    /// The number of times that all workers were killed and the whole pod was checked.
    pub checks: u64,
    /// The number of operations that ended.
    pub operations: u64,
    /// The number of operations that took effect, by kind.
    pub effects: BTreeMap<&'static str, u64>,
    /// The number of operations that a kill interrupted.
    pub cut_off: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effects = self.effects.iter();
        let effects: Vec<_> = effects.map(|(what, n)| format!("{n} {what}")).collect();
        write!(
            f,
            "{:.0} s: {} operations ({}), {} cut off; {} processes killed; {} checks",
            self.elapsed.as_secs_f64(),
            self.operations,
            effects.join(", "),
            self.cut_off,
            self.kills,
            self.checks
        )
    }
}

/// The result of a run.
pub type Report = killing::Report<Progress>;

/// Runs workers while they are killed. `name` is part of the pod's name; `command` makes the
/// command of a worker, which calls [`work`]; `on_progress` gets the progress every second.
///
/// # Errors
/// If the run was impossible. Faults found by the run are in the report.
pub fn run(
    name: &str,
    options: &Options,
    command: impl Fn() -> Command + 'static,
    on_progress: impl FnMut(&Progress),
) -> Result<Report, String> {
    outlive_prove::kill::require_effective_kills().map_err(text)?;
    let processes = Processes::new(&format!("objects-{name}"), BYTES, command)?;
    let pod = processes.pod.clone();
    let session = pod.session().map_err(text)?;
    session.map::<u64, u64>(TOTALS).map_err(text)?;
    let mut run = Run {
        options,
        processes,
        session: &session,
        schedule: Schedule::new(options.until, options.seed, &options.enough),
        ledgers: BTreeMap::new(),
        incarnation: 0,
        account: Account::new(options.processes),
        progress: Progress::default(),
        on_progress,
    };
    let mut failures = Vec::from_iter(run.all().err());
    // After a failure, the ledgers of the running workers may contain further faults.
    run.processes.clear();
    failures.extend(run.enter_all().err());
    run.update_progress();
    failures.append(&mut run.account.failures);
    let untold = failures.len().saturating_sub(MAX_REPORTED_FAULTS);
    if untold > 0 {
        failures.truncate(MAX_REPORTED_FAULTS);
        failures.push(format!("{untold} more faults were found"));
    }
    Ok(Report {
        progress: run.progress,
        failures,
    })
}

struct Run<'r, H> {
    options: &'r Options,
    processes: Processes,
    session: &'r Session,
    schedule: Schedule,
    /// The ledgers of the running workers.
    ledgers: BTreeMap<u32, Ledger>,
    /// The number of workers started so far; the incarnation of the next one.
    incarnation: u64,
    account: Account,
    progress: Progress,
    on_progress: H,
}

impl<H: FnMut(&Progress)> Run<'_, H> {
    /// Runs everything, up to the first failure.
    fn all(&mut self) -> Result<(), String> {
        while self.goes_on() {
            for worker in 0..self.options.processes {
                self.start(worker)?;
            }
            let until = Instant::now() + BETWEEN_CHECKS;
            while self.goes_on() && Instant::now() < until {
                self.kill_if_due()?;
                std::thread::sleep(Duration::from_millis(1));
            }
            self.check()?;
        }
        if self.account.failures.is_empty() {
            self.remove_all()?;
        }
        Ok(())
    }

    fn goes_on(&self) -> bool {
        !self.schedule.is_over(self.progress.kills) && self.account.failures.is_empty()
    }

    fn start(&mut self, worker: u32) -> Result<(), String> {
        let ledger = Ledger::new()?;
        let mut environment = vec![
            (WORKER, worker.to_string()),
            (INCARNATION, self.incarnation.to_string()),
            (SEED, self.options.seed.to_string()),
        ];
        environment.extend(self.options.broken.map(|it| (BROKEN, it.name().to_owned())));
        self.incarnation += 1;
        self.processes
            .start(worker, ledger.output()?, &environment)?;
        self.ledgers.insert(worker, ledger);
        Ok(())
    }

    /// Enters the ledger of a dead worker into the account.
    fn enter(&mut self, worker: u32) -> Result<(), String> {
        if let Some(ledger) = self.ledgers.remove(&worker) {
            self.account.enter(worker, &ledger.notes()?);
        }
        Ok(())
    }

    fn enter_all(&mut self) -> Result<(), String> {
        (0..self.options.processes).try_for_each(|worker| self.enter(worker))
    }

    fn update_progress(&mut self) {
        let effects = &self.account.effects;
        let of = |what: What| (what.name(), effects.get(&what).copied().unwrap_or(0));
        self.progress.effects = What::ALL.map(of).into();
        self.progress.operations = self.account.operations;
        self.progress.cut_off = self.account.cut_off;
        self.progress.elapsed = self.schedule.elapsed();
    }

    /// Kills one worker, or several, and starts them again.
    fn kill_if_due(&mut self) -> Result<(), String> {
        if self.schedule.new_second().is_some() {
            self.update_progress();
            (self.on_progress)(&self.progress);
        }
        if !self.schedule.is_kill_due(self.progress.kills) {
            return Ok(());
        }
        let many = match self.schedule.draw(SEVERAL_ONE_IN) {
            0 => 1 + self.schedule.draw(self.processes.children() as u64),
            _ => 1,
        };
        let mut killed = Vec::new();
        for _ in 0..many {
            let index = self.schedule.draw(self.processes.children() as u64) as usize;
            killed.push(self.processes.kill(index)?);
        }
        self.progress.kills += many;
        for worker in killed {
            self.enter(worker)?;
            self.start(worker)?;
        }
        Ok(())
    }

    /// Kills all workers, waits until they are recovered, and checks everything.
    fn check(&mut self) -> Result<(), String> {
        let killed = self.processes.children() as u64;
        let (process, member) = (self.session.process(), self.session.member());
        let me = [
            process.host().id,
            process.instance().id,
            member.instance().id,
        ];
        self.processes.end(&me)?;
        self.progress.kills += killed;
        self.progress.checks += 1;
        self.enter_all()?;
        let objects = self.session.objects();
        let lessees = objects.lessees();
        if !lessees.is_empty() {
            return Err(format!("the dead members {lessees:?} have leases"));
        }
        let mut names: BTreeSet<String> = { objects.list().map_err(text)? }
            .into_iter()
            .map(|object| object.name)
            .collect();
        let (mut found, workers) = (Vec::new(), self.options.processes);
        for at in 0..names::staging(workers) {
            let name = names::name(at);
            if let Some(used) = Used::open(objects, &name)? {
                let (id, count) = used.read().map_err(|error| format!("`{name}`: {error}"))?;
                found.push(Found {
                    name: at,
                    id,
                    count,
                });
            }
            names.remove(&name);
        }
        self.account.settle_all(&found);
        for worker in 0..workers {
            if names.remove(&client_name(worker)) {
                let client = self.session.client(&client_name(worker)).map_err(text)?;
                let last = client.last().map(|last| (last.token, last.took_effect));
                let (token, effect) = last.unwrap_or((0, true));
                self.account.settle_request(worker, token, effect);
            }
        }
        names.remove(TOTALS);
        if !names.is_empty() {
            return Err(format!("objects exist under unexpected names: {names:?}"));
        }
        let totals = self.session.map::<u64, u64>(TOTALS).map_err(text)?;
        for (key, requests) in (0..).zip(self.account.totals) {
            let total = totals.get(&key).unwrap_or(0);
            if total != requests {
                self.account.failures.push(format!(
                    "total {key} is {total}, but {requests} requests took effect"
                ));
            }
        }
        self.demand_nothing_leaks()
    }

    fn demand_nothing_leaks(&self) -> Result<(), String> {
        self.session.heap().reclaim();
        let blocks = self.session.objects().blocks().map_err(text)?;
        self.processes.demand_only(blocks)?;
        self.processes.demand_clean_pod()
    }

    /// Removes all objects, and checks that only the directory is left.
    fn remove_all(&self) -> Result<(), String> {
        let objects = self.session.objects();
        for object in objects.list().map_err(text)? {
            objects.remove(&object.name).map_err(text)?;
        }
        self.demand_nothing_leaks()
    }
}
