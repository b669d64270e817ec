//! `outlive store`: the servers of a transactional store.

mod bench;
mod client;
mod compute;
mod dump;
mod memory;
mod metrics;
mod program;
mod receipts;
mod restore;
mod rows;
mod status;
mod stop;
mod value;

use super::destroy::{not_opened, note_kept, refuse_members};
use crate::amount::{self, Many};
use crate::failure::Failure;
use crate::look::Look;
use crate::output;
use clap::{Args, Subcommand};
use outlive_store::protocol::Incomplete;
use outlive_store::servers::{Store, StoreError, StoreOptions};
use program::ProtocolName;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The commands of `outlive store`.
#[derive(Subcommand, Debug)]
pub enum StoreCommand {
    /// Create a store without servers
    Create(Create),
    /// Serve memory to a store until interrupted
    Memory(memory::Memory),
    /// Serve memory to a store, and restore its lost replicas
    AddMemory(memory::AddMemory),
    /// Show the servers of a store
    Status(status::Status),
    /// Check all tables of a store that no transaction uses
    Check(Check),
    /// Create a table
    Table(rows::CreateTable),
    /// Print the values of keys
    Get(rows::Get),
    /// Write the value of a key
    Put(rows::Put),
    /// Delete keys
    Delete(rows::Delete),
    /// Print all rows of a table
    Scan(rows::Scan),
    /// Write all rows of a store to a file
    Dump(dump::Dump),
    /// Load a dump, which `outlive store dump` has written, into a store
    Load(dump::Load),
    /// Replace lost replicas by new ones on live memory servers
    Restore(restore::Restore),
    /// Stop all compute servers; the memory servers keep the data
    Stop(stop::Stop),
    /// Run a benchmark on servers of its own, and kill some of them
    Bench(Box<bench::Bench>),
    /// A compute server of `bench`
    #[command(hide = true)]
    BenchCompute(Box<compute::Compute>),
    /// Remove a store and the memory of its servers
    Destroy(Destroy),
}

impl StoreCommand {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Create(command) => command.run(),
            Self::Memory(command) => command.run(),
            Self::AddMemory(command) => command.run(),
            Self::Status(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Table(command) => command.run(),
            Self::Get(command) => command.run(),
            Self::Put(command) => command.run(),
            Self::Delete(command) => command.run(),
            Self::Scan(command) => command.run(),
            Self::Dump(command) => command.run(),
            Self::Load(command) => command.run(),
            Self::Restore(command) => command.run(),
            Self::Stop(command) => command.run(),
            Self::Bench(command) => command.run(),
            Self::BenchCompute(command) => command.run(),
            Self::Destroy(command) => command.run(),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        // Names of tables can contain control characters.
        Self::new(output::printable(&error))
    }
}

/// The argument that names the store.
#[derive(Args, Debug)]
struct Which {
    /// The store: a file, for example in /dev/shm
    path: PathBuf,
}

/// Arguments of `outlive store create`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive store create /dev/shm/bank\n  \
    outlive store create /dev/shm/bank --replicas 3\n\n\
    The store's data is in the memory of its memory servers, which `outlive store memory` \
    starts.")]
pub struct Create {
    #[command(flatten)]
    which: Which,
    /// Number of replicas of each object: with N, N - 1 memory servers may die at the same time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=8))]
    replicas: u16,
    /// Protocol of the transactions
    #[arg(long, value_enum, default_value_t = ProtocolName::Pandora)]
    protocol: ProtocolName,
    /// Size of a coordinator's log slot, which limits what a transaction writes and the size of a
    /// value: bytes, or a whole number with K, M, G or T
    #[arg(long, default_value = "4K", value_parser = amount::size)]
    log_slot: u64,
    /// Number of process ids: each live compute server and each failed one uses one
    #[arg(long, default_value_t = u16::MAX, value_parser = clap::value_parser!(u16).range(1..))]
    process_ids: u16,
    /// Number of memory servers in the life of the store: each one that is lost uses one for good
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    memory_servers: u16,
    /// Maximum number of hosts, processes and threads at one time
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(4..=65_536))]
    members: u32,
    /// Permissions of the store's files, octal
    #[arg(long, default_value = "600", value_parser = amount::mode)]
    mode: u32,
    /// Overwrite the memory of dead memory servers with a pattern (for tests)
    #[arg(long)]
    poison: bool,
}

impl Create {
    fn run(self) -> Result<(), Failure> {
        let options = StoreOptions::new()
            .replicas(self.replicas)
            .protocol(self.protocol.into())
            .log_slot(self.log_slot)
            .process_ids(self.process_ids)
            .memory_servers(self.memory_servers)
            .members(self.members)
            .mode(self.mode)
            .poison_dead(self.poison);
        let path = &self.which.path;
        let store = Store::create(path, options)?;
        output::line(format_args!(
            "created the store {} with {} replicas of each object; it has no memory yet: start \
             memory servers with `outlive store memory {}`",
            path.display(),
            store.configuration().replicas(),
            path.display(),
        ))
    }
}

/// Arguments of `outlive store check`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    outlive store check /dev/shm/bank\n\n\
    Compares the replicas of each object, checks the latches and the index, and counts dead \
    compute servers whose logs are not recovered, and log slots that are not empty although their \
    server has left. While transactions run, it can report \
    contradictions that do not exist.\n\n\
    JSON: path, sound, keys, stray_latches, held_latches, under_replicated, lost, incomplete \
    (table, partition, live), unrecovered, logs and problems; docs/json.md says what they mean.")]
pub struct Check {
    #[command(flatten)]
    which: Which,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct CheckAnswer {
    path: String,
    sound: bool,
    keys: u64,
    stray_latches: u64,
    held_latches: u64,
    under_replicated: u64,
    lost: u64,
    incomplete: Vec<IncompletePartition>,
    unrecovered: u64,
    logs: u64,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct IncompletePartition {
    table: u8,
    partition: u8,
    live: usize,
}

impl From<Incomplete> for IncompletePartition {
    fn from(it: Incomplete) -> Self {
        Self {
            table: it.table,
            partition: it.partition,
            live: it.live,
        }
    }
}

impl Check {
    fn run(self) -> Result<(), Failure> {
        let store = Store::observe(&self.which.path)?;
        let checked = store.check().map_err(Failure::new)?;
        let answer = CheckAnswer {
            path: self.which.path.display().to_string(),
            sound: checked.problems.is_empty()
                && checked.lost() + checked.unrecovered + checked.logs == 0,
            keys: checked.keys,
            stray_latches: checked.stray,
            held_latches: checked.held,
            under_replicated: checked.under_replicated(),
            lost: checked.lost(),
            incomplete: checked.incomplete.into_iter().map(Into::into).collect(),
            unrecovered: checked.unrecovered,
            logs: checked.logs,
            problems: checked.problems,
        };
        // A reader that closes the output does not hide a problem.
        let printed = self.print(&answer);
        match answer.sound {
            true => printed,
            false => Err(Failure::Found),
        }
    }

    fn print(&self, answer: &CheckAnswer) -> Result<(), Failure> {
        if self.json {
            output::json(answer)?;
        } else {
            output::line(format_args!(
                "{}: {} keys; {} stray latches, {} held ones; {} partitions with too few replicas, \
                 {} lost; {} dead compute servers with unrecovered logs, {} log slots of departed servers not empty",
                answer.path,
                answer.keys,
                answer.stray_latches,
                answer.held_latches,
                answer.under_replicated,
                answer.lost,
                answer.unrecovered,
                answer.logs,
            ))?;
            let mut incomplete = BTreeMap::<_, Vec<String>>::new();
            for it in &answer.incomplete {
                let of_table = incomplete.entry((it.table, it.live)).or_default();
                of_table.push(it.partition.to_string());
            }
            for ((table, live), partitions) in incomplete {
                let partitions = partitions.join(", ");
                output::line(match live {
                    0 => format!("table {table}: lost partitions: {partitions}"),
                    live => {
                        let live = Many(live as u64, "replica");
                        format!("table {table}: partitions with {live}: {partitions}")
                    }
                })?;
            }
            answer.problems.iter().try_for_each(output::line)?;
        }
        Ok(())
    }
}

/// Arguments of `outlive store destroy`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    outlive store destroy /dev/shm/bank")]
pub struct Destroy {
    #[command(flatten)]
    which: Which,
    /// Destroy the store even if it has live servers, which keep their mappings
    #[arg(long)]
    force: bool,
}

impl Destroy {
    fn run(self) -> Result<(), Failure> {
        let path = &self.which.path;
        if !self.force {
            let store = Store::observe(path).map_err(|error| not_opened(path, error))?;
            refuse_members(path, &Look::at(store.pod()), "store status")?;
        }
        note_kept(Store::destroy(path)?.as_deref());
        output::line(format_args!("destroyed the store {}", path.display()))
    }
}
