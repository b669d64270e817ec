//! Verifies word counts: counts the words again, with one thread and a standard hash map.

use super::add_alone;
use crate::tokens::Tokens;
use outlive_run::input::Inputs;
use std::collections::HashMap;
use std::io;

/// A word with a wrong count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` was counted {counted} times, and occurs {there} times")]
pub struct Mismatch {
    /// The word, as text.
    pub word: String,
    /// The count in the result.
    pub counted: u64,
    /// The true count.
    pub there: u64,
}

/// Compares `counts` with the words in the files.
///
/// # Errors
/// If a file cannot be read; the inner error is the first wrong count.
pub fn verify(
    inputs: &Inputs,
    tokens: Tokens,
    counts: &[(Vec<u8>, u64)],
) -> io::Result<Result<(), Mismatch>> {
    let mut there = HashMap::new();
    let mut has_begun = false;
    for file in inputs.files() {
        if std::fs::metadata(&file.path)?.len() != file.len {
            let why = format!("{} has changed since it was counted", file.name().display());
            return Err(io::Error::other(why));
        }
        let before = there.contains_key(&[][..]);
        add_alone(&file.path, tokens, &mut there)?;
        // All files form one text, which has at most one empty word, at its start.
        if has_begun && !before {
            there.remove(&[][..]);
        }
        has_begun |= file.len > 0;
    }
    for (word, counted) in counts {
        let there = there.remove(&word[..]).unwrap_or(0);
        if there != *counted {
            return Ok(Err(wrong(word, *counted, there)));
        }
    }
    // Words that were not counted at all; the smallest, so that the error is deterministic.
    let left = there.into_iter().min();
    Ok(left.map_or(Ok(()), |(word, there)| Err(wrong(&word, 0, there))))
}

fn wrong(word: &[u8], counted: u64, there: u64) -> Mismatch {
    Mismatch {
        word: String::from_utf8_lossy(word).into_owned(),
        counted,
        there,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_one_off_is_found() {
        let place = tempfile::tempdir().unwrap();
        let paths = [("a", ""), ("b", " to be or"), ("c", " not to be")].map(|(name, text)| {
            let path = place.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        });
        let inputs = Inputs::find(&paths).unwrap();
        let count = |word: &str, count| (word.as_bytes().to_vec(), count);
        let right = [
            count("be", 2),
            count("to", 2),
            count("", 1),
            count("not", 1),
            count("or", 1),
        ];
        let check = |counts: &[_]| verify(&inputs, Tokens::Whitespace, counts).unwrap();
        assert_eq!(check(&right), Ok(()));
        for wrong in 0..right.len() {
            let mut counts = right.clone();
            counts[wrong].1 += 1;
            assert!(check(&counts).is_err());
            let error = check(&[&right[..wrong], &right[wrong + 1..]].concat()).unwrap_err();
            assert_eq!((error.counted, error.there), (0, right[wrong].1));
        }
        let error = check(&[&right[..], &[count("more", 1)]].concat()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("`more` was counted 1 times, and occurs 0")
        );
        assert_eq!(
            verify(&inputs, Tokens::Words, &right[..2])
                .unwrap()
                .unwrap_err()
                .there,
            1
        );
    }
}
