//! What came of a run.

use super::{Fallout, Measures};
use crate::cluster::{OwnedLines, Statistics};
use crate::description::Description;
use crate::engine::Time;
use crate::program::Counts;

/// What came of a run. Equal runs have equal outcomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the program came to its end; otherwise the run was left off before, as was wanted.
    pub finished: bool,
    /// When that was, in simulated time.
    pub end: Time,
    /// What the machine has done.
    pub statistics: Statistics,
    /// Events that took.
    pub events: u64,
    /// What was seen at the times that were asked for, as far as the program still ran then.
    pub looks: Vec<Look>,
    /// What has happened to the line that was followed, each event as a line of text.
    pub life: Vec<String>,
    /// What the threads have done, if that was asked for. Unlike the machine's own counts it says nothing of the accesses that
    /// locks and barriers make, and tells stores to lines that several threads touch from others.
    pub counts: Option<Counts>,
    /// Where only what several threads touch is shared: how many accesses were to lines that had been found to be another thread's. They
    /// took the time of local ones.
    pub strays: Option<u64>,
    /// What came of the nodes' deaths, if some were to die.
    pub fallout: Option<Fallout>,
    /// Whether the result was checked, and so is right.
    pub checked: bool,
}

impl Outcome {
    /// What is to be said of all of the run on this machine.
    pub fn measures(&self, description: &Description) -> Measures {
        Measures::of(&self.statistics, self.end, description)
    }
}

/// A machine at some time of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// When.
    pub at: Time,
    /// What it had done by then.
    pub statistics: Statistics,
    /// What each compute node owned then.
    pub owned: Vec<OwnedLines>,
}
