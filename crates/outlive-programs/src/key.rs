//! Keys for counting: the words of a key that a table stores, and its hash.

/// The maximum number of bytes of a key that is stored in a table's entry itself.
pub const INLINE: usize = 24;

/// A key to be looked up or inserted: three words with all of its bytes, or the bytes of a long
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'k> {
    /// The bytes as little-endian words, padded with zeros; all zeros for a longer key.
    pub(crate) words: [u64; 3],
    pub(crate) len: usize,
    /// The bytes of a key that is longer than [`INLINE`].
    pub(crate) long: &'k [u8],
}

impl<'k> Key<'k> {
    /// Creates a key with these bytes.
    #[inline]
    pub fn new(bytes: &'k [u8]) -> Self {
        if bytes.len() > INLINE {
            return Self {
                words: [0; 3],
                len: bytes.len(),
                long: bytes,
            };
        }
        let mut filled = [0u8; INLINE];
        filled[..bytes.len()].copy_from_slice(bytes);
        Self::short(words_of(&filled), bytes.len())
    }

    /// Creates a key of `len` bytes, at most [`INLINE`], from `words`, padded with zeros.
    #[inline(always)]
    pub(crate) fn short(words: [u64; 3], len: usize) -> Self {
        Self {
            words,
            len,
            long: &[],
        }
    }

    /// Returns the key's length in bytes.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "no key is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the key's hash under `seed`, which is well spread in its upper bits.
    #[inline(always)]
    pub fn hash(&self, seed: u64) -> u64 {
        let [mut a, mut b, mut c] = self.words;
        if self.len > INLINE {
            [a, b, c] = self.fold(seed);
        }
        let first = fold(a ^ seed, b ^ FIRST);
        fold(first ^ c ^ SECOND, (self.len as u64) ^ THIRD ^ seed)
    }

    /// Returns a long key folded into three words.
    #[cold]
    fn fold(&self, seed: u64) -> [u64; 3] {
        let mut state = [seed, FIRST, SECOND];
        for chunk in self.long.chunks(INLINE) {
            let mut filled = [0u8; INLINE];
            filled[..chunk.len()].copy_from_slice(chunk);
            let [a, b, c] = words_of(&filled);
            let mixed = fold(a ^ state[0], b ^ state[1]);
            state = [
                mixed,
                state[0].rotate_left(23) ^ c,
                fold(c ^ state[2], mixed | 1),
            ];
        }
        state
    }
}

// The fractional digits of pi: nothing-up-my-sleeve numbers.
const FIRST: u64 = 0x243F_6A88_85A3_08D3;
const SECOND: u64 = 0x1319_8A2E_0370_7344;
const THIRD: u64 = 0xA409_3822_299F_31D0;

/// Returns both halves of the product, mixed.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

#[inline(always)]
fn words_of(bytes: &[u8; INLINE]) -> [u64; 3] {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    [word(0), word(8), word(16)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn short_keys_are_their_words(bytes in prop::collection::vec(any::<u8>(), 1..=INLINE)) {
            let key = Key::new(&bytes);
            let back: Vec<u8> = key.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            prop_assert_eq!(&back[..bytes.len()], &bytes[..]);
            prop_assert!(back[bytes.len()..].iter().all(|byte| *byte == 0));
        }

        #[test]
        fn a_hash_is_the_key_s_own(a in prop::collection::vec(any::<u8>(), 1..80), b in prop::collection::vec(any::<u8>(), 1..80), seed: u64) {
            let same = Key::new(&a).hash(seed) == Key::new(&b).hash(seed);
            prop_assert_eq!(same, a == b);
        }
    }

    #[test]
    fn the_upper_bits_tell_numbers_apart() {
        let mut seen = HashSet::new();
        for number in 0..100_000u32 {
            seen.insert(Key::new(number.to_string().as_bytes()).hash(7) >> 40);
        }
        // Of 100,000 in 16.7 million places some 300 collide.
        assert!(seen.len() > 99_500, "{} of 100,000", seen.len());
    }
}
