//! Moves of slices between servers, by a client.

use super::Client;
use crate::coherent::{MoveReason, Pace, Phase, ServerId};
use crate::error::PoolError;
use crate::layout::{Address, Owner};
use core::time::Duration;
use std::time::Instant;

/// The bandwidth that moves may use, and their time-out for writers that keep their guards.
#[derive(Clone, Copy, Debug)]
pub struct MoveBudget {
    /// The largest number of bytes that are copied in a second; `None` is no limit.
    pub bytes_per_second: Option<u64>,
    /// The longest time for which a move waits for a writer.
    pub writer_timeout: Duration,
}

impl Default for MoveBudget {
    /// Returns a budget without a bandwidth limit, and with a time-out of 100 ms for writers.
    fn default() -> Self {
        Self {
            bytes_per_second: None,
            writer_timeout: Duration::from_millis(100),
        }
    }
}

/// The pace of one move.
struct Paced {
    budget: MoveBudget,
    began: Instant,
    copied: u64,
    /// The time at which the mover began to wait for a writer.
    waits_since: Option<Instant>,
}

impl Paced {
    fn new(budget: MoveBudget) -> Self {
        Self {
            budget,
            began: Instant::now(),
            copied: 0,
            waits_since: None,
        }
    }
}

impl Pace for Paced {
    fn copied(&mut self, bytes: u64, is_frozen: bool) {
        self.copied += bytes;
        self.waits_since = None;
        // Writers wait for the copies of a frozen slice.
        if let Some(rate) = self.budget.bytes_per_second.filter(|_| !is_frozen) {
            let due = Duration::from_secs_f64(self.copied as f64 / rate.max(1) as f64);
            std::thread::sleep(due.saturating_sub(self.began.elapsed()));
        }
    }

    fn waits(&mut self) -> bool {
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        // A writer may need the processor.
        std::thread::yield_now();
        since.elapsed() < self.budget.writer_timeout
    }
}

/// The result of [`Client::drain`].
#[derive(Debug, Default)]
pub struct Drained {
    /// The number of slices that were moved.
    pub moved: u64,
    /// The slices that remain on the server, each with the reason.
    pub remaining: Vec<(Address, PoolError)>,
}

impl Client {
    /// Moves the slice of `address` to the server `to`, while readers and writers of all processes
    /// use it. The address stays the same. Returns `false` if the slice is there already.
    ///
    /// A reader with a guard from before the move keeps the old frame, and its next
    /// [confirmation](crate::Guard::confirm) fails with [`Moved`](PoolError::Moved). A later
    /// [`collect`](Self::collect), allocation or free releases the old frame when all such guards
    /// have ended.
    ///
    /// A writer waits at most until the mover has copied the chunks (each a 64th of the slice) that
    /// were written since its previous pass.
    ///
    /// A lost replica is rebuilt on `to` from a live one. The address of a slice with replicas
    /// names the first replica; [`slices`](Self::slices) also returns those of the others.
    ///
    /// # Errors
    /// If the slice is not allocated, belongs to a leased object, is lost, is being moved, or is
    /// still written; or the server is not live, has no free frame, or has another replica of the
    /// slice. The slice stays where it is.
    ///
    /// # Crash
    /// The slice was moved, or stays where it is; a survivor releases the other frame. If a server
    /// dies, the slice is lost only if its map word names that server.
    pub fn move_slice(
        &self,
        address: Address,
        to: ServerId,
        budget: MoveBudget,
    ) -> Result<bool, PoolError> {
        self.move_because(address, (to, MoveReason::Requested), budget)
    }

    fn move_because(
        &self,
        address: Address,
        to: (ServerId, MoveReason),
        budget: MoveBudget,
    ) -> Result<bool, PoolError> {
        let (pool, own) = (self.pool(), self.instance());
        let moved = {
            let _mapped = pool.inner.here.hold();
            let mut pace = Paced::new(budget);
            { pool.coherent() }.move_slice(own, address, to, pool, &mut pace)
        };
        let mut held = self.joined.entries.lock();
        let result = match moved {
            Ok(None) => Ok(false),
            Ok(Some(unfinished)) => {
                held.moves.push(unfinished);
                Ok(true)
            }
            Err(failed) => {
                held.moves.extend(failed.unfinished);
                Err(*failed.error)
            }
        };
        self.joined.collect(&mut held);
        result
    }

    /// Returns the servers that have the slices of the `bytes` bytes at `address`, in order; `None`
    /// for a slice that is freed or lost.
    pub fn servers_of(&self, address: Address, bytes: u64) -> Vec<Option<ServerId>> {
        let coherent = self.pool().coherent();
        let slice = coherent.sizes().slice_bytes();
        let start = address.position() & (slice - 1);
        let slices = (start + bytes).div_ceil(slice).max(1);
        (0..slices)
            .map(|number| coherent.server_at(address.plus(number * slice)))
            .collect()
    }

    /// Returns the addresses of all slices that can be moved: those that are accessible, and not of
    /// leased objects. Reads every slice.
    pub fn slices(&self) -> Vec<Address> {
        let coherent = self.pool().coherent();
        let all = (0..coherent.sizes().slices).filter_map(|slice| coherent.movable(slice));
        all.collect()
    }

    /// Moves the slices of `server` to the other live servers, those with the most free memory
    /// first. New allocations on the server are not prevented.
    ///
    /// # Errors
    /// If the server is not live. Slices that could not be moved are in the result.
    ///
    /// # Crash
    /// As [`move_slice`](Self::move_slice).
    pub fn drain(&self, server: ServerId, budget: MoveBudget) -> Result<Drained, PoolError> {
        self.drain_from(server, 0, budget)
    }

    /// As [`drain`](Self::drain), for the frames from `first` on.
    pub(super) fn drain_from(
        &self,
        server: ServerId,
        first: u64,
        budget: MoveBudget,
    ) -> Result<Drained, PoolError> {
        let pool = self.pool();
        let coherent = pool.coherent();
        let entry = match coherent.server(server) {
            // A server that leaves drains itself.
            Some(entry) if entry.phase == Phase::Leaving => entry,
            _ => pool.live(server)?,
        };
        let mut drained = Drained::default();
        let mut targets = self.pool().targets();
        targets.retain(|target| target.0 != server);
        for slice in 0..coherent.sizes().slices {
            let word = coherent.map_word(slice);
            let is_here = word.segment() == server.0
                && word.server_generation() == entry.generation
                && u64::from(word.index()) >= first;
            if !is_here || !word.has_access() || coherent.owner(slice) == Owner::Free {
                continue;
            }
            let address = coherent.address_of(slice, word);
            match self.move_away(address, MoveReason::Requested, &mut targets, budget) {
                Ok(moved) => drained.moved += u64::from(moved),
                // Freed meanwhile.
                Err(PoolError::Freed { .. }) => {}
                Err(error) => drained.remaining.push((address, error)),
            }
        }
        Ok(drained)
    }

    /// Moves a slice to one of `targets`, that with the most free frames first.
    pub(super) fn move_away(
        &self,
        address: Address,
        why: MoveReason,
        targets: &mut [Target],
        budget: MoveBudget,
    ) -> Result<bool, PoolError> {
        targets.sort_by_key(|(_, free)| core::cmp::Reverse(*free));
        let mut result = Err(PoolError::OutOfMemory {
            slice_bytes: self.pool().coherent().sizes().slice_bytes(),
            servers: targets.len(),
        });
        for (target, free) in targets.iter_mut().filter(|(_, free)| *free > 0) {
            result = self.move_because(address, (*target, why), budget);
            match &result {
                Ok(moved) => *free -= u64::from(*moved),
                // Another client has taken its last frame, or it has died.
                Err(PoolError::OutOfMemory { .. } | PoolError::NotLive { .. }) => *free = 0,
                Err(PoolError::HasReplica { .. } | PoolError::Damaged { .. }) => {}
                Err(_) => break,
            }
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

/// A server to which slices can be moved, and the number of its free frames.
pub(super) type Target = (ServerId, u64);

impl super::Pool {
    /// Returns the live servers with the numbers of their free frames. Reads their fine maps.
    pub(super) fn targets(&self) -> Vec<Target> {
        use crate::coherent::Homes;
        let _held = self.inner.here.hold();
        let live = { self.coherent().servers() }.filter(|it| it.phase == Phase::Live);
        let free = live.filter_map(|it| {
            let home = self.home(it.id.0, it.generation).ok().flatten()?;
            Some((it.id, home.shared().saturating_sub(home.used())))
        });
        free.collect()
    }
}
