//! What the paper's text says in numbers, and nothing else.

use super::reasons;
use crate::row::Row;

/// A number of the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Paper {
    /// So much.
    Is(f64),
    /// So much at most.
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
/// Section VII-B, on Figure 13: the logs are sized by what the most demanding program needs, in MB.
pub const LARGEST_LOG: Paper = Paper::AtMost(18.0);
/// Section IV-E: how much smaller gzip makes logs.
pub const DUMP_FACTOR: Paper = Paper::Is(5.8);
/// On Figure 14: what YCSB's accesses to CXL memory take, in GB/s.
pub const YCSB_RATE: Paper = Paper::Is(110.0);
/// What all others' take.
pub const RATE: Paper = Paper::AtMost(110.0);
/// What dumping takes.
pub const DUMP_RATE: Paper = Paper::AtMost(5.0);
/// On Figure 15: lines that a node owns, on average.
pub const OWNED: Paper = Paper::AtMost(30_000.0);
/// In YCSB.
pub const YCSB_OWNED: Paper = Paper::Is(100_000.0);
/// On Figure 17: four replicas to three, on average.
pub const FOUR_REPLICAS: Paper = Paper::Is(1.02);
/// On Figure 18: four nodes to sixteen, write-back.
pub const FOUR_NODES_WB: Paper = Paper::Is(3.1);
/// The same, proactive.
pub const FOUR_NODES_PROACTIVE: Paper = Paper::Is(3.0);

/// From here on it is to be said why.
const FAR: f64 = 0.25;

impl Paper {
    /// How many times the paper's `ours` is, if that is off by more than a quarter.
    pub fn off(self, ours: f64) -> Option<f64> {
        match self {
            Self::Is(paper) => Some(ours / paper).filter(|times| (times - 1.0).abs() > FAR),
            Self::AtMost(paper) => Some(ours / paper).filter(|times| *times > 1.0 + FAR),
        }
    }

    /// The paper's number beside ours, and why that is off if it is.
    pub fn beside(self, study: &str, row: Row) -> Row {
        let (Self::Is(number) | Self::AtMost(number)) = self;
        let why = row.ours.and_then(|ours| self.off(ours)).map(|times| {
            let reason = reasons::of(study, &row.case, &row.metric);
            let reason = reason.unwrap_or("why has not been found out yet");
            format!(
                "{} times the paper's: {reason}",
                crate::sheet::number(times)
            )
        });
        let row = row.paper(number);
        match why {
            Some(why) => row.why(why),
            None => row,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_by_more_than_a_quarter_is_to_be_explained() {
        assert_eq!(Paper::Is(4.0).off(4.9), None);
        assert_eq!(Paper::Is(4.0).off(6.0), Some(1.5));
        assert_eq!(Paper::Is(4.0).off(2.0), Some(0.5));
        assert_eq!(Paper::AtMost(4.0).off(1.0), None);
        assert_eq!(Paper::AtMost(4.0).off(8.0), Some(2.0));
        let row = |ours| {
            WT.beside(
                "recxl-fig2",
                Row::new("a mean", "wt", "times wb").ours(ours),
            )
        };
        assert_eq!((row(7.0).why, row(7.0).paper), (None, Some(7.6)));
        let why = row(15.2).why.unwrap();
        assert!(why.starts_with("2.000 times the paper's: "), "{why}");
    }
}
