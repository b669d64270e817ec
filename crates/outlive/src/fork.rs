//! The identity of this process in a chain of forks.
//!
//! A forked child inherits the memory of its parent, but not the mappings that this library
//! excludes from a fork, nor the threads, locks and obituaries of its parent. Process ids do not
//! tell the two apart: a child may have its parent's id in another PID namespace, and ids are
//! reused. So one page, which the kernel clears for a child, holds a number that is larger in each
//! child than in its parent.
//!
//! For the same reason a static of this library that is locked is an [`OwnMutex`].

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// A mutex for each process. The thread that holds it at a fork does not exist in the child, so the
/// child has another one, with a new value.
#[derive(Debug)]
pub(crate) struct OwnMutex<T: 'static> {
    current: AtomicPtr<OfProcess<T>>,
    new: fn() -> T,
}

#[derive(Debug)]
struct OfProcess<T> {
    of: u64,
    mutex: Mutex<T>,
}

impl<T: Send + 'static> OwnMutex<T> {
    pub const fn new(new: fn() -> T) -> Self {
        Self {
            current: AtomicPtr::new(core::ptr::null_mut()),
            new,
        }
    }

    /// Locks the mutex of this process, also after a thread has panicked with it.
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        let of = generation();
        let mut found = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or published below, which leaks it; only shared references exist.
            match unsafe { found.as_ref() } {
                Some(own) if own.of == of => {
                    return own.mutex.lock().unwrap_or_else(PoisonError::into_inner);
                }
                // That of the parent stays, for a guard that the child inherited.
                _ => found = self.replace(found, of),
            }
        }
    }

    /// Replaces `found` by a mutex of this process, unless another thread has. Returns the present
    /// one.
    fn replace(&self, found: *mut OfProcess<T>, of: u64) -> *mut OfProcess<T> {
        let own = Box::into_raw(Box::new(OfProcess {
            of,
            mutex: Mutex::new((self.new)()),
        }));
        // Release: a thread that finds the address finds the contents.
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let replaced = self.current.compare_exchange(found, own, order.0, order.1);
        replaced.map_or_else(
            |other| {
                // SAFETY: made above, and not published.
                drop(unsafe { Box::from_raw(own) });
                other
            },
            |_| own,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_does_not_wait_for_a_lock_of_its_parent() {
        static NUMBER: OwnMutex<i32> = OwnMutex::new(|| 1);
        let mut held = NUMBER.lock();
        *held = 2;
        // SAFETY: the child calls the C library's allocator, which can be used after a fork, and
        // ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it ends this process if the lock is not available.
            unsafe { libc::alarm(10) };
            let own = *NUMBER.lock();
            // SAFETY: ends the process.
            unsafe { libc::_exit(own) };
        }
        let mut status = 0;
        // SAFETY: a child of this process, and a place for its status.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child);
        assert!(libc::WIFEXITED(status), "{status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 1);
        drop(held);
        assert_eq!(*NUMBER.lock(), 2);
    }
}
