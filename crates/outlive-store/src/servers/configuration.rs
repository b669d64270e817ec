//! The configuration of a store in shared memory: its layout, and the operations on its entries.
//!
//! ```text
//! 0x0000  magic, format, replicas, process ids, poison, epoch
//! 0x0040  64 memory servers of 64 bytes: owner, state, region bytes, region key
//! 0x1040  the failed process ids, 1 bit each
//! 0x3040  the owner of each process id, 8 bytes each
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

use crate::verbs::{Liveness, Region, ServerId};
use core::fmt;
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
        /// The epoch has been raised.
        Announced,
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
        /// The epoch has been raised.
        Announced,
        /// The segment is removed, and the survivor still owns the entry.
        Removed,
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"outstore");
const FORMAT: u64 = 1;

const REPLICAS: u64 = 0x10;
const PROCESS_IDS: u64 = 0x18;
const POISONS: u64 = 0x20;
const EPOCH: u64 = 0x28;
const SERVERS: u64 = 0x40;
const ENTRY_BYTES: u64 = 64;
const FAILED: u64 = SERVERS + Configuration::<Native>::MAX_MEMORY_SERVERS as u64 * ENTRY_BYTES;
const OWNERS: u64 = FAILED + (1 << 16) / 8;

const STATE: u64 = 8;
const BYTES: u64 = 16;
const KEY: u64 = 24;

/// The state of a memory server's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// No server has this number. If the entry has an owner, a server is joining or leaving, or a
    /// survivor is recovering the entry.
    Free = 0,
    /// The segment is being created.
    Creating = 1,
    /// The server can be used.
    Live = 2,
    /// The server is not live any more, and its segment is being removed.
    Leaving = 3,
    /// The server has died, and a survivor is recovering its entry.
    Dying = 4,
    /// The server has died.
    Dead = 5,
}

impl Phase {
    fn of(code: u8) -> Option<Self> {
        let all = [
            Self::Free,
            Self::Creating,
            Self::Live,
            Self::Leaving,
            Self::Dying,
            Self::Dead,
        ];
        all.into_iter().find(|phase| *phase as u8 == code)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "free",
            Self::Creating => "creating",
            Self::Live => "live",
            Self::Leaving => "leaving",
            Self::Dying => "dying",
            Self::Dead => "dead",
        })
    }
}

/// The error of opening a configuration that is damaged, or is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payload of the pod is not the configuration of a store: {why}")]
pub struct BadConfiguration {
    /// The reason.
    pub why: String,
}

/// The operations of the configuration on the segments of memory servers.
pub trait Segments {
    /// Removes the segment of `server`'s `incarnation`, if it exists.
    fn remove(&self, server: ServerId, incarnation: u64);

    /// Overwrites the region of that segment with poison, if it exists.
    fn poison(&self, server: ServerId, incarnation: u64, region: Region);
}

/// A memory server as the configuration describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEntry {
    /// The server's number.
    pub id: ServerId,
    /// The number of servers that have had this number, including this one.
    pub incarnation: u64,
    /// The state of the entry.
    pub phase: Phase,
    /// The process that is the server, or a survivor that recovers the entry.
    pub owner: Option<Instance>,
    /// The server's region; meaningless before the server is live.
    pub region: Region,
}

/// A compute server as the configuration describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeEntry {
    /// The process id.
    pub id: u16,
    /// The process that has the id, or had it when it failed.
    pub owner: Instance,
    /// Whether it has failed.
    pub has_failed: bool,
}

/// The configuration of a store.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<M: Memory = Native> {
    memory: M,
    at: Offset,
    replicas: u16,
    process_ids: u16,
}

/// Returns the state word of `phase` and `incarnation`.
const fn state_word(phase: Phase, incarnation: u64) -> u64 {
    incarnation << 8 | phase as u64
}

impl<M: Memory> Configuration<M> {
    /// The largest number of memory servers.
    pub const MAX_MEMORY_SERVERS: u16 = 64;
    /// The largest number of process ids. Id 0 is never assigned: it means a free latch.
    pub const MAX_PROCESS_IDS: u16 = u16::MAX;

    /// Returns the number of bytes for `process_ids` process ids.
    pub const fn bytes(process_ids: u16) -> u64 {
        OWNERS + (process_ids as u64 + 1) * 8
    }

    /// Writes the configuration of a new store at `at` in zeroed `memory`.
    pub fn create(memory: M, at: Offset, replicas: u16, process_ids: u16, poisons: bool) -> Self {
        let relaxed = Ordering::Relaxed;
        memory.store(at + REPLICAS, u64::from(replicas), relaxed);
        memory.store(at + PROCESS_IDS, u64::from(process_ids), relaxed);
        memory.store(at + POISONS, u64::from(poisons), relaxed);
        memory.store(at + 8, FORMAT, relaxed);
        // Release: the magic number publishes the rest.
        memory.store(at, MAGIC, Ordering::Release);
        Self {
            memory,
            at,
            replicas,
            process_ids,
        }
    }

    /// Opens the configuration in the `bytes` bytes at `at`.
    ///
    /// # Errors
    /// If there is no configuration of this format, or it is damaged.
    pub fn open(memory: M, at: Offset, bytes: u64) -> Result<Self, BadConfiguration> {
        let bad = |why: String| Err(BadConfiguration { why });
        if bytes < Self::bytes(0) {
            return bad(format!(
                "it has {bytes} bytes, and {} are needed",
                Self::bytes(0)
            ));
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
        let process_ids = word(PROCESS_IDS);
        let Some(ids) = u16::try_from(process_ids)
            .ok()
            .filter(|ids| *ids > 0 && Self::bytes(*ids) <= bytes)
        else {
            return bad(format!(
                "{process_ids} process ids do not fit into its {bytes} bytes"
            ));
        };
        let replicas = word(REPLICAS);
        if !(1..=u64::from(Self::MAX_MEMORY_SERVERS)).contains(&replicas) {
            return bad(format!("{replicas} replicas are out of range"));
        }
        Ok(Self {
            memory,
            at,
            replicas: replicas as u16,
            process_ids: ids,
        })
    }

    /// The number of replicas of each object, f + 1.
    pub fn replicas(self) -> u16 {
        self.replicas
    }

    /// The number of process ids, which are 1 to this number.
    pub fn process_ids(self) -> u16 {
        self.process_ids
    }

    /// The epoch, which rises after each change of the set of memory servers.
    pub fn epoch(self) -> u64 {
        self.memory.load(self.at + EPOCH, Ordering::Acquire)
    }

    fn raise_epoch(self) {
        // AcqRel: a reader of the new epoch sees the change. A recovery that is re-executed raises
        // the epoch again. That is harmless: a reader then checks for changes in vain.
        self.memory
            .fetch_add(self.at + EPOCH, 1u64, Ordering::AcqRel);
    }

    fn entry_at(self, id: ServerId) -> Offset {
        assert!(
            id.0 < Self::MAX_MEMORY_SERVERS,
            "a store has at most {} memory servers, so there is no {id}",
            Self::MAX_MEMORY_SERVERS
        );
        self.at + SERVERS + u64::from(id.0) * ENTRY_BYTES
    }

    fn load(self, at: Offset) -> u64 {
        self.memory.load(at, Ordering::Acquire)
    }

    fn set_state(self, entry: &MemoryEntry, phase: Phase) -> MemoryEntry {
        let at = self.entry_at(entry.id) + STATE;
        let word = state_word(phase, entry.incarnation);
        self.memory.store(at, word, Ordering::Release);
        MemoryEntry { phase, ..*entry }
    }

    /// Whether the memory of dead memory servers is poisoned.
    pub fn poisons(self) -> bool {
        self.load(self.at + POISONS) != 0
    }

    /// The entry of memory server `id`; `None` if it is damaged, or no server can have the number.
    pub fn memory_server(self, id: ServerId) -> Option<MemoryEntry> {
        if id.0 >= Self::MAX_MEMORY_SERVERS {
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

    /// All numbers of memory servers.
    pub fn server_ids() -> impl Iterator<Item = ServerId> {
        (0..Self::MAX_MEMORY_SERVERS).map(ServerId)
    }

    /// The memory servers that exist or have died.
    pub fn memory_servers(self) -> impl Iterator<Item = MemoryEntry> {
        Self::server_ids()
            .filter_map(move |id| self.memory_server(id))
            .filter(|entry| entry.phase != Phase::Free || entry.owner.is_some())
    }

    /// The word that determines whether the memory of `entry` can be used.
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
    /// Those of `create`. The entry is free again.
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
        let Some(entry) = Self::server_ids().find_map(|id| self.claim_free(id, owner)) else {
            return Ok(None);
        };
        memory.crash_point(JoinPoint::Claimed);
        let entry = MemoryEntry {
            incarnation: entry.incarnation + 1,
            ..entry
        };
        let entry = self.set_state(&entry, Phase::Creating);
        memory.crash_point(JoinPoint::Creating);
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
        self.raise_epoch();
        memory.crash_point(JoinPoint::Announced);
        Ok(Some(entry))
    }

    /// Claims the entry `id` for `owner`, if it is free.
    fn claim_free(self, id: ServerId, owner: Instance) -> Option<MemoryEntry> {
        let is_free = |entry: &MemoryEntry| entry.phase == Phase::Free;
        let entry = self.memory_server(id).filter(is_free)?;
        if entry.owner.is_some() {
            return None;
        }
        let at = self.entry_at(id);
        // AcqRel: this instance sees the stores of the entry's previous owner.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let claim = { self.memory }.compare_exchange(at, 0, owner.to_word(), order.0, order.1);
        claim.ok()?;
        // Read again: after the first read, another server may have joined and died.
        let entry = self.memory_server(id).filter(is_free);
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
        segments.remove(entry.id, entry.incarnation);
        self.memory.crash_point(JoinPoint::Removed);
        let entry = self.set_state(&entry, Phase::Free);
        self.raise_epoch();
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

    /// Recovers the entries of the dead instance `gone` as `survivor`: see the
    /// [module](crate::servers). Returns the number of memory servers that it declared dead.
    ///
    /// Any number of survivors may call this concurrently; exactly one of them claims the entry of
    /// each memory server.
    ///
    /// # Crash
    /// The member that recovers `survivor` continues.
    pub fn recover(self, survivor: Instance, gone: Instance, segments: &impl Segments) -> usize {
        let ids = Self::server_ids();
        let dead = ids.filter(|id| self.recover_memory(*id, survivor, gone, segments));
        let dead = dead.count();
        for id in 1..=self.process_ids {
            if self.load(self.owner_at(id)) == gone.to_word() {
                self.fail(id);
            }
        }
        dead
    }

    fn recover_memory(
        self,
        id: ServerId,
        survivor: Instance,
        gone: Instance,
        segments: &impl Segments,
    ) -> bool {
        let (memory, at) = (self.memory, self.entry_at(id));
        let (from, to) = (gone.to_word(), survivor.to_word());
        if self.memory_server(id).is_none() && self.load(at) == from {
            tracing::error!(%id, "the damaged entry of a dead memory server is not recovered");
            return false;
        }
        // AcqRel: this survivor sees the stores of `gone`, and a later one those of this survivor.
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
                self.raise_epoch();
                memory.crash_point(RecoverPoint::Announced);
                segments.remove(id, entry.incarnation);
            }
            // An earlier survivor may have died before it raised the epoch.
            Phase::Dead => {
                self.raise_epoch();
                memory.crash_point(RecoverPoint::Announced);
                segments.remove(id, entry.incarnation);
            }
            Phase::Creating | Phase::Leaving => {
                segments.remove(id, entry.incarnation);
                self.set_state(&entry, Phase::Free);
                self.raise_epoch();
            }
            Phase::Free => self.raise_epoch(),
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
    /// As [`recover`](Self::recover).
    pub fn recover_settled(
        self,
        survivor: Instance,
        is_settled: impl Fn(Instance) -> bool,
        segments: &impl Segments,
    ) {
        let servers = self.memory_servers().filter_map(|entry| entry.owner);
        let compute = self.compute_servers().filter(|entry| !entry.has_failed);
        let owners = servers.chain(compute.map(|entry| entry.owner));
        let mut settled: Vec<_> = owners.filter(|owner| is_settled(*owner)).collect();
        settled.sort_by_key(|owner| (owner.id, owner.generation));
        settled.dedup();
        for owner in settled {
            self.recover(survivor, owner, segments);
        }
    }

    fn owner_at(self, id: u16) -> Offset {
        self.at + OWNERS + u64::from(id) * 8
    }

    /// Assigns a process id to `owner`: the lowest that has no owner and has not failed. Returns
    /// `None` if all are in use or have failed.
    ///
    /// # Crash
    /// No id is assigned, or a survivor marks the assigned id as failed.
    pub fn join_compute(self, owner: Instance) -> Option<u16> {
        (1..=self.process_ids).find(|id| {
            let at = self.owner_at(*id);
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let claim = || {
                let memory = self.memory;
                memory.compare_exchange(at, 0, owner.to_word(), order.0, order.1)
            };
            self.load(at) == 0 && !self.has_failed(*id) && claim().is_ok()
        })
    }

    /// Frees the process id `id` of `owner`, if `owner` has it. No latch may contain the id.
    pub fn leave_compute(self, id: u16, owner: Instance) {
        let order = (Ordering::Release, Ordering::Relaxed);
        let (at, from) = (self.owner_at(id), owner.to_word());
        let _ = { self.memory }.compare_exchange(at, from, 0, order.0, order.1);
    }

    /// Marks `id` as failed. The owner is dead.
    fn fail(self, id: u16) {
        let at = self.at + FAILED + u64::from(id) / 64 * 8;
        // AcqRel: a server that finds the bit set sees the earlier stores of the recovery.
        self.memory
            .fetch_or(at, 1u64 << (id % 64), Ordering::AcqRel);
    }

    /// Returns whether the process id `id` has failed, so that its latches may be stolen.
    pub fn has_failed(self, id: u16) -> bool {
        self.load(self.at + FAILED + u64::from(id) / 64 * 8) >> (id % 64) & 1 != 0
    }

    /// The compute servers that have a process id, or had one when they failed.
    pub fn compute_servers(self) -> impl Iterator<Item = ComputeEntry> {
        (1..=self.process_ids).filter_map(move |id| {
            Some(ComputeEntry {
                id,
                owner: Instance::from_word(self.load(self.owner_at(id)))?,
                has_failed: self.has_failed(id),
            })
        })
    }
}
