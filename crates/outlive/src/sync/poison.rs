//! Poison: an owner that panics marks the lock, and the next owners can see that, as with a mutex of std.
//!
//! The mark stands until an owner clears it: if the next one dies before it has repaired anything, the one after it sees the
//! mark as well. It is written before the lock is released, and only owners read or clear it, so the lock orders all
//! accesses to it. To acquire a lock takes no look at the mark; whoever wants to know asks the guard.

use crate::membership::{InstanceId, Member};
use outlive_memory::{Memory, Offset, Ordering};

/// Marks a lock that `member` holds, and releases next.
pub(super) fn poison<M: Memory>(memory: M, mark: Offset, member: &Member<M>) {
    // Relaxed: see the top; so are the other two.
    memory.store(mark, member.instance().id + 1, Ordering::Relaxed);
    memory.persist(mark, 4);
}

/// Returns the id of the owner that panicked last.
pub(super) fn poisoned_by<M: Memory>(memory: M, mark: Offset) -> Option<InstanceId> {
    memory.load::<u32>(mark, Ordering::Relaxed).checked_sub(1)
}

/// Removes the mark.
pub(super) fn clear<M: Memory>(memory: M, mark: Offset) {
    memory.store(mark, 0u32, Ordering::Relaxed);
    memory.persist(mark, 4);
}
