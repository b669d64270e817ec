//! Positions in shared memory that are valid in every process, wherever the memory is mapped.
//!
//! An [`Offset`] is relative to the start of a segment. Its 64 bits, from the top:
//!
//! ```text
//! 63    60 59            48 47                                             0
//! | tags  | segment number |  byte offset in the segment                   |
//! ```
//!
//! An [`Offset`] has no tags. A [`Link`] is an offset with tags, for algorithms that mark the
//! pointer itself (a logically deleted node, a version). Offset 0 is the superblock, which no
//! structure points to, so an all-zero link is the null link.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Add, Sub};

/// The number of a segment within its pod, 12 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(u16);

impl SegmentNumber {
    /// The first segment of a pod, which has its superblock.
    pub const FIRST: Self = Self(0);

    /// Creates the segment number `number`, if it has at most 12 bits.
    pub const fn new(number: u16) -> Option<Self> {
        if number < 1 << 12 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Returns the number of the segment.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// A place in a pod's memory: a segment number and a byte offset in that segment.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Offset(u64);

/// A number read from a segment that cannot be an offset into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetOutOfRange {
    /// The number that was read.
    pub raw: u64,
    /// The number of bytes to access there.
    pub len: u64,
    /// The size of the memory.
    pub size: u64,
}

impl fmt::Display for OffsetOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "offset {:#x} with {} bytes is outside a segment of {} bytes, or not aligned",
            self.raw, self.len, self.size
        )
    }
}

impl core::error::Error for OffsetOutOfRange {}

impl Offset {
    /// The maximum size of one segment in bytes: 256 TiB.
    pub const SPAN: u64 = 1 << 48;
    /// The bits that an offset may use: all but the four tag bits.
    pub const MASK: u64 = (1 << 60) - 1;

    /// Returns the byte `at` of the first segment.
    ///
    /// # Panics
    /// If `at` is not below [`SPAN`](Self::SPAN).
    #[inline(always)]
    pub const fn new(at: u64) -> Self {
        assert!(at < Self::SPAN, "an offset has at most 48 bits");
        Self(at)
    }

    /// Returns the byte `at` of segment `segment`.
    ///
    /// # Panics
    /// If `at` is not below [`SPAN`](Self::SPAN).
    pub const fn in_segment(segment: SegmentNumber, at: u64) -> Self {
        assert!(at < Self::SPAN, "an offset has at most 48 bits");
        Self((segment.0 as u64) << 48 | at)
    }

    /// Returns the offset with these 64 bits, as [`raw`](Self::raw) returned them. Tag bits are
    /// cleared. Nothing is checked: an access outside the memory panics. [`checked`](Self::checked)
    /// checks first.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw & Self::MASK)
    }

    /// Returns the offset with these 64 bits if `len` bytes there, aligned to `align`, lie inside a
    /// first segment of `size` bytes: for numbers that may be corrupt. Load the number once, check
    /// it, then use the returned offset.
    ///
    /// # Errors
    /// If they do not, or a tag bit is set.
    pub const fn checked(
        raw: u64,
        len: u64,
        align: u64,
        size: u64,
    ) -> Result<Self, OffsetOutOfRange> {
        if raw <= size && len <= size - raw && raw.is_multiple_of(align) {
            Ok(Self(raw))
        } else {
            Err(OffsetOutOfRange { raw, len, size })
        }
    }

    /// Returns the 64 bits of this offset.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the number of the segment that this offset is in.
    pub const fn segment(self) -> SegmentNumber {
        SegmentNumber((self.0 >> 48) as u16 & 0xFFF)
    }

    /// Returns the byte offset inside the segment.
    pub const fn byte(self) -> u64 {
        self.0 & (Self::SPAN - 1)
    }

    /// Returns whether this is offset 0, which stands for "nowhere" in links.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

// An addition that runs over or under sets bits above those of the byte offset, so the result lies
// outside every memory: its access panics. (A single addition of a size cannot wrap to the start.)
impl Add<u64> for Offset {
    type Output = Self;
    #[inline(always)]
    fn add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl Sub<u64> for Offset {
    type Output = Self;
    #[inline(always)]
    fn sub(self, bytes: u64) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.segment().get() {
            0 => write!(f, "{:#x}", self.byte()),
            segment => write!(f, "{segment}:{:#x}", self.byte()),
        }
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offset({self})")
    }
}

/// An offset with four tag bits, in one 64-bit word.
///
/// ```
/// use outlive_memory::{Link, Offset};
/// let link = Link::new(Offset::new(0x1000)).with_tags(0b1);
/// assert_eq!((link.offset(), link.tags()), (Offset::new(0x1000), 1));
/// assert!(Link::NULL.offset().is_null());
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Link(u64);

impl Link {
    /// The link to nowhere, without tags.
    pub const NULL: Self = Self(0);
    /// The number of tag bits of a link.
    pub const TAG_BITS: u32 = 4;

    /// Returns a link to `offset` without tags.
    #[inline(always)]
    pub const fn new(offset: Offset) -> Self {
        Self(offset.0)
    }

    /// Returns a link to the same target, with the low four bits of `tags` as its tags.
    #[inline(always)]
    pub const fn with_tags(self, tags: u8) -> Self {
        Self(self.0 & Offset::MASK | (tags as u64) << 60)
    }

    /// Returns the target.
    #[inline(always)]
    pub const fn offset(self) -> Offset {
        Offset(self.0 & Offset::MASK)
    }

    /// Returns the tags.
    #[inline(always)]
    pub const fn tags(self) -> u8 {
        (self.0 >> 60) as u8
    }

    /// Returns whether the target is null, with any tags.
    #[inline(always)]
    pub const fn is_null(self) -> bool {
        self.0 & Offset::MASK == 0
    }

    /// Returns the word that is stored in shared memory.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Returns the link in a word that was loaded from shared memory.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({}, tags {:04b})", self.offset(), self.tags())
    }
}

/// An [`Offset`] with the type of the value there. It gives no right to read the value: the code
/// that uses it must know that the value is there and how it is shared.
#[repr(transparent)]
pub struct Ptr<T> {
    offset: Offset,
    target: PhantomData<fn() -> T>,
}

impl<T> Ptr<T> {
    /// Returns a pointer to a `T` at `offset`.
    pub const fn new(offset: Offset) -> Self {
        Self {
            offset,
            target: PhantomData,
        }
    }

    /// Returns the offset that the pointer points to.
    pub const fn offset(self) -> Offset {
        self.offset
    }

    /// Returns the same offset, as a pointer to a `U`.
    pub const fn cast<U>(self) -> Ptr<U> {
        Ptr::new(self.offset)
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ptr<T> {}
impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset
    }
}
impl<T> Eq for Ptr<T> {}
impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ptr<{}>({})", core::any::type_name::<T>(), self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_parts_of_an_offset_come_back(segment in 0u16..4096, byte in 0u64..Offset::SPAN, tags in 0u8..16) {
            let number = SegmentNumber::new(segment).unwrap();
            let offset = Offset::in_segment(number, byte);
            prop_assert_eq!((offset.segment(), offset.byte()), (number, byte));
            prop_assert_eq!(Offset::from_raw(offset.raw()), offset);
            let link = Link::new(offset).with_tags(tags);
            prop_assert_eq!((link.offset(), link.tags()), (offset, tags));
            prop_assert_eq!(Link::from_word(link.to_word()), link);
        }

        #[test]
        fn checked_accepts_exactly_what_is_inside_and_aligned(raw: u64, len in 0u64..64, size in 0u64..1 << 20) {
            for raw in [raw, raw % (size + 32)] {
                let inside = u128::from(raw) + u128::from(len) <= u128::from(size) && raw % 8 == 0;
                prop_assert_eq!(Offset::checked(raw, len, 8, size).is_ok(), inside);
            }
        }
    }

    #[test]
    fn a_segment_number_has_twelve_bits() {
        assert!(SegmentNumber::new(4095).is_some());
        assert!(SegmentNumber::new(4096).is_none());
    }
}
