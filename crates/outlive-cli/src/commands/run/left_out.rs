//! What was found in directories and cannot be read: reported, or refused.

use crate::failure::Failure;
use outlive_workloads::input;
use serde::Serialize;
use std::path::PathBuf;

/// How many are named to people.
const NAMED: usize = 3;

/// What was left out, as programs read it.
#[derive(Serialize)]
pub struct LeftOut {
    path: PathBuf,
    why: String,
}

impl LeftOut {
    pub fn of(found: &input::LeftOut) -> Self {
        Self {
            // Text is all that JSON has.
            path: found.path.to_string_lossy().into_owned().into(),
            why: found.why.clone(),
        }
    }
}

/// Returns a line for each of the first few, and how many more there are.
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
