//! The transactions on a peer that reads and writes single rows.

use super::requests::Request;
use crate::StudyError;
use outlive_store::workloads::{SmallBankKind, SmallBankRequest};

/// The tables, by their numbers. Transfers use the first one.
pub const CHECKING: usize = 0;
pub const SAVINGS: usize = 1;
/// The names of the tables.
pub const NAMES: [&str; 2] = ["checking", "savings"];

/// An account: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    pub cents: i64,
    /// The number of changes of the balance.
    pub changes: i64,
}

/// The rows of a transaction that has begun.
pub trait Accounts {
    /// Reads an account.
    fn read(&mut self, table: usize, key: u64) -> Result<Account, StudyError>;

    /// Writes an account, which exists.
    fn write(&mut self, table: usize, key: u64, account: Account) -> Result<(), StudyError>;

    /// Adds to an account without reading it first, if the peer can.
    fn add(&mut self, table: usize, key: u64, cents: i64) -> Result<(), StudyError> {
        let account = self.read(table, key)?;
        self.write(table, key, account.plus(cents))
    }
}

impl Account {
    pub fn plus(self, cents: i64) -> Self {
        Self {
            cents: self.cents + cents,
            changes: self.changes + 1,
        }
    }
}

/// Returns whether a request reads only.
pub fn only_reads(request: &Request) -> bool {
    matches!(request, Request::SmallBank(it) if it.kind == SmallBankKind::Balance)
}

/// Executes the accesses of a transaction, in the order of our store's. Returns the change of the
/// sum of all balances.
pub fn execute(rows: &mut impl Accounts, request: Request) -> Result<i64, StudyError> {
    let it = match request {
        Request::Transfer { from, to, amount } => {
            rows.add(CHECKING, from, -amount)?;
            rows.add(CHECKING, to, amount)?;
            return Ok(0);
        }
        Request::SmallBank(it) => it,
    };
    let SmallBankRequest {
        one, other, amount, ..
    } = it;
    match it.kind {
        SmallBankKind::Amalgamate => {
            let saved = rows.read(SAVINGS, one)?;
            rows.write(SAVINGS, one, saved.plus(-saved.cents))?;
            let checked = rows.read(CHECKING, one)?;
            rows.write(CHECKING, one, checked.plus(-checked.cents))?;
            rows.add(CHECKING, other, saved.cents + checked.cents)?;
            Ok(0)
        }
        SmallBankKind::Balance => {
            rows.read(SAVINGS, one)?;
            rows.read(CHECKING, one)?;
            Ok(0)
        }
        SmallBankKind::DepositChecking => {
            rows.add(CHECKING, one, amount)?;
            Ok(amount)
        }
        SmallBankKind::SendPayment => {
            let checked = rows.read(CHECKING, one)?;
            if checked.cents >= amount {
                rows.write(CHECKING, one, checked.plus(-amount))?;
                rows.add(CHECKING, other, amount)?;
            }
            Ok(0)
        }
        SmallBankKind::TransactSavings => {
            let saved = rows.read(SAVINGS, one)?;
            if saved.cents + amount < 0 {
                return Ok(0);
            }
            rows.write(SAVINGS, one, saved.plus(amount))?;
            Ok(amount)
        }
        SmallBankKind::WriteCheck => {
            let saved = rows.read(SAVINGS, one)?;
            let checked = rows.read(CHECKING, one)?;
            let is_enough = saved.cents + checked.cents >= amount;
            let taken = if is_enough { amount } else { amount + 100 };
            rows.write(CHECKING, one, checked.plus(-taken))?;
            Ok(-taken)
        }
    }
}
