//! What can go wrong.

use crate::recovery::RedoError;
use crate::sync::LockError;
use outlive_memory::{Offset, OffsetOutOfRange};

/// A region that a buddy allocator cannot manage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The unit is not a power of two of at least 64 bytes.
    #[error("a unit of {unit} bytes is not a power of two from 64")]
    BadUnit {
        /// The unit.
        unit: u64,
    },
    /// The region has no unit, or too many.
    #[error(
        "a region of {bytes} bytes has {units} units of {unit} bytes; 1 to 2^30 can be managed"
    )]
    BadSize {
        /// The size of the region.
        bytes: u64,
        /// The size of a unit.
        unit: u64,
        /// How many units that makes.
        units: u64,
    },
    /// The metadata or the region are not inside the memory, or not aligned.
    #[error("the region or its metadata: {0}")]
    Outside(OffsetOutOfRange),
    /// The metadata lie in the region that they are about.
    #[error("metadata at {metadata} overlap the region at {payload}")]
    Overlap {
        /// Where the metadata are.
        metadata: Offset,
        /// Where the region is.
        payload: Offset,
    },
}

/// Why an allocator could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is none there, or its creation was cut short.
    #[error("there is no heap or buddy allocator at {at}: its first word is {magic:#x}")]
    NotOne {
        /// Where it was looked for.
        at: Offset,
        /// What stands there.
        magic: u64,
    },
    /// The header is damaged.
    #[error(
        "the header of the heap or buddy allocator at {at} is corrupt: its checksum is {found:#x}, not {expected:#x}"
    )]
    Checksum {
        /// Where it is.
        at: Offset,
        /// What its checksum should be.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// The header describes a region that cannot be.
    #[error("the header of the heap or buddy allocator at {at} is impossible: {source}")]
    Region {
        /// Where it is.
        at: Offset,
        /// What is impossible.
        source: RegionError,
    },
}

/// The allocator's metadata contradict one another. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the allocator's tree is corrupt at {at}: {what}; run `outlive pod check`")]
pub struct CorruptTree {
    /// The word that cannot be.
    pub at: Offset,
    /// What is wrong with it.
    pub what: &'static str,
}

/// Why nothing was allocated. Nothing is changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// No free block is large enough now.
    #[error("no block of {asked} bytes is free; the largest free block has {largest_free} bytes")]
    Full {
        /// What was asked for.
        asked: u64,
        /// The largest block that could have been had.
        largest_free: u64,
    },
    /// The heap has no room, whatever is given back: it is too small for what is kept in it.
    #[error(
        "the heap of {heap} bytes has no room for {asked} bytes (its largest free block has {largest_free}); create the pod with a heap of at least {enough} bytes"
    )]
    HeapFull {
        /// What was asked for.
        asked: u64,
        /// The largest block that is free.
        largest_free: u64,
        /// The size of the heap.
        heap: u64,
        /// The size to ask for when the pod is made anew.
        enough: u64,
    },
    /// No block can ever be that large.
    #[error("{asked} bytes were asked for; the largest block of this region has {most}")]
    TooLarge {
        /// What was asked for.
        asked: u64,
        /// The largest block that there can be.
        most: u64,
    },
    /// The cell is in use: its block would leak.
    #[error("the cell at {cell} already holds {holds:#x}; free from it first")]
    CellOccupied {
        /// The cell.
        cell: Offset,
        /// What it holds.
        holds: u64,
    },
    /// The cell is not a word of this memory.
    #[error("the cell cannot be written: {0}")]
    BadCell(OffsetOutOfRange),
    /// Another operation of the caller is running, whose descriptor this one would displace.
    #[error("operation {sequence} of the caller still runs; allocate in its redo transaction")]
    OperationRuns {
        /// Its number.
        sequence: u64,
    },
    /// The tree is damaged.
    #[error(transparent)]
    Corrupt(#[from] CorruptTree),
    /// The allocator's lock cannot be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The caller's log cannot take the change.
    #[error(transparent)]
    Log(#[from] RedoError),
}

impl AllocateError {
    /// How many bytes were asked for, if there is no block that large.
    pub fn asked(&self) -> Option<u64> {
        match self {
            Self::Full { asked, .. }
            | Self::HeapFull { asked, .. }
            | Self::TooLarge { asked, .. } => Some(*asked),
            _ => None,
        }
    }
}

/// Why nothing was freed. Nothing is changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// No block of this region can start there.
    #[error(
        "{block} is not a block's start: blocks start at multiples of {unit} bytes from {first} to {end}"
    )]
    Outside {
        /// What was to be freed.
        block: Offset,
        /// Where the region starts.
        first: Offset,
        /// Where it ends.
        end: Offset,
        /// The size of a unit.
        unit: u64,
    },
    /// The place is free: it was freed before, or never allocated.
    #[error("{block} is not allocated: it was freed before, or never allocated")]
    NotAllocated {
        /// What was to be freed.
        block: Offset,
    },
    /// The place is in the middle of a block.
    #[error("{block} is inside the block of {bytes} bytes that starts at {start}; free that")]
    Inside {
        /// What was to be freed.
        block: Offset,
        /// Where the block starts.
        start: Offset,
        /// Its size.
        bytes: u64,
    },
    /// The cell holds no block.
    #[error("the cell at {cell} is empty: it was freed from before, or never allocated into")]
    CellEmpty {
        /// The cell.
        cell: Offset,
    },
    /// The cell is not a word of this memory.
    #[error("the cell cannot be written: {0}")]
    BadCell(OffsetOutOfRange),
    /// Another operation of the caller is running, whose descriptor this one would displace.
    #[error("operation {sequence} of the caller still runs; free in its redo transaction")]
    OperationRuns {
        /// Its number.
        sequence: u64,
    },
    /// The tree is damaged.
    #[error(transparent)]
    Corrupt(#[from] CorruptTree),
    /// The allocator's lock cannot be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The caller's log cannot take the change.
    #[error(transparent)]
    Log(#[from] RedoError),
}
