//! How a test-and-test-and-set lock is given up: what a guard's drop does.
//!
//! A lock's cost is in the memory operations around its compare-and-swap, which waits for the stores before
//! it. So the guard must live in registers: everything that a drop does on the fast path is inlined, in both
//! places where a drop stands in a user's function (the second is where a panic unwinds), and what is seldom
//! is a call that takes plain values. A guard that is pointed at even once is written to the stack at every
//! acquisition, which cost more than the lock's own log.
//!
//! The sleepers' flag is read *before* the word is given up, while the line is certainly ours: read after it, the line
//! is often another's already and has to be fetched again, and on x86 the load would overtake the store anyway. A
//! sleeper that raises its flag in between is missed, as it would be then, and naps to the end of its nap (`wait.rs`).

use super::{SLEEPERS, TatasUnlockPoint};
use crate::membership::{Instance, Member};
use crate::recovery::{Listed, OwnLog};
use crate::sync::wait::{ring, wake};
use outlive_memory::{Memory, Offset, Ordering, PersistenceDomain};

/// Gives up the lock at `at`, which `member` holds and, in the flushed domain, does not list.
#[inline(always)]
pub(super) fn release<M: Memory>(member: &Member<M>, at: Offset, listed: Option<Listed>) {
    let memory = member.memory();
    if listed.is_some() || !memory.has_word::<u128>(at) {
        return release_seldom(member, at, listed);
    }
    // SAFETY: both words of the lock are halves of the word that was asked for.
    unsafe { give_up(member, at, || ()) }
}

/// Gives up the lock at `at`, which `member` holds and lists.
#[inline(always)]
pub(super) fn release_listed<M: Memory>(member: &Member<M>, at: Offset, listed: Listed) {
    let (memory, log) = (member.memory(), OwnLog::of(member));
    let usual = memory.domain() == PersistenceDomain::Flushed;
    if !(usual && memory.has_word::<u128>(at)) {
        return release_seldom(member, at, Some(listed));
    }
    // SAFETY: both words of the lock are halves of the word that was asked for.
    unsafe {
        give_up(member, at, || {
            log.unlist(listed);
            memory.crash_point(TatasUnlockPoint::Struck);
        });
    }
}

/// Frees the word, then does what comes after it, then wakes.
///
/// # Safety
/// There is a word of 128 bits at `at`: the lock.
#[inline(always)]
unsafe fn give_up<M: Memory>(member: &Member<M>, at: Offset, then: impl FnOnce()) {
    let (memory, sleepers) = (member.memory(), at + SLEEPERS);
    // Relaxed: a flag that is missed costs the rest of a nap.
    // SAFETY: as the caller says.
    let asleep: u64 = unsafe { memory.load_unchecked(sleepers, Ordering::Relaxed) };
    // Release: what was done under the lock.
    // SAFETY: as the caller says.
    unsafe { memory.store_unchecked(at, Instance::NOBODY, Ordering::Release) };
    memory.crash_point(TatasUnlockPoint::Released);
    then();
    if asleep != 0 {
        ring(member, sleepers);
    }
}

/// On write-back memory; and where there is no lock (which cannot be held): the accesses say so.
#[cold]
#[inline(never)]
fn release_seldom<M: Memory>(member: &Member<M>, at: Offset, listed: Option<Listed>) {
    let memory = member.memory();
    // Release: what was done under the lock.
    memory.store(at, Instance::NOBODY, Ordering::Release);
    // The word may not fall back once the entry is struck out.
    memory.write_back(at, 8);
    memory.crash_point(TatasUnlockPoint::Released);
    wake(member, at + SLEEPERS);
    if let Some(listed) = listed {
        OwnLog::of(member).unlist(listed);
        memory.crash_point(TatasUnlockPoint::Struck);
    }
}
