//! Stores in memory: correct ones, and ones that are wrong in one respect.

mod connection;
mod data;

use data::Data;
use outlive_litmus::driver::{Capabilities, Connection, Driver, DriverError, Key};
use outlive_litmus::run::Outage;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The way in which a store executes transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One after another.
    Serial,
    /// One after another; the writes of a client that crashes stay.
    KeepsCrashedWrites,
    /// One after another; of a client that is killed within its commit, all writes but the last one
    /// stay.
    SplitsKilledCommits,
    /// One after another; a client that crashes keeps the lock.
    KeepsCrashedLock,
    /// One after another; some commits lose their answer, and some of these have not happened.
    LosesAnswers,
    /// One after another; no commit succeeds.
    AbortsAll,
    /// Reads of a snapshot; at the commit, all that was read has to be unchanged.
    Optimistic,
    /// As `Optimistic`, but a transaction that is reported as aborted takes effect.
    AppliesAborted,
    /// As `Optimistic`, but counts are not validated.
    OptimisticItems,
    /// As `Optimistic`, but snapshots may be old, and only transactions that write are validated.
    Stale,
    /// Reads of a snapshot; of concurrent writers of an object, the first one commits.
    Snapshot,
    /// Each statement reads the committed state; writes are installed at the commit.
    ReadCommitted,
    /// Writes in place, with locks on written objects and an undo log; reads ignore locks.
    DirtyReads,
    /// Writes in place, with an undo log, without locks.
    NoAtomicity,
}

/// A store in memory.
pub struct Memory {
    shared: Arc<Shared>,
}

/// The data of a store, and its one lock for serial execution.
struct Shared {
    kind: Kind,
    capabilities: Capabilities,
    data: Mutex<Data>,
    is_taken: Mutex<bool>,
    released: Condvar,
    /// The number of crashes.
    crashes: AtomicU64,
    is_down: AtomicBool,
    /// Whether the lock is never released.
    is_stuck: AtomicBool,
}

impl Shared {
    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap()
    }

    fn take(&self) {
        let taken = self.is_taken.lock().unwrap();
        let mut taken = self
            .released
            .wait_while(taken, |it| *it || self.is_stuck.load(Ordering::Relaxed))
            .unwrap();
        *taken = true;
    }

    fn release(&self) {
        *self.is_taken.lock().unwrap() = false;
        self.released.notify_one();
    }
}

impl Memory {
    pub fn new(kind: Kind) -> Self {
        Self::with(kind, Capabilities::ALL)
    }

    pub fn with(kind: Kind, capabilities: Capabilities) -> Self {
        let shared = Shared {
            kind,
            capabilities,
            data: Mutex::default(),
            is_taken: Mutex::new(false),
            released: Condvar::new(),
            crashes: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

/// The power supply of a store.
pub struct Power {
    shared: Arc<Shared>,
    /// Whether commits since the last checkpoint are lost.
    pub loses_commits: bool,
    /// Whether half of the objects lose their commits since the last checkpoint.
    pub loses_halves: bool,
    /// Whether a lock of a killed transaction is still taken after the recovery.
    pub keeps_lock: bool,
    /// Whether connections survive, as if another store had been killed.
    pub misses: bool,
}

impl Memory {
    pub fn power(&self) -> Power {
        Power {
            shared: Arc::clone(&self.shared),
            loses_commits: false,
            loses_halves: false,
            keeps_lock: false,
            misses: false,
        }
    }
}

impl Outage for Power {
    fn kill(&self) -> Result<(), String> {
        let mut data = self.shared.data();
        if !self.misses {
            self.shared.is_down.store(true, Ordering::Relaxed);
            self.shared.crashes.fetch_add(1, Ordering::Relaxed);
        }
        if self.loses_commits {
            data.lose_commits(|_| true);
        }
        if self.loses_halves {
            data.lose_commits(|key| key % 2 == 0);
        }
        Ok(())
    }

    fn recover(&self) -> Result<(), String> {
        self.shared.is_down.store(false, Ordering::Relaxed);
        if self.keeps_lock {
            self.shared.is_stuck.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Driver for Memory {
    fn capabilities(&self) -> Capabilities {
        self.shared.capabilities
    }

    fn create(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        self.shared.data().set(objects);
        Ok(())
    }

    fn kills_in_commits(&self) -> bool {
        true
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        match self.shared.is_down.load(Ordering::Relaxed) {
            true => Err(DriverError::new("memory", "the store does not run")),
            false => Ok(Box::new(connection::Client::new(&self.shared))),
        }
    }

    fn destroy(&self) -> Result<(), DriverError> {
        Ok(())
    }
}
