//! The errors of the buddy allocator.

use crate::recovery::RedoError;
use crate::sync::LockError;
use outlive_memory::{Offset, OffsetOutOfRange};

/// A region that a buddy allocator cannot manage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The unit is not a power of two of at least 64 bytes.
    #[error("a unit cannot have {unit} bytes: its size must be a power of two of at least 64")]
    BadUnit {
        /// The unit in bytes.
        unit: u64,
    },
    /// The region has no unit, or too many.
    #[error(
        "a region of {bytes} bytes has {units} units of {unit} bytes; 1 to 2^30 can be managed"
    )]
    BadSize {
        /// The size of the region in bytes.
        bytes: u64,
        /// The size of a unit in bytes.
        unit: u64,
        /// The number of units in the region.
        units: u64,
    },
    /// The metadata or the region are not inside the memory, or not aligned.
    #[error("the region or its metadata is misplaced: {0}")]
    Outside(OffsetOutOfRange),
    /// The metadata overlap the region that they describe.
    #[error("the metadata at {metadata} overlap the region at {payload}")]
    Overlap {
        /// The offset of the metadata.
        metadata: Offset,
        /// The offset of the region.
        payload: Offset,
    },
    /// The heap and its buddy allocator describe different regions.
    #[error("the heap and its buddy allocator at {metadata} describe different regions")]
    Different {
        /// The offset of the allocator's metadata.
        metadata: Offset,
    },
}

/// The reason why an allocator could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no allocator, or its creation was interrupted.
    #[error("there is no heap or buddy allocator at {at}: its first word is {magic:#x}")]
    NotOne {
        /// The offset that was to be opened.
        at: Offset,
        /// The first word there.
        magic: u64,
    },
    /// The header is damaged.
    #[error(
        "the header of the heap or buddy allocator at {at} is corrupt: its checksum is {found:#x}, not {expected:#x}"
    )]
    Checksum {
        /// The offset of the allocator.
        at: Offset,
        /// The checksum of the header's words.
        expected: u64,
        /// The checksum that the header holds.
        found: u64,
    },
    /// The header describes an impossible region.
    #[error("the header of the heap or buddy allocator at {at} is invalid: {source}")]
    Region {
        /// The offset of the allocator.
        at: Offset,
        /// The reason why it is impossible.
        source: RegionError,
    },
}

/// The allocator's metadata contradict one another. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the allocator's tree is corrupt at {at}: {what}; run `outlive pod check`")]
pub struct CorruptTree {
    /// The offset of the inconsistent word.
    pub at: Offset,
    /// The inconsistency.
    pub what: &'static str,
}

/// The reason why nothing was allocated. Nothing has changed in that case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// No free block is large enough now.
    #[error(
        "no block of {asked} bytes is free; the largest free block has {largest_free} bytes: free \
         some blocks, or manage a larger region"
    )]
    Full {
        /// The requested size in bytes.
        asked: u64,
        /// The size of the largest free block in bytes.
        largest_free: u64,
    },
    /// The heap is full, even after all possible blocks were returned.
    #[error(
        "the heap of {heap} bytes has no free block of {asked} bytes: {free} bytes are free, the \
         largest free block has {largest_free}{}; free some memory, or use a larger pod (`outlive \
         pod create --size`)",
        waiting(*retired)
    )]
    HeapFull {
        /// The requested size in bytes.
        asked: u64,
        /// The size of the largest free block in bytes.
        largest_free: u64,
        /// The size of the heap in bytes.
        heap: u64,
        /// The number of free bytes, without free blocks of slabs. Other threads change it.
        free: u64,
        /// The number of bytes that this thread has retired and that are not freed yet.
        retired: u64,
    },
    /// No block can ever be that large.
    #[error(
        "a block of {asked} bytes was requested, but the largest block of this region has {most}; \
         request several blocks, or use a larger region"
    )]
    TooLarge {
        /// The requested size in bytes.
        asked: u64,
        /// The size of the largest possible block in bytes.
        most: u64,
    },
    /// The cell is in use: its block would leak.
    #[error("the cell at {cell} already holds {holds:#x}; free that block from the cell first")]
    CellOccupied {
        /// The offset of the cell.
        cell: Offset,
        /// The value of the cell.
        holds: u64,
    },
    /// The cell is not a word of this memory.
    #[error("the cell cannot be written: {0}")]
    BadCell(OffsetOutOfRange),
    /// Another operation of the caller is running; this one would displace its descriptor.
    #[error(
        "operation {sequence} of this member has not ended; allocate within it (`Locked::allocate`)"
    )]
    OperationRuns {
        /// The number of the running operation.
        sequence: u64,
    },
    /// The tree is damaged.
    #[error(transparent)]
    Corrupt(#[from] CorruptTree),
    /// The allocator's lock is not available.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The caller's log cannot take the change.
    #[error(transparent)]
    Log(#[from] RedoError),
}

/// Describes the bytes that a thread has retired, if there are any.
fn waiting(retired: u64) -> String {
    match retired {
        0 => String::new(),
        retired => format!(
            ", and {retired} bytes that this thread has retired are not freed yet (try again; \
             values that are read in place delay it)"
        ),
    }
}

impl AllocateError {
    /// Returns the requested size in bytes, if no block of that size is available.
    pub fn asked(&self) -> Option<u64> {
        match self {
            Self::Full { asked, .. }
            | Self::HeapFull { asked, .. }
            | Self::TooLarge { asked, .. } => Some(*asked),
            _ => None,
        }
    }
}

/// The reason why nothing was freed. Nothing has changed in that case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// No block of this region can start there.
    #[error(
        "{block} is not the start of a block: blocks start at multiples of {unit} bytes from \
         {first} to {end}"
    )]
    Outside {
        /// The offset that was to be freed.
        block: Offset,
        /// The start of the region.
        first: Offset,
        /// The end of the region.
        end: Offset,
        /// The size of a unit in bytes.
        unit: u64,
    },
    /// No block is allocated there: it was freed before, or never allocated.
    #[error(
        "{block} is not allocated: it was freed before, or never allocated; free each block once"
    )]
    NotAllocated {
        /// The offset that was to be freed.
        block: Offset,
    },
    /// The offset is in the middle of a block.
    #[error(
        "{block} is inside the block of {bytes} bytes that starts at {start}; free that block by \
         its start"
    )]
    Inside {
        /// The offset that was to be freed.
        block: Offset,
        /// The start of the block.
        start: Offset,
        /// The size of the block in bytes.
        bytes: u64,
    },
    /// The cell holds no block.
    #[error(
        "the cell at {cell} is empty: its block was freed before, or none was ever allocated into \
         it"
    )]
    CellEmpty {
        /// The offset of the cell.
        cell: Offset,
    },
    /// The cell is not a word of this memory.
    #[error("the cell cannot be written: {0}")]
    BadCell(OffsetOutOfRange),
    /// Another operation of the caller is running; this one would displace its descriptor.
    #[error("operation {sequence} of this member has not ended; free within it (`Locked::free`)")]
    OperationRuns {
        /// The number of the running operation.
        sequence: u64,
    },
    /// The tree is damaged.
    #[error(transparent)]
    Corrupt(#[from] CorruptTree),
    /// The allocator's lock is not available.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The caller's log cannot take the change.
    #[error(transparent)]
    Log(#[from] RedoError),
}
