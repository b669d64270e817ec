//! A sorted list and a hash map, detectable and without logs of their data (LUPIN §3.6).
//!
//! [`Map`] and [`List`] are one algorithm: a linked list sorted by one word (Harris's, as Michael
//! changed it). In a map, buckets are starting points in the list (`directory`). There are no
//! locks. Every change is one compare-and-swap. An operation descriptor in the caller's log lets
//! the recovering member find out, from the structure alone, whether the change was made.
//!
//! # The steps of an operation, and their recovery
//!
//! A node has a link to the next, a word to be sorted by, and a *value word*: the place of the
//! value (in the node at first, later in a block), or a *seal*. The value word alone defines
//! whether the entry exists and its value, so its changes order all changes of one entry.
//!
//! * **Insert**: a node is allocated into a *pending-allocation cell* of the caller's log, filled,
//!   and named in the descriptor. The compare-and-swap of the link before its place makes it an
//!   entry; then the cell is cleared. If the caller dies, the handler searches for the node: if it
//!   is in the list, or sealed (another member has removed it), it was inserted. Otherwise it never
//!   will be, and the heap frees the block in the cell.
//! * **Replace**, and compare-and-exchange: a block is allocated and filled in the same way. The
//!   compare-and-swap of the value word makes it the value; the member that replaced the old value
//!   retires its block. *Before* a member replaces or seals away a block's link, it marks the block
//!   as *seen*. So the handler of a dead writer finds the writer's block in its place, or seen, or
//!   the block was never linked: the handler reads the word first.
//! * **Remove**: the compare-and-swap of the value word to a seal with the operation's stamp (id
//!   and number) removes the entry. As updates change the same word, a removed entry is never
//!   updated, and the value that the seal replaced is the last. Then the node's link is marked,
//!   which freezes it, and the node is taken out of the list. Any member that meets the node helps
//!   with that. Only the member whose stamp is in the seal retires the node and its last value, or
//!   the member that recovers it, which learns from the heap which of the two the dead member had
//!   retired. The descriptor's note holds the value word that was about to be replaced.
//! * **Destroy**: see `destroy`; for the last user of the structure.
//! * **Open buckets, add a page**: see `directory`. A separate operation, before the caller's.
//!
//! The descriptor is begun after the node is filled, and finished after the pending-allocation cell
//! is cleared. So a block in the cell without a running operation is linked nowhere.
//!
//! # Why freed memory is never read
//!
//! The heap's [`Pinned::load`](crate::heap::Pinned::load) protects the target of a word *provided
//! that the target was not retired before the load*. So only these words are followed:
//!
//! * a link that is not marked: its node is in the list at that moment, so the next one is too, and
//!   that one is retired only afterwards. A marked node's link is not followed: the node is taken
//!   out first, by a compare-and-swap that succeeds only while the node before it is in the list.
//!   Nor is a word followed that a fetch-or or a failed compare-and-swap returned: it may lead to a
//!   block that is younger than the pin covers. It is stored, or loaded once more through the pin;
//! * a value word that is not sealed: its block is in its place at that moment;
//! * an operation's own block, once it is linked: the word that leads to it is loaded through the
//!   pin once more after the block's birth was written, and before it is linked. A dead caller's
//!   pin holds until its log is recovered, so the handlers may read all blocks that the descriptor
//!   names.
//!
//! While a pin exists, no block that it protects is used again, so a compare-and-swap that expects
//! a link to such a block succeeds only if the link never changed.
//!
//! # Orders
//!
//! Links and value words are changed by compare-and-swap only (acquire and release) and loaded with
//! acquire: their targets were written before. All other words of a node or block do not change
//! once it is linked, and are loaded relaxed. The exception is *seen*, which is stored relaxed
//! before the compare-and-swap that replaces the block, and loaded after the word was found
//! changed: every later value of the word carries that store.
//!
//! # Progress
//!
//! Everything is lock-free: a walk begins again only when another member's compare-and-swap
//! succeeded where it stands. No operation waits for live or dead members, or while a map grows:
//! doubling is one compare-and-swap, and the largest piece of work that growth puts on one
//! operation is a page of 4 KiB per level and the opening of a group of 32 buckets per doubling
//! that passed it by.

mod chain;
mod check;
mod create;
mod destroy;
mod directory;
mod header;
mod iterate;
mod list;
mod map;
mod node;
mod operation;
mod outcome;
mod recover;
mod value_ref;

pub(crate) use chain::allocate_pending;
pub use check::{Blocks, Finding, Report};
pub(crate) use check::{Snapshot, blocks_of, check_all, entries_of, snapshot_of};
pub(crate) use destroy::dismantle;
pub use destroy::{DestroyError, DestroyPoint};
pub use iterate::Iter;
pub use list::List;
pub use map::{Exchange, Map};
pub use operation::{
    AddPagePoint, CreatePoint, DoublePoint, InsertPoint, OpenBucketsPoint, RemovePoint,
    ReplacePoint,
};
pub use outcome::{Action, Outcome};
pub use recover::recoverers;
pub use value_ref::{InPlace, ValueRef};

use super::{datum, error};
