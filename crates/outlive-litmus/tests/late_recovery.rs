//! A store that recovers late from the loss of a client, and then undoes a write of a transaction
//! that had committed.

#[allow(dead_code)]
mod reference;

use outlive_litmus::driver::{Capabilities, Connection, Driver, DriverError, Key, StepError};
use outlive_litmus::run::{self, Kind as Wrong, Limit, Options};
use outlive_litmus::suite;
use reference::{Kind, Memory};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The time from the loss of a client to the recovery. The tester evaluates the assertion for up to
/// 20 ms after the round of the loss.
const RECOVERY: Duration = Duration::from_millis(25);
/// One in this number of commits loses its answer.
const ONE_IN: u64 = 20;

struct Late {
    inner: Arc<dyn Driver>,
    commits: Arc<AtomicU64>,
}

impl Driver for Late {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn create(&self) -> Result<(), DriverError> {
        self.inner.create()
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        self.inner.set(objects)
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        Ok(Box::new(Client {
            store: Arc::clone(&self.inner),
            commits: Arc::clone(&self.commits),
            inner: self.inner.connect()?,
            overwritten: None,
        }))
    }

    fn destroy(&self) -> Result<(), DriverError> {
        self.inner.destroy()
    }
}

struct Client {
    store: Arc<dyn Driver>,
    commits: Arc<AtomicU64>,
    inner: Box<dyn Connection>,
    /// The first object that the transaction has overwritten, with its value before.
    overwritten: Option<(Key, Option<i64>)>,
}

impl Connection for Client {
    fn begin(&mut self) -> Result<(), StepError> {
        self.overwritten = None;
        self.inner.begin()
    }

    fn read(&mut self, key: Key) -> Result<Option<i64>, StepError> {
        self.inner.read(key)
    }

    fn write(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        let old = self.inner.read(key)?;
        self.overwritten.get_or_insert((key, old));
        self.inner.write(key, value)
    }

    fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.inner.insert(key, value)
    }

    fn delete(&mut self, key: Key) -> Result<(), StepError> {
        self.inner.delete(key)
    }

    fn count(&mut self, range: Range<Key>) -> Result<u64, StepError> {
        self.inner.count(range)
    }

    fn commit(&mut self) -> Result<(), StepError> {
        self.inner.commit()?;
        let Some(undone) = self.overwritten.take() else {
            return Ok(());
        };
        if self.commits.fetch_add(1, Ordering::Relaxed) % ONE_IN != 0 {
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        thread::spawn(move || {
            thread::sleep(RECOVERY);
            store.set(&[undone]).unwrap();
        });
        Err(StepError::Lost("the client has died".into()))
    }

    fn abort(&mut self) -> Result<(), StepError> {
        self.inner.abort()
    }
}

#[test]
fn a_write_that_is_undone_late_is_found() {
    let mut tests = suite::tests();
    tests.retain(|it| it.name == "litmus-1");
    let driver: Arc<dyn Driver> = Arc::new(Late {
        inner: Arc::new(Memory::new(Kind::Serial)),
        commits: Arc::default(),
    });
    let options = Options {
        clients: 3,
        limit: Limit::Time(Duration::from_secs(20)),
        seed: 7,
        crashes: false,
        patience: Duration::from_secs(30),
    };
    let stop = AtomicBool::new(false);
    let report = run::run(&driver, &tests, &options, &stop, &mut |_| ()).unwrap();
    let found = &report.tests[0].violations;
    assert!(
        found.iter().any(|it| it.kind == Wrong::State),
        "{:#?}",
        report.tests[0]
    );
    println!("found after {} executions", found[0].executions);
}
