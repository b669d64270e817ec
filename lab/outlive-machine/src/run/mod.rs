//! Runs of the timed machine from beginning to end: a description, something to run on it and a seed make an [`Outcome`].
//!
//! The same description, [`Subject`] and seed make the same outcome, to the byte of its printed statistics. How long the host
//! takes for it is nobody's business here; whoever wants to know how far a run is gives a [`Watch`].
//!
//! ```
//! use outlive_machine::description::{Description, Protocol};
//! use outlive_machine::program::{Scale, workloads};
//! use outlive_machine::run::{Run, Subject, unwatched};
//!
//! let mut description: Description = "[system]\ncompute_nodes = 4\nmemory_nodes = 2\ncores_per_node = 1".parse()?;
//! description.ours.coherence.protocol = Protocol::Proactive;
//! let subject = Subject::program(workloads::by_name("ocean-cp", 4, Scale::Test).unwrap());
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

/// What a run is made with, besides what runs.
#[derive(Clone, Debug)]
pub struct Run<'d> {
    /// The machine.
    pub description: &'d Description,
    /// Of what the description leaves to chance.
    pub seed: u64,
    /// When to [look](Look) at it while it runs. Nothing is seen after its end, or after a node's death.
    pub looks: Vec<Time>,
    /// When to leave off; by default at the program's end.
    pub until: Option<Time>,
    /// A line of shared memory whose life is to be told.
    pub follow: Option<LineAddress>,
    /// Whether the threads' operations are counted as well ([`Outcome::counts`]).
    pub counting: bool,
    /// What stands in the shared memory.
    pub placement: Placement,
    /// Nodes that die, each once. Then every value is judged ([`Outcome::fallout`]), which takes the host longer, and if one did die before
    /// the program's end the result is not checked: what the dead were to compute is missing.
    pub crashes: Vec<Crash>,
}

/// What of a program's memory stands in the memory nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// All that its threads share, as it has allocated it: whole arrays.
    #[default]
    Allocated,
    /// Of that, the lines that several threads touch, found out by a run without time before. The others are in the local memory of their
    /// threads' nodes, and would be lost with these.
    Touched,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Simulated time.
    pub now: Time,
    /// Instructions so far.
    pub instructions: u64,
    /// Events so far.
    pub events: u64,
}

/// Hears how far a run is: before its first event, then some times in a second of the host's, and after its last event, before what
/// has come of it is checked. It may end the run.
pub type Watch<'w> = dyn FnMut(&Progress) -> ControlFlow<()> + 'w;

/// Lets a run go on to its end.
pub fn unwatched(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Why a run has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There is no such machine, or what is to run does not fit on it.
    #[error(transparent)]
    Machine(#[from] ClusterError),
    /// Threads wait for each other.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// The run without time, which finds out which lines several threads touch, did not come to its end.
    #[error("which lines several threads touch was not found out: {0}")]
    Untimed(#[from] ReferenceError),
    /// It came to its end, with a wrong result.
    #[error(transparent)]
    Wrong(#[from] WrongResult),
    /// The machine contradicts itself, or what its program computes with, though no node has died that this could come from.
    #[error(
        "this is a mistake in the simulated machine, which please report with how you have run it: {0}"
    )]
    Contradiction(String),
    /// A line is to be followed that shared memory has not.
    #[error("shared memory has {lines} lines, numbered from 0, and {} ({:#x}) is none of them", line.0, line.0)]
    NoSuchLine {
        /// Which.
        line: LineAddress,
        /// How many there are.
        lines: u64,
    },
    /// A node is to die that the machine has not.
    #[error("the machine has {nodes} compute nodes, numbered from 0, and {node} is none of them")]
    NoSuchNode {
        /// Which.
        node: NodeId,
        /// How many there are.
        nodes: usize,
    },
    /// A node is to die more than once.
    #[error("{node} is to die twice; name each node once, with the time of its death")]
    DiesTwice {
        /// Which.
        node: NodeId,
    },
    /// The machine leaves out what would have to be there after a crash.
    #[error(
        "locks or data would die with their node, so none may fail; have all that threads share in the shared memory (without \
         `--placement touched`), and ours.core.synchronisation at \"replicated\""
    )]
    CannotCrash,
    /// The host does not give the memory that the contents of shared memory need.
    #[error(
        "shared memory has {lines} lines of 64 bytes, and this computer does not give so much memory; what a program allocates \
         counts even where it never comes, so run one that allocates less, or a computer that has more"
    )]
    NoRoom {
        /// How many there are.
        lines: u64,
    },
    /// Whoever watched it has ended it.
    #[error("stopped before it was done")]
    Stopped,
}

/// Whether there is room for so many lines. Else whoever makes them would take the process down.
fn fits(lines: u64) -> bool {
    let lines = usize::try_from(lines);
    lines.is_ok_and(|lines| Vec::<Line>::new().try_reserve_exact(lines).is_ok())
}

impl<'d> Run<'d> {
    /// On this machine, with this seed; to its end, with nothing but its statistics.
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
    /// [`RunError`]: no machine, no room for it, a deadlock, a wrong result, or the watch has ended it.
    ///
    /// # Panics
    ///
    /// If the file of a trace was changed after it was opened, and wherever the machine finds that it contradicts itself.
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
