//! The words of the tables, packed into 64 bits each.

use outlive::membership::Instance;

/// The word of a slice in the coarse map.
///
/// ```text
/// 63      52 51            40 39              25  24  23  22        0
/// | segment | its generation | of the allocation | M | F | fine index |
/// ```
///
/// With M the slice can be accessed. Without M and with a segment, a frame is being claimed or
/// released, and only the slice's owner uses the word. Segment 0: the slice has no frame. With F no
/// writer begins, because a mover copies the last changes to another frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapWord(pub u64);

const MAPPED: u64 = 1 << 24;
const FROZEN: u64 = 1 << 23;

impl MapWord {
    /// The largest generation of a segment.
    pub const LAST_SERVER_GENERATION: u64 = (1 << 12) - 1;
    /// The largest generation of an allocation.
    pub const LAST_GENERATION: u16 = (1 << 15) - 1;
    /// The number of fine indices.
    pub const FRAMES: u64 = 1 << 23;

    /// Returns the word of a slice without a frame.
    pub const fn unmapped(generation: u16) -> Self {
        Self((generation as u64) << 25)
    }

    /// Returns the word of a slice whose frame is being claimed.
    pub const fn pending(segment: u16, server: u64, generation: u16, index: u32) -> Self {
        let (segment, generation) = (segment as u64, generation as u64);
        Self(segment << 52 | server << 40 | generation << 25 | index as u64)
    }

    pub const fn with_access(self) -> Self {
        Self(self.0 | MAPPED)
    }

    pub const fn without_access(self) -> Self {
        Self(self.0 & !(MAPPED | FROZEN))
    }

    pub const fn frozen(self) -> Self {
        Self(self.0 | FROZEN)
    }

    pub const fn thawed(self) -> Self {
        Self(self.0 & !FROZEN)
    }

    pub const fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// Returns whether both words name the same frame.
    pub const fn has_frame_of(self, other: Self) -> bool {
        self.without_access().0 == other.without_access().0
    }

    /// Returns whether both words name the same generation of the same server.
    pub const fn has_server_of(self, other: Self) -> bool {
        self.segment() != 0
            && self.segment() == other.segment()
            && self.server_generation() == other.server_generation()
    }

    pub const fn has_access(self) -> bool {
        self.0 & MAPPED != 0
    }

    pub const fn segment(self) -> u16 {
        (self.0 >> 52) as u16
    }

    pub const fn server_generation(self) -> u64 {
        self.0 >> 40 & Self::LAST_SERVER_GENERATION
    }

    pub const fn generation(self) -> u16 {
        (self.0 >> 25) as u16 & Self::LAST_GENERATION
    }

    pub const fn index(self) -> u32 {
        (self.0 & (Self::FRAMES - 1)) as u32
    }
}

/// The owner of a slice.
///
/// ```text
/// 0                        free
/// generation | id          the first slice of an allocation of this instance
/// 0 | 1 | 0 | generation   the first slice of an allocation that was kept
/// 0 | 1 | 1 | generation   the first slice of an allocation that a leased object has
/// 0 | 0 | first slice + 1  another slice of an allocation
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Free,
    Instance(Instance),
    Kept(u16),
    Object(u16),
    PartOf(u64),
}

const KEPT: u64 = 1 << 31;
const OF_OBJECT: u64 = 1 << 30;

impl Owner {
    pub const fn to_word(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Instance(instance) => instance.to_word(),
            Self::Kept(generation) => KEPT | generation as u64,
            Self::Object(generation) => KEPT | OF_OBJECT | generation as u64,
            Self::PartOf(first) => first + 1,
        }
    }

    pub fn from_word(word: u64) -> Self {
        match (Instance::from_word(word), word) {
            (Some(instance), _) => Self::Instance(instance),
            (None, 0) => Self::Free,
            (None, word) if word & KEPT == 0 => Self::PartOf(word - 1),
            (None, word) if word & OF_OBJECT == 0 => Self::Kept(word as u16),
            (None, word) => Self::Object(word as u16),
        }
    }
}

/// The shape of a replicated allocation: a run that has all slices of the first replica, then those
/// of the second, and so on. In the holder words of the slices of the first replica.
///
/// ```text
/// 63   62                            34 33  32  31        0
/// | S |  unused                        | replicas | slices |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The number of slices of one replica.
    pub slices: u64,
    pub replicas: u64,
}

const SHAPE: u64 = 1 << 63;

impl Shape {
    pub const fn to_word(self) -> u64 {
        SHAPE | self.replicas << 32 | self.slices
    }

    /// Returns the shape in a word; `None` for the other words of holders.
    pub fn from_word(word: u64) -> Option<Self> {
        let shape = Self {
            slices: word & u64::from(u32::MAX),
            replicas: word >> 32 & 3,
        };
        (word & SHAPE != 0 && shape.slices > 0 && shape.replicas > 1).then_some(shape)
    }
}

/// The word of a frame in the fine map of its server.
///
/// ```text
///  63   62   61               24 23         0
/// | U | D |  slice              |  frame     |
/// ```
///
/// U: the frame is in use by the slice. D: it was in use before, so it may not be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameWord(pub u64);

const USED: u64 = 1 << 63;
const DIRTY: u64 = 1 << 62;

impl FrameWord {
    pub const fn free(frame: u32) -> Self {
        Self(frame as u64)
    }

    pub const fn claimed_by(self, slice: u64) -> Self {
        Self(USED | self.0 & DIRTY | slice << 24 | self.frame())
    }

    pub const fn released(self) -> Self {
        Self(DIRTY | self.frame())
    }

    pub const fn soiled(self) -> Self {
        Self(self.0 | DIRTY)
    }

    pub const fn is_used(self) -> bool {
        self.0 & USED != 0
    }

    pub const fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Returns whether the slice has the frame.
    pub const fn is_of(self, slice: u64) -> bool {
        self.is_used() && (self.0 & (DIRTY - 1)) >> 24 == slice
    }

    /// Returns the slice that has the frame.
    pub fn slice(self) -> Option<u64> {
        self.is_used().then_some((self.0 & (DIRTY - 1)) >> 24)
    }

    pub const fn frame(self) -> u64 {
        self.0 & (MapWord::FRAMES - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_each_word_come_back() {
        let last = MapWord::LAST_SERVER_GENERATION;
        let word = MapWord::pending(4095, last, MapWord::LAST_GENERATION, (1 << 23) - 1);
        for word in [word, word.with_access()] {
            assert_eq!((word.segment(), word.server_generation()), (4095, last));
            assert_eq!((word.generation(), word.index()), (32_767, (1 << 23) - 1));
        }
        assert!(word.with_access().has_access() && !word.has_access());
        assert_eq!(word.with_access().without_access(), word);
        assert_eq!(MapWord::unmapped(9).segment(), 0);
        let owners = [
            Owner::Free,
            Owner::Instance(Instance::new(u32::MAX, 1)),
            Owner::Kept(32_767),
            Owner::Object(1),
            Owner::Object(32_767),
            Owner::PartOf(0),
            Owner::PartOf((1 << 30) - 1),
        ];
        for owner in owners {
            assert_eq!(Owner::from_word(owner.to_word()), owner);
        }
        let shape = Shape {
            slices: 1 << 30,
            replicas: 3,
        };
        assert_eq!(Shape::from_word(shape.to_word()), Some(shape));
        assert_eq!(Shape::from_word(1 << 32 | 7), None);
        let used = FrameWord::free(7).claimed_by((1 << 30) - 1);
        assert!(used.is_of((1 << 30) - 1) && !used.is_of(0) && !used.is_dirty());
        let again = used.released().claimed_by(3);
        assert!(again.is_of(3) && again.is_dirty());
        assert_eq!(again.frame(), 7);
    }
}
