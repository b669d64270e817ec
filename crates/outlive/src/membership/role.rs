//! The fabric manager's role: a word that names its holder, and a heartbeat of its own.
//!
//! The holder is a process instance (its sentinel does the work). A backup takes the role by one
//! compare-and-swap from the holder's word to its own, and only if the holder is dead or has left.
//! A manager that is merely silent is fenced first. So there is never more than one manager, and a
//! failing manager can delay a detection but not cause a false one (LUPIN §3.3).

use super::{Generations, Instance, Status};
use outlive_memory::{Memory, Native, Offset, Ordering};

/// A handle on the role of the fabric manager.
#[derive(Clone, Copy, Debug)]
pub struct Role<M: Memory = Native> {
    memory: M,
    at: Offset,
}

outlive_memory::crash_points! {
    /// The points at which a crash may interrupt a takeover of the role.
    pub enum TakeRolePoint for "role.take" {
        /// Nothing has changed.
        Started,
        /// The role is taken; no group has been notified.
        Taken,
    }
}

const BEATS: u64 = 128;

impl<M: Memory> Role<M> {
    /// The size in bytes of the role's words in the segment.
    pub const BYTES: u64 = 256;

    pub(crate) fn new(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    /// Returns the holder of the role, which may be dead.
    pub fn holder(self) -> Option<Instance> {
        Instance::from_word(self.memory.load(self.at, Ordering::Acquire))
    }

    /// Returns whether the role may be taken from `holder`: it is dead or has left. A corrupt state
    /// proves neither.
    pub fn is_vacant(self, generations: Generations<M>, holder: Instance) -> bool {
        generations.is_dead(holder)
            || generations
                .state(holder.id)
                .is_ok_and(|state| !matches!(state.status, Status::Joining | Status::Live))
    }

    /// Takes the role for `me` if no live process holds it. Returns whether `me` holds it.
    /// Lock-free; of several callers, one gets it.
    pub fn take(self, generations: Generations<M>, me: Instance) -> bool {
        self.memory.crash_point(TakeRolePoint::Started);
        // Acquire, paired with the release of the former holder's take: the caller sees all that it
        // saw.
        let word = self.memory.load::<u64>(self.at, Ordering::Acquire);
        if let Some(holder) = Instance::from_word(word)
            && !self.is_vacant(generations, holder)
        {
            return holder == me;
        }
        let taken = self
            .memory
            .compare_exchange(
                self.at,
                word,
                me.to_word(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok();
        self.memory.persist(self.at, 8);
        self.memory.crash_point(TakeRolePoint::Taken);
        taken
    }

    /// Resigns the role, if `me` holds it.
    pub fn resign(self, me: Instance) {
        let _ = self.memory.compare_exchange(
            self.at,
            me.to_word(),
            Instance::NONE,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        self.memory.persist(self.at, 8);
    }

    /// Advances the manager's heartbeat.
    pub fn beat(self) {
        self.memory
            .fetch_add(self.at + BEATS, 1u64, Ordering::Relaxed);
    }

    /// Returns the number of the manager's heartbeats, over all managers.
    pub fn beats(self) -> u64 {
        self.memory.load(self.at + BEATS, Ordering::Relaxed)
    }
}
