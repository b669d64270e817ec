//! The tables in the configuration: their layout, and the operations on them.
//!
//! ```text
//! table     state, sizes, sizes, length of the name, name; 64 bytes
//! places    for each table 64 partitions of 8 replicas of 8 bytes
//! ```
//!
//! Tables are created under a claim of the catalogue, and published by their state. The space of a
//! region that is in use follows from the published tables, so a creation that is cut short leaves
//! nothing behind.

use super::configuration::Configuration;
use super::entries::{MemoryEntry, Phase};
use super::places::{named_server, place_word};
use crate::tables::{Geometry, MAX_REPLICAS, TableLayout, choose};
use crate::verbs::ServerId;
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};

outlive::memory::crash_points! {
    /// Crash points of the creation of a table.
    pub enum CreateTablePoint for "store.table.create" {
        /// The catalogue is claimed.
        Claimed,
        /// The places of the partitions are written.
        Placed,
        /// The table exists.
        Published,
    }
}

const TABLE_BYTES: u64 = 64;
const NAME: u64 = 32;
/// The largest length of a table's name in bytes.
pub const MAX_NAME: usize = 32;
const PLACES: u64 = Geometry::MAX_PARTITIONS as u64 * MAX_REPLICAS as u64 * 8;
/// The number of bytes of a table in the catalogue.
pub(super) const EACH_TABLE: u64 = TABLE_BYTES + PLACES;

/// A table in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The number of the table.
    pub number: u8,
    /// The name of the table.
    pub name: String,
    /// The sizes of the table.
    pub geometry: Geometry,
}

/// The reason why a table cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The name is empty or too long.
    #[error("a table cannot have the name `{name}`; a name has 1 to {MAX_NAME} bytes")]
    BadName {
        /// The name.
        name: String,
    },
    /// The sizes are out of their ranges.
    #[error("table `{name}` cannot have {keys} keys with values of {bytes} bytes; the ranges are \
        1 to {} keys and 1 to {} bytes", Geometry::MAX_KEYS, Geometry::MAX_VALUE_WORDS * 8)]
    BadSize {
        /// The name.
        name: String,
        /// The number of keys.
        keys: u64,
        /// The number of bytes of a value.
        bytes: u64,
    },
    /// A transaction that inserts a value would not fit into a log slot.
    #[error(
        "table `{name}` cannot have values of {bytes} bytes: the store's log slots are large \
         enough for {most}; create the store with larger ones (`outlive store create --log-slot`)"
    )]
    ValueTooLarge {
        /// The name.
        name: String,
        /// The size of a value in bytes, rounded up to words.
        bytes: u64,
        /// The largest possible size.
        most: u64,
    },
    /// A table with this name exists, and its values have another size.
    #[error(
        "table `{name}` has values of {found} bytes, but this program uses values of {wanted} \
         bytes; use another table"
    )]
    OtherValues {
        /// The name.
        name: String,
        /// The size of the table's values in bytes, rounded up to words.
        found: u64,
        /// The size of the program's values, rounded up to words.
        wanted: u64,
    },
    /// The store has its maximum number of tables.
    #[error("the store has {most} tables, which is the maximum; create another store")]
    TooManyTables {
        /// The number.
        most: u16,
    },
    /// There are fewer live memory servers than replicas.
    #[error(
        "each object needs {needed} replicas, and the store has {live} live memory servers; start \
         more with `outlive store memory`"
    )]
    TooFewServers {
        /// The number of replicas.
        needed: u16,
        /// The number of live memory servers.
        live: u16,
    },
    /// A memory server has not enough space.
    #[error(
        "table `{name}` needs {needed} bytes at {server}, which has {free}; start larger memory \
         servers, or create the table for fewer keys"
    )]
    NoSpace {
        /// The name.
        name: String,
        /// The server.
        server: ServerId,
        /// The number of bytes that the table needs there.
        needed: u64,
        /// The number of free bytes.
        free: u64,
    },
    /// Another process is creating a table.
    #[error("another process is creating a table; try again when it has finished")]
    Busy,
}

/// Returns the number of bytes of a region that a replica of a partition uses.
pub(super) fn partition_space(geometry: Geometry) -> u64 {
    geometry.partition_bytes().next_multiple_of(64)
}

impl<M: Memory> Configuration<M> {
    fn table_at(self, number: u8) -> Offset {
        self.at + self.sizes.tables_at() + u64::from(number) * EACH_TABLE
    }

    pub(super) fn place_at(self, number: u8, partition: u8, replica: usize) -> Offset {
        let index = u64::from(partition) * MAX_REPLICAS as u64 + replica as u64;
        self.table_at(number) + TABLE_BYTES + index * 8
    }

    pub(super) fn live_servers(self) -> Vec<MemoryEntry> {
        let is_live = |it: &MemoryEntry| it.phase == Phase::Live && !self.is_lost(it.id);
        self.memory_servers().filter(is_live).collect()
    }

    /// Returns the table with this number, if it exists.
    pub fn table(self, number: u8) -> Option<TableEntry> {
        if u16::from(number) >= self.sizes.tables {
            return None;
        }
        let at = self.table_at(number);
        // The state is read first: a published table has its sizes.
        if self.load(at) != 1 {
            return None;
        }
        let (first, second) = (self.load(at + 8), self.load(at + 16));
        let geometry = Geometry {
            value_words: first as u32,
            partitions: (first >> 32) as u8,
            main: second as u32,
            extra: (second >> 32) as u32,
        };
        let length = usize::try_from(self.load(at + 24)).ok()?;
        let words: Vec<u64> = (0..4).map(|word| self.load(at + NAME + word * 8)).collect();
        let name = bytemuck::cast_slice(&words).get(..length)?;
        let name = core::str::from_utf8(name).ok()?.to_owned();
        geometry.is_sound().then_some(TableEntry {
            number,
            name,
            geometry,
        })
    }

    /// Returns the tables.
    pub fn tables(self) -> impl Iterator<Item = TableEntry> {
        (0..self.sizes.tables).filter_map(move |number| self.table(number as u8))
    }

    /// Returns the sizes of a table and the places of its replicas.
    pub fn layout(self, number: u8) -> Option<TableLayout> {
        let geometry = self.table(number)?.geometry;
        let replicas = usize::from(self.replicas());
        let places = |partition| {
            let words = (0..replicas).map(|it| self.load(self.place_at(number, partition, it)));
            let mut places: Vec<_> = words.map(|word| self.place_of(word)).collect();
            places.sort_by_key(|place| place.step);
            places
        };
        Some(TableLayout {
            geometry,
            places: (0..geometry.partitions).map(places).collect(),
        })
    }

    /// Creates a table as `owner`, or returns the number of the table with this name.
    ///
    /// # Errors
    /// [`TableError`]. After [`TableError::Busy`] the caller tries again: if the process that
    /// creates a table dies, its recovery releases the catalogue.
    ///
    /// # Crash
    /// The table exists or does not. A survivor releases the catalogue.
    pub fn create_table(
        self,
        owner: Instance,
        name: &str,
        geometry: Geometry,
    ) -> Result<u8, TableError> {
        let find = || self.tables().find(|it| it.name == name);
        if let Some(table) = find() {
            return self.same_values(table, geometry.value_words);
        }
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(TableError::BadName { name: name.into() });
        }
        if !geometry.is_sound() {
            let (name, bytes) = (name.into(), u64::from(geometry.value_words) * 8);
            let keys = geometry.slots();
            return Err(TableError::BadSize { name, keys, bytes });
        }
        if !self.claim_catalogue(owner) {
            return Err(TableError::Busy);
        }
        self.memory.crash_point(CreateTablePoint::Claimed);
        let created = match find() {
            Some(table) => self.same_values(table, geometry.value_words),
            None => self.place_table(name, geometry),
        };
        self.release_catalogue(owner);
        created
    }

    /// Claims the catalogue for `owner`: the tables, and the space of the regions.
    pub(super) fn claim_catalogue(self, owner: Instance) -> bool {
        let at = self.catalogue_at();
        // AcqRel: this process sees the tables of the earlier owners.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let claimed = { self.memory }.compare_exchange(at, 0, owner.to_word(), order.0, order.1);
        claimed.is_ok()
    }

    fn same_values(self, table: TableEntry, value_words: u32) -> Result<u8, TableError> {
        if table.geometry.value_words == value_words {
            return Ok(table.number);
        }
        Err(TableError::OtherValues {
            name: table.name,
            found: u64::from(table.geometry.value_words) * 8,
            wanted: u64::from(value_words) * 8,
        })
    }

    /// Places a table and publishes it. The caller has claimed the catalogue.
    fn place_table(self, name: &str, geometry: Geometry) -> Result<u8, TableError> {
        let most = self.sizes.tables;
        let number = { 0..most }.find(|number| self.load(self.table_at(*number as u8)) == 0);
        let number = number.ok_or(TableError::TooManyTables { most })? as u8;
        let servers = self.live_servers();
        let (needed, live) = (self.replicas(), servers.len() as u16);
        if live < needed {
            return Err(TableError::TooFewServers { needed, live });
        }
        let mut ends: Vec<u64> = { servers.iter() }.map(|it| self.end_of(it.id)).collect();
        let starts = ends.clone();
        let ids: Vec<ServerId> = servers.iter().map(|it| it.id).collect();
        let bytes = partition_space(geometry);
        let memory = self.memory;
        for partition in 0..geometry.partitions {
            let point = u64::from(number) << 8 | u64::from(partition);
            for (replica, server) in { choose(point, &ids, needed.into()) }.iter().enumerate() {
                let index = ids.iter().position(|id| id == server);
                let index = index.expect("a chosen server is one of the servers");
                let word = place_word(&servers[index], ends[index], 0);
                ends[index] += bytes;
                memory.store(
                    self.place_at(number, partition, replica),
                    word,
                    Ordering::Release,
                );
            }
        }
        for ((server, start), end) in servers.iter().zip(starts).zip(ends) {
            if end > server.region.bytes {
                return Err(TableError::NoSpace {
                    name: name.into(),
                    server: server.id,
                    needed: end - start,
                    free: server.region.bytes.saturating_sub(start),
                });
            }
        }
        let at = self.table_at(number);
        let mut words = [0u64; MAX_NAME / 8];
        bytemuck::cast_slice_mut(&mut words)[..name.len()].copy_from_slice(name.as_bytes());
        let sizes = [
            u64::from(geometry.value_words) | u64::from(geometry.partitions) << 32,
            u64::from(geometry.main) | u64::from(geometry.extra) << 32,
            name.len() as u64,
        ];
        for (word, offset) in sizes.into_iter().chain(words).zip(1..) {
            memory.store(at + offset * 8, word, Ordering::Release);
        }
        memory.crash_point(CreateTablePoint::Placed);
        // Release: a reader of the state sees the table.
        memory.store(at, 1u64, Ordering::Release);
        memory.crash_point(CreateTablePoint::Published);
        let named: Vec<_> = { servers.into_iter() }
            .filter(|it| self.is_named(it.id))
            .collect();
        self.lose_if_gone(&named);
        Ok(number)
    }

    /// Returns whether a table or a log area names the number `server`. It is not assigned again,
    /// because compute servers that have read the places would use the memory of the new server.
    pub(super) fn is_named(self, server: ServerId) -> bool {
        let is_it = |word: u64| named_server(word) == Some(server);
        (0..self.sizes.log_areas).any(|area| self.names_log_server(area, server))
            || self.tables().any(|table| {
                (0..table.geometry.partitions).any(|partition| {
                    (0..usize::from(self.replicas())).any(|replica| {
                        is_it(self.load(self.place_at(table.number, partition, replica)))
                    })
                })
            })
    }

    /// Returns the end of the space of `server`'s region that logs and tables use.
    pub(super) fn end_of(self, server: ServerId) -> u64 {
        let mut end = self.log_bytes();
        for table in self.tables() {
            let bytes = partition_space(table.geometry);
            let places = self
                .layout(table.number)
                .into_iter()
                .flat_map(|it| it.places);
            for place in places.flatten().filter(|place| place.server == server) {
                end = end.max(place.base.get() + bytes);
            }
        }
        end
    }

    pub(super) fn has_catalogue(self, owner: Instance) -> bool {
        self.load(self.catalogue_at()) == owner.to_word()
    }

    /// Returns the number of replicas that the layouts of all tables place on the memory server
    /// with the number `server`.
    pub(super) fn replicas_in(self, server: ServerId) -> u64 {
        let layouts = self.tables().filter_map(|it| self.layout(it.number));
        let places = layouts.flat_map(|it| it.places).flatten();
        places.filter(|it| it.server == server).count() as u64
    }

    /// Returns the servers that tables name, if these have not been replaced under the same number.
    pub(super) fn placed_servers(self) -> Vec<MemoryEntry> {
        let layouts = self.tables().filter_map(|it| self.layout(it.number));
        let places = layouts.flat_map(|it| it.places).flatten();
        let mut servers: Vec<ServerId> = places.map(|place| place.server).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
            .into_iter()
            .filter_map(|it| self.memory_server(it))
            .collect()
    }

    pub(super) fn release_catalogue(self, owner: Instance) {
        let order = (Ordering::Release, Ordering::Relaxed);
        let (at, from) = (self.catalogue_at(), owner.to_word());
        let _ = { self.memory }.compare_exchange(at, from, 0, order.0, order.1);
    }
}
