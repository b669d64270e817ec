//! The sizes of messages.

use crate::description::Wire;
use crate::line::Line;

/// The content of a message in addition to its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Nothing: requests, invalidations, acknowledgements, recalls.
    Nothing,
    /// A whole line: a grant or an answer to a recall with data, a line that is put back, 64 bytes
    /// of a log.
    Line,
    /// The words of a line in a mask (bit `i`: word `i`), and the mask: a replication, a
    /// write-through.
    Words(u8),
    /// A logical timestamp, the number of a commit, an epoch: a validation.
    Validation,
    /// This number of 4-byte numbers: the commits that logging units report.
    Numbers(u32),
}

/// The fields of every message's header and their widths in bits. They fit into the default header
/// of 16 bytes, with 12 bits left; all further data of a message is a [`Content`].
pub const HEADER_FIELDS: [(&str, u32); 6] = [
    ("kind of message", 6),
    ("address of the line, or which round of a dump", 58),
    ("port of the sender", 7),
    ("port of the receiver", 7),
    ("core of the requester", 6),
    // The epoch of the line in a grant; in REPL, REPL_ACK and VAL the sequence that distinguishes a
    // core's REPLs.
    ("epoch, sequence, or which piece of a dump", 32),
];

/// The sizes of messages, as [`Wire`] describes them. All parts that count bytes take them from
/// here.
///
/// ```
/// use outlive_machine::description::Description;
/// use outlive_machine::parts::{Content, WireSizes};
///
/// let sizes = WireSizes::new(&Description::default().ours.wire);
/// assert_eq!(sizes.bytes(Content::Nothing), 16); // one slot
/// assert_eq!(sizes.bytes(Content::Line), 80);
/// assert_eq!(sizes.bytes(Content::Words(0b0010_0000)), 32); // 16 + 1 + 8, in slots of 16
/// assert_eq!(sizes.bytes(Content::Validation), 32); // 16 + 4 + 4 + 4
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireSizes {
    slot: u64,
    header: u64,
    mask: u64,
    validation: u64,
}

impl WireSizes {
    /// Takes the sizes from a description, which has been checked.
    pub fn new(wire: &Wire) -> Self {
        Self {
            slot: wire.slot.0,
            header: wire.header.0,
            mask: wire.mask.0,
            validation: wire.timestamp.0 + wire.commit.0 + wire.epoch.0,
        }
    }

    /// Returns the size of a message with this content, in bytes; a multiple of a slot.
    #[inline]
    pub fn bytes(&self, content: Content) -> u64 {
        let payload = match content {
            Content::Nothing => 0,
            Content::Line => size_of::<Line>() as u64,
            Content::Words(mask) => {
                self.mask + size_of::<u64>() as u64 * u64::from(mask.count_ones())
            }
            Content::Validation => self.validation,
            Content::Numbers(count) => u64::from(count) * size_of::<u32>() as u64,
        };
        (self.header + payload).next_multiple_of(self.slot)
    }
}
