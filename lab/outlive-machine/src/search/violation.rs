//! What a judge can find.

use crate::protocol::{DirectoryState, NodeId, NodeState, ProtocolError};

/// A claim of the protocol that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A controller met what it has no row for.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// An access was performed on a copy that is not what the last store has left.
    #[error("{node} performs an access to line {line} on contents that are not the last ones")]
    StaleAccess {
        /// Who performed it.
        node: NodeId,
        /// On which line.
        line: usize,
    },
    /// An access was performed without a copy, or a store without leave.
    #[error("{node} performs an access to line {line} that it has no right to in state {state:?}")]
    NoRight {
        /// Who performed it.
        node: NodeId,
        /// On which line.
        line: usize,
        /// What it knows of the line.
        state: NodeState,
    },
    /// An access was neither performed nor made to wait.
    #[error("{node} forgets an access to line {line}")]
    LostAccess {
        /// Whose access.
        node: NodeId,
        /// To which line.
        line: usize,
    },
    /// The caches drop a line, and its agent goes on as if it were there.
    #[error("{node} still takes line {line} for present after its caches have dropped it")]
    NotDropped {
        /// Which node.
        node: NodeId,
        /// Which line.
        line: usize,
    },
    /// A step that tells the waiting again and again.
    #[error("{node} resumes what waits for line {line} without end")]
    EndlessStep {
        /// Who does it.
        node: NodeId,
        /// For which line.
        line: usize,
    },
    /// Somebody may write while another has a copy.
    #[error("{writer} may write line {line} while {other} has a copy")]
    WriterNotAlone {
        /// Who may write.
        writer: NodeId,
        /// Who has a copy too.
        other: NodeId,
        /// Of which line.
        line: usize,
    },
    /// A copy to read that is not what the last store has left.
    #[error("{node} has an old copy of line {line}")]
    OldCopy {
        /// Who has it.
        node: NodeId,
        /// Of which line.
        line: usize,
    },
    /// Contents are kept where the agent's state says there are none, or the other way round.
    #[error("{node}'s contents of line {line} do not go with its state {state:?}")]
    CopyAndState {
        /// Which node.
        node: NodeId,
        /// Which line.
        line: usize,
        /// Its state.
        state: NodeState,
    },
    /// What the last store has left is nowhere where the protocol would find it.
    #[error("the last value of line {line} is lost")]
    Lost {
        /// Which line.
        line: usize,
    },
    /// The directory's record does not name a node that has a copy, or takes a writer for a reader.
    #[error("the directory of line {line} does not know that {node} is in {state:?}")]
    Unrecorded {
        /// Which line.
        line: usize,
        /// Who has a copy.
        node: NodeId,
        /// Its state.
        state: NodeState,
    },
    /// The parts of what a directory knows contradict one another.
    #[error("the directory of line {line} contradicts itself in state {state:?}")]
    Contradiction {
        /// Which line.
        line: usize,
        /// The directory's state.
        state: DirectoryState,
    },
    /// More messages under way between a directory and a node than the argument allows.
    #[error(
        "more messages about line {line} are under way between {node} and the directory than can be"
    )]
    Crowded {
        /// Which line.
        line: usize,
        /// Which node.
        node: NodeId,
    },
    /// A store commits that one of its replicas has not logged, or that has too few.
    #[error("{node} commits a store to line {line} that {missing} of its replicas have not logged")]
    NotReplicated {
        /// Who commits.
        node: NodeId,
        /// To which line.
        line: usize,
        /// How many are missing.
        missing: usize,
    },
    /// A node may write, and takes another epoch than the directory's for that at which it does.
    #[error("{node} owns line {line} at another epoch than its directory says")]
    WrongEpoch {
        /// Who owns it.
        node: NodeId,
        /// Which line.
        line: usize,
    },
    /// A logging unit gets a REPL that it has.
    #[error("the logging unit of {unit} gets a REPL of {node} twice")]
    ReplTwice {
        /// Whose logging unit.
        unit: NodeId,
        /// Who sent it.
        node: NodeId,
    },
    /// A logging unit gets a VAL of a REPL that it has not.
    #[error("the logging unit of {unit} gets a VAL of {node} whose REPL it has not")]
    UnknownRepl {
        /// Whose logging unit.
        unit: NodeId,
        /// Who sent it.
        node: NodeId,
    },
    /// An acknowledgement of a store that is not there.
    #[error("{node} gets a REPL_ACK of a store that it is not waiting with")]
    StrayAck {
        /// Who got it.
        node: NodeId,
    },
    /// After a recovery, a logging unit still waits for an earlier VAL.
    #[error("the logging unit of {unit} misses a VAL of {node} before one that came")]
    GapInVals {
        /// Whose logging unit.
        unit: NodeId,
        /// Whose VAL.
        node: NodeId,
    },
    /// What a recovery makes of a line is not what was committed.
    #[error(
        "recovery brings line {line}, which {owner} owned, to contents that were not the last committed"
    )]
    NotRecovered {
        /// Which line.
        line: usize,
        /// The dead owner.
        owner: NodeId,
    },
    /// Too few logs have what a living owner has committed.
    #[error(
        "what {owner} has committed to line {line} would be lost by no more deaths than may be"
    )]
    TooFewLogs {
        /// Which line.
        line: usize,
        /// Who owns it.
        owner: NodeId,
    },
    /// A line has got an owner, and his epoch is that of an earlier one.
    #[error("the directory of line {line} grants it to another owner without a new epoch")]
    EpochReused {
        /// Which line.
        line: usize,
    },
    /// Nothing can happen, and messages or a recovery wait.
    #[error("nothing can happen any more, and messages or a recovery are under way")]
    Stuck,
    /// A directory names somebody who is buried.
    #[error("the directory of line {line} names a node that it has buried")]
    NamesTheDead {
        /// Which line.
        line: usize,
    },
    /// Nothing is under way, and a store waits in a store buffer.
    #[error("nothing is under way, and a store of {node} waits")]
    StoreWaits {
        /// Whose.
        node: NodeId,
    },
    /// No message is under way, and somebody waits.
    #[error("nothing is under way, and somebody waits for line {line}")]
    Deadlock {
        /// Which line.
        line: usize,
    },
    /// From here, messages can be delivered for ever, although no core asks for anything any more.
    #[error("messages go round without end")]
    NoEnd,
}
