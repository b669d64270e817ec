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
    /// It takes more than allowed.
    #[error("the archive has {bytes} bytes in all, and {most} are allowed; nothing was made")]
    TooLarge {
        /// How much it takes.
        bytes: u64,
        /// How much it may take.
        most: u64,
    },
    /// There is no room for it.
    #[error(
        "the archive would take {needed} bytes, and where {} is, {free} are free; nothing was made: free some, or name another directory", .path.display()
    )]
    NoRoom {
        /// Where it was to be unpacked.
        path: PathBuf,
        /// What it would take there.
        needed: u64,
        /// What there is.
        free: u64,
    },
    /// The file system has no room for so many files, however small they are.
    #[error(
        "the archive has {needed} files, directories and links, and where {} is, {free} more can be made; nothing was made: remove some, or name another directory", .path.display()
    )]
    TooMany {
        /// Where it was to be unpacked.
        path: PathBuf,
        /// How many there are.
        needed: u64,
        /// How many can be made.
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

/// What a file, a directory or a link takes at least, for [`unpack_at_most`]: what is given out at a time is a whole number of these.
pub const BLOCK: u64 = 4 << 10;

/// Unpacks `archive` into the directory `into`, which is empty or is made, if there is room for it.
///
/// # Errors
/// If there is not, the archive is damaged, or something cannot be made. What was made before stays there.
pub fn unpack<S: ReadAt>(archive: &Archive<S>, into: &Path) -> Result<Unpacked, UnpackError> {
    unpack_at_most(archive, into, u64::MAX)
}

/// The same if it takes no more than `most` bytes, in whole [blocks](BLOCK): files that have nothing in them, directories and
/// links take one each.
///
/// # Errors
/// As for [`unpack`]; or if it takes more.
pub fn unpack_at_most<S: ReadAt>(
    archive: &Archive<S>,
    into: &Path,
    most: u64,
) -> Result<Unpacked, UnpackError> {
    let bytes = archive.bytes_in_blocks(BLOCK);
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

/// Fails if the file system has no room for the archive. What the file system needs for itself is not counted.
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
    let (needed, free) = (
        archive.bytes_in_blocks(block),
        system.f_bavail.saturating_mul(block),
    );
    let path = into.to_owned();
    if needed > free {
        return Err(UnpackError::NoRoom { path, needed, free });
    }
    let (needed, free) = (archive.entries().len() as u64, system.f_favail);
    // Where there is no such number, there are none in all.
    if system.f_files > 0 && needed > free {
        return Err(UnpackError::TooMany { path, needed, free });
    }
    Ok(())
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> UnpackError {
    let path = path.to_owned();
    move |source| UnpackError::Unwritable { path, source }
}
