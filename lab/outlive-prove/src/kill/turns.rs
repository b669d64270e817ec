//! Exclusion between sweeps of one process.
//!
//! A world of files and processes is created in the calling process and visible to all of its
//! children. A child that another sweep forks at the same time would keep its files open, with
//! their locks, and might be forked while a thread holds one of the process's own locks, which is
//! never released in the child. So a sweep of real kills runs alone in its process. Sweeps by
//! images use only memory of their own, and run concurrently.

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
