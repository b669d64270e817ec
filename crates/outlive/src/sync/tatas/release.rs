//! The release of a test-and-test-and-set lock, as done by a guard's drop.
//!
//! A lock's cost is in the memory operations around its compare-and-swap, which waits for the
//! stores before it. So the guard must live in registers: the fast path of a drop is inlined, in
//! both places where a drop is in a user's function (the second is where a panic unwinds), and the
//! rare paths are calls that take plain values. A guard whose address is taken even once is written
//! to the stack at every acquisition, which cost more than the lock's own log.
//!
//! The sleepers' flag is read *before* the word is released, while this core certainly has the
//! line. After the release another core often has the line already, so it would have to be fetched
//! again, and on x86 the load would overtake the store anyway. A sleeper that raises its flag in
//! between is missed, as it would be then, and sleeps to the end of its time-out (see the module
//! `wait`).

use super::{SLEEPERS, TatasUnlockPoint};
use crate::membership::{Instance, Member};
use crate::recovery::{Listed, OwnLog};
use crate::sync::wait::{lower, ring};
use outlive_memory::{Memory, Offset, Ordering};

/// Releases the lock at `at`, which `member` holds and, in the flushed domain, does not list.
///
/// # Safety
/// There is a word of 128 bits at `at`: the lock.
#[inline(always)]
pub(super) unsafe fn release<M: Memory>(
    memory: M,
    member: &Member<M>,
    at: Offset,
    listed: Option<Listed>,
) {
    // Relaxed: a missed flag costs the rest of a sleep.
    // SAFETY: a part of the word that the caller guarantees; so is the next.
    let asleep: u32 = unsafe { memory.load_unchecked(at + SLEEPERS, Ordering::Relaxed) };
    if asleep != 0 || listed.is_some() {
        return release_seldom(member, at);
    }
    // Release: the work done under the lock.
    // SAFETY: as above.
    unsafe { memory.store_unchecked(at, Instance::NONE, Ordering::Release) };
    memory.crash_point(TatasUnlockPoint::Released);
}

/// Releases the lock at `at`, which `member` holds and lists.
///
/// # Safety
/// There is a word of 128 bits at `at`, the lock, and one of 64 bits at the entry. `written_back`
/// is 0 in the flushed domain only.
#[inline(always)]
pub(super) unsafe fn release_listed<M: Memory>(
    memory: M,
    member: &Member<M>,
    at: Offset,
    entry: Offset,
    written_back: u64,
) {
    // Relaxed: as in `release`.
    // SAFETY: a part of the word that the caller guarantees; so is the next.
    let asleep: u32 = unsafe { memory.load_unchecked(at + SLEEPERS, Ordering::Relaxed) };
    if u64::from(asleep) | written_back != 0 {
        return release_seldom(member, at);
    }
    // Release: the work done under the lock.
    // SAFETY: as above.
    unsafe { memory.store_unchecked(at, Instance::NONE, Ordering::Release) };
    memory.crash_point_before_release(TatasUnlockPoint::Released);
    // Release: as in `OwnLog::unlist`.
    // SAFETY: the caller guarantees the entry.
    unsafe { memory.store_unchecked(entry, 0u64, Ordering::Release) };
    memory.crash_point(TatasUnlockPoint::Struck);
}

/// Releases the lock where a waiter sleeps, and on write-back memory.
#[cold]
#[inline(never)]
fn release_seldom<M: Memory>(member: &Member<M>, at: Offset) {
    // The member's memory serves for the lock's, and its entry is looked up: with one more argument
    // the drop would not be inlined where a panic drops the guard, and the guard would be in memory
    // on the fast path too.
    let (memory, listed) = (member.memory(), OwnLog::of(member).entry_of(at));
    let asleep = lower(memory, at + SLEEPERS);
    // Release: the work done under the lock.
    memory.store(at, Instance::NONE, Ordering::Release);
    // Drained with the entry's; if the word falls back nevertheless, `audit_own_locks` finds it.
    memory.write_back(at, 8);
    memory.crash_point(TatasUnlockPoint::Released);
    if let Some(listed) = listed {
        OwnLog::of(member).unlist(listed);
        memory.crash_point(TatasUnlockPoint::Struck);
    }
    if asleep {
        ring(member, at + SLEEPERS);
    }
}
