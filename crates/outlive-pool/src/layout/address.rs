//! Logical addresses.

use core::fmt;

/// A logical address: a byte of an allocation in the pool. It stays the same when the data moves.
///
/// ```text
/// 63            49 48                                            0
/// |  generation   |  slice number, and the byte in the slice     |
/// ```
///
/// The generation is that of the allocation. It differs between two allocations that have the same
/// slices one after another, so the use of a freed address is an error. It differs between two
/// allocations beside each other, so an access that leaves its allocation is an error, too. It has
/// 15 bits: after 32,767 allocations of a slice, or of slices that were allocated together with it,
/// a freed address may be taken for a later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u64);

impl Address {
    /// The number of bits of the position.
    pub const POSITION_BITS: u32 = 49;

    const POSITIONS: u64 = (1 << Self::POSITION_BITS) - 1;

    pub(crate) const fn new(generation: u16, position: u64) -> Self {
        Self((generation as u64) << Self::POSITION_BITS | position & Self::POSITIONS)
    }

    /// Returns the address in a word that [`to_word`](Self::to_word) returned. `None` for
    /// generation 0, which no allocation has.
    pub const fn from_word(word: u64) -> Option<Self> {
        match word >> Self::POSITION_BITS {
            0 => None,
            _ => Some(Self(word)),
        }
    }

    /// Returns the word that names the address, for other processes.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Returns the generation of the allocation.
    pub const fn generation(self) -> u16 {
        (self.0 >> Self::POSITION_BITS) as u16
    }

    /// Returns the byte in the pool: the slice number times the size of a slice, and the byte in
    /// the slice.
    pub const fn position(self) -> u64 {
        self.0 & Self::POSITIONS
    }

    /// Returns the address `bytes` bytes farther on, in the same allocation. If that is beyond the
    /// last position, it is an address that no allocation has.
    pub const fn plus(self, bytes: u64) -> Self {
        let position = self.position().saturating_add(bytes);
        let inside = match position < Self::POSITIONS {
            true => position,
            false => Self::POSITIONS,
        };
        Self::new(self.generation(), inside)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}.{}", self.position(), self.generation())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}
