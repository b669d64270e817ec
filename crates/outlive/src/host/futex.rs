//! The futex calls, on words that processes share.

use super::OsError;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::sync::OnceLock;

/// The maximum number of words of one `futex_waitv` call.
pub(super) const MOST_WORDS: usize = 128;

/// `futex_waitv` has this number on every architecture with the common table of system calls.
const SYS_FUTEX_WAITV: libc::c_long = 449;
const FUTEX2_SIZE_U32: u32 = 2;

/// One word of a `futex_waitv` call, as the kernel lays it out.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

impl Waiter {
    pub(super) const NONE: Self = Self {
        value: 0,
        address: 0,
        flags: 0,
        reserved: 0,
    };

    /// Returns a waiter that sleeps while `word` is `value`. Not private: other processes wake it.
    pub(super) fn new(word: &AtomicU32, value: u32) -> Self {
        Self {
            value: u64::from(value),
            address: word.as_ptr() as u64,
            flags: FUTEX2_SIZE_U32,
            reserved: 0,
        }
    }
}

/// Sleeps while `word` is `value`, at most for `timeout`; may return early.
pub(super) fn wait(word: &AtomicU32, value: u32, timeout: Duration) {
    let timeout = timespec(timeout);
    // SAFETY: `word` lives across the call, which reads it atomically; `timeout` is a valid
    // timespec. A failure (the word changed, a signal, time is up) is an early return, which the
    // caller allows.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const timeout,
        );
    }
}

/// Wakes all sleepers on `word`.
pub(super) fn wake_all(word: &AtomicU32) {
    // SAFETY: the call uses the word's address only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Sleeps while all words of `waiters` have their values, at most for `timeout`; may return early.
pub(super) fn wait_any(waiters: &[Waiter], timeout: Duration) {
    debug_assert!(waiters.len() <= MOST_WORDS);
    // The call takes a point in time, not a duration.
    let until = timespec(monotonic().saturating_add(timeout));
    // SAFETY: the words live across the call (the waiters were made from references into a mapping
    // that is never undone), `until` is a valid timespec. Failures are early returns.
    unsafe {
        libc::syscall(
            SYS_FUTEX_WAITV,
            waiters.as_ptr(),
            waiters.len(),
            0,
            &raw const until,
            libc::CLOCK_MONOTONIC,
        );
    }
}

/// Returns whether this kernel and its filters permit a wait on several words. Checked once.
pub(super) fn can_wait_any() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        // SAFETY: with zero words, a kernel that has the call returns EINVAL and accesses nothing.
        let answer = unsafe { libc::syscall(SYS_FUTEX_WAITV, 0, 0, 0, 0, 0) };
        let there =
            answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
        if !there {
            tracing::warn!(
                "futex_waitv is missing or filtered: obituaries are polled every millisecond"
            );
        }
        there
    })
}

/// Returns the time of the monotonic clock.
pub(super) fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Returns the last error of this thread, as an [`OsError`].
pub(super) fn last_error(call: impl Into<String>) -> OsError {
    OsError::Call {
        call: call.into(),
        source: std::io::Error::last_os_error(),
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos() as libc::c_long,
    }
}
