//! The counts of a run with random kills, and the check of the acknowledged commits.

use super::super::receipts::{Acknowledged, Receipts};
use super::kills::{Killed, Kind};
use crate::amount::Many;
use crate::failure::Failure;
use outlive_store::protocol::{Coordinator, Member};
use outlive_store::workloads::{Benchmark, Receipt};
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
    /// The process ids of the compute servers among them that executed transactions.
    #[serde(skip)]
    pub ended_clients: Vec<u16>,
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
    /// A server that was killed, or ended otherwise, had at most one commit of each coordinator
    /// that was not acknowledged, or whose acknowledgement was not recorded.
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
            let killed = { killed.iter() }
                .filter(|it| it.kind == Kind::Compute && it.server == process)
                .count();
            let ended = self.ended_clients.iter().filter(|it| **it == process);
            let deaths = (killed + ended.count()) as u64;
            for number in 0..coordinators {
                let acknowledged = receipts.acknowledged(process, number)?;
                let row = benchmark.receipt(coordinator, process, number);
                let row = row.map_err(Failure::new)?;
                self.acknowledged += acknowledged.number;
                self.recorded += row.commits;
                if let Some(problem) = difference(acknowledged, &row, deaths) {
                    problems.push(format!(
                        "coordinator {number} of process id {process}: {problem}"
                    ));
                }
            }
        }
        Ok(problems)
    }

    /// Returns descriptions of the events that a run should have had and did not have.
    pub fn gaps(&self) -> Vec<String> {
        let kinds = [
            ("compute", self.compute_killed),
            ("memory", self.memory_killed),
        ];
        let none = kinds.into_iter().filter(|(_, killed)| *killed == 0);
        let mut gaps: Vec<String> = none
            .map(|(kind, _)| {
                format!(
                    "no {kind} server was killed; raise --seconds, or kill more often \
                     (--kill-every)"
                )
            })
            .collect();
        if self.acknowledged == 0 {
            gaps.push("no commit was acknowledged".into());
        }
        gaps
    }

    /// Returns the lines that report the counts to the user.
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
                "  no memory server was killed after {seconds:.1} s: the store has had its maximum \
                 number of memory servers"
            ));
        }
        if self.ended > 0 {
            let ended = Many(self.ended, "server");
            lines.push(format!("  {ended} ended without being killed"));
        }
        lines
    }
}

/// Describes the difference between the commits of a coordinator's row and those that were
/// acknowledged, if there is one. `deaths` is the number of deaths of its compute servers.
fn difference(acknowledged: Acknowledged, row: &Receipt, deaths: u64) -> Option<String> {
    let (number, commits) = (acknowledged.number, row.commits);
    if !(number..=number + deaths).contains(&commits) {
        return Some(format!(
            "{number} commits were acknowledged, and the store has {commits}; {deaths} of its \
             compute servers were killed or have ended"
        ));
    }
    (!acknowledged.is_in(row)).then(|| {
        format!(
            "commit {number} was acknowledged, and the store has another one in its place, of \
             {commits} commits"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_store::tables::TransactionId;

    #[test]
    fn a_lost_commit_is_found_although_a_later_one_has_its_number() {
        let id = |attempt| TransactionId::new(1, 0, attempt);
        let one = Receipt::default().then(id(1));
        let two = one.then(id(2));
        let acknowledged = Acknowledged {
            number: 2,
            id: id(2).to_word(),
        };
        assert_eq!(difference(acknowledged, &two, 0), None);
        let problem = |row: Receipt, deaths| difference(acknowledged, &row, deaths).unwrap();
        // A server died after a commit that was not acknowledged.
        assert_eq!(difference(acknowledged, &two.then(id(3)), 1), None);
        assert!(problem(two.then(id(3)), 0).contains("the store has 3"));
        assert!(problem(one, 1).contains("the store has 1"));
        // Commit 2 is lost.
        assert!(problem(one.then(id(3)), 1).contains("another one"));
        assert!(problem(one.then(id(3)).then(id(4)), 2).contains("another one"));
        assert_eq!(difference(Acknowledged::default(), &one, 1), None);
    }
}
