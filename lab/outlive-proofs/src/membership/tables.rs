//! A small membership over any memory.

use core::time::Duration;
use outlive::host::Bells;
use outlive::membership::{AreaBytes, Extent, Groups, Level, Records, State, Status, Tables};
use outlive_memory::{Memory, Native, Offset};

/// The number of ids.
pub const IDS: u32 = 4;

/// Enough for [`tables`]; checked by every access.
pub const SIZE: u64 = 20 << 10;

const EXTENT: Extent = Extent {
    ids: IDS,
    groups: 3,
    events: 4,
    log_bytes: 0,
};

const fn after(at: Offset, bytes: u64) -> Offset {
    Offset::new((at.raw() + bytes).next_multiple_of(128))
}

/// The offset of the groups. The creator's word comes first.
pub const GROUPS: Offset = Offset::new(128);
/// Returns the offset of the note of the member that proved the death of an id, 16 bytes.
pub fn proven(id: u32) -> Offset {
    after(GROUPS, Groups::<Native>::bytes(EXTENT)) + (u64::from(id) * 256 + 192)
}
/// Returns the offset of the word of the watch of the host `id`.
pub fn watch(id: u32) -> Offset {
    after(GROUPS, Groups::<Native>::bytes(EXTENT)) + (u64::from(id) * 256 + 136)
}
/// The offset of the roles.
pub const ROLES: Offset = after(
    after(GROUPS, Groups::<Native>::bytes(EXTENT)),
    Records::<Native>::bytes(IDS),
);
/// The distance between groups, in bytes.
pub const GROUP_STRIDE: u64 = (Groups::<Native>::bytes(EXTENT) - 128) / EXTENT.groups as u64;

/// Returns the tables of [`IDS`] ids, two groups that can be created, and rings of four events.
pub fn tables<M: Memory>(memory: M) -> Tables<M> {
    let places = AreaBytes {
        generations: 0,
        instances: after(GROUPS, Groups::<Native>::bytes(EXTENT)).raw(),
        roles: ROLES.raw(),
        groups: GROUPS.raw(),
        logs: SIZE,
    };
    Tables::new(memory, EXTENT, places)
}

/// Returns the first state of an id, alive on host 0 (for host 0: on operating system 0).
pub const fn live(level: Level) -> State {
    State {
        generation: 1,
        host: 0,
        level: Some(level),
        status: Status::Live,
    }
}

/// Brings the first incarnation of `id` to life.
pub fn enliven<M: Memory>(tables: Tables<M>, id: u32, level: Level) {
    // SAFETY: no thread acts as the incarnation that this ends; one acts as the new one.
    let moved = unsafe {
        tables
            .generations()
            .assume_state(id, State::FREE, live(level))
    };
    assert!(moved, "id {id} was free");
}

/// Raises the generation of `id`: the incarnation can no longer write. No group is notified.
pub fn declare_dead<M: Memory>(tables: Tables<M>, id: u32) {
    let seen = tables.generations().state(id).expect("a state");
    let dead = State {
        generation: seen.generation + 1,
        status: Status::Dead,
        ..seen
    };
    // SAFETY: no thread acts as the incarnation that this ends; one acts as the new one.
    assert!(unsafe { tables.generations().assume_state(id, seen, dead) });
}

/// Wake-up futexes of an operating system without sleepers.
#[derive(Debug)]
pub struct Silent;

impl Bells for Silent {
    fn read(&self, _key: u64) -> u32 {
        0
    }
    fn wait(&self, _key: u64, _seen: u32, _timeout: Duration) {}
    fn ring(&self, _key: u64) {}
}
