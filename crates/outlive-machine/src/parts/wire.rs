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
    /// A logical timestamp: a validation.
    Timestamp,
    /// So many numbers of 4 bytes: what logging units say of the commits that they have.
    Numbers(u32),
}

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
/// assert_eq!(sizes.bytes(Content::Timestamp), 32);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireSizes {
    slot: u64,
    header: u64,
    mask: u64,
    timestamp: u64,
}

impl WireSizes {
    /// The sizes of a description, which has been checked.
    pub fn new(wire: &Wire) -> Self {
        Self {
            slot: wire.slot.0,
            header: wire.header.0,
            mask: wire.mask.0,
            timestamp: wire.timestamp.0,
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
            Content::Timestamp => self.timestamp,
            Content::Numbers(count) => u64::from(count) * size_of::<u32>() as u64,
        };
        (self.header + payload).next_multiple_of(self.slot)
    }
}
