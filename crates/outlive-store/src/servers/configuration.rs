//! The configuration of a store in shared memory: its layout, and the operations on its entries.
//!
//! ```text
//! 0x0000  magic, format, sizes, protocol, poison, owner of the catalogue, results of recoveries,
//!         owner of the restoration
//! 0x0080  totals of events in transactions, two lines of their own
//! 0x0100  owner of the stop
//! 0x0140  changes, 8 bytes each, 4 for each memory server: lost memory servers, and steps of
//!         restorations
//!         memory servers of 64 bytes: owner, state, region bytes, region key
//!         the owner of each process id, 8 bytes each, and whether it has failed
//!         log areas of 128 bytes: owner, process id, 8 log servers, last user
//!         for each log area, the epochs of its commits: 64 bytes for each coordinator
//!         tables: see the catalogue
//! ```
//!
//! A memory server's entry passes through the states below. Only the entry's owner, the instance
//! that the owner word names, changes the other words of the entry. The owner word is 0 if the
//! entry has no owner. If the owner dies in *creating* or *leaving*, a survivor frees the entry.
//!
//! ```text
//! free --claim--> free, owned --> creating --> live --> leaving --> free
//!                                                 \--> dying --> dead     (by a survivor)
//! ```

use super::entries::{MemoryEntry, Phase, Recovery};
use super::sizes::{
    BACK, CATALOGUE, CHANGES, COORDINATORS, ENTRY_BYTES, EVENTS, FORWARD, LOG_AREAS, LOG_SLOT,
    MEMORY_SERVERS, POISONS, PROCESS_IDS, PROTOCOL, RECOVERIES, REPLICAS, Sizes, TABLES,
};
use crate::protocol::{Counts, LogArea, Protocol, Recovered};
use crate::verbs::{Liveness, Region, ServerId};
use outlive::membership::Instance;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// Crash points of a memory server that joins or leaves.
    pub enum JoinPoint for "store.memory.join" {
        /// The entry has an owner.
        Claimed,
        /// The entry says that the segment is being created.
        Creating,
        /// The segment exists; the entry has its size and key.
        Described,
        /// The server is live.
        Live,
        /// The server is not live any more; its segment exists.
        Leaving,
        /// The segment is removed.
        Removed,
        /// The entry is free again, and still has its owner.
        Freed,
    }
}

outlive::memory::crash_points! {
    /// Crash points of the recovery of a dead memory server's entry.
    pub enum RecoverPoint for "store.memory.recover" {
        /// The survivor owns the entry.
        Claimed,
        /// The server is not live any more, so no batch completes with success.
        Dying,
        /// The region is poisoned; reached only if the store poisons.
        Poisoned,
        /// The death is visible in the entry.
        Dead,
        /// The loss is in the list.
        Announced,
        /// The segment is removed, and the survivor still owns the entry.
        Removed,
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"outstore");
const FORMAT: u64 = 10;

const STATE: u64 = 8;
const BYTES: u64 = 16;
const KEY: u64 = 24;

/// The reason why a configuration cannot be opened: it is damaged, or is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tables of the pod are not the configuration of a store: {why}")]
pub struct BadConfiguration {
    /// The reason, as text.
    pub why: String,
}

/// The operations of the configuration on the segments of memory servers.
pub trait Segments {
    /// Removes the segment of `server`'s `incarnation`, if it exists.
    fn remove(&self, server: ServerId, incarnation: u64);

    /// Overwrites the region of that segment with poison, if it exists.
    fn poison(&self, server: ServerId, incarnation: u64, region: Region);

    /// [Recovers the logs](crate::protocol::recover_logs) of the dead compute server with this
    /// process id. Returns `None` if that failed.
    fn recover_logs(&self, process: u16, area: &LogArea) -> Option<Recovered>;
}

/// The configuration of a store.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<M: Memory = Native> {
    pub(super) memory: M,
    pub(super) at: Offset,
    pub(super) sizes: Sizes,
}

/// Returns the state word of `phase` and `incarnation`.
const fn state_word(phase: Phase, incarnation: u64) -> u64 {
    incarnation << 8 | phase as u64
}

impl<M: Memory> Configuration<M> {
    /// The largest number of memory servers.
    pub const MAX_MEMORY_SERVERS: u16 = super::sizes::MAX_MEMORY_SERVERS;
    /// The largest number of process ids. Id 0 is never assigned: it means a free latch.
    pub const MAX_PROCESS_IDS: u16 = u16::MAX;

    /// Writes the configuration of a new store at `at` in zeroed `memory`. With `poisons`, the
    /// memory of dead memory servers is overwritten with a pattern.
    pub fn create(memory: M, at: Offset, sizes: Sizes, poisons: bool) -> Self {
        let relaxed = Ordering::Relaxed;
        for (offset, size) in [
            (REPLICAS, sizes.replicas.into()),
            (MEMORY_SERVERS, sizes.memory_servers.into()),
            (PROCESS_IDS, sizes.process_ids.into()),
            (POISONS, poisons.into()),
            (TABLES, sizes.tables.into()),
            (LOG_AREAS, sizes.log_areas.into()),
            (COORDINATORS, sizes.coordinators.into()),
            (LOG_SLOT, sizes.log_slot_bytes),
            (PROTOCOL, sizes.protocol as u64),
            (8, FORMAT),
        ] {
            memory.store::<u64>(at + offset, size, relaxed);
        }
        // Release: the magic number publishes the rest.
        memory.store(at, MAGIC, Ordering::Release);
        Self { memory, at, sizes }
    }

    /// Opens the configuration in the `bytes` bytes at `at`.
    ///
    /// # Errors
    /// If there is no configuration of this format, or it is damaged.
    pub fn open(memory: M, at: Offset, bytes: u64) -> Result<Self, BadConfiguration> {
        let bad = |why: String| Err(BadConfiguration { why });
        if bytes < CHANGES {
            return bad(format!("it has {bytes} bytes, and {CHANGES} are needed"));
        }
        let word = |offset| memory.load::<u64>(at + offset, Ordering::Acquire);
        match (word(0), word(8)) {
            (MAGIC, FORMAT) => {}
            (MAGIC, format) => {
                return bad(format!(
                    "its format is {format}, and this program knows {FORMAT}"
                ));
            }
            (magic, _) => return bad(format!("it begins with {magic:#x}")),
        }
        let size = |offset| u16::try_from(word(offset)).unwrap_or(u16::MAX);
        let Some(protocol) = Protocol::from_number(word(PROTOCOL)) else {
            return bad(format!("its protocol has the number {}", word(PROTOCOL)));
        };
        let sizes = Sizes {
            replicas: size(REPLICAS),
            memory_servers: size(MEMORY_SERVERS),
            process_ids: size(PROCESS_IDS),
            tables: size(TABLES),
            log_areas: size(LOG_AREAS),
            coordinators: size(COORDINATORS),
            log_slot_bytes: word(LOG_SLOT),
            protocol,
        };
        if let Some((what, size, least, most)) = sizes.out_of_range() {
            return bad(format!(
                "it has {size} {what}; the range is {least} to {most}"
            ));
        }
        if sizes.bytes() > bytes {
            return bad(format!("{sizes:?} do not fit into its {bytes} bytes"));
        }
        Ok(Self { memory, at, sizes })
    }

    /// Returns the numbers and sizes that the store was created with.
    pub fn sizes(self) -> Sizes {
        self.sizes
    }

    /// Returns the number of replicas of each object, f + 1.
    pub fn replicas(self) -> u16 {
        self.sizes.replicas
    }

    /// Returns the number of process ids, which are 1 to this number.
    pub fn process_ids(self) -> u16 {
        self.sizes.process_ids
    }

    /// Returns the numbers of transactions that all recoveries have rolled forward and back. The
    /// other fields are 0. A recovery that is re-executed may count twice.
    pub fn recovered(self) -> Recovered {
        Recovered {
            forward: self.load(self.at + FORWARD),
            back: self.load(self.at + BACK),
            ..Recovered::default()
        }
    }

    pub(super) fn count_recovery(self, recovered: Recovered) {
        let (memory, order) = (self.memory, Ordering::Relaxed);
        memory.fetch_add(self.at + FORWARD, recovered.forward, order);
        memory.fetch_add(self.at + BACK, recovered.back, order);
    }

    /// Adds numbers of events in transactions to the totals.
    ///
    /// All compute servers write to one cache line, so a worker counts separately, and adds many
    /// events at once. A worker that dies during this call has added some kinds of events, and not
    /// the other kinds.
    pub fn count(self, events: Counts) {
        for (index, number) in events.to_words().into_iter().enumerate() {
            if number > 0 {
                // Relaxed: no other word depends on a total.
                let at = self.at + EVENTS + index as u64 * 8;
                self.memory.fetch_add(at, number, Ordering::Relaxed);
            }
        }
    }

    /// Returns the totals of events in transactions. They lack the events that the workers have not
    /// added yet.
    pub fn counts(self) -> Counts {
        let at = |index: usize| self.at + EVENTS + index as u64 * 8;
        Counts::from_words(core::array::from_fn(|index| self.load(at(index))))
    }

    /// Returns the number of recoveries of compute servers that have begun.
    #[inline]
    pub fn recoveries(self) -> u64 {
        self.load(self.at + RECOVERIES)
    }

    pub(super) fn begin_recovery(self) {
        // AcqRel: a server that finds the number finds the survivor in the log area.
        self.memory
            .fetch_add(self.at + RECOVERIES, 1u64, Ordering::AcqRel);
    }

    pub(super) fn catalogue_at(self) -> Offset {
        self.at + CATALOGUE
    }

    fn entry_at(self, id: ServerId) -> Offset {
        assert!(
            id.0 < self.sizes.memory_servers,
            "the store has at most {} memory servers, so there is no {id}",
            self.sizes.memory_servers
        );
        self.at + self.sizes.servers_at() + u64::from(id.0) * ENTRY_BYTES
    }

    pub(super) fn load(self, at: Offset) -> u64 {
        self.memory.load(at, Ordering::Acquire)
    }

    fn set_state(self, entry: &MemoryEntry, phase: Phase) -> MemoryEntry {
        let at = self.entry_at(entry.id) + STATE;
        let word = state_word(phase, entry.incarnation);
        self.memory.store(at, word, Ordering::Release);
        MemoryEntry { phase, ..*entry }
    }

    /// Returns whether the memory of dead memory servers is poisoned.
    pub fn poisons(self) -> bool {
        self.load(self.at + POISONS) != 0
    }

    /// Returns the entry of memory server `id`; `None` if it is damaged, or no server can have the
    /// number.
    pub fn memory_server(self, id: ServerId) -> Option<MemoryEntry> {
        if id.0 >= self.sizes.memory_servers {
            return None;
        }
        let at = self.entry_at(id);
        // The state is loaded first: an entry that is seen live has its region.
        let state = self.load(at + STATE);
        Some(MemoryEntry {
            id,
            incarnation: state >> 8,
            phase: Phase::of(state as u8)?,
            owner: Instance::from_word(self.load(at)),
            region: Region {
                bytes: self.load(at + BYTES),
                key: self.load(at + KEY),
            },
        })
    }

    /// Returns all numbers of memory servers.
    pub fn server_ids(self) -> impl Iterator<Item = ServerId> {
        (0..self.sizes.memory_servers).map(ServerId)
    }

    /// Returns the memory servers that exist or have died.
    pub fn memory_servers(self) -> impl Iterator<Item = MemoryEntry> {
        self.server_ids()
            .filter_map(move |id| self.memory_server(id))
            .filter(|entry| entry.phase != Phase::Free || entry.owner.is_some())
    }

    /// Returns the word that determines whether the memory of `entry` can be used.
    pub fn liveness(self, entry: &MemoryEntry) -> Liveness<M> {
        Liveness {
            memory: self.memory,
            at: self.entry_at(entry.id) + STATE,
            live: state_word(Phase::Live, entry.incarnation),
        }
    }

    /// Adds a memory server of the process `owner`. `create` creates its segment and returns the
    /// region. Returns `None` if no entry is free.
    ///
    /// # Errors
    /// Returns the errors of `create`. The entry is free again.
    ///
    /// # Crash
    /// If the server is live, a survivor declares it dead. Otherwise a survivor removes the segment
    /// and frees the entry.
    pub fn join_memory<E>(
        self,
        owner: Instance,
        segments: &impl Segments,
        create: impl FnOnce(ServerId, u64) -> Result<Region, E>,
    ) -> Result<Option<MemoryEntry>, E> {
        let memory = self.memory;
        let Some(entry) = self.server_ids().find_map(|id| self.claim_free(id, owner)) else {
            return Ok(None);
        };
        memory.crash_point(JoinPoint::Claimed);
        let entry = MemoryEntry {
            incarnation: entry.incarnation + 1,
            ..entry
        };
        let entry = self.set_state(&entry, Phase::Creating);
        memory.crash_point(JoinPoint::Creating);
        // A table or a log area may name the previous incarnation since the claim. A compute server
        // that reads the incarnation after this fence finds that the place does not exist.
        memory.fence(Ordering::SeqCst);
        if self.is_named(entry.id) || self.is_lost(entry.id) {
            self.leave_memory(&entry, segments);
            return self.join_memory(owner, segments, create);
        }
        let region = match create(entry.id, entry.incarnation) {
            Ok(region) => region,
            Err(error) => {
                self.leave_memory(&entry, segments);
                return Err(error);
            }
        };
        let at = self.entry_at(entry.id);
        memory.store(at + BYTES, region.bytes, Ordering::Release);
        memory.store(at + KEY, region.key, Ordering::Release);
        memory.crash_point(JoinPoint::Described);
        let entry = self.set_state(&MemoryEntry { region, ..entry }, Phase::Live);
        memory.crash_point(JoinPoint::Live);
        Ok(Some(entry))
    }

    /// Claims the entry `id` for `owner`, if it is free.
    fn claim_free(self, id: ServerId, owner: Instance) -> Option<MemoryEntry> {
        let is_free = |entry: &MemoryEntry| entry.phase == Phase::Free;
        let entry = self.memory_server(id).filter(is_free)?;
        // The number of a lost server is not assigned again: it is in the list for good.
        let is_in_use = || self.is_named(id) || self.is_lost(id);
        if entry.owner.is_some() || is_in_use() {
            return None;
        }
        let at = self.entry_at(id);
        // AcqRel: this instance sees the stores of the entry's previous owner.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let claim = { self.memory }.compare_exchange(at, 0, owner.to_word(), order.0, order.1);
        claim.ok()?;
        // Read again: after the first read, another server may have joined and died.
        let entry = self.memory_server(id).filter(is_free);
        let entry = entry.filter(|_| !is_in_use());
        if entry.is_none() {
            self.disown(id, owner);
        }
        entry
    }

    /// Ends the liveness of the server `entry`, which the caller owns, removes its segment and
    /// frees the entry. Batches that have not completed by then complete with
    /// [`ServerDied`](crate::verbs::VerbError::ServerDied).
    ///
    /// # Crash
    /// A survivor completes the call, or declares the server dead if it is still live.
    pub fn leave_memory(self, entry: &MemoryEntry, segments: &impl Segments) {
        // If the owner is another instance, that is a survivor, which owns the entry now.
        let owner = self.memory_server(entry.id).and_then(|now| now.owner);
        let Some(owner) = owner.filter(|_| owner == entry.owner) else {
            return;
        };
        let entry = self.set_state(entry, Phase::Leaving);
        self.memory.crash_point(JoinPoint::Leaving);
        self.lose_if_named(entry.id);
        segments.remove(entry.id, entry.incarnation);
        self.memory.crash_point(JoinPoint::Removed);
        let entry = self.set_state(&entry, Phase::Free);
        self.memory.crash_point(JoinPoint::Freed);
        self.disown(entry.id, owner);
    }

    fn disown(self, id: ServerId, owner: Instance) {
        // Release: the next owner sees the stores of this one. A compare-and-swap, so that a
        // survivor that has claimed the entry keeps it.
        let order = (Ordering::Release, Ordering::Relaxed);
        let (at, from) = (self.entry_at(id), owner.to_word());
        let _ = { self.memory }.compare_exchange(at, from, 0, order.0, order.1);
    }

    /// Recovers the entries of the dead instance `dead` as `survivor`: see the
    /// [module](crate::servers).
    ///
    /// Any number of survivors may call this concurrently; exactly one of them claims the entry of
    /// each memory server.
    ///
    /// # Crash
    /// The member that recovers `survivor` continues.
    pub fn recover(self, survivor: Instance, dead: Instance, segments: &impl Segments) -> Recovery {
        let ids = self.server_ids();
        let declared = ids.filter(|id| self.recover_memory(*id, survivor, dead, segments));
        let declared = declared.count();
        let is_complete = self.recover_catalogue(survivor, dead, segments);
        for id in 1..=self.process_ids() {
            // If logs remain, another survivor may be recovering them.
            if self.load(self.owner_at(id)) == dead.to_word() && self.log_area_of(id).is_none() {
                self.fail(id, dead);
            }
        }
        Recovery {
            dead: declared,
            is_complete,
        }
    }

    fn recover_memory(
        self,
        id: ServerId,
        survivor: Instance,
        dead: Instance,
        segments: &impl Segments,
    ) -> bool {
        let (memory, at) = (self.memory, self.entry_at(id));
        let (from, to) = (dead.to_word(), survivor.to_word());
        if self.memory_server(id).is_none() && self.load(at) == from {
            tracing::error!(%id, "the damaged entry of a dead memory server is not recovered");
            return false;
        }
        // AcqRel: this survivor sees the stores of `dead`. A later survivor sees those of this one.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if memory
            .compare_exchange(at, from, to, order.0, order.1)
            .is_err()
        {
            return false;
        }
        memory.crash_point(RecoverPoint::Claimed);
        // Read again: only an owner changes the entry, so it is as sound as before.
        let Some(mut entry) = self.memory_server(id) else {
            return false;
        };
        let was_live = matches!(entry.phase, Phase::Live | Phase::Dying);
        match entry.phase {
            Phase::Live | Phase::Dying => {
                entry = self.set_state(&entry, Phase::Dying);
                memory.crash_point(RecoverPoint::Dying);
                if self.poisons() {
                    segments.poison(id, entry.incarnation, entry.region);
                    memory.crash_point(RecoverPoint::Poisoned);
                }
                entry = self.set_state(&entry, Phase::Dead);
                memory.crash_point(RecoverPoint::Dead);
                self.lose(id);
                memory.crash_point(RecoverPoint::Announced);
                segments.remove(id, entry.incarnation);
            }
            // An earlier survivor may have died before it recorded the loss.
            Phase::Dead => {
                self.lose(id);
                memory.crash_point(RecoverPoint::Announced);
                segments.remove(id, entry.incarnation);
            }
            Phase::Creating | Phase::Leaving => {
                self.lose_if_named(id);
                segments.remove(id, entry.incarnation);
                self.set_state(&entry, Phase::Free);
            }
            Phase::Free => {}
        }
        memory.crash_point(RecoverPoint::Removed);
        self.disown(id, survivor);
        was_live
    }

    /// Recovers, as `survivor`, the entries of all owners for which `is_settled` holds: departed
    /// instances with recovered logs. (While a log is being recovered, its recoverer recovers the
    /// entries.)
    ///
    /// # Crash
    /// The outcome is that of a crash in [`recover`](Self::recover).
    pub fn recover_settled(
        self,
        survivor: Instance,
        is_settled: impl Fn(Instance) -> bool,
        segments: &impl Segments,
    ) {
        let servers = self.memory_servers().filter_map(|entry| entry.owner);
        let compute = self.compute_servers().filter(|entry| !entry.has_failed);
        let owners = servers.chain(compute.map(|entry| entry.owner));
        let owners = owners.chain(self.log_owners()).chain(self.claimants());
        let mut settled: Vec<_> = owners.filter(|owner| is_settled(*owner)).collect();
        settled.sort_by_key(|owner| (owner.id, owner.generation));
        settled.dedup();
        for owner in settled {
            // A later member recovers the remaining entries.
            let _ = self.recover(survivor, owner, segments);
        }
    }
}
