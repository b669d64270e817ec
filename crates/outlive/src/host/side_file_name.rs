//! The names of side files: which lie here, and the removal of those that nobody uses.

use super::side_file::failed;
use super::{OsError, OsIdentity};
use core::time::Duration;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "outlive.";
/// What the name of a file ends in that is still being filled, where it has to have a name then.
pub(super) const UNFINISHED: &str = "unfinished";

/// A side file that lies in `/dev/shm`, of whatever pod and boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideFileEntry {
    /// The pod.
    pub pod: u128,
    /// The operating system.
    pub os: OsIdentity,
    /// The file.
    pub path: PathBuf,
}

impl SideFileEntry {
    /// Whether a process uses the file, so that it would not be removed now. Changes nothing; who is about to attach
    /// waits for the look.
    ///
    /// # Errors
    /// What the operating system said; nobody can look who may not open the file.
    pub fn is_in_use(&self) -> Result<bool, OsError> {
        let Some(file) = self.open()? else {
            return Ok(false);
        };
        // Dropped with the file.
        Ok(!lock_for_oneself(&file, &self.path)?)
    }

    /// Removes the file unless a process uses it. `Ok(false)` if it was gone already.
    ///
    /// A caller who dies in the middle leaves the file as it was, or removed.
    ///
    /// # Errors
    /// [`OsError::InUse`], or what the operating system said.
    pub fn remove(&self) -> Result<bool, OsError> {
        match self.open()? {
            Some(file) => remove_locked(&file, &self.path),
            None => Ok(false),
        }
    }

    /// The file; `None` if it is gone.
    fn open(&self) -> Result<Option<File>, OsError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed("opening", &self.path, error)),
        }
    }
}

/// Removes the open `file` from `path` if nobody else has it locked.
pub(super) fn remove_locked(file: &File, path: &Path) -> Result<bool, OsError> {
    if !lock_for_oneself(file, path)? {
        return Err(OsError::InUse {
            path: path.to_owned(),
        });
    }
    if !still_named(file, path)? {
        return Ok(false);
    }
    rustix::fs::unlink(path).map_err(|error| failed("removing", path, error))?;
    Ok(true)
}

/// Locks the open `file` at `path` unless somebody else has it locked; who only looks has it for a moment.
fn lock_for_oneself(file: &File, path: &Path) -> Result<bool, OsError> {
    for moment in [1, 3, 0] {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(moment)),
            Err(error) => return Err(failed("locking", path, error)),
        }
    }
    Ok(false)
}

/// All side files in `meeting`.
pub(super) fn list(meeting: &Path) -> Result<Vec<SideFileEntry>, OsError> {
    let failed = |source| OsError::Call {
        call: format!("listing {}", meeting.display()),
        source,
    };
    let mut found = Vec::new();
    for file in std::fs::read_dir(meeting).map_err(failed)? {
        let path = file.map_err(failed)?.path();
        let file_name = path.file_name().and_then(|name| name.to_str());
        if let Some((pod, os)) = file_name.and_then(parse_name) {
            found.push(SideFileEntry { pod, os, path });
        }
    }
    Ok(found)
}

pub(super) fn name(pod: u128, os: OsIdentity) -> String {
    format!(
        "{PREFIX}{pod:032x}.{:032x}.{:016x}",
        os.boot, os.pid_namespace
    )
}

/// The pod and operating system in a side file's name, also in that of an unfinished one.
fn parse_name(name: &str) -> Option<(u128, OsIdentity)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('.');
    let mut hex = |digits| {
        let part = parts.next()?;
        (part.len() == digits).then_some(())?;
        u128::from_str_radix(part, 16).ok()
    };
    let (pod, boot, pid_namespace) = (hex(32)?, hex(32)?, hex(16)? as u64);
    if let Some(rest) = parts.next() {
        (rest == UNFINISHED).then_some(())?;
    }
    Some((
        pod,
        OsIdentity {
            boot,
            pid_namespace,
            machine: 0,
            one_kernel: false,
        },
    ))
}

/// Removes what an earlier boot left of this pod. Who fails to, leaves it for the clean-up.
pub(super) fn remove_earlier(meeting: &Path, pod: u128, os: OsIdentity) {
    for entry in list(meeting).unwrap_or_default() {
        if entry.pod == pod && entry.os.boot != os.boot {
            match entry.remove() {
                Ok(_) => {
                    tracing::info!(path = %entry.path.display(), "removed: of an earlier boot")
                }
                Err(error) => tracing::warn!(%error, "a side file of an earlier boot stays"),
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
