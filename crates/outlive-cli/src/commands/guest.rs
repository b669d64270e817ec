//! Visits to a pod that another process owns and may remove at any time.

use crate::failure::Failure;
use outlive::host::Linux;
use outlive::pod::Pod;
use outlive_tasks::VolunteerError;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file of a pod, as it was found.
pub struct Found {
    path: PathBuf,
    file: File,
}

/// The identity of a file: device and inode number.
type File = Option<(u64, u64)>;

/// Returns the identity of the file at `path`.
fn file_at(path: &Path) -> File {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

impl Found {
    /// Returns the pod's file at `path`. Called before the pod is opened: a file that appears there
    /// later is not the guest's pod.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.into(),
            file: file_at(path),
        }
    }

    /// Returns whether the pod is removed, so that no process can open it any more.
    pub fn is_gone(&self) -> bool {
        file_at(&self.path) != self.file
    }

    /// Removes the side file of a removed pod, by which the kernel reported deaths, if the guest
    /// was the pod's last member. Called after the guest has left.
    pub fn leave(&self, pod: &Pod) {
        if self.is_gone() {
            let _ = Linux::remove_side_file(pod.number());
        }
    }
}

/// Returns the failure of a guest that could not join.
pub fn refused(error: VolunteerError) -> Failure {
    match error {
        VolunteerError::Pod(error) => error.into(),
        error => Failure::new(error),
    }
}
