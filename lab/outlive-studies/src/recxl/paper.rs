//! The numbers in the paper's text, and nothing else.

use super::lengths::Length;
use super::reasons;
use crate::row::{Goal, Row};

/// A number of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Paper {
    /// The value.
    Is(f64),
    /// An upper bound.
    AtMost(f64),
}

/// Section VII-A, on Figure 10 (and 2): write-through to write-back, on average.
pub const WT: Paper = Paper::Is(7.6);
/// Baseline to write-back.
pub const BASELINE: Paper = Paper::Is(2.88);
/// Parallel to baseline: 3% less.
pub const PARALLEL_TO_BASELINE: Paper = Paper::Is(0.97);
/// Proactive to write-back.
pub const PROACTIVE: Paper = Paper::Is(1.30);
/// Section VII-B, on Figure 13: the size of the logs, which the most demanding program determines;
/// in MiB, as memory is.
pub const LARGEST_LOG: Paper = Paper::AtMost(18.0);
/// Section IV-E: the factor by which gzip makes logs smaller.
pub const DUMP_FACTOR: Paper = Paper::Is(5.8);
/// On Figure 14: the rate of YCSB's accesses to CXL memory, in GB/s. It is the highest of all.
pub const YCSB_RATE: Paper = Paper::Is(110.0);
/// The rate of dumping, in all workloads, in GB/s.
pub const DUMP_RATE: Paper = Paper::AtMost(5.0);
/// On Figure 15: lines that a node owns, on average.
pub const OWNED: Paper = Paper::AtMost(30_000.0);
/// The same in YCSB.
pub const YCSB_OWNED: Paper = Paper::Is(100_000.0);
/// The maximum of different lines in a node's caches: with Table II's sizes, L2 and L3 together.
pub const CACHED: Paper = Paper::Is(163_000.0);
/// On Figure 17: four replicas to three, on average.
pub const FOUR_REPLICAS: Paper = Paper::Is(1.02);
/// On Figure 18: four nodes to sixteen, write-back.
pub const FOUR_NODES_WB: Paper = Paper::Is(3.1);
/// The same, proactive.
pub const FOUR_NODES_PROACTIVE: Paper = Paper::Is(3.0);

/// The relative difference above which a row gives a reason.
const FAR: f64 = 0.25;

impl Paper {
    /// Returns `ours` as a multiple of the paper's number, if it is off by more than a quarter.
    pub fn off(self, ours: f64) -> Option<f64> {
        match self {
            Self::Is(paper) => Some(ours / paper).filter(|times| (times - 1.0).abs() > FAR),
            Self::AtMost(paper) => Some(ours / paper).filter(|times| *times > 1.0 + FAR),
        }
    }
}

/// Compares a study's rows with the paper, as far as its length permits.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    study: &'static str,
    length: Length,
}

impl Judge {
    pub fn new(study: &'static str, length: Length) -> Self {
        Self { study, length }
    }

    /// Returns whether it judges the study of that name.
    pub fn is_of(self, study: &str) -> bool {
        self.study == study
    }

    /// Adds the paper's number, and the known reason if ours is far from it.
    pub fn beside(self, paper: Paper, row: Row) -> Row {
        let known = reasons::of(self.study, &row.case, &row.metric);
        let why = match (known, self.length) {
            (Some(why), Length::Study) => why,
            (Some(_), _) => "the known reason is that of shorter runs, without --full",
            (None, _) => "the reason is not known yet",
        };
        self.because(paper, row, why)
    }

    /// Adds the paper's number to a row of a machine that shows the effect of a difference. It
    /// needs no reason: the distance from the paper is the result. A short run is not compared.
    pub fn to_compare(self, paper: Paper, row: Row) -> Row {
        let (Paper::Is(number) | Paper::AtMost(number)) = paper;
        match self.length {
            Length::Test => row,
            Length::Study | Length::Paper => row.paper(number),
        }
    }

    /// Adds the paper's number, and `why`, which this run has shown, if ours is far from it.
    pub fn because(self, paper: Paper, row: Row, why: &str) -> Row {
        let off = row.ours.and_then(|ours| paper.off(ours));
        let row = self.to_compare(paper, row);
        match off {
            Some(times) if self.length != Length::Test => {
                let times = crate::sheet::number(times);
                row.why(format!("{times} times the paper's: {why}"))
            }
            _ => row,
        }
    }

    /// Adds a goal if the run is long enough.
    pub fn goal(self, goal: Goal, row: Row) -> Row {
        match self.length {
            Length::Test => row,
            Length::Study | Length::Paper => row.goal(goal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Estimate;

    #[test]
    fn off_by_more_than_a_quarter_is_to_be_explained() {
        assert_eq!(Paper::Is(4.0).off(4.9), None);
        assert_eq!(Paper::Is(4.0).off(6.0), Some(1.5));
        assert_eq!(Paper::Is(4.0).off(2.0), Some(0.5));
        assert_eq!(Paper::AtMost(4.0).off(1.0), None);
        assert_eq!(Paper::AtMost(4.0).off(8.0), Some(2.0));
        let row = |ours| {
            let row = Row::new("a mean", "wt", "times").ours(ours);
            Judge::new("recxl-fig2", Length::Study).beside(WT, row)
        };
        assert_eq!((row(7.0).why, row(7.0).paper), (None, Some(7.6)));
        let why = row(15.2).why.unwrap();
        assert!(why.starts_with("2.000 times the paper's: "), "{why}");
    }

    #[test]
    fn short_runs_are_neither_judged_nor_explained() {
        let row = || {
            let row = Row::new("geometric mean", "wb, 4 nodes", "times");
            row.ours_within(Estimate::exactly(1.2))
        };
        let goal = Goal::ours_at_most(1.0);
        for (length, judged) in [
            (Length::Test, false),
            (Length::Study, true),
            (Length::Paper, true),
        ] {
            let judge = Judge::new("recxl-fig18", length);
            let beside = judge.beside(FOUR_NODES_WB, row());
            assert_eq!(beside.paper.is_some(), judged);
            let compared = judge.to_compare(FOUR_NODES_WB, row());
            assert_eq!(compared.paper.is_some(), judged);
            assert_eq!(beside.why.is_some(), judged);
            // A reason that was found at one length is not given at another.
            let why = beside.why.unwrap_or_default();
            assert_eq!(why.contains("raytrace"), length == Length::Study, "{why}");
            assert_eq!(judge.goal(goal, row()).holds.is_some(), judged);
        }
    }
}
