//! The words in which the configuration names places in memory servers.
//!
//! ```text
//! number of the server (8 bits) | step (8) | incarnation of the server (12) | offset / 64 (36)
//! ```
//!
//! The number of a server that is named is not assigned again. The incarnation distinguishes a
//! server that left before it was named from the next one with its number.

use super::configuration::Configuration;
use super::entries::MemoryEntry;
use crate::tables::Place;
use crate::verbs::{RemoteOffset, ServerId};
use outlive::memory::Memory;

/// A server that does not exist, in place of one whose number is another server's now.
pub(super) const NOWHERE: ServerId = ServerId(u16::MAX);

/// The word of a place that does not exist. Its offset is beyond the end of each region.
pub(super) const NO_PLACE: u64 = u64::MAX;

/// The step of a replica that will never be complete. No restoration has it.
pub(super) const NEVER: u8 = u8::MAX;

const OFFSET_BITS: u32 = 36;
const INCARNATION: u64 = (1 << 12) - 1;
const STEP_AT: u32 = 48;
const SERVER_AT: u32 = 56;

/// Returns the word of a place.
pub(super) fn place_word(entry: &MemoryEntry, base: u64, step: u8) -> u64 {
    let incarnation = (entry.incarnation & INCARNATION) << OFFSET_BITS;
    u64::from(entry.id.0) << SERVER_AT | u64::from(step) << STEP_AT | incarnation | (base / 64)
}

/// Returns the word of the same place with another step.
pub(super) const fn with_step(word: u64, step: u8) -> u64 {
    word & !(0xFF << STEP_AT) | (step as u64) << STEP_AT
}

/// Returns the number of the server that a word names.
pub(super) fn named_server(word: u64) -> Option<ServerId> {
    (word != NO_PLACE).then_some(ServerId((word >> SERVER_AT) as u16))
}

impl<M: Memory> Configuration<M> {
    /// Returns the place that a word describes.
    pub(super) fn place_of(self, word: u64) -> Place {
        let entry = named_server(word).and_then(|server| self.memory_server(server));
        let is_same =
            |it: &MemoryEntry| it.incarnation & INCARNATION == word >> OFFSET_BITS & INCARNATION;
        Place {
            server: entry.filter(is_same).map_or(NOWHERE, |it| it.id),
            base: RemoteOffset::new((word & ((1 << OFFSET_BITS) - 1)) * 64),
            step: (word >> STEP_AT) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::Phase;
    use crate::verbs::Region;

    #[test]
    fn words_keep_their_parts() {
        let entry = MemoryEntry {
            id: ServerId(255),
            incarnation: 0xABCD,
            phase: Phase::Live,
            owner: None,
            region: Region { key: 0, bytes: 0 },
        };
        let base = (1 << 41) + 64;
        let word = place_word(&entry, base, 7);
        assert_eq!(named_server(word), Some(ServerId(255)));
        assert_eq!(word & ((1 << OFFSET_BITS) - 1), base / 64);
        assert_eq!(word >> OFFSET_BITS & INCARNATION, 0xBCD);
        assert_eq!((word >> STEP_AT) as u8, 7);
        assert_eq!(with_step(word, 9), place_word(&entry, base, 9));
        assert_ne!(place_word(&entry, (1 << 41) + 64, NEVER), NO_PLACE);
        assert_eq!(named_server(NO_PLACE), None);
    }
}
