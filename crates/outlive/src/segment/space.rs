//! The check for free space for a segment's pages, and their reservation.
//!
//! A file on a memory filesystem gets its pages when they are touched. If none is left then, the
//! process that touches it dies by SIGBUS, or of its control group's limit. So all pages are
//! reserved when the segment is created, after a check of every limit that the kernel would enforce
//! by a signal: the filesystem's free space, the control group's memory, the machine's available
//! memory, and the limit on file sizes.

use super::cgroup;
use super::error::CallFailed;
use super::filesystem::{RAMFS, TMPFS, filesystem};
use core::fmt;
use rustix::fs::{FallocateFlags, fallocate, fstat, fstatvfs, ftruncate};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The location of the operating system's own files. The tests replace it by a tree of plain files.
#[derive(Clone, Debug)]
pub(super) struct Places {
    root: PathBuf,
}

impl Places {
    /// Returns the system directories of this machine.
    pub fn real() -> Self {
        Self::below(Path::new("/"))
    }

    /// Returns the directories below `root`, which replace the system's in a test.
    pub fn below(root: &Path) -> Self {
        Self { root: root.into() }
    }

    /// Returns whether these replace the system's directories.
    pub fn stand_in(&self) -> bool {
        self.root != Path::new("/")
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns the entry `key` of `/proc/meminfo`, in bytes.
    pub fn meminfo(&self, key: &str) -> Option<u64> {
        let text = std::fs::read_to_string(self.at("proc/meminfo")).ok()?;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }
}

/// The limit that leaves too little space.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The filesystem that the path is on.
    Filesystem,
    /// A control group of this process; its directory.
    ControlGroup(PathBuf),
    /// The machine's memory.
    Machine,
    /// This process's limit on the size of files.
    FileSize,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filesystem => f.write_str("the filesystem has"),
            Self::ControlGroup(group) => {
                write!(
                    f,
                    "the memory limit of control group {} leaves",
                    group.display()
                )
            }
            Self::Machine => f.write_str("the machine has available"),
            Self::FileSize => f.write_str("this process's file size limit (RLIMIT_FSIZE) is"),
        }
    }
}

/// There is not enough space for a segment's pages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not enough space for a segment at {}: {wanted} bytes are needed{}, but {limit} {free}; {}",
    path.display(), and_beside(*beside), advice(*fits)
)]
pub struct NoRoom {
    /// The segment's path.
    pub path: PathBuf,
    /// The number of bytes that were still to be reserved.
    pub wanted: u64,
    /// The number of further bytes that must stay free, for the files that joining processes create
    /// on the same filesystem.
    pub beside: u64,
    /// The number of bytes available.
    pub free: u64,
    /// The size of the largest segment that fits.
    pub fits: u64,
    /// The limit that leaves too little space.
    pub limit: Limit,
}

fn and_beside(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(", plus {bytes} for the processes that join"),
    }
}

fn advice(fits: u64) -> String {
    match fits {
        0 => "free some space".into(),
        fits => format!("request at most {fits} bytes, or free some space"),
    }
}

/// The reason why pages were not reserved.
#[derive(Debug)]
pub(super) enum NotReserved {
    NoRoom(NoRoom),
    Call(CallFailed),
}

/// The maximal and minimal number of bytes that one call reserves. A signal that arrives in the
/// middle of a call makes tmpfs undo all of it, so calls become smaller until they get through
/// between a timer's signals.
const MOST_STEP: u64 = 32 << 20;
const LEAST_STEP: u64 = 64 << 10;

/// The space to reserve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    /// The size of the file, all of whose pages are reserved.
    pub size: u64,
    /// The number of bytes that the file's filesystem must have free afterwards.
    pub beside: u64,
}

impl Space {
    /// Returns the error for a `limit` that has `free` bytes where `wanted` bytes are still to be
    /// reserved.
    fn lacks(self, path: &Path, wanted: u64, free: u64, limit: Limit) -> NotReserved {
        let lacking = wanted.saturating_add(self.beside).saturating_sub(free);
        NotReserved::NoRoom(NoRoom {
            path: path.into(),
            wanted,
            beside: self.beside,
            free,
            fits: self.size.saturating_sub(lacking) / PAGE * PAGE,
            limit,
        })
    }
}

const PAGE: u64 = 4096;

/// Checks that there is free space for `space` in `file`, and reserves every page of it. The file
/// is at least `space.size` bytes long afterwards. On an error some pages may have been reserved:
/// the caller drops the file.
pub(super) fn reserve(
    file: &File,
    path: &Path,
    space: Space,
    places: &Places,
) -> Result<(), NotReserved> {
    let size = space.size;
    let call = |call, error: Errno| NotReserved::Call(CallFailed::new(call, path, error));
    let stat = fstat(file).map_err(|error| call("fstat", error))?;
    // Blocks of 512 bytes, whatever the filesystem's own are.
    let wanted = size.saturating_sub(stat.st_blocks as u64 * 512);
    look(file, path, space, wanted, places)?;
    let length = stat.st_size as u64;
    let mut at = 0;
    let mut step = MOST_STEP;
    while at < size {
        let len = step.min(size - at);
        match fallocate(file, FallocateFlags::empty(), at, len) {
            Ok(()) => at += len,
            Err(Errno::INTR) => step = (step / 2).max(LEAST_STEP),
            // The filesystem or the kernel does not have the call, or a filter refuses it.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                return write_zeros(file, path, length, space);
            }
            // Another process took the free space after the check.
            Err(Errno::NOSPC | Errno::DQUOT | Errno::NOMEM) => {
                let free = free_space(file).unwrap_or(0);
                return Err(space.lacks(path, size - at, free, Limit::Filesystem));
            }
            Err(error) => return Err(call("fallocate", error)),
        }
    }
    Ok(())
}

/// Reserves by writing, where the filesystem cannot reserve. Zeros are written beyond the old end;
/// bytes before it stay unchanged, since other processes may be using them.
fn write_zeros(file: &File, path: &Path, length: u64, space: Space) -> Result<(), NotReserved> {
    let zeros = vec![0; 1 << 20];
    let mut at = length.next_multiple_of(PAGE).min(space.size);
    if length < at {
        ftruncate(file, at)
            .map_err(|error| NotReserved::Call(CallFailed::new("ftruncate", path, error)))?;
    }
    while at < space.size {
        let len = (zeros.len() as u64).min(space.size - at);
        match file.write_all_at(&zeros[..len as usize], at) {
            Ok(()) => at += len,
            Err(error) if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => {
                let free = free_space(file).unwrap_or(0);
                return Err(space.lacks(path, space.size - at, free, Limit::Filesystem));
            }
            Err(error) => return Err(NotReserved::Call(CallFailed::new("write", path, error))),
        }
    }
    Ok(())
}

/// Returns the filesystem's free bytes for this user; `None` if it has no limit of its own.
fn free_space(file: &File) -> Option<u64> {
    let stat = fstatvfs(file).ok()?;
    (stat.f_blocks != 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn look(
    file: &File,
    path: &Path,
    space: Space,
    wanted: u64,
    places: &Places,
) -> Result<(), NotReserved> {
    // Beyond this limit the kernel sends SIGXFSZ. Only the file itself counts there.
    let alone = Space { beside: 0, ..space };
    let enough =
        |space: Space, wanted: u64, free: Option<u64>, limit: &dyn Fn() -> Limit| match free {
            Some(free) if free < wanted.saturating_add(space.beside) => {
                Err(space.lacks(path, wanted, free, limit()))
            }
            _ => Ok(()),
        };
    let most = getrlimit(Resource::Fsize).current;
    enough(alone, space.size, most, &|| Limit::FileSize)?;
    enough(space, wanted, free_space(file), &|| Limit::Filesystem)?;
    let kind = filesystem(file)
        .map_err(|error| NotReserved::Call(CallFailed::new("fstatfs", path, error)))?;
    if matches!(kind, TMPFS | RAMFS) {
        if let Some(left) = cgroup::left(places) {
            let limit = || Limit::ControlGroup(left.group.clone());
            enough(space, wanted, Some(left.bytes), &limit)?;
        }
        // The kernel's estimate of the memory that it can give without swapping.
        enough(space, wanted, places.meminfo("MemAvailable"), &|| {
            Limit::Machine
        })?;
    }
    Ok(())
}
