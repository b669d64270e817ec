//! Where the membership of a pod stands in its segment.
//!
//! ```text
//! generations   one word an id: generation, host, level, status        (state.rs)
//! instances     one record an id: where the incarnation runs, its heart (record.rs)
//! roles         settings, operating systems, the fabric manager's role  (settings.rs, oses.rs, role.rs)
//! groups        control groups: a log of events and a table of members  (group.rs)
//! logs          one log an id, for the rooms above
//! ```

use super::oses::OperatingSystems;
use super::record::Records;
use super::role::Role;
use super::settings::Settings;
use super::{Generations, Groups, InstanceId, Level, State};
use outlive_memory::{Memory, Native, Offset, Ordering};

/// Where the extent stands among the settings.
const EXTENT: u64 = 128;
/// Says that an extent stands there: "members\0".
const EXTENT_MAGIC: u64 = u64::from_le_bytes(*b"members\0");

/// How large a membership is: fixed when the pod is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many ids there are: hosts, processes and threads together.
    pub ids: u32,
    /// How many control groups there can be.
    pub groups: u32,
    /// How many events each group remembers.
    pub events: u32,
    /// The size of one id's log in bytes.
    pub log_bytes: u64,
}

impl Extent {
    /// The sizes in bytes of the areas that this membership needs.
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
    /// The areas one after the other from the start of a memory, and how large that memory must be: for a
    /// membership without a segment around it.
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

/// A number for each area of the membership: its size, or where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaBytes {
    /// The table of current generations.
    pub generations: u64,
    /// The records of the instances.
    pub instances: u64,
    /// Settings, operating systems and the fabric manager's role.
    pub roles: u64,
    /// Control groups.
    pub groups: u64,
    /// Logs.
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
    /// The membership of `extent` whose areas start at `places` (aligned to 128) in `memory`. Zeroed
    /// memory is a membership without members, but for its [`Settings`].
    pub fn new(memory: M, extent: Extent, places: AreaBytes) -> Self {
        Self {
            memory,
            extent,
            places,
        }
    }

    /// Writes what a new membership holds from the start, while nobody can see it yet.
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

    /// The extent of the membership whose roles stand in the `bytes` bytes at `roles`, if there is one
    /// that could be.
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

    /// What the members have agreed on.
    pub fn settings(self) -> Settings {
        Settings::read(self.memory, self.settings_at())
    }

    /// The same membership, through another handle on the same memory.
    pub fn through<N: Memory>(self, memory: N) -> Tables<N> {
        Tables::new(memory, self.extent, self.places)
    }

    /// The memory.
    pub fn memory(self) -> M {
        self.memory
    }

    /// How large it is.
    pub fn extent(self) -> Extent {
        self.extent
    }

    /// The table of current generations.
    pub fn generations(self) -> Generations<M> {
        Generations::new(
            self.memory,
            Offset::new(self.places.generations),
            self.extent.ids,
        )
    }

    /// The records of the instances.
    pub fn records(self) -> Records<M> {
        Records::new(self.memory, Offset::new(self.places.instances))
    }

    /// Where the settings stand.
    pub fn settings_at(self) -> Offset {
        Offset::new(self.places.roles)
    }

    /// The operating systems that hosts run on.
    pub fn operating_systems(self) -> OperatingSystems<M> {
        OperatingSystems::new(
            self.memory,
            Offset::new(self.places.roles) + Settings::BYTES,
        )
    }

    /// The fabric manager's role.
    pub fn role(self) -> Role<M> {
        let after = Settings::BYTES + OperatingSystems::<M>::BYTES;
        Role::new(self.memory, Offset::new(self.places.roles) + after)
    }

    /// The control groups.
    pub fn groups(self) -> Groups<M> {
        Groups::new(self.memory, Offset::new(self.places.groups), self.extent)
    }

    /// Where the log of `id` is.
    pub fn log_at(self, id: InstanceId) -> Offset {
        Offset::new(self.places.logs) + u64::from(id) * self.extent.log_bytes
    }

    /// The number of the operating system on which an id in `state` runs; `None` if its host is none.
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

    /// Every id whose incarnation may write, with its state.
    pub fn writers(self) -> impl Iterator<Item = (InstanceId, State)> {
        let generations = self.generations();
        (0..self.extent.ids).filter_map(move |id| {
            let state = generations.state(id).ok()?;
            state.status.may_write().then_some((id, state))
        })
    }
}
