//! Protocols with faults in replication or recovery.

use super::{Budget, ReplicatedRules, ReplicatedSearch, ReplicatedWalk, Setup, When};
use crate::protocol::{BurialEvent, LONE_READER, ReplicatedTables, StoreEvent, Tables};
use crate::search::mutant::{Kill, Mutant, confusions, of};
use crate::search::world::{Kind, Shape};

/// The faults outside the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// REPLs go to N_r - 1 nodes.
    OneReplicaLess,
    /// Entries of any epoch count for a dead owner, not only those of its epoch.
    EpochsIgnored,
    /// Recovery begins while messages are under way.
    NotDrained,
    /// The logs in the memory nodes are not read.
    MemoryLogsSkipped,
    /// The logs of the logging units are not read.
    UnitsSkipped,
    /// Units keep entries that are not validated, and these count as later than validated ones.
    UnvalidatedTaken,
    /// Stores that wait for dead nodes continue to wait.
    NoRestart,
    /// The logs are cleared at the end of a recovery without being saved.
    NotSaved,
    /// Dead nodes stay in the replica groups.
    SameGroups,
    /// In a dump, units clear entries that the saver did not have.
    ClearsAll,
    /// A directory repairs its lines, and units save, while living nodes have waiting stores that
    /// have not been restarted.
    RestartsNotAwaited,
    /// A unit clears entries that another unit has yet to save.
    SavesNotAwaited,
    /// Cores continue while units still have the previous groups.
    RegroupsNotAwaited,
    /// Units get the new groups only as their cores continue.
    RegroupsLate,
    /// Cores continue before all lines are repaired.
    RepairsNotAwaited,
    /// Memory nodes drop the entries of a line's owner when the line is recalled from it.
    TruncatesEarly,
    /// Lines that a node keeps are kept in a recovery too.
    HeldInRecovery,
    /// A restarted atomic does not read its line again.
    AtomicNotReadAgain,
}

/// A protocol of stores or of burials with one mutation.
pub type ReplicatedMutant = Mutant<ReplicatedRules>;

/// The mutants of replication and recovery that no check can detect, and the reasons.
pub const REPLICATED_SURVIVORS: &[(&str, &str)] = &[(
    "store: takes HeadWritable for Head",
    "the next event informs the store that its line may be written",
)];

/// Returns every mutant of the tables of stores and burials, and of the rows that a directory needs
/// after a burial.
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

/// The searches and walks that try to detect a mutant of replication.
#[derive(Clone, Debug)]
pub struct ReplicatedSuite {
    /// Searches, the small ones first.
    pub searches: Vec<ReplicatedSearch>,
    /// Random walks.
    pub walks: Vec<ReplicatedWalk>,
}

impl ReplicatedSuite {
    /// Returns small machines that reach every row: all variants, 1 and 2 deaths, readers, dumps.
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
            // One of two readers drops the line, the other one dies, and the first reads it again.
            setup(3, 2, &[], &[3, 1], 1),
            setup(3, 2, &[1], &[], 2),
            setup(3, 3, &[], &[1, 1], 2),
            setup(2, 0, &[2], &[], 0),
            head(setup(2, 0, &[2], &[], 0)),
            writable(setup(2, 0, &[2], &[], 0)),
            // Two of three readers die.
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

    /// Runs the searches on the mutant until one detects it, and the walks likewise.
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

/// The distinctions of a store that its mutants do not make.
const STORES: [(StoreEvent, StoreEvent); 4] = {
    use StoreEvent::{Ack, AckLast, Head, HeadWritable};
    [
        (Ack, AckLast),
        (AckLast, Ack),
        (Head, HeadWritable),
        (HeadWritable, Head),
    ]
};

/// The distinctions of a burial that its mutants do not make.
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
