//! Recoverable test-and-test-and-set locks (LUPIN §3.5).
//!
//! ```text
//!  0  the owner's instance, or 0
//!  8  whether a waiter sleeps                      12  poison: the id of an owner that panicked + 1, or 0
//! ```
//!
//! A member takes the lock by one compare-and-swap from 0 to its own instance, and releases it by
//! one store of zero. Since the word names the owner, a waiter can tell whether the owner lives. No
//! word names the same instance again after that instance has died, so a compare-and-swap from a
//! dead instance succeeds for exactly one survivor.
//!
//! The two locks differ in how they leave a dead owner. The next owner of a [`BareTatas`] takes it
//! from the dead owner. A [`Tatas`] is listed in its owner's log, and only the holder of the claim
//! on that log releases it, after it has finished the owner's work under it: a survivor that wants
//! the lock recovers the owner, or waits for the live survivor that does.
//!
//! *When a host's caches are lost* ([`PersistenceDomain::WriteBack`]) the word can fall back to an
//! earlier value. A taken word is written back before anything is done under the lock, so it cannot
//! fall back beneath an owner that did something. It can fall back to an earlier owner that lives,
//! has released it and would never do so again; then the word is wrong and that owner's log is
//! right. So after a host's death every live instance runs [`audit_own_locks`]. For the same reason
//! a bare lock, too, is listed on such memory.
//!
//! [`PersistenceDomain::WriteBack`]: outlive_memory::PersistenceDomain::WriteBack

mod bare;
mod logged;
mod recover;
mod release;

pub use bare::{BareTatas, BareTatasGuard};
pub use logged::{Tatas, TatasGuard};
pub use recover::audit_own_locks;
pub(super) use recover::{LeaveToTheNext, ReleaseTatas};

const SLEEPERS: u64 = 8;
const POISON: u64 = 12;

outlive_memory::crash_points! {
    /// The crash points of the acquisition of a test-and-test-and-set lock.
    pub enum TatasLockPoint for "tatas.lock" {
        /// The log lists the lock; it is not taken.
        Listed,
        /// The lock is taken.
        Taken,
    }
}

outlive_memory::crash_points! {
    /// The crash points of the release of a test-and-test-and-set lock.
    pub enum TatasUnlockPoint for "tatas.unlock" {
        /// The lock is free and still listed.
        Released,
        /// The lock's entry is cleared.
        Struck,
    }
}
