//! Small objects: slabs of one size class, each owned by one instance.
//!
//! A slab is a 32 KiB block of the buddy allocator, cut into blocks of one class. Its words stand in a
//! [table](table) apart from the payload: who owns it, which blocks are allocated (*local* bits, which only
//! the owner writes), and which of them somebody else has freed (*remote* bits, set by fetch-or). The
//! owner hands out blocks whose local bit is clear; it *collects* remote bits when it runs out: clears
//! the local bits, then the remote ones.
//!
//! An owner that is idle collects nothing: what others have freed in its slabs is of use again when it next runs out
//! of blocks of the class, when it is short of memory itself, or when it is gone and somebody adopts the slab.
//!
//! # One step at a time
//!
//! An instance notes each allocation and free as a [step](step) in its log's room, before it does anything,
//! and strikes the note out afterwards:
//!
//! ```text
//!  allocate into a cell:  note, set the local bit, write the cell, strike out
//!  free from a cell:      note, write the cell, clear the local bit or set the remote one, strike out
//! ```
//!
//! All of it plain release stores, in this order, but for the fetch-or. So whoever settles a dead
//! instance's step knows where it stood: an allocation happened if the cell holds the block, and else its
//! bit is cleared; a free is completed. Both can be done again. The cell is the caller's meanwhile.
//!
//! # Steps are hazards
//!
//! A recoverer may set a remote bit that the dead has set already. Were the block collected and handed out
//! in between, it would free what is in use. Therefore a collector leaves alone every block that a step
//! of anybody names, and it sees every step that matters: the freer notes the step before its fetch-or
//! (release), the collector reads the remote bits (acquire), then the steps. What it then finds
//! struck out is over, whoever did it, and will not be done again: a step is struck out by the holder of the
//! claim on the log, and a dead recoverer's successor finds no step. Whether the id lives, is dead, has left
//! or is recovered makes no difference: whoever looks after what it has retired takes steps in its log too.
//!
//! # Adoption
//!
//! A slab whose owner is gone is taken over by whoever needs one of its class: under the buddy
//! allocator's lock, unless a step names one of its blocks. Then nobody will write its local bits any more: the
//! dead owner's own steps are settled by plain stores to them, but such a step was noted while the owner
//! lived, so the adopter sees it; and what a recoverer frees in the dead's name it frees as a stranger
//! would. The adopter collects, then writes its name. Cut short before that, it has done what the next adopter
//! does again.
//!
//! Slabs come from the buddy allocator and go back to it in one redo transaction together with the
//! words of the table. A slab goes back when it has no bit and no step names it. All bits of what is not a slab
//! are zero.
//!
//! # Large blocks
//!
//! What is larger than the largest class is a block of the buddy allocator; the cell's store is a record of
//! the same transaction. A recoverer, which takes no lock, cannot free one: it notes that the block is *owed*,
//! by a step as above, and whoever next holds the lock frees it, unless a step names it.

pub(super) mod class;
pub(super) mod step;
pub(super) mod table;

pub(super) use class::{CLASSES, Class, Inverse, LARGEST, WORDS};
pub(super) use step::{Kind, Step, Steps};
pub(super) use table::{LocalWord, Slab, Table};

/// The size of a slab.
pub(super) const SLAB: u64 = 32 << 10;
/// The smallest block of the buddy allocator below: what is larger than the largest class takes as much.
pub(super) const UNIT: u64 = 16 << 10;
