//! The entries of servers.
//!
//! ```text
//! free --claim--> free, owned --> creating --> live --> leaving --> free
//!                                                 \--> dead    (also by a survivor)
//! ```
//!
//! Only the entry's owner changes the entry. A dead entry is claimed again when no word of the
//! coarse map names its segment, and then has the next generation.

use super::{Coherent, Home};
use crate::error::PoolError;
use crate::layout::{ENTRY_BYTES, MapWord};
use core::fmt;
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};

outlive::memory::crash_points! {
    /// Crash points of a server that joins or leaves.
    pub enum ServerPoint for "pool.server" {
        /// The entry has an owner.
        Claimed,
        /// The entry says that the segment is being created.
        Creating,
        /// The segment exists, and the server is not live yet.
        Created,
        /// The server is live.
        Live,
        /// The server is not live any more.
        Leaving,
        /// Its segment is removed.
        Removed,
        /// The entry is free, and still has its owner.
        Freed,
    }
}

/// The number of a server, which is that of its segment: 1 to 4095.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u16);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}", self.0)
    }
}

/// The state of a server's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// No server has this number.
    Free = 0,
    /// The segment is being created.
    Creating = 1,
    /// The server can be used.
    Live = 2,
    /// The server is not live any more, and its segment is being removed.
    Leaving = 3,
    /// The server has died or ended, and its memory is lost.
    Dead = 4,
}

impl Phase {
    fn of(code: u8) -> Option<Self> {
        let all = [
            Self::Free,
            Self::Creating,
            Self::Live,
            Self::Leaving,
            Self::Dead,
        ];
        all.into_iter().find(|phase| *phase as u8 == code)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "not in use",
            Self::Creating => "creating",
            Self::Live => "live",
            Self::Leaving => "leaving",
            Self::Dead => "dead",
        })
    }
}

/// A server as its entry describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerEntry {
    /// The server's number.
    pub id: ServerId,
    /// The generation of the number, from 1.
    pub generation: u64,
    /// The state of the entry.
    pub phase: Phase,
    /// The process that is the server, or a survivor that recovers the entry.
    pub owner: Option<Instance>,
    /// The number of bytes of the server's region; meaningless before the server is live.
    pub bytes: u64,
    /// A part of the uuid of its segment.
    pub key: u64,
}

/// The files of the servers' segments.
pub trait ServerFiles {
    /// Removes the segment of `server`, if it exists. Processes that have it mapped keep it.
    fn remove(&self, server: ServerId, generation: u64);
}

const STATE: u64 = 8;
const BYTES: u64 = 16;
const KEY: u64 = 24;

const fn state_word(phase: Phase, generation: u64) -> u64 {
    generation << 8 | phase as u64
}

impl<M: Memory> Coherent<M> {
    pub(super) fn entry_at(self, id: ServerId) -> Offset {
        debug_assert!((1..=self.sizes.servers).contains(&id.0));
        self.at + self.sizes.servers_at() + u64::from(id.0 - 1) * ENTRY_BYTES
    }

    fn word(self, at: Offset) -> u64 {
        self.memory.load(at, Ordering::Acquire)
    }

    /// Returns the entry of `id`; `None` if it is damaged, or no server can have the number.
    pub fn server(self, id: ServerId) -> Option<ServerEntry> {
        if !(1..=self.sizes.servers).contains(&id.0) {
            return None;
        }
        let at = self.entry_at(id);
        // The state is loaded first: an entry that is seen live has its region.
        let state = self.word(at + STATE);
        Some(ServerEntry {
            id,
            generation: state >> 8,
            phase: Phase::of(state as u8)?,
            owner: Instance::from_word(self.word(at)),
            bytes: self.word(at + BYTES),
            key: self.word(at + KEY),
        })
    }

    /// Returns the servers that exist or have died.
    pub fn servers(self) -> impl Iterator<Item = ServerEntry> {
        let all = (1..=self.sizes.servers).filter_map(move |id| self.server(ServerId(id)));
        all.filter(|entry| entry.phase != Phase::Free || entry.owner.is_some())
    }

    /// Returns whether this generation of the server is live.
    #[inline]
    pub fn is_live(self, id: ServerId, generation: u64) -> bool {
        (1..=self.sizes.servers).contains(&id.0)
            && self.word(self.entry_at(id) + STATE) == state_word(Phase::Live, generation)
    }

    /// Returns whether this generation of the server has its memory: it is live, or tries to leave,
    /// which fails while it has slices.
    #[inline]
    pub fn has_memory(self, id: ServerId, generation: u64) -> bool {
        if !(1..=self.sizes.servers).contains(&id.0) {
            return false;
        }
        // Loaded once: between two loads a server that tries to leave may have become live again.
        let state = self.word(self.entry_at(id) + STATE);
        let is = |phase| state == state_word(phase, generation);
        is(Phase::Live) || is(Phase::Leaving)
    }

    fn set_phase(self, entry: &ServerEntry, phase: Phase) -> ServerEntry {
        let (at, word) = (
            self.entry_at(entry.id) + STATE,
            state_word(phase, entry.generation),
        );
        // Release: a reader that sees the state sees the region that it describes.
        self.memory.store(at, word, Ordering::Release);
        ServerEntry { phase, ..*entry }
    }

    fn disown(self, id: ServerId, owner: Instance) {
        // Release: the next owner sees the stores of this one. A compare-and-swap, because a
        // survivor that has claimed the entry keeps it.
        let order = (Ordering::Release, Ordering::Relaxed);
        let (at, from) = (self.entry_at(id), owner.to_word());
        let _ = { self.memory }.compare_exchange(at, from, 0, order.0, order.1);
    }

    /// Returns whether a word of the coarse map names the segment.
    fn is_named(self, id: ServerId) -> bool {
        (0..self.sizes.slices).any(|slice| self.map_word(slice).segment() == id.0)
    }

    fn claim_entry(self, owner: Instance) -> Option<ServerEntry> {
        let can_join = |entry: &ServerEntry| {
            let has_generation = entry.generation < MapWord::LAST_SERVER_GENERATION;
            let is_over = match entry.phase {
                Phase::Free => true,
                Phase::Dead => !self.is_named(entry.id),
                _ => false,
            };
            entry.owner.is_none() && has_generation && is_over
        };
        (1..=self.sizes.servers).find_map(|id| {
            let id = ServerId(id);
            self.server(id).filter(can_join)?;
            let (at, order) = (self.entry_at(id), (Ordering::AcqRel, Ordering::Relaxed));
            // AcqRel: this instance sees the stores of the entry's previous owner.
            { self.memory }
                .compare_exchange(at, 0, owner.to_word(), order.0, order.1)
                .ok()?;
            // Read again: after the first read, another server may have joined and died.
            let entry = self.server(id).map(|entry| ServerEntry {
                owner: None,
                ..entry
            });
            let entry = entry.filter(can_join);
            if entry.is_none() {
                self.disown(id, owner);
            }
            entry
        })
    }

    /// Adds a server of the process `owner`. `create` creates its segment with an initialised
    /// region, and returns the number of bytes of that and the key.
    ///
    /// # Errors
    /// Those of `create`, and [`PoolError::TooManyServers`]. The entry is free again.
    ///
    /// # Crash
    /// A survivor removes the segment, and declares the server dead.
    pub fn join_server(
        self,
        owner: Instance,
        files: &impl ServerFiles,
        create: impl FnOnce(ServerId, u64) -> Result<(u64, u64), PoolError>,
    ) -> Result<ServerEntry, PoolError> {
        let memory = self.memory;
        let entry = self.claim_entry(owner).ok_or(PoolError::TooManyServers {
            most: self.sizes.servers,
        })?;
        memory.crash_point(ServerPoint::Claimed);
        let entry = ServerEntry {
            generation: entry.generation + 1,
            owner: Some(owner),
            ..entry
        };
        let entry = self.set_phase(&entry, Phase::Creating);
        memory.crash_point(ServerPoint::Creating);
        let (bytes, key) = match create(entry.id, entry.generation) {
            Ok(created) => created,
            Err(error) => {
                self.remove_entry(&entry, owner, files);
                return Err(error);
            }
        };
        self.forget_request(entry.id);
        let at = self.entry_at(entry.id);
        // Release: a survivor that recovers the entry sees them before the state.
        memory.store(at + BYTES, bytes, Ordering::Release);
        memory.store(at + KEY, key, Ordering::Release);
        memory.crash_point(ServerPoint::Created);
        let entry = self.set_phase(
            &ServerEntry {
                bytes,
                key,
                ..entry
            },
            Phase::Live,
        );
        memory.crash_point(ServerPoint::Live);
        Ok(entry)
    }

    fn remove_entry(self, entry: &ServerEntry, owner: Instance, files: &impl ServerFiles) {
        files.remove(entry.id, entry.generation);
        self.memory.crash_point(ServerPoint::Removed);
        self.set_phase(entry, Phase::Free);
        self.memory.crash_point(ServerPoint::Freed);
        self.disown(entry.id, owner);
    }

    /// Removes the server `entry` of the process `owner`, whose region is `home`.
    ///
    /// # Errors
    /// If it still has slices; then it stays live.
    ///
    /// # Crash
    /// A survivor declares the server dead.
    pub fn leave_server(
        self,
        entry: &ServerEntry,
        owner: Instance,
        home: Home<M>,
        files: &impl ServerFiles,
    ) -> Result<(), PoolError> {
        self.begin_to_leave(entry);
        let left = self.try_to_leave(entry, owner, home, files);
        if left.is_err() {
            self.stay(entry);
        }
        left
    }

    /// Refuses new slices on the server `entry` from now on.
    pub(crate) fn begin_to_leave(self, entry: &ServerEntry) {
        self.set_phase(entry, Phase::Leaving);
        self.memory.crash_point(ServerPoint::Leaving);
    }

    /// Accepts new slices on the server `entry` again.
    pub(crate) fn stay(self, entry: &ServerEntry) {
        self.set_phase(entry, Phase::Live);
    }

    /// Removes the server `entry`, which refuses new slices.
    ///
    /// # Errors
    /// If it still has slices.
    pub(crate) fn try_to_leave(
        self,
        entry: &ServerEntry,
        owner: Instance,
        home: Home<M>,
        files: &impl ServerFiles,
    ) -> Result<(), PoolError> {
        // SeqCst: either this scan finds the frame of a client, or the client finds that the server
        // is not live, and releases the frame.
        self.memory.fence(Ordering::SeqCst);
        let slices = home.used();
        if slices > 0 {
            let server = entry.id;
            return Err(PoolError::StillHeld { server, slices });
        }
        self.remove_entry(entry, owner, files);
        Ok(())
    }

    /// Declares the server dead, which `owner` owns: its memory is lost.
    ///
    /// # Crash
    /// A survivor does the same.
    pub fn lose_server(self, entry: &ServerEntry, owner: Instance, files: &impl ServerFiles) {
        self.set_phase(entry, Phase::Dead);
        self.memory.crash_point(ServerPoint::Leaving);
        files.remove(entry.id, entry.generation);
        self.memory.crash_point(ServerPoint::Removed);
        self.disown(entry.id, owner);
    }

    /// Recovers the entries of the dead instance `gone` as `survivor`. Returns the number of
    /// servers that were declared dead.
    pub(super) fn recover_servers(
        self,
        survivor: Instance,
        gone: Instance,
        files: &impl ServerFiles,
    ) -> usize {
        let mut lost = 0;
        for id in (1..=self.sizes.servers).map(ServerId) {
            let at = self.entry_at(id);
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let (from, to) = (gone.to_word(), survivor.to_word());
            // AcqRel: the survivor sees the stores of `gone`. Exactly one survivor claims it.
            if self.word(at) != from || { self.memory }
                .compare_exchange(at, from, to, order.0, order.1)
                .is_err()
            {
                continue;
            }
            match self.server(id) {
                Some(entry) if entry.phase != Phase::Free => {
                    lost += usize::from(entry.phase == Phase::Live);
                    self.lose_server(&entry, survivor, files);
                }
                Some(_) => self.disown(id, survivor),
                None => tracing::error!(%id, "the damaged entry of a dead server remains"),
            }
        }
        lost
    }
}
