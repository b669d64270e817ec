//! The robust futex list of a thread, by which the kernel marks a word when its holder dies.
//!
//! Every thread can register one list of futexes with the kernel, which walks it when the thread
//! dies and marks each word that holds the thread's id. The C library has registered that one list
//! already, for its robust mutexes. So this module adds its entries to it, by the library's own
//! protocol. The list as the kernel sees it:
//!
//! ```text
//!   head { list, futex_offset, list_op_pending }
//!            |                        \-> the entry that is just being added or removed
//!            \-> entry -> entry -> head          (lowest bit of a link: priority inheritance)
//!                word of an entry = its address + futex_offset
//! ```
//!
//! glibc keeps a back link right before each entry's link, and writes it in the neighbours of an
//! entry that it removes. The entries of this module have it too. glibc does not read the back link
//! of the head, so it is not written here.
//!
//! **Only glibc.** musl registers a thread's list when the thread first locks a robust mutex that
//! processes share. In a forked child it keeps the head of the parent's list, whose entries are not
//! mapped there. So with musl, a thread holds no obituary and no process joins: an error says so.
//!
//! **Crash points.** The kernel reads all this on behalf of the dying thread itself, so it sees
//! exactly the stores that the thread has executed, in program order; only the compiler must be
//! prevented from reordering. `list_op_pending` names the entry from before the word is taken until
//! after it is linked, and from before it is unlinked until after the word was released. If the
//! thread is killed in between, either its id is in the word and the kernel marks the word by the
//! pending entry, or it is not and the kernel ignores the word. An entry that is both linked and
//! pending is marked once.
//!
//! The entries are in private memory, although their words are shared (see the module `window`): no
//! other process can write a link that this one, or the kernel on its behalf, would follow.
//!
//! Not for signal handlers, which may interrupt the C library in the same operation.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the layout of robust list entries is known for 64-bit C libraries only");

use super::{OsError, futex::last_error};
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// In the word: a thread sleeps on it, so the kernel has to wake it.
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

/// glibc's futex offset on every 64-bit architecture.
pub(super) const FUTEX_OFFSET: isize = -32;

/// The offset in an [`Entry`] of the address by which the list names it.
pub(super) const LINK_AT: usize = core::mem::offset_of!(Entry, next);

/// The robust list of the calling thread.
pub(super) struct RobustList {
    head: *mut Head,
}

impl RobustList {
    /// Returns the list that the C library registered for the calling thread.
    ///
    /// # Errors
    /// If there is none, or it is not glibc's.
    pub(super) fn of_this_thread() -> Result<Self, OsError> {
        let missing = |why: String| OsError::Missing {
            what: "the robust futex list of this thread",
            hint: format!(
                "{why}; only glibc is supported, and with musl no process can join a pod: build \
                 the program for a target such as {}-unknown-linux-gnu",
                std::env::consts::ARCH
            ),
        };
        let head = registered()?;
        if head.is_null() {
            return Err(missing("the C library registered none".into()));
        }
        let list = Self { head };
        match list.futex_offset() {
            FUTEX_OFFSET => Ok(list),
            other => Err(missing(format!(
                "the C library's futex offset is {other}, not {FUTEX_OFFSET}"
            ))),
        }
    }

    /// Returns the offset of an entry's word from its link. It is negative: the word is before it.
    pub(super) fn futex_offset(&self) -> isize {
        // SAFETY: the registered head is in this thread's control block and lives as long.
        unsafe { (&raw const (*self.head).futex_offset).read_volatile() }
    }

    /// Takes `word` for the calling thread, `tid`, if no thread holds it; else returns its value.
    ///
    /// # Safety
    /// `word` is at the list's futex offset from the link of `entry`; `entry` is in no list unless
    /// this very thread holds `word`; both stay mapped until the thread has ended or released
    /// `word`.
    pub(super) unsafe fn hold(
        &self,
        entry: *mut Entry,
        word: &AtomicU32,
        tid: u32,
    ) -> Result<(), u32> {
        // SAFETY: by the caller's promise, this thread owns `entry` once it owns the word; the head
        // and the neighbours are this thread's own.
        unsafe {
            self.set_pending(link_of(entry));
            // Acquire: to see the former holder's stores before it released the word.
            let take = |free, taken| {
                word.compare_exchange(free, taken, Ordering::AcqRel, Ordering::Acquire)
            };
            // A word with only the waiters bit is free, too: another user may have written it.
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

    /// Returns whether `entry` is in this list.
    pub(super) fn has(&self, entry: *mut Entry) -> bool {
        // SAFETY: the head is in this thread's control block.
        let mut link = unsafe { (&raw const (*self.head).list).read_volatile() };
        while link & !1 != self.head as usize {
            if link & !1 == link_of(entry) {
                return true;
            }
            // SAFETY: the link of an entry that this thread, or the C library for it, has linked.
            link = unsafe { ((link & !1) as *const usize).read_volatile() };
        }
        false
    }

    /// Removes `entry` from the list, and releases `word` if `tid`, the calling thread, holds it.
    /// Returns the former value of `word`, as an error if another user has changed its holder.
    ///
    /// # Safety
    /// The conditions of [`hold`](Self::hold) apply, and the list [has](Self::has) `entry`.
    pub(super) unsafe fn release(
        &self,
        entry: *mut Entry,
        word: &AtomicU32,
        tid: u32,
    ) -> Result<u32, u32> {
        // SAFETY: the entry is linked in this thread's list.
        unsafe {
            self.set_pending(link_of(entry));
            self.remove(entry);
            // Release: the stores made while the word was held come before it. The compiler may not
            // move the change before the unlinking, nor the next volatile store before the change.
            compiler_fence(Ordering::SeqCst);
            let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                (old & TID == tid).then_some(0)
            });
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
    /// This thread owns `entry`, which is in no list.
    unsafe fn push(&self, entry: *mut Entry) {
        // SAFETY: the head and `entry` are this thread's, and the first entry is one that this
        // thread, or the C library for it, has linked.
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
        // SAFETY: both neighbours are in this thread's list (or the head); the lowest bit of a link
        // is not part of the address, and is kept in the copied link.
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
            // SAFETY: an entry, in which the back link is right before the link.
            unsafe { ((link - LINK_AT) as *mut usize).write_volatile(to) };
        }
    }
}

fn link_of(entry: *mut Entry) -> usize {
    entry as usize + LINK_AT
}

/// Returns the head that is registered for this thread.
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
