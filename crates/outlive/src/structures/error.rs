//! The errors of structures.

use crate::heap::buddy::AllocateError;
use outlive_memory::{Offset, OffsetOutOfRange};

/// The reason why a structure could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The place holds no structure.
    #[error(
        "there is no list or map at {at}: its first word is {magic:#x}; open one where it was \
         created"
    )]
    NotOne {
        /// The place.
        at: Offset,
        /// The first word there.
        magic: u64,
    },
    /// The structure would not be inside the memory.
    #[error("a list or map cannot be placed at {at}: {source}")]
    Outside {
        /// The place.
        at: Offset,
        /// The range that is outside.
        source: OffsetOutOfRange,
    },
    /// The header is damaged.
    #[error(
        "the header at {at} is corrupt: its checksum is {found:#x}, not {expected:#x}; run \
         `outlive pod check`"
    )]
    Checksum {
        /// The offset.
        at: Offset,
        /// The expected checksum.
        expected: u64,
        /// The checksum in the header.
        found: u64,
    },
    /// The header records keys or values that are larger than the memory.
    #[error(
        "the header at {at} is corrupt: {what} of {bytes} bytes do not fit into the memory; run \
         `outlive pod check`"
    )]
    Sizes {
        /// The offset.
        at: Offset,
        /// Keys or values.
        what: &'static str,
        /// The size in the header.
        bytes: u64,
    },
    /// The structure was created by a version of Outlive that this one does not know.
    #[error(
        "the structure at {at} is of an unknown kind ({word:#x}); it was created by a newer \
         version of Outlive; use that version"
    )]
    UnknownKind {
        /// The offset.
        at: Offset,
        /// The kind in its header.
        word: u64,
    },
    /// The structure is of another kind.
    #[error("there is a {found} at {at}, not a {wanted}; open it as a {found}")]
    OtherKind {
        /// The offset.
        at: Offset,
        /// The kind found.
        found: &'static str,
        /// The kind wanted.
        wanted: &'static str,
    },
    /// The keys or values are of another type.
    #[error(
        "the list or map at {at} was created for other {what}: fingerprint {found:016x}, not \
         {wanted:016x}; open it with the types of its creation"
    )]
    OtherType {
        /// The offset.
        at: Offset,
        /// Keys or values.
        what: &'static str,
        /// The fingerprint of the type that the structure was created with.
        found: u64,
        /// The fingerprint of the type that was wanted.
        wanted: u64,
    },
}

/// The reason why a structure could not be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The cell is in use.
    #[error("the cell at {cell} already holds {holds:#x}; open the structure that it leads to")]
    CellOccupied {
        /// The cell.
        cell: Offset,
        /// The value of the cell.
        holds: u64,
    },
    /// The cell leads to something other than the requested structure.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The heap has no free space.
    #[error(transparent)]
    Heap(#[from] AllocateError),
}

/// The reason why nothing was inserted. `V` is the type that values are read as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError<V> {
    /// The key exists, with this value.
    #[error("the key exists already; replace or update its value")]
    Exists(V),
    /// The heap has no free space.
    #[error(transparent)]
    Heap(#[from] AllocateError),
}
