//! The benchmarks of the thesis's chapter 4, in the sizes of a study.

use crate::study::{Effort, StudyError};
use outlive_store::protocol::Protocol;
use outlive_store::servers::{ComputeServer, StoreError};
use outlive_store::workloads::{Benchmark, Books, Micro, SmallBank, Tatp, TpcC, ledger_table};
use serde::{Deserialize, Serialize};

/// The benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    TpcC,
    SmallBank,
    Tatp,
    Micro,
}

impl Kind {
    /// All benchmarks, in the order of Table 4.1.
    pub const ALL: [Self; 4] = [Self::TpcC, Self::SmallBank, Self::Tatp, Self::Micro];

    /// The name in the thesis.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TpcC => "TPC-C",
            Self::SmallBank => "SmallBank",
            Self::Tatp => "TATP",
            Self::Micro => "micro",
        }
    }
}

/// A benchmark with its size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Subject {
    pub kind: Kind,
    /// The number of warehouses, customers, subscribers or keys.
    pub size: u64,
    /// The number of keys that `micro` uses; 0 for all.
    pub hot: u64,
    /// The percentage of updates among the accesses of `micro`.
    pub write_percent: u8,
}

/// The number of keys in a transaction of `micro`.
const ACCESSES: usize = 4;

impl Subject {
    /// The benchmark in the size for `effort`. `micro` updates all keys that it accesses. `None`
    /// for TPC-C in the smallest size, because one warehouse takes seconds to fill.
    pub fn of(kind: Kind, effort: Effort) -> Option<Self> {
        let size = match kind {
            Kind::TpcC => effort.of(0, 1, 4),
            Kind::SmallBank => effort.of(2_000, SmallBank::CUSTOMERS, SmallBank::CUSTOMERS),
            Kind::Tatp => effort.of(200, 20_000, Tatp::SUBSCRIBERS),
            Kind::Micro => effort.of(2_000, 100_000, 100_000),
        };
        (size > 0).then_some(Self {
            kind,
            size,
            hot: 0,
            write_percent: 100,
        })
    }

    /// Opens or creates the tables.
    pub fn open(&self, compute: &ComputeServer, books: Books) -> Result<Benchmark, StoreError> {
        let size = self.size;
        Ok(match self.kind {
            Kind::TpcC => Benchmark::TpcC(TpcC::open(compute, size, TpcC::MIN_ORDERS, books)?),
            Kind::SmallBank => Benchmark::SmallBank(SmallBank::open(compute, size, books)?),
            Kind::Tatp => Benchmark::Tatp(Tatp::open(compute, size, books)?),
            Kind::Micro => {
                let keys = (size, self.hot);
                let micro = Micro::open(compute, keys, ACCESSES, self.write_percent, books)?;
                Benchmark::Micro(micro)
            }
        })
    }

    /// The numbers of keys and of words in a value of all tables.
    pub fn tables(&self, compute_servers: u16, coordinators: u16) -> Vec<(u64, u32)> {
        let mut tables = match self.kind {
            Kind::TpcC => {
                let coordinators = u64::from(compute_servers) * u64::from(coordinators);
                TpcC::tables(self.size, TpcC::MIN_ORDERS, coordinators).into()
            }
            Kind::SmallBank => vec![(self.size, 2); 2],
            Kind::Tatp => Tatp::tables(self.size).into(),
            Kind::Micro => vec![(self.size, 6)],
        };
        tables.push(ledger_table(compute_servers, coordinators));
        tables
    }

    /// The number of bytes of a log slot for the largest transaction.
    pub fn log_slot(&self, protocol: Protocol) -> u64 {
        let bytes = match self.kind {
            Kind::TpcC => TpcC::LOG_SLOT,
            _ => 4096,
        };
        match protocol {
            Protocol::Pandora | Protocol::LatchToLog => bytes,
            // Half of the slot is for recovery, and each object has a header of its own.
            Protocol::Ford | Protocol::LogALatch => 5 * bytes,
        }
    }
}

/// Returns the error for a benchmark whose invariant does not hold.
pub fn not_sound(name: &str, what: impl core::fmt::Display) -> StudyError {
    StudyError::void(format!("{name} is not consistent after the kills: {what}"))
}
