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
    /// Something cannot be made.
    #[error("{} cannot be written: {source}", .path.display())]
    Unwritable {
        /// What.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Unpacks `archive` into the directory `into`, which is empty or is made.
///
/// # Errors
/// If the archive is damaged, or something cannot be made. What was made before stays there.
pub fn unpack<S: ReadAt>(archive: &Archive<S>, into: &Path) -> Result<Unpacked, UnpackError> {
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

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> UnpackError {
    let path = path.to_owned();
    move |source| UnpackError::Unwritable { path, source }
}
