//! The engine: runs a scenario's threads one at a time, and decides at every access which thread
//! continues, which value is read and whether a host dies.
//!
//! Threads are coroutines on one operating-system thread: a switch costs some ten nanoseconds,
//! while passing a baton between operating-system threads costs some microseconds. A thread stops
//! before an access, never inside one, and code between two accesses runs with the access before
//! it.
//!
//! **Death** abandons a coroutine: it is never resumed and its stack is used again. So a dead
//! thread's destructors never run, as a dead process's don't.
//!
//! **Fewer executions, none lost.** A thread need not be interrupted before an access to a word
//! that no other thread touches, or that no thread writes. Which words those are is learnt: the
//! first executions assume that no word is shared; when one turns out to be, the exploration starts
//! again with that known. Deaths are reduced in the same way: dying before a load is dying after
//! the last store, so a thread may die before the first access that follows a store, a write-back
//! or a crash point, and at its end.

pub(crate) mod access;
pub(crate) mod choices;
mod death;
pub(crate) mod model;
mod points;
mod run;
mod state;
mod switch;
pub(crate) mod views;
mod words;

pub(crate) use model::Model;
pub(crate) use run::{Job, Runner, capture_panic, number};
pub(crate) use state::{Limits, Ran, ThreadPlan};

use access::{Access, Answer};
use outlive_memory::{CrashPoint, Ordering};

/// Makes one access by the running thread.
#[track_caller]
pub(crate) fn answer(access: Access) -> Answer {
    run::at_point(|s| s.arrive_at_word(&access), |s| s.access(&access))
        .unwrap_or_else(|why| panic!("{why}"))
}

pub(crate) fn fence(order: Ordering) {
    assert!(order != Ordering::Relaxed, "a fence cannot be relaxed");
    run::at_point(|s| s.arrive_at_fence(order), |s| s.fence(order));
}

pub(crate) fn write_back(at: u64, len: u64) {
    run::at_point(|s| s.arrive_at_line(at, len), |s| s.write_back(at, len))
        .unwrap_or_else(|why| panic!("{why}"));
}

pub(crate) fn drain() {
    run::at_point(|s| s.arrive_at_drain(), |s| s.drain()).unwrap_or_else(|why| panic!("{why}"));
}

/// Passes a point at which other threads of the scenario may see something that is not in the
/// memory.
pub(crate) fn outside() {
    run::at_point(|s| s.arrive_outside(), |s| s.outside());
}

pub(crate) fn crash_point<P: CrashPoint>(point: P) {
    run::with(|s| s.crash_point(point));
}

pub(crate) fn spin_hint() {
    run::spin();
}

pub(crate) fn memory_size() -> u64 {
    run::with(|s| s.memory_size())
}
