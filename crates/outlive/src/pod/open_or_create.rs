//! Opening a pod that one of several processes creates. Tests: `tests/pod_session.rs`.

use super::{Pod, PodError, PodOptions};
use crate::segment::{CreateError, OpenError, Refusal};
use core::time::Duration;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::Path;
use std::time::Instant;

/// The longest wait for the turn to create, and for another creator or a repair.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

impl Pod {
    /// Opens the pod at `path`; creates it with `options` if nothing is there. Of several processes
    /// that call this at the same time, one creates the pod, and the others wait for it and open
    /// it. The options of a pod that exists are not changed.
    ///
    /// ```
    /// use outlive::pod::{Pod, PodOptions};
    /// # let path = format!("/dev/shm/outlive-doc-open-or-create-{}", std::process::id());
    /// let pod = Pod::open_or_create(&path, PodOptions::new().size(8 << 20))?;
    /// let same = Pod::open_or_create(&path, PodOptions::new().size(8 << 20))?;
    /// assert_eq!(pod.number(), same.number());
    /// # Pod::destroy(&path)?;
    /// # Ok::<(), outlive::pod::PodError>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`create`](Self::create) if nothing is there, and otherwise those of
    /// [`open`](Self::open): [`OpenError::Busy`] if another process creates or repairs it for more
    /// than 10 seconds.
    ///
    /// # Crash
    /// A creator that dies leaves no pod, and a waiting process creates it; or, on a device or a
    /// filesystem without unnamed files, an incomplete pod, which must be removed or replaced.
    pub fn open_or_create(
        path: impl AsRef<Path>,
        options: PodOptions<'_>,
    ) -> Result<Self, PodError> {
        let path = path.as_ref();
        // Most often it exists, and no lock is needed.
        match Self::open(path) {
            Err(PodError::Open(OpenError::Busy { .. })) => {}
            Err(error) if is_missing(&error) => {}
            opened => return opened,
        }
        let _turn = turn(path);
        match open_when_created(path) {
            Err(error) if is_missing(&error) => {}
            opened => return opened,
        }
        match Self::create(path, options) {
            // A process that creates it in another way was quicker.
            Err(PodError::Create(CreateError::Exists { .. } | CreateError::Busy { .. })) => {
                open_when_created(path)
            }
            created => created,
        }
    }
}

/// Returns whether nothing is there, or a medium without a pod: a new device, or what a creator has
/// begun.
fn is_missing(error: &PodError) -> bool {
    let PodError::Open(error) = error else {
        return false;
    };
    matches!(error, OpenError::NotFound { .. })
        || matches!(error.refusal(), Some(Refusal::NeverCompleted(_)))
}

/// Opens the pod. Waits while another process creates or repairs it in place.
fn open_when_created(path: &Path) -> Result<Pod, PodError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match Pod::open(path) {
            Err(PodError::Open(OpenError::Busy { .. })) if Instant::now() < until => {
                std::thread::sleep(RETRY_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// Waits until this process is the only one that creates a pod in the directory of `path`, by a
/// lock that the kernel releases if the process dies. Without the lock (the directory
/// cannot be opened, or another program keeps it locked) still only one process creates the pod,
/// but others may first reserve memory for one.
fn turn(path: &Path) -> Option<File> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(directory.unwrap_or(Path::new("."))).ok()?;
    let until = Instant::now() + PATIENCE;
    while flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(RETRY_PAUSE);
    }
    Some(directory)
}
