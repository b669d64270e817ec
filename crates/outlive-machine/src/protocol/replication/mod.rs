//! ReCXL's replication: how a store gets its replicas, and when it may commit.
//!
//! A store of the shared memory is *replicated* before it commits (the paper's section IV-D): REPL goes to the N_r nodes of
//! its line's group, each answers REPL_ACK, and when the store is the oldest of its core, its node may write the line and
//! all have answered, it commits, and VAL goes to each of them. [`STORE`] is this, seen from the requester, for one store;
//! the words and numbers of the messages are those of [`logging`](crate::logging).
//!
//! # One table, five machines
//!
//! What differs between the variants is when whoever drives the table says [`StoreInput::Replicate`]:
//!
//! | | `Replicate` is told | to |
//! | --- | --- | --- |
//! | WB | at the head of the store buffer | nobody |
//! | baseline | when the store is at the head and the line may be written | the group |
//! | parallel | when the store is at the head | the group |
//! | proactive | when the store is in the store buffer and nothing will be coalesced with it any more | the group |
//!
//! A store without replicas has all its acknowledgements. Between retirement and commit any moment is right: what the
//! table waits for is the same. After `Replicate` nothing may be coalesced with the store ([`Store::is_sealed`]).
//!
//! # Who waits for what
//!
//! | state | waits for | which comes because |
//! | --- | --- | --- |
//! | `U`, `R`, `A` | its turn | the stores before it commit |
//! | `UH`, `RH`, `AH` | leave to write | it is asked for when the line is here neither to be written nor under way ([`StoreInput::Idle`]) |
//! | `R`, `RH`, `RW`, `RL` | REPL_ACKs | a living logging unit answers at once; for a dead one, recovery [restarts](StoreInput::Restart) the store |
//!
//! Acknowledgements wait for nothing of the coherence protocol, so a line need not be held while they are under way: if it
//! is lost, it is asked for again when they are in (`RL`), and they stay good, for they are about the store and not about
//! the owner. Then a grant is a commit, in the step that takes it in. So a store takes its line from another node twice at
//! most, however long its acknowledgements are under way.
//!
//! An atomic is different: what it stores depends on what it has read, so from its reading to its
//! commit its node does not let the line go, and an interrupt makes it read again.
//!
//! ```
//! use outlive_machine::protocol::{NodeId, NodeSet, STORE, Store, StoreAction, StoreInput, StoreTable};
//!
//! let table = StoreTable::new(STORE);
//! let (a, b) = (NodeId::new(1), NodeId::new(2));
//! let replicas = NodeSet::only(a).with(b);
//! // Proactive: replicated as soon as it has retired; and then it is its turn, on a line that may be written.
//! let sent = table.step(&Store::default(), StoreInput::Replicate { sequence: 0, replicas })?;
//! assert_eq!(sent.actions().collect::<Vec<_>>(), [StoreAction::Repl(replicas)]);
//! let one = table.step(&sent.store, StoreInput::Ack { from: b, sequence: 0 })?;
//! let head = table.step(&one.store, StoreInput::Head { writable: true })?;
//! assert_eq!(head.store.awaited(), NodeSet::only(a));
//! let last = table.step(&head.store, StoreInput::Ack { from: a, sequence: 0 })?;
//! assert_eq!(last.actions().collect::<Vec<_>>(), [StoreAction::Commit, StoreAction::Val(replicas)]);
//! assert!(last.store.is_committed());
//! # Ok::<(), outlive_machine::protocol::ProtocolError>(())
//! ```

mod store;
mod store_table;

pub use store::{Store, StoreAction, StoreInput, StoreStep, StoreTable};
pub use store_table::{STORE, StoreEvent, StoreOperation, StoreState};
