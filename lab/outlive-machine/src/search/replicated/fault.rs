//! Protocols that replicate or recover wrongly.

use super::{Budget, ReplicatedRules, ReplicatedSearch, ReplicatedWalk, Setup, When};
use crate::protocol::{BurialEvent, LONE_READER, ReplicatedTables, StoreEvent, Tables};
use crate::search::mutant::{Kill, Mutant, confusions, of};
use crate::search::world::{Kind, Shape};

/// What is done wrong, beside the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// REPLs go to one node less than N_r.
    OneReplicaLess,
    /// Entries of any epoch count for a dead owner.
    EpochsIgnored,
    /// Recovery begins while messages are under way.
    NotDrained,
    /// The logs in the memory nodes are not asked.
    MemoryLogsSkipped,
    /// The logging units are not asked.
    UnitsSkipped,
    /// Units keep what is not validated, and it counts for later than what is.
    UnvalidatedTaken,
    /// Stores that wait for the dead go on waiting.
    NoRestart,
    /// The logs are cleared at the end of a recovery without having been saved.
    NotSaved,
    /// The dead stay in the replica groups.
    SameGroups,
    /// In a dump, units clear what the saver did not have.
    ClearsAll,
    /// A directory repairs its lines, and units save, while stores of the living wait that have not been told to start over.
    RestartsNotAwaited,
    /// A unit clears what another one has still to save.
    SavesNotAwaited,
    /// Cores go on while units still know the groups of before.
    RegroupsNotAwaited,
    /// Units learn the new groups as their cores go on, and not before.
    RegroupsLate,
    /// Cores go on before all lines are repaired.
    RepairsNotAwaited,
    /// Memory nodes drop what a line's owner has written when the line is recalled from him.
    TruncatesEarly,
    /// What a node does not let go it does not let go in a recovery either.
    HeldInRecovery,
    /// An atomic that starts over does not read its line again.
    AtomicNotReadAgain,
}

/// A protocol of stores or of burials that lacks something.
pub type ReplicatedMutant = Mutant<ReplicatedRules>;

/// The mutants of replication and recovery that no judge can notice, and why.
pub const REPLICATED_SURVIVORS: &[(&str, &str)] = &[(
    "store: takes HeadWritable for Head",
    "in the next moment the store is told that its line may be written",
)];

/// Every mutant of the tables of stores and of burials, and of what a directory needs after a burial.
pub fn replicated_mutants(tables: &ReplicatedTables) -> Vec<ReplicatedMutant> {
    let store = |table, swallowed: &'static [()]| ReplicatedRules {
        swallows_acks: !swallowed.is_empty(),
        ..ReplicatedRules::strict(&ReplicatedTables {
            store: table,
            ..tables.clone()
        })
    };
    let burial = |table, _: &'static [()]| {
        ReplicatedRules::strict(&ReplicatedTables {
            burial: table,
            ..tables.clone()
        })
    };
    let directory = |table, swallowed: &'static [Kind]| {
        let coherence = Tables {
            directory: table,
            ..tables.coherence.clone()
        };
        let tables = ReplicatedTables {
            coherence,
            ..tables.clone()
        };
        ReplicatedRules::swallowing(&tables, swallowed)
    };
    let acknowledged = |event| match event {
        StoreEvent::AckLast => [()].as_slice(),
        _ => &[],
    };
    let mut mutants = of("store", &tables.store, store, acknowledged);
    mutants.extend(confusions("store", &tables.store, &STORES, |table| {
        store(table, &[])
    }));
    mutants.extend(of("burial", &tables.burial, burial, |_| &[]));
    mutants.extend(confusions("burial", &tables.burial, &BURIALS, |table| {
        burial(table, &[])
    }));
    let after: Vec<_> = LONE_READER
        .iter()
        .map(|row| format!("directory ({:?}, {:?}):", row.state, row.event))
        .collect();
    let lone = of("directory", &tables.coherence.directory, directory, |_| &[]);
    mutants.extend(
        lone.into_iter()
            .filter(|mutant| after.iter().any(|row| mutant.name.starts_with(row))),
    );
    mutants
}

/// What is let loose on mutants of replication.
#[derive(Clone, Debug)]
pub struct ReplicatedSuite {
    /// Searches, the small ones first.
    pub searches: Vec<ReplicatedSearch>,
    /// Random walks.
    pub walks: Vec<ReplicatedWalk>,
}

impl ReplicatedSuite {
    /// Small machines in which every row is met: all variants, one death and two, readers, dumps.
    pub fn small(walks: u64) -> ReplicatedSuite {
        let setup = |nodes, replicas, stores, others, deaths| Setup {
            deaths,
            ..Setup::proactive(nodes, replicas, Budget { stores, others })
        };
        let head = |setup| Setup {
            when: When::Head,
            ..setup
        };
        let writable = |setup| Setup {
            when: When::Writable,
            ..setup
        };
        let narrow = |setup| Setup { buffer: 1, ..setup };
        let setups = [
            setup(3, 2, &[1], &[], 1),
            writable(setup(3, 2, &[1, 1], &[], 1)),
            head(setup(3, 2, &[2], &[], 1)),
            setup(3, 2, &[1, 1], &[], 1),
            setup(3, 2, &[1], &[1, 1], 1),
            setup(3, 2, &[], &[1, 1, 1], 1),
            // One of two that read drops the line, the other one dies, and the first reads it again.
            setup(3, 2, &[], &[3, 1], 1),
            setup(3, 2, &[1], &[], 2),
            setup(3, 3, &[], &[1, 1], 2),
            setup(2, 0, &[2], &[], 0),
            head(setup(2, 0, &[2], &[], 0)),
            writable(setup(2, 0, &[2], &[], 0)),
            // Two of three that all read die.
            narrow(setup(3, 3, &[1], &[0, 1, 1], 2)),
            narrow(setup(3, 3, &[1], &[1, 1, 1], 2)),
        ];
        let search = |setup| ReplicatedSearch {
            setup,
            most_states: 10_000_000,
        };
        let walk = |seed: u64| {
            let larger = Setup {
                shape: Shape {
                    nodes: 5,
                    lines: 2,
                    capacity: 2,
                },
                cores: 2,
                buffer: 4,
                atomics: &[4; 10],
                holds: seed.is_multiple_of(2),
                dumps: 4,
                ..setup(5, 4, &[8; 10], &[40; 5], 3)
            };
            ReplicatedWalk {
                setup: [larger, head(larger), writable(larger)][seed as usize % 3],
                seed,
                most_steps: 20_000,
            }
        };
        ReplicatedSuite {
            searches: setups.map(search).to_vec(),
            walks: (0..walks).map(walk).collect(),
        }
    }

    /// Lets everything loose on the mutant, the searches and the walks each until one of them has noticed.
    pub fn kill(&self, mutant: &ReplicatedMutant) -> Kill {
        let rules = &mutant.rules;
        let searched = self.searches.iter();
        let walked = self.walks.iter();
        Kill {
            search: searched
                .filter_map(|search| search.run(rules).err())
                .map(|found| found.violation)
                .next(),
            walk: walked
                .filter_map(|walk| walk.run(rules).err())
                .map(|found| found.violation)
                .next(),
        }
    }
}

/// What a store might fail to tell apart.
const STORES: [(StoreEvent, StoreEvent); 4] = {
    use StoreEvent::{Ack, AckLast, Head, HeadWritable};
    [
        (Ack, AckLast),
        (AckLast, Ack),
        (Head, HeadWritable),
        (HeadWritable, Head),
    ]
};

/// What a burial might fail to tell apart.
const BURIALS: [(BurialEvent, BurialEvent); 6] = {
    use BurialEvent::{LastReader, Owner, OwnerAndRequester, Reader, Requester, RequesterLast};
    [
        (Reader, LastReader),
        (LastReader, Reader),
        (Requester, RequesterLast),
        (RequesterLast, Requester),
        (Owner, OwnerAndRequester),
        (OwnerAndRequester, Owner),
    ]
};
