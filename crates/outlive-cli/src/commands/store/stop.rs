//! `outlive store stop`: ends all compute servers of a store in good order.

use super::Which;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_store::servers::{MemoryEntry, Phase, Stopped, Store};
use serde::Serialize;
use std::time::Duration;

/// Arguments of `outlive store stop`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive store stop /dev/shm/bank\n  \
    outlive store stop /dev/shm/bank --timeout 1s --force && outlive store check /dev/shm/bank\n\n\
    No transaction begins during the stop. Transactions that are under way end, and each compute \
    server has to leave, after which no latch is held and no log is left. The memory servers keep \
    the data, and compute servers can join again afterwards. --force kills whole processes, so a \
    program that is also a memory server loses its memory.\n\n\
    JSON: path, ended, fenced and memory_servers; docs/json.md says what they mean.")]
pub struct Stop {
    #[command(flatten)]
    which: Which,
    /// Time after which the command fails or, with --force, kills the remaining compute servers
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Kill the compute servers that have not left after --timeout, and recover their logs
    #[arg(long)]
    force: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer {
    path: String,
    ended: usize,
    fenced: usize,
    memory_servers: usize,
}

impl Stop {
    pub fn run(self) -> Result<(), Failure> {
        let store = Store::open(&self.which.path)?;
        let Stopped { ended, fenced } = store.stop(self.timeout, self.force)?;
        let path = self.which.path.display().to_string();
        let gone = store.gone();
        let is_live = |it: &MemoryEntry| {
            it.phase == Phase::Live && it.owner.is_some_and(|owner| !gone.contains(&owner))
        };
        let memory = store.status().memory;
        let memory_servers = memory.iter().filter(|it| is_live(it)).count();
        if self.json {
            return output::json(&Answer {
                path,
                ended,
                fenced,
                memory_servers,
            });
        }
        output::line(format_args!(
            "{path}: {ended} compute servers have ended, and {fenced} were killed and recovered; \
             no log is left, and {memory_servers} memory servers keep the data"
        ))
    }
}
