//! The transactions that the clients of every store execute.

use outlive_store::workloads::{SmallBank, SmallBankRequest};
use serde::{Deserialize, Serialize};

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workload {
    /// Moves amounts between two different accounts, both uniformly at random.
    Transfers,
    /// The six transactions of SmallBank, in its mix and with its hot customers.
    SmallBank,
}

/// A workload and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub workload: Workload,
    /// The number of keys of each table.
    pub keys: u64,
}

/// A transaction.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// Moves `amount` cents from account `from` to account `to`.
    Transfer { from: u64, to: u64, amount: i64 },
    /// A transaction of SmallBank.
    SmallBank(SmallBankRequest),
}

impl Workload {
    pub const ALL: [Self; 2] = [Self::Transfers, Self::SmallBank];

    /// Returns the description for the cases of the study.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transfers => "transfers",
            Self::SmallBank => "SmallBank",
        }
    }

    /// Returns the number of tables: of checking accounts, and in SmallBank of savings accounts.
    pub const fn tables(self) -> usize {
        match self {
            Self::Transfers => 1,
            Self::SmallBank => 2,
        }
    }
}

impl Load {
    /// The initial balance of each account, in cents.
    pub const INITIAL: i64 = SmallBank::INITIAL;

    /// Returns the initial sum of all balances.
    pub fn initial_sum(self) -> i64 {
        self.workload.tables() as i64 * self.keys as i64 * Self::INITIAL
    }

    /// Chooses the next transaction.
    pub fn choose(self, random: &mut fastrand::Rng) -> Request {
        match self.workload {
            Workload::Transfers => {
                let from = random.u64(..self.keys);
                let to = (from + random.u64(1..self.keys)) % self.keys;
                let amount = random.i64(1..=5000);
                Request::Transfer { from, to, amount }
            }
            Workload::SmallBank => Request::SmallBank(SmallBankRequest::choose(self.keys, random)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_have_two_accounts() {
        let load = Load {
            workload: Workload::Transfers,
            keys: 3,
        };
        let mut random = fastrand::Rng::with_seed(1);
        let mut seen = [[0; 3]; 3];
        for _ in 0..6000 {
            match load.choose(&mut random) {
                Request::Transfer { from, to, amount } => {
                    assert!(amount > 0);
                    seen[from as usize][to as usize] += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        for (from, row) in seen.iter().enumerate() {
            for (to, count) in row.iter().enumerate() {
                assert!((from == to) == (*count == 0) && *count < 1200, "{seen:?}");
            }
        }
    }
}
