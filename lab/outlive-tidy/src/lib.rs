//! Reads this repository's source text for the checks in `tests`: `cargo test -p outlive-tidy`, a
//! second.
//!
//! It knows as much of Rust as the checks need: comments, string literals, `use` paths and
//! `#[cfg(test)]` items.

mod paths;
mod source;

pub use paths::{Arrow, arrows};
pub use source::{Line, Source};

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the directory of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the repository is still where this was compiled")
}

/// Returns the files below `directory` with this extension, in order; build folders and hidden ones
/// are left out.
pub fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(directory).expect("a directory of the repository");
    for entry in entries {
        let path = entry.expect("a readable directory").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                found.extend(files(&path, extension));
            }
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}
