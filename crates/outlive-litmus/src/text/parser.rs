//! The position in a text, with the operations that all rules of the grammar use.

use super::error::ParseError;
use super::lexer::{Kind, Token, hyphenated, token};

/// The result of a rule.
pub(super) type Parsed<T> = Result<T, ParseError>;

/// The words of the grammar: no object, transaction or value has one of them as its name.
pub(super) const RESERVED: [&str; 28] = [
    "abort",
    "aborted",
    "about",
    "absent",
    "all",
    "always",
    "and",
    "any",
    "before",
    "committed",
    "count",
    "delete",
    "family",
    "forbidden",
    "from",
    "insert",
    "is",
    "max",
    "min",
    "never",
    "not",
    "objects",
    "or",
    "present",
    "read",
    "test",
    "transaction",
    "write",
];

/// A text, read up to a token.
pub(super) struct Parser<'t> {
    text: &'t str,
    /// The next token.
    pub next: Token<'t>,
}

impl<'t> Parser<'t> {
    pub fn new(text: &'t str) -> Self {
        Self {
            text,
            next: token(text, 0),
        }
    }

    /// Returns the next token, and advances past it.
    pub fn take(&mut self) -> Token<'t> {
        let taken = self.next;
        self.next = token(self.text, taken.span().1);
        taken
    }

    /// Takes the next token if it is this word or symbol.
    pub fn takes(&mut self, text: &str) -> bool {
        let is_it = self.next.is(text);
        if is_it {
            self.take();
        }
        is_it
    }

    /// Takes this word or symbol. `context` is the rule that demands it.
    pub fn expect(&mut self, text: &str, context: &str) -> Parsed<Token<'t>> {
        match self.next.is(text) {
            true => Ok(self.take()),
            false => Err(self.unexpected(&format!("`{text}`"), context)),
        }
    }

    /// Returns the error that the next token is not `wanted`, which `context` demands.
    pub fn unexpected(&self, wanted: &str, context: &str) -> ParseError {
        self.wrong(
            self.next,
            format!("{wanted} is expected here"),
            format!("write {context}"),
        )
    }

    /// Returns an error at `token`.
    pub fn wrong(
        &self,
        token: Token<'_>,
        problem: impl Into<String>,
        instead: impl Into<String>,
    ) -> ParseError {
        ParseError::new(self.text, token.span(), problem, instead)
    }

    /// Takes the name of an object, a transaction or a value, as `kind` says.
    pub fn name(&mut self, kind: &str) -> Parsed<Token<'t>> {
        let it = self.next;
        let rule = "a name is a lower-case letter, then letters, digits or underscores, as `x` or \
                    `t1`";
        if it.kind != Kind::Word {
            return Err(self.wrong(it, format!("the name of {kind} is expected here"), rule));
        }
        if RESERVED.contains(&it.text) {
            let problem = format!("this is a word of the language, not the name of {kind}");
            return Err(self.wrong(it, problem, "choose another name, as `x` or `t1`"));
        }
        if !it.text.starts_with(|it: char| it.is_ascii_lowercase()) {
            return Err(self.wrong(it, format!("this is not a valid name of {kind}"), rule));
        }
        Ok(self.take())
    }

    /// Takes a word that may contain hyphens.
    pub fn hyphenated(&mut self, kind: &str, instead: &str) -> Parsed<Token<'t>> {
        let it = hyphenated(self.text, self.next.at);
        if it.kind != Kind::Word {
            return Err(self.wrong(it, format!("{kind} is expected here"), instead));
        }
        self.next = token(self.text, it.span().1);
        Ok(it)
    }

    /// Takes a number, with `-` before it if it is negative.
    pub fn number(&mut self) -> Parsed<i64> {
        let begin = self.next.at;
        let is_negative = self.takes("-");
        let digits = self.next;
        if digits.kind != Kind::Number {
            return Err(match is_negative {
                true => self.wrong(
                    digits,
                    "a number is expected after `-`",
                    "write a negative number as `-1`, and a difference as `0 - a`",
                ),
                false => self.unexpected("a number", "an integer, as `0` or `-1`"),
            });
        }
        self.take();
        let written = Token {
            text: &self.text[begin..digits.span().1],
            at: begin,
            ..digits
        };
        let sign = if is_negative { "-" } else { "" };
        format!("{sign}{}", digits.text).parse().map_err(|_| {
            let problem = "the number does not fit into 64 bits";
            self.wrong(written, problem, "write a smaller one")
        })
    }

    /// Takes a text in double quotes, and returns its meaning.
    pub fn quoted(&mut self, context: &str) -> Parsed<String> {
        let it = self.next;
        match it.kind {
            Kind::Quoted => {}
            Kind::Unclosed => {
                let problem = "the text has no end";
                return Err(self.wrong(it, problem, "write `\"` after it"));
            }
            _ => return Err(self.unexpected("a text in double quotes", context)),
        }
        self.take();
        let inside = &it.text[1..it.text.len() - 1];
        let mut meaning = String::with_capacity(inside.len());
        let mut rest = inside;
        // The characters so far that no line break removes.
        let mut kept = 0;
        while let Some(first) = rest.chars().next() {
            rest = &rest[first.len_utf8()..];
            match first {
                '\\' => {
                    let (meant, after) = escape(rest).ok_or_else(|| {
                        let begin = it.at + 1 + (inside.len() - rest.len()) - 1;
                        let length = 1 + rest.chars().next().map_or(0, char::len_utf8);
                        let token = Token {
                            text: &self.text[begin..begin + length],
                            at: begin,
                            ..it
                        };
                        let known = "write `\\\"`, `\\\\`, or `\\u{HEX}` for another character";
                        self.wrong(token, "this escape does not exist", known)
                    })?;
                    meaning.push(meant);
                    kept = meaning.len();
                    rest = after;
                }
                // A line break and the white space around it are one space.
                '\n' => {
                    let text = meaning.trim_end_matches([' ', '\t', '\r']).len();
                    meaning.truncate(text.max(kept));
                    rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
                    meaning.push(' ');
                }
                _ => meaning.push(first),
            }
        }
        Ok(meaning)
    }
}

/// Returns the character for which the text after a backslash stands, and the text after it.
fn escape(text: &str) -> Option<(char, &str)> {
    if let Some(rest) = text.strip_prefix("u{") {
        let (hex, rest) = rest.split_at_checked(rest.find('}')?)?;
        let is_hex = hex.len() <= 6 && hex.bytes().all(|it| it.is_ascii_hexdigit());
        let code = u32::from_str_radix(hex, 16).ok().filter(|_| is_hex)?;
        return Some((char::from_u32(code)?, &rest[1..]));
    }
    let first = text.chars().next()?;
    matches!(first, '"' | '\\').then(|| (first, &text[1..]))
}
