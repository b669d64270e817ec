//! Standard output, for people and for programs. Nothing here panics when the reader goes away.

use crate::failure::Failure;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};

/// Prints `text` unchanged, and flushes it.
pub fn print(text: impl Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints `text` and ends the line.
pub fn line(text: impl Display) -> Result<(), Failure> {
    print(format_args!("{text}\n"))
}

/// Prints `value` as JSON, indented.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    To::Output.json(value)
}

/// The number of lines of a long list that are printed.
const SHOWN: usize = 10;

/// Returns lines that show the first items of a list, indented, and the number of the other items.
pub fn first_lines(items: impl ExactSizeIterator<Item: Display>) -> Vec<String> {
    let others = items.len().saturating_sub(SHOWN);
    let mut lines: Vec<String> = items
        .take(SHOWN)
        .map(|item| format!("  {}", printable(&item)))
        .collect();
    if others > 0 {
        lines.push(format!("  and {others} more; --json names all"));
    }
    lines
}

/// Escapes control characters: the name of a file can contain them, and a terminal executes them.
pub fn printable(text: &impl Display) -> String {
    let shown = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.to_string().chars().map(shown).collect()
}

/// The destination of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Standard output.
    Output,
    /// Standard error: standard output has other contents.
    Errors,
}

impl To {
    /// Prints `text` and ends the line.
    pub fn line(self, text: impl Display) -> Result<(), Failure> {
        match self {
            Self::Output => line(text),
            Self::Errors => writeln!(io::stderr(), "{text}").map_err(|error| match error.kind() {
                io::ErrorKind::BrokenPipe => Failure::OutputClosed,
                _ => Failure::new(format_args!("standard error cannot be written to: {error}")),
            }),
        }
    }

    /// Prints `value` as JSON, indented.
    pub fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value).map_err(|error| {
            Failure::new(format_args!(
                "the result cannot be printed as JSON: {error}"
            ))
        })?;
        self.line(text)
    }
}

/// Prints a note that is not part of the answer. It may be lost.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_lists_cannot_command_a_terminal() {
        let lines = first_lines(["a\x1b[2Jb\n", "ä"].iter());
        assert_eq!(lines, ["  a\\u{1b}[2Jb\\n", "  ä"]);
    }
}
