//! Size classes: 16 to 128 bytes in steps of 16, then four for each doubling, up to 8 KiB.

use super::SLAB;

/// The number of classes.
pub(in crate::heap) const CLASSES: usize = 32;
/// The largest block that comes from a slab, in bytes.
pub(in crate::heap) const LARGEST: u64 = 8 << 10;
/// The number of bitmap words of a slab of the smallest class.
pub(in crate::heap) const WORDS: u64 = SLAB / 16 / 64;

/// The size and number of the blocks that a slab is cut into.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Class {
    /// The size of a block in bytes.
    pub(in crate::heap) size: u32,
    /// The number of blocks in a slab.
    pub(in crate::heap) count: u32,
    /// `2^32 / size`, rounded up. The upper half of its product with a number below the size of a
    /// slab is the quotient, and the lower half is smaller than this inverse exactly if the
    /// remainder is zero (Lemire, Kaser, Kurz 2019).
    pub(in crate::heap) inverse: Inverse,
}

/// The factor to multiply by instead of dividing by the size of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::heap) struct Inverse(u32);

impl Inverse {
    /// Calls [`Class::start_of`].
    #[inline(always)]
    pub(in crate::heap) fn start_of(self, from: u64) -> Option<u64> {
        let product = u64::from(self.0) * from;
        ((product as u32) < self.0).then_some(product >> 32)
    }
}

static TABLE: [Class; CLASSES] = {
    let mut table = [Class {
        size: 0,
        count: 0,
        inverse: Inverse(0),
    }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let size = if class < 8 {
            16 * (class as u32 + 1)
        } else {
            let doubling = (class as u32 - 8) / 4;
            (128 << doubling) + ((class as u32 - 8) % 4 + 1) * (32 << doubling)
        };
        table[class] = Class {
            size,
            count: SLAB as u32 / size,
            inverse: Inverse(u32::MAX / size + 1),
        };
        class += 1;
    }
    table
};

/// The smallest class for each size in started 16-byte units.
static SMALLEST: [u8; LARGEST as usize / 16 + 1] = {
    let mut smallest = [0; LARGEST as usize / 16 + 1];
    let (mut class, mut started) = (0, 1);
    while started < smallest.len() {
        if started * 16 > TABLE[class].size as usize {
            class += 1;
        }
        smallest[started] = class as u8;
        started += 1;
    }
    smallest
};

/// Returns the number of the smallest class whose blocks have `bytes`, at most [`LARGEST`].
///
/// This is a table lookup because branches on a caller's sizes cannot be predicted.
#[inline(always)]
pub(in crate::heap) fn of(bytes: u64) -> usize {
    // Reduced to a valid class, whatever the table holds.
    usize::from(SMALLEST[(bytes.wrapping_add(15) >> 4) as usize]) % CLASSES
}

impl Class {
    /// Returns the class with this number.
    #[inline(always)]
    pub(in crate::heap) fn get(number: usize) -> Self {
        TABLE[number]
    }

    /// Returns the class with this number from shared memory, if it is a valid one.
    #[inline(always)]
    pub(in crate::heap) fn checked(number: u64) -> Option<Self> {
        TABLE.get(number as usize).copied()
    }

    /// Returns the block that contains the byte at `from`, counted from the slab's start. The index
    /// may be one past the last block, where no bits are set.
    #[inline(always)]
    pub(in crate::heap) fn block_of(self, from: u64) -> u64 {
        (u64::from(self.inverse.0) * from) >> 32
    }

    /// Returns the block that starts at `from`, counted from the slab's start, if one does. The
    /// index may be one past the last block, as above.
    #[inline(always)]
    pub(in crate::heap) fn start_of(self, from: u64) -> Option<u64> {
        self.inverse.start_of(from)
    }

    /// Returns the number of words in its bitmap.
    #[inline(always)]
    pub(in crate::heap) fn words(self) -> u64 {
        u64::from(self.count).div_ceil(64)
    }

    /// Returns the bits of word `word` that stand for blocks.
    #[inline(always)]
    pub(in crate::heap) fn mask(self, word: u64) -> u64 {
        match u64::from(self.count).saturating_sub(word * 64) {
            0 => 0,
            bits @ 1..64 => (1 << bits) - 1,
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_fits() {
        for bytes in 0..=LARGEST {
            let number = of(bytes);
            assert!(u64::from(Class::get(number).size) >= bytes);
            assert!(number == 0 || u64::from(Class::get(number - 1).size) < bytes);
        }
        assert_eq!(u64::from(Class::get(CLASSES - 1).size), LARGEST);
    }

    #[test]
    fn every_byte_is_in_its_block() {
        for number in 0..CLASSES {
            let class = Class::get(number);
            assert!(class.size.is_multiple_of(16));
            assert!(class.words() <= WORDS);
            for from in 0..SLAB {
                let (size, index) = (u64::from(class.size), class.block_of(from));
                assert_eq!(index, from / size);
                assert!(index < WORDS * 64);
                let start = from.is_multiple_of(size).then_some(index);
                assert_eq!(class.start_of(from), start);
            }
            let bits: u32 = (0..WORDS).map(|word| class.mask(word).count_ones()).sum();
            assert_eq!(bits, class.count);
        }
    }
}
