//! The translation of a logical address under a guard.

use super::readers::Access;
use super::{Coherent, Homes, Line, ServerId};
use crate::error::PoolError;
use crate::layout::{Address, MapWord};
use outlive::memory::{Memory, Native, Offset, Ordering};

/// A slice that a reader has announced.
#[derive(Clone, Copy, Debug)]
pub struct Translated<M: Memory = Native> {
    /// The memory that has the slice.
    pub memory: M,
    /// The first byte of the slice.
    pub at: Offset,
    pub(crate) slice: u64,
    /// The slice of the address: another one if this is a replica of it.
    pub(super) primary: u64,
    pub(super) word: MapWord,
}

impl<M: Memory> Coherent<M> {
    /// Announces the slice of `address` in `slot` of `line`, and translates it: announce, full
    /// fence, read the map word again. Lock-free: a retry means that the slice has changed.
    ///
    /// # Errors
    /// If the address is not allocated, or its memory is lost. Then nothing is announced.
    #[inline]
    pub fn translate(
        self,
        line: Line,
        slot: u64,
        address: Address,
        homes: &impl Homes<M>,
    ) -> Result<Translated<M>, PoolError> {
        let found = self.translate_for(Access::Read, (line, slot), address, homes)?;
        found.ok_or(PoolError::Moved { address })
    }

    /// Like [`translate`](Self::translate), for reading and writing. Returns `None` if the slice is
    /// frozen; the caller then retries, and may [thaw](Self::thaw) the slice.
    ///
    /// # Errors
    /// As `translate`.
    #[inline]
    pub fn translate_to_write(
        self,
        line: Line,
        slot: u64,
        address: Address,
        homes: &impl Homes<M>,
    ) -> Result<Option<Translated<M>>, PoolError> {
        self.translate_for(Access::Write, (line, slot), address, homes)
    }

    #[inline]
    pub(super) fn translate_for(
        self,
        access: Access,
        (line, slot): (Line, u64),
        address: Address,
        homes: &impl Homes<M>,
    ) -> Result<Option<Translated<M>>, PoolError> {
        let slice = address.position() >> self.sizes.slice_bits;
        let freed = || PoolError::Freed { address };
        if slice >= self.sizes.slices {
            return Err(freed());
        }
        let mut word = self.map_word(slice);
        loop {
            if !word.has_access() || word.generation() != address.generation() {
                self.withdraw(line, slot);
                return Err(freed());
            }
            if access == Access::Write && word.is_frozen() {
                self.withdraw(line, slot);
                return Ok(None);
            }
            self.announce(line, slot, slice, access);
            // SeqCst: either the member that makes the slice inaccessible, freezes or moves it sees
            // the announcement, or this reader sees the change.
            self.memory.fence(Ordering::SeqCst);
            let again = self.map_word(slice);
            if again != word {
                word = again;
                self.memory.spin_hint();
                continue;
            }
            let found = self.find(address, slice, word, homes);
            if found.is_ok() || !word.is_frozen() {
                if found.is_err() {
                    self.withdraw(line, slot);
                }
                return found.map(Some);
            }
            // A mover may be rebuilding this replica, and another one may be alive.
            if address.is_replicated() && self.doomed_flip(slice, word).is_none() {
                self.withdraw(line, slot);
                return found.map(Some);
            }
            // A flip to a server that has died is taken back: nothing is lost with that.
            self.thaw_slice(slice);
            word = self.map_word(slice);
        }
    }

    /// Returns an error if `address` is not allocated, or its server has died. Does not access the
    /// server's segment.
    pub(crate) fn demand_server(self, address: Address) -> Result<(), PoolError> {
        let slice = address.position() >> self.sizes.slice_bits;
        let word = (slice < self.sizes.slices).then(|| self.map_word(slice));
        let is_it = |word: &MapWord| word.has_access() && word.generation() == address.generation();
        let word = { word.filter(is_it) }.ok_or(PoolError::Freed { address })?;
        let server = ServerId(word.segment());
        match self.has_memory(server, word.server_generation()) {
            true => Ok(()),
            false => Err(PoolError::Lost { address, server }),
        }
    }

    /// Returns the server of the slice of `address`; `None` if that is freed or lost.
    pub(crate) fn server_at(self, address: Address) -> Option<ServerId> {
        // The address of another replica than the first is that of a slice.
        if address.is_replicated()
            && let Ok(set) = self.replicas_at(address)
        {
            let mut words = set.slices().map(|slice| self.map_word(slice));
            let first = words.find(|word| self.is_alive(*word));
            return first.map(|word| ServerId(word.segment()));
        }
        self.demand_server(address).ok()?;
        let slice = address.position() >> self.sizes.slice_bits;
        Some(ServerId(self.map_word(slice).segment()))
    }

    /// Returns the first address of a slice that can be moved: it is accessible, and not of a
    /// leased object.
    pub(crate) fn movable(self, slice: u64) -> Option<Address> {
        let word = (slice < self.sizes.slices).then(|| self.map_word(slice))?;
        let address = self.address_of(slice, word);
        (word.has_access() && !address.is_of_object()).then_some(address)
    }

    /// Returns the first address of a slice with this map word.
    pub(crate) fn address_of(self, slice: u64, word: MapWord) -> Address {
        Address::new(word.generation(), slice << self.sizes.slice_bits)
    }

    /// Translates `address` for a caller that keeps the slice in place by other means than an
    /// announcement: it owns the allocation, or has a lease of the object that does.
    ///
    /// # Errors
    /// As [`translate`](Self::translate).
    pub fn locate(
        self,
        address: Address,
        homes: &impl Homes<M>,
    ) -> Result<Translated<M>, PoolError> {
        let slice = address.position() >> self.sizes.slice_bits;
        let word = (slice < self.sizes.slices).then(|| self.map_word(slice));
        let is_it = |word: &MapWord| word.has_access() && word.generation() == address.generation();
        let word = { word.filter(is_it) }.ok_or(PoolError::Freed { address })?;
        self.find(address, slice, word, homes)
    }

    #[inline]
    pub(super) fn find(
        self,
        address: Address,
        slice: u64,
        word: MapWord,
        homes: &impl Homes<M>,
    ) -> Result<Translated<M>, PoolError> {
        let (segment, generation) = (word.segment(), word.server_generation());
        let server = ServerId(segment);
        let lost = || PoolError::Lost { address, server };
        if !self.has_memory(server, generation) {
            return Err(lost());
        }
        let home = homes.home(segment, generation)?;
        let frame = home.and_then(|home| home.frame_of(word.index().into(), slice));
        let (memory, at) = match frame {
            Some(frame) => frame,
            // The fine map was read after the memory was lost.
            None if self.is_lost_by_now(word) => return Err(lost()),
            None => return Err(PoolError::Damaged { address, server }),
        };
        Ok(Translated {
            memory,
            at,
            slice,
            primary: slice,
            word,
        })
    }

    /// Returns whether the server of a map word has died by now: the fine map, which is in its
    /// memory, may have been read after that.
    pub(super) fn is_lost_by_now(self, word: MapWord) -> bool {
        // Acquire: the fine map was read before the state.
        self.memory.fence(Ordering::Acquire);
        !self.has_memory(ServerId(word.segment()), word.server_generation())
    }

    /// Confirms that all accesses to `translated` until now were accesses to the memory of a live
    /// server.
    ///
    /// # Errors
    /// [`Freed`](PoolError::Freed), [`Moved`](PoolError::Moved) or [`Lost`](PoolError::Lost): the
    /// bytes that were read are void. A slice that a writer has announced is not moved. A lost
    /// replica is `Moved`: another one may be alive.
    #[inline]
    pub fn confirm(self, translated: &Translated<M>) -> Result<(), PoolError> {
        // Acquire: the loads of the data come before those of the words below.
        self.memory.fence(Ordering::Acquire);
        let (slice, word) = (translated.slice, translated.word);
        let address = self.address_of(translated.primary, word);
        let server = ServerId(word.segment());
        let now = self.map_word(slice);
        if !now.has_access() || now.generation() != word.generation() {
            return Err(PoolError::Freed { address });
        }
        if !now.has_frame_of(word) {
            return Err(PoolError::Moved { address });
        }
        let has_memory = self.has_memory(server, word.server_generation());
        if address.is_replicated() {
            // Another replica may be alive, or a replica before this one may have been rebuilt.
            let is_current = has_memory && !self.is_overtaken(translated);
            return match is_current {
                true => Ok(()),
                false => Err(PoolError::Moved { address }),
            };
        }
        if has_memory {
            return Ok(());
        }
        // A flip to a server that has died is taken back, or was: nothing is lost with that.
        let now = self.map_word(slice);
        match !now.has_frame_of(word) || self.doomed_flip(slice, now).is_some() {
            true => Err(PoolError::Moved { address }),
            false => Err(PoolError::Lost { address, server }),
        }
    }
}
