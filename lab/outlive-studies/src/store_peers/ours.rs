//! Our store: two memory servers and the clients are processes, each object has two replicas, and
//! the verbs access mapped memory.

use super::client::Bank;
use super::requests::{Load, Request, Workload};
use crate::StudyError;
use crate::children::{Launcher, Part, Playing, ready, sleep_for_ever};
use outlive_store::protocol::{Coordinator, Table};
use outlive_store::servers::{ComputeServer, Members, Store, StoreOptions};
use outlive_store::tables::Geometry;
use outlive_store::verbs::block_on;
use outlive_store::workloads::{Books, SmallBank, ledger_table};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The number of memory servers, each of which has a replica of every object.
const MEMORY_SERVERS: usize = 2;
/// The number of compute servers and of their coordinators for which the store has logs.
const LOGS: (u16, u16) = (4, 4);
/// The number of accounts that a transaction creates.
const CREATED_AT_ONCE: u64 = 8;
/// The number of partitions of a table, all of which each memory server has.
const PARTITIONS: u8 = 16;
/// The number of words of an account: its cents, and the number of its changes.
const WORDS: u32 = 2;

fn failed<E: Display>(error: E) -> StudyError {
    StudyError::void(format!("our store: {error}"))
}

fn path(directory: &Path) -> PathBuf {
    directory.join("store")
}

/// The store's pod. A drop removes it and the memory of its servers, which have ended by then.
pub struct OurStore(PathBuf);

impl OurStore {
    /// Creates a store without servers in `directory`.
    pub fn create(directory: &Path) -> Result<Self, StudyError> {
        let path = path(directory);
        let (servers, coordinators) = LOGS;
        let options = StoreOptions::new()
            .replicas(MEMORY_SERVERS as u16)
            .compute_servers(servers, coordinators);
        Store::create(&path, options).map_err(failed)?;
        Ok(Self(path))
    }
}

impl Drop for OurStore {
    fn drop(&mut self) {
        // A drop cannot report an error; the directory is removed with everything in it.
        let _ = Store::destroy(&self.0);
    }
}

/// The role of a memory server's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryServer {
    path: PathBuf,
    bytes: u64,
}

impl MemoryServer {
    pub fn play(self) -> Result<(), StudyError> {
        let store = Store::open(&self.path).map_err(failed)?;
        let _server = store.serve_memory(self.bytes).map_err(failed)?;
        ready();
        sleep_for_ever()
    }
}

/// Starts the memory servers.
pub fn start_servers(
    launcher: &Launcher,
    directory: &Path,
    load: Load,
    servers: &mut Vec<Playing>,
) -> Result<(), StudyError> {
    let ledger = match load.workload {
        Workload::Transfers => None,
        Workload::SmallBank => Some(ledger_table(LOGS.0, LOGS.1)),
    };
    let tables = (0..load.workload.tables()).map(|_| (load.keys, WORDS));
    let bytes: u64 = tables
        .chain(ledger)
        .map(|(keys, words)| {
            let geometry = Geometry::for_keys(keys, words, PARTITIONS);
            u64::from(PARTITIONS) * geometry.partition_bytes().next_multiple_of(64)
        })
        .sum();
    for _ in 0..MEMORY_SERVERS {
        let server = MemoryServer {
            path: path(directory),
            bytes: bytes + (1 << 20),
        };
        servers.push(launcher.start(&Part::StoreMemory(server))?);
    }
    servers.iter_mut().try_for_each(Playing::await_ready)
}

/// Cents, and the number of changes.
type Account = [i64; WORDS as usize];

enum Tables {
    Transfers(Table<Account>),
    SmallBank(SmallBank),
}

/// A compute server with one coordinator.
struct Ours {
    tables: Tables,
    load: Load,
    coordinator: Coordinator<Members>,
    _compute: ComputeServer,
}

/// Opens the store as a compute server.
pub fn open(directory: &Path, load: Load) -> Result<Box<dyn Bank>, StudyError> {
    let store = Store::open(path(directory)).map_err(failed)?;
    let compute = store.join_compute().map_err(failed)?;
    let tables = match load.workload {
        Workload::Transfers => {
            Tables::Transfers(compute.table("accounts", load.keys).map_err(failed)?)
        }
        Workload::SmallBank => {
            let bank = SmallBank::open(&compute, load.keys, Books::Program);
            Tables::SmallBank(bank.map_err(failed)?)
        }
    };
    let worker = compute.worker().map_err(failed)?;
    Ok(Box::new(Ours {
        tables,
        load,
        coordinator: worker.coordinator().map_err(failed)?,
        _compute: compute,
    }))
}

impl Bank for Ours {
    fn fill(&mut self) -> Result<(), StudyError> {
        let accounts = match &self.tables {
            Tables::Transfers(accounts) => *accounts,
            Tables::SmallBank(bank) => return bank.load(&mut self.coordinator).map_err(failed),
        };
        let mut next = 0;
        while next < self.load.keys {
            let keys = next..(next + CREATED_AT_ONCE).min(self.load.keys);
            let created = self.coordinator.transaction(async |tx| {
                for key in keys.clone() {
                    tx.insert(accounts, key, &[Load::INITIAL, 0]).await?;
                }
                Ok(())
            });
            block_on(created).map_err(failed)?;
            next = keys.end;
        }
        Ok(())
    }

    fn execute(&mut self, requests: &[Request]) -> Result<i64, StudyError> {
        let mut change = 0;
        for request in requests {
            change += match (&self.tables, *request) {
                (Tables::Transfers(accounts), Request::Transfer { from, to, amount }) => {
                    let moved = self.coordinator.transaction(async |tx| {
                        let add = |amount: i64| move |[cents, n]: Account| [cents + amount, n + 1];
                        tx.update(*accounts, from, add(-amount)).await?;
                        tx.update(*accounts, to, add(amount)).await
                    });
                    block_on(moved).map_err(failed)?;
                    0
                }
                (Tables::SmallBank(bank), Request::SmallBank(request)) => {
                    let executed = block_on(bank.serve(&mut self.coordinator, request));
                    executed.map_err(failed)?.change
                }
                _ => unreachable!("the tables and the requests are those of the workload"),
            };
        }
        Ok(change)
    }

    fn sum(&mut self) -> Result<i64, StudyError> {
        match &self.tables {
            Tables::SmallBank(bank) => {
                let surplus = bank.surplus(&mut self.coordinator, 0).map_err(failed)?;
                Ok(self.load.initial_sum() + surplus)
            }
            Tables::Transfers(accounts) => {
                let mut sum = 0;
                for key in 0..self.load.keys {
                    let coordinator = &mut self.coordinator;
                    let reading = coordinator.transaction(async |tx| tx.read(*accounts, key).await);
                    let account = block_on(reading).map_err(failed)?.value;
                    sum += account.map_or(0, |[cents, _]| cents);
                }
                Ok(sum)
            }
        }
    }
}
