//! What is wrong with a trace, and where.

use std::io;

/// A trace that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened.
    #[error("the trace cannot be opened: {0}")]
    Open(io::Error),
    /// It is a directory, a pipe or a device.
    #[error(
        "a trace is read in many places at once, so it must be a file, and this is {what}; write the trace to a file first"
    )]
    NoFile {
        /// What it is instead.
        what: &'static str,
    },
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
        "this is not a trace: it does not begin with `OutTrace`; traces are made by `outlive-lab machine record-build`"
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
    /// It ends within its blocks, or before its end.
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
    /// There is nothing in it to be done again.
    #[error("the trace has no operations, so there is nothing to run: {}; record it again", why_empty(*.region_only))]
    Empty {
        /// Whether only the region of interest was recorded.
        region_only: bool,
    },
    /// What was to be written cannot stand in a trace.
    #[error("this cannot be written to a trace: {0}")]
    Unwritable(Flaw),
}

fn why_empty(region_only: bool) -> &'static str {
    if region_only {
        "with OUTLIVE_RECORD=roi only what is between outlive_roi_begin() and outlive_roi_end() is recorded, and the program \
         did not come there, or did nothing there; put these calls where they belong, or leave OUTLIVE_RECORD out"
    } else {
        "none of the program's code was compiled by `outlive-lab machine record-build`, or it did nothing"
    }
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
    #[error("the field `{0}` has a value that it cannot have")]
    Field(&'static str),
    /// Bytes that are kept for later are not zero.
    #[error("reserved bytes are not zero")]
    Reserved,
    /// The last bytes are not those that a trace ends with, and everything before them is there.
    #[error("the last 8 bytes are not `ecarTtuO`, with which a trace ends")]
    End,
    /// The trace is whole, and more comes after it.
    #[error("the trace ends here, and the file is {bytes} byte{} longer", if *.bytes == 1 { "" } else { "s" })]
    Follows {
        /// How many.
        bytes: u64,
    },
    /// The compressed contents cannot be unpacked, or are not as long as is said.
    #[error("the compressed contents cannot be unpacked")]
    Deflate,
    /// The trace says more about itself than it may.
    #[error("it says more than {} MiB about itself", super::about::MOST_BYTES >> 20)]
    Lengthy,
    /// A thread holds more locks than a trace may have.
    #[error("a thread holds more than {} locks at once", super::survey::MOST_HELD)]
    Holds,
    /// The contents end within an item.
    #[error("item {item} goes beyond the end of its block")]
    Ends {
        /// Which one in the block, from 0.
        item: u32,
    },
    /// An item of unknown kind, or with an impossible field.
    #[error("item {item} of its block: the field `{field}` has a value that it cannot have")]
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
