//! Marks as bits: the number of bits depends only on the length of a stretch, not on its bytes. (As
//! a list, the marks of some texts would take eight times the space of the text.)
//!
//! Bit *b* says whether a chunk may end after byte *b*, so the bits of a stretch are those of its
//! own bytes. Each byte has two bits, in separate words: one for marks of either kind, one for
//! strong marks.

use super::chunk::Mark;
use core::ops::Range;

/// The number of bytes that one word has bits for.
pub const BYTES: u64 = 64;

/// Returns the words of a stretch of `len` bytes with these `marks`, which begins at byte `from`, a
/// multiple of [`BYTES`]: for marks of either kind, and for strong ones.
pub fn of(marks: &[Mark], from: u64, len: u64) -> [Vec<u64>; 2] {
    let mut words = [(); 2].map(|()| vec![0; len.div_ceil(BYTES) as usize]);
    for mark in marks {
        let bit = mark.at() - 1 - from;
        let (word, bit) = ((bit / BYTES) as usize, 1 << (bit % BYTES));
        words[0][word] |= bit;
        if mark.is_strong() {
            words[1][word] |= bit;
        }
    }
    words
}

/// Returns the first place in `range` where a chunk may end. `word` returns words by their number.
/// Place 0 is never returned.
pub fn first(range: Range<u64>, mut word: impl FnMut(usize) -> u64) -> Option<u64> {
    let (mut bit, end) = (range.start.max(1) - 1, range.end.max(1) - 1);
    while bit < end {
        let left = word((bit / BYTES) as usize) >> (bit % BYTES);
        if left != 0 {
            let found = bit + u64::from(left.trailing_zeros());
            return (found < end).then_some(found + 1);
        }
        bit = (bit / BYTES + 1) * BYTES;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_place_is_that_of_the_first_mark(
            places in prop::collection::btree_set(1u64..500, 0..20),
            stretch in 0u64..3,
            range in (0u64..700, 0u64..700),
        ) {
            let from = stretch * BYTES;
            let marks: Vec<Mark> =
                places.iter().map(|at| Mark::from_word((from + at) << 1 | (at & 1))).collect();
            let [all, strong] = of(&marks, from, 500);
            for (words, parity) in [(all, None), (strong, Some(1))] {
                let wanted = |at: &u64| parity.is_none_or(|parity| at % 2 == parity);
                let expected = places.iter().filter(|at| wanted(at))
                    .map(|at| from + at)
                    .find(|at| (range.0..range.1).contains(at));
                let word = |number: usize| {
                    let own = number.checked_sub(stretch as usize);
                    own.and_then(|own| words.get(own)).copied().unwrap_or(0)
                };
                prop_assert_eq!(first(range.0..range.1, word), expected);
            }
        }
    }
}
