//! Control groups: members that are notified of one another's failures (LUPIN §3.4).
//!
//! A pod has a fixed number of groups. Number 0 is the pod's own: every member is in it and it
//! needs no credentials. The others are created by name, with a guard that states the requirements
//! for joining.
//!
//! A slot's words:
//!
//! ```text
//!   0  ready (1) or not (0)       8  uid | gid << 32     16  kind of the guard
//!  24  length of the name        32  the name, 64 bytes  96  salt, 128 bits   112  digest, 256 bits
//! 256  the log of events and the table of members (log.rs)
//! ```
//!
//! Creation is serialised by one word that holds the creator's instance. It can be taken if it
//! names no instance, or one that is dead or has left. The creator fills a slot that is not ready
//! and makes it ready last. If it dies before, the slot is still free, and the next creator fills
//! it again.

mod event;
mod guard;
mod log;
mod subscription;

use super::tables::Extent;
use super::{Generations, Instance, Status};
use core::fmt;
use core::time::Duration;
use outlive_memory::{Memory, Native, Offset, Ordering};

pub use event::{Event, EventKind};
pub use guard::{Credentials, Guard};
pub use log::{AppendPoint, GroupLog, MemberState, Standing};
pub use subscription::{News, Subscription};

outlive_memory::crash_points! {
    /// The points at which a crash may interrupt the creation of a group.
    pub enum CreateGroupPoint for "group.create" {
        /// The creator's word is set.
        Claimed,
        /// The slot is filled in and not ready.
        Filled,
        /// The group exists; the word still names the creator.
        Ready,
    }
}

/// The number of a group in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(crate) u32);

impl GroupId {
    /// The pod's own group, which every member is in.
    pub const POD: Self = Self(0);

    /// Returns the number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}", self.0)
    }
}

/// The reason why a group could not be created or joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The name is empty or too long.
    #[error("a group's name has 1 to {} bytes, not {len}", Groups::<Native>::NAME)]
    Name {
        /// Its length in bytes.
        len: usize,
    },
    /// A group of that name exists.
    #[error("the group {name:?} already exists; join it instead of creating it")]
    Exists {
        /// The name.
        name: String,
    },
    /// No group of that name exists.
    #[error("the group {name:?} does not exist; create it first")]
    NotFound {
        /// The name.
        name: String,
    },
    /// Every slot is taken.
    #[error("all {most} groups of this pod are in use; create a pod with more groups")]
    Full {
        /// The maximum number of groups.
        most: u32,
    },
    /// The thread is not a live member of the process.
    #[error(
        "the thread is not a member of this process, or the process has left the pod; pass a \
         thread that has joined by this process"
    )]
    NotMember,
    /// The credentials do not meet the group's requirements.
    #[error("group {name:?} refuses these credentials: {why}")]
    Refused {
        /// The group.
        name: String,
        /// The requirement that is not met.
        why: &'static str,
    },
}

/// A handle on the groups of a pod.
#[derive(Clone, Copy, Debug)]
pub struct Groups<M: Memory = Native> {
    memory: M,
    at: Offset,
    extent: Extent,
}

const HEADER: u64 = 128;
const SLOT_HEADER: u64 = 256;

impl<M: Memory> Groups<M> {
    /// The longest name of a group, in bytes.
    pub const NAME: usize = 64;

    pub(crate) fn new(memory: M, at: Offset, extent: Extent) -> Self {
        Self { memory, at, extent }
    }

    const fn stride(extent: Extent) -> u64 {
        (SLOT_HEADER + GroupLog::<M>::bytes(extent.events, extent.ids)).next_multiple_of(128)
    }

    /// Returns the size in bytes of the groups of `extent`.
    pub const fn bytes(extent: Extent) -> u64 {
        HEADER + extent.groups as u64 * Self::stride(extent)
    }

    fn slot_at(self, group: GroupId) -> Offset {
        assert!(
            group.0 < self.extent.groups,
            "{group} of {}",
            self.extent.groups
        );
        self.at + HEADER + u64::from(group.0) * Self::stride(self.extent)
    }

    /// Returns the log of `group`.
    ///
    /// # Panics
    /// Panics if the group does not exist.
    pub fn log(self, group: GroupId) -> GroupLog<M> {
        let at = self.slot_at(group) + SLOT_HEADER;
        GroupLog::new(self.memory, at, self.extent.events, self.extent.ids)
    }

    fn is_ready(self, group: GroupId) -> bool {
        // Acquire: a ready slot is filled in. The pod's own group needs nothing to be filled in.
        group == GroupId::POD
            || self
                .memory
                .load::<u64>(self.slot_at(group), Ordering::Acquire)
                == 1
    }

    /// Returns every group that exists, the pod's own first.
    pub fn all(self) -> impl Iterator<Item = GroupId> {
        (0..self.extent.groups)
            .map(GroupId)
            .filter(move |group| self.is_ready(*group))
    }

    /// Returns the name of `group`; empty for the pod's own.
    pub fn name(self, group: GroupId) -> String {
        let at = self.slot_at(group);
        let len = self.memory.load::<u64>(at + 24, Ordering::Relaxed) as usize;
        let mut name = vec![0; len.min(Self::NAME)];
        self.memory.copy_out(at + 32, &mut name);
        String::from_utf8_lossy(&name).into_owned()
    }

    /// Returns the group called `name`.
    pub fn find(self, name: &str) -> Option<GroupId> {
        self.all()
            .find(|group| *group != GroupId::POD && self.name(*group) == name)
    }

    /// Creates the group `name` with `guard`, on behalf of `creator`. Waits for a live creator of
    /// another group; if the caller dies, the group exists as a whole or not at all.
    ///
    /// # Errors
    /// Fails if the name is not valid or is taken, or if no slot is free.
    pub fn create(
        self,
        generations: Generations<M>,
        creator: Instance,
        name: &str,
        guard: &Guard,
    ) -> Result<GroupId, GroupError> {
        if name.is_empty() || name.len() > Self::NAME {
            return Err(GroupError::Name { len: name.len() });
        }
        let _creating = Creating::begin(self, generations, creator);
        self.memory.crash_point(CreateGroupPoint::Claimed);
        if self.find(name).is_some() {
            return Err(GroupError::Exists { name: name.into() });
        }
        let Some(free) = (1..self.extent.groups)
            .map(GroupId)
            .find(|group| !self.is_ready(*group))
        else {
            return Err(GroupError::Full {
                most: self.extent.groups,
            });
        };
        let at = self.slot_at(free);
        self.memory
            .store(at + 24, name.len() as u64, Ordering::Relaxed);
        self.memory.copy_in(at + 32, name.as_bytes());
        guard.write(self.memory, at);
        self.memory.persist(at, SLOT_HEADER);
        self.memory.crash_point(CreateGroupPoint::Filled);
        // Release: a ready slot is filled in.
        self.memory.store(at, 1u64, Ordering::Release);
        self.memory.persist(at, 8);
        self.memory.crash_point(CreateGroupPoint::Ready);
        Ok(free)
    }

    /// Checks `credentials` against the guard of the group `name`.
    ///
    /// # Errors
    /// Fails if the group does not exist or refuses the credentials.
    pub fn admit(self, name: &str, credentials: &Credentials) -> Result<GroupId, GroupError> {
        let group = self
            .find(name)
            .ok_or_else(|| GroupError::NotFound { name: name.into() })?;
        Guard::check(self.memory, self.slot_at(group), credentials).map_err(|why| {
            GroupError::Refused {
                name: name.into(),
                why,
            }
        })?;
        Ok(group)
    }
}

/// The right to create a group, held by one creator at a time.
struct Creating<M: Memory> {
    groups: Groups<M>,
    creator: Instance,
}

impl<M: Memory> Creating<M> {
    fn begin(groups: Groups<M>, generations: Generations<M>, creator: Instance) -> Self {
        let memory = groups.memory;
        loop {
            // Acquire: a reader of a creator's word sees the generation with which it joined.
            let word = memory.load::<u64>(groups.at, Ordering::Acquire);
            // A member that has left is not creating either: it cannot leave in the middle of this.
            let free = Instance::from_word(word).is_none_or(|holder| {
                generations.is_dead(holder)
                    || generations
                        .state(holder.id)
                        .is_ok_and(|state| state.status == Status::Left)
            });
            // Acquire, paired with the release of `drop`, or with the raise of the dead creator's
            // generation: its stores to a slot are visible, and overwritten.
            if free
                && memory
                    .compare_exchange(
                        groups.at,
                        word,
                        creator.to_word(),
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                return Self { groups, creator };
            }
            memory.spin_hint();
            // A yield would cost whole time slices where other programs compete for the core.
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl<M: Memory> Drop for Creating<M> {
    fn drop(&mut self) {
        let _ = self.groups.memory.compare_exchange(
            self.groups.at,
            self.creator.to_word(),
            Instance::NONE,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }
}
