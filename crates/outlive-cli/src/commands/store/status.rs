//! `outlive store status`: the servers, tables and events of a store.

use super::Which;
use super::metrics::Metrics;
use crate::amount::Bytes;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use outlive::membership::Instance;
use outlive_store::protocol::Counts;
use outlive_store::servers::{MemoryEntry, Phase, Store};
use serde::Serialize;
use std::collections::HashMap;

/// Arguments of `outlive store status`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive store status /dev/shm/bank\n  \
    outlive store status /dev/shm/bank --json | jq '.memory[] | select(.phase == \"live\")'\n  \
    outlive store status /dev/shm/bank --metrics > bank.prom   # for Prometheus\n\n\
    The command does not join the store and changes nothing.\n\n\
    JSON: path, epoch, protocol, replicas, missing_replicas, lost_partitions, process_ids, \
    used_ids, failed_ids, recoveries, rolled_forward, rolled_back, counts, memory (id, \
    incarnation, phase, owner, pid, bytes, replicas), compute (id, owner, pid, has_failed) and \
    tables (number, name, value_bytes, slots); docs/json.md says what they mean.")]
pub struct Status {
    #[command(flatten)]
    which: Which,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print the result as metrics in OpenMetrics' text format
    #[arg(long, conflicts_with = "json")]
    metrics: bool,
}

#[derive(Serialize)]
struct Answer {
    path: String,
    epoch: u64,
    protocol: &'static str,
    replicas: u16,
    missing_replicas: u64,
    lost_partitions: u64,
    process_ids: u16,
    used_ids: u64,
    failed_ids: u64,
    recoveries: u64,
    rolled_forward: u64,
    rolled_back: u64,
    counts: Events,
    memory: Vec<MemoryServer>,
    compute: Vec<ComputeServer>,
    tables: Vec<StoredTable>,
}

/// Totals of events in transactions.
#[derive(Serialize)]
struct Events {
    committed: u64,
    aborted_latched: u64,
    aborted_changed: u64,
    aborted_torn: u64,
    aborted_interrupted: u64,
    aborted_by_user: u64,
    stolen: u64,
    stalled: u64,
    passed: u64,
}

impl From<Counts> for Events {
    fn from(counts: Counts) -> Self {
        Self {
            committed: counts.committed,
            aborted_latched: counts.latched,
            aborted_changed: counts.changed,
            aborted_torn: counts.torn,
            aborted_interrupted: counts.interrupted,
            aborted_by_user: counts.user,
            stolen: counts.stolen,
            stalled: counts.stalled,
            passed: counts.passed,
        }
    }
}

#[derive(Serialize)]
struct StoredTable {
    number: u8,
    name: String,
    value_bytes: u64,
    slots: u64,
}

#[derive(Serialize)]
struct MemoryServer {
    id: u16,
    incarnation: u64,
    phase: String,
    owner: Option<String>,
    pid: Option<u32>,
    bytes: u64,
    replicas: u64,
}

#[derive(Serialize)]
struct ComputeServer {
    id: u16,
    owner: String,
    pid: Option<u32>,
    has_failed: bool,
}

impl Status {
    pub(super) fn run(self) -> Result<(), Failure> {
        let store = Store::observe(&self.which.path)?;
        let (status, logs) = (store.status(), store.configuration().log_bytes());
        let gone = store.gone();
        let members = store.pod().status().members.into_iter();
        let pids: HashMap<Instance, u32> = members
            .filter_map(|it| Some((it.instance(), it.record?.thread.process.pid)))
            .collect();
        let is_gone = |it: &MemoryEntry| it.owner.is_some_and(|owner| gone.contains(&owner));
        if self.metrics {
            return output::print(Metrics::of(&status));
        }
        let answer = Answer {
            path: self.which.path.display().to_string(),
            epoch: status.epoch,
            protocol: status.protocol.name(),
            replicas: status.replicas,
            missing_replicas: status.missing.replicas,
            lost_partitions: status.missing.lost,
            process_ids: status.process_ids,
            used_ids: status.compute.len() as u64,
            failed_ids: status.compute.iter().filter(|it| it.has_failed).count() as u64,
            recoveries: status.recoveries,
            rolled_forward: status.recovered.forward,
            rolled_back: status.recovered.back,
            counts: status.counts.into(),
            memory: { status.memory.iter().zip(&status.placed) }
                .map(|(it, placed)| MemoryServer {
                    id: it.id.0,
                    incarnation: it.incarnation,
                    phase: match it.phase == Phase::Live && is_gone(it) {
                        true => "gone".into(),
                        false => it.phase.to_string(),
                    },
                    owner: it.owner.map(|owner| owner.to_string()),
                    pid: it.owner.and_then(|owner| pids.get(&owner).copied()),
                    bytes: it.region.bytes.saturating_sub(logs),
                    replicas: *placed,
                })
                .collect(),
            compute: { status.compute.iter() }
                .map(|it| ComputeServer {
                    id: it.id,
                    owner: it.owner.to_string(),
                    pid: pids.get(&it.owner).copied(),
                    has_failed: it.has_failed,
                })
                .collect(),
            tables: { status.tables.into_iter() }
                .map(|it| StoredTable {
                    number: it.number,
                    value_bytes: u64::from(it.geometry.value_words) * 8,
                    slots: it.geometry.slots(),
                    name: it.name,
                })
                .collect(),
        };
        if self.json {
            return output::json(&answer);
        }
        let is_live = |it: &&MemoryEntry| it.phase == Phase::Live && !is_gone(it);
        let live = status.memory.iter().filter(is_live);
        let (servers, bytes) = live.fold((0, 0), |(n, sum), it| {
            (n + 1, sum + it.region.bytes.saturating_sub(logs))
        });
        output::line(format_args!(
            "{}: a store with {} replicas of each object, protocol {}, epoch {}; {servers} live \
             memory servers with {}",
            answer.path,
            answer.replicas,
            answer.protocol,
            answer.epoch,
            Bytes(bytes),
        ))?;
        let counts = &answer.counts;
        if counts.committed > 0 || answer.recoveries > 0 {
            output::line(format_args!(
                "about {} transactions committed; attempts aborted: {} latched, {} changed, {} \
                 torn, {} interrupted, {} by programs; {} recoveries of compute servers; {} \
                 stray latches stolen, {} reads that ignored one",
                counts.committed,
                counts.aborted_latched,
                counts.aborted_changed,
                counts.aborted_torn,
                counts.aborted_interrupted,
                counts.aborted_by_user,
                answer.recoveries,
                counts.stolen,
                counts.passed,
            ))?;
        }
        let unrecorded = { status.memory.iter() }
            .filter(|it| it.phase == Phase::Live && is_gone(it))
            .count();
        if unrecorded > 0 {
            output::line(format_args!(
                "dead memory servers: {unrecorded}, listed as gone; the next process that joins \
                 the store records that their memory is lost"
            ))?;
        }
        if answer.lost_partitions > 0 {
            output::line(format_args!(
                "{} partitions have no live replica: their keys are lost; destroy the store, \
                 and load a dump into a new one",
                answer.lost_partitions
            ))?;
        }
        if answer.missing_replicas > 0 {
            output::line(format_args!(
                "{} replicas of {} partitions are missing; start memory servers in place of lost \
                 ones, and run `outlive store restore {}`",
                answer.missing_replicas, status.missing.partitions, answer.path
            ))?;
        }
        let pid = |pid: Option<u32>| pid.map_or_else(String::new, |pid| pid.to_string());
        let mut table = Table::new(["SERVER", "STATE", "MEMBER", "PID", "MEMORY", "REPLICAS"]);
        for server in answer.memory {
            table.row([
                format!("memory {}", server.id),
                server.phase,
                server.owner.unwrap_or_default(),
                pid(server.pid),
                Bytes(server.bytes).to_string(),
                server.replicas.to_string(),
            ]);
        }
        for server in answer.compute {
            let state = if server.has_failed { "failed" } else { "live" };
            table.row([
                format!("compute {}", server.id),
                state.into(),
                server.owner,
                pid(server.pid),
                String::new(),
                String::new(),
            ]);
        }
        if table.rows() > 0 {
            table.lines().try_for_each(output::line)?;
        }
        answer.tables.into_iter().try_for_each(|it| {
            let name = output::printable(&it.name);
            output::line(format_args!(
                "table {}, {name}: values of {} bytes, {} slots",
                it.number, it.value_bytes, it.slots
            ))
        })
    }
}
