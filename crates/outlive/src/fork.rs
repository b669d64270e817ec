//! The identity of this process in a chain of forks.
//!
//! A forked child inherits the memory of its parent, but not the mappings that this library
//! excludes from a fork, nor the threads, locks and obituaries of its parent. Process ids do not
//! tell the two apart: a child may have its parent's id in another PID namespace, and ids are
//! reused. So one page, which the kernel clears for a child, holds a number that is larger in each
//! child than in its parent.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const PAGE: usize = 4096;

/// The page, once it is mapped. It stays mapped.
static OWN: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// The largest number that this process or one of its ancestors has had.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Returns the number of this process: not zero, the same in all threads, and larger than that of
/// each process that it was forked from.
pub(crate) fn generation() -> u64 {
    let Some(own) = own() else {
        // A kernel before 4.14, or no memory for a page.
        return std::process::id().into();
    };
    // Relaxed: the word alone is the answer.
    let known = own.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    match own.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => next,
        Err(known) => known,
    }
}

/// Returns whether [`generation`] distinguishes a process from each process that it was forked
/// from, also across PID namespaces.
pub(crate) fn is_certain() -> bool {
    own().is_some()
}

fn own() -> Option<&'static AtomicU64> {
    let mapped = OWN.load(Ordering::Acquire);
    if !mapped.is_null() {
        // SAFETY: a mapped page, aligned, which is never unmapped, and accessed by this atomic
        // only.
        return Some(unsafe { &*mapped });
    }
    let (none, rw) = (core::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page = unsafe { libc::mmap(none, PAGE, rw, private, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page is ours.
    let is_wiped = unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } == 0;
    // Release: a thread that sees the address may use the page.
    let (success, failure) = (Ordering::Release, Ordering::Acquire);
    let published = is_wiped
        .then(|| OWN.compare_exchange(core::ptr::null_mut(), page.cast(), success, failure));
    match published {
        // SAFETY: as above.
        Some(Ok(_)) => return Some(unsafe { &*page.cast::<AtomicU64>() }),
        // SAFETY: no other thread knows of the page.
        _ => unsafe { libc::munmap(page, PAGE) },
    };
    match published {
        // SAFETY: as above.
        Some(Err(other)) => Some(unsafe { &*other }),
        _ => None,
    }
}
