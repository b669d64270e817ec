//! Presence: one byte of the pod's file for each id, which the kernel keeps locked while a process
//! has the id. (One more byte for each operating system is locked while a process is on that
//! system.)
//!
//! An open-file-description lock belongs to the open file description, and a mapping keeps the
//! description. So a process that claims the id `n`
//!
//! 1. opens the pod's file again, which creates a new description,
//! 2. locks byte 2^62 + n through it (which does not make the file larger),
//! 3. maps one granule through it, which is never accessed, and excludes the mapping from `fork`,
//! 4. closes the descriptor.
//!
//! From then on the lock lives as long as the address space, or until the mapping is removed. The
//! kernel releases it after the last thread has ended and the address space is gone: on SIGKILL, on
//! exec, and, if a vfork child shares the address space, only after that child. Every other mapping
//! of the pod in this address space is gone by then, so a free byte proves that the process can no
//! longer write to the pod.
//!
//! A lock is seen from every PID, mount, user and time namespace of the kernel, through any path to
//! the same file, by every user that can open it. Other kernels do not see it:
//! The module `membership::operating_systems` defines which operating systems may conclude a death
//! from a free byte.
//!
//! **A locked byte proves nothing** but that a description with the lock exists. A forked child
//! that has inherited the description keeps the lock. So a fork waits while a thread makes the
//! steps 1 to 4, for a bounded time (module `fork_exclusion`). A child that does not exec can keep
//! the lock only if it was made without the C library's `fork`, or after that time: by a handler of
//! a signal that interrupted these steps, or while a thread was held up in them. The join lock of a
//! host (`claim_briefly`) keeps its descriptor and is unlocked explicitly. If a process is killed
//! while it has that lock, a child that was forked in the meantime keeps the lock until it ends. A
//! program that may write to the file can also lock the byte itself. All these delay the detection
//! of a death; none can cause a false one. A program that may only read the file can take read
//! locks, which delay no detection: a presence is a write lock. But no process can claim an id
//! while another user has a read lock on its byte.
//!
//! Tests: tests/host_presence.rs.

use super::side_file_header::MEETING;
use super::{OsError, futex::last_error};
use crate::fork;
use crate::fork_exclusion::Section;
use crate::segment::Segment;
use crate::segment::ofd::{self, Held, Kind, Which, which};
use core::ptr::NonNull;
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

/// The offset of the byte of id 0: far beyond the end of any file, and below the largest possible
/// offset.
const FIRST_BYTE: libc::off_t = 1 << 62;
/// The byte that a process locks while it changes the identity of the pod: right before the first
/// id's.
const CHANGE_BYTE: libc::off_t = FIRST_BYTE - 1;
/// The byte of operating system 0; those of the others are before it.
const SYSTEM_BYTE: libc::off_t = FIRST_BYTE - 2;

/// A file in which the presence of a pod's processes is locked: the pod's own, or its side file.
#[derive(Clone, Debug)]
pub struct PodFile {
    /// This description has no locks itself: a description does not see its own locks.
    file: Arc<File>,
    path: PathBuf,
    granule: usize,
    /// The identity of the file when it was opened.
    which: Option<Which>,
}

/// A lock on one byte, and the mapping that keeps it. A drop frees the byte.
#[derive(Debug)]
struct Anchor {
    base: NonNull<libc::c_void>,
    len: usize,
    /// The number of the process that mapped it (`fork::generation`).
    of: u64,
}

// SAFETY: the mapping is never accessed; it is an address and a length.
unsafe impl Send for Anchor {}
// SAFETY: as above.
unsafe impl Sync for Anchor {}

/// The right to an id on this kernel. It ends when the value is dropped, when the process ends, and
/// on exec.
#[derive(Debug)]
pub struct Presence {
    _held: Box<dyn core::fmt::Debug + Send + Sync>,
}

impl Presence {
    /// Returns a presence that lasts as long as `held`.
    pub fn new(held: impl core::fmt::Debug + Send + Sync + 'static) -> Self {
        Self {
            _held: Box::new(held),
        }
    }
}

impl PodFile {
    /// Returns the file of the pod in `segment`.
    pub fn of(segment: Segment) -> Self {
        Self {
            // The identity of the mapped file.
            which: Some(segment.which()),
            ..Self::new(segment.file(), segment.path(), segment.granule())
        }
    }

    /// Returns the pod file `file`, opened by `path`. The size of a mapping of it is a multiple of
    /// `granule` bytes.
    pub fn new(file: Arc<File>, path: &Path, granule: u64) -> Self {
        Self {
            which: which(&file),
            file,
            path: path.to_owned(),
            granule: usize::try_from(granule).expect("a granule is at most a huge page"),
        }
    }

    /// Opens the same file again. The new description has none of the locks of this one.
    pub(super) fn reopened(&self) -> Result<Self, OsError> {
        Ok(Self {
            file: Arc::new(self.reopen()?),
            ..self.clone()
        })
    }

    /// Returns whether it is the same file as `other`.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.which.is_some() && self.which == other.which
    }

    /// Returns whether the file has a name. A memfd and a removed file have none.
    pub(super) fn has_name(&self) -> bool {
        self.file.metadata().map_or(true, |file| file.nlink() > 0)
    }

    /// Returns the path by which it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the process `pid` of this PID namespace has the file mapped, according to
    /// `/proc`. Returns `false` if that cannot be read.
    pub(super) fn is_mapped_by(&self, pid: u32) -> bool {
        let Some(which) = self.which else {
            return false;
        };
        let (major, minor) = (libc::major(which.device), libc::minor(which.device));
        let place = (major, minor, which.inode);
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
        maps.is_ok_and(|maps| maps.lines().any(|line| mapped(line) == Some(place)))
    }

    /// Returns the directory in which the processes of the pod meet: that of its file, or
    /// `/dev/shm` if the pod is a device or its file has no name.
    pub(super) fn directory(&self) -> PathBuf {
        let is_file = { self.file.metadata() }.is_ok_and(|metadata| metadata.is_file());
        // The path by which the kernel knows the file: it is the same for all processes, even if
        // they opened it by a relative path or through symbolic links.
        let known = std::fs::read_link(ofd::name_of(&self.file));
        // A creator's file had no name when it was opened, and the kernel calls it deleted.
        let named = std::fs::canonicalize(&self.path);
        let leads_to_it = |path: &PathBuf| {
            let found = std::fs::symlink_metadata(path);
            path.is_absolute() && found.is_ok_and(|found| self.which == Some(Which::of(&found)))
        };
        let path = { [known, named].into_iter().flatten() }.find(leads_to_it);
        match path.as_deref().and_then(Path::parent) {
            Some(directory) if is_file => directory.to_owned(),
            _ => MEETING.into(),
        }
    }

    /// Locks the byte of `id` for as long as the result lives; `None` if it is locked already.
    pub(super) fn claim(&self, id: u32) -> Result<Option<Presence>, OsError> {
        self.hold(FIRST_BYTE + libc::off_t::from(id), Kind::Write)
    }

    /// Does the same as [`claim`](Self::claim), but a drop of the result unlocks explicitly.
    pub(super) fn claim_briefly(&self, id: u32) -> Result<Option<Presence>, OsError> {
        let (file, byte) = (self.reopen()?, FIRST_BYTE + libc::off_t::from(id));
        if !self.lock(&file, byte, Kind::Write)? {
            return Ok(None);
        }
        // The mapping keeps the lock if the program closes the descriptor, and is dropped last.
        let anchor = self.anchor(&file)?;
        Ok(Some(Presence::new((
            Held::new(Arc::new(file), byte),
            anchor,
        ))))
    }

    /// Registers this process as a user of the operating system number `number` for as long as the
    /// result lives. Returns `None` while that number is being given to another operating system.
    pub(super) fn use_system(&self, number: u16) -> Result<Option<Presence>, OsError> {
        self.hold(SYSTEM_BYTE - libc::off_t::from(number), Kind::Read)
    }

    /// Keeps all processes off the operating system `number` for as long as the result lives.
    /// Returns `None` if a process is on it.
    pub(super) fn reserve_system(&self, number: u16) -> Result<Option<Presence>, OsError> {
        self.hold(SYSTEM_BYTE - libc::off_t::from(number), Kind::Write)
    }

    fn hold(&self, byte: libc::off_t, kind: Kind) -> Result<Option<Presence>, OsError> {
        // A child that inherited the descriptor would keep the lock. (It is closed before.)
        let section = Section::enter();
        let file = self.reopen()?;
        if !self.lock(&file, byte, kind)? {
            return Ok(None);
        }
        let anchor = self.anchor(&file)?;
        drop(file);
        drop(section);
        // On an overlay the mapping is of the file below, and the lock has ended with the
        // descriptor.
        let kept = ofd::is_locked(&self.file, byte);
        match kept.map_err(|source| self.call("querying a lock of", source))? {
            false => Err(OsError::Missing {
                what: "a filesystem on which a mapping keeps a lock",
                hint: format!(
                    "the locks of {} end with their descriptors, as on overlayfs; mount a tmpfs at {MEETING}, or put \
                     the pod on another local filesystem",
                    self.path.display()
                ),
            }),
            true => Ok(Some(Presence::new(anchor))),
        }
    }

    /// Returns whether the byte of `id` is locked.
    pub(crate) fn is_locked(&self, id: u32) -> bool {
        // A presence is a write lock. Users that may only read the file can have read locks.
        let ask = || ofd::excludes(&self.file, FIRST_BYTE + libc::off_t::from(id), Kind::Read);
        let is_it = || which(&self.file) == self.which;
        // A program that closes descriptors that are not its own may have given the number to
        // another file since, whose bytes are free. It must be this file before and after the
        // answer.
        let asked = match ask() {
            Ok(false) if !is_it() => Err(Errno::BADF.into()),
            Ok(false) => ask().and_then(|locked| match locked || is_it() {
                true => Ok(locked),
                false => Err(Errno::BADF.into()),
            }),
            asked => asked,
        };
        asked.unwrap_or_else(|error| {
            // A failed query proves no death.
            static ONCE: Once = Once::new();
            ONCE.call_once(|| {
                tracing::error!(path = %self.path.display(), %error, "the locks of the pod's file cannot be read");
            });
            true
        })
    }

    /// Runs `change` while no other process of this kernel changes the identity of the pod. Returns
    /// `None` if another process does.
    pub(crate) fn change_alone<T>(&self, change: impl FnOnce() -> T) -> Result<Option<T>, OsError> {
        let file = self.reopen()?;
        if !self.lock(&file, CHANGE_BYTE, Kind::Write)? {
            return Ok(None);
        }
        // The kernel releases the lock if this process dies before.
        let _held = Held::new(Arc::new(file), CHANGE_BYTE);
        Ok(Some(change()))
    }

    /// Locks one byte through `file`. Returns `false` if another description has it locked.
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

    /// Opens a new description of the same file.
    fn reopen(&self) -> Result<File, OsError> {
        let opened = ofd::reopen(&self.file, &self.path);
        let opened = opened.and_then(|file| match which(&file) == self.which {
            true => Ok(file),
            // The program has closed the descriptor, and its number is another file's.
            false => Err(Errno::BADF),
        });
        opened.map_err(|error| OsError::Call {
            call: format!("reopening {}", self.path.display()),
            source: error.into(),
        })
    }

    fn call(&self, what: &str, source: std::io::Error) -> OsError {
        OsError::Call {
            call: format!("{what} {}", self.path.display()),
            source,
        }
    }

    /// Maps the file, which keeps the locks of the description of `file`.
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
        // The number of the descriptor may be another file's by now.
        let is_it = which(file) == self.which;
        let anchor = Anchor {
            base: NonNull::new(base).expect("mmap returned null"),
            len: self.granule,
            of: fork::generation(),
        };
        if !is_it {
            return Err(self.call("mapping", Errno::BADF.into()));
        }
        // SAFETY: the mapping is ours. A forked child that inherited it would keep the lock of its
        // dead parent.
        if unsafe { libc::madvise(base, self.granule, libc::MADV_DONTFORK) } != 0 {
            return Err(last_error(format!(
                "madvise(MADV_DONTFORK) on {}",
                self.path.display()
            )));
        }
        Ok(anchor)
    }
}

/// Returns device and inode of the file that a line of `/proc/PID/maps` shows as shared and
/// writable, as members have it. The line ends in the file's name, which any user can choose.
fn mapped(line: &str) -> Option<(u32, u32, u64)> {
    let mut fields = line.split(' ').skip(1);
    let rights = fields.next()?;
    if !(rights.contains('w') && rights.contains('s')) {
        return None;
    }
    let mut fields = fields.skip(1);
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
        assert_eq!(
            mapped("7f00-7f01 r--s 00001000 00:1b 5445 /dev/shm/pod"),
            None
        );
        assert_eq!(mapped(""), None);
    }
}
