//! The status of a store in OpenMetrics' text format, version 1.0: for Prometheus' text-file
//! collector, or a small HTTP server.

use outlive_store::servers::{Phase, StoreStatus};
use std::fmt::{self, Display, Formatter};

/// A metric family.
struct Family {
    name: &'static str,
    /// Whether the numbers only grow.
    is_counter: bool,
    help: &'static str,
    /// The labels, in text format, and the number of each sample.
    samples: Vec<(String, u64)>,
}

/// The metrics of a store.
pub(super) struct Metrics(Vec<Family>);

/// Returns a label in text format.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{{{name}=\"{}\"}}", value.replace('\n', "\\n"))
}

impl Metrics {
    /// Returns the metrics of `status`.
    pub fn of(status: &StoreStatus) -> Self {
        let gauge = |name, help, samples| Family {
            name,
            is_counter: false,
            help,
            samples,
        };
        let counter = |name, help, samples| Family {
            name,
            is_counter: true,
            help,
            samples,
        };
        let one = |number| vec![(String::new(), number)];
        let counts = status.counts;
        let causes = [
            ("latched", counts.latched),
            ("changed", counts.changed),
            ("torn", counts.torn),
            ("interrupted", counts.interrupted),
            ("user", counts.user),
        ];
        let is = |phase| status.memory.iter().filter(|it| it.phase == phase).count() as u64;
        let failed = status.compute.iter().filter(|it| it.has_failed).count() as u64;
        let tables =
            { status.tables.iter() }.map(|it| (label("table", &it.name), it.geometry.slots()));
        Self(vec![
            gauge(
                "outlive_store_epoch",
                "Lost memory servers and steps of restorations",
                one(status.epoch),
            ),
            gauge(
                "outlive_store_replicas",
                "Replicas that each object should have",
                one(status.replicas.into()),
            ),
            gauge(
                "outlive_store_missing_replicas",
                "Replicas of partitions that are lost and not restored",
                one(status.missing.replicas),
            ),
            gauge(
                "outlive_store_lost_partitions",
                "Partitions without a live replica, whose keys are lost",
                one(status.missing.lost),
            ),
            gauge(
                "outlive_store_placed_replicas",
                "Replicas of partitions by memory server",
                { status.memory.iter().zip(&status.placed) }
                    .map(|(it, placed)| (label("server", &it.id.0.to_string()), *placed))
                    .collect(),
            ),
            gauge(
                "outlive_store_memory_servers",
                "Memory servers by state",
                vec![
                    (label("state", "live"), is(Phase::Live)),
                    (label("state", "dead"), is(Phase::Dead)),
                ],
            ),
            gauge(
                "outlive_store_compute_servers",
                "Process ids in use, by the state of their compute servers",
                vec![
                    (label("state", "live"), status.compute.len() as u64 - failed),
                    (label("state", "failed"), failed),
                ],
            ),
            gauge(
                "outlive_store_process_ids",
                "Process ids that the store has",
                one(status.process_ids.into()),
            ),
            gauge(
                "outlive_store_table_slots",
                "Keys for which a table has space if they are spread evenly",
                tables.collect(),
            ),
            counter(
                "outlive_store_commits",
                "Committed transactions",
                one(counts.committed),
            ),
            counter(
                "outlive_store_aborts",
                "Aborted attempts of transactions by cause",
                causes
                    .map(|(cause, number)| (label("cause", cause), number))
                    .into(),
            ),
            counter(
                "outlive_store_stolen_latches",
                "Latches of failed compute servers that were stolen",
                one(counts.stolen),
            ),
            counter(
                "outlive_store_passed_latches",
                "Reads that ignored the latch of a failed compute server",
                one(counts.passed),
            ),
            counter(
                "outlive_store_stalls",
                "Accesses that waited for a recovery",
                one(counts.stalled),
            ),
            counter(
                "outlive_store_recoveries",
                "Recoveries of compute servers that have begun",
                one(status.recoveries),
            ),
            counter(
                "outlive_store_recovered",
                "Logged transactions of failed compute servers by decision",
                vec![
                    (label("decision", "forward"), status.recovered.forward),
                    (label("decision", "back"), status.recovered.back),
                ],
            ),
        ])
    }
}

impl Display for Metrics {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for family in &self.0 {
            let (kind, suffix) = match family.is_counter {
                true => ("counter", "_total"),
                false => ("gauge", ""),
            };
            writeln!(f, "# TYPE {} {kind}", family.name)?;
            writeln!(f, "# HELP {} {}.", family.name, family.help)?;
            for (labels, number) in &family.samples {
                writeln!(f, "{}{suffix}{labels} {number}", family.name)?;
            }
        }
        writeln!(f, "# EOF")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_quotes_lines_and_backslashes() {
        assert_eq!(label("table", "a\"b\\c\nd"), r#"{table="a\"b\\c\nd"}"#);
    }
}
