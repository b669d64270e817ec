//! Structures in shared memory: a sorted list and a hash map, detectable and without logs of their data
//! (LUPIN §3.6).
//!
//! [`Map`] and [`List`] are one algorithm, a linked list sorted by one word (Harris's, as Michael changed it), with
//! buckets as places to begin at in a map's (`directory`). There are no locks. Every change
//! is one compare-and-swap, and an operation descriptor in the caller's log lets its recoverer find out, from the
//! structure alone, whether that one was made.
//!
//! # The steps of an operation, and who finishes what
//!
//! A node has a link to the next, a word to be sorted by, and a *value word*: where the value is (in the node at
//! first, later in a block), or a *seal*. The value word alone says whether the entry is there and
//! what its value is, so everything that is done to one entry happens in the order of that word's changes.
//!
//! * **Insert**: a node is allocated into a *hand* of the caller's log, filled, and named in the descriptor; the
//!   compare-and-swap of the link before its place makes it an entry; then the hand is emptied. If the caller dies, the
//!   handler looks for the node: met in the list, or sealed (somebody has removed it), it was inserted. Otherwise
//!   it never will be, and the heap frees what is in the hand.
//! * **Replace**, and compare-and-exchange: a block is allocated and filled in the same way; the compare-and-swap of the
//!   value word makes it the value; whoever replaced the old one retires its block. *Before* anybody
//!   replaces a block's link, or seals it away, he writes into the block that it was *seen*. So the handler
//!   of a dead writer finds his block in its place, or seen, or it was never there: the word is read first.
//! * **Remove**: the compare-and-swap of the value word to a seal with the operation's stamp (id and number)
//!   makes the entry gone. As updates change the same word, no update is made to what was removed, and the value that the
//!   seal replaced is the last. Then the node's link is marked, which freezes it, and the node taken out of the list. Anybody who
//!   meets it helps with that; only the one whose stamp the seal has retires the node and its last value,
//!   and so does his recoverer, who learns from the heap which of the two the dead had retired. The value that was
//!   about to be replaced stands in the descriptor's note.
//! * **Destroy**: see `destroy`, for whoever is the last to use the structure.
//! * **Open buckets, add a page**: see `directory`. An operation of its own, before the caller's.
//!
//! The descriptor is begun after the node is filled, and finished after the hand is emptied, so a block in a hand without
//! a running operation is linked nowhere.
//!
//! # Why nobody reads what was freed
//!
//! The heap's [`Pinned::load`](crate::heap::Pinned::load) protects what a word leads to *provided that it
//! was not retired before the load*. So nothing is followed that may have been:
//!
//! * a link that is not marked: its node is in the list at that moment, hence the next one too, and it
//!   is retired only afterwards. A marked node's link is not followed: the node is taken out first, by a
//!   compare-and-swap that succeeds only while what leads to it is in the list. Nor is what a fetch-or or a failed
//!   compare-and-swap found there: such a word may lead to a block that is younger than the pin covers. It is stored,
//!   or loaded once more through the pin;
//! * a value word that is not sealed: its block is in its place at that moment;
//! * a block of one's own, once it is linked: the word that leads to it is loaded through the pin once more after
//!   the block's birth was written, and before it is linked. A dead caller's pin holds until its log is
//!   recovered, so the handlers may look into every block that the descriptor names.
//!
//! While a pin exists no block that it protects is used again, so a compare-and-swap that expects a link to such a
//! block succeeds only if the link never changed.
//!
//! # Orders
//!
//! Links and value words are changed by compare-and-swap only (acquire and release) and loaded with acquire: what they
//! lead to was written before. The words of a node and of a block but these do not change once they are linked,
//! and are loaded relaxed. *Seen* is stored relaxed before the compare-and-swap that replaces the block, and loaded
//! after the word was found changed: every later value of the word carries that store.
//!
//! # Progress
//!
//! Everything is lock-free: a walk begins again only when another's compare-and-swap succeeded where it stands.
//! Nobody waits for the living or for the dead, and nobody waits while a map grows: doubling is one
//! compare-and-swap, and the largest piece of work that growth puts on one operation is a page of 4 KiB per level and the opening
//! of a group of 32 buckets per doubling that passed it by.

mod chain;
mod check;
mod create;
mod datum;
mod destroy;
mod directory;
mod error;
mod header;
mod iterate;
mod list;
mod map;
mod node;
mod operation;
mod outcome;
mod recover;

pub(crate) use check::check_all;
pub use check::{Blocks, Finding, Report};
pub use datum::{Datum, OrderedDatum};
pub use destroy::{DestroyError, DestroyPoint};
pub use error::{CreateError, InsertError, OpenError};
pub use iterate::Iter;
pub use list::List;
pub use map::{Exchange, Map};
pub use operation::{
    AddPagePoint, CreatePoint, DoublePoint, InsertPoint, OpenBucketsPoint, RemovePoint,
    ReplacePoint,
};
pub use outcome::{Action, Outcome};
pub use recover::recoverers;
