//! A window on one obituary: its word in shared memory, its robust list entry in private memory.
//!
//! The kernel finds the word of an entry at a fixed distance before the entry's link, in the
//! address space of the thread that dies. So the two can be on both sides of a page boundary: first
//! a page of the side file, which ends with the words, then a private page of this process, which
//! contains the entry. Data that another process writes is never followed as an address, neither by
//! this process when it unlinks an entry nor by the kernel when it walks the list.
//!
//! ```text
//!            a page of the side file, shared          |   a private page
//!   …                     | word 0 | word 1 | word 2  | back 0 | link 0, back 1 | link 1, back 2 | link 2
//!                          -24      -16      -8       0        8                16               24
//! ```
//!
//! The link is 32 bytes behind the word, where glibc has it. Every window is for one obituary, so
//! entries that would overlap are in different private pages.

use super::robust::{Entry, FUTEX_OFFSET, LINK_AT};
use super::{OsError, futex::last_error};
use crate::fork;
use crate::segment::{Registered, map_apart};
use core::ptr::NonNull;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Once;

const PAGE: usize = 4096;
/// The number of words at the end of a page of the side file.
pub(super) const WORDS: u32 = 3;
/// The size of a word's cell.
const CELL: usize = 8;

/// Returns the offset of the cell of the `nth` word in its page.
pub(super) const fn cell_at(nth: u32) -> usize {
    PAGE - (WORDS - nth) as usize * CELL
}

/// Two neighbouring pages. They are unmapped on drop, when their entry is in no list.
#[derive(Debug)]
pub(super) struct Window {
    base: NonNull<u8>,
    /// Keeps forked children from mapping anything there.
    registered: Option<Registered>,
    /// The number of the process that mapped it (`fork::generation`).
    of: u64,
}

// SAFETY: it is an address; only the thread that holds the obituary uses the memory there.
unsafe impl Send for Window {}

impl Window {
    /// Maps a window on the page at offset `at` of the side file `file`, whose path is `path`.
    pub(super) fn new(file: &File, path: &Path, at: usize) -> Result<Self, OsError> {
        // Not where a parent of this process has a mapping: copies of the parent's handles would
        // write to the words.
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let mapped = map_apart(2 * PAGE, |hint| {
            // SAFETY: a new mapping at an address of the kernel's choice.
            let base = unsafe { mmap_anonymous(hint.cast(), 2 * PAGE, access, MapFlags::PRIVATE) };
            NonNull::new(base?.cast()).ok_or(Errno::NOMEM)
        });
        let mapped: NonNull<u8> = mapped.map_err(|error| OsError::Call {
            call: "mapping a window".into(),
            source: error.into(),
        })?;
        let base: *mut libc::c_void = mapped.as_ptr().cast();
        // From here on a drop unmaps the pages.
        let window = Self {
            base: mapped,
            registered: Some(Registered::new(mapped.as_ptr(), 2 * PAGE, path)),
            of: fork::generation(),
        };
        let at = libc::off_t::try_from(at).expect("inside a file");
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the mapping replaces the first of the two pages, which are ours. The page is
        // inside the file, whose size was checked.
        let over = unsafe { libc::mmap(base, PAGE, rw, fixed, file.as_raw_fd(), at) };
        if over == libc::MAP_FAILED {
            return Err(last_error(format!("mapping a page of {}", path.display())));
        }
        // SAFETY: both pages are ours. A forked child must not write here. The pages are locked
        // because the kernel must be able to read the link and to write the word by an ordinary
        // write.
        unsafe {
            if libc::madvise(base, 2 * PAGE, libc::MADV_DONTFORK) != 0 {
                return Err(last_error("MADV_DONTFORK on a window"));
            }
            if libc::mlock(base, 2 * PAGE) != 0 {
                static ONCE: Once = Once::new();
                ONCE.call_once(|| {
                    tracing::warn!(
                        error = %std::io::Error::last_os_error(),
                        "obituaries are not locked in memory, so deaths may be reported late under \
                         memory pressure; raise RLIMIT_MEMLOCK"
                    );
                });
            }
        }
        Ok(window)
    }

    /// Returns the entry of the word whose cell is the `nth` of the page.
    pub(super) fn entry(&self, nth: u32) -> *mut Entry {
        // The link of the first word is 8 bytes into the private page.
        let link = PAGE + CELL + nth as usize * CELL;
        // SAFETY: inside the second page.
        unsafe { self.base.as_ptr().add(link - LINK_AT).cast() }
    }

    /// Returns the address in this mapping of the `nth` word.
    pub(super) fn word(&self, nth: u32) -> *mut u32 {
        let entry = self.entry(nth).cast::<u8>();
        // SAFETY: the last bytes of the first page.
        unsafe { entry.add(LINK_AT).offset(FUTEX_OFFSET).cast() }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let registered = self.registered.take();
        if self.of != fork::generation() {
            // The entry stays: there may be copies of the parent's addresses.
            core::mem::forget(registered);
            return;
        }
        // Before the address can belong to another mapping.
        drop(registered);
        // SAFETY: both pages are ours, and no entry in them is linked any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), 2 * PAGE) };
    }
}
