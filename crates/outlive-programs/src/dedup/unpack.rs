//! Unpacking: creates an archive's files, directories and links.
//!
//! The target directory must be empty, so nothing is overwritten, and nothing is written through an
//! existing link. Links are created after all files are written, and attributes of directories are
//! set last, because each new entry changes the time of its directory. The target of a hard link is
//! a file of the archive that was created before.

use super::archive::{Archive, ArchiveError, Content, Entry, ReadAt};
use super::extents::{self, Span};
use super::restore::{NotKept, Restorer, What};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Options of unpacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The maximum number of bytes that the archive may take, in whole [blocks](BLOCK). Empty
    /// files, directories and links take one block each.
    pub most: u64,
    /// Restore owners. Requires root.
    pub owners: bool,
    /// Restore extended attributes.
    pub xattrs: bool,
    /// Restore setuid and setgid bits of files, and file capabilities. The programs of the archive
    /// then get the rights of the unpacking user, so its author must be trusted.
    pub set_ids: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            most: u64::MAX,
            owners: false,
            xattrs: false,
            set_ids: false,
        }
    }
}

/// The result of unpacking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// The number of files.
    pub files: u64,
    /// The number of the files' bytes, without holes.
    pub bytes: u64,
    /// The number of additional names of these files.
    pub hard_links: u64,
    /// The number of bytes of the files' holes.
    pub hole_bytes: u64,
    /// The archived attributes that could not be restored.
    pub not_kept: Vec<NotKept>,
}

/// The reason why an archive could not be unpacked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// The archive cannot be read, or is damaged.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The target exists and is not an empty directory.
    #[error(
        "{} is not empty; name a directory that is empty or does not exist yet",
        .path.display()
    )]
    NotEmpty {
        /// The path.
        path: PathBuf,
    },
    /// The archive takes more than allowed.
    #[error(
        "the archive unpacks to {bytes} bytes, and the limit is {most}; nothing was unpacked: \
         raise --max-size if you trust the author of the archive"
    )]
    TooLarge {
        /// The bytes that it takes.
        bytes: u64,
        /// The bytes that it may take.
        most: u64,
    },
    /// There is not enough free space.
    #[error(
        "the archive needs {needed} bytes, and the filesystem of {} has {free} free; nothing was \
         unpacked: free some, or name a directory on another filesystem",
        .path.display()
    )]
    NoRoom {
        /// The target path.
        path: PathBuf,
        /// The bytes that it would take there.
        needed: u64,
        /// The free bytes.
        free: u64,
    },
    /// The filesystem cannot hold that many files, however small they are.
    #[error(
        "the archive has {needed} files, directories and links, and the filesystem of {} can hold \
         {free} more; nothing was unpacked: remove some, or name a directory on another filesystem",
        .path.display()
    )]
    TooMany {
        /// The target path.
        path: PathBuf,
        /// The number of files, directories and links.
        needed: u64,
        /// The number that can be created.
        free: u64,
    },
    /// A hard link cannot be created, and a copy of the file exceeds the limit or the free space.
    #[error(
        "{} cannot be created as a hard link, and a copy of the file needs {needed} more bytes, of \
         which {left} are allowed or free; the files unpacked before stay: unpack the archive on \
         another filesystem, or with a larger --max-size",
        .path.display()
    )]
    NoRoomForCopy {
        /// The path of the hard link.
        path: PathBuf,
        /// The bytes that a copy takes.
        needed: u64,
        /// The bytes that are still allowed or free.
        left: u64,
    },
    /// Owners were requested, and the archive has none.
    #[error(
        "the archive has no owners to be restored; create it with --owners, or unpack it without \
         --owners; nothing was unpacked"
    )]
    NoOwners,
    /// Owners were requested by a process without the right to set them.
    #[error(
        "only root can restore owners; run it as root, or unpack without --owners; nothing was \
         unpacked"
    )]
    NotRoot,
    /// An entry cannot be created.
    #[error("{} cannot be written: {source}", .path.display())]
    Unwritable {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The minimal number of bytes that a file, directory or link takes, and the granularity of
/// [`Options::most`].
pub const BLOCK: u64 = 4 << 10;

/// Unpacks `archive` into the directory `into`, which must be empty or not exist, if it fits.
///
/// # Errors
/// If it does not fit, the archive is damaged, or an entry cannot be created. Entries that were
/// created before remain.
pub fn unpack<S: ReadAt>(archive: &Archive<S>, into: &Path) -> Result<Unpacked, UnpackError> {
    unpack_with(archive, into, &Options::default())
}

/// Unpacks `archive` into `into` with `options`.
///
/// # Errors
/// Returns the errors of [`unpack`], and an error if the archive takes more bytes than `options`
/// allow, or if owners cannot be restored.
pub fn unpack_with<S: ReadAt>(
    archive: &Archive<S>,
    into: &Path,
    options: &Options,
) -> Result<Unpacked, UnpackError> {
    let (bytes, most) = (archive.bytes_in_blocks(BLOCK), options.most);
    if bytes > most {
        return Err(UnpackError::TooLarge { bytes, most });
    }
    if options.owners && !archive.has_owners() {
        return Err(UnpackError::NoOwners);
    }
    if options.owners && !rustix::process::geteuid().is_root() {
        return Err(UnpackError::NotRoot);
    }
    let free = look_for_room(archive, into)?;
    fs::create_dir_all(into).map_err(unwritable(into))?;
    if fs::read_dir(into)
        .map_err(unwritable(into))?
        .next()
        .is_some()
    {
        return Err(UnpackError::NotEmpty { path: into.into() });
    }
    let mut unpacking = Unpacking {
        archive,
        into,
        restorer: Restorer {
            owners: options.owners,
            xattrs: options.xattrs,
            set_ids: options.set_ids,
            not_kept: Vec::new(),
        },
        packed: Vec::new(),
        chunk: Vec::new(),
        unpacked: Unpacked::default(),
        room_for_copies: most.min(free).saturating_sub(bytes),
        copies: HashMap::new(),
    };
    unpacking.all()?;
    Ok(Unpacked {
        not_kept: unpacking.restorer.not_kept,
        ..unpacking.unpacked
    })
}

/// The state of unpacking.
struct Unpacking<'a, S> {
    archive: &'a Archive<S>,
    into: &'a Path,
    restorer: Restorer,
    packed: Vec<u8>,
    chunk: Vec<u8>,
    unpacked: Unpacked,
    /// The bytes that copies of files may take where hard links cannot be created.
    room_for_copies: u64,
    /// The last copy of a file, by its entry number. The next hard links lead to it.
    copies: HashMap<usize, PathBuf>,
}

impl<S: ReadAt> Unpacking<'_, S> {
    fn place(&self, entry: &Entry) -> PathBuf {
        self.into.join(OsStr::from_bytes(&entry.name))
    }

    fn all(&mut self) -> Result<(), UnpackError> {
        let entries = self.archive.entries();
        for entry in entries {
            let path = self.place(entry);
            match &entry.content {
                // Private until the end, also if unpacking ends early: directories get their modes
                // last.
                Content::Directory => DirBuilder::new()
                    .mode(0o700)
                    .create(&path)
                    .map_err(unwritable(&path))?,
                Content::File { chunks, holes } => {
                    self.file(&path, chunks, holes)?;
                    self.restore(&path, entry)?;
                    self.unpacked.files += 1;
                }
                Content::HardLink(first) => self.hard_link(&path, *first)?,
                Content::Link(_) => {}
            }
        }
        for entry in entries {
            if let Content::Link(target) = &entry.content {
                let path = self.place(entry);
                std::os::unix::fs::symlink(OsStr::from_bytes(target), &path)
                    .map_err(unwritable(&path))?;
                self.restore(&path, entry)?;
            }
        }
        // Inner directories first: the mode of an outer one can forbid access to it.
        for entry in entries.iter().rev() {
            if entry.content == Content::Directory {
                self.restore(&self.place(entry), entry)?;
            }
        }
        Ok(())
    }

    fn restore(&mut self, path: &Path, entry: &Entry) -> Result<(), UnpackError> {
        let restored = self.restorer.restore(path, entry);
        restored.map_err(unwritable(path))
    }

    /// Creates the file `path` from these chunks and holes.
    fn file(&mut self, path: &Path, chunks: &[u32], holes: &[Span]) -> Result<(), UnpackError> {
        // Private until it is complete.
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(unwritable(path))?;
        for (at, number) in self.archive.pieces(chunks, holes) {
            self.archive
                .restore(number, &mut self.packed, &mut self.chunk)?;
            file.write_all_at(&self.chunk, at)
                .map_err(unwritable(path))?;
            self.unpacked.bytes += self.chunk.len() as u64;
        }
        if !holes.is_empty() {
            let len = self.archive.len_of(chunks, holes);
            file.set_len(len).map_err(unwritable(path))?;
            if !holes.iter().all(|hole| extents::is_hole(&file, *hole)) {
                let why = "the filesystem has allocated blocks for one of them";
                self.restorer.note(path, What::Holes, why);
            }
        }
        let hole_bytes: u64 = holes.iter().map(|hole| hole.len).sum();
        self.unpacked.hole_bytes = self.unpacked.hole_bytes.saturating_add(hole_bytes);
        Ok(())
    }

    /// Creates `path` as a hard link to the file with entry number `number`, or as a copy where the
    /// filesystem refuses the link.
    fn hard_link(&mut self, path: &Path, number: usize) -> Result<(), UnpackError> {
        let first = &self.archive.entries()[number];
        let there = self.copies.get(&number).cloned();
        match fs::hard_link(there.unwrap_or_else(|| self.place(first)), path) {
            Ok(()) => self.unpacked.hard_links += 1,
            Err(error) if error.raw_os_error().is_some_and(has_no_links) => {
                let Content::File { chunks, holes } = &first.content else {
                    return Ok(());
                };
                let (needed, left) = (
                    self.archive.blocks_of(chunks, holes, BLOCK) * BLOCK,
                    self.room_for_copies,
                );
                let path = path.to_owned();
                let Some(left) = left.checked_sub(needed) else {
                    return Err(UnpackError::NoRoomForCopy { path, needed, left });
                };
                self.room_for_copies = left;
                self.restorer.note(&path, What::HardLink, &error);
                self.file(&path, chunks, holes)?;
                self.restore(&path, first)?;
                self.unpacked.files += 1;
                self.copies.insert(number, path);
            }
            Err(error) => return Err(unwritable(path)(error)),
        }
        Ok(())
    }
}

/// Returns whether this error of link(2) means that the file cannot have another name.
fn has_no_links(error: i32) -> bool {
    use rustix::io::Errno;
    let errors = [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::MLINK];
    errors.iter().any(|no| no.raw_os_error() == error)
}

/// Returns the number of free bytes, or fails if the archive needs more. Metadata of the filesystem
/// is not counted.
fn look_for_room<S: ReadAt>(archive: &Archive<S>, into: &Path) -> Result<u64, UnpackError> {
    // The existing part of the path; the rest is created there.
    let whole = std::path::absolute(into).map_err(unwritable(into))?;
    let there = whole.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("/"));
    let system = rustix::fs::statvfs(there).map_err(|error| unwritable(into)(error.into()))?;
    if system.f_blocks == 0 {
        // The filesystem does not report its size, as some remote ones do.
        return Ok(u64::MAX);
    }
    let block = system.f_frsize.max(1);
    let (needed, free) = (
        archive.bytes_in_blocks(block),
        system.f_bavail.saturating_mul(block),
    );
    let path = into.to_owned();
    let free_bytes = free;
    if needed > free {
        return Err(UnpackError::NoRoom { path, needed, free });
    }
    let has_inode = |entry: &&Entry| !matches!(entry.content, Content::HardLink(_));
    let needed = archive.entries().iter().filter(has_inode).count() as u64;
    let free = system.f_favail;
    // The filesystem has no limit if it reports no number.
    if system.f_files > 0 && needed > free {
        return Err(UnpackError::TooMany { path, needed, free });
    }
    Ok(free_bytes)
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> UnpackError {
    let path = path.to_owned();
    move |source| UnpackError::Unwritable { path, source }
}
