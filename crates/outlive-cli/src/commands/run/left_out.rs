//! Entries of directories that cannot be read: they are reported, or refused.

use crate::failure::Failure;
use outlive_run::input;
use serde::Serialize;
use std::path::PathBuf;

/// The number of entries that the report names.
const NAMED: usize = 3;

/// An entry that was left out, for JSON.
#[derive(Serialize)]
pub struct LeftOut {
    path: PathBuf,
    why: String,
}

impl LeftOut {
    pub fn of(found: &input::LeftOut) -> Self {
        Self {
            // JSON can hold only text.
            path: found.path.to_string_lossy().into_owned().into(),
            why: found.why.clone(),
        }
    }
}

/// Returns a line for each of the first few entries, and a line with the number of the other
/// entries.
pub fn lines(all: &[input::LeftOut]) -> impl Iterator<Item = String> {
    let named = all
        .iter()
        .take(NAMED)
        .map(|found| format!("left out: {found}"));
    let more = all.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("left out: {more} more; --json names all"));
    named.chain(more)
}

/// Fails if anything was left out.
pub fn refuse(all: &[input::LeftOut]) -> Result<(), Failure> {
    let Some(first) = all.first() else {
        return Ok(());
    };
    let more = match all.len() {
        1 => String::new(),
        many => format!(" (and {} more)", many - 1),
    };
    Err(Failure::new(format_args!(
        "{first}{more}; without --strict it is left out and reported"
    )))
}
