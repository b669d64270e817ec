//! Sections of code during which no other thread forks this process.
//!
//! A forked child inherits all descriptors, and the mappings that are not excluded from forks yet.
//! A child that lives on would keep the lock of a descriptor that its parent has for a moment only.
//! So the parent has such a descriptor in a [`Section`]. A fork begins while no thread is in a
//! section, and a thread that enters a section waits for the forks that have begun.
//!
//! Both waits have an end, so that nothing is stopped for good: a program may fork in a handler of
//! a signal that has interrupted a section. After that end the two overlap. Nor does a handler run
//! if a child is made by a system call, `_Fork` or `vfork`. In each of these cases the child keeps
//! the descriptor until it ends or executes a program.
//!
//! The handlers are registered with that of the mappings (module `segment::mapped`), before this
//! process maps its first pod.
//!
//! Tests: tests/host_presence.rs.

use crate::fork;
use core::mem::zeroed;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::time::Instant;

/// The longest time that a section waits for forks, which copy all page tables.
const PATIENCE_FOR_FORKS: Duration = Duration::from_secs(1);
/// The longest time that a fork waits for sections. They make a few system calls, but a thread may
/// lose its processor in the middle.
const PATIENCE_FOR_SECTIONS: Duration = Duration::from_millis(500);
/// The time between two checks.
const PAUSE: Duration = Duration::from_micros(50);

/// The number of threads that are in a section or about to enter it.
static SECTIONS: Count = Count::new();
/// The number of threads that fork, or are about to.
static FORKS: Count = Count::new();

// Everywhere below. A section raises its count and then reads that of the forks; a fork raises its
// count and then reads that of the sections. In one order of all of these, one sees the other.
const ORDER: Ordering = Ordering::SeqCst;

/// A number of threads of this process, in the lower half of the word. The upper half names the
/// process that counted them (`fork::generation`). The threads of another process, from which this
/// one was forked, do not exist here. One word holds both, so that no thread of a child sets a
/// count to zero that another thread has raised already.
#[derive(Debug)]
struct Count(AtomicU64);

impl Count {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn get(&self) -> u32 {
        counted(self.0.load(ORDER), this_process())
    }

    fn raise(&self) {
        self.change(|count| count.checked_add(1));
    }

    /// Subtracts one, unless it is zero.
    fn lower(&self) {
        self.change(|count| count.checked_sub(1));
    }

    fn change(&self, change: impl Fn(u32) -> Option<u32>) {
        let own = this_process();
        let _ = self.0.fetch_update(ORDER, ORDER, |word| {
            change(counted(word, own)).map(|count| own | u64::from(count))
        });
    }
}

/// Returns the upper half of the words of this process.
fn this_process() -> u64 {
    fork::generation() << 32
}

/// Returns the count in `word` if the process `own` has counted it; else zero.
fn counted(word: u64, own: u64) -> u32 {
    match word >> 32 == own >> 32 {
        true => word as u32,
        false => 0,
    }
}

/// A section. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Section(());

impl Section {
    /// Waits for the forks that are in progress, and enters a section.
    pub fn enter() -> Self {
        SECTIONS.raise();
        // Forks that begin from here on wait for the section.
        wait_while(PATIENCE_FOR_FORKS, || FORKS.get() != 0);
        Self(())
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        // Zero in a child that was forked by the thread in the section.
        SECTIONS.lower();
    }
}

/// Waits while `condition` is true, for at most `patience`. Returns whether it is still true.
fn wait_while(patience: Duration, condition: impl Fn() -> bool) -> bool {
    let until = Instant::now() + patience;
    while condition() {
        if Instant::now() >= until {
            return true;
        }
        pause();
    }
    false
}

fn pause() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: PAUSE.subsec_nanos().into(),
    };
    let (call, clock, rest) = (
        libc::SYS_clock_nanosleep,
        libc::CLOCK_MONOTONIC,
        null_mut::<libc::timespec>(),
    );
    // SAFETY: a valid time. Unlike the C library's functions, the call is no cancellation point: no
    // thread is to end in the middle of a fork.
    unsafe { libc::syscall(call, clock, 0, &raw const time, rest) };
}

/// Waits, before a fork, until no thread is in a section. A handler of `pthread_atfork`.
pub(crate) extern "C" fn begin() {
    let is_put_off = || {
        FORKS.raise();
        let is_in_section = SECTIONS.get() != 0;
        if is_in_section {
            // The section must not wait for this fork.
            FORKS.lower();
        }
        is_in_section
    };
    without_signals(|| {
        if wait_while(PATIENCE_FOR_SECTIONS, is_put_off) {
            // The wait has timed out.
            FORKS.raise();
        }
    });
}

/// Ends the fork in the parent. In the child, the counts are zero without a handler.
pub(crate) extern "C" fn end() {
    // Zero if the handlers were registered in the middle of the fork.
    FORKS.lower();
}

/// Runs `wait` while no signal handler interrupts this thread: a handler could jump out of the wait
/// and leave the count raised.
fn without_signals(wait: impl FnOnce()) {
    // SAFETY: sets of signals are plain memory; the calls read and write these two.
    let (is_blocked, before) = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&raw mut all);
        let answer = libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        (answer == 0, before)
    };
    wait();
    if is_blocked {
        // SAFETY: the set that the call above has written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_another_process_are_zero() {
        let count = Count::new();
        count.lower();
        assert_eq!(count.get(), 0);
        count.raise();
        count.raise();
        assert_eq!(count.get(), 2);
        // No handler of a fork runs.
        // SAFETY: the child uses atomics and the number of this process only, and ends without
        // returning.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            let inherited = count.get();
            count.lower();
            count.raise();
            let own = count.get();
            // SAFETY: ends the process.
            unsafe { libc::_exit((inherited * 16 + own) as i32) };
        }
        let mut status = 0;
        // SAFETY: a child of this process, and a place for its status.
        let waited = unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) };
        assert_eq!(i64::from(waited), child);
        assert!(libc::WIFEXITED(status), "{status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 1);
        count.lower();
        assert_eq!(count.get(), 1);
    }
}
