//! Freeing: the slices become inaccessible, readers end, the frames and the slices are released.
//!
//! 1. The owner word of a kept allocation: from kept to the owner. A survivor then completes it.
//! 2. The map word of the first slice loses its access by a compare-and-swap; exactly one call does
//!    that. Then those of the others.
//! 3. A full fence, and a scan of the announcements and of the mover words. If a reader uses a
//!    slice, or a mover moves one, the run is kept for a later call. A reader or a mover that has
//!    not announced or claimed a slice by now finds it inaccessible.
//! 4. For each slice its frame, then its map word; then the owner words of the other slices from
//!    the last to the second, and that of the first.

use super::{Coherent, Homes};
use crate::error::PoolError;
use crate::layout::{Address, MapWord, Owner};
use core::ops::Range;
use outlive::membership::Instance;
use outlive::memory::{Memory, Ordering};

outlive::memory::crash_points! {
    /// Crash points of a call that frees.
    pub enum FreePoint for "pool.free" {
        /// The caller owns the allocation.
        Owned,
        /// No slice can be accessed any more.
        Hidden,
        /// A slice has released its frame, and its map word still names it.
        Released,
        /// No slice has a frame, and all have their owners.
        Unmapped,
        /// All slices but the first are free.
        Disowned,
    }
}

/// The slices of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first slice.
    pub first: u64,
    /// The number of slices.
    pub slices: u64,
}

impl Run {
    /// The numbers of all its slices.
    pub fn slices(self) -> Range<u64> {
        self.first..self.first + self.slices
    }

    pub(super) fn others(self) -> Range<u64> {
        self.first + 1..self.first + self.slices
    }
}

impl<M: Memory> Coherent<M> {
    /// Returns the first slice of the allocation at `address`, and its map word.
    pub(super) fn first_slice(self, address: Address) -> Result<(u64, MapWord), PoolError> {
        let bits = self.sizes.slice_bits;
        let slice = address.position() >> bits;
        if slice >= self.sizes.slices {
            return Err(PoolError::Freed { address });
        }
        let word = self.map_word(slice);
        if !word.has_access() || word.generation() != address.generation() {
            return Err(PoolError::Freed { address });
        }
        let is_first = address.position() == slice << bits;
        if !is_first || matches!(self.owner(slice), Owner::PartOf(_)) {
            return Err(PoolError::NotTheFirst { address });
        }
        Ok((slice, word))
    }

    pub(super) fn not_owned(self, slice: u64, address: Address) -> PoolError {
        match self.owner(slice) {
            Owner::Instance(owner) => PoolError::OfAnother { address, owner },
            Owner::Object(_) => PoolError::OfObject { address },
            _ => PoolError::Freed { address },
        }
    }

    /// Makes the allocation at `address` inaccessible, which `owner` owns or which was kept.
    /// [`release_unless_used`](Self::release_unless_used) follows. Threads of one process do not
    /// call this, [`keep`](Self::keep) and [`allocate`](Self::allocate) concurrently.
    ///
    /// # Errors
    /// If the address was freed, is not the first one, or belongs to another process.
    ///
    /// # Crash
    /// A survivor frees the allocation, or nothing has changed.
    pub fn begin_free(self, owner: Instance, address: Address) -> Result<Run, PoolError> {
        if address.is_of_object() {
            return Err(PoolError::OfObject { address });
        }
        self.begin_free_of(owner, address, Owner::Kept(address.generation()))
    }

    /// As [`begin_free`](Self::begin_free), for an allocation that `owner` or `keeper` has.
    pub(super) fn begin_free_of(
        self,
        owner: Instance,
        address: Address,
        keeper: Owner,
    ) -> Result<Run, PoolError> {
        let (slice, word) = self.first_slice(address)?;
        let own = Owner::Instance(owner);
        // The generation in the keeper's word is that of the address, so a later allocation at the
        // same slice is not taken.
        if self.owner(slice) != own && !self.change_owner(slice, keeper, own) {
            return Err(self.not_owned(slice, address));
        }
        self.memory.crash_point(FreePoint::Owned);
        if !self.hide_slice(slice, word.generation()) {
            return Err(PoolError::Freed { address });
        }
        let run = self.run_at(slice);
        self.hide(run);
        self.memory.crash_point(FreePoint::Hidden);
        Ok(run)
    }

    /// Makes a slice of this generation inaccessible. Returns `false` if it already was, or has
    /// another generation.
    fn hide_slice(self, slice: u64, generation: u16) -> bool {
        let (at, order) = (self.map_at(slice), (Ordering::AcqRel, Ordering::Acquire));
        let mut word = self.map_word(slice);
        // The compare-and-swap fails only if a mover has changed the map word, so the loop repeats
        // at most once for each step of a mover.
        while word.has_access() && word.generation() == generation {
            let to = word.without_access();
            match { self.memory }.compare_exchange(at, word.0, to.0, order.0, order.1) {
                Ok(_) => return true,
                Err(found) => word = MapWord(found),
            }
        }
        false
    }

    /// Makes the slices of `run` inaccessible.
    pub(super) fn hide(self, run: Run) {
        for slice in run.slices() {
            self.hide_slice(slice, self.map_word(slice).generation());
        }
    }

    /// Releases the inaccessible slices of `run`, which `owner` owns, unless a reader or a mover
    /// uses one. Returns the process of that reader or mover.
    ///
    /// # Errors
    /// If a live server cannot be reached. The slices stay the owner's.
    ///
    /// # Crash
    /// A survivor completes the call.
    pub fn release_unless_used(
        self,
        owner: Instance,
        run: Run,
        homes: &impl Homes<M>,
    ) -> Result<Option<Instance>, PoolError> {
        // SeqCst: a reader whose announcement the scan does not find reads the map word after its
        // own fence, and so finds the slice inaccessible. The same holds of a mover.
        self.memory.fence(Ordering::SeqCst);
        let user = self.user_of(run.first, run.slices);
        if let Some(user) = user.or_else(|| self.mover_of(run)) {
            return Ok(Some(user));
        }
        self.release(owner, run, homes)?;
        Ok(None)
    }

    /// Releases the slices of `run`, which no reader uses.
    pub(super) fn release(
        self,
        owner: Instance,
        run: Run,
        homes: &impl Homes<M>,
    ) -> Result<(), PoolError> {
        for slice in run.slices() {
            let word = self.map_word(slice);
            if word.segment() != 0 {
                // The frames of a dead server are gone with it.
                if let Some(home) = homes.home(word.segment(), word.server_generation())? {
                    home.release(word.index().into(), slice);
                }
                self.memory.crash_point(FreePoint::Released);
                self.set_map_word(slice, MapWord::unmapped(word.generation()));
            }
        }
        self.memory.crash_point(FreePoint::Unmapped);
        self.disown_run(owner, run);
        Ok(())
    }

    /// Frees the owner words of `run`: that of the first slice last, because the others name it.
    pub(super) fn disown_run(self, owner: Instance, run: Run) {
        for slice in run.others().rev() {
            self.change_owner(slice, Owner::PartOf(run.first), Owner::Free);
        }
        self.memory.crash_point(FreePoint::Disowned);
        self.change_owner(run.first, Owner::Instance(owner), Owner::Free);
    }
}
