//! The state of the model: memory servers, compute servers, recoveries, and the verbs in flight.

use crate::flight::Flight;
use crate::history::History;

/// The number of objects: X and Y.
pub const OBJECTS: usize = 2;
/// The number of compute servers. Each has one coordinator.
pub const COMPUTE_SERVERS: usize = 2;
/// The largest number of memory servers.
pub const MEMORY_SERVERS: usize = 3;

/// The number of a transaction, from 1. It serves as its id in latches, and as the value that it
/// writes. 0 is a free latch, and the value of an object at first.
pub type Tx = u8;

/// A version: a counter, whose lowest bit tells whether the object exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u8);

impl Version {
    /// Whether the object exists.
    pub const fn exists(self) -> bool {
        self.0 & 1 == 1
    }

    /// The version after this one.
    pub const fn next(self, exists: bool) -> Self {
        Self((self.0 | 1) + 1 + exists as u8)
    }
}

/// The contents of an object: the version, and the value of two words, which a `WRITE` may leave
/// different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Contents {
    pub version: Version,
    pub value: [Tx; 2],
}

/// A replica of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    /// The transaction that holds the latch; 0 if it is free.
    pub latch: Tx,
    pub contents: Contents,
}

/// A decision on a logged transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    Forward,
    Back,
}

/// An object in a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Logged {
    pub old: Contents,
    pub new: Version,
}

/// A log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    pub tx: Tx,
    pub objects: [Option<Logged>; OBJECTS],
    pub decision: Option<Decision>,
}

/// A memory server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    pub is_dead: bool,
    pub replicas: [Replica; OBJECTS],
    /// The log slot of each compute server, if it holds a whole entry. A slot that is half written
    /// holds none.
    pub logs: [Option<Entry>; COMPUTE_SERVERS],
}

/// The results of the verbs of a batch for one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Found {
    /// The latch, at first.
    pub latch: Tx,
    pub contents: Contents,
    /// The latch and version that were read last.
    pub again: (Tx, Version),
}

/// The step of a coordinator. Numbers are those of the operation in its transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Step {
    /// It is between two transactions, or has ended the last one.
    #[default]
    Idle,
    /// It reads an object.
    Reading(u8),
    /// It latches an object by CAS from this word, and reads it.
    Latching(u8, Tx),
    /// It validates before it latches (an unsound choice).
    ValidatingFirst(u8),
    /// It logs an object before it latches it (an unsound choice).
    LoggingFirst(u8),
    /// It has executed all operations, and registers its commit next.
    Entering,
    /// It logs before it validates (an unsound choice).
    LoggingEarly,
    Validating,
    Logging,
    /// It writes values and versions to all replicas.
    Writing,
    /// All live replicas are updated. It acknowledges the commit next.
    Written,
    /// It removes the log of an attempt that is not committed.
    RemovingLog,
    /// It releases the latches of an attempt that is not committed.
    Releasing,
}

/// A compute server with its coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Compute {
    /// It has died, or is fenced.
    pub is_dead: bool,
    /// Its failure is known: its latches may be stolen.
    pub has_failed: bool,
    /// The number of transactions that it has begun.
    pub begun: u8,
    pub step: Step,
    /// The epoch in which it works.
    pub epoch: u8,
    /// The compute servers whose failure it knows, 1 bit each.
    pub known: u8,
    /// The objects that it has read.
    pub reads: [Option<Contents>; OBJECTS],
    /// The objects that it has latched, as they were then.
    pub held: [Option<Contents>; OBJECTS],
    /// An object whose latch the attempt may hold, because the answer of its CAS was lost, or (an
    /// unsound choice) another transaction. The end of the attempt releases it.
    pub tentative: Option<u8>,
    /// The results of the batch under way.
    pub found: [Found; OBJECTS],
    /// A verb of the batch failed, because its memory server died or its connection broke.
    pub has_error: bool,
    /// The memory servers, 1 bit each, for which the verbs of the step are posted again, because
    /// their connection broke.
    pub broken: u8,
    /// The epoch + 1 in which its commit is registered; 0 if it is not.
    pub registered: u8,
    /// The last transaction that is recorded as committed; 0 if there is none.
    pub outcome: Tx,
}

/// The step of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recovering {
    /// It has not begun, or its recoverer has died.
    #[default]
    Waiting,
    ReadingLogs,
    ReadingVersions,
    WritingDecision,
    Undoing,
    Truncating,
    Unlatching,
    /// It marks the server as failed next.
    Marking,
    Done,
}

/// The recovery of a compute server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Recovery {
    pub step: Recovering,
    /// Whether a recoverer has begun.
    pub has_begun: bool,
    /// The epoch in which the recoverer works.
    pub epoch: u8,
    /// The newest entry that was found.
    pub entry: Option<Entry>,
    /// The numbers of replicas that were found with and without the logged version.
    pub updated: u8,
    pub outdated: u8,
    /// The memory servers, 1 bit each, for which the verbs of the step are posted again.
    pub broken: u8,
}

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub memory: [Memory; MEMORY_SERVERS],
    pub computes: [Compute; COMPUTE_SERVERS],
    pub recoveries: [Recovery; COMPUTE_SERVERS],
    /// The verbs that are posted and have not taken effect.
    pub flight: Flight,
    /// The memory server that is in the list of lost ones. The epoch is 1 then, else 0.
    pub lost: Option<u8>,
    /// The numbers of deaths that may still happen: of compute servers, recoverers and memory
    /// servers.
    pub deaths: [u8; 3],
    /// The number of connections that may still break.
    pub breaks: u8,
    pub history: History,
}

impl State {
    /// The epoch: the number of lost memory servers.
    pub fn epoch(&self) -> u8 {
        self.lost.is_some().into()
    }
}
