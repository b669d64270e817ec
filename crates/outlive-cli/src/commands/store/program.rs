//! The benchmark of a run, as the command and its compute servers know it.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use outlive_store::protocol::{Protocol, Retry};
use outlive_store::servers::ComputeServer;
use outlive_store::verbs::Link;
use outlive_store::workloads::{
    Benchmark, Books, Micro, SmallBank, Tatp, TpcC, bytes_per_server, ledger_table,
};
use std::time::Duration;

/// The names of the benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// A bank with checking and savings accounts: money is conserved
    Smallbank,
    /// The subscribers of a mobile network; 80% of the transactions only read
    Tatp,
    /// The orders of a wholesale supplier; some transactions access hundreds of rows
    Tpcc,
    /// Reads and updates of random keys with values of 48 bytes
    Micro,
}

/// The names of the protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtocolName {
    /// Logs after the validation, in as many servers as an object has replicas; the latches of dead
    /// compute servers are stolen
    Pandora,
    /// Logs at the replicas of objects; after a death, a scan of all tables finds the latches while
    /// no transaction begins
    Ford,
    /// As ford, and logs each latch before it is acquired, so that no scan is needed
    LogALatch,
    /// As pandora, but logs during the validation: a round trip less for a commit, one more for an
    /// abort
    LatchToLog,
}

impl From<ProtocolName> for Protocol {
    fn from(name: ProtocolName) -> Self {
        match name {
            ProtocolName::Pandora => Self::Pandora,
            ProtocolName::Ford => Self::Ford,
            ProtocolName::LogALatch => Self::LogALatch,
            ProtocolName::LatchToLog => Self::LatchToLog,
        }
    }
}

/// The arguments that describe the transactions.
#[derive(Args, Clone, Debug)]
pub struct Program {
    /// Benchmark to run
    pub name: Name,
    /// Number of coordinators of each compute server: they share its one thread, and each executes
    /// one transaction at a time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub coordinators: u16,
    /// Number of customers of smallbank; 4% of them take part in 90% of the transactions
    #[arg(long, default_value_t = SmallBank::CUSTOMERS,
        value_parser = clap::value_parser!(u64).range(2..=100_000_000))]
    pub customers: u64,
    /// Number of subscribers of tatp
    #[arg(long, default_value_t = Tatp::SUBSCRIBERS,
        value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub subscribers: u64,
    /// Number of warehouses of tpcc; with one, no transaction accesses a remote warehouse
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub warehouses: u64,
    /// Number of orders that each district of tpcc keeps. A district with this number of
    /// undelivered orders refuses new ones
    #[arg(long, default_value_t = 10_000,
        value_parser = clap::value_parser!(u64).range(TpcC::MIN_ORDERS..=10_000_000))]
    pub orders: u64,
    /// Number of keys of micro
    #[arg(long, default_value_t = Micro::KEYS,
        value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub keys: u64,
    /// Number of different keys that the transactions of micro access; 0 means all
    #[arg(long, default_value_t = 0)]
    pub hot: u64,
    /// Number of keys in a transaction of micro
    #[arg(long, default_value_t = 4,
        value_parser = clap::value_parser!(u8).range(1..=Micro::MAX_ACCESSES as i64))]
    pub accesses: u8,
    /// Percentage of updates among the accesses of micro
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub write_percent: u8,
    /// Emulate a network with this round-trip time, such as 2us; without it, servers access mapped
    /// memory directly
    #[arg(long, value_parser = humantime::parse_duration)]
    pub round_trip: Option<Duration>,
    /// Maximum of a random delay of each request on the emulated network
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub jitter: Duration,
    /// Wait for latches of compute servers that are being recovered, instead of aborting and
    /// retrying
    #[arg(long)]
    pub stall: bool,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Program {
    /// Returns the emulated network, or `None` without `--round-trip`.
    pub fn link(&self) -> Option<Link> {
        self.round_trip.map(|round_trip| Link {
            round_trip,
            jitter: self.jitter,
            ..Link::default()
        })
    }

    /// Returns the name of the benchmark in reports.
    pub fn label(&self) -> &'static str {
        match self.name {
            Name::Smallbank => "smallbank",
            Name::Tatp => "tatp",
            Name::Tpcc => "tpcc",
            Name::Micro => "micro",
        }
    }

    /// Opens or creates the tables.
    pub fn open(&self, compute: &ComputeServer, books: Books) -> Result<Benchmark, Failure> {
        Ok(match self.name {
            Name::Smallbank => {
                Benchmark::SmallBank(SmallBank::open(compute, self.customers, books)?)
            }
            Name::Tatp => Benchmark::Tatp(Tatp::open(compute, self.subscribers, books)?),
            Name::Tpcc => {
                Benchmark::TpcC(TpcC::open(compute, self.warehouses, self.orders, books)?)
            }
            Name::Micro => {
                let keys = (self.keys, self.hot);
                let accesses = self.accesses.into();
                let micro = Micro::open(compute, keys, accesses, self.write_percent, books)?;
                Benchmark::Micro(micro)
            }
        })
    }

    /// Returns the number of bytes of tables for which each of `servers` memory servers needs
    /// space, if `compute` servers execute transactions.
    pub fn bytes_per_server(&self, servers: u16, replicas: u16, compute: u16) -> u64 {
        let mut tables = match self.name {
            Name::Smallbank => vec![(self.customers, 2); 2],
            Name::Tatp => Tatp::tables(self.subscribers).into(),
            Name::Tpcc => {
                let coordinators = u64::from(compute) * u64::from(self.coordinators);
                TpcC::tables(self.warehouses, self.orders, coordinators).into()
            }
            Name::Micro => vec![(self.keys, 6)],
        };
        tables.push(ledger_table(compute, self.coordinators));
        bytes_per_server(&tables, servers, replicas)
    }

    /// Returns the number of bytes of a log slot: enough for the largest transaction.
    pub fn log_slot(&self, protocol: Protocol) -> u64 {
        let bytes = match self.name {
            Name::Tpcc => TpcC::LOG_SLOT,
            _ => 4096,
        };
        match protocol {
            Protocol::Pandora | Protocol::LatchToLog => bytes,
            // Half of the slot is for recovery, and each object has a header of its own.
            Protocol::Ford | Protocol::LogALatch => 5 * bytes,
        }
    }

    /// Returns the arguments with which a compute server of a run is started.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = vec![self.label().into()];
        let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        add("coordinators", self.coordinators.to_string());
        add("customers", self.customers.to_string());
        add("subscribers", self.subscribers.to_string());
        add("warehouses", self.warehouses.to_string());
        add("orders", self.orders.to_string());
        add("keys", self.keys.to_string());
        add("hot", self.hot.to_string());
        add("accesses", self.accesses.to_string());
        add("write-percent", self.write_percent.to_string());
        add(
            "jitter",
            humantime::format_duration(self.jitter).to_string(),
        );
        add("seed", self.seed.to_string());
        if let Some(round_trip) = self.round_trip {
            add(
                "round-trip",
                humantime::format_duration(round_trip).to_string(),
            );
        }
        if self.stall {
            arguments.push("--stall".into());
        }
        arguments
    }

    /// Returns the settings for retries of transactions.
    pub fn retry(&self) -> Retry {
        let stall = if self.stall { 1_000_000 } else { 0 };
        Retry {
            stall,
            ..Retry::default()
        }
    }
}
