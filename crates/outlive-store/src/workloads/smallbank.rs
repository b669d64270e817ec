//! SmallBank: a bank with checking and savings accounts.
//!
//! The six transactions of M. Alomari et al. (ICDE 2008), with the sizes and the mix of FORD:
//! 100,000 customers, of which 4% are hot and take part in 90% of the transactions. Amounts are
//! whole cents. Amalgamate and SendPayment conserve money, so the sum of all balances is the
//! initial one plus the changes of the other transactions.

use super::{Books, Executed, Keys, Ledger, insert, total};
use crate::protocol::{Abort, Coordinator, Member, Table, Transaction, TransactionError};
use crate::servers::{ComputeServer, StoreError};
use bytemuck::{Pod, Zeroable};

/// An account.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
struct Account {
    cents: i64,
    /// The number of changes of the balance.
    changes: u64,
}

/// The SmallBank benchmark.
#[derive(Clone, Copy, Debug)]
pub struct SmallBank {
    checking: Table<Account>,
    savings: Table<Account>,
    pub(super) ledger: Ledger,
    customers: u64,
}

/// The kinds of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallBankKind {
    /// Moves all money of a customer to another one's checking account. 15%.
    Amalgamate,
    /// Reads both balances of a customer. 15%.
    Balance,
    /// Adds to a checking account. 15%.
    DepositChecking,
    /// Moves money between two checking accounts, if the first one has enough. 25%.
    SendPayment,
    /// Adds to or takes from a savings account, which does not become negative. 15%.
    TransactSavings,
    /// Takes from a checking account, with a penalty if the customer has not enough. 15%.
    WriteCheck,
}

impl SmallBankKind {
    fn choose(random: &mut fastrand::Rng) -> Self {
        match random.u8(..100) {
            0..15 => Self::Amalgamate,
            15..30 => Self::Balance,
            30..45 => Self::DepositChecking,
            45..70 => Self::SendPayment,
            70..85 => Self::TransactSavings,
            _ => Self::WriteCheck,
        }
    }
}

/// A transaction and its random choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallBankRequest {
    /// The kind of the transaction.
    pub kind: SmallBankKind,
    /// The first or only customer of the transaction.
    pub one: u64,
    /// The other customer, if the kind of transaction has two.
    pub other: u64,
    /// The amount in cents. It is negative if [`TransactSavings`](SmallBankKind::TransactSavings)
    /// takes it from the account.
    pub amount: i64,
}

impl SmallBankRequest {
    /// Chooses a random transaction of a bank with `customers` customers.
    pub fn choose(customers: u64, random: &mut fastrand::Rng) -> Self {
        let customers = Keys {
            all: customers,
            hot: customers / 25,
            hot_percent: 90,
        };
        let kind = SmallBankKind::choose(random);
        let one = customers.choose(random);
        let other = customers.choose_other(random, one);
        let amount = random.i64(1..=5000);
        let amount = match kind {
            SmallBankKind::TransactSavings if random.bool() => -amount,
            _ => amount,
        };
        Self {
            kind,
            one,
            other,
            amount,
        }
    }
}

impl SmallBank {
    /// The number of customers in FORD's configuration.
    pub const CUSTOMERS: u64 = 100_000;
    /// The initial balance of each account in cents.
    pub const INITIAL: i64 = 100_000;

    /// Opens the tables, or creates them for `customers`.
    ///
    /// # Errors
    /// Returns the errors of [`ComputeServer::table`].
    pub fn open(compute: &ComputeServer, customers: u64, books: Books) -> Result<Self, StoreError> {
        Ok(Self {
            checking: compute.table("checking", customers)?,
            savings: compute.table("savings", customers)?,
            ledger: Ledger::open(compute, books)?,
            customers,
        })
    }

    /// Inserts all accounts that do not exist.
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub fn load<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
    ) -> Result<(), TransactionError> {
        let account = Account {
            cents: Self::INITIAL,
            changes: 0,
        };
        let accounts = (0..self.customers).map(|customer| (customer, account));
        insert(coordinator, self.checking, accounts.clone())?;
        insert(coordinator, self.savings, accounts)
    }

    /// Executes a random transaction. Returns its kind, and its record.
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub async fn execute<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        random: &mut fastrand::Rng,
    ) -> Result<(SmallBankKind, Executed), TransactionError> {
        let request = SmallBankRequest::choose(self.customers, random);
        Ok((request.kind, self.serve(coordinator, request).await?))
    }

    /// Executes a given transaction.
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub async fn serve<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        request: SmallBankRequest,
    ) -> Result<Executed, TransactionError> {
        let committed = coordinator.transaction(async |tx| {
            let change = self.change(tx, request).await?;
            self.ledger.record(tx, change).await
        });
        Ok(committed.await?.value)
    }

    /// Executes the accesses of a transaction. Returns the change of the sum of all balances.
    async fn change<V: Member>(
        &self,
        tx: &mut Transaction<V>,
        request: SmallBankRequest,
    ) -> Result<i64, Abort> {
        let SmallBankRequest {
            kind,
            one,
            other,
            amount,
        } = request;
        let (checking, savings) = (self.checking, self.savings);
        let add = |cents: i64| {
            move |account: Account| Account {
                cents: account.cents + cents,
                changes: account.changes + 1,
            }
        };
        match kind {
            SmallBankKind::Amalgamate => {
                let empty = |account: Account| add(-account.cents)(account);
                let saved = tx.update(savings, one, empty).await?;
                let checked = tx.update(checking, one, empty).await?;
                let sum = saved.map_or(0, |it| it.cents) + checked.map_or(0, |it| it.cents);
                tx.update(checking, other, add(sum)).await?;
                Ok(0)
            }
            SmallBankKind::Balance => {
                tx.read(savings, one).await?;
                tx.read(checking, one).await?;
                Ok(0)
            }
            SmallBankKind::DepositChecking => {
                tx.update(checking, one, add(amount)).await?;
                Ok(amount)
            }
            SmallBankKind::SendPayment => {
                let balance = tx.read(checking, one).await?.map_or(0, |it| it.cents);
                if balance >= amount {
                    tx.update(checking, one, add(-amount)).await?;
                    tx.update(checking, other, add(amount)).await?;
                }
                Ok(0)
            }
            SmallBankKind::TransactSavings => {
                let balance = tx.read(savings, one).await?.map_or(0, |it| it.cents);
                if balance + amount < 0 {
                    return Ok(0);
                }
                tx.update(savings, one, add(amount)).await?;
                Ok(amount)
            }
            SmallBankKind::WriteCheck => {
                let saved = tx.read(savings, one).await?.map_or(0, |it| it.cents);
                let checked = tx.read(checking, one).await?.map_or(0, |it| it.cents);
                let penalty = if saved + checked < amount { 100 } else { 0 };
                tx.update(checking, one, add(-amount - penalty)).await?;
                Ok(-amount - penalty)
            }
        }
    }

    /// Returns the difference between the sum of all balances and the expected one, 0 in a sound
    /// store. `counted` is the sum of the changes that programs have counted. No transaction runs
    /// at the same time.
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub fn surplus<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        counted: i64,
    ) -> Result<i64, TransactionError> {
        let customers = self.customers;
        let cents = |account: Account| account.cents;
        let found = total(coordinator, self.checking, customers, cents)?
            + total(coordinator, self.savings, customers, cents)?;
        let ledger = self.ledger.sum(coordinator)?;
        Ok(found - 2 * Self::INITIAL * customers as i64 - counted - ledger)
    }
}
