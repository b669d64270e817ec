//! What came of a run, for people and as JSON.

use super::fallout::Told;
use super::list::percent;
use super::placement;
use super::subject::Found;
use crate::amount::{Bytes, Many};
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::ValueEnum;
use outlive_machine::cluster::MessageKind;
use outlive_machine::engine::Time;
use outlive_machine::line::LineAddress;
use outlive_machine::protocol::{DirectoryState, Name, NodeState};
use outlive_machine::run::{Outcome, Run};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Where shares are near the published ones.
const COMPARED: &str = "they are compared at --size study, with 64 threads";

/// The paper's compression of dumps.
const PAPERS_DUMP_FACTOR: f64 = 5.8;

/// What came of a run.
#[derive(Serialize)]
pub struct Report<'a> {
    workload: &'a str,
    /// Of a built-in workload.
    size: Option<String>,
    threads: usize,
    /// Those that have threads, of so many: the cores of one are filled before the next.
    nodes: usize,
    compute_nodes: u32,
    seed: u64,
    /// The file that describes it; without one it is the paper's.
    machine: Option<String>,
    configuration: &'static str,
    placement: &'static str,
    /// Accesses to lines that had been found to be another thread's.
    strays: Option<u64>,
    /// Whether the result was checked, and so is right.
    checked: bool,
    /// Simulated.
    seconds: f64,
    instructions: u64,
    events: u64,
    /// Of this machine.
    host_seconds: f64,
    instructions_per_cycle: f64,
    store_fraction: f64,
    published_store_fraction: Option<f64>,
    shared_store_fraction: f64,
    published_shared_store_fraction: Option<f64>,
    /// Why one of these is off by more than a quarter, if it is.
    differs: Option<&'static str>,
    /// Of all loads and atomics.
    l1_hits: f64,
    l2_hits: f64,
    l3_hits: f64,
    /// Lines that were asked for outside, for loads, stores and prefetches.
    misses: u64,
    /// Of the stores to shared memory.
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
    largest_log_bytes: u64,
    dump_factor: Option<f64>,
    /// Of nodes that were to die.
    fallout: Option<Told>,
    /// Of the line that was asked for.
    life: &'a [String],
    #[serde(skip)]
    followed: Option<LineAddress>,
    #[serde(skip)]
    end: Time,
    #[serde(skip)]
    source: Option<&'static str>,
}

#[derive(Serialize)]
struct Traffic {
    messages: u64,
    bytes: u64,
    #[serde(skip)]
    about: &'static str,
}

impl<'a> Report<'a> {
    pub fn new(
        workload: &'a str,
        found: &Found,
        machine: Option<&Path>,
        run: &Run<'_>,
        outcome: &'a Outcome,
        host_seconds: f64,
    ) -> Self {
        let measures = outcome.measures(run.description);
        let counts = outcome.counts.unwrap_or_default();
        let origin = found.subject.origin();
        let total = outcome.statistics.total();
        let of_loads = |hits: u64| hits as f64 / (total.loads + total.atomics).max(1) as f64;
        let size = found.size.and_then(|size| size.to_possible_value());
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
            threads: found.subject.thread_count(),
            nodes: found
                .subject
                .thread_count()
                .div_ceil(run.description.system.cores_per_node as usize),
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
            host_seconds,
            instructions_per_cycle: measures.instructions_per_cycle,
            store_fraction: counts.store_fraction(),
            published_store_fraction: origin.and_then(|origin| origin.stores),
            shared_store_fraction: counts.shared_store_fraction(),
            published_shared_store_fraction: origin.and_then(|origin| origin.shared_stores),
            differs: origin
                .filter(|origin| !origin.is_near(&counts))
                .map(|origin| origin.differs.unwrap_or(COMPARED)),
            l1_hits: of_loads(total.l1_hits),
            l2_hits: of_loads(total.l2_hits),
            l3_hits: of_loads(total.l3_hits + total.neighbour_hits),
            misses: total.misses,
            coalesced: measures.coalesced,
            buffer_full: measures.buffer_full,
            replica_wait: measures.replicated_oldest.map(|_| measures.replica_wait),
            at_locks: measures.at_locks,
            at_barriers: measures.at_barriers,
            replicated_oldest: measures.replicated_oldest,
            messages: kinds.filter(|(_, traffic)| traffic.messages > 0).collect(),
            access_bytes_per_second: measures.access_rate,
            replication_bytes_per_second: measures.replication_rate,
            dump_bytes_per_second: measures.dump_rate,
            recovery_bytes_per_second: measures.recovery_rate,
            truncation_bytes_per_second: measures.truncation_rate,
            largest_log_bytes: measures.largest_log,
            dump_factor: measures.dump_factor,
            fallout: outcome.fallout.as_ref().map(Told::from),
            life: &outcome.life,
            followed: run.follow,
            end: outcome.end,
            source: origin.map(|origin| origin.source),
        }
    }

    /// Whether nothing was lost with nodes that died.
    pub fn is_whole(&self) -> bool {
        self.fallout.as_ref().is_none_or(Told::is_whole)
    }

    /// For people.
    pub fn tell(&self) -> Result<(), Failure> {
        let size = self
            .size
            .as_deref()
            .map_or(String::new(), |size| format!(", {size}"));
        let machine = self.machine.as_deref().map_or(String::new(), |file| {
            format!(" on the machine of {}", file.escape_debug())
        });
        let local = match self.strays {
            Some(_) => ", what one thread alone touches in local memory",
            None => "",
        };
        let what = format!(
            "{}{size}, {} on {} of {} nodes, {}{machine}{local}, seed {}",
            self.workload.escape_debug(),
            Many(self.threads as u64, "thread"),
            self.nodes,
            self.compute_nodes,
            self.configuration,
            self.seed
        );
        let result = match self.checked {
            _ if self.fallout.is_some() => "its result is not checked, since nodes were to die",
            true => "its result was checked, and is right",
            false => "a trace does not say what its result must be",
        };
        output::line(format_args!("{what}: {result}"))?;
        let mut table = Table::new(["", "here", "published"]);
        for (name, here, published) in self.rows() {
            table.row([name.to_owned(), here, published]);
        }
        table.lines().try_for_each(output::line)?;
        if let Some(fallout) = &self.fallout {
            output::line("")?;
            fallout.tell()?;
        }
        if let Some(why) = self.differs {
            output::line("")?;
            output::line(format_args!(
                "A share of stores is off by more than a quarter: {why}."
            ))?;
        }
        output::line("")?;
        let mut table = Table::new(["messages", "how many", "bytes", "each says"]);
        for (kind, traffic) in &self.messages {
            table.row([
                kind.clone(),
                traffic.messages.to_string(),
                Bytes(traffic.bytes).to_string(),
                traffic.about.to_owned(),
            ]);
        }
        table.lines().try_for_each(output::line)?;
        let Some(line) = self.followed else {
            return Ok(());
        };
        output::line("")?;
        if self.life.is_empty() {
            return output::line(format_args!(
                "Nothing was said about line {}: nobody has touched it",
                line.0
            ));
        }
        self.life.iter().try_for_each(output::line)?;
        output::line("")?;
        output::line("States of the line in a node (CN):")?;
        for state in NodeState::ALL {
            output::line(format_args!("  {state:?}: {}", state.about()))?;
        }
        output::line("and in its directory:")?;
        for state in DirectoryState::ALL {
            output::line(format_args!("  {state:?}: {}", state.about()))?;
        }
        Ok(())
    }

    fn rows(&self) -> Vec<(&'static str, String, String)> {
        let published = |share: Option<f64>| match (share, self.source) {
            (Some(_), Some(source)) => format!("{} ({source})", percent(share)),
            _ => String::new(),
        };
        let none = String::new;
        let rate = |bytes: f64| format!("{:.3} GB/s", bytes / 1e9);
        let million =
            |count: u64| format!("{:.2} million/s", count as f64 / self.host_seconds / 1e6);
        let mut rows = vec![
            ("simulated time", self.end.to_string(), none()),
            ("instructions", self.instructions.to_string(), none()),
            (
                "instructions per cycle and core",
                format!("{:.3}", self.instructions_per_cycle),
                none(),
            ),
            (
                "stores, of all data accesses",
                percent(Some(self.store_fraction)),
                published(self.published_store_fraction),
            ),
            (
                "of them, to lines that several threads touch",
                percent(Some(self.shared_store_fraction)),
                published(self.published_shared_store_fraction),
            ),
        ];
        if let Some(strays) = self.strays {
            let what = "accesses to another thread's local line";
            rows.push((what, strays.to_string(), none()));
        }
        rows.extend([
            (
                "shared stores that joined another",
                percent(self.coalesced),
                none(),
            ),
            (
                "loads that the L1, the L2, the L3 served",
                [self.l1_hits, self.l2_hits, self.l3_hits]
                    .map(|share| percent(Some(share)))
                    .join(", "),
                none(),
            ),
            (
                "lines asked for outside their node",
                self.misses.to_string(),
                none(),
            ),
            (
                "time with a full store buffer",
                percent(Some(self.buffer_full)),
                none(),
            ),
            (
                "time of threads at locks",
                percent(Some(self.at_locks)),
                none(),
            ),
            (
                "time of threads at barriers, conditions",
                percent(Some(self.at_barriers)),
                none(),
            ),
            (
                "sent for accesses, all nodes",
                rate(self.access_bytes_per_second),
                none(),
            ),
        ]);
        if self.replicated_oldest.is_some() {
            let factor = self
                .dump_factor
                .map_or("no dump".to_owned(), |factor| format!("{factor:.2}"));
            rows.extend([
                (
                    "sent to replicate stores",
                    rate(self.replication_bytes_per_second),
                    none(),
                ),
                (
                    "sent to dump logs",
                    rate(self.dump_bytes_per_second),
                    none(),
                ),
                (
                    "replicated when they were the oldest",
                    percent(self.replicated_oldest),
                    none(),
                ),
                (
                    "time that the oldest waited for replicas alone",
                    percent(self.replica_wait),
                    none(),
                ),
                (
                    "the largest log",
                    Bytes(self.largest_log_bytes).to_string(),
                    none(),
                ),
                (
                    "compression of dumps",
                    factor,
                    format!("{PAPERS_DUMP_FACTOR} (the paper)"),
                ),
            ]);
        }
        if self.recovery_bytes_per_second > 0.0 {
            rows.push((
                "sent to recover",
                rate(self.recovery_bytes_per_second),
                none(),
            ));
        }
        if self.truncation_bytes_per_second > 0.0 {
            rows.push((
                "sent to drop old dumps",
                rate(self.truncation_bytes_per_second),
                none(),
            ));
        }
        rows.extend([
            (
                "this machine's time",
                format!("{:.1} s", self.host_seconds),
                none(),
            ),
            ("simulated instructions", million(self.instructions), none()),
            ("events", million(self.events), none()),
        ]);
        rows
    }
}
