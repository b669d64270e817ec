//! The result of a run, for people and as JSON.

mod text;

use super::fallout::Told;
use super::placement;
use super::progress::Took;
use super::size::Size;
use super::subject::Found;
use clap::ValueEnum;
use outlive_machine::cluster::MessageKind;
use outlive_machine::engine::Time;
use outlive_machine::line::LineAddress;
use outlive_machine::program::Origin;
use outlive_machine::run::{BusiestLink, Outcome, Run, Served, mean_miss};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The condition under which shares are compared with the published ones.
const COMPARED: &str = "they are compared at --size study, with 64 threads";

/// The result of a run.
#[derive(Serialize)]
pub struct Report<'a> {
    workload: &'a str,
    /// For a built-in workload only.
    size: Option<String>,
    threads: usize,
    /// The number of nodes with threads: the cores of one are filled before the next.
    nodes: usize,
    compute_nodes: u32,
    seed: u64,
    /// The file that describes the machine; `None` for the paper's.
    machine: Option<String>,
    configuration: &'static str,
    placement: &'static str,
    /// Accesses to lines that had been found to be another thread's.
    strays: Option<u64>,
    /// Whether the result was checked, and so is right.
    checked: bool,
    /// Simulated time.
    seconds: f64,
    instructions: u64,
    events: u64,
    /// Time of this computer.
    host_seconds: f64,
    /// The part of it from the first event to the last.
    simulating_seconds: f64,
    instructions_per_cycle: f64,
    store_fraction: f64,
    published_store_fraction: Option<f64>,
    shared_store_fraction: f64,
    published_shared_store_fraction: Option<f64>,
    /// The reason, if one of these is off by more than a quarter.
    differs: Option<&'static str>,
    accesses: Accesses,
    loads: Option<Loads>,
    lines_asked_for: u64,
    mean_miss_seconds: Option<f64>,
    private_misses: u64,
    busiest_link: Option<Link>,
    /// The share of the stores to shared memory.
    coalesced: Option<f64>,
    buffer_full: f64,
    replica_wait: Option<f64>,
    at_locks: f64,
    at_barriers: f64,
    replicated_oldest: Option<f64>,
    messages: BTreeMap<String, Traffic>,
    access_bytes_per_second: f64,
    replication_bytes_per_second: f64,
    dump_bytes_per_second: f64,
    recovery_bytes_per_second: f64,
    truncation_bytes_per_second: f64,
    largest_log_bytes: Option<u64>,
    dump_factor: Option<f64>,
    /// The result of the nodes' deaths, if any were requested.
    fallout: Option<Told>,
    /// The history of the line given by `--trace`.
    life: &'a [String],
    #[serde(skip)]
    followed: Option<LineAddress>,
    #[serde(skip)]
    end: Time,
    /// The number of nodes that log a store, if stores are logged.
    #[serde(skip)]
    replicas: Option<u32>,
    #[serde(skip)]
    mean_miss: Option<Time>,
    #[serde(skip)]
    origin: Option<Origin>,
}

/// The shares of loads by where they found their line.
#[derive(Serialize)]
struct Loads {
    l1: f64,
    l2: f64,
    l3: f64,
    neighbour: f64,
    store_buffer: f64,
    outside: f64,
}

impl From<Served> for Loads {
    fn from(served: Served) -> Self {
        Self {
            l1: served.l1,
            l2: served.l2,
            l3: served.l3,
            neighbour: served.neighbour,
            store_buffer: served.forwarded,
            outside: served.outside,
        }
    }
}

/// The most used link.
#[derive(Serialize)]
struct Link {
    link: String,
    busy: f64,
}

impl From<BusiestLink> for Link {
    fn from(link: BusiestLink) -> Self {
        Self {
            link: link.to_string(),
            busy: link.busy,
        }
    }
}

#[derive(Serialize)]
struct Traffic {
    messages: u64,
    bytes: u64,
    #[serde(skip)]
    about: &'static str,
}

/// The number of accesses, of all threads.
#[derive(Serialize)]
struct Accesses {
    loads: u64,
    stores: u64,
    atomics: u64,
    shared_loads: u64,
    shared_stores: u64,
    /// Entries of store buffers.
    committed: u64,
    /// Those of them that were replicated: each is a REPL to every node of its line's group.
    replicated: Option<u64>,
}

impl<'a> Report<'a> {
    pub fn new(
        workload: &'a str,
        found: &Found,
        machine: Option<&Path>,
        run: &Run<'_>,
        outcome: &'a Outcome,
        took: Took,
    ) -> Self {
        let measures = outcome.measures(run.description);
        let fallout = outcome.fallout.as_ref();
        let counts = outcome.counts.unwrap_or_default();
        let origin = found.subject.origin();
        let total = outcome.statistics.total();
        let replicates = run.description.ours.coherence.protocol.replicates();
        let mean_miss = mean_miss(&outcome.statistics, run.description);
        let busiest = BusiestLink::of(&outcome.statistics, outcome.end, run.description);
        let size = found.size.and_then(|size| size.to_possible_value());
        let threads = found.subject.thread_count();
        let nodes = threads.div_ceil(run.description.system.cores_per_node as usize);
        // The reasons were found with these.
        let is_compared = found.size == Some(Size::Study) && threads == 64;
        let kinds = MessageKind::ALL.iter().map(|kind| {
            let traffic = outcome.statistics.messages.of(*kind);
            let traffic = Traffic {
                messages: traffic.messages,
                bytes: traffic.bytes,
                about: kind.about(),
            };
            (format!("{kind:?}"), traffic)
        });
        Self {
            workload,
            size: size.map(|size| size.get_name().to_owned()),
            threads,
            nodes,
            compute_nodes: run.description.system.compute_nodes,
            seed: run.seed,
            machine: machine.map(|file| file.display().to_string()),
            configuration: run.description.ours.coherence.protocol.name(),
            placement: placement::name(run.placement),
            strays: outcome.strays,
            checked: outcome.checked,
            seconds: outcome.end.as_seconds(),
            instructions: total.instructions,
            events: outcome.events,
            host_seconds: took.seconds,
            simulating_seconds: took.simulating,
            instructions_per_cycle: measures.instructions_per_cycle,
            store_fraction: counts.store_fraction(),
            published_store_fraction: origin.and_then(|origin| origin.stores),
            shared_store_fraction: counts.shared_store_fraction(),
            published_shared_store_fraction: origin.and_then(|origin| origin.shared_stores),
            differs: origin
                .filter(|origin| !origin.is_near(&counts))
                .map(|origin| origin.differs.filter(|_| is_compared).unwrap_or(COMPARED)),
            accesses: Accesses {
                loads: total.loads,
                stores: total.stores,
                atomics: total.atomics,
                shared_loads: total.shared_loads,
                shared_stores: total.shared_stores,
                committed: total.commits,
                replicated: replicates.then_some(total.replicated),
            },
            loads: Served::of(&outcome.statistics).map(Loads::from),
            lines_asked_for: total.misses,
            mean_miss_seconds: mean_miss.map(Time::as_seconds),
            private_misses: total.private_misses,
            busiest_link: busiest.map(Link::from),
            coalesced: measures.coalesced,
            buffer_full: measures.buffer_full,
            replica_wait: replicates.then_some(measures.replica_wait),
            at_locks: measures.at_locks,
            at_barriers: measures.at_barriers,
            replicated_oldest: measures.replicated_oldest,
            messages: kinds.filter(|(_, traffic)| traffic.messages > 0).collect(),
            access_bytes_per_second: measures.access_rate,
            replication_bytes_per_second: measures.replication_rate,
            dump_bytes_per_second: measures.dump_rate,
            recovery_bytes_per_second: measures.recovery_rate,
            truncation_bytes_per_second: measures.truncation_rate,
            largest_log_bytes: replicates.then_some(measures.largest_log),
            dump_factor: measures.dump_factor,
            fallout: fallout.map(|fallout| Told::new(fallout, run.crashes.len(), nodes)),
            life: &outcome.life,
            followed: run.follow,
            end: outcome.end,
            replicas: replicates.then_some(run.description.logging_unit.replication_factor),
            mean_miss,
            origin,
        }
    }

    /// Returns whether a node has died, so that its part of the result is missing.
    fn has_dead(&self) -> bool {
        self.fallout.as_ref().is_some_and(Told::is_of_deaths)
    }

    /// Returns whether nothing was lost with nodes that died.
    pub fn is_whole(&self) -> bool {
        self.fallout.as_ref().is_none_or(Told::is_whole)
    }
}
