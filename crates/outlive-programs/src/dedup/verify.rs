//! Verifies an archive: reads all of it and compares it with the archived files, byte by byte.

use super::archive::{Archive, ArchiveError, Content, ReadAt};
use super::attributes::Attributes;
use super::extents::{self, Span};
use super::tree::{self, FileContent, Tree};
use outlive_run::input::open_regular;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A difference between an archive and its files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The archive is damaged.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The number of entries is wrong.
    #[error("the archive has {found} entries, and should have {expected}")]
    Count {
        /// The number in the archive.
        found: usize,
        /// The expected number.
        expected: usize,
    },
    /// An entry differs in its name, kind, attributes, holes or hard link target.
    #[error(
        "entry {number} of the archive differs from {} in its name, kind, attributes, holes or \
         hard link: it is \u{201c}{found}\u{201d}",
        .path.display()
    )]
    Entry {
        /// Its number, from 0.
        number: usize,
        /// The path of the expected entry.
        path: PathBuf,
        /// Its name in the archive.
        found: String,
    },
    /// A file has other bytes.
    #[error("the archive differs from {} from byte {at} on", .path.display())]
    Bytes {
        /// The file.
        path: PathBuf,
        /// The start of the chunk that differs, or the end of the file.
        at: u64,
    },
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Checks that `archive` has the entries of `tree`, and that each archived file has the bytes that
/// the file of `tree` has now.
///
/// # Errors
/// Returns the first difference.
pub fn verify<S: ReadAt>(archive: &Archive<S>, tree: &Tree) -> Result<(), Mismatch> {
    let (found, expected) = (archive.entries().len(), tree.entries().len());
    if found != expected {
        return Err(Mismatch::Count { found, expected });
    }
    for (number, (entry, source)) in archive.entries().iter().zip(tree.entries()).enumerate() {
        let is_same = match (&entry.content, &source.content) {
            (Content::Directory, tree::Content::Directory) => true,
            (Content::Link(found), tree::Content::Link(expected)) => found == expected,
            (Content::HardLink(found), tree::Content::HardLink(expected)) => found == expected,
            (Content::File { holes, .. }, tree::Content::File(file)) => {
                *holes == extents::holes(&file.data, file.len)
            }
            _ => false,
        };
        let attributes = are_same(&entry.attributes, &source.attributes);
        if !is_same || !attributes || entry.name != source.name {
            return Err(Mismatch::Entry {
                number,
                path: source.path.clone(),
                found: String::from_utf8_lossy(&entry.name).into_owned(),
            });
        }
        if let (Content::File { chunks, holes }, tree::Content::File(file)) =
            (&entry.content, &source.content)
        {
            compare(
                archive,
                archive.pieces(chunks, holes),
                holes,
                &source.path,
                file,
            )?;
        }
    }
    Ok(())
}

/// Returns whether the archived attributes `found` equal `expected`. Archives of format 2 have no
/// times.
fn are_same(found: &Attributes, expected: &Attributes) -> bool {
    let modified = found.modified.and(expected.modified);
    let expected = Attributes {
        modified,
        ..expected.clone()
    };
    *found == expected
}

/// The number of bytes of a hole that are read at a time.
const PIECE: usize = 64 << 10;

/// Checks that the file at `path` consists of the chunks `pieces` and of zeros in the `holes`. The
/// holes are read: the filesystem's own report of them was the source of the archive.
fn compare<S: ReadAt>(
    archive: &Archive<S>,
    pieces: impl Iterator<Item = (u64, u32)>,
    holes: &[Span],
    path: &Path,
    content: &FileContent,
) -> Result<(), Mismatch> {
    let unreadable = |source| Mismatch::Unreadable {
        path: path.into(),
        source,
    };
    let different = |at| {
        let path = path.into();
        Err(Mismatch::Bytes { path, at })
    };
    let file = open_regular(path).map_err(unreadable)?;
    let (mut packed, mut chunk, mut there) = (Vec::new(), Vec::new(), Vec::new());
    let mut end = 0;
    for (at, number) in pieces {
        archive.restore(number, &mut packed, &mut chunk)?;
        there.resize(chunk.len(), 0);
        match file.read_exact_at(&mut there, at) {
            Ok(()) if there == chunk => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                return Err(unreadable(error));
            }
            _ => return different(at),
        }
        end = at + chunk.len() as u64;
    }
    for hole in holes {
        let mut at = hole.start;
        while at < hole.end() {
            there.resize((hole.end() - at).min(PIECE as u64) as usize, 0);
            match file.read_exact_at(&mut there, at) {
                Ok(()) if there.iter().all(|byte| *byte == 0) => {}
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                    return Err(unreadable(error));
                }
                _ => return different(at),
            }
            at += there.len() as u64;
        }
    }
    let end = end.max(holes.last().map_or(0, |hole| hole.end()));
    match file.metadata().map_err(unreadable)?.len() == content.len {
        true => Ok(()),
        false => different(end),
    }
}
