//! Inputs: files and pipes, found and checked before anything starts.
//!
//! Hosts read files by their paths. Inputs that cannot be read twice, or by other processes, are
//! first copied by the driver, and put from the copy into the segment before hosts work: pipes, and
//! files that report a wrong length (those of /proc and /sys).
//!
//! Tests: outlive-cli's tests/run/files.rs and tests/run/pipes.rs.

mod copy;

pub use copy::Copied;

use crate::random::mixed;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The files to be read, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    files: Vec<InputFile>,
    left_out: Vec<LeftOut>,
}

/// A file and its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// The absolute path; if it was copied, the path of the copy for this process.
    pub path: PathBuf,
    /// The length in bytes when it was opened first.
    pub len: u64,
    /// A number that differs for another file and after a change, computed from its inode number,
    /// its length and the time of its last modification. If it differs when the file is read,
    /// nothing is counted.
    pub version: u64,
    /// The copy, if hosts cannot read the file by its path: its bytes are put into the segment.
    pub copied: Option<Copied>,
}

impl InputFile {
    /// Returns the name for messages: as it was given, or found in a directory.
    pub fn name(&self) -> &Path {
        self.copied.as_ref().map_or(&self.path, Copied::name)
    }

    /// Returns the path by which every host opens it; empty if it was copied.
    pub fn path_for_hosts(&self) -> &Path {
        match self.copied {
            Some(_) => Path::new(""),
            None => &self.path,
        }
    }
}

/// An entry of a directory that cannot be read, and so was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The path of the entry.
    pub path: PathBuf,
    /// The reason why the entry cannot be read.
    pub why: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

/// Returns a number that differs for another file that has replaced this one at its path, and after
/// a change of the file. It is computed from the inode number, the length and the time of the last
/// modification. Changes that keep the length, within one tick of the filesystem's clock (some
/// milliseconds), are not distinguished. The device does not count, since hosts may mount one
/// filesystem as different devices.
pub fn version_of(metadata: &Metadata) -> u64 {
    let nanos = metadata.mtime_nsec() as u64;
    let modified = (metadata.mtime() as u64).wrapping_mul(1_000_000_000);
    let words = [metadata.ino(), metadata.len(), modified.wrapping_add(nanos)];
    words
        .into_iter()
        .fold(0, |version, word| mixed(version ^ word))
}

/// Opens the file at `path`, which was a regular file before. Does not block if a FIFO has replaced
/// it.
///
/// # Errors
/// If it cannot be opened, or is not a regular file any more.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut how = OpenOptions::new();
    let file = how.read(true).custom_flags(nonblocking).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file any more")),
    }
}

/// Returns the path by which other processes find the file at `path`: absolute, and not through a
/// descriptor of this process such as /dev/stdin.
pub fn path_for_all(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if !["/dev", "/proc"].iter().any(|of| path.starts_with(of)) {
        return Ok(path);
    }
    // Other processes find a file without a name only by its descriptor.
    fs::canonicalize(&path).or_else(|_| {
        Ok(match path == Path::new("/dev/stdin") {
            true => format!("/proc/{}/fd/0", std::process::id()).into(),
            false => path,
        })
    })
}

/// The reason why an input cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The operating system refused the access.
    #[error("{} cannot be read: {source}", .path.display())]
    Unreadable {
        /// The path of the input.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The input is neither a file, a directory nor a pipe.
    #[error("{} is neither a file, a directory nor a pipe; write its content to a file first", .path.display())]
    NoFile {
        /// The path of the input.
        path: PathBuf,
    },
    /// A directory and its subdirectories contain no file.
    #[error("the directory {} contains no file", .path.display())]
    Empty {
        /// The path of the directory.
        path: PathBuf,
    },
    /// A directory contains no readable file.
    #[error("no file in the directory {} can be read: {first}{}", .path.display(), others(*.count))]
    NoneReadable {
        /// The path of the directory.
        path: PathBuf,
        /// The first entry that cannot be read.
        first: LeftOut,
        /// The number of these entries.
        count: usize,
    },
    /// The copy of a pipe cannot be written.
    #[error(
        "{} is copied to a temporary file in {} first, which cannot be written: {source}; set TMPDIR to a directory \
         with more free space", .path.display(), .directory.display()
    )]
    NoCopy {
        /// The path of the pipe.
        path: PathBuf,
        /// The directory of the copy.
        directory: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Returns the end of a sentence about the first of `count` entries.
fn others(count: usize) -> String {
    match count {
        ..=1 => String::new(),
        _ => format!(" (and {} more)", count - 1),
    }
}

impl Inputs {
    /// Finds the inputs that `paths` name: files, pipes, and all files in directories and their
    /// subdirectories, in the order of their names. Opens each of them once, so that an unreadable
    /// one is known now, and reads pipes to their ends. Links to directories are followed only
    /// where `paths` name them. Entries of directories that cannot be read are [left
    /// out](Self::left_out): dangling links, unreadable files and directories, pipes, sockets and
    /// devices.
    ///
    /// # Errors
    /// At the first of `paths` that cannot be read, or is a directory without a readable file.
    pub fn find(paths: &[impl AsRef<Path>]) -> Result<Self, InputError> {
        let mut inputs = Self::default();
        for path in paths.iter().map(AsRef::as_ref) {
            let found = fs::metadata(path).map_err(unreadable(path))?;
            if !found.is_dir() {
                inputs.files.push(open(path, &found)?);
                continue;
            }
            let before = (inputs.files.len(), inputs.left_out.len());
            inputs.add_directory(path)?;
            let left_out = &inputs.left_out[before.1..];
            match left_out.first() {
                _ if inputs.files.len() > before.0 => {}
                None => return Err(InputError::Empty { path: path.into() }),
                Some(first) => {
                    return Err(InputError::NoneReadable {
                        path: path.into(),
                        first: first.clone(),
                        count: left_out.len(),
                    });
                }
            }
        }
        Ok(inputs)
    }

    /// Returns the files.
    pub fn files(&self) -> &[InputFile] {
        &self.files
    }

    /// Returns the entries of directories that cannot be read.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Returns the inputs' total size in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// Adds the files in the directory at `path`.
    fn add_directory(&mut self, path: &Path) -> Result<(), InputError> {
        let entries: io::Result<Vec<_>> = fs::read_dir(path).and_then(Iterator::collect);
        let mut entries = entries.map_err(unreadable(path))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            match self.add_entry(&path) {
                Ok(()) => {}
                // An error of the copy (a full disk, for example) would meet all other copies too.
                Err(error @ InputError::NoCopy { .. }) => return Err(error),
                Err(error) => self.left_out.push(LeftOut {
                    why: why(&path, error),
                    path,
                }),
            }
        }
        Ok(())
    }

    /// Adds the entry `path` of a directory.
    fn add_entry(&mut self, path: &Path) -> Result<(), InputError> {
        let is_link = fs::symlink_metadata(path)
            .map_err(unreadable(path))?
            .is_symlink();
        let found = fs::metadata(path).map_err(unreadable(path))?;
        if found.is_dir() {
            return match is_link {
                true => Ok(()),
                false => self.add_directory(path),
            };
        }
        if !found.is_file() {
            return Err(InputError::NoFile { path: path.into() });
        }
        self.files.push(open(path, &found)?);
        Ok(())
    }
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> InputError {
    move |source| InputError::Unreadable {
        path: path.into(),
        source,
    }
}

/// Opens the input at `path`, which is not a directory; copies it if hosts cannot read it by its
/// path.
fn open(path: &Path, found: &Metadata) -> Result<InputFile, InputError> {
    let kind = found.file_type();
    if kind.is_fifo() || kind.is_socket() && copy::is_standard_input(path) {
        let pipe = copy::open_pipe(path).map_err(unreadable(path))?;
        return copy::copy(path, pipe);
    }
    if !kind.is_file() {
        return Err(InputError::NoFile { path: path.into() });
    }
    // The length now, of the file that was opened.
    let file = File::open(path).map_err(unreadable(path))?;
    let metadata = file.metadata().map_err(unreadable(path))?;
    let (len, version) = (metadata.len(), version_of(&metadata));
    if !has_length(&file, len).map_err(unreadable(path))? {
        return copy::copy(path, file);
    }
    Ok(InputFile {
        path: path_for_all(path).map_err(unreadable(path))?,
        len,
        version,
        copied: None,
    })
}

/// Returns whether the reported length `len` can be right: the last byte before it exists, or, if
/// it is 0, the file is empty. It is wrong for files of /proc (0) and /sys (a page).
fn has_length(file: &File, len: u64) -> io::Result<bool> {
    let read = file.read_at(&mut [0], len.saturating_sub(1))?;
    Ok((read == 0) == (len == 0))
}

/// Returns the reason why the entry at `path` was left out, without the path.
fn why(path: &Path, error: InputError) -> String {
    let source = match error {
        InputError::Unreadable { source, .. } => source,
        InputError::NoFile { .. } => return kind_of(path).into(),
        other => return other.to_string(),
    };
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    match source.kind() {
        ErrorKind::NotFound if is_link => "a link to a file that does not exist".into(),
        _ => source.to_string(),
    }
}

/// Names the kind of the entry at `path`, which is neither a file nor a directory.
fn kind_of(path: &Path) -> &'static str {
    match fs::metadata(path).map(|found| found.file_type()) {
        Ok(kind) if kind.is_fifo() => "a named pipe; name it on the command line to read it",
        Ok(kind) if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_found_is_kept_and_what_is_not_is_said() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("b/deep")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        fs::write(at("b/two"), "22").unwrap();
        fs::write(at("b/deep/three"), "333").unwrap();
        fs::write(at("a"), "1").unwrap();
        symlink(at("b"), at("b/deep/loop")).unwrap();
        let inputs = Inputs::find(&[at("b"), at("a")]).unwrap();
        let lens: Vec<u64> = inputs.files().iter().map(|file| file.len).collect();
        assert_eq!((lens, inputs.bytes()), (vec![3, 2, 1], 6));
        assert_eq!(inputs.left_out(), []);
        let said = |name: &str| Inputs::find(&[at(name)]).unwrap_err().to_string();
        assert!(said("empty").contains("no file"), "{}", said("empty"));
        assert!(said("none").contains("No such file"), "{}", said("none"));
        assert!(Inputs::find(&[Path::new("/dev/null")]).is_err());
    }

    #[test]
    fn what_cannot_be_read_in_a_directory_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        symlink("nowhere", at("dangling")).unwrap();
        symlink("turning", at("turning")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let said = Inputs::find(&[place.path()]).unwrap_err().to_string();
        assert!(
            said.ends_with("dangling: a link to a file that does not exist (and 2 more)"),
            "{said}"
        );
        fs::write(at("text"), "text").unwrap();
        let inputs = Inputs::find(&[place.path()]).unwrap();
        assert_eq!(inputs.bytes(), 4);
        let why: Vec<_> = inputs.left_out().iter().map(|it| &*it.why).collect();
        assert_eq!(
            why[..2],
            ["a link to a file that does not exist", "a socket"]
        );
        assert!(why[2].contains("symbolic links"), "{why:?}");
        // If it is named explicitly, each is an error.
        for name in ["dangling", "turning", "socket"] {
            assert!(Inputs::find(&[at(name)]).is_err());
        }
    }

    #[test]
    fn a_file_that_says_another_length_is_copied() {
        let path = Path::new("/proc/self/status");
        let inputs = Inputs::find(&[path]).unwrap();
        let [file] = inputs.files() else { panic!() };
        let copy = fs::read(&file.path).unwrap();
        assert_eq!(copy.len() as u64, file.len);
        assert!(copy.starts_with(b"Name:"));
        assert_eq!((file.name(), file.path_for_hosts()), (path, Path::new("")));
    }
}
