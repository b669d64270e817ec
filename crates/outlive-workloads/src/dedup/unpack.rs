//! An archive's files, directories and links, made anew.
//!
//! They are made in a directory that was empty: so nothing is overwritten, and nothing is written through a link that was there. Links come
//! last, when nothing is written any more, and permissions of directories behind them.

use super::archive::{Archive, ArchiveError, Content, Entry, ReadAt};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// How many files.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
}

/// Why an archive could not be unpacked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// It cannot be read, or is damaged.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// There is something where it should be unpacked.
    #[error("{} is not empty; name a directory that is empty or not there yet", .path.display())]
    NotEmpty {
        /// Where.
        path: PathBuf,
    },
    /// Its files are larger than allowed.
    #[error("the archive has {bytes} bytes in all, and {most} are allowed; nothing was made")]
    TooLarge {
        /// How large they are.
        bytes: u64,
        /// How large they may be.
        most: u64,
    },
    /// There is no room for its files.
    #[error(
        "the archive's files would take {needed} bytes, and where {} is, {free} are free; nothing was made: free some, or name another directory", .path.display()
    )]
    NoRoom {
        /// Where they were to be made.
        path: PathBuf,
        /// What they would take there.
        needed: u64,
        /// What there is.
        free: u64,
    },
    /// Something cannot be made.
    #[error("{} cannot be written: {source}", .path.display())]
    Unwritable {
        /// What.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Unpacks `archive` into the directory `into`, which is empty or is made, if there is room for its files.
///
/// # Errors
/// If there is not, the archive is damaged, or something cannot be made. What was made before stays there.
pub fn unpack<S: ReadAt>(archive: &Archive<S>, into: &Path) -> Result<Unpacked, UnpackError> {
    unpack_at_most(archive, into, u64::MAX)
}

/// The same if the files have no more than `most` bytes together.
///
/// # Errors
/// As for [`unpack`]; or if they have more.
pub fn unpack_at_most<S: ReadAt>(
    archive: &Archive<S>,
    into: &Path,
    most: u64,
) -> Result<Unpacked, UnpackError> {
    let bytes = archive.bytes();
    if bytes > most {
        return Err(UnpackError::TooLarge { bytes, most });
    }
    look_for_room(archive, into)?;
    fs::create_dir_all(into).map_err(unwritable(into))?;
    if fs::read_dir(into)
        .map_err(unwritable(into))?
        .next()
        .is_some()
    {
        return Err(UnpackError::NotEmpty { path: into.into() });
    }
    let place = |entry: &Entry| into.join(OsStr::from_bytes(&entry.name));
    let (mut packed, mut chunk) = (Vec::new(), Vec::new());
    let mut unpacked = Unpacked::default();
    for entry in archive.entries() {
        let path = place(entry);
        match &entry.content {
            // So may directories, also if this ends in the middle: they get their modes last.
            Content::Directory => DirBuilder::new()
                .mode(0o700)
                .create(&path)
                .map_err(unwritable(&path))?,
            Content::File(chunks) => {
                // Others may read it when it is whole.
                let mut options = OpenOptions::new();
                let options = options.write(true).create_new(true).mode(0o600);
                let mut file = options.open(&path).map_err(unwritable(&path))?;
                for number in chunks {
                    archive.restore(*number, &mut packed, &mut chunk)?;
                    file.write_all(&chunk).map_err(unwritable(&path))?;
                    unpacked.bytes += chunk.len() as u64;
                }
                let permissions = Permissions::from_mode(entry.mode);
                file.set_permissions(permissions)
                    .map_err(unwritable(&path))?;
                unpacked.files += 1;
            }
            Content::Link(_) => {}
        }
    }
    for entry in archive.entries() {
        if let Content::Link(target) = &entry.content {
            let path = place(entry);
            std::os::unix::fs::symlink(OsStr::from_bytes(target), &path)
                .map_err(unwritable(&path))?;
        }
    }
    // The inner ones first: one that may not be written may not be entered either.
    for entry in archive.entries().iter().rev() {
        if entry.content == Content::Directory {
            let path = place(entry);
            let permissions = Permissions::from_mode(entry.mode);
            fs::set_permissions(&path, permissions).map_err(unwritable(&path))?;
        }
    }
    Ok(unpacked)
}

/// Fails if the file system has no room for all files. What takes room as well is not counted: directories, and what the file
/// system needs for itself.
fn look_for_room<S: ReadAt>(archive: &Archive<S>, into: &Path) -> Result<(), UnpackError> {
    // What is there of the path; the rest is made there.
    let whole = std::path::absolute(into).map_err(unwritable(into))?;
    let there = whole.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("/"));
    let system = rustix::fs::statvfs(there).map_err(|error| unwritable(into)(error.into()))?;
    if system.f_blocks == 0 {
        // One that does not say, as some are that lie elsewhere.
        return Ok(());
    }
    let block = system.f_frsize.max(1);
    let files = archive.entries().iter().map(|entry| match &entry.content {
        Content::File(chunks) => archive.len_of(chunks).next_multiple_of(block),
        _ => 0,
    });
    let needed = files.fold(0, u64::saturating_add);
    let free = system.f_bavail.saturating_mul(block);
    match needed > free {
        true => Err(UnpackError::NoRoom {
            path: into.into(),
            needed,
            free,
        }),
        false => Ok(()),
    }
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> UnpackError {
    let path = path.to_owned();
    move |source| UnpackError::Unwritable { path, source }
}
