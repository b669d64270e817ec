//! What goes wrong if a protocol is wrong.

use super::{
    BurialEvent, DirectoryEvent, DirectoryState, NodeEvent, NodeId, NodeState, StoreEvent,
    StoreState, ToDirectory,
};

/// A controller met what its table does not know: the protocol, or who drives it, is in error, and the state of the
/// line is worth nothing any more. There is no way to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A node agent's pair without a row.
    #[error("a node agent in state {state:?} has no transition for {event:?}")]
    NodeUndefined {
        /// The agent's state.
        state: NodeState,
        /// What happened to it.
        event: NodeEvent,
    },
    /// A directory's pair without a row.
    #[error(
        "a directory in state {state:?} has no transition for {event:?} (message {message:?} from {from})"
    )]
    DirectoryUndefined {
        /// The line's state in its directory.
        state: DirectoryState,
        /// What the message amounts to there.
        event: DirectoryEvent,
        /// Who sent it.
        from: NodeId,
        /// The message.
        message: ToDirectory<()>,
    },
    /// A node agent is to send the line's contents and has none.
    #[error("a node agent in state {state:?} is to send contents after {event:?} and has no copy")]
    NoCopy {
        /// The agent's state.
        state: NodeState,
        /// What happened to it.
        event: NodeEvent,
    },
    /// Contents are to be kept and the message has none.
    #[error("{what} is to keep contents of a message that carries none")]
    NoContents {
        /// Who was to keep them.
        what: &'static str,
    },
    /// A directory is to answer a request while it serves none, or to recall a line that has not one owner.
    #[error("a directory in state {state:?} has nobody to send {what} to")]
    NobodyToTell {
        /// The line's state in its directory.
        state: DirectoryState,
        /// What was to be sent.
        what: &'static str,
    },
    /// A store's pair without a row.
    #[error("a store in state {state:?} has no transition for {event:?}")]
    StoreUndefined {
        /// How far the store is.
        state: StoreState,
        /// What happened to it.
        event: StoreEvent,
    },
    /// A directory is to bury the dead, and has no row for what their death amounts to.
    #[error(
        "a directory in state {state:?} cannot bury the dead: it has no transition for {event:?}"
    )]
    BurialUndefined {
        /// The line's state in its directory.
        state: DirectoryState,
        /// What the death amounts to.
        event: BurialEvent,
    },
    /// A line has been granted to an only holder 2³² times.
    #[error("a line has been granted to an only holder more often than can be counted")]
    NoEpochLeft,
    /// More requests wait in a directory than there are nodes.
    #[error("a directory's queue is full: a node has asked twice")]
    QueueFull,
    /// A step asks for more actions than any row of a sound table.
    #[error("a step asks for more than eight actions")]
    TooManyActions,
}
