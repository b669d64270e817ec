//! Benchmarks: tables, transactions and invariants.
//!
//! * [`SmallBank`]: a bank with checking and savings accounts; six kinds of transactions.
//! * [`Tatp`]: the subscribers of a mobile network; seven kinds of transactions, most of which only
//!   read.
//! * [`TpcC`]: the orders of a wholesale supplier; five kinds of transactions, some of them large.
//! * [`Micro`]: reads and updates of random keys, with an adjustable share of updates.
//!
//! Each has an invariant that holds after any number of deaths. That of TPC-C are its consistency
//! conditions; those of the others are sums. For them, a transaction that changes
//! the invariant's sum adds its change to its coordinator's row of a *ledger* in the same
//! transaction, so that the sum of the table and that of the ledger agree whichever transactions
//! took effect. Without deaths the program counts instead ([`Books`]).

mod micro;
mod smallbank;
mod tatp;
mod tpcc;

pub use micro::Micro;
pub use smallbank::{SmallBank, SmallBankKind};
pub use tatp::Tatp;
pub use tpcc::TpcC;

use crate::protocol::{Abort, Coordinator, Member, Table, Transaction, TransactionError};
use crate::servers::{ComputeServer, StoreError};
use crate::verbs::block_on;

/// Where the changes of an invariant's sum are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Books {
    /// By the program, after the commit.
    Program,
    /// In a row of the ledger, in the same transaction.
    Ledger,
}

/// One of the benchmarks.
#[derive(Clone, Copy, Debug)]
pub enum Benchmark {
    /// SmallBank.
    SmallBank(SmallBank),
    /// TATP.
    Tatp(Tatp),
    /// TPC-C.
    TpcC(TpcC),
    /// The microbenchmark.
    Micro(Micro),
}

impl Benchmark {
    /// Fills the tables.
    ///
    /// # Errors
    /// Those of transactions.
    pub fn load<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
    ) -> Result<(), TransactionError> {
        match self {
            Self::SmallBank(it) => it.load(coordinator),
            Self::Tatp(it) => it.load(coordinator),
            Self::TpcC(it) => it.load(coordinator),
            Self::Micro(it) => it.load(coordinator),
        }
    }

    /// Executes a random transaction. Returns the change of the benchmark's sum if the program
    /// counts it.
    ///
    /// # Errors
    /// Those of transactions.
    pub async fn execute<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        random: &mut fastrand::Rng,
    ) -> Result<i64, TransactionError> {
        match self {
            Self::SmallBank(it) => Ok(it.execute(coordinator, random).await?.1),
            Self::Tatp(it) => it.execute(coordinator, random).await,
            Self::TpcC(it) => it.execute(coordinator, random).await.map(|()| 0),
            Self::Micro(it) => it.execute(coordinator, random).await,
        }
    }

    /// Returns the difference between the benchmark's sum and the expected one, or the number of
    /// violations of TPC-C's conditions: 0. See [`SmallBank::surplus`].
    ///
    /// # Errors
    /// Those of transactions.
    pub fn surplus<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        counted: i64,
        processes: u16,
        coordinators: u16,
    ) -> Result<i64, TransactionError> {
        match self {
            Self::SmallBank(it) => it.surplus(coordinator, counted, processes, coordinators),
            Self::Tatp(it) => it.surplus(coordinator, counted, processes, coordinators),
            Self::TpcC(it) => it.violations(coordinator),
            Self::Micro(it) => it.surplus(coordinator, counted, processes, coordinators),
        }
    }
}

/// The sum of committed changes of each coordinator, by process id and coordinator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ledger(Table<i64>);

/// Returns the number of rows for which the ledger of a store is created: those of two lives of
/// each coordinator.
pub fn ledger_rows(compute_servers: u16, coordinators: u16) -> u64 {
    (2 * u64::from(compute_servers) * u64::from(coordinators)).max(64)
}

impl Ledger {
    fn open(compute: &ComputeServer) -> Result<Self, StoreError> {
        let sizes = compute.store().configuration().sizes();
        let rows = ledger_rows(sizes.log_areas, sizes.coordinators);
        Ok(Self(compute.table("ledger", rows)?))
    }

    /// Adds `change` to the row of the transaction's coordinator.
    async fn add<V: Member>(self, tx: &mut Transaction<V>, change: i64) -> Result<(), Abort> {
        let id = tx.id();
        let row = u64::from(id.process()) << 16 | u64::from(id.coordinator());
        if tx.update(self.0, row, |sum| sum + change).await?.is_none() {
            tx.insert(self.0, row, &change).await?;
        }
        Ok(())
    }

    /// The sum of the rows of the first `processes` process ids, each with `coordinators`.
    fn sum<V: Member>(
        self,
        coordinator: &mut Coordinator<V>,
        processes: u16,
        coordinators: u16,
    ) -> Result<i64, TransactionError> {
        let mut sum = 0;
        for process in 1..=u64::from(processes) {
            for number in 0..u64::from(coordinators) {
                let row = process << 16 | number;
                let read = coordinator.transaction(async |tx| tx.read(self.0, row).await);
                sum += block_on(read)?.value.unwrap_or(0);
            }
        }
        Ok(sum)
    }
}

/// Executes `each` for all keys below `keys`, in transactions of 4 keys.
fn load<V: Member>(
    coordinator: &mut Coordinator<V>,
    keys: u64,
    each: impl AsyncFn(&mut Transaction<V>, u64) -> Result<(), Abort>,
) -> Result<(), TransactionError> {
    for first in (0..keys).step_by(4) {
        let end = keys.min(first + 4);
        block_on(coordinator.transaction(async |tx| {
            for key in first..end {
                each(tx, key).await?;
            }
            Ok(())
        }))?;
    }
    Ok(())
}

/// Returns the sum of `value` over all keys below `keys`. The store is not changed at the same
/// time.
fn total<V: Member, T: bytemuck::Pod>(
    coordinator: &mut Coordinator<V>,
    table: Table<T>,
    keys: u64,
    value: impl Fn(T) -> i64,
) -> Result<i64, TransactionError> {
    let mut sum = 0;
    for key in 0..keys {
        let read = coordinator.transaction(async |tx| tx.read(table, key).await);
        sum += block_on(read)?.value.map_or(0, &value);
    }
    Ok(sum)
}

/// A random choice of keys, of which a few are hot.
#[derive(Clone, Copy, Debug)]
struct Keys {
    all: u64,
    hot: u64,
    /// The percentage of choices that fall on the hot keys.
    hot_percent: u8,
}

impl Keys {
    fn choose(self, random: &mut fastrand::Rng) -> u64 {
        match random.u8(..100) < self.hot_percent && self.hot > 0 {
            true => random.u64(..self.hot.min(self.all)),
            false => random.u64(..self.all),
        }
    }

    fn choose_other(self, random: &mut fastrand::Rng, than: u64) -> u64 {
        loop {
            let key = self.choose(random);
            if key != than || self.all == 1 {
                return key;
            }
        }
    }
}
