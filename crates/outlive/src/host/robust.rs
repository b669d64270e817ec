//! The robust futex list of the calling thread: how a word is marked when its holder dies.
//!
//! Every thread can register one list of futexes with the kernel, which walks it when the thread dies
//! and marks each word that holds the thread's id. The C library has registered that one list already,
//! for its robust mutexes; so we join it, by its own protocol. The list as the kernel sees it:
//!
//! ```text
//!   head { list, futex_offset, list_op_pending }
//!            |                        \-> the entry that is just being added or removed
//!            \-> entry -> entry -> head          (lowest bit of a link: priority inheritance)
//!                word of an entry = its address + futex_offset
//! ```
//!
//! Both glibc and musl keep a back link right before each entry's link, and write it in the neighbours
//! of an entry that they remove. Ours has it too. The back link of the head is never read by either
//! (musl has none), so we do not write it.
//!
//! **Crash points.** The kernel reads all this on behalf of the dying thread itself, so what it sees is
//! what the thread had executed, in program order; only the compiler has to be kept from reordering.
//! `list_op_pending` names our entry from before the word is taken until after it is linked, and from
//! before it is unlinked until after the word was given back. Killed in between, the thread's id is in
//! the word and the kernel marks it by the pending entry, or it is not and the kernel leaves it alone.
//! An entry that is both linked and pending is marked once.
//!
//! The entries lie in private memory, although their words are shared (`window.rs`): no other
//! process can write a link that this one, or the kernel on its behalf, would follow.
//!
//! Not to be called from a signal handler: it might interrupt the C library in the middle of the same.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the layout of robust list entries is known for 64-bit C libraries only");

use super::{OsError, futex::last_error};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// In the word: somebody sleeps, so the kernel has to wake them.
pub(super) const WAITERS: u32 = libc::FUTEX_WAITERS;
/// In the word: its holder died.
pub(super) const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;
/// The thread id in the word.
pub(super) const TID: u32 = libc::FUTEX_TID_MASK;

/// The kernel's `struct robust_list_head`.
#[repr(C)]
struct Head {
    list: usize,
    futex_offset: isize,
    pending: usize,
}

/// One entry. A list's links lead to `next`.
#[repr(C)]
pub(super) struct Entry {
    prev: usize,
    next: usize,
}

/// Where in an [`Entry`] the address lies by which the list names it.
pub(super) const LINK_AT: usize = core::mem::offset_of!(Entry, next);

/// The robust list of the calling thread.
pub(super) struct RobustList {
    head: *mut Head,
}

impl RobustList {
    /// The list that the C library registered for the calling thread.
    pub(super) fn of_this_thread() -> Result<Self, OsError> {
        let mut head = registered()?;
        if head.is_null() {
            // musl registers a thread's list when it first takes a robust mutex.
            take_a_robust_mutex();
            head = registered()?;
        }
        if head.is_null() {
            return Err(OsError::Missing {
                what: "the robust futex list of this thread",
                hint: "the C library registered none; outlive works with glibc and musl".into(),
            });
        }
        Ok(Self { head })
    }

    /// How far the word of an entry lies behind the entry's link (it is negative: it lies before it).
    pub(super) fn futex_offset(&self) -> isize {
        // SAFETY: the registered head lies in this thread's control block and lives as long as it.
        unsafe { (&raw const (*self.head).futex_offset).read_volatile() }
    }

    /// Takes `word` for the thread `tid`, the calling one, if it is 0; else returns what stands there.
    ///
    /// # Safety
    /// `word` lies at the list's futex offset from the link of `entry`; `entry` is in no list unless
    /// this very thread holds `word`; both stay mapped until the thread has ended or given it back.
    pub(super) unsafe fn hold(
        &self,
        entry: *mut Entry,
        word: &AtomicU32,
        tid: u32,
    ) -> Result<(), u32> {
        // SAFETY: the caller's promise makes `entry` ours once the word is; the head and the neighbours
        // are this thread's own.
        unsafe {
            self.set_pending(link_of(entry));
            // Acquire: what the former holder wrote before it gave the word back.
            let take = |free, taken| {
                word.compare_exchange(free, taken, Ordering::AcqRel, Ordering::Acquire)
            };
            // A word that only says that somebody waits is free, too: another user of the pod may have written that.
            let taken = take(0, tid).or_else(|seen| match seen {
                WAITERS => take(WAITERS, tid | WAITERS),
                held => Err(held),
            });
            if taken.is_ok() {
                self.push(entry);
            }
            self.set_pending(0);
            taken.map(drop)
        }
    }

    /// Gives `word` back and returns what stood there.
    ///
    /// # Safety
    /// As for [`hold`](Self::hold), and the calling thread holds `word` by `entry`.
    pub(super) unsafe fn release(&self, entry: *mut Entry, word: &AtomicU32) -> u32 {
        // SAFETY: the entry is linked in this thread's list.
        unsafe {
            self.set_pending(link_of(entry));
            self.remove(entry);
            // Release: what was done under the word comes before it. The compiler may not move the swap
            // before the unlinking, nor the next volatile store before the swap.
            compiler_fence(Ordering::SeqCst);
            let old = word.swap(0, Ordering::AcqRel);
            self.set_pending(0);
            old
        }
    }

    /// # Safety
    /// `link` is 0 or the link of an entry whose word may be marked.
    unsafe fn set_pending(&self, link: usize) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the head is this thread's.
        unsafe { (&raw mut (*self.head).pending).write_volatile(link) };
        compiler_fence(Ordering::SeqCst);
    }

    /// # Safety
    /// `entry` is ours and in no list.
    unsafe fn push(&self, entry: *mut Entry) {
        // SAFETY: the head is this thread's, `entry` ours, and the first entry one that this thread has
        // linked or the C library has for it.
        unsafe {
            let list = &raw mut (*self.head).list;
            let first = list.read_volatile();
            (&raw mut (*entry).prev).write_volatile(list as usize);
            (&raw mut (*entry).next).write_volatile(first);
            self.set_back_link(first, link_of(entry));
            compiler_fence(Ordering::SeqCst);
            // From here on the kernel finds the entry, whose link is complete.
            list.write_volatile(link_of(entry));
        }
    }

    /// # Safety
    /// `entry` is in this thread's list.
    unsafe fn remove(&self, entry: *mut Entry) {
        // SAFETY: both neighbours are in this thread's list (or the head); the lowest bit of a link is
        // no part of the address, and is kept where the link goes on.
        unsafe {
            let prev = (&raw const (*entry).prev).read_volatile();
            let next = (&raw const (*entry).next).read_volatile();
            self.set_back_link(next, prev);
            ((prev & !1) as *mut usize).write_volatile(next);
            compiler_fence(Ordering::SeqCst);
            (&raw mut (*entry).prev).write_volatile(0);
            (&raw mut (*entry).next).write_volatile(0);
        }
    }

    /// # Safety
    /// `link` leads to an entry of this thread's list or to its head.
    unsafe fn set_back_link(&self, link: usize, to: usize) {
        let link = link & !1;
        if link != self.head as usize {
            // SAFETY: an entry, in which the back link lies right before the link.
            unsafe { ((link - LINK_AT) as *mut usize).write_volatile(to) };
        }
    }
}

fn link_of(entry: *mut Entry) -> usize {
    entry as usize + LINK_AT
}

/// The head that is registered for this thread.
fn registered() -> Result<*mut Head, OsError> {
    let mut head: *mut Head = core::ptr::null_mut();
    let mut size = 0usize;
    // SAFETY: both places are valid for the call to write to; 0 is the calling thread.
    let answer =
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut size) };
    if answer != 0 {
        return Err(last_error("get_robust_list for this thread"));
    }
    Ok(head)
}

/// Takes and gives back a robust mutex, for its side effect on the thread.
fn take_a_robust_mutex() {
    // SAFETY: attribute and mutex are initialised before they are used, used by this thread only, and
    // destroyed unlocked.
    unsafe {
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let mut mutex = MaybeUninit::<libc::pthread_mutex_t>::uninit();
        libc::pthread_mutexattr_init(attributes.as_mut_ptr());
        libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
        if libc::pthread_mutex_init(mutex.as_mut_ptr(), attributes.as_ptr()) == 0 {
            if libc::pthread_mutex_lock(mutex.as_mut_ptr()) == 0 {
                libc::pthread_mutex_unlock(mutex.as_mut_ptr());
            }
            libc::pthread_mutex_destroy(mutex.as_mut_ptr());
        }
        libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
    }
}
