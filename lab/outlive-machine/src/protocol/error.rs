//! The errors of a wrong protocol.

use super::{
    BurialEvent, DirectoryEvent, DirectoryState, NodeEvent, NodeId, NodeState, StoreEvent,
    StoreState, ToDirectory,
};

/// A controller met a pair that its table does not have: the protocol, or the driver of the table,
/// is wrong, and the state of the line is no longer meaningful. There is no way to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A node agent's pair without a row.
    #[error("a node agent in state {state:?} has no transition for {event:?}")]
    NodeUndefined {
        /// The agent's state.
        state: NodeState,
        /// The event.
        event: NodeEvent,
    },
    /// A directory's pair without a row.
    #[error(
        "a directory in state {state:?} has no transition for {event:?} (message {message:?} from {from})"
    )]
    DirectoryUndefined {
        /// The line's state in its directory.
        state: DirectoryState,
        /// The event that the message is there.
        event: DirectoryEvent,
        /// The sender.
        from: NodeId,
        /// The message.
        message: ToDirectory<()>,
    },
    /// A node agent is to send the line's contents and has none.
    #[error("a node agent in state {state:?} must send contents after {event:?} but has no copy")]
    NoCopy {
        /// The agent's state.
        state: NodeState,
        /// The event.
        event: NodeEvent,
    },
    /// Contents are to be kept and the message has none.
    #[error("{what} must keep the contents of a message that carries none")]
    NoContents {
        /// The controller that was to keep them.
        what: &'static str,
    },
    /// A directory is to answer a request while it serves none, or to recall a line that does not
    /// have exactly one owner.
    #[error("a directory in state {state:?} has no node to send {what} to")]
    NobodyToTell {
        /// The line's state in its directory.
        state: DirectoryState,
        /// The message that was to be sent.
        what: &'static str,
    },
    /// A store's pair without a row.
    #[error("a store in state {state:?} has no transition for {event:?}")]
    StoreUndefined {
        /// The store's state.
        state: StoreState,
        /// The event.
        event: StoreEvent,
    },
    /// A directory has to remove dead nodes, and its table has no row for their death.
    #[error(
        "a directory in state {state:?} cannot remove a dead node: it has no transition for \
         {event:?}"
    )]
    BurialUndefined {
        /// The line's state in its directory.
        state: DirectoryState,
        /// The event that the death is.
        event: BurialEvent,
    },
    /// A line has been granted to an only holder 2³² times.
    #[error("a line has no epoch left: it was granted to a single owner too often")]
    NoEpochLeft,
    /// More requests wait in a directory than there are nodes.
    #[error("a directory's queue is full: a node has sent two requests")]
    QueueFull,
    /// A step asks for more actions than any row of a sound table.
    #[error("a step requires more than eight actions")]
    TooManyActions,
}
