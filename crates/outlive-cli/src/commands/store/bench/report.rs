//! The report of a benchmark.

use super::super::compute::{Message, Progress, Theft, histogram};
use super::Bench;
use super::kills::{Killed, Kind};
use super::servers::Server;
use super::tally::Tally;
use crate::amount::Many;
use hdrhistogram::Histogram;
use outlive_store::protocol::{Checked, Protocol};
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Debug, Serialize)]
struct Failed {
    kind: Kind,
    server: u16,
    killed_at: f64,
    detected_us: f64,
    recovered_us: f64,
    rolled_forward: u64,
    rolled_back: u64,
    stolen: u64,
    first_stolen_us: Option<f64>,
    reused_us: Option<f64>,
}

impl Failed {
    /// Returns the lines that report the kill to the user.
    fn lines(&self) -> Vec<String> {
        let (kind, logged) = match self.kind {
            Kind::Compute | Kind::Restorer => {
                let (forward, back) = (self.rolled_forward, self.rolled_back);
                let what = "logged transactions rolled forward";
                ("compute", format!(", {forward} {what}, {back} back"))
            }
            Kind::Memory => ("memory", String::new()),
        };
        let mut lines = vec![format!(
            "  {kind} server {} killed after {:.3} s: detected in {:.0} µs, recovered in {:.0} \
             µs{logged}",
            self.server, self.killed_at, self.detected_us, self.recovered_us,
        )];
        if let Some(reused) = self.reused_us {
            lines.push(format!(
                "  a standby took its place: first commit {reused:.0} µs after the kill"
            ));
        }
        if let Some(first) = self.first_stolen_us {
            let stolen = self.stolen;
            lines.push(format!(
                "  stray latches stolen: {stolen}, the first {first:.0} µs after the kill"
            ));
        }
        lines
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Latencies {
    p50: f64,
    p99: f64,
    p999: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Aborts {
    latched: u64,
    changed: u64,
    torn: u64,
    interrupted: u64,
}

/// The report of a benchmark.
#[derive(Debug, Serialize)]
pub struct Report {
    benchmark: &'static str,
    protocol: &'static str,
    compute_servers: u16,
    memory_servers: u16,
    reuse: bool,
    replicas: u16,
    coordinators: u16,
    emulated_round_trip_us: Option<f64>,
    seconds: f64,
    load_seconds: f64,
    committed: u64,
    failed: u64,
    aborted: u64,
    aborts: Aborts,
    stalled: u64,
    latency_us: Latencies,
    /// Committed transactions of all servers in each 100 ms.
    timeline: Vec<u64>,
    pub consistent: bool,
    surplus: i64,
    keys: u64,
    problems: Vec<String>,
    random_kills: Option<Tally>,
    failures: Vec<Failed>,
    #[serde(skip)]
    histogram: Histogram<u64>,
    #[serde(skip)]
    start: u64,
    /// The changes of the benchmark's sum that the servers have counted.
    #[serde(skip)]
    pub change: i64,
    /// The latches that each server has stolen.
    #[serde(skip)]
    thefts: Vec<Theft>,
}

impl Report {
    pub fn new(bench: &Bench, duration: Duration, loaded: Duration, start: u64) -> Self {
        let program = &bench.program;
        Self {
            benchmark: program.label(),
            protocol: Protocol::from(bench.protocol).name(),
            compute_servers: bench.compute,
            memory_servers: bench.memory,
            reuse: bench.reuse,
            replicas: bench.replicas,
            coordinators: program.coordinators,
            emulated_round_trip_us: program.round_trip.map(|it| it.as_secs_f64() * 1e6),
            seconds: duration.as_secs_f64(),
            load_seconds: loaded.as_secs_f64(),
            committed: 0,
            failed: 0,
            aborted: 0,
            aborts: Aborts::default(),
            stalled: 0,
            latency_us: Latencies::default(),
            timeline: vec![0; (duration.as_millis() / 100) as usize],
            consistent: false,
            surplus: 0,
            keys: 0,
            problems: Vec::new(),
            random_kills: None,
            failures: Vec::new(),
            histogram: histogram(),
            start,
            change: 0,
            thefts: Vec::new(),
        }
    }

    /// Adds the messages of a compute server.
    pub fn add(&mut self, messages: &[Message]) {
        let mut last = Progress::default();
        let mut thefts = &Vec::new();
        for message in messages {
            let now = match message {
                Message::Ready { .. } => continue,
                Message::Stolen(so_far) => {
                    thefts = so_far;
                    continue;
                }
                Message::Progress(progress) => *progress,
                Message::Final {
                    progress,
                    latencies,
                    change,
                    error,
                } => {
                    for (value, count) in latencies {
                        self.histogram.saturating_record_n(*value, *count);
                    }
                    self.change += change;
                    self.problems.extend(error.clone());
                    *progress
                }
            };
            let bins = self.timeline.len();
            // A message reports the 100 ms before it.
            let bin = (now.at.saturating_sub(self.start) / 100_000_000).saturating_sub(1) as usize;
            if let Some(bin) = self.timeline.get_mut(bin.min(bins.saturating_sub(1))) {
                *bin += now.committed - last.committed;
            }
            last = now;
        }
        self.committed += last.committed;
        self.failed += last.failed;
        self.aborts.latched += last.latched;
        self.aborts.changed += last.changed;
        self.aborts.torn += last.torn;
        self.aborts.interrupted += last.interrupted;
        self.aborted += last.latched + last.changed + last.torn + last.interrupted;
        self.stalled += last.stalled;
        self.thefts.extend(thefts);
        let quantile = |q| self.histogram.value_at_quantile(q) as f64 / 1e3;
        self.latency_us = Latencies {
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
        };
    }

    /// Adds the killed servers. Each killed compute server has one of the `standbys`, if there are
    /// any.
    pub fn add_failures(&mut self, killed: &[Killed], standbys: &[Server]) {
        let mut standbys = standbys.iter();
        let micros = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
        for it in killed {
            let is_compute = it.kind == Kind::Compute;
            let (stolen, first) = match is_compute {
                true => stolen_from(&self.thefts, it.server, it.at),
                false => (0, None),
            };
            let standby = is_compute.then(|| standbys.next()).flatten();
            let reused = standby.and_then(|standby| first_committed(&standby.messages));
            self.failures.push(Failed {
                kind: it.kind,
                server: it.server,
                killed_at: micros(self.start, it.at) / 1e6,
                detected_us: micros(it.at, it.detected),
                recovered_us: micros(it.at, it.recovered),
                rolled_forward: it.forward,
                rolled_back: it.back,
                stolen,
                first_stolen_us: first.map(|first| micros(it.at, first)),
                reused_us: reused.map(|first| micros(it.at, first)),
            });
        }
    }

    /// Adds a description of an inconsistency or of an error.
    pub fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// Adds the counts of random kills. All replicas are restored.
    pub fn add_random_kills(&mut self, tally: Tally) {
        self.problems.extend(tally.gaps());
        self.random_kills = Some(tally);
    }

    /// Adds the result of the final check. After random kills, all replicas must be restored.
    pub fn add_check(&mut self, surplus: i64, checked: Checked) {
        if self.random_kills.is_some() && checked.under_replicated() + checked.lost() > 0 {
            self.problems.push(format!(
                "{} partitions have too few replicas, and {} have none",
                checked.under_replicated(),
                checked.lost()
            ));
        }
        if checked.unrecovered > 0 {
            self.problems.push(format!(
                "the logs of {} dead compute servers are not recovered",
                checked.unrecovered
            ));
        }
        if checked.logs > 0 {
            let logs = checked.logs;
            let what = format!("{logs} log slots of departed compute servers are not empty");
            self.problems.push(what);
        }
        self.surplus = surplus;
        self.keys = checked.keys;
        if surplus != 0 {
            let what = format!("the benchmark's invariant does not hold: {surplus} instead of 0");
            self.problems.push(what);
        }
        self.problems.extend(checked.problems);
        self.consistent = self.problems.is_empty();
    }

    /// Returns the lines of the report for the user.
    pub fn lines(&self) -> Vec<String> {
        let network = match self.emulated_round_trip_us {
            Some(round_trip) => format!("an emulated round trip of {round_trip} µs"),
            None => "mapped memory".into(),
        };
        let Latencies { p50, p99, p999 } = self.latency_us;
        let per_second = self.committed as f64 / self.seconds;
        let Aborts {
            latched,
            changed,
            torn,
            interrupted,
        } = self.aborts;
        let mut lines = vec![
            format!(
                "{} with {}: {} of {}, {}, {} of each object, {network}",
                self.benchmark,
                self.protocol,
                Many(self.compute_servers.into(), "compute server"),
                Many(self.coordinators.into(), "coordinator"),
                Many(self.memory_servers.into(), "memory server"),
                Many(self.replicas.into(), "replica"),
            ),
            format!(
                "  {} keys loaded in {:.1} s; {} transactions committed in {} s: {per_second:.0} \
                 per second",
                self.keys, self.load_seconds, self.committed, self.seconds
            ),
            format!(
                "  {} attempts aborted: {latched} met a latch, {changed} a change, {torn} a change \
                 during a read, {interrupted} the loss of a memory server",
                self.aborted
            ),
            format!("  latency: median {p50:.1} µs, 99% {p99:.1} µs, 99.9% {p999:.1} µs"),
            format!(
                "  commits over the {} s: {}",
                self.seconds,
                sparkline(&self.timeline)
            ),
        ];
        match &self.random_kills {
            None => lines.extend(self.failures.iter().flat_map(Failed::lines)),
            Some(tally) => {
                let killed = self.failures.iter().map(|it| (it.kind, it.recovered_us));
                lines.extend(tally.lines(&killed.collect::<Vec<_>>()));
            }
        }
        if self.failed > 0 {
            let failed = self.failed;
            lines.push(format!(
                "  {failed} transactions failed, as the benchmark intends"
            ));
        }
        if self.stalled > 0 {
            lines.push(format!("  {} accesses waited for a recovery", self.stalled));
        }
        lines.extend(self.problems.iter().map(|problem| format!("  {problem}")));
        lines.push(match self.consistent {
            true => {
                "  consistent: the benchmark's invariant holds, and the tables are sound".into()
            }
            false => "  NOT consistent".into(),
        });
        lines
    }
}

/// The largest number of characters of a sparkline.
const WIDTH: usize = 60;

/// Returns numbers as a line of bars. Each bar is the mean of the same number of consecutive
/// numbers, except the last one, which has the rest. The largest mean has the highest bar.
fn sparkline(numbers: &[u64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let each = numbers.len().div_ceil(WIDTH).max(1);
    let means = numbers.chunks(each);
    let means: Vec<u64> = means
        .map(|it| it.iter().sum::<u64>() / it.len() as u64)
        .collect();
    let most = means.iter().copied().max().unwrap_or(0).max(1);
    let bar = |mean: &u64| BARS[(mean * 7).div_ceil(most) as usize];
    means.iter().map(bar).collect()
}

/// Returns the number of latches that were stolen from a server that was killed at `killed`, and
/// the time of the first theft.
fn stolen_from(thefts: &[Theft], server: u16, killed: u64) -> (u64, Option<u64>) {
    let of_it = { thefts.iter() }.filter(|it| it.victim == server && it.first >= killed);
    let first = of_it.clone().map(|it| it.first).min();
    (of_it.map(|it| it.latches).sum(), first)
}

/// Returns the time of the first commit of a server that has ended.
fn first_committed(messages: &[Message]) -> Option<u64> {
    match messages.last()? {
        Message::Final { progress, .. } => Some(progress.first_committed).filter(|it| *it > 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Theft, sparkline, stolen_from};

    #[test]
    fn a_sparkline_shows_means() {
        assert_eq!(sparkline(&[0, 1, 50, 100]), "▁▂▅█");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[3; 120]).chars().count(), 60);
    }

    #[test]
    fn thefts_belong_to_the_victim_of_a_kill() {
        let theft = |victim, latches, first| Theft {
            victim,
            latches,
            first,
        };
        // Two thieves, another victim, and an earlier owner of the process id.
        let thefts = [
            theft(3, 2, 70),
            theft(3, 1, 60),
            theft(4, 5, 55),
            theft(3, 9, 10),
        ];
        assert_eq!(stolen_from(&thefts, 3, 50), (3, Some(60)));
        assert_eq!(stolen_from(&thefts, 5, 50), (0, None));
    }
}
