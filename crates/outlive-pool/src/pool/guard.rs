//! Readers and guards: access to the data of the pool.

use super::{Client, Pool};
use crate::coherent::{Line, Translated};
use crate::error::PoolError;
use crate::layout::{Address, LINE_SLOTS};
use core::cell::Cell;
use outlive::memory::{Memory, Offset, Ordering};

/// Access of one thread to the data of a pool, reading and writing.
#[derive(Debug)]
pub struct Reader {
    pub(super) client: Client,
    pub(super) line: Line,
    /// A bit for each slot that a guard uses.
    pub(super) slots: Cell<u16>,
    /// The number of guards until the next one is sampled, and the number of the last sample.
    until_sample: Cell<u32>,
    samples: Cell<u32>,
}

/// The smallest and the mean number of guards between two samples. The distance varies, so that it
/// does not follow the period of a program.
const LEAST_DISTANCE: u32 = 32;
const DISTANCE: u32 = 64;

impl Reader {
    pub(super) fn new(client: Client) -> Result<Self, PoolError> {
        let coherent = client.pool().coherent();
        let line = coherent.claim_line(client.instance());
        let line = line.ok_or(PoolError::TooManyReaders {
            most: coherent.sizes().readers,
        })?;
        Ok(Self {
            client,
            line,
            slots: Cell::new(0),
            until_sample: Cell::new(LEAST_DISTANCE),
            samples: Cell::new(coherent.last_sample(line)),
        })
    }

    pub(crate) fn slice_bytes(&self) -> u64 {
        self.pool().coherent().sizes().slice_bytes()
    }

    pub(super) fn pool(&self) -> &Pool {
        self.client.pool()
    }

    /// Translates `address`, and keeps the memory of its slice as long as the guard lives. Costs a
    /// full fence; the accesses by the guard cost no more than plain ones. A reader has up to 15
    /// guards. Lock-free; the first access to a server maps its segment.
    ///
    /// The slice may be moved to another server while the guard lives;
    /// [`confirm`](Guard::confirm) then fails with [`Moved`](PoolError::Moved).
    ///
    /// # Errors
    /// If the address is not allocated, its memory is lost, or it is that of a leased object.
    ///
    /// # Crash
    /// A survivor ends the guard.
    #[inline]
    pub fn guard(&self, address: Address) -> Result<Guard<'_>, PoolError> {
        let slot = self.slot(address)?;
        let coherent = self.pool().coherent();
        let translated = match address.is_replicated() {
            false => coherent.translate(self.line, slot, address, self.pool())?,
            true => coherent.translate_replica(self.line, slot, address, self.pool())?,
        };
        Ok(self.guard_of(slot, address, translated))
    }

    /// Returns a free slot for a guard on `address`.
    #[inline]
    pub(super) fn slot(&self, address: Address) -> Result<u64, PoolError> {
        if address.is_of_object() {
            return Err(PoolError::OfObject { address });
        }
        let slot = u64::from(self.slots.get().trailing_ones());
        match slot < LINE_SLOTS {
            true => Ok(slot),
            false => Err(PoolError::TooManyGuards { most: LINE_SLOTS }),
        }
    }

    /// Records the access, and chooses the next one that is recorded.
    #[cold]
    fn sample(&self, slice: u64) {
        let number = self.samples.get().wrapping_add(1);
        self.samples.set(number);
        { self.pool().coherent() }.record_sample(self.line, number, slice);
        let spread = 2 * (DISTANCE - LEAST_DISTANCE);
        // A hash whose bits all depend on all bits of the number.
        let mut varied = number.wrapping_mul(0x9E37_79B9);
        varied = (varied ^ varied >> 15).wrapping_mul(0x2C1B_3C6D);
        varied ^= varied >> 12;
        self.until_sample.set(LEAST_DISTANCE + varied % spread);
    }

    #[inline]
    pub(super) fn guard_of(
        &self,
        slot: u64,
        address: Address,
        translated: Translated,
    ) -> Guard<'_> {
        self.slots.set(self.slots.get() | 1 << slot);
        match self.until_sample.get().checked_sub(1) {
            Some(left) => self.until_sample.set(left),
            None => self.sample(translated.slice),
        }
        let slice_bytes = self.slice_bytes();
        let byte = address.position() & (slice_bytes - 1);
        let first = translated.at + byte;
        // Of a misaligned address, no word can be accessed.
        let words = match byte.is_multiple_of(8) {
            true => (slice_bytes - byte) / 8,
            false => 0,
        };
        Guard {
            reader: self,
            translated,
            slot,
            byte,
            first,
            words,
            slice_bytes,
        }
    }

    /// Copies the bytes at `address` into `into`, across slices. The copy may be torn at 8 bytes by
    /// concurrent writers.
    ///
    /// # Errors
    /// As [`guard`](Self::guard), and if the address is not aligned to 8 bytes. The contents of
    /// `into` are void then.
    pub fn read(&self, address: Address, into: &mut [u8]) -> Result<(), PoolError> {
        let mut done = 0;
        while done < into.len() {
            let guard = self.guard(address.plus(done as u64))?;
            let rest = &mut into[done..];
            let len = rest.len().min(guard.rest() as usize);
            match guard.read(0, &mut rest[..len]) {
                // Read again, at the new place.
                Err(PoolError::Moved { .. }) => {}
                read => {
                    read?;
                    done += len;
                }
            }
        }
        Ok(())
    }

    /// Copies `from` to `address`, across slices.
    ///
    /// # Errors
    /// As [`guard`](Self::guard), and if the address is not aligned to 8 bytes. Some of the bytes
    /// may be written then.
    ///
    /// # Crash
    /// Some of the bytes are written, in the order of their addresses.
    pub fn write(&self, address: Address, from: &[u8]) -> Result<(), PoolError> {
        let mut done = 0;
        while done < from.len() {
            let guard = self.write_guard(address.plus(done as u64))?;
            let rest = &from[done..];
            let len = rest.len().min(guard.rest() as usize);
            guard.write(0, &rest[..len])?;
            done += len;
        }
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let coherent = self.pool().coherent();
        // Guards that were forgotten: the next owner of the line would have them.
        if self.slots.get() != 0
            && let Err(error) = coherent.abandon(self.line, self.pool())
        {
            tracing::warn!(%error, "the guards of a reader are ended later");
            self.client.joined.entries.lock().lines.push(self.line);
            return;
        }
        coherent.release_line(self.line, self.client.instance());
    }
}

/// The memory of a slice, seen from the address that the guard was made for, to read it.
///
/// Words are loaded by relaxed atomics. What was loaded is valid if a later
/// [`confirm`](Self::confirm) succeeds: until then the slice's server was alive, and the allocation
/// was neither freed nor moved.
#[derive(Debug)]
pub struct Guard<'r> {
    pub(super) reader: &'r Reader,
    pub(super) translated: Translated,
    slot: u64,
    pub(super) byte: u64,
    /// The first word, and the number of words that can be accessed.
    pub(super) first: Offset,
    words: u64,
    slice_bytes: u64,
}

impl Guard<'_> {
    /// Returns the number of bytes from the guard's address to the end of its slice.
    pub fn rest(&self) -> u64 {
        self.slice_bytes - self.byte
    }

    /// Returns the number of words from the guard's address to the end of its slice.
    pub fn words(&self) -> u64 {
        self.rest() / 8
    }

    pub(super) fn demand(&self, byte: u64, len: u64) -> Result<u64, PoolError> {
        let at = self.byte.saturating_add(byte);
        if at <= self.slice_bytes && len <= self.slice_bytes - at && at.is_multiple_of(8) {
            return Ok(at);
        }
        Err(PoolError::OutsideSlice {
            byte: at,
            len,
            slice_bytes: self.slice_bytes,
        })
    }

    /// Confirms the accesses until now.
    ///
    /// # Errors
    /// If the server has died, or the allocation was freed or moved: the bytes that were read are
    /// void, and those that were written may be lost. A slice with a
    /// [`WriteGuard`](crate::WriteGuard) is not moved.
    #[inline]
    pub fn confirm(&self) -> Result<(), PoolError> {
        { self.reader.pool().coherent() }.confirm(&self.translated)
    }

    /// Returns the word `index` behind the guard's address, unconfirmed.
    ///
    /// # Panics
    /// If it is outside the slice, or the guard's address is not aligned to 8 bytes.
    #[inline(always)]
    pub fn load(&self, index: u64) -> u64 {
        self.demand_word(index);
        let at = self.first + index * 8;
        // SAFETY: the word is in the slice, whose frame is in the region (`Home::frame_of`), which
        // is aligned and in the segment (`attach_part`), which stays mapped while the guard lives.
        unsafe { self.translated.memory.load_unchecked(at, Ordering::Relaxed) }
    }

    /// Panics unless the word is inside the slice: the memory has neighbours.
    #[inline(always)]
    pub(super) fn demand_word(&self, index: u64) {
        assert!(
            index < self.words,
            "word {index} is outside the slice, or not aligned"
        );
    }

    /// Copies bytes from `byte` behind the guard's address, and confirms them.
    ///
    /// # Errors
    /// If they are not inside the slice or not aligned to 8 bytes, or as
    /// [`confirm`](Self::confirm).
    pub fn read(&self, byte: u64, into: &mut [u8]) -> Result<(), PoolError> {
        let at = self.demand(byte, into.len() as u64)?;
        { self.translated.memory }.copy_out(self.translated.at + at, into);
        self.confirm()
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        let reader = self.reader;
        { reader.pool().coherent() }.withdraw(reader.line, self.slot);
        reader.slots.set(reader.slots.get() & !(1 << self.slot));
    }
}
