//! Presence: one byte of the pod's file for each id, which the kernel keeps locked while a process has the id. (And one for
//! each operating system, which is locked while a process is on it.)
//!
//! An open-file-description lock belongs to the open file description, and a mapping keeps the description. So a
//! process that wants the id `n`
//!
//! 1. opens the pod's file anew, which makes a description of its own,
//! 2. locks byte 2^62 + n through it (the file does not grow by that),
//! 3. maps one granule through it, which is never accessed, and excludes the mapping from `fork`,
//! 4. closes the descriptor.
//!
//! From then on the lock lives as long as the address space, or until the mapping is undone. The kernel frees it after
//! the last thread has ended and the address space is gone: on SIGKILL, on exec, with a vfork child that shares the
//! address space only after that child. Every other mapping of the pod in this address space is gone by then, so a free
//! byte proves that the process can no longer write to the pod.
//!
//! A lock is seen from every PID, mount, user and time namespace of the kernel, through any path that leads to the same
//! file, and by every user who can open it. It is not seen by other kernels: see `membership/oses.rs` for what a free byte
//! proves to whom.
//!
//! **A locked byte proves nothing** but that a description with the lock exists. A child that another thread forks between
//! steps 1 and 4, and that does not exec, keeps it; so does a program that may write the file and locks the byte itself.
//! Either delays the detection of a death and cannot cause a false one.
//!
//! Tests: tests/host_presence.rs.

use super::side_file_header::MEETING;
use super::{OsError, futex::last_error};
use crate::fork;
use crate::segment::ofd::{self, Held, Kind};
use core::ptr::NonNull;
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

/// The byte of id 0. Far behind the end of any file, and below the largest offset there is.
const FIRST_BYTE: libc::off_t = 1 << 62;
/// The byte of those who change what the pod is: right before the first id's.
const CHANGE_BYTE: libc::off_t = FIRST_BYTE - 1;
/// The byte of operating system 0; those of the others are before it.
const SYSTEM_BYTE: libc::off_t = FIRST_BYTE - 2;

/// The file of a pod, as the place of its processes' presence.
#[derive(Clone, Debug)]
pub struct PodFile {
    /// Locks nothing itself: a description's own locks are not in its way, so it could not see them.
    file: Arc<File>,
    path: PathBuf,
    granule: usize,
    /// Which file it was when it was opened.
    which: Option<Which>,
}

/// Device, inode, and the number of the device that the file is, if it is one.
type Which = (u64, u64, u64);

fn which(file: &File) -> Option<Which> {
    let metadata = file.metadata().ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.rdev()))
}

/// A lock on one byte, and the mapping that keeps it. Dropped, it frees the byte.
#[derive(Debug)]
struct Anchor {
    base: NonNull<libc::c_void>,
    len: usize,
    /// In which process of a chain of forks it is mapped.
    of: u64,
}

// SAFETY: the mapping is never accessed; it is an address and a length.
unsafe impl Send for Anchor {}
// SAFETY: as above.
unsafe impl Sync for Anchor {}

/// The right to an id on this kernel. It is given up when this is dropped, when the process ends, and on exec.
#[derive(Debug)]
pub struct Presence {
    _held: Box<dyn core::fmt::Debug + Send + Sync>,
}

impl Presence {
    /// A presence that lasts as long as `held`.
    pub fn new(held: impl core::fmt::Debug + Send + Sync + 'static) -> Self {
        Self {
            _held: Box::new(held),
        }
    }
}

impl PodFile {
    /// The pod in `file`, opened by `path`; a mapping of it has a multiple of `granule` bytes.
    pub fn new(file: Arc<File>, path: &Path, granule: u64) -> Self {
        Self {
            which: which(&file),
            file,
            path: path.to_owned(),
            granule: usize::try_from(granule).expect("a granule is at most a huge page"),
        }
    }

    /// The same file by a description of its own, which has none of the locks of this one.
    pub(super) fn reopened(&self) -> Result<Self, OsError> {
        Ok(Self {
            file: Arc::new(self.reopen()?),
            ..self.clone()
        })
    }

    /// Whether it is the same file as `other`.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.which.is_some() && self.which == other.which
    }

    /// Whether it has a name. A memfd and a file that was removed have none.
    pub(super) fn has_name(&self) -> bool {
        self.file.metadata().map_or(true, |file| file.nlink() > 0)
    }

    /// The path by which it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the process `pid` of this PID namespace has it mapped, as far as `/proc` tells.
    pub(super) fn is_mapped_by(&self, pid: u32) -> bool {
        let Some((device, inode, _)) = self.which else {
            return false;
        };
        let place = (libc::major(device), libc::minor(device), inode);
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
        maps.is_ok_and(|maps| maps.lines().any(|line| mapped(line) == Some(place)))
    }

    /// Where those meet who have the pod: the directory of its file, or `/dev/shm` if it is a device or has no name.
    pub(super) fn directory(&self) -> &Path {
        let is_named = self.path.is_absolute() && !self.path.starts_with("/proc");
        let is_file = self
            .file
            .metadata()
            .is_ok_and(|metadata| metadata.is_file());
        match self.path.parent() {
            Some(directory) if is_named && is_file => directory,
            _ => Path::new(MEETING),
        }
    }

    /// Locks the byte of `id` for as long as the result lives; `None` if it is locked already.
    pub(super) fn claim(&self, id: u32) -> Result<Option<Presence>, OsError> {
        self.hold(FIRST_BYTE + libc::off_t::from(id), Kind::Write)
    }

    /// As [`claim`](Self::claim), freed explicitly when the result is dropped.
    pub(super) fn claim_briefly(&self, id: u32) -> Result<Option<Presence>, OsError> {
        let (file, byte) = (self.reopen()?, FIRST_BYTE + libc::off_t::from(id));
        let claimed = self.lock(&file, byte, Kind::Write)?;
        Ok(claimed.then(|| Presence::new(Held::new(Arc::new(file), byte))))
    }

    /// Says for as long as the result lives that this process is on the operating system `number`; `None` while that number is
    /// given to another.
    pub(super) fn use_system(&self, number: u16) -> Result<Option<Presence>, OsError> {
        self.hold(SYSTEM_BYTE - libc::off_t::from(number), Kind::Read)
    }

    /// Keeps all processes off the operating system `number` for as long as the result lives; `None` if one is on it.
    pub(super) fn reserve_system(&self, number: u16) -> Result<Option<Presence>, OsError> {
        self.hold(SYSTEM_BYTE - libc::off_t::from(number), Kind::Write)
    }

    fn hold(&self, byte: libc::off_t, kind: Kind) -> Result<Option<Presence>, OsError> {
        let file = self.reopen()?;
        if !self.lock(&file, byte, kind)? {
            return Ok(None);
        }
        Ok(Some(Presence::new(self.anchor(&file)?)))
    }

    /// Whether the byte of `id` is locked.
    pub(crate) fn is_locked(&self, id: u32) -> bool {
        let asked = ofd::is_locked(&self.file, FIRST_BYTE + libc::off_t::from(id));
        // A program that closes descriptors that are not its own may have given the number to another file since, whose
        // bytes are free.
        let asked = match asked {
            Ok(false) if which(&self.file) != self.which => Err(Errno::BADF.into()),
            asked => asked,
        };
        asked.unwrap_or_else(|error| {
            // What cannot be asked proves no death.
            static ONCE: Once = Once::new();
            ONCE.call_once(|| {
                tracing::error!(path = %self.path.display(), %error, "the locks of the pod's file cannot be read");
            });
            true
        })
    }

    /// Runs `change` while no other process of this kernel changes what the pod is.
    pub(crate) fn change_alone<T>(&self, change: impl FnOnce() -> T) -> Result<Option<T>, OsError> {
        let file = self.reopen()?;
        if !self.lock(&file, CHANGE_BYTE, Kind::Write)? {
            return Ok(None);
        }
        // Freed by the kernel if this process dies before.
        let _held = Held::new(Arc::new(file), CHANGE_BYTE);
        Ok(Some(change()))
    }

    /// Locks one byte through `file`; `false` if another description has it.
    fn lock(&self, file: &File, byte: libc::off_t, kind: Kind) -> Result<bool, OsError> {
        ofd::lock(file, byte, kind).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS) => OsError::Missing {
                what: "a filesystem with open-file-description locks",
                hint: format!(
                    "{} cannot be locked ({error}); put the pod into /dev/shm or on another local filesystem",
                    self.path.display()
                ),
            },
            _ => OsError::Call {
                call: format!("locking a byte (fcntl(F_OFD_SETLK)) of {}", self.path.display()),
                source: error,
            },
        })
    }

    /// A new description of the same file.
    fn reopen(&self) -> Result<File, OsError> {
        let opened = ofd::reopen(&self.file, &self.path);
        let opened = opened.and_then(|file| match which(&file) == self.which {
            true => Ok(file),
            // The descriptor's number was closed by the program, and is another file's.
            false => Err(Errno::BADF),
        });
        opened.map_err(|error| OsError::Call {
            call: format!("opening {} once more", self.path.display()),
            source: error.into(),
        })
    }

    /// The mapping that keeps what `file` has locked.
    fn anchor(&self, file: &File) -> Result<Anchor, OsError> {
        // SAFETY: a new mapping at an address of the kernel's choice, without access to its bytes.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                self.granule,
                libc::PROT_NONE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(last_error(format!("mapping {}", self.path.display())));
        }
        let anchor = Anchor {
            base: NonNull::new(base).expect("mmap returned null"),
            len: self.granule,
            of: fork::generation(),
        };
        // SAFETY: the mapping is ours. A forked child that inherited it would keep the lock of its dead parent.
        if unsafe { libc::madvise(base, self.granule, libc::MADV_DONTFORK) } != 0 {
            return Err(last_error(format!(
                "madvise(MADV_DONTFORK) on {}",
                self.path.display()
            )));
        }
        Ok(anchor)
    }
}

/// Device and inode of the file that a line of `/proc/PID/maps` shows as mapped. The line ends in the file's name, which is
/// anybody's to choose.
fn mapped(line: &str) -> Option<(u32, u32, u64)> {
    let mut fields = line.split(' ').skip(3);
    let (major, minor) = fields.next()?.split_once(':')?;
    let number = |hex| u32::from_str_radix(hex, 16).ok();
    Some((number(major)?, number(minor)?, fields.next()?.parse().ok()?))
}

impl Drop for Anchor {
    fn drop(&mut self) {
        if self.of == fork::generation() {
            // SAFETY: the mapping is ours and never accessed.
            unsafe { libc::munmap(self.base.as_ptr(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_maps_is_no_file() {
        let line = "7f00-7f01 rw-s 00001000 00:1b 5445                       /dev/shm/pod";
        assert_eq!(mapped(line), Some((0, 0x1b, 5445)));
        let line = "7f00-7f01 rw-s 00000000 fd:01 77                         /tmp/x 00:1b 5445 y";
        assert_eq!(mapped(line), Some((0xfd, 1, 77)));
        assert_eq!(mapped("7f00-7f01 rw-p 00000000 00:00 0 "), Some((0, 0, 0)));
        assert_eq!(mapped(""), None);
    }
}
