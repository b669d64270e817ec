//! Judges of replication and recovery: the machine of the search, whose stores are replicated and whose nodes die.
//!
//! A node has cores with store buffers, a reduced logging unit, and the agents of [`World`](super::World). Stores
//! retire and come to the head of a buffer at any moment; messages of both protocols arrive in any order; a node may die
//! at any step, and of what it sends in that step any part may get out: VALs of a commit, and the Done of the grant on which
//! it commits. Everything else that a death could take would have been sent later than what got out, and that is the same as
//! an earlier death. What a recovery asks of the nodes and directories, each does in a step of its own.
//!
//! What they look for, beside what [`World`](super::World) claims of the living: all replicas have logged what commits;
//! no VAL meets a unit without its REPL; who may write knows his epoch, and it is his alone; whoever of as many as may dies
//! next, logs that outlive him have what was committed; what a recovery makes of a line is what was committed to it; no
//! directory names who is buried; nobody waits when nothing is under way and all dead are known.
//!
//! Contents are the number of the last store, and a fingerprint keeps of it whether it is that of the last commit; commits,
//! sequences and timestamps count in it by their order alone, and epochs by whether they are the directory's. So states
//! that differ in their past only are one.

mod check;
mod fault;
mod fingerprint;
mod recovery;
mod round;
mod step;
mod stores;
mod unit;
mod walk;
mod world;

pub use fault::{
    Fault, REPLICATED_SURVIVORS, ReplicatedMutant, ReplicatedSuite, replicated_mutants,
};
pub use unit::Validation;
pub use walk::{ReplicatedWalk, ReplicatedWalked};
pub use world::{Happening, LogMessage, Lost, Replicated};

use super::check::Claims;
use super::explore::{Exploration, Explored};
use super::trace::Counterexample;
use super::world::{Kind, Rules, Shape};
use crate::protocol::ReplicatedTables;
use fingerprint::ReplicatedFingerprinter;

/// When a store is replicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// When it is at the head and its line may be written: ReCXL-baseline.
    Writable,
    /// When it is at the head: ReCXL-parallel.
    Head,
    /// When it has retired: ReCXL-proactive.
    Retired,
}

/// How much the cores will ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Stores of each core, those of the first node first; nothing for those that are not named.
    pub stores: &'static [u32],
    /// Loads, exclusive prefetches and evictions of each node.
    pub others: &'static [u32],
}

/// A machine that replicates, and what may happen to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// Nodes and lines.
    pub shape: Shape,
    /// Cores of each node.
    pub cores: usize,
    /// The replication factor N_r; 0 is write-back without replication.
    pub replicas: usize,
    /// When stores are replicated.
    pub when: When,
    /// Places of a store buffer.
    pub buffer: usize,
    /// What the cores will ask for.
    pub budget: Budget,
    /// Atomics of each core beside that.
    pub atomics: &'static [u32],
    /// Whether a node does not let a line go from the moment at which its oldest store may write it, while
    /// acknowledgements are under way.
    pub holds: bool,
    /// How many nodes may die in all.
    pub deaths: u32,
    /// How many may die before a recovery from their deaths is at its end: N_r - 1, if nothing is to be lost.
    pub at_once: usize,
    /// How often the units dump, beside the dump at the end of each recovery.
    pub dumps: u32,
}

impl Setup {
    /// One line, a store buffer of two places, stores that are replicated as they retire, and nobody dies yet; but N_r - 1 may at once.
    pub fn proactive(nodes: usize, replicas: usize, budget: Budget) -> Setup {
        Setup {
            shape: Shape {
                nodes,
                lines: 1,
                capacity: 1,
            },
            cores: 1,
            replicas,
            when: When::Retired,
            buffer: 2,
            budget,
            atomics: &[],
            holds: false,
            deaths: 0,
            at_once: replicas.saturating_sub(1).max(1),
            dumps: 0,
        }
    }
}

/// What drives a machine that replicates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicatedRules {
    /// Agents and directories.
    pub coherence: Rules,
    /// The tables of stores and burials; those of agents and directories are above.
    pub tables: ReplicatedTables,
    /// What is done wrong beside the tables.
    pub fault: Option<Fault>,
    /// Acknowledgements that nobody waits for are taken in, and nothing happens.
    pub swallows_acks: bool,
}

impl ReplicatedRules {
    /// These tables, and nothing is swallowed.
    pub fn strict(tables: &ReplicatedTables) -> ReplicatedRules {
        ReplicatedRules {
            coherence: Rules::strict(&tables.coherence),
            tables: tables.clone(),
            fault: None,
            swallows_acks: false,
        }
    }

    /// The same with a fault.
    pub fn with(fault: Fault) -> ReplicatedRules {
        ReplicatedRules {
            fault: Some(fault),
            ..Self::strict(ReplicatedTables::recxl())
        }
    }

    pub(super) fn swallowing(
        tables: &ReplicatedTables,
        swallowed: &'static [Kind],
    ) -> ReplicatedRules {
        let mut rules = Self::strict(tables);
        rules.coherence.swallowed = swallowed;
        rules
    }
}

/// A search of a machine that replicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicatedSearch {
    /// The machine.
    pub setup: Setup,
    /// The search ends without a verdict when it has met so many states.
    pub most_states: usize,
}

impl ReplicatedSearch {
    /// Explores every state that can be reached under `rules`, as [`Search`](super::Search) does.
    ///
    /// # Errors
    /// The shortest way to a violation.
    ///
    /// ```
    /// use outlive_machine::protocol::ReplicatedTables;
    /// use outlive_machine::search::{Budget, ReplicatedRules, ReplicatedSearch, Setup};
    ///
    /// let budget = Budget { stores: &[1], others: &[] };
    /// let setup = Setup { deaths: 1, ..Setup::proactive(3, 2, budget) };
    /// let rules = ReplicatedRules::strict(ReplicatedTables::recxl());
    /// let search = ReplicatedSearch { setup, most_states: 1 << 20 };
    /// let explored = search.run(&rules).expect("one of three may die");
    /// assert!(explored.complete);
    /// // Without replication, a store that nobody else has seen dies with its node.
    /// let setup = Setup { replicas: 0, ..setup };
    /// assert!(ReplicatedSearch { setup, ..search }.run(&rules).is_err());
    /// ```
    pub fn run(&self, rules: &ReplicatedRules) -> Result<Explored, Box<Counterexample>> {
        let start = Replicated::<u64>::new(self.setup, rules);
        let mut fingerprints = ReplicatedFingerprinter::new(self.setup.shape.nodes);
        let exploration = Exploration {
            start: &start,
            rules,
            claims: Claims::All,
            most_states: self.most_states,
        };
        exploration.run(|world| fingerprints.of(world, rules))
    }
}
