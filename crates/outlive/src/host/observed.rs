//! This operating system in a pod, for an observer. The side file is read, but not created, mapped
//! or locked, so an observer does not hinder any member.

use super::linux::identity_of;
use super::proc::Place;
use super::robust::{OWNER_DIED, TID};
use super::side_file_header::{MEETING, PAGE, WORD_IN_CELL, cell_offset, check, refused};
use super::side_file_name::{NAMES, name};
use super::side_file_open::{Access, Found, open_for_reading};
use super::{Linux, OsError, OsIdentity, PodFile};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// This operating system in one pod, for an observer.
#[derive(Debug)]
pub struct ObservedOs {
    identity: OsIdentity,
    side: Arc<File>,
    obituaries: u32,
    /// The file in which presence is locked.
    presence: PodFile,
}

impl Linux {
    /// Returns this operating system in the pod `pod`, whose file is `file`. Returns `None` if it
    /// has no side file; then none of its processes is a member. The arguments are those of
    /// [`attach`](Self::attach).
    ///
    /// # Errors
    /// If the side file cannot be opened, or is damaged or foreign.
    pub fn observe(
        pod: u128,
        obituaries: u32,
        access: Access,
        file: PodFile,
        has_one_kernel: bool,
    ) -> Result<Option<ObservedOs>, OsError> {
        let place = Place::of_this_process()?;
        let mut unfit = None;
        for other in 0..NAMES {
            let path = Path::new(MEETING).join(name(pod, place, other));
            let side = match open_for_reading(&path, access)? {
                Found::Nothing => break,
                Found::Fit(side) => side,
                // `attach` skips such a file too.
                Found::Unfit(why) => {
                    unfit.get_or_insert(refused(&path, why));
                    continue;
                }
            };
            let header = check(&side, &path, pod, place, obituaries)?;
            let side = Arc::new(side);
            return Ok(Some(ObservedOs {
                identity: identity_of(header.number(), place, has_one_kernel),
                obituaries,
                presence: match has_one_kernel {
                    true => file,
                    false => PodFile::new(Arc::clone(&side), &path, PAGE as u64),
                },
                side,
            }));
        }
        match unfit {
            None => Ok(None),
            // Whether processes use it cannot be told.
            Some(unfit) => Err(unfit),
        }
    }
}

impl ObservedOs {
    /// Returns the operating system's identity.
    pub fn identity(&self) -> OsIdentity {
        self.identity
    }

    /// Returns whether a process holds the presence lock of the id `id`, that is, whether a process
    /// with this id exists.
    pub fn is_present(&self, id: u32) -> bool {
        self.presence.is_locked(id)
    }

    /// Returns whether a thread holds the obituary `slot`. Returns `true` if it cannot be read.
    ///
    /// # Panics
    /// If the pod does not have the id `slot`.
    pub fn is_held(&self, slot: u32) -> bool {
        assert!(
            slot < self.obituaries,
            "obituary {slot} of {}",
            self.obituaries
        );
        let mut word = [0; 4];
        let at = (cell_offset(self.obituaries, slot) + WORD_IN_CELL) as u64;
        match self.side.read_exact_at(&mut word, at) {
            Ok(()) => {
                let word = u32::from_ne_bytes(word);
                word & OWNER_DIED == 0 && word & TID != 0
            }
            Err(_) => true,
        }
    }
}
