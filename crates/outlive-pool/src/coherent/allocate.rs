//! Allocation: slices are claimed by their owner words, then frames on servers.
//!
//! 1. The owner word of the first slice: from free to the owner. The words of the others: from free
//!    to "part of the first". From then on these slices belong to the owner, and a survivor finds
//!    them by its instance.
//! 2. The [generation](super::generation) of the allocation, in map words without a frame.
//!    If the allocation has replicas, then its [shape](super::replicas), in holder words.
//! 3. For each slice: the map word without access, which names a frame; then the claim of the frame
//!    by a compare-and-swap of its fine word. A survivor that finds a map word releases the frame
//!    if the slice has it.
//! 4. When all slices have frames: the map words with access. So an allocation that fails has had
//!    no reader, and releases its frames at once.

use super::{Coherent, Home, Homes, Phase, Run, ServerEntry, ServerId};
use crate::error::PoolError;
use crate::layout::{Address, MapWord, Owner, Shape, Use};
use outlive::membership::Instance;
use outlive::memory::{Memory, Ordering};

outlive::memory::crash_points! {
    /// Crash points of an allocation.
    pub enum AllocatePoint for "pool.allocate" {
        /// The first slice has an owner.
        Claimed,
        /// All slices have.
        AllClaimed,
        /// The map word of a slice names a frame that is not claimed.
        Pending,
        /// The slice has the frame.
        Framed,
        /// The slice can be accessed.
        Mapped,
    }
}

/// The servers that an allocation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One server.
    At(ServerId),
    /// All, slice by slice in turn.
    Spread,
    /// All; one server after the other is filled.
    Any,
}

/// The failure of an allocation.
#[derive(Debug)]
pub struct NotAllocated {
    /// The reason.
    pub error: Box<PoolError>,
    /// The slices that the caller still owns, without access, because a server with frames for them
    /// could not be reached. They are released later.
    pub remaining: Option<Run>,
}

impl From<PoolError> for NotAllocated {
    fn from(error: PoolError) -> Self {
        Self {
            error: Box::new(error),
            remaining: None,
        }
    }
}

/// The servers that may have a slice.
struct Choice<'s> {
    servers: &'s [ServerEntry],
    /// The index in `servers` of the first server to try, modulo the number of servers.
    turn: u64,
    /// The numbers of servers that have another replica of the slice.
    taken: Vec<u16>,
}

impl<M: Memory> Coherent<M> {
    /// Allocates `slices` slices and their replicas in one run for the process `owner`. They are
    /// zero unless `kind` is [`Use::Overwritten`]. Waits for no other process. Obstruction-free:
    /// clients that claim neighbouring slices at one time may repeat their claims.
    ///
    /// # Errors
    /// If there are not enough addresses, frames or servers, or the server is not live. Nothing is
    /// allocated then. A server that cannot be reached is an error if no other one has a frame.
    ///
    /// # Crash
    /// A survivor that [recovers](Self::recover) `owner` frees everything, unless the allocation
    /// was [kept](Self::keep).
    pub fn allocate(
        self,
        owner: Instance,
        slices: u64,
        place: Place,
        kind: Use,
        homes: &impl Homes<M>,
    ) -> Result<Address, NotAllocated> {
        let live = { self.servers() }.filter(|it| it.phase == Phase::Live);
        let live: Vec<_> = live.collect();
        let at: Vec<_> = { live.iter().copied() }
            .filter(|it| place == Place::At(it.id))
            .collect();
        if let (Place::At(server), true) = (place, at.is_empty()) {
            let phase = self.server(server).map_or(Phase::Free, |it| it.phase);
            return Err(PoolError::NotLive { server, phase }.into());
        }
        let (replicas, servers) = (kind.replicas(), live.len());
        if replicas > servers as u64 && replicas > 1 {
            return Err(PoolError::TooFewServers { replicas, servers }.into());
        }
        let run = self.claim_run(owner, slices.saturating_mul(replicas))?;
        let Some(generation) = self.choose_generation(run, kind) else {
            self.disown_run(owner, run);
            return Err(PoolError::OutOfAddresses { slices: run.slices }.into());
        };
        if replicas > 1 {
            self.set_shape(run.first, Shape { slices, replicas });
        }
        for slice in run.slices() {
            let replica = (slice - run.first) / slices;
            let servers = match place {
                Place::At(_) if replica == 0 => &at[..],
                _ => &live[..],
            };
            // Replicas of one slice are on different servers.
            let before = (0..replica).map(|it| self.map_word(slice - (replica - it) * slices));
            let choice = Choice {
                servers,
                turn: match place {
                    Place::Any => 0,
                    Place::At(_) => (slice - run.first) % slices,
                    Place::Spread => run.first + (slice - run.first) % slices + replica,
                },
                taken: before.map(MapWord::segment).collect(),
            };
            if let Err(error) = self.map_slice(slice, (generation, kind), &choice, homes) {
                // No slice had access, so none has a reader.
                let released = self.release(owner, run, homes);
                let remaining = released.is_err().then_some(run);
                let error = Box::new(error);
                return Err(NotAllocated { error, remaining });
            }
        }
        for slice in run.slices() {
            self.set_map_word(slice, self.map_word(slice).with_access());
            self.memory.crash_point(AllocatePoint::Mapped);
        }
        Ok(Address::new(generation, run.first << self.sizes.slice_bits))
    }

    fn claim_run(self, owner: Instance, slices: u64) -> Result<Run, PoolError> {
        let most = self.sizes.slices;
        if slices == 0 || slices > most {
            return Err(PoolError::OutOfAddresses { slices });
        }
        let next = self.at + super::NEXT;
        // Relaxed: a hint.
        let turn: u64 = self.memory.fetch_add(next, slices, Ordering::Relaxed);
        let (mut first, mut seen) = (turn % most, 0);
        while seen < most + slices {
            if first + slices > most {
                seen += most - first;
                first = 0;
            }
            let last = { first..first + slices }
                .rev()
                .find(|slice| self.owner_word(*slice) != 0);
            let free_from = last.map_or(first, |slice| slice + 1);
            if free_from > first {
                seen += free_from - first;
                first = free_from % most;
                continue;
            }
            let run = Run { first, slices };
            if self.try_claim(owner, run) {
                return Ok(run);
            }
            // Another client has claimed one of them.
            self.memory.spin_hint();
        }
        Err(PoolError::OutOfAddresses { slices })
    }

    fn try_claim(self, owner: Instance, run: Run) -> bool {
        if !self.change_owner(run.first, Owner::Free, Owner::Instance(owner)) {
            return false;
        }
        self.memory.crash_point(AllocatePoint::Claimed);
        let part = Owner::PartOf(run.first);
        for slice in run.others() {
            if !self.change_owner(slice, Owner::Free, part) {
                let claimed = Run {
                    slices: slice - run.first,
                    ..run
                };
                self.disown_run(owner, claimed);
                return false;
            }
        }
        self.memory.crash_point(AllocatePoint::AllClaimed);
        true
    }

    /// Gives `slice` a frame of the first server of the choice that has one.
    fn map_slice(
        self,
        slice: u64,
        (generation, kind): (u16, Use),
        choice: &Choice<'_>,
        homes: &impl Homes<M>,
    ) -> Result<(), PoolError> {
        let servers = choice.servers;
        let start = (choice.turn % servers.len().max(1) as u64) as usize;
        let (before, from) = servers.split_at(start.min(servers.len()));
        let mut error = PoolError::OutOfMemory {
            slice_bytes: self.sizes.slice_bytes(),
            servers: servers.len() - choice.taken.len().min(servers.len()),
        };
        let is_taken = |server: &&ServerEntry| choice.taken.contains(&server.id.0);
        for server in from.iter().chain(before).filter(|it| !is_taken(it)) {
            match homes.home(server.id.0, server.generation) {
                Ok(Some(home)) if self.map_on(slice, (generation, kind), server, home) => {
                    return Ok(());
                }
                Ok(_) => {}
                // Another server may have a frame.
                Err(unreachable) => error = unreachable,
            }
        }
        Err(error)
    }

    fn map_on(
        self,
        slice: u64,
        (generation, kind): (u16, Use),
        server: &ServerEntry,
        home: Home<M>,
    ) -> bool {
        let note = |word| {
            self.set_map_word(slice, word);
            self.memory.crash_point(AllocatePoint::Pending);
        };
        let Some((word, frame)) = self.claim_frame(slice, generation, server, home, note) else {
            // The word may name a frame of another slice.
            self.set_map_word(slice, MapWord::unmapped(generation));
            return false;
        };
        self.memory.crash_point(AllocatePoint::Framed);
        // Read after the boundary: a frame that was private since the claim is dirty.
        if kind != Use::Overwritten && home.is_dirty(word.index().into()) {
            home.clear(frame);
        }
        true
    }

    /// Claims a frame of `server` for `slice`. Before each claim `note` records the word that names
    /// the frame: a survivor finds the frame by that record only. Returns the word and the frame.
    pub(super) fn claim_frame(
        self,
        slice: u64,
        generation: u16,
        server: &ServerEntry,
        home: Home<M>,
        note: impl Fn(MapWord),
    ) -> Option<(MapWord, u64)> {
        let mut from = 0;
        while let Some(index) = home.free_index(from) {
            let (number, of_server) = (server.id.0, server.generation);
            let word = MapWord::pending(number, of_server, generation, index as u32);
            note(word);
            if let Some(frame) = home.claim(index, slice) {
                // SeqCst: see `leave_server` and `move_boundary`.
                self.memory.fence(Ordering::SeqCst);
                if self.is_live(server.id, server.generation) && index < home.shared() {
                    return Some((word, frame));
                }
                home.release(index, slice);
                return None;
            }
            from = index + 1;
        }
        None
    }

    /// Makes the allocation at `address` independent of its owner: it exists until it is freed. One
    /// compare-and-swap. Wait-free.
    ///
    /// # Errors
    /// If the process `owner` does not own an allocation that begins there.
    pub fn keep(self, owner: Instance, address: Address) -> Result<(), PoolError> {
        let (slice, _) = self.first_slice(address)?;
        if address.is_of_object() {
            return Err(PoolError::OfObject { address });
        }
        let generation = address.generation();
        match self.change_owner(slice, Owner::Instance(owner), Owner::Kept(generation)) {
            true => Ok(()),
            false => Err(self.not_owned(slice, address)),
        }
    }
}
