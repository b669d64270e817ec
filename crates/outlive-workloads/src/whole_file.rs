//! Inputs that are read as a whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The operating system did not let a file be read.
#[derive(Debug, Error)]
#[error("{} cannot be read: {source}", .path.display())]
pub struct Unreadable {
    /// What was to be read.
    pub path: PathBuf,
    /// Why not.
    pub source: io::Error,
}

/// What is in the file at `path`.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Unreadable> {
    fs::read(path).map_err(|source| Unreadable {
        path: path.into(),
        source,
    })
}
