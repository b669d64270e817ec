//! A client process: executes transactions on one store, one after another, when the leader says
//! so.
//!
//! The leader writes one [`Order`] in a line to its standard input, and it answers each order with
//! a [`Done`] in a line. The client's random sequence depends on its number alone, so the clients
//! of all stores execute the same transactions in the same order.

use super::Whose;
use super::requests::{Load, Request};
use crate::StudyError;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The role of a client process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Client {
    pub whose: Whose,
    pub load: Load,
    /// The directory of the store's files.
    pub directory: PathBuf,
    pub number: u64,
}

/// A task of a client.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Creates all accounts.
    Fill,
    /// Executes transactions for a number of nanoseconds.
    Run { nanos: u64 },
    /// Reads all accounts.
    Sum,
}

/// The result of an order.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// The number of transactions.
    pub transactions: u64,
    /// The time that they took.
    pub nanos: u64,
    /// The change of the sum of all balances by them; or the sum, if it was ordered.
    pub sum: i64,
}

/// A store, as its clients use it.
pub trait Bank {
    /// Creates all accounts.
    fn fill(&mut self) -> Result<(), StudyError>;

    /// Executes transactions in their order. Returns the change of the sum of all balances.
    fn execute(&mut self, requests: &[Request]) -> Result<i64, StudyError>;

    /// Returns the sum of all balances. No transaction runs at the same time.
    fn sum(&mut self) -> Result<i64, StudyError>;
}

/// The number of transactions between two readings of the clock, for every store. Only a pipelined
/// connection sends them together.
pub const BATCH: usize = 32;

impl Client {
    pub fn play(self) -> Result<(), StudyError> {
        let mut bank = self.open(&self.directory);
        let mut random = fastrand::Rng::with_seed(self.number);
        // The first answer says that the client is ready, or why it is not.
        let ready = bank.as_ref().map(|_| Done::default());
        answer(ready.map_err(ToString::to_string))?;
        let Ok(bank) = &mut bank else {
            return Ok(());
        };
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(StudyError::io("reading an order"))?;
            let order = serde_json::from_str(&line);
            let order = order.map_err(|error| StudyError::void(format!("{error} in {line:?}")))?;
            let done = self.follow(order, &mut **bank, &mut random);
            answer(done.map_err(|error| error.to_string()))?;
        }
        Ok(())
    }

    fn open(&self, directory: &Path) -> Result<Box<dyn Bank>, StudyError> {
        match self.whose {
            Whose::Ours => super::ours::open(directory, self.load),
            #[cfg(feature = "databases")]
            Whose::Lmdb => super::lmdb::open(directory, self.load),
            #[cfg(feature = "databases")]
            Whose::Sqlite => super::sqlite::open(directory, self.load),
            #[cfg(feature = "databases")]
            Whose::Redis => super::redis::open(directory, self.load, 1),
            #[cfg(feature = "databases")]
            Whose::RedisPipelined => super::redis::open(directory, self.load, BATCH),
            #[cfg(not(feature = "databases"))]
            _ => unreachable!("without the feature `databases` no peer has clients"),
        }
    }

    fn follow(
        &self,
        order: Order,
        bank: &mut dyn Bank,
        random: &mut fastrand::Rng,
    ) -> Result<Done, StudyError> {
        let mut done = Done::default();
        match order {
            Order::Fill => bank.fill()?,
            Order::Sum => done.sum = bank.sum()?,
            Order::Run { nanos } => {
                let (begin, length) = (Instant::now(), Duration::from_nanos(nanos));
                let mut requests = Vec::with_capacity(BATCH);
                while begin.elapsed() < length {
                    requests.clear();
                    requests.extend((0..BATCH).map(|_| self.load.choose(random)));
                    done.sum += bank.execute(&requests)?;
                    done.transactions += BATCH as u64;
                }
                done.nanos = begin.elapsed().as_nanos() as u64;
            }
        }
        Ok(done)
    }
}

fn answer(done: Result<Done, String>) -> Result<(), StudyError> {
    let mut line = serde_json::to_string(&done).expect("an answer is plain data");
    line.push('\n');
    let mut out = std::io::stdout();
    let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    written.map_err(StudyError::io("answering the study"))
}
