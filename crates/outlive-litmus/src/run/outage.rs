//! Crashes of the store, and the writes that have to survive them.

use super::RunError;
use super::client::Client;
use super::options::Options;
use super::plan;
use super::state;
use crate::driver::{Driver, DriverError, Key, StepError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The commands that crash the store and start it again.
pub trait Outage: Send + Sync {
    /// Kills the store. On return, the store does not run.
    ///
    /// # Errors
    /// The reason why it cannot be killed.
    fn kill(&self) -> Result<(), String>;

    /// Starts the store again. On return, the store runs, or will run soon.
    ///
    /// # Errors
    /// The reason why it cannot be started.
    fn recover(&self) -> Result<(), String>;
}

/// The result of crashes of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survival {
    /// The number of times that the store was killed, its connections were lost, and it was
    /// recovered.
    pub kills: u64,
    /// The number of acknowledged writes.
    pub acknowledged: u64,
    /// The number of commits that have lost their answers.
    pub unknown: u64,
    /// The first object whose value was wrong after a recovery.
    pub lost: Option<LostWrite>,
    /// The reason why the store was not usable after a recovery.
    pub blocked: Option<String>,
}

/// An acknowledged write that a crash of the store has undone, or a value that was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostWrite {
    /// The number of the kill, from 1 on.
    pub kill: u64,
    /// The last value whose write was acknowledged.
    pub acknowledged: i64,
    /// The last value whose write was begun.
    pub begun: i64,
    /// The value that was read.
    pub read: Option<i64>,
}

/// The longest time from the beginning of the writes to a kill, in milliseconds.
const LONGEST_TO_KILL: u64 = 300;

/// An object to which one client writes increasing values.
#[derive(Default)]
struct Ledger {
    begun: AtomicI64,
    acknowledged: AtomicI64,
    unknown: AtomicU64,
    /// Whether the connection was lost since the last kill.
    is_lost: AtomicBool,
}

/// Kills the store `kills` times while clients write, each to an object of its own, and asserts
/// that all acknowledged writes are visible after each recovery.
///
/// # Errors
/// If the driver fails, or the store cannot be killed or started.
pub fn survive(
    driver: &Arc<dyn Driver>,
    outage: &dyn Outage,
    kills: u64,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Survival, RunError> {
    driver.create()?;
    let result = kill_repeatedly(driver, outage, kills, options, stop);
    let destroyed = driver.destroy();
    if result.as_ref().is_ok_and(|it| it.blocked.is_none()) {
        destroyed?;
    }
    result
}

fn kill_repeatedly(
    driver: &Arc<dyn Driver>,
    outage: &dyn Outage,
    kills: u64,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Survival, RunError> {
    let ledgers: Vec<Ledger> = (0..options.clients).map(|_| Ledger::default()).collect();
    let objects: Vec<_> = (0..).zip(ledgers.iter().map(|_| Some(0))).collect();
    driver.set(&objects)?;
    let mut survival = Survival::default();
    for kill in 1..=kills {
        if stop.load(Ordering::Relaxed) {
            return Err(RunError::Stopped);
        }
        let mut rng = plan::generator(options.seed, "acknowledged-writes", 0, kill);
        let delay = Duration::from_millis(rng.u64(1..=LONGEST_TO_KILL));
        kill_once(driver, outage, options, &ledgers, delay)?;
        if !ledgers.iter().any(|it| it.is_lost.load(Ordering::Relaxed)) {
            return Err(RunError::NotKilled);
        }
        survival.kills = kill;
        let sum = |of: &dyn Fn(&Ledger) -> u64| ledgers.iter().map(of).sum();
        survival.unknown = sum(&|it| it.unknown.load(Ordering::Relaxed));
        survival.acknowledged = sum(&|it| it.acknowledged.load(Ordering::Relaxed) as u64);
        // A new client, whose connection is opened after the recovery.
        let mut client = Client::new(driver, options.patience);
        let read = state::read_at_rest(&mut client, 0, ledgers.len(), options.patience)?;
        let Some(read) = read else {
            survival.blocked = Some("no transaction commits after the recovery".into());
            break;
        };
        survival.lost = { ledgers.iter().zip(&read) }.find_map(|(it, read)| it.lost(kill, *read));
        let patience = options.patience;
        if let Some(object) = state::write_all(&mut client, 0, ledgers.len(), false, patience)? {
            let reason = format!("object {object} cannot be written after the recovery");
            survival.blocked = Some(reason);
        }
        if survival.lost.is_some() || survival.blocked.is_some() {
            break;
        }
    }
    Ok(survival)
}

/// Writes to all ledgers, kills the store after `delay`, and recovers it.
fn kill_once(
    driver: &Arc<dyn Driver>,
    outage: &dyn Outage,
    options: &Options,
    ledgers: &[Ledger],
    delay: Duration,
) -> Result<(), RunError> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut writers = Vec::new();
        let over = Over(&is_over);
        for (key, ledger) in (0..).zip(ledgers) {
            let is_over = &is_over;
            let write = move || ledger.write(driver, key, options.patience, is_over);
            let writer = thread::Builder::new().spawn_scoped(scope, write);
            writers.push(writer.map_err(RunError::Thread)?);
        }
        thread::sleep(delay);
        // A connection that was lost before the kill proves nothing.
        for ledger in ledgers {
            ledger.is_lost.store(false, Ordering::Relaxed);
        }
        outage.kill().map_err(RunError::Outage)?;
        outage.recover().map_err(RunError::Outage)?;
        // Each client notices the kill with its next statement.
        let begin = Instant::now();
        let has_noticed = || ledgers.iter().any(|it| it.is_lost.load(Ordering::Relaxed));
        while !has_noticed() && begin.elapsed() < options.patience {
            thread::sleep(Duration::from_millis(1));
        }
        drop(over);
        for writer in writers {
            writer.join().map_err(|_| RunError::Panicked)??;
        }
        Ok(())
    })
}

/// Ends the writes when it is dropped, also after an error.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Ledger {
    /// Writes increasing values until `is_over` is set, or the connection is lost: then a commit
    /// may still be running, and a later write could be overwritten by it.
    fn write(
        &self,
        driver: &Arc<dyn Driver>,
        key: Key,
        patience: Duration,
        is_over: &AtomicBool,
    ) -> Result<(), DriverError> {
        let mut client = Client::new(driver, patience);
        while !is_over.load(Ordering::Relaxed) {
            let value = self.begun.load(Ordering::Relaxed) + 1;
            let connection = client.connection()?;
            self.begun.store(value, Ordering::Relaxed);
            let before = connection
                .begin()
                .and_then(|()| connection.write(key, value));
            let ended = before.map(|()| connection.commit());
            match &ended {
                Ok(Ok(())) => self.acknowledged.store(value, Ordering::Relaxed),
                Ok(Err(StepError::Lost(_))) => {
                    self.unknown.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
            if matches!(ended, Err(StepError::Lost(_)) | Ok(Err(StepError::Lost(_)))) {
                self.is_lost.store(true, Ordering::Relaxed);
                break;
            }
        }
        Ok(())
    }

    /// Returns the write that was lost if `read` is the object's value.
    fn lost(&self, kill: u64, read: Option<i64>) -> Option<LostWrite> {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        let begun = self.begun.load(Ordering::Relaxed);
        let is_possible = read.is_some_and(|it| (acknowledged..=begun).contains(&it));
        (!is_possible).then_some(LostWrite {
            kill,
            acknowledged,
            begun,
            read,
        })
    }
}
