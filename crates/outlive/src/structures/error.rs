//! What can go wrong.

use crate::heap::buddy::AllocateError;
use outlive_memory::{Offset, OffsetOutOfRange};

/// Why a structure could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is none there.
    #[error("there is no list or map at {at}: its first word is {magic:#x}")]
    NotOne {
        /// Where it was looked for.
        at: Offset,
        /// What stands there.
        magic: u64,
    },
    /// It would not be inside the memory.
    #[error("there can be no list or map at {at}: {source}")]
    Outside {
        /// Where it was looked for.
        at: Offset,
        /// What is outside.
        source: OffsetOutOfRange,
    },
    /// The header is damaged.
    #[error("the header at {at} is corrupt: its checksum is {found:#x}, not {expected:#x}")]
    Checksum {
        /// Where it is.
        at: Offset,
        /// What its checksum should be.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// It was made by a version of Outlive that this one does not know.
    #[error("the structure at {at} is of an unknown kind ({word:#x}); a newer version made it")]
    UnknownKind {
        /// Where it is.
        at: Offset,
        /// What its header says.
        word: u64,
    },
    /// It is another structure.
    #[error("there is a {found} at {at}, not a {wanted}")]
    OtherKind {
        /// Where it is.
        at: Offset,
        /// What is there.
        found: &'static str,
        /// What was wanted.
        wanted: &'static str,
    },
    /// Its keys or values are of another type.
    #[error(
        "the {what} at {at} are of another type: fingerprint {found:016x} instead of {wanted:016x}"
    )]
    OtherType {
        /// Where it is.
        at: Offset,
        /// Keys or values.
        what: &'static str,
        /// The fingerprint of the type that it was made with.
        found: u64,
        /// The fingerprint of the type that was wanted.
        wanted: u64,
    },
}

/// Why a structure could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The cell is in use.
    #[error("the cell at {cell} already holds {holds:#x}; open what is there")]
    CellOccupied {
        /// The cell.
        cell: Offset,
        /// What it holds.
        holds: u64,
    },
    /// What the cell holds is not what was to be made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The heap has no room.
    #[error(transparent)]
    Heap(#[from] AllocateError),
}

/// Why nothing was inserted. `V` is what values are read as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError<V> {
    /// The key is there, with this value.
    #[error("the key is there already")]
    Exists(V),
    /// The heap has no room.
    #[error(transparent)]
    Heap(#[from] AllocateError),
}
