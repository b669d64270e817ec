//! Chunk boundaries: content-defined chunking that can be done in pieces.
//!
//! A *mark* is a place where the Gear hash of the last 64 bytes begins with [`WEAK`] zero bits; a
//! *strong* mark, where it begins with [`STRONG`]. A chunk ends at the first strong mark after its
//! first [`MIN`] bytes; without one within [`USUAL`], at the first mark of either kind; without one
//! within [`MAX`], there; and at the end of its file. (This is the normalised chunking of W. Xia et
//! al., *The Design of Fast Content-Defined Chunking for Data Deduplication Based Storage Systems*,
//! 2020, which brings lengths near to the usual one.)
//!
//! **The division into stretches does not change the result.** The end of a chunk depends on its
//! start, so on all bytes before it, which a task with a stretch from the middle of a file does not
//! know. But a mark depends on 64 bytes alone: Gear shifts its hash by one bit for each byte, so a
//! byte has left it after 64. (FastCDC's own definition begins each chunk with an empty hash, so
//! the first 63 places depend on the chunk's start; here the hash always includes the bytes before,
//! which costs nothing, as [`MIN`] is more than 64.) So tasks find [`marks`] in stretches, with up
//! to 63 bytes before them, and one pass over the marks, at most a hundredth of the bytes,
//! determines where chunks [end]. Stretches need no alignment, and no text makes cuts diverge for
//! good. [`first`] finds the same ends in one pass over the bytes, which skips the first bytes of
//! each chunk.

use core::ops::Range;
use gearhash::Hasher;

/// The number of bytes that decide whether a place is a mark.
pub const WINDOW: usize = 64;
/// The minimal number of bytes of a chunk, except the last of a file.
pub const MIN: usize = 2 << 10;
/// The length from which any mark ends a chunk.
pub const USUAL: usize = 8 << 10;
/// The maximum number of bytes of a chunk.
pub const MAX: usize = 64 << 10;
/// The number of leading zero bits of a mark: one in 2048 places is a mark.
pub const WEAK: u32 = 11;
/// The number of leading zero bits of a strong mark: one in 32768 places is a strong mark.
pub const STRONG: u32 = 15;

/// The value that each byte adds to the hash, for reimplementations in other languages.
pub const TABLE: &[u64; 256] = &gearhash::DEFAULT_TABLE;

const WEAK_MASK: u64 = !(u64::MAX >> WEAK);
const STRONG_MASK: u64 = !(u64::MAX >> STRONG);

/// A place where a chunk may end: before byte `at` of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl Mark {
    fn new(at: u64, is_strong: bool) -> Self {
        Self(at << 1 | u64::from(is_strong))
    }

    /// Returns the mark's offset.
    pub fn at(self) -> u64 {
        self.0 >> 1
    }

    /// Returns whether the mark is a strong mark.
    pub fn is_strong(self) -> bool {
        self.0 & 1 == 1
    }

    /// Returns the mark as one word.
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// Returns the mark of a word from [`to_word`](Self::to_word).
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }
}

/// Appends the marks in a stretch to `marks`, in their order, which is the work of a task: those
/// after byte `from`, up to its end. `stretch` begins at byte `from` of the file. `before` has the
/// preceding bytes: [`WINDOW`] - 1, or all if there are fewer; additional ones are ignored.
pub fn marks(before: &[u8], stretch: &[u8], from: u64, marks: &mut Vec<Mark>) {
    let mut hasher = Hasher::default();
    hasher.update(&before[before.len().saturating_sub(WINDOW - 1)..]);
    let mut at = 0;
    while let Some(step) = hasher.next_match(&stretch[at..], WEAK_MASK) {
        at += step;
        marks.push(Mark::new(from + at as u64, hasher.is_match(STRONG_MASK)));
    }
}

/// Returns the end of the chunk that begins at byte `from` of a file of `len` bytes. `find` returns
/// the first mark of a range, or the first strong one if its second argument is true.
pub fn end(from: u64, len: u64, mut find: impl FnMut(Range<u64>, bool) -> Option<u64>) -> u64 {
    let [min, usual, max] = [MIN, USUAL, MAX].map(|size| from + size as u64);
    let found = find(min..usual, true).or_else(|| find(usual..max + 1, false));
    found.unwrap_or(max).min(len)
}

/// Returns the ends of the chunks of a file of `len` bytes with these `marks`, in their order. The
/// last chunk ends with the file; an empty file has none.
pub fn ends(len: u64, marks: &[Mark]) -> Vec<u64> {
    let mut ends = Vec::new();
    let mut from = 0;
    while from < len {
        from = end(from, len, |range, is_strong| {
            let first = marks.partition_point(|mark| mark.at() < range.start);
            let mut marks = marks[first..]
                .iter()
                .map_while(|mark| (mark.at() < range.end).then_some(*mark));
            let found = marks.find(|mark| mark.is_strong() || !is_strong);
            found.map(Mark::at)
        });
        ends.push(from);
    }
    ends
}

/// Returns the length of the first chunk of `bytes`, the rest of a file from a chunk's start on.
pub fn first(bytes: &[u8]) -> usize {
    if bytes.len() <= MIN {
        return bytes.len();
    }
    let mut hasher = Hasher::default();
    // The chunk may end after its first `MIN` bytes at the earliest.
    let before = MIN - 1;
    hasher.update(&bytes[before - (WINDOW - 1)..before]);
    let usual = bytes.len().min(USUAL - 1);
    if let Some(step) = hasher.next_match(&bytes[before..usual], STRONG_MASK) {
        return before + step;
    }
    let max = bytes.len().min(MAX);
    // The hash is where the search ended.
    match hasher.next_match(&bytes[usual..max], WEAK_MASK) {
        Some(step) => usual + step,
        None => max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_run::random::Random;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    /// The definition of a mark, by the bytes of its window alone.
    fn zero_bits(bytes: &[u8], at: usize) -> u32 {
        let window = &bytes[at.saturating_sub(WINDOW)..at];
        let hash = window.iter().fold(0u64, |hash, byte| {
            (hash << 1).wrapping_add(gearhash::DEFAULT_TABLE[usize::from(*byte)])
        });
        hash.leading_zeros()
    }

    fn in_one_pass(bytes: &[u8]) -> Vec<u64> {
        let (mut from, mut ends) = (0, Vec::new());
        while from < bytes.len() {
            from += first(&bytes[from..]);
            ends.push(from as u64);
        }
        ends
    }

    /// Text of several kinds: noise, repeated pieces, single values, and pieces that occurred
    /// before.
    fn text(seed: u64, len: usize) -> Vec<u8> {
        let mut random = Random::new(seed);
        let mut text: Vec<u8> = Vec::new();
        while text.len() < len {
            let more = random.below(30_000) as usize + 1;
            match random.below(5) {
                0 => text.resize(text.len() + more, random.word() as u8),
                1 => {
                    let period = random.below(70) + 1;
                    let piece: Vec<u8> = (0..period).map(|_| random.word() as u8).collect();
                    text.extend(piece.iter().cycle().take(more));
                }
                2 if !text.is_empty() => {
                    let from = random.below(text.len() as u64) as usize;
                    let to = text.len().min(from + more);
                    text.extend_from_within(from..to);
                }
                _ => text.extend((0..more).map(|_| random.word() as u8)),
            }
        }
        text.truncate(len);
        text
    }

    /// A byte without marks in its repetition, and two windows: one is a mark, one a strong mark.
    static PIECES: LazyLock<(u8, [Vec<u8>; 2])> = LazyLock::new(|| {
        let filler = (0..=255u8).find(|byte| zero_bits(&[*byte; WINDOW], WINDOW) == 0);
        let mut random = Random::new(3);
        let mut window = |is_strong: bool| {
            loop {
                let window: Vec<u8> = (0..WINDOW).map(|_| random.word() as u8).collect();
                let zeros = zero_bits(&window, WINDOW);
                if zeros >= WEAK && (zeros >= STRONG) == is_strong {
                    return window;
                }
            }
        };
        (filler.expect("there is one"), [window(false), window(true)])
    });

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn however_a_file_is_cut_its_chunks_are_those_of_one_pass(
            seed in any::<u64>(),
            len in prop_oneof![0usize..300_000, 0usize..5_000],
            cuts in prop::collection::vec(0f64..1.0, 0..20),
            near in prop::collection::vec(0usize..200, 0..6),
        ) {
            let text = text(seed, len);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| (cut * len as f64) as usize).collect();
            // Stretches that are shorter than a window, too.
            cuts.extend(near.iter().map(|at| (len / 2 + at).min(len)));
            cuts.extend([0, len]);
            cuts.sort_unstable();
            let mut all = Vec::new();
            // Last first: no search knows the result of another.
            for ends in cuts.windows(2).rev() {
                let mut found = Vec::new();
                let before = &text[ends[0].saturating_sub(WINDOW - 1)..ends[0]];
                marks(before, &text[ends[0]..ends[1]], ends[0] as u64, &mut found);
                found.append(&mut all);
                all = found;
            }
            let ends = ends(len as u64, &all);
            prop_assert_eq!(&ends, &in_one_pass(&text));
            prop_assert_eq!(ends.last().copied().unwrap_or(0), len as u64);
            let mut from = 0;
            for end in &ends {
                let chunk = end - from;
                prop_assert!(chunk as usize <= MAX && (chunk as usize >= MIN || *end == len as u64));
                from = *end;
            }
        }

        /// Marks where the rules change, to the byte.
        #[test]
        fn marks_at_the_edges_of_the_rules_count_as_in_one_pass(
            places in prop::collection::vec(
                (prop::sample::select(vec![WINDOW, MIN, USUAL, MAX]), -2i64..3, any::<bool>()),
                1..8,
            ),
            from_start in any::<bool>(),
        ) {
            let (filler, windows) = &*PIECES;
            let mut text: Vec<u8> = Vec::new();
            for (place, off, is_strong) in places {
                // From the start of the last chunk, or from the last mark, which may not have ended
                // one.
                let from = match from_start {
                    true => in_one_pass(&text).iter().rev().nth(1).copied().unwrap_or(0) as usize,
                    false => text.len(),
                };
                let end = (from as i64 + place as i64 + off) as usize;
                text.resize(text.len().max(end.saturating_sub(WINDOW)), *filler);
                text.extend_from_slice(&windows[usize::from(is_strong)]);
            }
            text.resize(text.len() + 100, *filler);
            let mut found = Vec::new();
            for (number, stretch) in text.chunks(999).enumerate() {
                let from = number * 999;
                marks(&text[from.saturating_sub(WINDOW - 1)..from], stretch, from as u64, &mut found);
            }
            prop_assert_eq!(ends(text.len() as u64, &found), in_one_pass(&text));
        }

        #[test]
        fn marks_are_where_the_definition_says(seed in any::<u64>()) {
            let text = text(seed, 20_000);
            let mut found = Vec::new();
            marks(&[], &text, 0, &mut found);
            let expected: Vec<Mark> = (1..=text.len())
                .filter(|at| zero_bits(&text, *at) >= WEAK)
                .map(|at| Mark::new(at as u64, zero_bits(&text, at) >= STRONG))
                .collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn what_is_inserted_moves_only_the_cuts_around_it(seed in any::<u64>(), at in 0f64..1.0) {
            let mut random = Random::new(seed);
            let text: Vec<u8> = (0..400_000).map(|_| random.word() as u8).collect();
            let at = (at * 400_000.0) as usize;
            let changed = [&text[..at], b"something new", &text[at..]].concat();
            let chunks = |text: &[u8]| -> std::collections::HashSet<Vec<u8>> {
                let ends = in_one_pass(text);
                let starts = [0].into_iter().chain(ends.iter().copied());
                starts.zip(&ends).map(|(from, to)| text[from as usize..*to as usize].to_vec()).collect()
            };
            let (before, after) = (chunks(&text), chunks(&changed));
            let new: usize = after.difference(&before).map(Vec::len).sum();
            prop_assert!(new < 250_000, "{new} bytes are in chunks that were not there");
        }
    }

    /// Without the bytes before a stretch, or with a hash that restarts at it, cuts move: the test
    /// above can fail.
    #[test]
    fn a_stretch_that_does_not_know_what_is_before_it_is_cut_elsewhere() {
        let text = text(5, 3_000_000);
        let mut found = Vec::new();
        for (number, stretch) in text.chunks(1000).enumerate() {
            marks(&[], stretch, number as u64 * 1000, &mut found);
        }
        assert_ne!(ends(text.len() as u64, &found), in_one_pass(&text));
    }

    #[test]
    fn the_shipped_text_is_always_cut_in_the_same_places() {
        let text = crate::wordcount::shipped_text();
        let ends = in_one_pass(&text);
        let mean = text.len() / ends.len();
        assert!((USUAL * 3 / 4..USUAL * 3 / 2).contains(&mean), "{mean}");
        // If this changes, archives of one tree made before and after differ (and are read all the
        // same).
        assert_eq!(
            (ends.len(), &ends[..3]),
            (436, &[10_020, 19_983, 24_614][..])
        );
    }
}
