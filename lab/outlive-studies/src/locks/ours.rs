//! Our locks, as programs use them.

use crate::stage::Bench;
use core::time::Duration;
use outlive::sync::{BareTatas, QueueLock, RecoverableMutex, Tatas, Waiting};

/// The waiting policy of the peers: they never sleep.
const AWAKE: Waiting = Waiting {
    yielding: Duration::MAX,
    ..Waiting::DEFAULT
};

pub struct Bare(BareTatas);

impl Bare {
    pub fn new(bench: &Bench) -> Self {
        Self(BareTatas::new(bench.memory, bench.lock()))
    }

    #[inline(always)]
    pub fn increment(&self, bench: &Bench) {
        let _held = self.0.lock(&bench.member).expect("the lock");
        bench.add();
    }
}

pub struct Logged(Tatas);

impl Logged {
    pub fn new(bench: &Bench) -> Self {
        Self(Tatas::new(bench.memory, bench.lock()))
    }

    #[inline(always)]
    pub fn increment(&self, bench: &Bench) {
        let held = self.0.lock(&bench.member, &bench.recoverers);
        let _held = held.expect("the lock");
        bench.add();
    }
}

pub struct Queue(QueueLock);

impl Queue {
    pub fn new(bench: &Bench) -> Self {
        Self(QueueLock::new(bench.memory, bench.lock()))
    }

    pub fn awake(bench: &Bench) -> Self {
        Self(QueueLock::new(bench.memory, bench.lock()).waiting(AWAKE))
    }

    #[inline(always)]
    pub fn increment(&self, bench: &Bench) {
        let held = self.0.lock(&bench.member, &bench.recoverers);
        let _held = held.expect("the lock");
        bench.add();
    }
}

/// A mutex whose value is the counter.
pub struct Mutex(RecoverableMutex<u64>);

impl Mutex {
    pub fn new(bench: &Bench) -> Self {
        Self(RecoverableMutex::at(bench.memory, bench.lock()))
    }

    #[inline(always)]
    pub fn increment(&self, bench: &Bench) {
        *self.0.lock(&bench.member).expect("the lock") += 1;
    }

    pub fn value(&self, bench: &Bench) -> u64 {
        *self.0.lock(&bench.member).expect("the lock")
    }
}
