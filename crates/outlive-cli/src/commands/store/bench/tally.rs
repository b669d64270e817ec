//! The counts of a run with random kills, and the check of the acknowledged commits.

use super::super::receipts::Receipts;
use super::kills::{Killed, Kind};
use crate::amount::Many;
use crate::failure::Failure;
use outlive_store::protocol::{Coordinator, Member};
use outlive_store::workloads::Benchmark;
use serde::Serialize;
use std::time::Duration;

/// The counts of a run with random kills.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// The mean time between two kills, in seconds.
    every: f64,
    pub compute_killed: u64,
    pub memory_killed: u64,
    pub restorers_killed: u64,
    /// The number of kills before an earlier victim was recovered and its replicas were restored.
    pub overlapping: u64,
    pub compute_started: u64,
    pub memory_started: u64,
    /// The number of restorers that have ended with success.
    pub restorations: u64,
    pub restored_replicas: u64,
    /// The number of servers that ended without being killed.
    pub ended: u64,
    /// The time after which no memory server was killed any more, because the store could not have
    /// another one, in seconds.
    pub memory_kills_until: Option<f64>,
    /// The acknowledged commits, which the store must have.
    acknowledged: u64,
    /// The commits that the store has.
    recorded: u64,
}

impl Tally {
    pub fn new(every: Duration) -> Self {
        Self {
            every: every.as_secs_f64(),
            ..Self::default()
        }
    }

    /// Compares the acknowledged commits of `processes` process ids with the rows of the store.
    /// Returns descriptions of the differences. No transaction runs at the same time.
    ///
    /// A server that was killed had at most one commit of each coordinator that was not
    /// acknowledged, or whose acknowledgement was not recorded.
    pub fn check_commits<V: Member>(
        &mut self,
        benchmark: &Benchmark,
        coordinator: &mut Coordinator<V>,
        receipts: &Receipts,
        killed: &[Killed],
        (processes, coordinators): (u16, u16),
    ) -> Result<Vec<String>, Failure> {
        let mut problems = Vec::new();
        for process in 1..=processes {
            let deaths = { killed.iter() }
                .filter(|it| it.kind == Kind::Compute && it.server == process)
                .count() as u64;
            for number in 0..coordinators {
                let acknowledged = receipts.acknowledged(process, number)?;
                let recorded = benchmark.receipts(coordinator, process, number);
                let recorded = recorded.map_err(Failure::new)?;
                self.acknowledged += acknowledged;
                self.recorded += recorded;
                let most = acknowledged + deaths + self.ended;
                if !(acknowledged..=most).contains(&recorded) {
                    problems.push(format!(
                        "coordinator {number} of process id {process}: {acknowledged} commits were \
                         acknowledged, and the store has {recorded}; {} of its compute servers \
                         were killed",
                        deaths
                    ));
                }
            }
        }
        Ok(problems)
    }

    /// Descriptions of what a run should have had and has not.
    pub fn gaps(&self) -> Vec<String> {
        let kinds = [
            ("compute", self.compute_killed),
            ("memory", self.memory_killed),
        ];
        let none = kinds.into_iter().filter(|(_, killed)| *killed == 0);
        let mut gaps: Vec<String> = none
            .map(|(kind, _)| {
                format!(
                    "no {kind} server was killed; raise --seconds, or kill more often (--kill-every)"
                )
            })
            .collect();
        if self.acknowledged == 0 {
            gaps.push("no commit was acknowledged".into());
        }
        gaps
    }

    /// The counts for people.
    pub fn lines(&self, killed: &[(Kind, f64)]) -> Vec<String> {
        let Self {
            every, overlapping, ..
        } = self;
        let mut lines = vec![
            format!(
                "  killed at random, one in {every} s on average: {}, {} and {}; {overlapping} of \
                 them before the recovery or restoration after an earlier one had ended",
                Many(self.compute_killed, "compute server"),
                Many(self.memory_killed, "memory server"),
                Many(self.restorers_killed, "restorer"),
            ),
            format!(
                "  started in their places: {} and {}; {} filled {}",
                Many(self.compute_started, "compute server"),
                Many(self.memory_started, "memory server"),
                Many(self.restorations, "restoration"),
                Many(self.restored_replicas, "replica"),
            ),
        ];
        for (kind, what) in [(Kind::Compute, "compute"), (Kind::Memory, "memory")] {
            let of_kind = killed.iter().filter(|(it, _)| *it == kind);
            let mut micros: Vec<f64> = of_kind.map(|(_, micros)| *micros).collect();
            micros.sort_unstable_by(f64::total_cmp);
            if let (Some(most), Some(median)) = (micros.last(), micros.get(micros.len() / 2)) {
                lines.push(format!(
                    "  {what} servers recovered after a kill: median {median:.0} µs, at most \
                     {most:.0} µs"
                ));
            }
        }
        lines.push(format!(
            "  {} of transactions that write were acknowledged; the store has {}",
            Many(self.acknowledged, "commit"),
            self.recorded
        ));
        if let Some(seconds) = self.memory_kills_until {
            lines.push(format!(
                "  no memory server was killed after {seconds:.1} s: the store cannot have more of \
                 them in its life"
            ));
        }
        if self.ended > 0 {
            let ended = Many(self.ended, "server");
            lines.push(format!("  {ended} ended without being killed"));
        }
        lines
    }
}
