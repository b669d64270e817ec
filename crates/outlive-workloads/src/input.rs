//! What is read: files, found and looked at before anything starts.

use crate::random::mixed;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files to be read, in the order in which they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    files: Vec<InputFile>,
}

/// A file and how long it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Where it is, from the root.
    pub path: PathBuf,
    /// Its length in bytes when it was looked at.
    pub len: u64,
    /// A number that differs for another file and after a change: from its inode number, its length and the time of
    /// its last modification. If it differs when the file is read, nothing is counted.
    pub version: u64,
}

/// Returns a number that tells a file from another one that has replaced it at its path, and from itself
/// after a change: from its inode number, its length and the time of its last modification. Changes of the same
/// inode that keep the length, within one tick of the filesystem's clock (some milliseconds), are not told apart. The device does not
/// count, since hosts may mount one filesystem as different devices.
pub(crate) fn version_of(metadata: &Metadata) -> u64 {
    let nanos = metadata.mtime_nsec() as u64;
    let modified = (metadata.mtime() as u64).wrapping_mul(1_000_000_000);
    let words = [metadata.ino(), metadata.len(), modified.wrapping_add(nanos)];
    words
        .into_iter()
        .fold(0, |version, word| mixed(version ^ word))
}

/// Returns the path by which other processes find the file at `path`: from the root, and not through a descriptor
/// of this process such as /dev/stdin.
pub(crate) fn path_for_all(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if !["/dev", "/proc"].iter().any(|of| path.starts_with(of)) {
        return Ok(path);
    }
    // Other processes find a file that has no name by its descriptor only.
    fs::canonicalize(&path).or_else(|_| {
        Ok(match path == Path::new("/dev/stdin") {
            true => format!("/proc/{}/fd/0", std::process::id()).into(),
            false => path,
        })
    })
}

/// Why an input cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The operating system said no.
    #[error("{} cannot be read: {source}", .path.display())]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is neither a file nor a directory.
    #[error("{} is neither a file nor a directory; write what it says to a file first", .path.display())]
    NoFile {
        /// What it is called.
        path: PathBuf,
    },
    /// Its length is 0, and yet it can be read: one of the kernel's own, say.
    #[error("{} says that it is empty, and is not; copy it to an ordinary file first", .path.display())]
    NoLength {
        /// What it is called.
        path: PathBuf,
    },
    /// A directory has no files, nor has any directory in it.
    #[error("there is no file in the directory {}", .path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
}

impl Inputs {
    /// Finds the files that `paths` name: files, and all files in directories and in the directories in those,
    /// in the order of their names. Opens each of them once, so that what cannot be read is known now. Links to
    /// directories are followed only where `paths` name them.
    ///
    /// # Errors
    /// At the first that cannot be read.
    pub fn find(paths: &[impl AsRef<Path>]) -> Result<Self, InputError> {
        let mut inputs = Self::default();
        for path in paths {
            let path = path.as_ref();
            let (before, is_directory) = (inputs.files.len(), inputs.add(path)?);
            if is_directory && inputs.files.len() == before {
                return Err(InputError::Empty { path: path.into() });
            }
        }
        Ok(inputs)
    }

    /// The files.
    pub fn files(&self) -> &[InputFile] {
        &self.files
    }

    /// How many bytes they have together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// Adds what is at `path`; returns whether that is a directory.
    fn add(&mut self, path: &Path) -> Result<bool, InputError> {
        let unreadable = |source| InputError::Unreadable {
            path: path.into(),
            source,
        };
        let found = fs::metadata(path).map_err(unreadable)?;
        if found.is_dir() {
            let entries: Result<Vec<_>, _> = fs::read_dir(path).map_err(unreadable)?.collect();
            let mut entries = entries.map_err(unreadable)?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let kind = entry.file_type().map_err(unreadable)?;
                let leads_away = kind.is_symlink() && entry.path().is_dir();
                if kind.is_dir() || kind.is_file() || (kind.is_symlink() && !leads_away) {
                    self.add(&entry.path())?;
                }
            }
            return Ok(true);
        }
        if !found.is_file() {
            return Err(InputError::NoFile { path: path.into() });
        }
        // Its length now, by the file that was opened.
        let mut file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let (len, version) = (metadata.len(), version_of(&metadata));
        if len == 0 && file.read(&mut [0]).map_err(unreadable)? != 0 {
            return Err(InputError::NoLength { path: path.into() });
        }
        let path = path_for_all(path).map_err(unreadable)?;
        self.files.push(InputFile { path, len, version });
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_kept_and_what_is_not_is_said() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("b/deep")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        fs::write(at("b/two"), "22").unwrap();
        fs::write(at("b/deep/three"), "333").unwrap();
        fs::write(at("a"), "1").unwrap();
        std::os::unix::fs::symlink(at("b"), at("b/deep/loop")).unwrap();
        let inputs = Inputs::find(&[at("b"), at("a")]).unwrap();
        let lens: Vec<u64> = inputs.files().iter().map(|file| file.len).collect();
        assert_eq!((lens, inputs.bytes()), (vec![3, 2, 1], 6));
        let said = |name: &str| Inputs::find(&[at(name)]).unwrap_err().to_string();
        assert!(said("empty").contains("no file"), "{}", said("empty"));
        assert!(said("none").contains("No such file"), "{}", said("none"));
        assert!(Inputs::find(&[Path::new("/dev/null")]).is_err());
    }
}
