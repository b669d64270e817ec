//! Runs of the timed machine from beginning to end: a description, a [`Subject`] to run on it and a
//! seed produce an [`Outcome`].
//!
//! The same description, [`Subject`] and seed produce the same outcome, to the byte of its printed
//! statistics. The time that the host takes is not measured; a [`Watch`] observes the progress of a
//! run.
//!
//! ```
//! use outlive_machine::description::{Description, Protocol};
//! use outlive_machine::program::Scale;
//! use outlive_machine::run::{Run, Subject, unwatched};
//!
//! let mut description: Description = "[system]\ncompute_nodes = 4\nmemory_nodes = 2\ncores_per_node = 1".parse()?;
//! description.ours.coherence.protocol = Protocol::Proactive;
//! let subject = Subject::program(outlive_kernels::by_name("ocean-cp", 4, Scale::Test).unwrap());
//! let outcome = Run::new(&description, 1).of(&subject, &mut unwatched)?;
//! assert!(outcome.finished && outcome.checked);
//! assert!(outcome.statistics.total().replicated > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod drive;
mod fallout;
mod measures;
mod outcome;
mod served;
mod subject;

use std::ops::ControlFlow;

use crate::cluster::{ClusterError, Stuck};
use crate::description::{Description, Synchronising};
use crate::engine::Time;
use crate::line::{Line, LineAddress};
use crate::program::{ReferenceError, WrongResult};
use crate::protocol::NodeId;

pub use fallout::{Crash, Died, Fallout, Living};
pub use measures::Measures;
pub use outcome::{Look, Outcome};
pub use served::{BusiestLink, Served, mean_miss};
pub use subject::Subject;

/// The parameters of a run, except its subject.
#[derive(Clone, Debug)]
pub struct Run<'d> {
    /// The machine.
    pub description: &'d Description,
    /// The seed of all choices that the description leaves to chance.
    pub seed: u64,
    /// The times at which to take a [`Look`] during the run. None is taken after its end, or after
    /// a node's death.
    pub looks: Vec<Time>,
    /// When to stop; by default at the program's end.
    pub until: Option<Time>,
    /// A line of shared memory whose events are to be recorded.
    pub follow: Option<LineAddress>,
    /// Whether the threads' operations are counted as well ([`Outcome::counts`]).
    pub counting: bool,
    /// The data that the shared memory contains.
    pub placement: Placement,
    /// Nodes that die, each once. Then every value is checked ([`Outcome::fallout`]), which takes
    /// more host time. If a node did die before the program's end, the result is not checked: the
    /// work of the dead nodes is missing.
    pub crashes: Vec<Crash>,
}

/// The part of a program's memory that is in the memory nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// All data that its threads share, as it has allocated it: whole arrays.
    #[default]
    Allocated,
    /// Of these, the lines that several threads touch in a previous run without time. The others
    /// are in the local memory of their threads' nodes, and would be lost with these.
    Touched,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Simulated time.
    pub now: Time,
    /// Instructions so far.
    pub instructions: u64,
    /// Events so far.
    pub events: u64,
}

/// Receives the progress of a run: before its first event, a few times per second of host time, and
/// after its last event, before the result is checked. It may end the run.
pub type Watch<'w> = dyn FnMut(&Progress) -> ControlFlow<()> + 'w;

/// Lets a run go on to its end.
pub fn unwatched(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The reason why a run has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The machine does not exist, or the subject does not fit on it.
    #[error(transparent)]
    Machine(#[from] ClusterError),
    /// Threads wait for each other.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// The run without time, which determines the lines that several threads touch, did not end.
    #[error("the lines that several threads touch could not be determined: {0}")]
    Untimed(#[from] ReferenceError),
    /// The run ended with a wrong result.
    #[error(transparent)]
    Wrong(#[from] WrongResult),
    /// The machine contradicts itself or the values of its program, although no node has died that
    /// could cause this.
    #[error("this is a bug in the simulated machine; report it with the command that you ran: {0}")]
    Contradiction(String),
    /// The line to be followed is not in shared memory.
    #[error("shared memory has {lines} lines, numbered from 0, so line {} ({:#x}) does not exist", line.0, line.0)]
    NoSuchLine {
        /// The line.
        line: LineAddress,
        /// The number of lines.
        lines: u64,
    },
    /// A node that is to die is not in the machine.
    #[error("the machine has {nodes} compute nodes, numbered from 0, so {node} does not exist")]
    NoSuchNode {
        /// The node.
        node: NodeId,
        /// The number of compute nodes.
        nodes: usize,
    },
    /// A node is to die more than once.
    #[error("{node} is to die twice; name each node once, with the time of its death")]
    DiesTwice {
        /// The node.
        node: NodeId,
    },
    /// The machine omits data that would be needed after a crash.
    #[error(
        "locks or data would be lost with their node, so no node may die; put all memory that \
         threads share into the shared memory (leave out `--placement touched`), and set \
         ours.core.synchronisation to \"replicated\""
    )]
    CannotCrash,
    /// The host has not enough memory for the contents of shared memory.
    #[error(
        "shared memory has {lines} lines of 64 bytes, more memory than this computer provides; all \
         allocated memory counts, even if the program never touches it: run a program that \
         allocates less, or use a computer with more memory"
    )]
    NoRoom {
        /// The number of lines.
        lines: u64,
    },
    /// The watch has ended the run.
    #[error("stopped before the end")]
    Stopped,
}

/// Returns whether the host has memory for `lines`. Allocating too many would abort the process.
fn fits(lines: u64) -> bool {
    let lines = usize::try_from(lines);
    lines.is_ok_and(|lines| Vec::<Line>::new().try_reserve_exact(lines).is_ok())
}

impl<'d> Run<'d> {
    /// Creates a run on this machine with this seed, to its end, that records its statistics alone.
    pub fn new(description: &'d Description, seed: u64) -> Self {
        Self {
            description,
            seed,
            looks: Vec::new(),
            until: None,
            follow: None,
            counting: false,
            placement: Placement::default(),
            crashes: Vec::new(),
        }
    }

    /// Runs `subject`, and checks its result if it has a check and comes to its end.
    ///
    /// # Errors
    ///
    /// Returns a [`RunError`] if the machine or its memory cannot be created, for a deadlock or a
    /// wrong result, or if the watch has ended the run.
    ///
    /// # Panics
    ///
    /// If the file of a trace was changed after it was opened, and if the machine detects that it
    /// contradicts itself.
    pub fn of(&self, subject: &Subject, watch: &mut Watch<'_>) -> Result<Outcome, RunError> {
        let lines = subject.lines();
        if let Some(line) = self.follow.filter(|line| line.0 >= lines) {
            return Err(RunError::NoSuchLine { line, lines });
        }
        let nodes = self.description.system.compute_nodes as usize;
        if let Some(crash) = self
            .crashes
            .iter()
            .find(|crash| crash.node.index() >= nodes)
        {
            let node = crash.node;
            return Err(RunError::NoSuchNode { node, nodes });
        }
        let mut dying: Vec<NodeId> = self.crashes.iter().map(|crash| crash.node).collect();
        dying.sort_unstable();
        if let Some(twice) = dying.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(RunError::DiesTwice { node: twice[0] });
        }
        let synchronisation = self.description.ours.core.synchronisation;
        let leaves_out = self.placement != Placement::Allocated
            || match synchronisation {
                Synchronising::Replicated => false,
                Synchronising::LeftOut => self.description.ours.coherence.protocol.replicates(),
                Synchronising::Events => true,
            };
        if leaves_out && !self.crashes.is_empty() {
            return Err(RunError::CannotCrash);
        }
        if !fits(lines) {
            return Err(RunError::NoRoom { lines });
        }
        drive::drive(self, subject, watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_lines_than_any_host_has_do_not_fit() {
        assert!(fits(0) && fits(1000) && !fits(1 << 57) && !fits(u64::MAX));
    }
}
