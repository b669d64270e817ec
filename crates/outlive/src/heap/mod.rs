//! Memory from a segment: a buddy allocator for large blocks, slabs for small ones, reclamation.
//!
//! [`buddy`] hands out blocks of 16 KiB up to the whole region, under one recoverable lock. Slabs
//! cut some of these blocks up for small objects. [`LocalHeap`] is the interface through which a
//! thread allocates, frees and reclaims.
//!
//! ```text
//!  state:   header | the era of reclamation | hints | a table with an entry for each 32 KiB | buddy allocator
//!  region:  only the blocks
//! ```

mod allocate;
mod allocation_cache;
pub mod buddy;
mod check;
mod free;
mod large;
mod local;
mod pending_cells;
mod reclaim;
mod recover;
mod refill;
mod report;
mod scratch;
mod slab;

pub use allocate::HeapAllocatePoint;
pub use check::{ClassStatistics, HeapFinding, HeapRepair, HeapReport, HeapStatistics};
pub use free::HeapFreePoint;
pub use large::{HeapLargePoint, HeapOwePoint};
pub use local::LocalHeap;
pub use reclaim::{
    BadRetired, Pinned, RETIRED_HEADER, ReclaimPoint, RetireFromPoint, RetirePoint, SecondWay,
};
pub use recover::HeapRecoverPoint;
pub use refill::{HeapCollectPoint, HeapGiveBackPoint, HeapRefillPoint};
pub use report::Report;
pub(crate) use scratch::PENDING_AT;

use crate::recovery::Recoverers;
use buddy::{Buddy, OpenError, RegionError};
use outlive_memory::{Memory, Native, Offset, OffsetOutOfRange, Ordering};
use slab::{Table, UNIT};

const MAGIC: u64 = u64::from_le_bytes(*b"outsheap");
/// The root word.
const ROOT: u64 = 0x40;
/// Counts the events that may have orphaned slabs. It never decreases.
const ORPHANS: u64 = 0x100;
/// The value of `ORPHANS` for which a whole round found no orphan.
const NO_ORPHANS: u64 = 0x108;
/// Counts the blocks that have been owed to the buddy allocator. It never decreases.
const OWED: u64 = 0x140;
/// The value of `OWED` for which a whole round left no block owed.
const PAID: u64 = 0x148;
const TABLE: u64 = 0x180;

/// The heap of a pod: one region, for blocks of every size.
///
/// ```
/// # use outlive::membership::{Generations, Instance, Level, Member, State, Status};
/// # use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
/// # use outlive::recovery::{Logs, OwnLog};
/// use outlive::heap::{self, Heap, LocalHeap};
/// use outlive::sync;
/// # let memory = Native::leaked(1 << 21, PersistenceDomain::Flushed);
/// # let generations = Generations::new(memory, Offset::new(0), 4);
/// # let logs = Logs::new(memory, Offset::new(4096), 4);
/// # let live = State { generation: 1, host: 0, level: Some(Level::Thread), status: Status::Live };
/// # // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
/// # assert!(unsafe { generations.assume_state(0, State::FREE, live) });
/// # // SAFETY: this thread alone acts as 0.1, and no thread raises its generation.
/// # let member = unsafe { Member::assume(memory, generations, Instance::new(0, 1), logs.at(0), None) };
/// # OwnLog::open(&member).unwrap();
/// let (state, region) = (Offset::new(1 << 16), Offset::new(1 << 20));
/// let heap = Heap::create(memory, state, region, 1 << 20)?;
/// let recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(logs)), heap);
/// let local = LocalHeap::of(heap, &member, &recoverers);
///
/// // The cell holds the block, or there is no block: whenever this thread dies.
/// let cell = Offset::new(2048);
/// let block = local.allocate_into(100, cell)?;
/// assert_eq!(memory.load::<u64>(cell, Ordering::Acquire), block.raw());
/// local.free_from(cell, 0)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Heap<M: Memory = Native> {
    memory: M,
    state: Offset,
    buddy: Buddy<M>,
    table: Table<M>,
}

impl<M: Memory> Heap<M> {
    /// The largest block that comes from a slab, in bytes. Larger sizes are rounded up to 16 KiB
    /// times a power of two.
    pub const LARGEST_SMALL: u64 = slab::LARGEST;

    /// Returns the bytes of state that a heap over `bytes` needs: 2 % of them.
    ///
    /// # Errors
    /// If such a region cannot be managed.
    pub fn state_bytes(bytes: u64) -> Result<u64, RegionError> {
        Ok(buddy_at(bytes) + Buddy::<M>::metadata_bytes(bytes, UNIT)?)
    }

    /// Creates a heap over the `bytes` at `region`, with its state at `state` in zeroed memory. The
    /// process that creates a pod calls this before any other process sees the memory.
    ///
    /// # Errors
    /// If the region has a size that cannot be managed, is not inside the memory, or if `state` is
    /// not aligned to 128 bytes, or `region` not to 4096.
    ///
    /// # Crash
    /// An interrupted creation leaves a state that [`open`](Self::open) refuses.
    pub fn create(
        memory: M,
        state: Offset,
        region: Offset,
        bytes: u64,
    ) -> Result<Self, RegionError> {
        Self::described(memory, state, region, bytes)?;
        let buddy = Buddy::create(memory, state + buddy_at(bytes), region, bytes, UNIT)?;
        let header = [region.raw(), bytes];
        let words = header.into_iter().chain([checksum(header)]);
        for (index, word) in (1u64..).zip(words) {
            memory.store(state + index * 8, word, Ordering::Relaxed);
        }
        memory.persist(state, 64);
        // Release: a reader that finds the first word finds all others.
        memory.store(state, MAGIC, Ordering::Release);
        memory.persist(state, 8);
        Ok(Self::with(memory, state, region, buddy))
    }

    /// Opens the heap whose state is at `state`.
    ///
    /// # Errors
    /// If there is no heap, or its header is damaged. The table and the tree are not walked.
    pub fn open(memory: M, state: Offset) -> Result<Self, OpenError> {
        let at = state;
        let region_error = |source| OpenError::Region { at, source };
        inside(memory, state, TABLE, 128).map_err(region_error)?;
        // Acquire: the words written before the first one.
        let magic: u64 = memory.load(state, Ordering::Acquire);
        if magic != MAGIC {
            return Err(OpenError::NotOne { at, magic });
        }
        let word = |index: u64| memory.load::<u64>(state + index * 8, Ordering::Relaxed);
        let (words, found) = ([word(1), word(2)], word(3));
        let expected = checksum(words);
        if found != expected {
            return Err(OpenError::Checksum {
                at,
                expected,
                found,
            });
        }
        let [region, bytes] = words;
        let region = Offset::from_raw(region);
        Self::described(memory, state, region, bytes).map_err(region_error)?;
        let buddy = Buddy::open(memory, state + buddy_at(bytes))?;
        if (buddy.region(), buddy.bytes()) != (region, bytes / UNIT * UNIT) {
            // Each header is intact, but they describe different regions.
            let at = buddy.metadata();
            let source = RegionError::Different { metadata: at };
            return Err(OpenError::Region { at, source });
        }
        Ok(Self::with(memory, state, region, buddy))
    }

    /// Refuses an impossible layout before anything is written or followed.
    fn described(memory: M, state: Offset, region: Offset, bytes: u64) -> Result<(), RegionError> {
        let own = Self::state_bytes(bytes)?;
        inside(memory, state, own, 128)?;
        inside(memory, region, bytes, 4096)?;
        if state < region + bytes && region < state + own {
            let (metadata, payload) = (state, region);
            return Err(RegionError::Overlap { metadata, payload });
        }
        Ok(())
    }

    fn with(memory: M, state: Offset, region: Offset, buddy: Buddy<M>) -> Self {
        Self {
            memory,
            state,
            buddy,
            table: Table::new(memory, state + TABLE, region, buddy.bytes()),
        }
    }

    /// Returns the offset of the heap's state.
    pub fn state(&self) -> Offset {
        self.state
    }

    /// Returns the offset of the root word: it holds 0, or the offset of the directory of
    /// [named objects](crate::objects).
    pub fn root(&self) -> Offset {
        self.state + ROOT
    }

    /// Returns the size of the allocated block at `block`. The caller has that block.
    fn allocated_bytes(&self, block: Offset) -> Option<u64> {
        let slab = self.table.slab_of(self.table.within(block)?);
        // Relaxed: it was written before the block was allocated.
        match (self.memory).load::<u64>(self.table.owner(slab), Ordering::Relaxed) {
            0 => self.buddy.allocated_at(block),
            _ => self.table.class_of(slab).map(|class| class.size.into()),
        }
    }

    /// Returns the allocator of large blocks.
    pub fn buddy(&self) -> &Buddy<M> {
        &self.buddy
    }

    /// Returns the memory that the heap is in.
    pub fn memory(&self) -> M {
        self.memory
    }

    fn orphans(&self) -> Offset {
        self.state + ORPHANS
    }

    fn no_orphans(&self) -> Offset {
        self.state + NO_ORPHANS
    }

    fn owed(&self) -> Offset {
        self.state + OWED
    }

    fn paid(&self) -> Offset {
        self.state + PAID
    }
}

fn inside<M: Memory>(memory: M, at: Offset, len: u64, align: u64) -> Result<(), RegionError> {
    let checked: Result<Offset, OffsetOutOfRange> =
        Offset::checked(at.raw(), len, align, memory.size());
    checked.map(drop).map_err(RegionError::Outside)
}

/// Returns the offset of the buddy allocator's metadata in the state of a heap over `bytes`.
fn buddy_at(bytes: u64) -> u64 {
    TABLE + Table::<Native>::bytes(bytes.min(Offset::SPAN))
}

fn checksum(header: [u64; 2]) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&MAGIC.to_le_bytes());
    for word in header {
        hasher.update(&word.to_le_bytes());
    }
    hasher.finalize().into()
}

/// Adds the recovery handlers of this module that need no particular heap.
///
/// ```
/// # use outlive::{heap, memory::{Native, Offset, PersistenceDomain}, recovery::Logs, sync};
/// # let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
/// let logs = Logs::new(memory, Offset::new(4096), 4);
/// let recoverers = heap::recoverers(sync::recoverers(logs));
/// ```
pub fn recoverers<M: Memory>(recoverers: Recoverers<M>) -> Recoverers<M> {
    buddy::recoverers(recoverers)
}

/// Adds the recovery handlers for the state that dead members left in `heap`: the step that they
/// were at, the blocks in their pending-allocation cells, and the blocks that they had retired.
pub fn recoverers_of<M: Memory>(recoverers: Recoverers<M>, heap: Heap<M>) -> Recoverers<M> {
    reclaim::recoverers(recoverers, heap).room(recover::RoomOf(heap))
}
