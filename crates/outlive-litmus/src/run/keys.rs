//! The keys of the objects of instances.
//!
//! A store can put keys that are close to each other on one shard or page, where the faults between
//! shards do not show. So the objects of an instance are spread over the whole range of keys. Only
//! an instance whose transactions count objects has contiguous keys: it counts a range.

use crate::driver::Key;
use std::ops::Range;

/// The number of keys of a block. An instance with contiguous keys has one block for itself.
pub(super) const BLOCK: u64 = 64;
/// The number of blocks: keys are less than 2^63.
const BLOCKS: u64 = 1 << 57;
/// The distance between two blocks that are given out one after the other. It is odd, so that the
/// multiples of it modulo [`BLOCKS`] are all different. It is 2^64 divided by the golden ratio, so
/// that few multiples are spread evenly too.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// The keys of an instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    /// The number of the first block.
    first: u64,
    objects: usize,
    is_contiguous: bool,
}

impl Keys {
    /// Returns the keys from the block with the number `first` on.
    pub(super) fn new(first: u64, objects: usize, is_contiguous: bool) -> Self {
        Self {
            first,
            objects,
            is_contiguous,
        }
    }

    /// Returns the number of blocks of an instance.
    pub(super) fn blocks(objects: usize, is_contiguous: bool) -> u64 {
        if is_contiguous { 1 } else { objects as u64 }
    }

    /// Returns the keys of a later instance, `at` instances after this one.
    pub(super) fn instance(self, at: usize) -> Self {
        let blocks = Self::blocks(self.objects, self.is_contiguous);
        Self {
            first: self.first + at as u64 * blocks,
            ..self
        }
    }

    /// Returns the key of an object.
    pub(super) fn key(self, object: usize) -> Key {
        let object = object as u64;
        if self.is_contiguous {
            return start(self.first) + object;
        }
        // The position in the block changes too, for stores that use the last bits of a key.
        let number = self.first + object;
        start(number) + number % BLOCK
    }

    /// Returns the keys of all objects.
    pub(super) fn all(self) -> impl Iterator<Item = Key> {
        (0..self.objects).map(move |it| self.key(it))
    }

    /// Returns the range of all keys, if they are contiguous.
    pub(super) fn range(self) -> Range<Key> {
        let first = start(self.first);
        first..first + self.objects as u64
    }
}

/// Returns the first key of a block.
fn start(block: u64) -> Key {
    block.wrapping_mul(STRIDE) % BLOCKS * BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_different_and_spread() {
        let mut all = BTreeSet::new();
        let mut first = 0;
        for at in 0..2000 {
            let (objects, is_contiguous) = (1 + at % 5, at % 3 == 0);
            let keys = Keys::new(first, objects, is_contiguous);
            first += Keys::blocks(objects, is_contiguous);
            assert!(keys.all().all(|it| it < 1 << 63 && all.insert(it)));
            let next = keys.instance(1).key(0);
            assert_eq!(next, Keys::new(first, objects, is_contiguous).key(0));
            if is_contiguous {
                assert!(keys.all().eq(keys.range()));
            }
        }
        let parts: BTreeSet<u64> = all.iter().map(|it| it >> 53).collect();
        let last_bits: BTreeSet<u64> = all.iter().map(|it| it % 16).collect();
        assert_eq!((parts.len(), last_bits.len()), (1024, 16));
    }
}
