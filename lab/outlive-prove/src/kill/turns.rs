//! Who may sweep beside whom.
//!
//! A world of files and processes is made in the calling process and seen by all children of it: a child that another
//! sweep forks meanwhile would keep its files open, with their locks, and might be forked while a thread holds one of the
//! process's own locks, which nobody gives back in the child. So a sweep of real kills runs alone in its process. Sweeps by
//! images have nothing but memory of their own, and run beside each other.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURNS: RwLock<()> = RwLock::new(());

/// Waits until no sweep of real kills runs.
pub(super) fn beside_others() -> RwLockReadGuard<'static, ()> {
    TURNS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no other sweep runs.
pub(super) fn alone() -> RwLockWriteGuard<'static, ()> {
    TURNS.write().unwrap_or_else(PoisonError::into_inner)
}
