//! Memory from a segment: a buddy allocator for large blocks, slabs for small ones, reclamation.
//!
//! [`buddy`] hands out blocks of a few KiB up to the whole region, under one recoverable lock. Slabs cut
//! some of them up for small objects; [`LocalHeap`] is how a thread allocates, frees and reclaims.

pub mod buddy;
mod local;
mod reclaim;
mod room;
mod slab;

pub use local::LocalHeap;
pub use reclaim::{Pinned, RETIRED_HEADER, ReclaimPoint, RetirePoint};

use crate::recovery::{RecoverError, RecoverRoom, Recoverers, Recovering};
use buddy::{Buddy, OpenError, RegionError};
use outlive_memory::{Memory, Native, Offset};

/// The heap of a pod: one region, for blocks of every size.
#[derive(Clone, Copy, Debug)]
pub struct Heap<M: Memory = Native> {
    memory: M,
    state: Offset,
    buddy: Buddy<M>,
}

impl<M: Memory> Heap<M> {
    /// How many bytes of state a heap over `bytes` takes.
    ///
    /// # Errors
    /// If such a region cannot be managed.
    pub fn state_bytes(bytes: u64) -> Result<u64, RegionError> {
        Ok(4096 + Buddy::<M>::metadata_bytes(bytes, 4096)?)
    }

    /// Makes a heap of the `bytes` at `region`, whose words stand at `state` in zeroed memory.
    ///
    /// # Errors
    /// If the region cannot be managed, or is not in the memory.
    pub fn create(
        memory: M,
        state: Offset,
        region: Offset,
        bytes: u64,
    ) -> Result<Self, RegionError> {
        let buddy = Buddy::create(memory, state + 4096, region, bytes, 4096)?;
        Ok(Self {
            memory,
            state,
            buddy,
        })
    }

    /// The heap whose words stand at `state`.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(memory: M, state: Offset) -> Result<Self, OpenError> {
        let buddy = Buddy::open(memory, state + 4096)?;
        Ok(Self {
            memory,
            state,
            buddy,
        })
    }

    /// Where its words stand.
    pub fn state(&self) -> Offset {
        self.state
    }

    /// The allocator of large blocks.
    pub fn buddy(&self) -> &Buddy<M> {
        &self.buddy
    }

    /// The memory.
    pub fn memory(&self) -> M {
        self.memory
    }
}

/// Adds the handlers for the operations of this room that need to know no heap.
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

/// Adds the handlers for what the dead left in `heap`.
pub fn recoverers_of<M: Memory>(recoverers: Recoverers<M>, heap: Heap<M>) -> Recoverers<M> {
    recoverers.room(Room { heap })
}

/// What the dead left in the room of their logs.
struct Room<M: Memory> {
    heap: Heap<M>,
}

impl<M: Memory> RecoverRoom<M> for Room<M> {
    fn settle(&self, _: &Recovering<'_, M>) -> Result<(), RecoverError> {
        Ok(())
    }

    fn release(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError> {
        reclaim::release(dead, self.heap);
        Ok(())
    }
}
