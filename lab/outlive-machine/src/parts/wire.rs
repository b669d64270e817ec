//! How large messages are.

use crate::description::Wire;
use crate::line::Line;

/// What a message carries besides its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Nothing: requests, invalidations, acknowledgements, recalls.
    Nothing,
    /// A whole line: a grant or an answer to a recall with data, a line that is put back, 64 bytes of a log.
    Line,
    /// The words of a line that a mask names (bit `i`: word `i`), and the mask: a replication, a write-through.
    Words(u8),
    /// A logical timestamp, the number of a commit, an epoch: a validation.
    Validation,
    /// So many numbers of 4 bytes: what logging units say of the commits that they have.
    Numbers(u32),
}

/// The fields of every message's header and their widths in bits. They go into the default header of 16 bytes, with 12 bits left:
/// whatever a message carries beyond them is a [`Content`].
pub const HEADER_FIELDS: [(&str, u32); 6] = [
    ("kind of message", 6),
    ("address of the line, or which round of a dump", 58),
    ("port of the sender", 7),
    ("port of the receiver", 7),
    ("core of the requester", 6),
    // A grant has the line's epoch; REPL, REPL_ACK and VAL the sequence that tells a core's REPLs apart.
    ("epoch, sequence, or which piece of a dump", 32),
];

/// How many bytes messages have on the wire, as [`Wire`] describes it. All parts that count bytes take them from here.
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
    /// The sizes of a description, which has been checked.
    pub fn new(wire: &Wire) -> Self {
        Self {
            slot: wire.slot.0,
            header: wire.header.0,
            mask: wire.mask.0,
            validation: wire.timestamp.0 + wire.commit.0 + wire.epoch.0,
        }
    }

    /// The size of a message with this content, in bytes; a multiple of a slot.
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
