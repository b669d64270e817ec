//! The definition of words.

use crate::key::{INLINE, Key};

/// The kind of tokens that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tokens {
    /// Maximal runs of alphanumeric characters ([`char::is_alphanumeric`]), each character in lower
    /// case ([`char::to_lowercase`], without regard to its neighbours). Invalid UTF-8 separates
    /// words, as the replacement character would.
    #[default]
    Words,
    /// Maximal runs of bytes other than space, tab, line feed, vertical tab, form feed and carriage
    /// return, unchanged, as `tr -s '[:space:]' '\n' | sort | uniq -c` counts them in the C locale.
    /// That pipeline has an empty line if its text begins with white space: an empty token, counted
    /// once, which occurs only at the text's [start](Tokens::has_empty_token).
    ///
    /// Several files are counted as if each file without a final line feed had one: tokens do not
    /// run from one file into the next.
    Whitespace,
}

/// Returns whether `byte` is white space in the C locale.
#[inline(always)]
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The lower case of each ASCII byte that belongs to words; 255 for bytes above ASCII, 0 for
/// others.
const LOWER: [u8; 256] = {
    let mut lower = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        lower[byte] = match byte as u8 {
            0x80.. => 255,
            letter if letter.is_ascii_alphanumeric() => letter.to_ascii_lowercase(),
            _ => 0,
        };
        byte += 1;
    }
    lower
};

impl Tokens {
    /// Returns whether a text may be divided after every occurrence of `byte`, because `byte` is
    /// part of no token and of no multi-byte character.
    #[inline]
    pub fn divides(self, byte: u8) -> bool {
        match self {
            Self::Words => LOWER[byte as usize] == 0,
            Self::Whitespace => is_space(byte),
        }
    }

    /// Returns whether a text that begins with `first` has the empty token.
    pub fn has_empty_token(self, first: u8) -> bool {
        self == Self::Whitespace && is_space(first)
    }

    /// Calls `each` with every token of `text`, in order, except the empty one.
    #[inline(always)]
    pub fn each(self, text: &[u8], each: impl FnMut(Key<'_>)) {
        match self {
            Self::Words => words(text, each),
            Self::Whitespace => whitespace(text, each),
        }
    }
}

#[inline(always)]
fn words(text: &[u8], mut each: impl FnMut(Key<'_>)) {
    let mut at = 0;
    let mut long = Vec::new();
    'tokens: loop {
        // To the first byte of a word, or of a character that may be in one.
        let first = loop {
            let Some(byte) = text.get(at) else { return };
            let lower = LOWER[*byte as usize];
            if lower != 0 {
                break lower;
            }
            at += 1;
        };
        let start = at;
        if first != 255 {
            // While the word is ASCII and short, it is gathered in registers.
            let (mut words, mut len) = ([0u64; 3], 0);
            'short: for word in &mut words {
                let mut gathered = 0u64;
                let mut shift = 0;
                while shift < 64 {
                    let lower = text.get(at).map_or(0, |byte| LOWER[*byte as usize]);
                    if lower == 0 || lower == 255 {
                        *word = gathered;
                        if lower == 0 {
                            each(Key::short(words, len));
                            continue 'tokens;
                        }
                        break 'short;
                    }
                    gathered |= u64::from(lower) << shift;
                    shift += 8;
                    at += 1;
                    len += 1;
                }
                *word = gathered;
            }
            if len == INLINE && text.get(at).is_none_or(|byte| LOWER[*byte as usize] == 0) {
                each(Key::short(words, len));
                continue;
            }
        }
        at = any_word(text, start, &mut long);
        if !long.is_empty() {
            each(Key::new(&long));
        }
    }
}

/// Reads the word at `start`, of any length and any characters, into `word`. Returns its end. If no
/// word starts there, `word` is left empty and the end is after the character.
#[cold]
fn any_word(text: &[u8], start: usize, word: &mut Vec<u8>) -> usize {
    word.clear();
    let mut at = start;
    let mut utf8 = [0; 4];
    while let Some(byte) = text.get(at) {
        let (character, len) = if byte.is_ascii() {
            (Some(char::from(*byte)), 1)
        } else {
            decode(&text[at..])
        };
        match character {
            Some(character) if character.is_alphanumeric() => {
                for lower in character.to_lowercase() {
                    word.extend_from_slice(lower.encode_utf8(&mut utf8).as_bytes());
                }
                at += len;
            }
            _ => return if at == start { at + len } else { at },
        }
    }
    at
}

/// Returns the character at the start of `text`, or `None` for invalid bytes, and its number of
/// bytes.
fn decode(text: &[u8]) -> (Option<char>, usize) {
    let most = &text[..text.len().min(4)];
    let sound = match core::str::from_utf8(most) {
        Ok(sound) => sound,
        Err(error) if error.valid_up_to() > 0 => {
            // Take the valid part.
            core::str::from_utf8(&most[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(error) => return (None, error.error_len().unwrap_or(most.len()).max(1)),
    };
    sound.chars().next().map_or((None, 1), |character| {
        (Some(character), character.len_utf8())
    })
}

#[inline(always)]
fn whitespace(text: &[u8], mut each: impl FnMut(Key<'_>)) {
    let mut at = 0;
    loop {
        while text.get(at).is_some_and(|byte| is_space(*byte)) {
            at += 1;
        }
        let start = at;
        let (mut words, mut len) = ([0u64; 3], 0);
        for word in &mut words {
            let (mut gathered, mut shift) = (0u64, 0);
            while shift < 64
                && let Some(byte) = text.get(at)
                && !is_space(*byte)
            {
                gathered |= u64::from(*byte) << shift;
                shift += 8;
                at += 1;
                len += 1;
            }
            *word = gathered;
            if shift < 64 {
                break;
            }
        }
        if len == 0 {
            return;
        }
        if len < INLINE || text.get(at).is_none_or(|byte| is_space(*byte)) {
            each(Key::short(words, len));
            continue;
        }
        while text.get(at).is_some_and(|byte| !is_space(*byte)) {
            at += 1;
        }
        each(Key::new(&text[start..at]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(tokens: Tokens, text: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        tokens.each(text, |key| {
            let bytes: Vec<u8> = key.words.iter().flat_map(|w| w.to_le_bytes()).collect();
            all.push(if key.len > INLINE {
                key.long.to_vec()
            } else {
                bytes[..key.len].to_vec()
            });
        });
        all
    }

    /// The definition, as plain as possible.
    fn plainly(tokens: Tokens, text: &[u8]) -> Vec<Vec<u8>> {
        match tokens {
            Tokens::Words => String::from_utf8_lossy(text)
                .split(|c: char| !c.is_alphanumeric())
                .filter(|word| !word.is_empty())
                .map(|word| {
                    word.chars()
                        .flat_map(char::to_lowercase)
                        .collect::<String>()
                })
                .map(String::into_bytes)
                .collect(),
            Tokens::Whitespace => text
                .split(|byte| b" \t\n\x0b\x0c\r".contains(byte))
                .filter(|word| !word.is_empty())
                .map(<[u8]>::to_vec)
                .collect(),
        }
    }

    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            "[a-zA-Z0-9]{1,60}".prop_map(String::into_bytes),
            "[ \t\n\r.,;'-]{1,3}".prop_map(String::into_bytes),
            "[äöüßÄÉéσΣΩжЖ中文字ǅİ½²]{1,12}".prop_map(String::into_bytes),
            "[«»—…„“\u{a0}\u{2003}👍]{1,3}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 1..6),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn tokens_are_what_the_definition_says(text in texts()) {
            for tokens in [Tokens::Words, Tokens::Whitespace] {
                prop_assert_eq!(of(tokens, &text), plainly(tokens, &text));
            }
        }

        #[test]
        fn a_text_may_be_divided_where_it_says(text in texts()) {
            for tokens in [Tokens::Words, Tokens::Whitespace] {
                let whole = of(tokens, &text);
                for at in 1..=text.len() {
                    if tokens.divides(text[at - 1]) {
                        let mut parts = of(tokens, &text[..at]);
                        parts.extend(of(tokens, &text[at..]));
                        prop_assert_eq!(&parts, &whole);
                    }
                }
            }
        }
    }

    #[test]
    fn a_few_words() {
        let words = of(
            Tokens::Words,
            "Don't STOP\u{301}, Straße №5 x\u{0}ÉTÉ".as_bytes(),
        );
        let expected = ["don", "t", "stop", "straße", "5", "x", "été"];
        assert_eq!(words, expected.map(|word| word.as_bytes().to_vec()));
        let exactly = "abcdefghijklmnopqrstuvwx";
        assert_eq!(of(Tokens::Words, exactly.as_bytes()), [exactly.as_bytes()]);
        assert_eq!(of(Tokens::Whitespace, b"  a\x0bb "), [b"a", b"b"]);
    }
}
