//! The ledger: changes of a benchmark's sum and numbers of commits, which transactions record in a
//! row of their coordinator.

use super::{Executed, get};
use crate::protocol::{Abort, Coordinator, Member, Table, Transaction, TransactionError};
use crate::servers::{ComputeServer, StoreError};
use crate::tables::TransactionId;
use bytemuck::{Pod, Zeroable};

/// The place where the changes of an invariant's sum are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Books {
    /// By the program, after the commit.
    Program,
    /// In a row of the ledger, in the same transaction.
    Ledger,
    /// In a row of the ledger, as with [`Ledger`](Self::Ledger). The row additionally counts all
    /// transactions that write, including those that do not change the sum.
    Commits,
}

/// A row of the ledger.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
struct Account {
    /// The sum of the changes.
    change: i64,
    /// The transactions that have written the row.
    receipt: Receipt,
}

/// The number of transactions that a [`Receipt`] names.
const NAMED: usize = 4;

/// The record of the transactions that have written a row of the ledger.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Receipt {
    /// The number of transactions that have written the row.
    pub commits: u64,
    /// The ids of the last ones, the last one first.
    last: [u64; NAMED],
}

impl Receipt {
    /// Returns the record with one more transaction.
    #[must_use]
    pub fn then(self, transaction: TransactionId) -> Self {
        let mut last = [transaction.to_word(); NAMED];
        last[1..].copy_from_slice(&self.last[..NAMED - 1]);
        Self {
            commits: self.commits + 1,
            last,
        }
    }

    /// Returns the id of the last transaction; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.last[0]
    }

    /// Returns whether transaction number `number` was `id`. The row names only the last
    /// transactions; for an earlier number the result is `true`, because it cannot be checked.
    pub fn has(&self, number: u64, id: u64) -> bool {
        let Some(later) = self.commits.checked_sub(number) else {
            return false;
        };
        let named = usize::try_from(later).ok().and_then(|it| self.last.get(it));
        named.is_none_or(|named| *named == id)
    }
}

/// The changes of a benchmark's sum, as its [`Books`] say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ledger {
    /// The rows of all coordinators, by process id and coordinator.
    rows: Table<Account>,
    books: Books,
    processes: u64,
    coordinators: u64,
}

/// Returns the number of process ids for which a ledger has rows: two for each compute server.
fn processes(compute_servers: u16) -> u64 {
    2 * u64::from(compute_servers)
}

/// Returns the number of rows for which the ledger of a store is created, and of words in a row.
pub fn ledger_table(compute_servers: u16, coordinators: u16) -> (u64, u32) {
    let rows = (processes(compute_servers) * u64::from(coordinators)).max(64);
    (rows, Table::<Account>::WORDS as u32)
}

fn row_of(process: u64, coordinator: u64) -> u64 {
    process << 16 | coordinator
}

impl Ledger {
    pub fn open(compute: &ComputeServer, books: Books) -> Result<Self, StoreError> {
        let sizes = compute.store().configuration().sizes();
        let (rows, _) = ledger_table(sizes.log_areas, sizes.coordinators);
        Ok(Self {
            rows: compute.table("ledger", rows)?,
            books,
            processes: processes(sizes.log_areas),
            coordinators: sizes.coordinators.into(),
        })
    }

    /// Records a transaction with its change of the sum, at the place that the books determine.
    pub async fn record<V: Member>(
        self,
        tx: &mut Transaction<V>,
        change: i64,
    ) -> Result<Executed, Abort> {
        let receipt = None;
        match self.books {
            Books::Program => return Ok(Executed { change, receipt }),
            Books::Commits if tx.is_writing() => {}
            _ if change == 0 => return Ok(Executed::default()),
            _ => {}
        }
        let id = tx.id();
        let row = row_of(id.process().into(), id.coordinator().into());
        let add = |account: Account| Account {
            change: account.change + change,
            receipt: account.receipt.then(id),
        };
        let old = tx.update(self.rows, row, add).await?;
        if old.is_none() {
            tx.insert(self.rows, row, &add(Account::default())).await?;
        }
        Ok(Executed {
            change: 0,
            receipt: Some(add(old.unwrap_or_default()).receipt),
        })
    }

    fn account<V: Member>(
        self,
        coordinator: &mut Coordinator<V>,
        process: u64,
        number: u64,
    ) -> Result<Account, TransactionError> {
        let row = get(coordinator, self.rows, row_of(process, number))?;
        Ok(row.unwrap_or_default())
    }

    /// Returns the transactions in the row of a coordinator.
    pub fn receipt<V: Member>(
        self,
        coordinator: &mut Coordinator<V>,
        process: u16,
        number: u16,
    ) -> Result<Receipt, TransactionError> {
        let account = self.account(coordinator, process.into(), number.into())?;
        Ok(account.receipt)
    }

    /// Returns the sum of all recorded changes.
    pub fn sum<V: Member>(self, coordinator: &mut Coordinator<V>) -> Result<i64, TransactionError> {
        let mut sum = 0;
        for process in 1..=self.processes {
            for number in 0..self.coordinators {
                sum += self.account(coordinator, process, number)?.change;
            }
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_is_replaced_by_a_later_one_is_missed() {
        let id = |attempt| TransactionId::new(1, 2, attempt);
        let word = |attempt| id(attempt).to_word();
        let two = Receipt::default().then(id(1)).then(id(2));
        assert!(two.has(2, word(2)) && two.has(1, word(1)) && two.has(0, 0));
        // Transaction 2 is lost, and others have taken its number.
        let mut other = Receipt::default().then(id(1));
        assert!(!other.has(2, word(2)));
        for attempt in 3..=6 {
            other = other.then(id(attempt));
            assert!(!other.has(2, word(2)), "{other:?}");
        }
        assert_eq!((other.commits, other.last()), (5, word(6)));
        assert!(
            other.then(id(7)).has(2, word(2)),
            "it is not named any more"
        );
    }
}
