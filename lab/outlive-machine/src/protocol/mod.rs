//! The coherence of compute nodes' copies of shared lines: MESI by messages over a fabric that may
//! reorder any two.
//!
//! Each line has two controllers, both pure functions in explicit tables: a *node agent* in every
//! compute node ([`MESI_NODE`], [`NodeTable::step`](Table)) and a *directory* in the line's memory
//! node ([`MESI_DIRECTORY`], [`DirectoryTable::step`](Table)). The timed machine and
//! [`search`](crate::search) drive the same functions. A pair of state and event without a row is a
//! [`ProtocolError`] that names both.
//!
//! ```
//! use outlive_machine::protocol::{Directory, NodeId, NodeInput, NodeState, Tables, ToDirectory, ToNode};
//!
//! // Node 0 reads a line that no node has. It is granted the only copy, and writes it silently.
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
//! # Why every wait ends
//!
//! | state | waits for | which is sent by | and comes because |
//! | --- | --- | --- | --- |
//! | node `IS`, `IM`, `SM` | a grant | the directory | requests are served in order of arrival, and each one ends |
//! | node `MI`, `II` | `PutAck` | the directory | it answers every `PutM` at once, in every state |
//! | directory `SX`, `SU` | an `Ack` of each reader | agents | `I`, `S`, `IS`, `IM`, `SM` answer `Inv` at once |
//! | directory `OS`, `OX` | one answer | the owner's agent | `I`, `E`, `M`, `IS`, `IM`, `MI` answer a recall at once |
//! | directory `SD`, `OD`, `ID` | `Done` | the requester's agent | it answers a grant at once |
//!
//! The directory serves one transaction for each line at a time: request; invalidations or a
//! recall, and their answers; one grant; `Done`. Other requests wait in order of arrival.
//!
//! # Why no message is misunderstood
//!
//! Consider one line, one node `n` and the directory.
//!
//! 1. *From the directory to `n` at most one demand or grant is under way.* A demand (`Inv`,
//!    recall) is followed by another message of this kind only after `n`'s answer, a grant only
//!    after its `Done`. So no demand overtakes the grant before it, no grant overtakes the demand
//!    before it, and an agent needs no states for "invalidated before it was filled".
//! 2. *`n` has at most one request under way or in the queue*: it sends requests in `I` and `S`
//!    only, and leaves `IS`, `IM` and `SM` for a state in which it can send another only by a grant
//!    (`SM` goes to `IM` by `Inv`, still waiting for the same grant).
//! 3. *The meaning of a demand does not depend on when it comes.* It is about a copy that the
//!    record says `n` may have. If `n` has the copy, it gives it up. If `n` has none (dropped
//!    silently: `I`; dropped, and requested again: `IS`, `IM`), it says so, and a grant still to
//!    come is not concerned, by 1. A request says which access `n` wants, not which copy it has,
//!    except for `Upgrade`: from `SM` a copy goes only by an `Inv`, whose `Ack` the directory has
//!    before it serves another request. So when an `Upgrade` is served, its sender is in the record
//!    if and only if it has its copy; otherwise it gets contents as for an `RdX`.
//! 4. *`PutM` may cross a recall.* In `MI` the agent answers a recall with the contents, and knows
//!    then (`II`) that its `PutM` is stale. The directory knows it by its record, which has passed
//!    to other nodes and comes back to `n` only if `n` sends a request, which it does not before
//!    `PutAck`. If the `PutM` comes before the answer, the directory keeps its contents and sends
//!    `PutAck`, which may overtake the recall: the agent then answers `Gone`, from `I`, `IS` or
//!    `IM`, and memory is current. `PutAck` is the only message that may be under way to `n` beside
//!    a demand; no other is like it, and there is one for each `PutM`.
//! 5. *`Done` may be overtaken by a message that `n` sends after the grant*: a request (it queues),
//!    or a `PutM` (`OD` goes to `ID`). At most one `Done` is under way, since the next grant waits
//!    for it.
//!
//! # Why values are right
//!
//! The only copy is granted when no other node has one: the record is empty (`I`), or all nodes in
//! it have answered. Copies to read are granted when no node may write: `S`, or the owner has
//! answered. `E` and `M` are left for `S` or `I` only with the contents in the message, in the
//! write-back buffer, or (from `E`) in memory. So there is one writer or there are readers, and
//! memory has the last value whenever the directory grants; a grant carries memory's contents at
//! that moment.
//!
//! # Why nothing waits for ever
//!
//! Every message is taken in on arrival, in every state in which it can come: none waits for space
//! or for another message. The queue has space for one request of each node, and by 2 that is
//! enough (a granted node may be in it again). By the table above, each transaction waits for
//! answers that are sent at once, and none of them waits for another line or for a write-back
//! buffer. So each transaction ends, and because the queue is in order of arrival, each request is
//! served. The access for which a node has sent a request is performed in the step that takes the
//! grant in ([`NodeAction::Resume`]), so that nodes that compete for a line each make progress.
//!
//! [`search`](crate::search) checks these claims in every state that small machines can reach.
//!
//! # Further tables
//!
//! A table is a value. [`replication`] has tables for the conditions that a store waits for in
//! addition to permission to write, and for the effect of a node's death on a directory: only
//! `awaited`, `holders`, `requester` and the queue can name dead nodes. Write-through has no table:
//! the timed machine sends the words of a pinned line to memory.

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
    /// The table of agents in compute nodes.
    pub node: NodeTable,
    /// The table of directories in memory nodes.
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
