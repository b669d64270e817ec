//! A store for one search, whose memory servers are members of this process.

use super::hunts::{Hunt, Plan};
use super::report::{Detection, Outcome};
use crate::commands::litmus_store;
use crate::failure::Failure;
use crate::output;
use outlive_litmus::driver::{self, Driver};
use outlive_litmus::explain;
use outlive_litmus::run::{self, Limit, Options, TestReport, Verdict};
use outlive_litmus::test::Test;
use outlive_store::servers::{MemoryServer, Store, StoreOptions};
use outlive_store::verbs::Link;
use outlive_store::workloads::bytes_per_server;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// The number of clients of a test.
const CLIENTS: usize = 4;
/// The number of keys for which the table is created.
const KEYS: u32 = 4000;
/// The duration of a test before the next one begins.
const SLICE: Duration = Duration::from_secs(3);
/// The time between two losses of memory.
const LOSSES: Duration = Duration::from_millis(700);
/// The round trip and the jitter of the emulated links, in microseconds.
const ROUND_TRIP: u64 = 50;
const JITTER: u64 = 200;

/// A store in /dev/shm, which a drop destroys.
pub struct Scratch {
    path: PathBuf,
    store: Store,
    /// The oldest one first.
    memory: VecDeque<MemoryServer>,
    bytes: u64,
    /// The file in which clients record their crash points.
    record: NamedTempFile,
}

impl Scratch {
    /// Creates a store with two memory servers, and with a third one if servers leave.
    pub fn new(hunt: &Hunt) -> Result<Self, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from(format!("/dev/shm/outlive-litmus-bugs-{process}-{number}"));
        let options = StoreOptions::new()
            .replicas(2)
            .protocol(hunt.protocol)
            .process_ids(hunt.process_ids)
            .compute_servers(48, 4)
            .log_slot(16 << 10)
            .memory_servers(256)
            .members(192);
        let store = Store::create(&path, options)?;
        let servers = if hunt.loses_memory { 3 } else { 2 };
        let mut scratch = Self {
            path,
            store,
            memory: VecDeque::new(),
            bytes: bytes_per_server(&[(KEYS.into(), 1)], 1, 2),
            record: NamedTempFile::new().map_err(no_record)?,
        };
        // This process also recovers dead clients.
        if let Some(flaw) = hunt.flaw {
            scratch.store.set_policy(flaw.policy());
        }
        scratch.store.set_recovery_link(Some(Link {
            round_trip: Duration::from_micros(ROUND_TRIP),
            jitter: Duration::from_micros(JITTER),
            ..Link::default()
        }));
        for _ in 0..servers {
            let server = scratch.store.serve_memory(scratch.bytes)?;
            scratch.memory.push_back(server);
        }
        Ok(scratch)
    }

    /// Returns the target of the litmus tests.
    fn target(&self, hunt: &Hunt, seed: u64) -> Result<String, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::new(format_args!(
                "the path of this program is not known: {error}"
            ))
        })?;
        let (program, path) = (program.display(), self.path.display());
        let mut target = format!(
            "exec:exec '{program}' litmus-store '{path}' --keys {KEYS} --seed {seed} \
             --round-trip {ROUND_TRIP}us --jitter {JITTER}us"
        );
        if let Some(flaw) = hunt.flaw {
            target += &format!(" --flaw {}", litmus_store::name(flaw));
        }
        if !hunt.spread.is_zero() {
            target += &format!(" --spread {}us", hunt.spread.as_micros());
        }
        for point in hunt.crashes {
            target += &format!(" --crash {point}");
        }
        if !hunt.crashes.is_empty() {
            let record = self.record.path().display();
            target += &format!(" --crash-one-in {} --crash-record '{record}'", hunt.one_in);
        }
        Ok(target)
    }

    /// Runs the tests in turn until one finds a violation or cannot run, or the time is over.
    pub fn search(&self, hunt: &Hunt, plan: Plan, stop: &AtomicBool) -> Result<Outcome, Failure> {
        let driver: Arc<dyn Driver> = Arc::from(driver::open(&self.target(hunt, plan.seed)?)?);
        let tests = hunt.tests();
        let mut outcome = Outcome::default();
        let begin = Instant::now();
        for (number, test) in tests.iter().cycle().enumerate().skip(plan.first) {
            let left = plan.limit.saturating_sub(begin.elapsed());
            if left.is_zero() {
                break;
            }
            let options = Options {
                clients: CLIENTS,
                limit: Limit::Time(SLICE.min(left)),
                seed: plan.seed << 16 | number as u64,
                ..Options::default()
            };
            let before = begin.elapsed();
            let tests = std::slice::from_ref(test);
            let report = run::run(&driver, tests, &options, stop, &mut |_| ());
            let report = match report {
                Ok(report) => report,
                // An unsound store can refuse the preparation of a test, for example.
                Err(error) if hunt.flaw.is_some() => {
                    output::note(format_args!("{}: {}: {error}", hunt.title(), test.name));
                    outcome.errors += 1;
                    outcome.tests += 1;
                    break;
                }
                Err(error) => return Err(Failure::new(error)),
            };
            if report.is_stopped {
                return Err(Failure::new("the run was interrupted"));
            }
            let report = &report.tests[0];
            let detection = detection(report, before, outcome.executions);
            outcome.add(report);
            if detection.is_some() {
                if hunt.flaw.is_none() {
                    explain(hunt, test, report);
                }
                outcome.found = detection;
                break;
            }
        }
        outcome.elapsed = begin.elapsed();
        // A process that has died is missed by the store, too.
        outcome.recoveries = self.store.status().recoveries;
        let points = std::fs::read_to_string(self.record.path()).map_err(no_record)?;
        for point in points.lines() {
            *outcome.points.entry(point.into()).or_default() += 1;
        }
        Ok(outcome)
    }

    /// Calls `search`, while memory servers leave and their replicas are restored in others.
    pub fn while_losing_memory(
        &mut self,
        search: impl FnOnce(&Self) -> Result<Outcome, Failure>,
    ) -> Result<Outcome, Failure> {
        let is_over = AtomicBool::new(false);
        let mut memory = std::mem::take(&mut self.memory);
        let result = thread::scope(|scope| {
            let (store, bytes, end) = (&self.store, self.bytes, &is_over);
            let memory = &mut memory;
            let losing = scope.spawn(move || lose_memory(store, (memory, bytes), end));
            let outcome = search(self);
            is_over.store(true, Ordering::Relaxed);
            let lost = losing.join().unwrap_or(Err(Failure::new(
                "the thread with the memory servers has panicked",
            )));
            let mut outcome = outcome?;
            outcome.losses = lost?;
            Ok(outcome)
        });
        self.memory = memory;
        result
    }
}

fn no_record(error: std::io::Error) -> Failure {
    Failure::new(format_args!("the crash points cannot be recorded: {error}"))
}

/// Prints the violations of a sound protocol.
fn explain(hunt: &Hunt, test: &Test, report: &TestReport) {
    for violation in &report.violations {
        for line in explain::lines(&explain::explain(test, violation)) {
            output::note(format_args!("{}: {}: {line}", hunt.title(), test.name));
        }
    }
}

/// Lets one memory server after another leave, the oldest first, and restores their replicas in new
/// ones. Returns the number of servers that had replicas.
fn lose_memory(
    store: &Store,
    (memory, bytes): (&mut VecDeque<MemoryServer>, u64),
    is_over: &AtomicBool,
) -> Result<u64, Failure> {
    let compute = store.join_compute()?;
    let mut losses = 0;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(LOSSES);
        memory.push_back(store.serve_memory(bytes)?);
        drop(memory.pop_front());
        losses += u64::from(compute.restore()?.replicas > 0);
    }
    Ok(losses)
}

/// Returns the first violation of a test.
fn detection(report: &TestReport, before: Duration, executions: u64) -> Option<Detection> {
    let violation = { report.violations.iter() }.min_by_key(|it| it.after);
    let of = |what, after, count| Detection {
        test: report.name.clone(),
        family: report.family.name(),
        what,
        after: before + after,
        executions: executions + count,
    };
    match (violation, &report.verdict) {
        (Some(it), _) => Some(of(it.kind.name(), it.after, it.executions)),
        (None, Verdict::Blocked(_)) => Some(of("blocked", report.elapsed, report.executions)),
        (None, _) => None,
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.memory.clear();
        // A drop cannot report an error; `outlive store destroy` removes a store that stays.
        let _ = Store::destroy(&self.path);
    }
}
