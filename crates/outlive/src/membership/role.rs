//! The fabric manager's role: a word that names its holder, and a heartbeat of its own.
//!
//! The holder is a process instance (its sentinel does the work). A backup takes the role by one
//! compare-and-swap from the holder's word to its own, and only once the holder is dead or has left: a
//! manager that is merely silent is fenced first. So there is never more than one, and a failing manager
//! can delay a detection but not cause a false one (LUPIN §3.3).

use super::{Generations, Instance, Status};
use outlive_memory::{Memory, Native, Offset, Ordering};

/// A handle on the role.
#[derive(Clone, Copy, Debug)]
pub struct Role<M: Memory = Native> {
    memory: M,
    at: Offset,
}

outlive_memory::crash_points! {
    /// Where a takeover of the role may be cut short.
    pub enum TakeRolePoint for "role.take" {
        /// Nothing has been done.
        Started,
        /// The role is ours; nobody has been told.
        Taken,
    }
}

const BEATS: u64 = 128;

impl<M: Memory> Role<M> {
    /// How many bytes the role takes.
    pub const BYTES: u64 = 256;

    pub(crate) fn new(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    /// Who holds the role.
    pub fn holder(self) -> Option<Instance> {
        Instance::from_word(self.memory.load(self.at, Ordering::Acquire))
    }

    /// Whether the role may be taken from `holder`: it is dead, or has left.
    pub fn is_vacant(self, generations: Generations<M>, holder: Instance) -> bool {
        generations.is_dead(holder)
            || !generations
                .state(holder.id)
                .is_ok_and(|state| matches!(state.status, Status::Joining | Status::Live))
    }

    /// Takes the role for `me` if nobody who lives holds it. Lock-free; of several, one gets it.
    pub fn take(self, generations: Generations<M>, me: Instance) -> bool {
        self.memory.crash_point(TakeRolePoint::Started);
        // Acquire, paired with the release of the former holder's take: its view is ours.
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

    /// Gives the role back, if `me` holds it.
    pub fn resign(self, me: Instance) {
        let _ = self.memory.compare_exchange(
            self.at,
            me.to_word(),
            Instance::NOBODY,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        self.memory.persist(self.at, 8);
    }

    /// Beats the manager's heart.
    pub fn beat(self) {
        self.memory
            .fetch_add(self.at + BEATS, 1u64, Ordering::Relaxed);
    }

    /// How often the manager's heart has beaten, over all managers.
    pub fn beats(self) -> u64 {
        self.memory.load(self.at + BEATS, Ordering::Relaxed)
    }
}
