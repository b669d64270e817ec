//! Crashes of the store, and the writes that have to survive them.

use super::RunError;
use super::client::Client;
use super::context::Context;
use super::keys::Keys;
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

/// The result of a series of crashes of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survival {
    /// The number of times that the store was killed, a connection to it was lost or could not be
    /// opened, and it was recovered.
    pub kills: u64,
    /// The number of acknowledged writes, at least one before each kill.
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

/// The interval at which connections are opened in order to see that the store does not run.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Kills the store, and starts it again when a client has lost its connection or no connection can
/// be opened, or after `patience`. Returns whether one of these was seen between the kill and the
/// recovery: otherwise the command has killed another process, or none.
fn kill_and_recover(
    driver: &dyn Driver,
    outage: &dyn Outage,
    patience: Duration,
    has_lost: &dyn Fn() -> bool,
    is_stopped: &dyn Fn() -> bool,
) -> Result<bool, RunError> {
    outage.kill().map_err(RunError::Outage)?;
    let begin = Instant::now();
    let mut next_probe = Duration::ZERO;
    let is_killed = loop {
        if has_lost() {
            break true;
        }
        if begin.elapsed() >= next_probe {
            if driver.connect().is_err() {
                break true;
            }
            next_probe = begin.elapsed() + PROBE_INTERVAL;
        }
        if is_stopped() || begin.elapsed() >= patience {
            break false;
        }
        thread::sleep(Duration::from_millis(1));
    };
    outage.recover().map_err(RunError::Outage)?;
    Ok(is_killed)
}

/// Kills of the store while a test runs.
#[derive(Clone, Copy)]
pub struct Outages<'o> {
    /// The commands that kill the store and start it again.
    pub outage: &'o dyn Outage,
    /// The number of kills in each test.
    pub each: u64,
}

impl Outages<'_> {
    /// Kills the store until it was killed often enough or the test is over. Each kill follows
    /// answers of the store, and has to be seen by a client before the recovery.
    pub(super) fn run(&self, context: &Context) -> Result<(), RunError> {
        let patience = context.options.patience;
        let wait_until = |condition: &dyn Fn() -> bool| {
            let begin = Instant::now();
            while !condition() && !context.is_stopped() && begin.elapsed() < patience {
                thread::sleep(Duration::from_millis(1));
            }
        };
        for kill in 1..=self.each {
            let options = &context.options;
            let mut rng = plan::generator(options.seed, &context.test.name, usize::MAX - 1, kill);
            let delay = Duration::from_millis(rng.u64(1..=LONGEST_TO_KILL));
            let answers = context.answers();
            wait_until(&|| context.answers() > answers);
            let begin = Instant::now();
            wait_until(&|| begin.elapsed() >= delay);
            if context.is_stopped() {
                break;
            }
            let lost = context.lost();
            let has_lost = || context.lost() > lost;
            let is_killed =
                kill_and_recover(&*context.driver, self.outage, patience, &has_lost, &|| {
                    context.is_stopped()
                })?;
            if !is_killed && context.is_stopped() {
                break;
            }
            if !is_killed {
                return Err(RunError::NotKilled);
            }
            // The next kill is not to be mistaken for this one.
            wait_until(&has_lost);
            context.count_kill();
        }
        Ok(())
    }
}

/// An object to which one client writes increasing values.
#[derive(Default)]
struct Ledger {
    /// The value of the last write that was begun.
    begun: AtomicI64,
    /// The value of the last write that was acknowledged.
    acknowledged: AtomicI64,
    /// The number of acknowledgements.
    acknowledgements: AtomicU64,
    /// The number of commits that have lost their answers.
    unknown: AtomicU64,
}

/// Kills the store `kills` times while clients write, each to an object of its own, and asserts
/// that all acknowledged writes are visible after each recovery.
///
/// # Errors
/// If the driver fails, the store cannot be killed or started, or no write is acknowledged before a
/// kill.
pub fn survive(
    driver: &Arc<dyn Driver>,
    outage: &dyn Outage,
    kills: u64,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Survival, RunError> {
    driver.create()?;
    let run = Run {
        driver,
        outage,
        options,
        stop,
        ledgers: (0..options.clients).map(|_| Ledger::default()).collect(),
        keys: Keys::new(0, options.clients, false),
        lost: Arc::default(),
    };
    let result = run.kill_repeatedly(kills);
    let destroyed = driver.destroy();
    if result.as_ref().is_ok_and(|it| it.blocked.is_none()) {
        destroyed?;
    }
    result
}

/// A run with kills of the store.
struct Run<'r> {
    driver: &'r Arc<dyn Driver>,
    outage: &'r dyn Outage,
    options: &'r Options,
    stop: &'r AtomicBool,
    ledgers: Vec<Ledger>,
    keys: Keys,
    /// Counts connections that clients have lost or could not open.
    lost: Arc<AtomicU64>,
}

impl Run<'_> {
    fn kill_repeatedly(&self, kills: u64) -> Result<Survival, RunError> {
        let objects: Vec<_> = self.keys.all().map(|it| (it, Some(0))).collect();
        self.driver.set(&objects)?;
        let mut survival = Survival::default();
        for kill in 1..=kills {
            let mut rng = plan::generator(self.options.seed, "acknowledged-writes", 0, kill);
            let delay = Duration::from_millis(rng.u64(1..=LONGEST_TO_KILL));
            self.kill_once(delay)?;
            survival.kills = kill;
            survival.unknown = self.sum(|it| &it.unknown);
            survival.acknowledged = self.acknowledged();
            self.check(&mut survival)?;
            if survival.lost.is_some() || survival.blocked.is_some() {
                break;
            }
        }
        Ok(survival)
    }

    /// Reads and writes all objects after a recovery, with a new client.
    fn check(&self, survival: &mut Survival) -> Result<(), RunError> {
        let patience = self.options.patience;
        let mut client = Client::new(self.driver, patience, &self.lost);
        let begin = Instant::now();
        let read = loop {
            let Some(read) = state::read_at_rest(&mut client, self.keys, patience)? else {
                survival.blocked = Some("no transaction commits after the recovery".into());
                return Ok(());
            };
            let mut both = self.ledgers.iter().zip(&read);
            survival.lost = both.find_map(|(it, read)| it.lost(survival.kills, *read));
            if survival.lost.is_none() || begin.elapsed() >= patience {
                break read;
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(RunError::Stopped);
            }
            // The read can be stale, and another connection may reach another member of the store.
            client.cut();
            thread::sleep(Duration::from_millis(10));
        };
        if let Some(object) = state::write_all(&mut client, self.keys, false, patience)? {
            let reason = format!("object {object} cannot be written after the recovery");
            survival.blocked = Some(reason);
        } else if survival.lost.is_none() {
            // These values were written once more, and acknowledged.
            for (ledger, read) in self.ledgers.iter().zip(read) {
                ledger
                    .acknowledged
                    .store(read.unwrap_or_default(), Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Writes to all ledgers, kills the store `delay` after the first acknowledgement, and recovers
    /// it. A kill that no client sees is an error.
    fn kill_once(&self, delay: Duration) -> Result<(), RunError> {
        let before = self.acknowledged();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut writers = Vec::new();
            let over = Over(&is_over);
            for (key, ledger) in self.keys.all().zip(&self.ledgers) {
                let is_over = &is_over;
                let client = move || Client::new(self.driver, self.options.patience, &self.lost);
                let write = move || ledger.write(client(), key, is_over);
                let writer = thread::Builder::new().spawn_scoped(scope, write);
                writers.push(writer.map_err(RunError::Thread)?);
            }
            // Before the first acknowledgement, a kill cannot lose an acknowledged write.
            self.wait_until(|| self.acknowledged() > before);
            if self.stop.load(Ordering::Relaxed) {
                return Err(RunError::Stopped);
            }
            if self.acknowledged() == before {
                return Err(RunError::NothingAcknowledged);
            }
            thread::sleep(delay);
            // A connection that was lost before the kill is no evidence of it.
            let lost = self.lost();
            let is_killed = kill_and_recover(
                &**self.driver,
                self.outage,
                self.options.patience,
                &|| self.lost() > lost,
                &|| self.stop.load(Ordering::Relaxed),
            )?;
            if !is_killed {
                return Err(match self.stop.load(Ordering::Relaxed) {
                    true => RunError::Stopped,
                    false => RunError::NotKilled,
                });
            }
            // Each client notices the kill with its next statement.
            self.wait_until(|| self.lost() > lost);
            drop(over);
            for writer in writers {
                writer.join().map_err(|_| RunError::Panicked)??;
            }
            Ok(())
        })
    }

    /// Waits for a condition, at most for [`Options::patience`], or until the run is stopped.
    fn wait_until(&self, condition: impl Fn() -> bool) {
        let begin = Instant::now();
        while !condition()
            && begin.elapsed() < self.options.patience
            && !self.stop.load(Ordering::Relaxed)
        {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn acknowledged(&self) -> u64 {
        self.sum(|it| &it.acknowledgements)
    }

    fn sum(&self, number: impl Fn(&Ledger) -> &AtomicU64) -> u64 {
        let numbers = self.ledgers.iter().map(number);
        numbers.map(|it| it.load(Ordering::Relaxed)).sum()
    }
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
    fn write(&self, mut client: Client, key: Key, is_over: &AtomicBool) -> Result<(), DriverError> {
        while !is_over.load(Ordering::Relaxed) {
            let value = self.begun.load(Ordering::Relaxed) + 1;
            let connection = client.connection()?;
            self.begun.store(value, Ordering::Relaxed);
            let before = connection
                .begin()
                .and_then(|()| connection.write(key, value));
            let ended = before.map(|()| connection.commit());
            match &ended {
                Ok(Ok(())) => {
                    self.acknowledged.store(value, Ordering::Relaxed);
                    self.acknowledgements.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Err(StepError::Lost(_))) => {
                    self.unknown.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
            if matches!(ended, Err(StepError::Lost(_)) | Ok(Err(StepError::Lost(_)))) {
                client.lose();
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
