//! Random transactions on few objects, as checkers of histories use them.

use super::store::KEYS;
use crate::StudyError;
use adya::r#gen::{Gen, GenOpts, Kind, TxnOp};
use outlive_litmus::driver::{Connection, Driver, StepError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The number of clients, as that of the litmus tests.
pub const CLIENTS: usize = 4;
/// The number of objects that can be used, with each in use for a time.
const OBJECTS: u64 = KEYS / 2;
/// The number of objects that are set at once.
const BATCH: usize = 500;

/// Executes random transactions on the driver's store for `length`.
pub fn run(driver: &Arc<dyn Driver>, seed: u64, length: Duration) -> Result<(), StudyError> {
    driver.create().map_err(StudyError::void_of)?;
    let objects: Vec<_> = (0..OBJECTS).map(|key| (key, Some(0))).collect();
    for objects in objects.chunks(BATCH) {
        driver.set(objects).map_err(StudyError::void_of)?;
    }
    let options = GenOpts {
        kind: Kind::RwRegister,
        ..GenOpts::default()
    };
    let transactions = Mutex::new(Gen::new(options, seed));
    let begin = Instant::now();
    let next = || {
        let mut transactions = transactions.lock().unwrap_or_else(PoisonError::into_inner);
        let next = (begin.elapsed() < length).then(|| transactions.txn());
        next.filter(|it| it.iter().all(|it| key(*it) < OBJECTS))
    };
    let client = || -> Result<(), StudyError> {
        let mut connection = driver.connect().map_err(StudyError::void_of)?;
        while let Some(operations) = next() {
            if let Err(StepError::Lost(_)) = execute(&mut *connection, &operations) {
                connection = driver.connect().map_err(StudyError::void_of)?;
            }
        }
        Ok(())
    };
    let ended = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let join = |it: thread::ScopedJoinHandle<'_, _>| {
            it.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        clients.into_iter().map(join).collect::<Vec<_>>()
    });
    ended.into_iter().collect::<Result<(), _>>()?;
    driver.destroy().map_err(StudyError::void_of)
}

fn key(operation: TxnOp) -> u64 {
    match operation {
        TxnOp::Append(key, _) | TxnOp::Write(key, _) | TxnOp::Read(key) => key.unsigned_abs(),
    }
}

fn execute(connection: &mut dyn Connection, operations: &[TxnOp]) -> Result<(), StepError> {
    connection.begin()?;
    for operation in operations {
        let key = key(*operation);
        match operation {
            TxnOp::Read(_) => {
                connection.read(key)?;
            }
            TxnOp::Write(_, value) | TxnOp::Append(_, value) => connection.write(key, *value)?,
        }
    }
    connection.commit()
}
