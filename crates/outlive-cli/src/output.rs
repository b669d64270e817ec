//! Standard output, for people and for programs. Nothing here panics when the reader goes away.

use crate::failure::Failure;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};

/// Prints `text` as it is, at once.
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
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(format_args!("the answer makes no JSON: {error}")))?;
    line(text)
}

/// A note for people that is not part of the answer. It may be lost.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
