//! A microbenchmark: reads and updates of random keys with values of 48 bytes.

use super::{Books, Executed, Keys, Ledger, insert, total};
use crate::protocol::{Coordinator, Member, Table, TransactionError};
use crate::servers::{ComputeServer, StoreError};

/// The first word of a value counts its updates.
type Value = [u64; 6];

/// The micro-benchmark. Each transaction accesses some distinct keys; each access is an update or a
/// read at random.
#[derive(Clone, Copy, Debug)]
pub struct Micro {
    table: Table<Value>,
    pub(super) ledger: Ledger,
    keys: Keys,
    accesses: usize,
    write_percent: u8,
}

impl Micro {
    /// The number of keys in FORD's configuration.
    pub const KEYS: u64 = 1_000_000;
    /// The largest number of accesses of a transaction.
    pub const MAX_ACCESSES: usize = 16;

    /// Opens the table, or creates it for `keys` keys. A transaction has `accesses` accesses, of
    /// which `write_percent` are updates, to the first `hot` keys, or to all if `hot` is 0.
    ///
    /// # Errors
    /// Returns the errors of [`ComputeServer::table`].
    pub fn open(
        compute: &ComputeServer,
        (keys, hot): (u64, u64),
        accesses: usize,
        write_percent: u8,
        books: Books,
    ) -> Result<Self, StoreError> {
        let range = if hot == 0 { keys } else { hot.min(keys) };
        Ok(Self {
            table: compute.table("micro", keys)?,
            ledger: Ledger::open(compute, books)?,
            keys: Keys {
                all: keys,
                hot: range,
                hot_percent: if hot == 0 { 0 } else { 100 },
            },
            accesses: accesses.clamp(1, Self::MAX_ACCESSES.min(range as usize)),
            write_percent,
        })
    }

    /// Inserts all keys that do not exist.
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub fn load<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
    ) -> Result<(), TransactionError> {
        let rows = (0..self.keys.all).map(|key| (key, [0; 6]));
        insert(coordinator, self.table, rows)
    }

    /// Executes a random transaction.
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub async fn execute<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        random: &mut fastrand::Rng,
    ) -> Result<Executed, TransactionError> {
        let mut accesses = [(0, false); Self::MAX_ACCESSES];
        for index in 0..self.accesses {
            let key = loop {
                let key = self.keys.choose(random);
                if accesses[..index].iter().all(|(other, _)| *other != key) {
                    break key;
                }
            };
            accesses[index] = (key, random.u8(..100) < self.write_percent);
        }
        let accesses = &accesses[..self.accesses];
        let updates = accesses.iter().filter(|(_, writes)| *writes).count() as i64;
        let committed = coordinator.transaction(async |tx| {
            for (key, writes) in accesses {
                if *writes {
                    let count = |mut value: Value| {
                        value[0] += 1;
                        value
                    };
                    tx.update(self.table, *key, count).await?;
                } else {
                    tx.read(self.table, *key).await?;
                }
            }
            self.ledger.record(tx, updates).await
        });
        Ok(committed.await?.value)
    }

    /// Returns the difference between the number of updates in the table and the expected one, 0 in
    /// a sound store. The parameters are those of
    /// [`SmallBank::surplus`](super::SmallBank::surplus).
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub fn surplus<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        counted: i64,
    ) -> Result<i64, TransactionError> {
        let count = |value: Value| value[0] as i64;
        let found = total(coordinator, self.table, self.keys.all, count)?;
        Ok(found - counted - self.ledger.sum(coordinator)?)
    }
}
