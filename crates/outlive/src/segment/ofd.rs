//! Open-file-description locks on single bytes. The kernel releases them when the last descriptor
//! or mapping of the description is gone. They lie behind the end of any file, or on bytes of side
//! files. A failed attempt changes nothing, even if it was to turn a read lock into a write lock
//! (`flock` would lose the read lock then).

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::fork::{self, OwnMutex};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

/// The locks that a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Excludes write locks.
    Read,
    /// Excludes all other locks.
    Write,
}

/// The identity of an open file: device, inode, and the number of the device that the file is.
///
/// A program that closes descriptors which it has not opened may then open a file of its own under
/// the same number. The locks of that file say nothing, so code that keeps a descriptor also keeps
/// its identity, and compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Which {
    pub device: u64,
    pub inode: u64,
    of_device: u64,
}

impl Which {
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            of_device: metadata.rdev(),
        }
    }
}

/// Returns the identity of `file`; `None` if its descriptor is closed.
pub(crate) fn which(file: &File) -> Option<Which> {
    Some(Which::of(&file.metadata().ok()?))
}

/// Locks `byte` through `file`, or turns the lock that its description has there into one of this
/// kind. Returns `false` if another description has a lock that excludes it.
pub(crate) fn lock(file: &File, byte: libc::off_t, kind: Kind) -> io::Result<bool> {
    set(file, flock(byte, l_type(kind)))
}

/// The lock that the description of a file has on a byte, of either kind. Dropped, it unlocks the
/// byte, whatever other descriptors the description has: a child process has copies of all of them
/// until it executes its program, or for good.
#[derive(Debug)]
pub(crate) struct Held {
    file: Arc<File>,
    byte: libc::off_t,
    /// The number of the process that holds it (`fork::generation`): a child shares the
    /// description, and leaves the lock to its parent.
    of: u64,
    /// The position of the description, a random one, by which it is recognised: the program may
    /// have closed the descriptor and opened a file under its number, even the same one. `None` if
    /// it has no position; then only the end of the description unlocks the byte.
    position: Option<u64>,
}

impl Held {
    /// Takes over the lock that the description of `file` has on `byte`.
    pub fn new(file: Arc<File>, byte: libc::off_t) -> Self {
        let of = fork::generation();
        // Below the size of a file on any filesystem, and never 0, that of a new description.
        let position = 1 + uuid::Uuid::new_v4().as_u128() as u64 % (1 << 40);
        let placed = rustix::fs::seek(&*file, SeekFrom::Start(position));
        Self {
            file,
            byte,
            of,
            position: placed.ok(),
        }
    }

    /// Returns the file that is locked.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let is_it = self.position.is_some() && rustix::fs::tell(&*self.file).ok() == self.position;
        if self.of == fork::generation() && is_it {
            // If this fails, the end of the description unlocks the byte.
            let _ = set(&self.file, flock(self.byte, libc::F_UNLCK));
        }
    }
}

fn set(file: &File, lock: libc::flock) -> io::Result<bool> {
    // SAFETY: the descriptor is open and `lock` a valid flock.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Returns whether a description other than that of `file` has `byte` locked.
pub(crate) fn is_locked(file: &File, byte: libc::off_t) -> io::Result<bool> {
    excludes(file, byte, Kind::Write)
}

/// Returns whether a description other than that of `file` has a lock on `byte` that excludes one
/// of this kind.
pub(crate) fn excludes(file: &File, byte: libc::off_t, kind: Kind) -> io::Result<bool> {
    let mut lock = flock(byte, l_type(kind));
    // SAFETY: the descriptor is open and `lock` a valid flock, which the call overwrites.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } {
        0 => Ok(lock.l_type != libc::F_UNLCK as libc::c_short),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the name under which `/proc` shows the open `file` to the calling thread.
///
/// `/proc/self/fd` would show the descriptors of the process's first thread. That thread may have
/// ended, and a thread may have a table of its own (`unshare(CLONE_FILES)`): there the same number
/// may be another file's.
pub(crate) fn name_of(file: &impl AsRawFd) -> String {
    format!("/proc/thread-self/fd/{}", file.as_raw_fd())
}

/// A spare descriptor, one for the whole process. It is closed when the program has used up its
/// descriptors, so that the process can still leave a pod and take a join lock.
static SPARE: OwnMutex<Option<File>> = OwnMutex::new(|| None);

/// Opens a new description of the file of `file`, which was opened by `path`.
pub(crate) fn reopen(file: &File, path: &Path) -> rustix::io::Result<File> {
    let mut spare = SPARE.lock();
    let opened = match reopen_once(file, path) {
        Err(Errno::MFILE) if spare.take().is_some() => reopen_once(file, path),
        opened => opened,
    };
    if spare.is_none() {
        // The file has no locks: a descriptor keeps the locks of its description.
        let nothing = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        *spare = nothing.ok().map(File::from);
    }
    opened
}

fn reopen_once(file: &File, path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = rustix::fs::open(name_of(file), flags, Mode::empty()).or_else(|error| {
        // /proc is not available. The path may lead to another file by now.
        let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(|_| error)?;
        let opened = File::from(opened);
        let is_same = which(file).is_some_and(|it| which(&opened) == Some(it));
        if is_same {
            Ok(opened.into())
        } else {
            Err(error)
        }
    });
    opened.map(File::from)
}

fn l_type(kind: Kind) -> libc::c_int {
    match kind {
        Kind::Read => libc::F_RDLCK,
        Kind::Write => libc::F_WRLCK,
    }
}

fn flock(byte: libc::off_t, l_type: libc::c_int) -> libc::flock {
    // SAFETY: a flock is plain numbers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = l_type as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte;
    lock.l_len = 1;
    lock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_another_description_is_left() {
        const BYTE: libc::off_t = 1 << 60;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        File::create(&path).unwrap();
        let open = || { File::options().read(true).write(true).open(&path) }.unwrap();
        let look = open();
        let held = |file: File| {
            assert!(lock(&file, BYTE, Kind::Write).unwrap());
            Held::new(Arc::new(file), BYTE)
        };
        drop(held(open()));
        assert!(!is_locked(&look, BYTE).unwrap());

        let first = held(open());
        let copy = first.file().try_clone().unwrap();
        // SAFETY: closes the description of `first`, as a program may that closes all descriptors,
        // and opens the same file again under its number.
        let number = unsafe { libc::dup2(open().as_raw_fd(), first.file().as_raw_fd()) };
        assert_eq!(number, first.file().as_raw_fd());
        drop(copy);
        assert!(!is_locked(&look, BYTE).unwrap());
        let second = Arc::clone(first.file());
        assert!(lock(&second, BYTE, Kind::Write).unwrap());
        drop(first);
        assert!(is_locked(&look, BYTE).unwrap());
    }
}
