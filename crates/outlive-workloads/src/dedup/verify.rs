//! Whether an archive is one of the files that it was made of: all of it is read and compared with them, byte by byte.

use super::archive::{Archive, ArchiveError, Content, ReadAt};
use super::tree::{self, Tree};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::PathBuf;

/// What is not as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// The archive is damaged.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// There are more or fewer entries than there should be.
    #[error("the archive has {found} entries, and should have {expected}")]
    Count {
        /// How many it has.
        found: usize,
        /// How many it should have.
        expected: usize,
    },
    /// An entry has another name, kind or mode.
    #[error("entry {number} of the archive is not what {} is, but \u{201c}{found}\u{201d}", .path.display())]
    Entry {
        /// Which, from 0.
        number: usize,
        /// What it should be.
        path: PathBuf,
        /// What it is called.
        found: String,
    },
    /// A file has other bytes.
    #[error("{} is archived otherwise from byte {at} on", .path.display())]
    Bytes {
        /// The file.
        path: PathBuf,
        /// Where in it the chunk begins that differs, or its end.
        at: u64,
    },
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Whether `archive` has what `tree` has.
///
/// # Errors
/// The first that is different.
pub fn verify<S: ReadAt>(archive: &Archive<S>, tree: &Tree) -> Result<(), Wrong> {
    let (found, expected) = (archive.entries().len(), tree.entries().len());
    if found != expected {
        return Err(Wrong::Count { found, expected });
    }
    let (mut packed, mut chunk, mut there) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (entry, source)) in archive.entries().iter().zip(tree.entries()).enumerate() {
        let path = source.path.clone();
        let other = |path| Wrong::Entry {
            number,
            path,
            found: String::from_utf8_lossy(&entry.name).into_owned(),
        };
        if (&entry.name, entry.mode) != (&source.name, source.mode) {
            return Err(other(path));
        }
        match (&entry.content, &source.content) {
            (Content::Directory, tree::Content::Directory) => {}
            (Content::Link(found), tree::Content::Link(expected)) if found == expected => {}
            (Content::File(chunks), tree::Content::File) => {
                let unreadable = |source| Wrong::Unreadable {
                    path: path.clone(),
                    source,
                };
                let mut file = BufReader::new(File::open(&path).map_err(unreadable)?);
                let mut at = 0;
                for number in chunks {
                    archive.restore(*number, &mut packed, &mut chunk)?;
                    there.clear();
                    let len = chunk.len() as u64;
                    file.by_ref()
                        .take(len)
                        .read_to_end(&mut there)
                        .map_err(unreadable)?;
                    if there != chunk {
                        return Err(Wrong::Bytes { path, at });
                    }
                    at += len;
                }
                if file.read(&mut [0]).map_err(unreadable)? != 0 {
                    return Err(Wrong::Bytes { path, at });
                }
            }
            _ => return Err(other(path)),
        }
    }
    Ok(())
}
