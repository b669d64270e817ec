//! An incarnation of a member: an id with a generation.

use core::fmt;

/// The number of a member, stable across its restarts.
pub type InstanceId = u32;

/// An incarnation of a member, in one 64-bit word (LUPIN §3.1).
///
/// The segment holds the current generation of every id. An instance is dead if, and only if, its
/// generation is not the current one of its id.
///
/// ```
/// use outlive::membership::Instance;
/// let first = Instance::new(7, 1);
/// assert_eq!(Instance::from_word(first.to_word()), Some(first));
/// assert_eq!(Instance::from_word(0), None);
/// assert_eq!(first.to_string(), "7.1");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance {
    /// The id that all incarnations share.
    pub id: InstanceId,
    /// The incarnation, from 1.
    pub generation: u32,
}

impl Instance {
    /// The word that stands for no instance.
    pub const NONE: u64 = 0;

    /// Returns the instance `generation` of `id`.
    #[inline(always)]
    pub const fn new(id: InstanceId, generation: u32) -> Self {
        Self { id, generation }
    }

    /// Returns the word that is stored in lock words, logs and records: the generation in the high
    /// half, the id in the low half.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        (self.generation as u64) << 32 | self.id as u64
    }

    /// Returns the instance in a word from shared memory; `None` for [`NONE`](Self::NONE) and
    /// any other word of generation 0, which no instance has.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Option<Self> {
        let generation = (word >> 32) as u32;
        if generation == 0 {
            return None;
        }
        Some(Self {
            id: word as u32,
            generation,
        })
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.generation)
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instance({self})")
    }
}
