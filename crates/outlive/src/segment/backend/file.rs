//! A file: in `/dev/shm`, on a DAX filesystem such as famfs, on hugetlbfs, or on an ordinary
//! filesystem.
//!
//! A new segment is made in a file without a name (`O_TMPFILE`), which is linked to its path when
//! it is complete: a creator that is killed before leaves nothing, because the kernel frees a file
//! with neither name nor opener. Where the filesystem has no unnamed files the file has its name
//! from the start, and the first write marks it as incomplete. A file that was prepared (famfs
//! files are allocated by its own tool) is filled in place, if its creator asks to replace it.

use super::{Backend, BackendKind, Fresh, read_first_page};
use crate::segment::error::{CallFailed, CreateError, Unsuitable};
use crate::segment::filesystem::{HUGETLBFS, can_link, filesystem, has_inodes, is_local, set_mode};
use crate::segment::ofd::{Which, name_of, which};
use crate::segment::space::{NotReserved, Places, Space, reserve};
use crate::segment::superblock::{SUPERBLOCK_BYTES, incomplete_word};
use outlive_memory::Native;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, fstatfs, linkat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A regular file.
#[derive(Debug)]
pub(super) struct RegularFile {
    file: Arc<File>,
    path: PathBuf,
    granule: u64,
    name: Name,
    /// The number of the filesystem, determined once: later the descriptor may be another file's.
    filesystem: u64,
}

/// The state of the file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// It existed before.
    Old,
    /// It has none yet.
    None,
    /// It was created with its name, which is removed if the creation fails.
    Early,
    /// It was created and named.
    New,
}

impl RegularFile {
    /// Creates an empty file for a segment at `path`; returns it with its first word.
    pub fn create(path: &Path, options: &Fresh) -> Result<(Self, u64), CreateError> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        // No other user may open it before its mode is set.
        let private = Mode::RUSR | Mode::WUSR;
        let unnamed = if options.named_from_the_start || !can_link() {
            Err(Errno::OPNOTSUPP)
        } else {
            openat(CWD, directory, flags | OFlags::TMPFILE, private)
        };
        let (fd, name) = match unnamed {
            Ok(fd) => (fd, Name::None),
            // The errors of filesystems and kernels without unnamed files; for a missing directory
            // the second call fails in the same way.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL;
                let fd = openat(CWD, path, flags, private).map_err(|error| taken(path, error))?;
                (fd, Name::Old)
            }
            Err(error) => return Err(CallFailed::new("open", directory, error).into()),
        };
        let mut file = Self::with_name(fd.into(), path, name)?;
        let mut word = 0;
        if name == Name::Old {
            // It has its name already: no other process may replace it, or find it replaced.
            if !super::lock(&file.file, path)? {
                return Err(CreateError::Busy { path: path.into() });
            }
            file.name = Name::Early;
            word = file.mark()?;
        }
        // After the mark: an early death leaves a file that its owner alone may open.
        set_mode(&file.file, options.mode)
            .map_err(|error| CallFailed::new("fchmod", path, error))?;
        Ok((file, word))
    }

    /// Wraps an existing file.
    pub fn from_file(file: File, path: &Path) -> Result<Self, CallFailed> {
        Self::with_name(file, path, Name::Old)
    }

    fn with_name(file: File, path: &Path, name: Name) -> Result<Self, CallFailed> {
        let failed = |error| CallFailed::new("fstatfs", path, error);
        let filesystem = filesystem(&file).map_err(failed)?;
        let granule = match filesystem {
            HUGETLBFS => fstatfs(&file).map_err(failed)?.f_bsize as u64,
            _ => Native::GRANULE,
        };
        Ok(Self {
            file: Arc::new(file),
            path: path.into(),
            granule,
            name,
            filesystem,
        })
    }

    /// Marks a file that has its name already as incomplete. One write, so that a kill leaves
    /// either an empty file or a marked one.
    fn mark(&mut self) -> Result<u64, CallFailed> {
        let word = incomplete_word(std::process::id());
        let mut page = [0; SUPERBLOCK_BYTES as usize];
        page[..8].copy_from_slice(&word.to_ne_bytes());
        match self.file.write_all_at(&page, 0) {
            Ok(()) => Ok(word),
            Err(error) => Err(CallFailed::new("write", &self.path, error)),
        }
    }
}

fn taken(path: &Path, error: Errno) -> CreateError {
    match error {
        Errno::EXIST => CreateError::Exists {
            path: path.into(),
            what: "another process created it at the same time, or it is a dangling link; choose \
                   another path"
                .into(),
        },
        Errno::NOENT => Unsuitable::new(
            path,
            "its directory does not exist; create the directory, or choose another path",
        )
        .into(),
        error => CallFailed::new("create", path, error).into(),
    }
}

impl Backend for RegularFile {
    fn kind(&self) -> BackendKind {
        BackendKind::File
    }

    fn file(&self) -> &Arc<File> {
        &self.file
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn capacity(&self) -> Result<u64, CallFailed> {
        let stat =
            fstat(&self.file).map_err(|error| CallFailed::new("fstat", &self.path, error))?;
        Ok(stat.st_size as u64)
    }

    fn granule(&self) -> u64 {
        self.granule
    }

    fn is_fresh(&self) -> bool {
        self.name != Name::Old
    }

    fn first_page(&self) -> Result<Vec<u8>, CallFailed> {
        read_first_page(&self.file, &self.path)
    }

    fn reserve(&mut self, space: Space, places: &Places) -> Result<(), CreateError> {
        reserve(&self.file, &self.path, space, places).map_err(|error| match error {
            NotReserved::NoRoom(no_room) => CreateError::NoRoom(no_room),
            NotReserved::Call(call) => CreateError::Call(call),
        })
    }

    fn has_one_kernel(&self) -> bool {
        is_local(self.filesystem)
    }

    fn is_known_by_inode(&self) -> bool {
        has_inodes(self.filesystem)
    }

    fn publish(&mut self) -> Result<(), CreateError> {
        if self.name == Name::None {
            link(&self.file, &self.path).map_err(|error| taken(&self.path, error))?;
        }
        if self.name != Name::Old {
            self.name = Name::New;
        }
        Ok(())
    }
}

/// Gives an unnamed file a name that must be free.
fn link(file: &File, path: &Path) -> Result<(), Errno> {
    match linkat(CWD, name_of(file), CWD, path, AtFlags::SYMLINK_FOLLOW) {
        // Without /proc: the direct way, which needs a capability.
        Err(Errno::NOENT) => linkat(file, "", CWD, path, AtFlags::EMPTY_PATH),
        other => other,
    }
}

impl Drop for RegularFile {
    fn drop(&mut self) {
        // The lock keeps creators away from the file; its name may be another file's by now.
        let is_named = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|named| which(&self.file) == Some(Which::of(&named)));
        if self.name == Name::Early && is_named {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
