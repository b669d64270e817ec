//! Errors of traces, and their locations.

use std::io;

/// A trace that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened.
    #[error("the trace cannot be opened: {0}")]
    Open(io::Error),
    /// The path is a directory, a pipe or a device.
    #[error(
        "a trace must be a regular file, since it is read at many places at once, and this is \
         {what}; write the trace to a file first"
    )]
    NoFile {
        /// The kind of file that it is instead.
        what: &'static str,
    },
    /// The file could not be read or written.
    #[error("the trace cannot be {doing} at byte {offset}: {source}")]
    Io {
        /// `read` or `written`.
        doing: &'static str,
        /// The offset in the file.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file does not begin as a trace does.
    #[error(
        "this is not a trace: it does not begin with `OutTrace`; traces are made by `outlive-lab machine record-build`"
    )]
    Foreign,
    /// The trace has a version that this library does not know.
    #[error(
        "the trace has format version {found}, and this program reads version {known} only; record it again"
    )]
    Version {
        /// The version in the file.
        found: u32,
        /// The version that this library reads.
        known: u32,
    },
    /// The file ends within its blocks, or before the end of the trace.
    #[error(
        "the trace ends too early, at byte {length}: it was cut off, or the recorded program did \
         not reach its end; record it again"
    )]
    Truncated {
        /// The length of the file.
        length: u64,
    },
    /// Something in the trace is impossible.
    #[error("the trace is damaged at byte {offset}: {what}; record it again, or copy it again")]
    Damaged {
        /// The offset in the file; for a flaw within a block, the block's offset.
        offset: u64,
        /// The flaw.
        what: Flaw,
    },
    /// The trace has no operation to replay.
    #[error("the trace has no operations, so there is nothing to run: {}; record it again", why_empty(*.region_only))]
    Empty {
        /// Whether only the region of interest was recorded.
        region_only: bool,
    },
    /// The data cannot be represented in a trace.
    #[error("this cannot be written to a trace: {0}")]
    Unwritable(Flaw),
}

fn why_empty(region_only: bool) -> &'static str {
    if region_only {
        "with OUTLIVE_RECORD=roi only the code between outlive_roi_begin() and outlive_roi_end() \
         is recorded, and the program did not reach it, or did nothing there; put these calls \
         around the code to be recorded, or leave OUTLIVE_RECORD out"
    } else {
        "none of the program's code was compiled by `outlive-lab machine record-build`, or it did nothing"
    }
}

/// A flaw at some offset of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A checksum does not match.
    #[error("the checksum does not match")]
    Checksum,
    /// The first bytes of a block are not those of a block.
    #[error("no block begins here")]
    NoBlock,
    /// A field of a block's header, the index or the footer has an impossible or unknown value.
    #[error("the field `{0}` has an invalid value")]
    Field(&'static str),
    /// Reserved bytes are not zero.
    #[error("reserved bytes are not zero")]
    Reserved,
    /// The last bytes are not those that end a trace, although everything before them is there.
    #[error("the last 8 bytes are not `ecarTtuO`, the end mark of a trace")]
    End,
    /// The trace is complete, and more bytes follow it.
    #[error("the trace ends here, and the file is {bytes} byte{} longer", if *.bytes == 1 { "" } else { "s" })]
    Follows {
        /// The number of bytes.
        bytes: u64,
    },
    /// The compressed contents cannot be unpacked, or their length differs from the header's.
    #[error("the compressed contents cannot be unpacked")]
    Deflate,
    /// The trace's about section is longer than the limit.
    #[error("the description in it is larger than {} MiB", super::about::MOST_BYTES >> 20)]
    Lengthy,
    /// A thread holds more locks than a trace may have.
    #[error("a thread holds more than {} locks at once", super::survey::MOST_HELD)]
    Holds,
    /// The contents end within an item.
    #[error("item {item} goes beyond the end of its block")]
    Ends {
        /// Its index in the block, from 0.
        item: u32,
    },
    /// An item has an unknown kind, or a field with an impossible value.
    #[error("item {item} of its block: the field `{field}` has an invalid value")]
    Item {
        /// Its index in the block, from 0.
        item: u32,
        /// The field's name.
        field: &'static str,
    },
    /// The block holds more than its header says.
    #[error("the block holds more than its {items} items")]
    Surplus {
        /// The number of items in the header.
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
