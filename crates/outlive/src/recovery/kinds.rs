//! The numbers by which logs and heaps name the core's operations, locks and pending allocations:
//! one table each, in which a duplicate number does not compile.
//!
//! The numbers are stored in segments. A number never gets another meaning; a new one goes to the
//! end of its group.

use super::OperationKind;

/// The core's kinds of operations. Other numbers belong to programs.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum CoreOperation {
    BuddyAllocate = 0x100,
    BuddyAllocateInto = 0x101,
    BuddyFree = 0x102,
    BuddyFreeFrom = 0x103,
    RetireFrom = 0x180,
    CreateStructure = 0x200,
    InsertNode = 0x201,
    RemoveNode = 0x202,
    ReplaceValue = 0x203,
    OpenBuckets = 0x204,
    AddPage = 0x205,
    DestroyStructure = 0x206,
}

impl CoreOperation {
    /// Returns the kind that descriptors store.
    pub(crate) const fn kind(self) -> OperationKind {
        OperationKind::new(self as u64)
    }
}

/// The core's kinds of locks. The numbers from 4 on belong to programs.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum CoreLock {
    Tatas = 1,
    Queue = 2,
    Bare = 3,
}

/// The pending-allocation cells of a member that the core uses; the heap has 8 for each.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum PendingAllocation {
    /// Nodes, value blocks and headers of structures.
    StructureBlock = 0,
    /// Pages of a map's directory.
    DirectoryPage = 1,
    /// Named objects, their directory, and blocks of leases.
    Object = 7,
}
