//! The files that this operating system keeps for pods in addition to the pods' own: side files and
//! cords. Clean-up code finds and removes left-over files by these functions.

use super::cord::{self, CordEntry, Cords};
use super::proc::Place;
use super::side_file_header::MEETING;
use super::side_file_name::{self, SideFileEntry};
use super::side_file_open::Access;
use super::{Linux, OsError};
use std::path::Path;

impl Linux {
    /// Returns the side files in `/dev/shm`, of all pods and boots, for a clean-up.
    ///
    /// # Errors
    /// If `/dev/shm` cannot be listed.
    pub fn side_files() -> Result<Vec<SideFileEntry>, OsError> {
        side_file_name::list(Path::new(MEETING))
    }

    /// Returns the id of this boot, if `/proc` shows it.
    pub fn this_boot() -> Option<u128> {
        Place::of_this_process().ok().map(|place| place.boot)
    }

    /// Returns the id of this machine in its boot `boot`; 0 if it is not known.
    pub(crate) fn this_machine(boot: u128) -> u128 {
        super::proc::machine(boot)
    }

    /// Returns whether processes of this PID namespace have, or had, a side file for `pod`. For
    /// observers that must not create one.
    ///
    /// # Errors
    /// If that cannot be determined.
    pub fn has_side_file(pod: u128) -> Result<bool, OsError> {
        let place = Place::of_this_process()?;
        for other in 0..side_file_name::NAMES {
            let path = Path::new(MEETING).join(side_file_name::name(pod, place, other));
            match path.symlink_metadata() {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(OsError::Call {
                        call: format!("stat of {}", path.display()),
                        source,
                    });
                }
            }
        }
        Ok(false)
    }

    /// Returns the cords in `/dev/shm` (files by which hosts are killed), of all pods: for the
    /// removal of those whose pod no longer exists.
    ///
    /// # Errors
    /// If `/dev/shm` cannot be listed.
    pub fn cords() -> Result<Vec<CordEntry>, OsError> {
        cord::list(Path::new(MEETING)).map_err(|source| OsError::Call {
            call: format!("listing {MEETING}"),
            source,
        })
    }

    /// Removes the cords of `pod` (files by which its hosts can be killed) in the directory of the
    /// pod's file and in `/dev/shm`. Call it when the pod is destroyed.
    pub fn remove_cords(directory: Option<&Path>, pod: u128, access: Access) {
        for directory in directory.into_iter().chain([Path::new(MEETING)]) {
            Cords::new(directory, pod, access).remove_all();
        }
    }

    /// Removes the side files of `pod`, except those that this user may not open or remove. Returns
    /// the number of removed files. All files that this process was attached to count as one file.
    /// Call it when the pod is destroyed: this process must no longer hold or watch an obituary of
    /// it.
    ///
    /// # Errors
    /// [`OsError::InUse`] while another process is attached.
    pub fn remove_side_file(pod: u128) -> Result<usize, OsError> {
        let mut removed = usize::from(Self::remove_attached(pod)?);
        for entry in Self::side_files()? {
            if entry.pod != pod {
                continue;
            }
            match entry.remove() {
                Ok(is_removed) => removed += usize::from(is_removed),
                // The file of another user, which may have created it to block this name.
                Err(OsError::Call { source, .. })
                    if source.kind() == std::io::ErrorKind::PermissionDenied =>
                {
                    tracing::warn!(path = %entry.path.display(), "the side file was not removed: another user owns it; that user or root can remove it");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }
}
