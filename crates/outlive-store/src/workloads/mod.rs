//! Benchmarks: tables, transactions and invariants.
//!
//! * [`SmallBank`]: a bank with checking and savings accounts; six kinds of transactions.
//! * [`Tatp`]: the subscribers of a mobile network; seven kinds of transactions, most of which only
//!   read.
//! * [`TpcC`]: the orders of a wholesale supplier; five kinds of transactions, some of them large.
//! * [`Micro`]: reads and updates of random keys, with an adjustable share of updates.
//!
//! Each has an invariant that holds after any number of deaths. TPC-C has consistency conditions;
//! the invariants of the others are sums. A transaction that changes such a sum adds its change to
//! its coordinator's row of a *ledger* in the same transaction, so that the sums of the tables and
//! of the ledger agree whichever transactions took effect. Without deaths the program counts
//! instead ([`Books`]).

mod micro;
mod smallbank;
mod tatp;
mod tpcc;

pub use micro::Micro;
pub use smallbank::{SmallBank, SmallBankKind, SmallBankRequest};
pub use tatp::Tatp;
pub use tpcc::TpcC;

use crate::protocol::{Abort, Coordinator, Member, Table, Transaction, TransactionError};
use crate::servers::{ComputeServer, StoreError};
use crate::tables::Geometry;
use crate::verbs::block_on;
use bytemuck::Pod;

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
    /// violations of TPC-C's conditions: 0. `counted` is the sum of the changes that programs have
    /// counted. No transaction runs at the same time.
    ///
    /// # Errors
    /// Those of transactions.
    pub fn surplus<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        counted: i64,
    ) -> Result<i64, TransactionError> {
        match self {
            Self::SmallBank(it) => it.surplus(coordinator, counted),
            Self::Tatp(it) => it.surplus(coordinator, counted),
            Self::TpcC(it) => it.violations(coordinator),
            Self::Micro(it) => it.surplus(coordinator, counted),
        }
    }
}

/// The changes of a benchmark's sum, as its [`Books`] say.
#[derive(Clone, Copy, Debug)]
struct Ledger {
    /// The sum of committed changes of each coordinator, by process id and coordinator.
    rows: Table<i64>,
    books: Books,
    processes: u64,
    coordinators: u64,
}

/// The number of process ids for which a ledger has rows: two for each compute server.
fn processes(compute_servers: u16) -> u64 {
    2 * u64::from(compute_servers)
}

/// Returns the number of rows for which the ledger of a store is created.
pub fn ledger_rows(compute_servers: u16, coordinators: u16) -> u64 {
    (processes(compute_servers) * u64::from(coordinators)).max(64)
}

/// Returns the number of bytes that each of `servers` memory servers needs for tables with these
/// numbers of keys and of words in a value.
pub fn bytes_per_server(tables: &[(u64, u32)], servers: u16, replicas: u16) -> u64 {
    let partitions = ComputeServer::PARTITIONS;
    let bytes = |(keys, words): &(u64, u32)| {
        let geometry = Geometry::for_keys(*keys, *words, partitions);
        u64::from(partitions) * (geometry.partition_bytes() + 64)
    };
    let all: u64 = tables.iter().map(bytes).sum();
    // Hashing gives no server more than all partitions, and rarely more than twice its share.
    let share = all * u64::from(replicas) * 2 / u64::from(servers);
    share.min(all) + (1 << 20)
}

impl Ledger {
    fn open(compute: &ComputeServer, books: Books) -> Result<Self, StoreError> {
        let sizes = compute.store().configuration().sizes();
        let rows = ledger_rows(sizes.log_areas, sizes.coordinators);
        Ok(Self {
            rows: compute.table("ledger", rows)?,
            books,
            processes: processes(sizes.log_areas),
            coordinators: sizes.coordinators.into(),
        })
    }

    /// Records the change of a transaction, if it is recorded in the store.
    async fn record<V: Member>(self, tx: &mut Transaction<V>, change: i64) -> Result<(), Abort> {
        if change == 0 || self.books == Books::Program {
            return Ok(());
        }
        let id = tx.id();
        let row = u64::from(id.process()) << 16 | u64::from(id.coordinator());
        if (tx.update(self.rows, row, |sum| sum + change).await?).is_none() {
            tx.insert(self.rows, row, &change).await?;
        }
        Ok(())
    }

    /// The part of the change of a committed transaction that the program counts.
    fn counted(self, change: i64) -> i64 {
        match self.books {
            Books::Program => change,
            Books::Ledger => 0,
        }
    }

    /// The sum of all recorded changes.
    fn sum<V: Member>(self, coordinator: &mut Coordinator<V>) -> Result<i64, TransactionError> {
        let mut sum = 0;
        for process in 1..=self.processes {
            for number in 0..self.coordinators {
                let row = process << 16 | number;
                sum += get(coordinator, self.rows, row)?.unwrap_or(0);
            }
        }
        Ok(sum)
    }
}

/// The number of rows that one transaction inserts.
const ROWS: usize = 8;

/// Inserts the rows that do not exist.
fn insert<V: Member, T: Pod>(
    coordinator: &mut Coordinator<V>,
    table: Table<T>,
    rows: impl IntoIterator<Item = (u64, T)>,
) -> Result<(), TransactionError> {
    let mut rows = rows.into_iter().peekable();
    let mut some = Vec::with_capacity(ROWS);
    while rows.peek().is_some() {
        some.clear();
        some.extend(rows.by_ref().take(ROWS));
        let inserting = coordinator.transaction(async |tx| {
            for (key, row) in &some {
                tx.insert(table, *key, row).await?;
            }
            Ok(())
        });
        block_on(inserting)?;
    }
    Ok(())
}

/// Reads a row in a transaction of its own.
fn get<V: Member, T: Pod>(
    coordinator: &mut Coordinator<V>,
    table: Table<T>,
    key: u64,
) -> Result<Option<T>, TransactionError> {
    let reading = coordinator.transaction(async |tx| tx.read(table, key).await);
    Ok(block_on(reading)?.value)
}

/// Returns the sum of `value` over all keys below `keys`. The store is not changed at the same
/// time.
fn total<V: Member, T: Pod>(
    coordinator: &mut Coordinator<V>,
    table: Table<T>,
    keys: u64,
    value: impl Fn(T) -> i64,
) -> Result<i64, TransactionError> {
    let mut sum = 0;
    for key in 0..keys {
        sum += get(coordinator, table, key)?.map_or(0, &value);
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
