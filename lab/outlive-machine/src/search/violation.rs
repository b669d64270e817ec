//! The violations that a check can find.

use crate::protocol::{DirectoryState, NodeId, NodeState, ProtocolError};

/// A claim of the protocol that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A controller has no row for an event.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// An access was performed on a copy that is not that of the last store.
    #[error("{node} performs an access to line {line} on outdated contents")]
    StaleAccess {
        /// The node that performed it.
        node: NodeId,
        /// The line accessed.
        line: usize,
    },
    /// An access was performed without a copy, or a store without permission to write.
    #[error("{node} performs an access to line {line} without the right to it, in state {state:?}")]
    NoRight {
        /// The node that performed it.
        node: NodeId,
        /// The line accessed.
        line: usize,
        /// The agent's state.
        state: NodeState,
    },
    /// An access was neither performed nor made to wait.
    #[error("{node} forgets an access to line {line}")]
    LostAccess {
        /// The node of the core that asked.
        node: NodeId,
        /// The line accessed.
        line: usize,
    },
    /// The caches have dropped a line, and its agent still treats it as present.
    #[error("{node} still treats line {line} as present after its caches have dropped it")]
    NotDropped {
        /// The node.
        node: NodeId,
        /// The line.
        line: usize,
    },
    /// A step that retries the waiting accesses again and again.
    #[error("{node} resumes the accesses that wait for line {line} endlessly")]
    EndlessStep {
        /// The node that retries them.
        node: NodeId,
        /// The line that they access.
        line: usize,
    },
    /// A node may write while another node has a copy.
    #[error("{writer} may write line {line} while {other} has a copy")]
    WriterNotAlone {
        /// The node that may write.
        writer: NodeId,
        /// The other node with a copy.
        other: NodeId,
        /// The line.
        line: usize,
    },
    /// A readable copy is not that of the last store.
    #[error("{node} has an old copy of line {line}")]
    OldCopy {
        /// The node with the copy.
        node: NodeId,
        /// The line.
        line: usize,
    },
    /// A node has contents although the agent's state says that it has none, or vice versa.
    #[error("{node}'s contents of line {line} do not match its state {state:?}")]
    CopyAndState {
        /// The node.
        node: NodeId,
        /// The line.
        line: usize,
        /// The agent's state.
        state: NodeState,
    },
    /// The value of the last store is in no place where the protocol would find it.
    #[error("the last value of line {line} is lost")]
    Lost {
        /// The line.
        line: usize,
    },
    /// The directory's record does not name a node that has a copy, or names a writer as a reader.
    #[error("the directory of line {line} does not know that {node} is in {state:?}")]
    Unrecorded {
        /// The line.
        line: usize,
        /// The node with the copy.
        node: NodeId,
        /// The agent's state.
        state: NodeState,
    },
    /// The parts of a directory's record contradict one another.
    #[error("the directory of line {line} contradicts itself in state {state:?}")]
    Contradiction {
        /// The line.
        line: usize,
        /// The directory's state.
        state: DirectoryState,
    },
    /// More messages under way between a directory and a node than the argument allows.
    #[error(
        "more messages about line {line} are under way between {node} and the directory than are \
         possible"
    )]
    Crowded {
        /// The line.
        line: usize,
        /// The node.
        node: NodeId,
    },
    /// A store commits although one of its replicas has not logged it, or it has too few replicas.
    #[error("{node} commits a store to line {line} that {missing} of its replicas have not logged")]
    NotReplicated {
        /// The node that commits.
        node: NodeId,
        /// The line stored to.
        line: usize,
        /// The number of missing replicas.
        missing: usize,
    },
    /// A node may write a line, and assumes another epoch than the directory's.
    #[error("{node} owns line {line} with an epoch that differs from the directory's")]
    WrongEpoch {
        /// The owner.
        node: NodeId,
        /// The line.
        line: usize,
    },
    /// A logging unit gets a REPL that it already has.
    #[error("the logging unit of {unit} gets a REPL of {node} twice")]
    ReplTwice {
        /// The node of the logging unit.
        unit: NodeId,
        /// The sender.
        node: NodeId,
    },
    /// A logging unit gets a VAL of a REPL that it does not have.
    #[error("the logging unit of {unit} gets a VAL of {node} whose REPL it has not received")]
    UnknownRepl {
        /// The node of the logging unit.
        unit: NodeId,
        /// The sender.
        node: NodeId,
    },
    /// A node gets an acknowledgement of a store that does not exist.
    #[error("{node} gets a REPL_ACK for a store that does not wait for one")]
    StrayAck {
        /// The node that got it.
        node: NodeId,
    },
    /// After a recovery, a logging unit still waits for an earlier VAL.
    #[error("the logging unit of {unit} lacks a VAL of {node} that precedes a received one")]
    GapInVals {
        /// The node of the logging unit.
        unit: NodeId,
        /// The sender of the VAL.
        node: NodeId,
    },
    /// A recovery gives a line contents that were not committed to it last.
    #[error(
        "recovery gives line {line}, which {owner} owned, contents other than the last committed \
         ones"
    )]
    NotRecovered {
        /// The line.
        line: usize,
        /// The dead owner.
        owner: NodeId,
    },
    /// Too few logs have the commits of a living owner.
    #[error(
        "a value that {owner} committed to line {line} would be lost by a permitted number of \
         deaths"
    )]
    TooFewLogs {
        /// The line.
        line: usize,
        /// The owner.
        owner: NodeId,
    },
    /// A line has a new owner, with the epoch of an earlier one.
    #[error("the directory of line {line} grants it to another owner without a new epoch")]
    EpochReused {
        /// The line.
        line: usize,
    },
    /// No step is possible, and messages or a recovery wait.
    #[error("no transition is possible, but messages or a recovery are under way")]
    Stuck,
    /// A directory names a node that it has removed as dead.
    #[error("the directory of line {line} names a dead node that it had removed")]
    NamesTheDead {
        /// The line.
        line: usize,
    },
    /// No message is under way, and a store waits in a store buffer.
    #[error("nothing is under way, but a store of {node} waits")]
    StoreWaits {
        /// The node.
        node: NodeId,
    },
    /// No message is under way, and an access waits.
    #[error("nothing is under way, but an access waits for line {line}")]
    Deadlock {
        /// The line.
        line: usize,
    },
    /// From here, messages can be delivered for ever, although no core asks for anything any more.
    #[error("messages are exchanged endlessly")]
    NoEnd,
}
