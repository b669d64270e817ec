//! What is wrong with a trace, and where.

use std::io;

/// A trace that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be read or written.
    #[error("the trace cannot be {doing} at byte {offset}: {source}")]
    Io {
        /// `read` or `written`.
        doing: &'static str,
        /// Where in the file.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// It does not begin as a trace does.
    #[error(
        "this is no trace: it does not begin with `OutTrace`; traces are made by `outlive machine record-build`"
    )]
    Foreign,
    /// It is of a version that this library does not know.
    #[error(
        "the trace has format version {found}, and this program reads version {known} only; record it again"
    )]
    Version {
        /// What stands in the file.
        found: u32,
        /// What is known here.
        known: u32,
    },
    /// It does not end as a trace does.
    #[error(
        "the trace ends too early, at byte {length}: it was cut, or the recorded program did not come to its end; record it again"
    )]
    Truncated {
        /// How long the file is.
        length: u64,
    },
    /// Something in it cannot be.
    #[error("the trace is damaged at byte {offset}: {what}; record it again, or copy it again")]
    Damaged {
        /// Where in the file; within a block, where the block begins.
        offset: u64,
        /// What cannot be.
        what: Flaw,
    },
    /// What was to be written cannot stand in a trace.
    #[error("this cannot be written to a trace: {0}")]
    Unwritable(Flaw),
}

/// What is wrong at some place of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A checksum does not fit.
    #[error("the checksum does not fit")]
    Checksum,
    /// A block does not begin as a block does.
    #[error("no block begins here")]
    NoBlock,
    /// A field of a block's header, of the index or of the footer is impossible or not known.
    #[error("`{0}` is impossible")]
    Field(&'static str),
    /// The compressed contents cannot be unpacked, or are not as long as is said.
    #[error("the compressed contents cannot be unpacked")]
    Deflate,
    /// The contents end within an item.
    #[error("item {item} goes beyond the end of its block")]
    Ends {
        /// Which one in the block, from 0.
        item: u32,
    },
    /// An item of unknown kind, or with an impossible field.
    #[error("item {item} of its block: `{field}` is impossible")]
    Item {
        /// Which one in the block, from 0.
        item: u32,
        /// What of it.
        field: &'static str,
    },
    /// More in the block than its header says.
    #[error("the block holds more than its {items} items")]
    Surplus {
        /// What the header says.
        items: u32,
    },
}

impl TraceError {
    pub(super) fn reading(offset: u64) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io {
            doing: "read",
            offset,
            source,
        }
    }

    pub(super) fn damaged(offset: u64, what: Flaw) -> Self {
        Self::Damaged { offset, what }
    }
}
