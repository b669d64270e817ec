//! The layout of a pod's membership in its segment.
//!
//! ```text
//! generations   one word an id: generation, host, level, status        (state.rs)
//! instances     one record an id: where the incarnation runs, its heartbeat (record.rs)
//! roles         settings, operating systems, the fabric manager's role  (settings.rs, operating_systems.rs, role.rs)
//! groups        control groups: a log of events and a table of members  (group.rs)
//! logs          one log an id, for the rooms above
//! ```

use super::operating_systems::OperatingSystems;
use super::record::Records;
use super::role::Role;
use super::settings::Settings;
use super::{Generations, Groups, InstanceId, Level, State};
use outlive_memory::{Memory, Native, Offset, Ordering};

/// The offset of the extent in the settings.
const EXTENT: u64 = 128;
/// Marks an extent: "members\0".
const EXTENT_MAGIC: u64 = u64::from_le_bytes(*b"members\0");

/// The size of a membership, fixed when the pod is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The number of ids, for hosts, processes and threads together.
    pub ids: u32,
    /// The maximum number of control groups.
    pub groups: u32,
    /// The number of events that each group remembers.
    pub events: u32,
    /// The size of one id's log in bytes.
    pub log_bytes: u64,
}

impl Extent {
    /// Returns the sizes in bytes of the areas that this membership needs.
    pub fn area_bytes(self) -> AreaBytes {
        AreaBytes {
            generations: Generations::<Native>::bytes(self.ids),
            instances: Records::<Native>::bytes(self.ids),
            roles: Settings::BYTES + OperatingSystems::<Native>::BYTES + Role::<Native>::BYTES,
            groups: Groups::<Native>::bytes(self),
            logs: u64::from(self.ids) * self.log_bytes,
        }
    }
}

impl Extent {
    /// Lays out the areas one after the other from the start of a memory, for a membership without
    /// a segment. Returns them and the size of that memory in bytes.
    pub fn lay_out(self) -> (AreaBytes, u64) {
        let sizes = self.area_bytes();
        let mut end = 0;
        let mut place = |bytes: u64| {
            let at = end;
            end = (end + bytes).next_multiple_of(128);
            at
        };
        let places = AreaBytes {
            generations: place(sizes.generations),
            instances: place(sizes.instances),
            roles: place(sizes.roles),
            groups: place(sizes.groups),
            logs: place(sizes.logs),
        };
        (places, end.next_multiple_of(4096))
    }
}

/// A number for each area of the membership: its size, or its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaBytes {
    /// The table of current generations.
    pub generations: u64,
    /// The records of the instances.
    pub instances: u64,
    /// The settings, the operating systems and the fabric manager's role.
    pub roles: u64,
    /// The control groups.
    pub groups: u64,
    /// The logs of all ids.
    pub logs: u64,
}

/// A handle on the whole membership of a pod.
#[derive(Clone, Copy, Debug)]
pub struct Tables<M: Memory = Native> {
    memory: M,
    extent: Extent,
    places: AreaBytes,
}

impl<M: Memory> Tables<M> {
    /// Returns the membership of `extent` whose areas start at `places` (aligned to 128) in
    /// `memory`. Zeroed memory is a membership without members, except for its [`Settings`].
    pub fn new(memory: M, extent: Extent, places: AreaBytes) -> Self {
        Self {
            memory,
            extent,
            places,
        }
    }

    /// Writes the settings and the extent of a new membership, before other processes can see it.
    pub fn initialise(self, settings: &Settings) {
        let at = self.settings_at();
        settings.write(self.memory, at);
        let extent = self.extent;
        let words = [
            EXTENT_MAGIC,
            extent.ids.into(),
            extent.groups.into(),
            extent.events.into(),
            extent.log_bytes,
        ];
        for (i, word) in words.into_iter().enumerate() {
            self.memory
                .store(at + EXTENT + i as u64 * 8, word, Ordering::Relaxed);
        }
        self.memory.persist(at, Settings::BYTES);
    }

    /// Returns the extent of the membership whose roles are in the `bytes` bytes at `roles`, if a
    /// plausible one is there.
    pub fn read_extent(memory: M, roles: Offset, bytes: u64) -> Option<Extent> {
        if bytes < Settings::BYTES {
            return None;
        }
        let word = |i: u64| memory.load::<u64>(roles + EXTENT + i * 8, Ordering::Relaxed);
        let number = |i| u32::try_from(word(i)).ok();
        let extent = Extent {
            ids: number(1)?,
            groups: number(2)?,
            events: number(3)?,
            log_bytes: word(4),
        };
        let sane = word(0) == EXTENT_MAGIC
            && (1..=Generations::<M>::MOST).contains(&extent.ids)
            && (1..=1 << 12).contains(&extent.groups)
            && (1..=1 << 20).contains(&extent.events)
            && extent.log_bytes <= 1 << 24
            && extent.log_bytes.is_multiple_of(128);
        sane.then_some(extent)
    }

    /// Returns the pod's settings.
    pub fn settings(self) -> Settings {
        Settings::read(self.memory, self.settings_at())
    }

    /// Returns the same membership, through another handle on the same memory.
    pub fn through<N: Memory>(self, memory: N) -> Tables<N> {
        Tables::new(memory, self.extent, self.places)
    }

    /// Returns the memory.
    pub fn memory(self) -> M {
        self.memory
    }

    /// Returns the size of the membership.
    pub fn extent(self) -> Extent {
        self.extent
    }

    /// Returns the table of current generations.
    pub fn generations(self) -> Generations<M> {
        Generations::new(
            self.memory,
            Offset::new(self.places.generations),
            self.extent.ids,
        )
    }

    /// Returns the records of the instances.
    pub fn records(self) -> Records<M> {
        Records::new(self.memory, Offset::new(self.places.instances))
    }

    /// Returns the offset of the settings.
    pub fn settings_at(self) -> Offset {
        Offset::new(self.places.roles)
    }

    /// Returns the operating systems that hosts run on.
    pub fn operating_systems(self) -> OperatingSystems<M> {
        OperatingSystems::new(
            self.memory,
            Offset::new(self.places.roles) + Settings::BYTES,
        )
    }

    /// Returns the fabric manager's role.
    pub fn role(self) -> Role<M> {
        let after = Settings::BYTES + OperatingSystems::<M>::BYTES;
        Role::new(self.memory, Offset::new(self.places.roles) + after)
    }

    /// Returns the control groups.
    pub fn groups(self) -> Groups<M> {
        Groups::new(self.memory, Offset::new(self.places.groups), self.extent)
    }

    /// Returns the offset of the log of `id`.
    pub fn log_at(self, id: InstanceId) -> Offset {
        Offset::new(self.places.logs) + u64::from(id) * self.extent.log_bytes
    }

    /// Returns the number of the operating system on which an id in `state` runs; `None` if the id
    /// of its host is not a host.
    pub fn os_of(self, state: State) -> Option<u16> {
        match state.level? {
            Level::Host => Some(state.host),
            Level::Process | Level::Thread => {
                if u32::from(state.host) >= self.extent.ids {
                    return None;
                }
                let host = self.generations().state(state.host.into()).ok()?;
                (host.level == Some(Level::Host)).then_some(host.host)
            }
        }
    }

    /// Returns every id whose incarnation may write, with its state.
    pub fn writers(self) -> impl Iterator<Item = (InstanceId, State)> {
        let generations = self.generations();
        (0..self.extent.ids).filter_map(move |id| {
            let state = generations.state(id).ok()?;
            state.status.may_write().then_some((id, state))
        })
    }
}
