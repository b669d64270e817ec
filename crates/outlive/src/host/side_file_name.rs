//! The names of side files; a list of all side files, and the removal of those that no process
//! uses.

use super::OsError;
use super::proc::Place;
use super::side_file_header::{USE_BYTE, failed};
use crate::segment::ofd::{self, Kind};
use core::time::Duration;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "outlive.";
/// The end of the name of a file that is still being filled, on filesystems without nameless files.
pub(super) const UNFINISHED: &str = "unfinished";
/// The number of names that a side file can have. An unusable file at one of them makes only that
/// name unavailable. Two side files are two operating systems, which a pod can have.
pub(super) const NAMES: u32 = 8;

/// A side file in `/dev/shm`, of any pod and boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideFileEntry {
    /// The number of the file's pod.
    pub pod: u128,
    /// The boot in which the file was created.
    pub boot: u128,
    /// The path of the file.
    pub path: PathBuf,
}

impl SideFileEntry {
    /// Returns whether a process uses the file, so that it cannot be removed now. Changes nothing.
    ///
    /// # Errors
    /// The error of the operating system, for example if this user may not open the file.
    pub fn is_in_use(&self) -> Result<bool, OsError> {
        let Some(file) = self.open(OFlags::RDONLY)? else {
            return Ok(false);
        };
        ofd::is_locked(&file, USE_BYTE).map_err(|source| OsError::Call {
            call: format!("querying the locks of {}", self.path.display()),
            source,
        })
    }

    /// Removes the file unless a process uses it. `Ok(false)` if it was gone already.
    ///
    /// A caller that dies in the middle leaves the file as it was, or removed.
    ///
    /// # Errors
    /// [`OsError::InUse`], or the error of the operating system.
    pub fn remove(&self) -> Result<bool, OsError> {
        self.remove_if(|| true)
    }

    /// Does the same as [`remove`](Self::remove), but only if `is_left_over` returns `true`. That
    /// is called while no process uses the file or can begin to. A later process finds the file
    /// removed, and creates another one.
    ///
    /// # Errors
    /// Returns the errors of [`remove`](Self::remove).
    pub fn remove_if(&self, is_left_over: impl FnOnce() -> bool) -> Result<bool, OsError> {
        match self.open(OFlags::RDWR)? {
            Some(file) => remove_locked(&file, &self.path, is_left_over),
            None => Ok(false),
        }
    }

    /// Opens the file. Returns `None` if it does not exist or is not a regular file.
    fn open(&self, access: OFlags) -> Result<Option<File>, OsError> {
        // Nonblocking: opening a FIFO of that name must not wait for its other end.
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(file) => Ok(Some(File::from(file)).filter(is_regular)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed("opening", &self.path, error)),
        }
    }
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Removes the open `file` from `path` if no other description has it locked and `is_left_over`
/// then returns `true`. A read lock that `file` had stays if another process uses the file.
pub(super) fn remove_locked(
    file: &File,
    path: &Path,
    is_left_over: impl FnOnce() -> bool,
) -> Result<bool, OsError> {
    if !lock_for_oneself(file, path)? {
        return Err(OsError::InUse {
            path: path.to_owned(),
        });
    }
    if !still_named(file, path)? || !is_left_over() {
        return Ok(false);
    }
    rustix::fs::unlink(path).map_err(|error| failed("removing", path, error))?;
    Ok(true)
}

/// Takes a write lock on the open `file` at `path`, unless another process uses it. Tries three
/// times, since a process that removes or recreates the file has it locked only briefly.
fn lock_for_oneself(file: &File, path: &Path) -> Result<bool, OsError> {
    for moment in [1, 3, 0] {
        let locked = ofd::lock(file, USE_BYTE, Kind::Write).map_err(|source| OsError::Call {
            call: format!("locking {}", path.display()),
            source,
        })?;
        if locked {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(moment));
    }
    Ok(false)
}

/// Returns all side files in `meeting`.
pub(super) fn list(meeting: &Path) -> Result<Vec<SideFileEntry>, OsError> {
    let failed = |source| OsError::Call {
        call: format!("listing {}", meeting.display()),
        source,
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(meeting).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let file_name = entry.file_name();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && let Some((pod, boot)) = file_name.to_str().and_then(parse_name) {
            let path = entry.path();
            found.push(SideFileEntry { pod, boot, path });
        }
    }
    Ok(found)
}

/// Returns the name of the side file of `pod` for processes of `place`: the first one if `other` is
/// 0, else the `other`-th alternative.
pub(super) fn name(pod: u128, place: Place, other: u32) -> String {
    let Place { boot, namespaces } = place;
    let first = format!("{PREFIX}{pod:032x}.{boot:032x}.{namespaces:016x}");
    match other {
        0 => first,
        other => format!("{first}.{other}"),
    }
}

/// Returns the pod and the boot in the name of a side file, which may be unfinished.
fn parse_name(name: &str) -> Option<(u128, u128)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('.');
    let mut hex = |digits| {
        let part = parts.next()?;
        (part.len() == digits).then_some(())?;
        u128::from_str_radix(part, 16).ok()
    };
    let (pod, boot, _namespaces) = (hex(32)?, hex(32)?, hex(16)?);
    for rest in parts {
        let is_other = rest.parse().is_ok_and(|other: u32| other < NAMES);
        (rest == UNFINISHED || is_other).then_some(())?;
    }
    Some((pod, boot))
}

/// Removes the side files of `pod` that no process uses and that are not of `place`: those of
/// earlier boots, and of PID namespaces that have ended. (At the names for `place` all processes
/// must find the same file.) Files that cannot be removed are left to the clean-up.
pub(super) fn remove_unused(meeting: &Path, pod: u128, place: Place) {
    let here = name(pod, place, 0);
    let is_here = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&here) && !name.ends_with(UNFINISHED)
    };
    for entry in list(meeting).unwrap_or_default() {
        if entry.pod == pod && !is_here(&entry.path) {
            match entry.remove() {
                Ok(_) => {
                    tracing::debug!(
                        path = %entry.path.display(),
                        "removed a side file that no process uses"
                    );
                }
                Err(OsError::InUse { .. }) => {}
                Err(error) => {
                    tracing::debug!(%error, "a side file that no process uses was not removed")
                }
            }
        }
    }
}

pub(super) fn still_named(file: &File, path: &Path) -> Result<bool, OsError> {
    let of_file = file.metadata().map_err(|source| OsError::Call {
        call: format!("stat of {}", path.display()),
        source,
    })?;
    Ok(std::fs::symlink_metadata(path)
        .is_ok_and(|named| (named.dev(), named.ino()) == (of_file.dev(), of_file.ino())))
}
