//! Paired measurements: each of ours between two of the peer's.
//!
//! A round is peer, ours, peer. The machine's speed changes more slowly than that, so it affects
//! both sides of a round's ratio (ours to the mean of the two) and cancels. The ratio of the peer's
//! two times shows how much equal work differs on the machine (A/A). A ratio that differs from one
//! by no more than that says nothing.

use crate::row::{Goal, Row};
use crate::statistics::{Estimate, median, median_estimate};
use crate::{Run, StudyError};

/// The metric of the rows that compare the peer with itself.
pub const SAME: &str = "A/A: the peer beside itself";

/// The results of the rounds.
#[derive(Clone, Debug, Default)]
pub struct Paired {
    /// Ours, one per round.
    pub ours: Vec<f64>,
    /// The peer's before ours.
    pub before: Vec<f64>,
    /// The peer's after ours.
    pub after: Vec<f64>,
}

impl Paired {
    /// Executes `rounds` rounds.
    ///
    /// # Errors
    /// If either side fails, or the study was told to stop.
    pub fn measure(
        run: &Run<'_>,
        rounds: usize,
        mut ours: impl FnMut() -> Result<f64, StudyError>,
        mut peer: impl FnMut() -> Result<f64, StudyError>,
    ) -> Result<Self, StudyError> {
        let mut paired = Self::default();
        for _ in 0..rounds {
            run.go_on()?;
            paired.before.push(peer()?);
            paired.ours.push(ours()?);
            paired.after.push(peer()?);
        }
        Ok(paired)
    }

    /// Returns each round's ratio of ours to the mean of the peer's two.
    pub fn ratios(&self) -> Vec<f64> {
        let peer = self.before.iter().zip(&self.after);
        self.ours
            .iter()
            .zip(peer)
            .map(|(ours, (before, after))| 2.0 * ours / (before + after))
            .collect()
    }

    /// Returns the median ratio of ours to the peer's, with its interval.
    pub fn ratio(&self) -> Estimate {
        median_estimate(&self.ratios())
    }

    /// Returns how much more ours takes than the peer in each round.
    pub fn more(&self) -> Vec<f64> {
        let peer = self.before.iter().zip(&self.after);
        let more =
            |(ours, (before, after)): (&f64, (&f64, &f64))| ours - f64::midpoint(*before, *after);
        self.ours.iter().zip(peer).map(more).collect()
    }

    /// Returns each round's ratio of the peer's second time to its first.
    pub fn same_ratios(&self) -> Vec<f64> {
        let pairs = self.after.iter().zip(&self.before);
        pairs.map(|(after, before)| after / before).collect()
    }

    /// Returns the median ratio of the peer's second time to its first, with its interval.
    pub fn same(&self) -> Estimate {
        median_estimate(&self.same_ratios())
    }

    /// Returns the peer's median.
    pub fn peer(&self) -> f64 {
        let all: Vec<f64> = self.before.iter().chain(&self.after).copied().collect();
        median(&all)
    }
}

/// The description of a paired comparison.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// The work that was measured.
    pub case: &'a str,
    /// The quantity that was measured.
    pub metric: &'a str,
    /// The unit of `metric`.
    pub unit: &'a str,
    /// The name of the peer.
    pub peer: &'a str,
    /// The paper's number.
    pub paper: Option<f64>,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
}

impl Comparison<'_> {
    /// Returns the row of the comparison, and the row that compares the peer with itself.
    pub fn rows(&self, paired: &Paired) -> [Row; 2] {
        let mut row = Row::new(self.case, self.metric, self.unit)
            .ours(median(&paired.ours))
            .peer(self.peer, paired.peer())
            .ratio(paired.ratio());
        row.paper = self.paper;
        if let Some(goal) = self.goal {
            row = row.goal(goal);
        }
        let same = Row::new(self.case, SAME, self.unit)
            .peer(self.peer, paired.peer())
            .ratio(paired.same());
        [row, same]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Paired {
        // The machine slows down by half on the way; the ratio is 1.1 throughout.
        let speed = |round: usize| 100.0 * (1.0 + round as f64 / 40.0);
        Paired {
            ours: (0..20).map(|round| 1.1 * speed(round)).collect(),
            before: (0..20).map(speed).collect(),
            after: (0..20).map(speed).collect(),
        }
    }

    #[test]
    fn a_drift_of_the_machine_falls_out_of_the_ratio() {
        let paired = known();
        let ratio = paired.ratio();
        assert!((ratio.value - 1.1).abs() < 1e-9, "{ratio:?}");
        assert!(ratio.high - ratio.low < 1e-9, "{ratio:?}");
        assert_eq!(paired.same().value, 1.0);
        assert!(paired.more().iter().all(|more| (10.0..15.0).contains(more)));
    }

    #[test]
    fn a_comparison_makes_a_row_and_its_a_a_row() {
        let comparison = Comparison {
            case: "two threads",
            metric: "time",
            unit: "ns",
            peer: "plain",
            paper: Some(5.5),
            goal: Some(Goal::ratio_at_most(1.05)),
        };
        let [row, same] = comparison.rows(&known());
        assert_eq!((row.holds, row.paper), (Some(false), Some(5.5)));
        assert_eq!(row.peer_name.as_deref(), Some("plain"));
        assert_eq!((same.ratio, same.goal, same.ours), (Some(1.0), None, None));
        assert_eq!(same.metric, SAME);
    }
}
