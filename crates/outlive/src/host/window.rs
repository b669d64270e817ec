//! A window on one obituary: its word in shared memory, its robust list entry in private memory.
//!
//! The kernel finds the word of an entry at a fixed distance before the entry's link, in the address space of the thread that
//! dies. So the two can lie on both sides of a page boundary: a page of the side file, which ends in the words, and after it a
//! page of this process's own, in which the entry lies. Nothing that another process writes is ever followed as an address,
//! neither by this process when it unlinks an entry nor by the kernel when it walks the list.
//!
//! ```text
//!            a page of the side file, shared          |   a private page
//!   …                     | word 0 | word 1 | word 2  | back 0 | link 0, back 1 | link 1, back 2 | link 2
//!                          -24      -16      -8       0        8                16               24
//! ```
//!
//! With glibc the link is 32 bytes behind the word, with musl 28: there the word is the second half of its cell of 8 bytes.
//! Every window holds one obituary, so that entries which would overlap lie in different private pages.

use super::robust::{Entry, LINK_AT};
use super::{OsError, futex::last_error};
use crate::fork;
use core::ptr::NonNull;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Once;

const PAGE: usize = 4096;
/// How many words a page of the side file ends in.
pub(super) const WORDS: u32 = 3;
/// The size of a word's cell.
const CELL: usize = 8;

/// Where in its page the cell of the `nth` word is.
pub(super) const fn cell_at(nth: u32) -> usize {
    PAGE - (WORDS - nth) as usize * CELL
}

/// Two neighbouring pages. Dropped, they are unmapped: their entry is in no list then.
#[derive(Debug)]
pub(super) struct Window {
    base: NonNull<u8>,
    /// In which process of a chain of forks it is mapped.
    of: u64,
}

// SAFETY: it is an address; what is there is used by the thread that holds the obituary.
unsafe impl Send for Window {}

impl Window {
    /// A window on the page at `at` of the side file `file`, which is at `path`.
    pub(super) fn new(file: &File, path: &Path, at: usize) -> Result<Self, OsError> {
        let (none, rw) = (core::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(none, 2 * PAGE, rw, private, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(last_error("mapping a window"));
        }
        // From here on dropping it unmaps.
        let window = Self {
            base: NonNull::new(base.cast()).expect("mmap returned null"),
            of: fork::generation(),
        };
        let at = libc::off_t::try_from(at).expect("inside a file");
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: over the first of the two pages, which are ours; the page is inside the file (its size was checked).
        let over = unsafe { libc::mmap(base, PAGE, rw, fixed, file.as_raw_fd(), at) };
        if over == libc::MAP_FAILED {
            return Err(last_error(format!("mapping a page of {}", path.display())));
        }
        // SAFETY: both pages are ours. A forked child must not write here; and the kernel marks the word by an ordinary write
        // to a page that must be there, the link being read from one.
        unsafe {
            if libc::madvise(base, 2 * PAGE, libc::MADV_DONTFORK) != 0 {
                return Err(last_error("MADV_DONTFORK on a window"));
            }
            if libc::mlock(base, 2 * PAGE) != 0 {
                static ONCE: Once = Once::new();
                ONCE.call_once(|| {
                    tracing::warn!(
                        error = %std::io::Error::last_os_error(),
                        "obituaries are not locked in memory and may come late under memory pressure: raise RLIMIT_MEMLOCK"
                    );
                });
            }
        }
        Ok(window)
    }

    /// The entry of the word whose cell is the `nth` of the page.
    pub(super) fn entry(&self, nth: u32) -> *mut Entry {
        // The link of the first word is 8 bytes into the private page, for both C libraries.
        let link = PAGE + CELL + nth as usize * CELL;
        // SAFETY: inside the second page.
        unsafe { self.base.as_ptr().add(link - LINK_AT).cast() }
    }

    /// Where the word is, in this mapping, whose link has the futex offset `offset`.
    pub(super) fn word(&self, nth: u32, offset: isize) -> *mut u32 {
        let entry = self.entry(nth).cast::<u8>();
        // SAFETY: the last bytes of the first page.
        unsafe { entry.add(LINK_AT).offset(offset).cast() }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.of == fork::generation() {
            // SAFETY: both pages are ours, and no entry in them is linked any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), 2 * PAGE) };
        }
    }
}
