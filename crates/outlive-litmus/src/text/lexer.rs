//! Tokens.

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A letter or underscore, then letters, digits and underscores.
    Word,
    /// Decimal digits.
    Number,
    /// A text in double quotes, quotes included.
    Quoted,
    /// A text in double quotes without an end.
    Unclosed,
    /// One of [`SYMBOLS`].
    Symbol,
    /// A character that begins no token.
    Other,
    /// The end of the text.
    End,
}

/// A token: a part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub kind: Kind,
    pub text: &'t str,
    /// The byte at which it begins.
    pub at: usize,
}

impl Token<'_> {
    /// Returns the bytes at which the token begins and ends.
    pub fn span(&self) -> (usize, usize) {
        (self.at, self.at + self.text.len())
    }

    /// Returns whether the token is this word or symbol.
    pub fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Symbol) && self.text == text
    }
}

/// The symbols; of two that begin alike, the longer one first.
const SYMBOLS: [&str; 15] = [
    "!=", "<=", ">=", "<", ">", "=", "+", "-", "(", ")", "{", "}", ",", ".", ";",
];

/// Returns the first token of `text` at or after the byte `from`. A `#` begins a comment, which
/// ends with the line.
pub(super) fn token(text: &str, from: usize) -> Token<'_> {
    let mut at = from;
    loop {
        at += leading(&text[at..], char::is_whitespace);
        if !text[at..].starts_with('#') {
            break;
        }
        at += leading(&text[at..], |it| it != '\n');
    }
    let rest = &text[at..];
    let (kind, length) = match rest.chars().next() {
        None => (Kind::End, 0),
        Some('"') => quoted(rest),
        Some('0'..='9') => (Kind::Number, leading(rest, |it| it.is_ascii_digit())),
        Some(first) if is_of_word(first) => (Kind::Word, leading(rest, is_of_word)),
        Some(first) => match SYMBOLS.iter().find(|it| rest.starts_with(**it)) {
            Some(symbol) => (Kind::Symbol, symbol.len()),
            None => (Kind::Other, first.len_utf8()),
        },
    };
    Token {
        kind,
        text: &rest[..length],
        at,
    }
}

/// Returns the first token at or after `from`, where the name of a test, a family or a level is
/// expected: letters, digits, underscores and hyphens are one word.
pub(super) fn hyphenated(text: &str, from: usize) -> Token<'_> {
    let first = token(text, from);
    let length = leading(&text[first.at..], |it| is_of_word(it) || it == '-');
    match (first.kind, length) {
        (Kind::Quoted | Kind::Unclosed, _) | (_, 0) => first,
        _ => Token {
            kind: Kind::Word,
            text: &text[first.at..first.at + length],
            ..first
        },
    }
}

fn is_of_word(it: char) -> bool {
    it.is_ascii_alphanumeric() || it == '_'
}

/// Returns the number of bytes before the first character that is not `wanted`.
fn leading(text: &str, wanted: impl Fn(char) -> bool) -> usize {
    text.find(|it| !wanted(it)).unwrap_or(text.len())
}

/// Returns the kind and the length of the text in double quotes with which `rest` begins.
fn quoted(rest: &str) -> (Kind, usize) {
    let mut escaped = false;
    for (at, it) in rest.char_indices().skip(1) {
        match it {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return (Kind::Quoted, at + 1),
            _ => {}
        }
    }
    (Kind::Unclosed, rest.len())
}
