//! Whether words were counted rightly: they are counted once more, by one thread and a standard hash map.

use super::add_alone;
use crate::input::Inputs;
use crate::tokens::Tokens;
use std::collections::HashMap;
use std::io;

/// A word of which there are more, or fewer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` was counted {counted} times, and is there {there} times")]
pub struct Wrong {
    /// The word, as text.
    pub word: String,
    /// How often it was counted.
    pub counted: u64,
    /// How often it is there.
    pub there: u64,
}

/// Compares `counts` with what is in the files.
///
/// # Errors
/// If a file cannot be read; inside, the first word that was counted wrongly.
pub fn verify(
    inputs: &Inputs,
    tokens: Tokens,
    counts: &[(Vec<u8>, u64)],
) -> io::Result<Result<(), Wrong>> {
    let mut there = HashMap::new();
    let mut has_begun = false;
    for file in inputs.files() {
        if std::fs::metadata(&file.path)?.len() != file.len {
            let why = format!("{} has changed since it was counted", file.name().display());
            return Err(io::Error::other(why));
        }
        let before = there.contains_key(&[][..]);
        add_alone(&file.path, tokens, &mut there)?;
        // All files are one text, which has an empty word at its start or none.
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
    // What was not counted at all, the same one each time.
    let left = there.into_iter().min();
    Ok(left.map_or(Ok(()), |(word, there)| Err(wrong(&word, 0, there))))
}

fn wrong(word: &[u8], counted: u64, there: u64) -> Wrong {
    Wrong {
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
                .contains("`more` was counted 1 times, and is there 0")
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
