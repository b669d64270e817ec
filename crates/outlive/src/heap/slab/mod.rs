//! Small objects: slabs of one size class, each owned by one instance.
//!
//! A slab is a 32 KiB block of the buddy allocator, cut into blocks of one class. Its words stand
//! in a [table](table) apart from the payload: its owner, its *local* bits (the allocated blocks,
//! written by the owner only) and its *remote* bits (those of them that another instance has freed,
//! set by fetch-or). The owner hands out blocks whose local bit is clear. When it runs out, it
//! *collects* remote bits: it clears the local bits, then the remote ones.
//!
//! An idle owner collects nothing. Blocks that others have freed in its slabs become available when
//! it next runs out of blocks of the class, when it runs short of memory, or when it has departed
//! (died or left) and another instance adopts the slab.
//!
//! # One step at a time
//!
//! An instance records each allocation and free as a [step](step) in its log's scratch area before
//! doing anything, and clears the record afterwards:
//!
//! ```text
//!  allocate into a cell:  record, set the local bit, write the cell, clear the record
//!  free from a cell:      record, write the cell, clear the local or set the remote bit, clear the record
//! ```
//!
//! All of these are plain release stores in this order, except the fetch-or. A thread that settles
//! a dead instance's step therefore knows how far it got: an allocation happened if the cell holds
//! the block, and otherwise its bit is cleared; a free is completed. Both can be re-executed. The
//! cell belongs to the caller until the step is over.
//!
//! # Steps are hazards
//!
//! A recovering thread may set a remote bit that the dead instance has already set. If the block
//! had been collected and handed out in between, this would free a block in use. Therefore a
//! collector skips every block that any instance's step names. It sees every step that matters: the
//! freeing instance records the step before its fetch-or (release); the collector reads the remote
//! bits (acquire), then the steps. A step that the collector finds cleared is over and will not be
//! re-executed: only the holder of the claim on the log clears a step, and the successor of a dead
//! recovering thread finds no step. It does not matter whether the id is live, dead, left or
//! recovered: a thread that reclaims the blocks which the id retired records steps in its log too.
//!
//! # Adoption
//!
//! A slab whose owner has departed is adopted by an instance that needs one of its class, under the
//! buddy allocator's lock, unless a step names one of its blocks. Then no other thread writes its
//! local bits: the owner's own steps are settled by plain stores to them, but such a step was
//! recorded while the owner lived, so the adopter sees it; and a recovering thread frees blocks in
//! the dead owner's name through remote bits, as other instances do. The adopter collects, then
//! writes its name. If it dies before that, the next adopter repeats its work.
//!
//! Slabs come from the buddy allocator and return to it in one redo transaction together with the
//! words of the table. A slab is returned when it has no bit set and no step names it. All bits of
//! an entry without a slab are zero.
//!
//! # Large blocks
//!
//! A request larger than the largest class is served by a block of the buddy allocator; the store
//! to the cell is a record of the same transaction. A recovering thread, which takes no lock,
//! cannot free such a block: it marks the block as *owed*, by a step as above, and the next holder
//! of the lock frees it, unless a step names it.

pub(super) mod class;
pub(super) mod step;
pub(super) mod table;

pub(super) use class::{CLASSES, Class, Inverse, LARGEST, WORDS};
pub(super) use step::{Kind, Step, Steps};
pub(super) use table::{LocalWord, Slab, Table};

/// The size of a slab in bytes.
pub(super) const SLAB: u64 = 32 << 10;
/// The smallest block of the buddy allocator below, in bytes. Requests larger than the largest
/// class take at least this much.
pub(super) const UNIT: u64 = 16 << 10;
