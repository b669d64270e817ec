//! How a test-and-test-and-set lock is given up: what a guard's drop calls.
//!
//! The cost of a release, and of the acquisition that follows it, is in its stores, for a compare-and-swap
//! waits for all stores before it. A guard's drop stands twice in a user's function, the second time where a
//! panic unwinds, and if it is not inlined in both places, the guard is written to memory to be pointed at.
//! It is inlined in both as long as it is nothing but a call with plain values. So these are functions, with
//! arguments in registers, and so that they need no stack either, whatever is seldom is a call in tail
//! position: the bounds are asked first ([`Memory::has_word`]), which takes the panics out of the accesses.

use super::{SLEEPERS, TatasUnlockPoint};
use crate::membership::{Instance, Member};
use crate::recovery::{Listed, OwnLog};
use crate::sync::wait::{ring, wake};
use outlive_memory::{Memory, Offset, Ordering, PersistenceDomain};

/// Gives up the lock at `at`, which `member` holds and, in the flushed domain, does not list.
#[inline(never)]
pub(super) fn release<M: Memory>(member: &Member<M>, at: Offset, listed: Option<Listed>) {
    let (memory, sleepers) = (member.memory(), at + SLEEPERS);
    if let Some(listed) = listed {
        return release_listed(member, at, listed);
    }
    if !(memory.has_word::<u64>(at) && memory.has_word::<u64>(sleepers)) {
        return no_lock(at);
    }
    // Release: what was done under the lock.
    memory.store(at, Instance::NOBODY, Ordering::Release);
    memory.crash_point(TatasUnlockPoint::Released);
    if memory.load::<u64>(sleepers, Ordering::Relaxed) != 0 {
        ring(member, sleepers);
    }
}

/// Gives up the lock at `at`, which `member` holds and lists. As small as [`release`].
#[inline(never)]
pub(super) fn release_listed<M: Memory>(member: &Member<M>, at: Offset, listed: Listed) {
    let (memory, log, sleepers) = (member.memory(), OwnLog::of(member), at + SLEEPERS);
    if memory.domain() == PersistenceDomain::WriteBack {
        return release_written_back(member, at, listed);
    }
    if !(memory.has_word::<u64>(at) && memory.has_word::<u64>(sleepers) && log.has(listed)) {
        return no_lock(at);
    }
    // Release: what was done under the lock.
    memory.store(at, Instance::NOBODY, Ordering::Release);
    memory.crash_point(TatasUnlockPoint::Released);
    log.unlist(listed);
    memory.crash_point(TatasUnlockPoint::Struck);
    if memory.load::<u64>(sleepers, Ordering::Relaxed) != 0 {
        ring(member, sleepers);
    }
}

/// The same on write-back memory: the word may not fall back once the entry is struck out.
#[cold]
#[inline(never)]
fn release_written_back<M: Memory>(member: &Member<M>, at: Offset, listed: Listed) {
    let memory = member.memory();
    // Release: what was done under the lock.
    memory.store(at, Instance::NOBODY, Ordering::Release);
    memory.write_back(at, 8);
    memory.crash_point(TatasUnlockPoint::Released);
    wake(member, at + SLEEPERS);
    OwnLog::of(member).unlist(listed);
    memory.crash_point(TatasUnlockPoint::Struck);
}

/// A held lock has a place, or it could not have been taken.
#[cold]
#[inline(never)]
fn no_lock(at: Offset) {
    unreachable!("the lock at {at}, which was held, is outside the member's memory")
}
