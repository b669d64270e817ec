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
//! instead ([`Books`]). With [`Books::Commits`], each transaction that writes also counts itself
//! there, so that acknowledged commits can be looked for.

mod ledger;
mod micro;
mod smallbank;
mod tatp;
mod tpcc;

pub use ledger::{Books, Receipt, ledger_table};
pub use micro::Micro;
pub use smallbank::{SmallBank, SmallBankKind, SmallBankRequest};
pub use tatp::Tatp;
pub use tpcc::TpcC;

use crate::protocol::{Coordinator, Member, Table, TransactionError};
use crate::servers::ComputeServer;
use crate::tables::Geometry;
use crate::verbs::block_on;
use bytemuck::Pod;
use ledger::Ledger;

/// A committed transaction of a benchmark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// The change of the benchmark's sum, if the program counts it.
    pub change: i64,
    /// The transactions that the coordinator's row of the ledger counts, this one included; `None`
    /// if it is not counted there.
    pub receipt: Option<Receipt>,
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
    /// Returns the errors of transactions.
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

    /// Executes a random transaction.
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub async fn execute<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        random: &mut fastrand::Rng,
    ) -> Result<Executed, TransactionError> {
        match self {
            Self::SmallBank(it) => Ok(it.execute(coordinator, random).await?.1),
            Self::Tatp(it) => it.execute(coordinator, random).await,
            Self::TpcC(it) => it.execute(coordinator, random).await,
            Self::Micro(it) => it.execute(coordinator, random).await,
        }
    }

    /// Returns the difference between the benchmark's sum and the expected one, or the number of
    /// violations of TPC-C's conditions. It is 0 in a sound store. `counted` is the sum of the
    /// changes that programs have counted. No transaction runs at the same time.
    ///
    /// # Errors
    /// Returns the errors of transactions.
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

    /// Returns the transactions that the ledger counts for the coordinator `number` of all compute
    /// servers that have had the process id `process`.
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub fn receipt<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        process: u16,
        number: u16,
    ) -> Result<Receipt, TransactionError> {
        let ledger = match self {
            Self::SmallBank(it) => it.ledger,
            Self::Tatp(it) => it.ledger,
            Self::TpcC(it) => it.ledger,
            Self::Micro(it) => it.ledger,
        };
        ledger.receipt(coordinator, process, number)
    }
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
