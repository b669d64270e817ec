//! The numbers, sizes and protocol of a store, and the offsets in its configuration.

use super::catalogue::EACH_TABLE;
use super::epochs::COMMIT_BYTES;
use super::log_areas::AREA_BYTES;
use crate::protocol::{Counts, LogArea, Protocol};
use crate::tables::MAX_REPLICAS;

/// The largest number of memory servers. A place has 8 bits for the number of its server.
pub(super) const MAX_MEMORY_SERVERS: u16 = 256;
/// The largest number of bytes of a log slot.
pub(super) const MAX_LOG_SLOT: u64 = 1 << 20;

pub(super) const REPLICAS: u64 = 0x10;
pub(super) const PROCESS_IDS: u64 = 0x18;
pub(super) const POISONS: u64 = 0x20;
pub(super) const MEMORY_SERVERS: u64 = 0x28;
pub(super) const CATALOGUE: u64 = 0x30;
pub(super) const TABLES: u64 = 0x38;
pub(super) const LOG_AREAS: u64 = 0x40;
pub(super) const COORDINATORS: u64 = 0x48;
pub(super) const LOG_SLOT: u64 = 0x50;
pub(super) const FORWARD: u64 = 0x58;
pub(super) const BACK: u64 = 0x60;
pub(super) const PROTOCOL: u64 = 0x68;
pub(super) const RECOVERIES: u64 = 0x70;
/// The restoration that is under way.
pub(super) const RESTORER: u64 = 0x78;
/// The totals of events in transactions.
pub(super) const EVENTS: u64 = 0x80;
/// The stop that is under way. Workers read it at each attempt, and the totals change all the time.
pub(super) const STOPPER: u64 = EVENTS + (Counts::EVENTS as u64 * 8).next_multiple_of(64);
/// The list of changes.
pub(super) const CHANGES: u64 = STOPPER + 64;
pub(super) const ENTRY_BYTES: u64 = 64;

/// The numbers, sizes and protocol that a store is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The number of replicas of each object, f + 1: 1 to 8.
    pub replicas: u16,
    /// The largest number of memory servers in the life of the store, lost ones included: up to
    /// 256.
    pub memory_servers: u16,
    /// The number of process ids, which are 1 to this number.
    pub process_ids: u16,
    /// The largest number of tables: up to 256.
    pub tables: u16,
    /// The largest number of compute servers with logs at one time.
    pub log_areas: u16,
    /// The largest number of coordinators of a compute server.
    pub coordinators: u16,
    /// The number of bytes of a coordinator's log slot, a multiple of 64.
    pub log_slot_bytes: u64,
    /// The protocol, which determines the contents of the log slots.
    pub protocol: Protocol,
}

impl Sizes {
    /// Returns the number of bytes of the configuration.
    pub const fn bytes(self) -> u64 {
        self.tables_at() + self.tables as u64 * EACH_TABLE
    }

    /// Returns the length of the list of changes: a loss of each memory server, and the steps of
    /// one restoration and a half for each.
    pub(super) const fn changes(self) -> u64 {
        self.memory_servers as u64 * 4
    }

    pub(super) const fn servers_at(self) -> u64 {
        CHANGES + self.changes() * 8
    }

    pub(super) const fn owners_at(self) -> u64 {
        self.servers_at() + self.memory_servers as u64 * ENTRY_BYTES
    }

    pub(super) const fn areas_at(self) -> u64 {
        (self.owners_at() + (self.process_ids as u64 + 1) * 8).next_multiple_of(64)
    }

    pub(super) const fn commits_at(self) -> u64 {
        self.areas_at() + self.log_areas as u64 * AREA_BYTES
    }

    pub(super) const fn tables_at(self) -> u64 {
        self.commits_at() + self.log_areas as u64 * self.coordinators as u64 * COMMIT_BYTES
    }

    /// Returns the smallest number of bytes of a log slot with which a word can be inserted.
    pub(super) fn least_log_slot(self) -> u64 {
        let has_space = |bytes: &u64| {
            let area = LogArea {
                slot_words: (bytes / 8) as usize,
                protocol: self.protocol,
                ..LogArea::default()
            };
            area.value_words() > 0
        };
        (64..).step_by(64).find(has_space).unwrap_or(u64::MAX)
    }

    /// Returns the name of the first size that is out of its range, with the size and the range.
    pub(super) fn out_of_range(self) -> Option<(&'static str, u64, u64, u64)> {
        let has_slots = self.log_areas > 0 && self.coordinators > 0;
        let least_slot = u64::from(has_slots);
        [
            ("replicas", self.replicas.into(), 1, MAX_REPLICAS as u64),
            (
                "memory servers",
                self.memory_servers.into(),
                1,
                MAX_MEMORY_SERVERS.into(),
            ),
            ("process ids", self.process_ids.into(), 1, u16::MAX.into()),
            ("tables", self.tables.into(), 0, 256),
            ("log areas", self.log_areas.into(), 0, 1024),
            ("coordinators", self.coordinators.into(), 0, u16::MAX.into()),
            (
                "bytes in a log slot",
                self.log_slot_bytes,
                64 * least_slot,
                MAX_LOG_SLOT,
            ),
            (
                "bytes in a log slot after a multiple of 64",
                self.log_slot_bytes % 64,
                0,
                0,
            ),
        ]
        .into_iter()
        .find(|(_, size, least, most)| !(least..=most).contains(&size))
    }
}
