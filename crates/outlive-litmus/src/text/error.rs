//! The error of a text that is not a list of tests.

use thiserror::Error;

/// A position in a text that violates the grammar or the meaning of a test.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}, at {token}: {problem}; {instead}")]
pub struct ParseError {
    /// The line, from 1 on.
    pub line: usize,
    /// The column of the token's first character, in characters from 1 on.
    pub column: usize,
    /// The offending token in backquotes with control characters escaped, or `the end of the text`.
    pub token: String,
    /// The problem.
    pub problem: String,
    /// The text to write instead.
    pub instead: String,
}

/// The number of characters of a token that a message shows.
const SHOWN: usize = 40;

impl ParseError {
    /// Returns the error at the token that begins at the byte `at` of `text` and ends before `end`.
    pub(super) fn new(
        text: &str,
        (at, end): (usize, usize),
        problem: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        let line_begin = text[..at].rfind('\n').map_or(0, |it| it + 1);
        let shown = |it: char| match it.is_control() {
            true => it.escape_default().to_string(),
            false => it.to_string(),
        };
        let mut token: String = text[at..end].chars().take(SHOWN).map(shown).collect();
        if text[at..end].chars().nth(SHOWN).is_some() {
            token += "...";
        }
        Self {
            line: text[..at].matches('\n').count() + 1,
            column: text[line_begin..at].chars().count() + 1,
            token: match token.is_empty() {
                true => "the end of the text".into(),
                false => format!("`{token}`"),
            },
            problem: problem.into(),
            instead: instead.into(),
        }
    }
}
