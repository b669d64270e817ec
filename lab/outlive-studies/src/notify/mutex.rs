//! A process-shared robust mutex in a file: the kernel's bare means.

use crate::StudyError;
use crate::locks::make_robust;
use crate::scratch::fresh_path;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

const PAGE: usize = 4096;

/// A mutex and its file. A drop of the creator's handle removes the file.
pub struct SharedMutex {
    mutex: NonNull<libc::pthread_mutex_t>,
    path: PathBuf,
    created: bool,
}

impl SharedMutex {
    pub fn create() -> Result<Self, StudyError> {
        let path = fresh_path("mutex");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|file| {
                file.set_len(PAGE as u64)?;
                Ok(file)
            })
            .map_err(StudyError::io(format!("creating {}", path.display())))?;
        let mutex = Self {
            mutex: map(&file)?,
            path,
            created: true,
        };
        // SAFETY: a fresh page, which no other process has opened yet.
        unsafe { make_robust(mutex.mutex.as_ptr()) };
        Ok(mutex)
    }

    pub fn open(path: PathBuf) -> Result<Self, StudyError> {
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = opened.map_err(StudyError::io(format!("opening {}", path.display())))?;
        Ok(Self {
            mutex: map(&file)?,
            path,
            created: false,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn lock(&self) {
        // SAFETY: an initialised mutex.
        unsafe { libc::pthread_mutex_lock(self.mutex.as_ptr()) };
    }

    /// Blocks until the owner dies, and frees the mutex for the next round.
    pub fn lock_dead(&self) {
        // SAFETY: an initialised mutex, which this thread holds after either answer.
        unsafe {
            let answer = libc::pthread_mutex_lock(self.mutex.as_ptr());
            if answer == libc::EOWNERDEAD {
                libc::pthread_mutex_consistent(self.mutex.as_ptr());
            }
            libc::pthread_mutex_unlock(self.mutex.as_ptr());
        }
    }
}

fn map(file: &File) -> Result<NonNull<libc::pthread_mutex_t>, StudyError> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new shared mapping of one page, which is never unmapped.
    let page = unsafe {
        mmap(
            core::ptr::null_mut(),
            PAGE,
            access,
            MapFlags::SHARED,
            file,
            0,
        )
    };
    let page = page.map_err(|errno| StudyError::io("mapping a page")(errno.into()))?;
    Ok(NonNull::new(page.cast()).expect("a mapping is not null"))
}

impl Drop for SharedMutex {
    fn drop(&mut self) {
        if self.created {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
