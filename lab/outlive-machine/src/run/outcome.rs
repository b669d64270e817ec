//! The outcome of a run.

use super::{Fallout, Measures};
use crate::cluster::{OwnedLines, Statistics};
use crate::description::Description;
use crate::engine::Time;
use crate::program::Counts;

/// The outcome of a run. Equal runs have equal outcomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the program ended. If not, the run was stopped before, or a death prevented the end.
    pub finished: bool,
    /// The simulated time of the end of the run.
    pub end: Time,
    /// The statistics of the machine.
    pub statistics: Statistics,
    /// The number of events handled.
    pub events: u64,
    /// The looks at the requested times, as far as the program still ran then.
    pub looks: Vec<Look>,
    /// The events of the line that was followed, each as a line of text.
    pub life: Vec<String>,
    /// The operations of the threads, if they were counted. Unlike the machine's own counts they
    /// exclude the accesses of locks and barriers, and distinguish stores to lines that several
    /// threads touch.
    pub counts: Option<Counts>,
    /// With [`Placement::Touched`](super::Placement::Touched): the number of accesses to lines of
    /// other threads, which took the time of local ones.
    pub strays: Option<u64>,
    /// The effects of the nodes' deaths, if some were to die.
    pub fallout: Option<Fallout>,
    /// Whether the result was checked, and is right.
    pub checked: bool,
}

impl Outcome {
    /// Returns the measures of the whole run on this machine.
    pub fn measures(&self, description: &Description) -> Measures {
        Measures::of(&self.statistics, self.end, description)
    }
}

/// The state of a machine at a time of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The time.
    pub at: Time,
    /// The statistics up to that time.
    pub statistics: Statistics,
    /// The lines that each compute node owned at that time.
    pub owned: Vec<OwnedLines>,
}
