//! Inputs that are read as a whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A file could not be read.
#[derive(Debug, Error)]
#[error("{} cannot be read: {source}", .path.display())]
pub struct Unreadable {
    /// The path of the file.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// Returns the content of the file at `path`.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Unreadable> {
    fs::read(path).map_err(|source| Unreadable {
        path: path.into(),
        source,
    })
}
