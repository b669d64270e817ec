//! Logical addresses.

use core::fmt;

/// The bit in a generation of the memory of leased objects.
const OF_OBJECTS: u16 = 1 << 14;

/// The bit in a generation of memory with replicas.
const REPLICATED: u16 = 1 << 13;

/// The use of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Memory that readers access by its address.
    Plain,
    /// The same, with this number of replicas, 2 or 3, each on another server.
    Replicated(u8),
    /// The memory of a leased object, of zeros.
    Object,
    /// The memory of a leased object, all bytes of which its creator overwrites: it has any bytes.
    Overwritten,
}

/// The largest count of allocations in a generation.
pub(crate) const LAST_COUNT: u16 = REPLICATED - 1;

impl Use {
    /// Returns the generation with this count, from 1 to [`LAST_COUNT`].
    pub(crate) const fn generation(self, count: u16) -> u16 {
        match self {
            Self::Plain => count,
            Self::Replicated(_) => REPLICATED | count,
            Self::Object | Self::Overwritten => OF_OBJECTS | count,
        }
    }

    /// Returns the number of frames of each slice.
    pub(crate) const fn replicas(self) -> u64 {
        match self {
            Self::Replicated(replicas) => replicas as u64,
            Self::Plain | Self::Object | Self::Overwritten => 1,
        }
    }
}

/// Returns the count in a generation, which continues when the use of a slice changes.
pub(crate) const fn count_of(generation: u16) -> u16 {
    generation & LAST_COUNT
}

/// A logical address: a byte of an allocation in the pool. It stays the same when the data moves.
///
/// ```text
/// 63            49 48                                            0
/// | O | R | count |  slice number, and the byte in the slice     |
/// ```
///
/// O, R and the count are the generation of the allocation, with O for the memory of a leased
/// object and R for memory with replicas. It differs between two allocations that have the same
/// slices one after another, so the use of a freed address is an error. It differs between two
/// allocations beside each other, so an access that leaves its allocation is an error, too. The
/// count has 13 bits: after 8191 allocations of a slice, or of slices that were allocated together
/// with it, a freed address may be taken for a later one.
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

    /// Returns whether this is the address of the memory of a leased object, which a
    /// [`Reader`](crate::Reader) cannot access: readers write, and the bytes of a sealed object
    /// never change.
    pub const fn is_of_object(self) -> bool {
        self.generation() & OF_OBJECTS != 0
    }

    /// Returns whether the slices of the allocation have replicas on other servers.
    pub const fn is_replicated(self) -> bool {
        self.generation() & REPLICATED != 0
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
