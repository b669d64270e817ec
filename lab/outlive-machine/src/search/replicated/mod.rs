//! Model checkers of replication and recovery: the machine of the search, with stores that are
//! replicated and nodes that die.
//!
//! A node has cores with store buffers, a reduced logging unit, and the agents of
//! [`World`](super::World). Stores retire and come to the head of a buffer at any moment; messages
//! of both protocols arrive in any order. A node may die at any step, and any part of that step's
//! messages may be lost: VALs of a commit, and the Done of the grant on which it commits. All other
//! messages that a death could lose are sent later than those that got out, so losing them equals
//! an earlier death. Each node and directory executes its part of a recovery in a step of its own.
//!
//! They check the claims of [`World`](super::World) about living nodes, and also: all replicas have
//! logged a store that commits; no VAL reaches a unit without its REPL; a node that may write knows
//! its epoch, which no other owner has; whichever nodes die next, up to the limit, the surviving
//! logs have all commits; a recovery restores to a line what was committed to it; no directory
//! names a dead node after its repair; nothing waits when nothing is under way and all dead nodes
//! are known.
//!
//! A line's contents are the number of its last store, of which a fingerprint keeps whether it is
//! that of the last commit. Of commits, sequences and timestamps it keeps the order alone, and of
//! epochs whether they are the directory's. So states that differ only in their past are the same.

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

/// The moment at which a store is replicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// When it is at the head and its line may be written: ReCXL-baseline.
    Writable,
    /// When it is at the head: ReCXL-parallel.
    Head,
    /// When it has retired: ReCXL-proactive.
    Retired,
}

/// The operations that the cores will ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Stores of each core, in the order of the nodes; zero for cores beyond the slice.
    pub stores: &'static [u32],
    /// Loads, exclusive prefetches and evictions of each node.
    pub others: &'static [u32],
}

/// A machine that replicates, and the bounds of its operations and failures.
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
    /// Capacity of a store buffer, in stores.
    pub buffer: usize,
    /// What the cores will ask for.
    pub budget: Budget,
    /// Additional atomics of each core.
    pub atomics: &'static [u32],
    /// Whether a node keeps a line from the moment at which its oldest store may write it, while
    /// acknowledgements are under way.
    pub holds: bool,
    /// How many nodes may die in all.
    pub deaths: u32,
    /// How many nodes may die before the recovery from their deaths ends: at most N_r - 1, if
    /// nothing is to be lost.
    pub at_once: usize,
    /// How often the units dump, in addition to the dump at the end of each recovery.
    pub dumps: u32,
}

impl Setup {
    /// Returns a machine with one line, store buffers for two stores, and stores that are
    /// replicated as they retire. No node dies; but N_r - 1 may die at once.
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

/// The rules that drive a machine that replicates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicatedRules {
    /// The tables of agents and directories.
    pub coherence: Rules,
    /// The tables of stores and burials; those of agents and directories are in `coherence`.
    pub tables: ReplicatedTables,
    /// A fault outside the tables.
    pub fault: Option<Fault>,
    /// Whether acknowledgements that no store waits for are accepted without effect.
    pub swallows_acks: bool,
}

impl ReplicatedRules {
    /// Returns rules with these tables, which swallow nothing.
    pub fn strict(tables: &ReplicatedTables) -> ReplicatedRules {
        ReplicatedRules {
            coherence: Rules::strict(&tables.coherence),
            tables: tables.clone(),
            fault: None,
            swallows_acks: false,
        }
    }

    /// Returns the rules of ReCXL with a fault.
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
    /// The search ends without a verdict when it has found this many states.
    pub most_states: usize,
}

impl ReplicatedSearch {
    /// Explores every state that can be reached under `rules`, as [`Search`](super::Search) does.
    ///
    /// # Errors
    /// Returns the shortest path to a violation.
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
    /// // Without replication, a store that no other node has seen is lost with its node.
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
