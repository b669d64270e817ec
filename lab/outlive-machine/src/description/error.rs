//! Errors in a description: the fault, its place, and a correction.

use std::ops::Range;

/// A description that cannot be used.
///
/// ```
/// use outlive_machine::description::Description;
///
/// let error = "[system]\ncpu_frequency = \"2.4 Ghz\"\n".parse::<Description>().unwrap_err();
/// assert_eq!((error.line, error.column), (2, 17));
/// assert_eq!(error.to_string(), "line 2, column 17: `Ghz` is not a unit here; did you mean `GHz`?");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}; {hint}")]
pub struct DescriptionError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The fault.
    pub what: String,
    /// How to correct it.
    pub hint: String,
}

impl DescriptionError {
    /// Returns the error of a fault at `span` of `text`.
    pub(super) fn at(text: &str, span: Range<usize>, wrong: Wrong) -> Self {
        // A span may point behind the text's end, or into a character if the text is broken there.
        let start = (0..=span.start.min(text.len()))
            .rev()
            .find(|&at| text.is_char_boundary(at))
            .unwrap_or(0);
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            what: wrong.what,
            hint: wrong.hint,
        }
    }
}

/// Values that no machine can have, each alone or in combination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}; {hint}", .fields.join(", "))]
pub struct Impossible {
    /// The fields that contradict each other, as `section.field`, the likeliest culprit first.
    pub fields: Vec<&'static str>,
    /// The fault.
    pub what: String,
    /// How to correct it.
    pub hint: String,
}

/// A fault at a place that the caller knows.
#[derive(Debug)]
pub(super) struct Wrong {
    pub what: String,
    pub hint: String,
}

impl Wrong {
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: hint.into(),
        }
    }
}
