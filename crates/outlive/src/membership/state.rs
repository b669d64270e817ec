//! The table of current generations: one word for every id, which alone decides whether a member is
//! dead.
//!
//! A word holds the current generation of its id, the id of the host it lives on, its level and its
//! status, so that one compare-and-swap moves an id from one state to the next. The transitions:
//!
//! ```text
//!                 a new incarnation claims the id (generation + 1)
//!      Free, Left, Recovered ------------------------------> Joining
//!                                                               |  its record is written
//!                                                               v
//!      Left <------------------- its owner ------------------ Live
//!                                                               |
//!      Recovered <-- the holder of the claim on its log -- Dead <- whoever proved the death of
//!                                                           ^       the Joining or Live instance
//!                                                           |       (generation + 1)
//!                                              Fencing: a host whose members are being killed
//! ```
//!
//! Generations never decrease and every change of incarnation raises them. So a word never returns
//! to an earlier value (no ABA), and the late compare-and-swap of a process that was held up fails.

use super::{Instance, InstanceId};
use core::fmt;
use outlive_memory::{Memory, Native, Offset, Ordering};

/// The kind of member that an id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// A unit of failure: its threads, its caches and the memory that it lends fail together.
    Host = 1,
    /// A process on a host.
    Process = 2,
    /// A thread of a process; the only level that owns locks and writes to structures.
    Thread = 3,
}

impl Level {
    /// Returns the level with this number in a word: 0 for none; `None` if no level has it.
    pub(crate) const fn from_code(code: u8) -> Option<Option<Self>> {
        Some(match code {
            0 => None,
            1 => Some(Self::Host),
            2 => Some(Self::Process),
            3 => Some(Self::Thread),
            _ => return None,
        })
    }

    /// Returns the level's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Process => "process",
            Self::Thread => "thread",
        }
    }
}

/// The stage of an id's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Never used.
    Free = 0,
    /// Claimed; its record is being written. It can die already.
    Joining = 1,
    /// A member.
    Live = 2,
    /// A host that is suspected and whose members are being killed; no member may join it any more.
    Fencing = 3,
    /// Its last incarnation died and has not been recovered yet.
    Dead = 4,
    /// Its last incarnation died and has been recovered.
    Recovered = 5,
    /// Its last incarnation left in good order.
    Left = 6,
    /// Its generations are exhausted; it is never used again.
    Retired = 7,
}

impl Status {
    /// Returns the status's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Joining => "joining",
            Self::Live => "live",
            Self::Fencing => "fencing",
            Self::Dead => "dead",
            Self::Recovered => "recovered",
            Self::Left => "left",
            Self::Retired => "retired",
        }
    }

    /// Returns whether an incarnation exists that may write.
    pub const fn may_write(self) -> bool {
        matches!(self, Self::Joining | Self::Live | Self::Fencing)
    }
}

/// One word of the table, unpacked.
///
/// ```text
/// 63                 32 31              16 15      8 7       0
/// | current generation |  id of its host  |  level  |  status |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The current generation. 0 only while the id is [`Status::Free`].
    pub generation: u32,
    /// The id of the host that the incarnation lives on (of itself, for a host).
    pub host: u16,
    /// The kind of member; `None` while the id has never been used.
    pub level: Option<Level>,
    /// The stage of its life.
    pub status: Status,
}

impl State {
    /// The state of an id that was never used.
    pub const FREE: Self = Self {
        generation: 0,
        host: 0,
        level: None,
        status: Status::Free,
    };

    /// Returns the word.
    pub const fn to_word(self) -> u64 {
        let level = match self.level {
            None => 0,
            Some(level) => level as u64,
        };
        (self.generation as u64) << 32 | (self.host as u64) << 16 | level << 8 | self.status as u64
    }

    /// Returns the state in a word from the segment; `None` if no state has this word.
    pub const fn from_word(word: u64) -> Option<Self> {
        let status = match word as u8 {
            0 => Status::Free,
            1 => Status::Joining,
            2 => Status::Live,
            3 => Status::Fencing,
            4 => Status::Dead,
            5 => Status::Recovered,
            6 => Status::Left,
            7 => Status::Retired,
            _ => return None,
        };
        let Some(level) = Level::from_code((word >> 8) as u8) else {
            return None;
        };
        Some(Self {
            generation: (word >> 32) as u32,
            host: (word >> 16) as u16,
            level,
            status,
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level.map_or("unused", Level::name);
        write!(
            f,
            "{level}, generation {}, {}",
            self.generation,
            self.status.name()
        )
    }
}

/// A handle on the table of current generations.
///
/// A program can read generations and cannot change them, because a generation may be raised only
/// after its owner can no longer write:
///
/// ```compile_fail,E0624
/// fn raise(generations: outlive::membership::Generations, state: outlive::membership::State) {
///     generations.transition(3, state, state);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Generations<M: Memory = Native> {
    memory: M,
    table: Offset,
    capacity: u32,
}

impl<M: Memory> Generations<M> {
    /// The maximum number of ids of a table: 16 bits name the host of an instance.
    pub const MOST: u32 = 1 << 16;

    /// Returns the table of `capacity` ids at `table` (aligned to 8), which is zeroed memory at
    /// first: every id is free.
    ///
    /// # Panics
    /// If `capacity` is above [`MOST`](Self::MOST).
    pub fn new(memory: M, table: Offset, capacity: u32) -> Self {
        assert!(
            capacity <= Self::MOST,
            "a pod has at most {} ids",
            Self::MOST
        );
        Self {
            memory,
            table,
            capacity,
        }
    }

    /// Returns the size in bytes of a table of `capacity` ids.
    pub const fn bytes(capacity: u32) -> u64 {
        capacity as u64 * 8
    }

    /// Returns the number of ids, which start at 0.
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    /// Returns the offset of the word of `id`.
    ///
    /// # Panics
    /// Panics if the id does not exist.
    #[inline]
    pub fn word_at(self, id: InstanceId) -> Offset {
        assert!(
            id < self.capacity,
            "id {id} does not exist: the pod has {} ids, from 0 on",
            self.capacity
        );
        self.table + u64::from(id) * 8
    }

    /// Returns the current generation of `id`.
    ///
    /// Acquire: a reader of the raised generation also sees all stores before the raise, including
    /// the last stores of the dead incarnation (the fence made them visible).
    #[inline]
    pub fn current(self, id: InstanceId) -> u32 {
        (self.memory.load::<u64>(self.word_at(id), Ordering::Acquire) >> 32) as u32
    }

    /// Returns whether `instance` is dead (or of an id that this pod does not have).
    #[inline]
    pub fn is_dead(self, instance: Instance) -> bool {
        instance.id >= self.capacity || self.current(instance.id) != instance.generation
    }

    /// Returns whether `instance` is dead, has left, or has an id that this pod does not have. No
    /// log records a lock of an instance that has left, so a lock word that names it may be taken
    /// over.
    #[inline]
    pub fn is_gone(self, instance: Instance) -> bool {
        if instance.id >= self.capacity {
            return true;
        }
        let word = self
            .memory
            .load::<u64>(self.word_at(instance.id), Ordering::Acquire);
        (word >> 32) as u32 != instance.generation || word as u8 == Status::Left as u8
    }

    /// Returns the state of `id`, or the word if it is not a state.
    ///
    /// # Errors
    /// Returns the word if the table is corrupt there, and `u64::MAX`, which is not a state, if the
    /// id does not exist. So an id that was read from the segment need not be checked first.
    pub fn state(self, id: InstanceId) -> Result<State, u64> {
        if id >= self.capacity {
            return Err(u64::MAX);
        }
        let word = self.memory.load::<u64>(self.word_at(id), Ordering::Acquire);
        State::from_word(word).ok_or(word)
    }

    /// Moves `id` from state `from` to state `to` if it is still in `from`.
    ///
    /// AcqRel: release, so that a reader of the new state also sees the earlier stores of the
    /// caller (a record, the note of a fence); acquire, to see those of the previous caller.
    pub(crate) fn transition(self, id: InstanceId, from: State, to: State) -> bool {
        let at = self.word_at(id);
        let (from, to) = (from.to_word(), to.to_word());
        let moved = self
            .memory
            .compare_exchange(at, from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if moved {
            self.memory.persist(at, 8);
        }
        moved
    }

    /// Moves `id` from state `from` to state `to` if it is still in `from`. Returns whether it was.
    /// For proofs and examples without a process that joins.
    ///
    /// # Safety
    /// If this ends an incarnation, that incarnation can no longer write to the pod's memory, and
    /// never will again (contract 1). If this begins one, a single thread acts as it.
    #[doc(hidden)]
    pub unsafe fn assume_state(self, id: InstanceId, from: State, to: State) -> bool {
        self.transition(id, from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_memory::PersistenceDomain;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_is_a_state_or_is_refused(word: u64, small in 0u64..0x0500) {
            for word in [word, word & !0xFFFF | small] {
                match State::from_word(word) {
                    Some(state) => prop_assert_eq!(state.to_word(), word),
                    None => prop_assert!(word as u8 > 7 || (word >> 8) as u8 > 3),
                }
            }
        }
    }

    #[test]
    fn a_stale_transition_fails_and_a_raised_generation_is_death() {
        let memory = Native::leaked(4096, PersistenceDomain::Flushed);
        let table = Generations::new(memory, Offset::new(0), 16);
        let live = State {
            generation: 1,
            host: 2,
            level: Some(Level::Thread),
            status: Status::Live,
        };
        assert!(table.transition(3, State::FREE, live));
        assert!(!table.transition(3, State::FREE, live));
        let instance = Instance::new(3, 1);
        assert!(!table.is_dead(instance));
        let dead = State {
            generation: 2,
            status: Status::Dead,
            ..live
        };
        assert!(table.transition(3, live, dead));
        assert!(table.is_dead(instance));
        assert!(table.is_dead(Instance::new(99, 1)));
        assert_eq!(table.state(3), Ok(dead));
    }
}
