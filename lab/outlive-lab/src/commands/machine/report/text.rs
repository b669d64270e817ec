//! A report for people.

use super::{Link, Report};
use crate::amount::{Bytes, Many};
use crate::commands::machine::list::percent;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use outlive_machine::protocol::{DirectoryState, Name, NodeState};

/// The paper's compression factor of dumps.
const PAPERS_DUMP_FACTOR: f64 = 5.8;

impl Report<'_> {
    /// Prints the report for people.
    pub fn tell(&self) -> Result<(), Failure> {
        let size = self
            .size
            .as_deref()
            .map_or(String::new(), |size| format!(", {size}"));
        let machine = self.machine.as_deref().map_or(String::new(), |file| {
            format!(" on the machine of {}", file.escape_debug())
        });
        let local = match self.strays {
            Some(_) => ", lines that only one thread touches in local memory",
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
            _ if self.has_dead() => "its result was not checked, since nodes died",
            true => "its result was checked and is right",
            false => "its result was not checked, since a trace does not contain the right one",
        };
        output::line(format_args!("{what}: {result}"))?;
        let mut table = Table::new(["", "here", "published"]);
        for (name, here, published) in self.rows() {
            table.row([name.to_owned(), here, published]);
        }
        table.lines().try_for_each(output::line)?;
        if let Some(origin) = &self.origin
            && (origin.stores.is_some() || origin.shared_stores.is_some())
        {
            output::line("")?;
            output::line(format_args!(
                "The published shares are those of {} ({}).",
                origin.program, origin.source
            ))?;
        }
        if let Some(fallout) = &self.fallout {
            output::line("")?;
            fallout.tell(self.end, self.replicas)?;
        }
        if let Some(why) = self.differs {
            output::line("")?;
            output::line(format_args!(
                "A share of stores differs from the published one by more than a quarter: {why}."
            ))?;
        }
        output::line("")?;
        let mut table = Table::new(["messages", "count", "bytes", "meaning"]);
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
                "Line {} has no history: no thread accessed it",
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
        let published = |share: Option<f64>| match share {
            Some(_) => percent(share),
            None => String::new(),
        };
        let none = String::new;
        let rate = |bytes: f64| format!("{:.3} GB/s", bytes / 1e9);
        let million = |count: u64| {
            format!(
                "{:.2} million/s",
                count as f64 / self.simulating_seconds / 1e6
            )
        };
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
                "of these stores, to lines that several threads touch",
                percent(Some(self.shared_store_fraction)),
                published(self.published_shared_store_fraction),
            ),
        ];
        if let Some(strays) = self.strays {
            let what = "accesses to another thread's local line";
            rows.push((what, strays.to_string(), none()));
        }
        if let Some(loads) = &self.loads {
            let shares = |shares: &[f64]| {
                let shares = shares.iter().map(|share| percent(Some(*share)));
                shares.collect::<Vec<_>>().join(", ")
            };
            rows.extend([
                (
                    "loads found in the L1, the L2, the L3",
                    shares(&[loads.l1, loads.l2, loads.l3]),
                    none(),
                ),
                (
                    "in the store buffer, in another core of the node",
                    shares(&[loads.store_buffer, loads.neighbour]),
                    none(),
                ),
                (
                    "from a memory or another node",
                    shares(&[loads.outside]),
                    none(),
                ),
            ]);
        }
        rows.push((
            "misses in the node, of shared and of local lines",
            format!("{}, {}", self.lines_asked_for, self.private_misses),
            none(),
        ));
        if let Some(mean) = self.mean_miss {
            let what = "mean time until a missed shared line was usable";
            rows.push((what, format!("{:.1} ns", mean.as_seconds() * 1e9), none()));
        }
        rows.extend([
            (
                "shared stores that joined another",
                percent(self.coalesced),
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
        if let Some(Link { link, busy }) = &self.busiest_link {
            let busy = percent(Some(*busy));
            rows.push((
                "the busiest link",
                format!("{link}, {busy} of the time"),
                none(),
            ));
        }
        if let Some(largest) = self.largest_log_bytes {
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
                    "replicated only when they were the oldest",
                    percent(self.replicated_oldest),
                    none(),
                ),
                (
                    "time in which the oldest waited for replicas alone",
                    percent(self.replica_wait),
                    none(),
                ),
                ("the largest log", Bytes(largest).to_string(), none()),
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
                "time on this computer",
                format!("{:.1} s", self.host_seconds),
                none(),
            ),
            (
                "of it from the first event to the last",
                format!("{:.1} s", self.simulating_seconds),
                none(),
            ),
            ("simulated instructions", million(self.instructions), none()),
            ("events", million(self.events), none()),
        ]);
        rows
    }
}
