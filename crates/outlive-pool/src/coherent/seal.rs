//! The memory of leased objects: it belongs to the process that creates the object until the object
//! is sealed, and to the object from then on.
//!
//! An object is a named object of the pod's heap, whose contents have the address of the memory.
//! The first slice has a *holder* word beside its owner word; the holder word leads back to these
//! contents. So the memory of an object that does not exist any more is found without a list of the
//! objects.
//!
//! 1. The owner writes the holder word. No other process reads it before the seal.
//! 2. The owner changes the owner word from itself to the object, by a compare-and-swap. This seals
//!    the object.
//!
//! The memory of a destroyed object is freed like a kept allocation: exactly one member changes the
//! owner word to its own.

use super::{Coherent, Run, ServerId};
use crate::error::PoolError;
use crate::layout::{Address, Owner};
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};

outlive::memory::crash_points! {
    /// Crash points of the sealing of an object.
    pub enum SealPoint for "pool.seal" {
        /// The holder word leads to the object, which is not sealed.
        Held,
        /// The object is sealed.
        Sealed,
    }
}

impl<M: Memory> Coherent<M> {
    /// Gives the allocation at `address`, which `owner` owns, to the object with its contents at
    /// `holder`. One compare-and-swap. Wait-free.
    ///
    /// # Errors
    /// If `owner` does not own an allocation that begins there.
    ///
    /// # Crash
    /// The object has the memory, or a survivor frees it.
    pub fn seal(self, owner: Instance, address: Address, holder: Offset) -> Result<(), PoolError> {
        let (slice, _) = self.first_slice(address)?;
        if self.owner(slice) != Owner::Instance(owner) {
            return Err(self.not_owned(slice, address));
        }
        // Relaxed: the compare-and-swap below publishes it.
        let at = self.holder_at(slice);
        self.memory.store(at, holder.raw(), Ordering::Relaxed);
        self.memory.crash_point(SealPoint::Held);
        let to = Owner::Object(address.generation());
        match self.change_owner(slice, Owner::Instance(owner), to) {
            true => {
                self.memory.crash_point(SealPoint::Sealed);
                Ok(())
            }
            false => Err(self.not_owned(slice, address)),
        }
    }

    /// Returns whether the memory at `address` is that of a sealed object. Acquire: a thread
    /// that sees the seal also sees the bytes.
    pub fn is_sealed(self, address: Address) -> bool {
        let slice = address.position() >> self.sizes.slice_bits;
        slice < self.sizes.slices && self.owner(slice) == Owner::Object(address.generation())
    }

    /// Returns the addresses of the memory of sealed objects, each with the place of the contents
    /// of its object.
    pub fn sealed(self) -> impl Iterator<Item = (Address, Offset)> {
        (0..self.sizes.slices).filter_map(move |slice| {
            let Owner::Object(generation) = self.owner(slice) else {
                return None;
            };
            // Relaxed: written before the owner word, which was loaded by Acquire.
            let holder: u64 = self.memory.load(self.holder_at(slice), Ordering::Relaxed);
            let address = Address::new(generation, slice << self.sizes.slice_bits);
            Some((address, Offset::from_raw(holder)))
        })
    }

    /// Returns the number of slices that objects have, sealed or not. Reads every slice.
    pub(crate) fn slices_of_objects(self) -> u64 {
        let is_of_object = |slice: &u64| {
            // The words of the other slices have their generation when they have frames.
            let first = match self.owner(*slice) {
                Owner::Free => return false,
                Owner::PartOf(first) if first < self.sizes.slices => first,
                _ => *slice,
            };
            Address::new(self.map_word(first).generation(), 0).is_of_object()
        };
        (0..self.sizes.slices).filter(is_of_object).count() as u64
    }

    /// Returns the number of slices of the `bytes` bytes at `address` that have memory on `server`,
    /// or on any live server.
    pub(crate) fn slices_on(self, address: Address, bytes: u64, server: Option<ServerId>) -> u64 {
        let first = address.position() >> self.sizes.slice_bits;
        let slices = bytes.max(1).div_ceil(self.sizes.slice_bytes());
        let end = first.saturating_add(slices).min(self.sizes.slices);
        let has_memory = |slice: &u64| {
            let word = self.map_word(*slice);
            let of = ServerId(word.segment());
            server.is_none_or(|it| it == of) && self.has_memory(of, word.server_generation())
        };
        (first..end).filter(has_memory).count() as u64
    }

    /// Makes the memory at `address` inaccessible. `owner` owns it, or a destroyed object has it;
    /// the caller ensures this. [`release_unless_used`](Self::release_unless_used) follows. Threads
    /// of one process do not call this and other operations on its allocations concurrently.
    ///
    /// # Errors
    /// If the memory was freed, also by another member at the same time.
    ///
    /// # Crash
    /// A survivor frees the memory, or nothing has changed.
    pub fn begin_free_object(self, owner: Instance, address: Address) -> Result<Run, PoolError> {
        self.begin_free_of(owner, address, Owner::Object(address.generation()))
    }
}
