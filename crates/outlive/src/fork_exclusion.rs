//! Sections of code during which no other thread forks this process.
//!
//! A forked child inherits all descriptors, and the mappings that are not excluded from forks yet.
//! A child that lives on would keep the lock of a descriptor that its parent has for a moment only.
//! So the parent has such a descriptor in a [`Section`]. A fork begins while no thread is in a
//! section, and a thread that enters a section waits for the forks that have begun.
//!
//! Both waits have an end, so that nothing is stopped for good: a program may fork in a handler of
//! a signal that has interrupted a section. After that end the two overlap. Nor does a handler run
//! if a child is made by a system call, `_Fork` or `vfork`. Such a child keeps the descriptor until
//! it ends or executes a program.
//!
//! Tests: tests/host_presence.rs.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::time::Instant;

/// The longest time that a section waits for forks, which copy all page tables.
const PATIENCE_FOR_FORKS: Duration = Duration::from_secs(1);
/// The longest time that a fork waits for sections, which make a few system calls.
const PATIENCE_FOR_SECTIONS: Duration = Duration::from_millis(20);
/// The time between two checks.
const PAUSE: Duration = Duration::from_micros(50);

/// The number of threads that are in a section or about to enter it.
static SECTIONS: AtomicU64 = AtomicU64::new(0);
/// The number of threads that fork, or are about to.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// Whether the handlers are registered.
static IS_HANDLED: AtomicBool = AtomicBool::new(false);

// Everywhere below. A section raises its count and then reads that of the forks; a fork raises its
// count and then reads that of the sections. In one order of all of these, one sees the other.
const ORDER: Ordering = Ordering::SeqCst;

/// A section. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Section(());

impl Section {
    /// Waits for the forks that are in progress, and enters a section.
    pub fn enter() -> Self {
        handle_forks();
        SECTIONS.fetch_add(1, ORDER);
        // Forks that begin from here on wait for the section.
        wait_while(PATIENCE_FOR_FORKS, || FORKS.load(ORDER) != 0);
        Self(())
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        // Zero in a child that was forked by the thread in the section.
        lower(&SECTIONS);
    }
}

/// Subtracts one from `count`, unless it is zero.
fn lower(count: &AtomicU64) {
    let _ = count.fetch_update(ORDER, ORDER, |count| count.checked_sub(1));
}

/// Waits while `condition` is true, for at most `patience`. Returns whether it is still true.
fn wait_while(patience: Duration, condition: impl Fn() -> bool) -> bool {
    let until = Instant::now() + patience;
    while condition() {
        if Instant::now() >= until {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

/// Registers the handlers. It is harmless that two threads may do this at the same time: then they
/// run twice. (If they cannot be registered, forks overlap sections.)
fn handle_forks() {
    if IS_HANDLED.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the handlers load and store atomics, read the clock and sleep, which they may do.
    let answer = unsafe { libc::pthread_atfork(Some(begin), Some(end), Some(end_in_child)) };
    IS_HANDLED.store(answer == 0, Ordering::Relaxed);
}

/// Waits, before a fork, until no thread is in a section.
extern "C" fn begin() {
    let is_put_off = || {
        FORKS.fetch_add(1, ORDER);
        let is_in_section = SECTIONS.load(ORDER) != 0;
        if is_in_section {
            // The section must not wait for this fork.
            lower(&FORKS);
        }
        is_in_section
    };
    if wait_while(PATIENCE_FOR_SECTIONS, is_put_off) {
        // The wait has timed out.
        FORKS.fetch_add(1, ORDER);
    }
}

extern "C" fn end() {
    // Zero if the handlers were registered in the middle of the fork.
    lower(&FORKS);
}

/// The child has no other threads.
extern "C" fn end_in_child() {
    SECTIONS.store(0, ORDER);
    FORKS.store(0, ORDER);
}
