//! Whoever comes to a pod that is somebody else's, who may remove it meanwhile.

use crate::failure::Failure;
use outlive::host::Linux;
use outlive::pod::Pod;
use outlive_tasks::VolunteerError;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A pod's file, as it was found.
pub struct Found {
    path: PathBuf,
    file: File,
}

/// Which file: device and number.
type File = Option<(u64, u64)>;

/// Which file stands there.
fn file_at(path: &Path) -> File {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

impl Found {
    /// What is at `path`. To be called before it is opened: another one that comes there later is none of the guest's.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.into(),
            file: file_at(path),
        }
    }

    /// Whether the pod is removed: nobody can come to it any more.
    pub fn is_gone(&self) -> bool {
        file_at(&self.path) != self.file
    }

    /// To be called when the guest has left: the last one who was in a pod that is removed also removes what the kernel told of
    /// him by.
    pub fn leave(&self, pod: &Pod) {
        if self.is_gone() {
            let _ = Linux::remove_side_file(pod.number());
        }
    }
}

/// Why a guest was not let in.
pub fn refused(error: VolunteerError) -> Failure {
    match error {
        VolunteerError::Pod(error) => error.into(),
        error => Failure::new(error),
    }
}
