//! How compute nodes keep their copies of shared lines coherent: MESI by messages over a fabric that may reorder any
//! two.
//!
//! Two controllers for each line, both of them pure functions in explicit tables: a *node agent* in every compute
//! node ([`MESI_NODE`], [`NodeTable::step`](Table)) and a *directory* in the line's memory node ([`MESI_DIRECTORY`],
//! [`DirectoryTable::step`](Table)). The timed machine and [`search`](crate::search) drive the very same functions. A
//! pair of state and event without a row is a [`ProtocolError`] that names both.
//!
//! ```
//! use outlive_machine::protocol::{Directory, NodeId, NodeInput, NodeState, Tables, ToDirectory, ToNode};
//!
//! // Node 0 reads a line that nobody has; it is granted the only copy, and writes it without a word.
//! let Tables { node, directory } = Tables::mesi();
//! let line = Directory::default();
//! let asked = node.step(NodeState::I, NodeInput::Load, None::<u64>)?;
//! let granted = directory.step(&line, NodeId::new(0), ToDirectory::RdS, 7u64)?;
//! let filled = node.step(asked.state(), NodeInput::Message(ToNode::GrantE(7)), None)?;
//! assert_eq!(filled.state(), NodeState::E);
//! assert_eq!(node.step(filled.state(), NodeInput::Store, Some(7))?.state(), NodeState::M);
//! # assert_eq!(granted.actions().count(), 1);
//! # Ok::<(), outlive_machine::protocol::ProtocolError>(())
//! ```
//!
//! # Who waits for what
//!
//! | state | waits for | which is sent by | and comes because |
//! | --- | --- | --- | --- |
//! | node `IS`, `IM`, `SM` | a grant | the directory | requests are served in order of arrival, and each one ends |
//! | node `MI`, `II` | `PutAck` | the directory | it answers every `PutM` at once, in every state |
//! | directory `SX`, `SU` | an `Ack` of each reader | agents | `I`, `S`, `IS`, `IM`, `SM` answer `Inv` at once |
//! | directory `OS`, `OX` | one answer | the owner's agent | `I`, `E`, `M`, `IS`, `IM`, `MI` answer a recall at once |
//! | directory `SD`, `OD`, `ID` | `Done` | the requester's agent | it answers a grant at once |
//!
//! The directory serves one transaction for each line at a time: request; invalidations or a recall, and their
//! answers; one grant; `Done`. Requests that come meanwhile wait in order of arrival.
//!
//! # Why no message is misunderstood
//!
//! Think of one line, and of one node `n` and the directory.
//!
//! 1. *From the directory to `n` there is at most one demand or grant under way.* A demand (`Inv`, recall) is
//!    followed by another message of this kind only after `n`'s answer, a grant only after its `Done`. So no demand
//!    overtakes the grant before it, no grant the demand before it, and an agent needs no states for "invalidated
//!    before it was filled".
//! 2. *`n` has at most one request under way or in the queue*: it asks in `I` and `S` only, and leaves `IS`, `IM` and
//!    `SM` for a state in which it can ask again only by a grant (`SM` goes to `IM` by `Inv`, still waiting for the
//!    same one).
//! 3. *What a demand means does not depend on when it comes.* It is about a copy that the record says `n` may have.
//!    If `n` has it, it gives it up. If `n` has none (dropped in silence: `I`; dropped, and asked for again: `IS`,
//!    `IM`), it says so, and what is still to be granted is not concerned, by 1. A request says what `n` wants, not
//!    what it has, but for `Upgrade`: and from `SM` a copy goes only by an `Inv`, whose `Ack` the directory has
//!    before it serves another request. So at the moment when an `Upgrade` is served, its sender is in the record if
//!    and only if it has its copy; otherwise it gets contents like an `RdX`.
//! 4. *`PutM` may cross a recall.* In `MI` the agent answers a recall with the contents, and knows then (`II`) that
//!    its `PutM` is stale; the directory knows by its record, which has passed to others and comes back to `n` only
//!    if `n` asks, which it does not before `PutAck`. If the `PutM` comes before the answer, the directory keeps its
//!    contents and says `PutAck`, which may overtake the recall: the agent then says `Gone`, from `I`, `IS` or `IM`,
//!    and memory is current. `PutAck` is the one message that may be under way to `n` beside a demand; no other is
//!    like it, and there is one for each `PutM`.
//! 5. *`Done` may be overtaken by what `n` does with the grant*: a request (it queues), or a `PutM` (`OD` goes to
//!    `ID`). There is one `Done` under way at most, since the next grant waits for it.
//!
//! # Why values are right
//!
//! The only copy is granted when no other node has one: nobody is in the record (`I`), or all who are have answered.
//! Copies to read are granted when no node may write: `S`, or the owner has answered. `E` and `M` are left for `S` or
//! `I` only with the contents in the message, in the write-back buffer, or (from `E`) in memory. So there is one
//! writer or there are readers, and memory has the last value whenever the directory grants; a grant carries memory's
//! contents as they are at that moment.
//!
//! # Why nothing waits for ever
//!
//! Every message is taken in on arrival, in every state in which it can come: none waits for room or for another. The
//! queue has room for one request of each node, and by 2 that is enough (a granted node may stand in it again). By
//! the table above each transaction waits for answers that are sent at once, and none of them waits for another line
//! or for a write-back buffer. So each ends, and the queue being in order of arrival, each request is served.
//! The access for which a node has asked is performed in the step that takes the grant in ([`NodeAction::Resume`]), so
//! that nodes that fight for a line each get something done.
//!
//! What these paragraphs claim is checked by [`search`](crate::search) in every state that small machines can reach.
//!
//! # What stands beside the tables
//!
//! A table is a value. [`replication`] has tables for what a store waits for beside leave to write, and for what a node's death
//! makes of a directory: `awaited`, `holders`, `requester` and the queue are all that can name the dead. Write-through gives
//! the node agent a `Store` row that sends, and the directory one that stores.

mod actions;
mod directory;
mod directory_table;
mod error;
mod message;
mod names;
mod node;
mod queue;
pub mod replication;
mod table;

use std::sync::LazyLock;

use actions::Actions;
pub use directory::{Directory, DirectoryAction, DirectoryStep, DirectoryTable, Record};
pub use directory_table::{DirectoryEvent, DirectoryOperation, DirectoryState, MESI_DIRECTORY};
pub use error::ProtocolError;
pub use message::{ToDirectory, ToNode};
pub use names::{Epoch, MAX_NODES, NodeId, NodeSet};
pub use node::{MESI_NODE, NodeAction, NodeEvent, NodeInput, NodeState, NodeStep, NodeTable};
pub use queue::{Queue, Request};
pub use replication::{
    BURIAL, BurialEvent, BurialOperation, BurialTable, LONE_READER, ReplicatedTables, STORE, Store,
    StoreAction, StoreEvent, StoreInput, StoreOperation, StoreState, StoreStep, StoreTable,
};
pub use table::{Cell, Name, Row, Table};

/// A protocol: the tables of both controllers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tables {
    /// Of the agents in compute nodes.
    pub node: NodeTable,
    /// Of the directories in memory nodes.
    pub directory: DirectoryTable,
}

impl Tables {
    /// The MESI protocol.
    pub fn mesi() -> &'static Tables {
        static MESI: LazyLock<Tables> = LazyLock::new(|| Tables {
            node: NodeTable::new(MESI_NODE),
            directory: directory_table::mesi(),
        });
        &MESI
    }
}
