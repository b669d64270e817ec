//! Guards for writing.

use super::guard::{Guard, Reader};
use crate::coherent::{MOST_REPLICAS, ToWrite, WriteSet};
use crate::error::PoolError;
use crate::layout::{Address, LINE_SLOTS};
use core::cell::Cell;
use core::ops::Deref;
use core::time::Duration;
use outlive::memory::{Memory, Ordering};
use std::time::Instant;

/// The time after which a writer cancels the move of a slice of 2 MiB that it waits for. Longer
/// slices have larger chunks, and a longer time in proportion.
const THAW_AFTER: Duration = Duration::from_millis(1);

/// The time after which a writer stops waiting for the write lock of a slice with replicas.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

impl Reader {
    /// Like [`guard`](Self::guard), for reading and writing; the slice is not moved while the guard
    /// lives. If a mover has frozen the slice, waits until it has copied the last written chunks.
    /// Cancels the move after about 1 ms, or 1 ms for each 2 MiB of a larger slice.
    ///
    /// A slice with replicas has one write guard at a time; this call waits up to ten seconds for
    /// those of other readers. The guard stores each word to all replicas.
    ///
    /// A write guard on a slice with two or three replicas counts as two or three guards of the 15.
    ///
    /// # Errors
    /// As [`guard`](Self::guard); [`BeingWritten`](PoolError::BeingWritten) if other readers have
    /// the slice with replicas for ten seconds, or at once if this reader has it.
    ///
    /// # Crash
    /// A survivor ends the guard. A word that was being stored is then in all live replicas or in
    /// none.
    #[inline]
    pub fn write_guard(&self, address: Address) -> Result<WriteGuard<'_>, PoolError> {
        if address.is_replicated() {
            return self.write_replicas(address);
        }
        let guard = match self.try_to_write(address)? {
            Some(guard) => guard,
            None => self.wait_to_write(address)?,
        };
        Ok(WriteGuard {
            guard,
            chunk_bits: self.pool().coherent().chunk_bits(),
            written: Cell::new(0),
            replicas: None,
        })
    }

    #[cold]
    fn wait_to_write(&self, address: Address) -> Result<Guard<'_>, PoolError> {
        let end = Instant::now() + self.thaw_after();
        loop {
            if let Some(guard) = self.try_to_write(address)? {
                return Ok(guard);
            }
            if Instant::now() >= end {
                { self.pool().coherent() }.thaw(address);
            }
            std::thread::yield_now();
        }
    }

    #[inline]
    fn try_to_write(&self, address: Address) -> Result<Option<Guard<'_>>, PoolError> {
        let slot = self.slot(address)?;
        let coherent = self.pool().coherent();
        let translated = coherent.translate_to_write(self.line, slot, address, self.pool())?;
        Ok(translated.map(|translated| self.guard_of(slot, address, translated)))
    }

    fn write_replicas(&self, address: Address) -> Result<WriteGuard<'_>, PoolError> {
        let coherent = self.pool().coherent();
        let (mut locked_since, mut frozen_since) = (None, None);
        loop {
            let (slots, free) = self.free_slots();
            let slots = &slots[..free];
            let tried =
                coherent.translate_to_write_replicas(self.line, slots, address, self.pool())?;
            if let ToWrite::Ready(set) = tried {
                return Ok(self.guard_of_replicas(slots, address, set));
            }
            match tried {
                ToWrite::Frozen => {
                    let since = frozen_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.thaw_after() {
                        coherent.thaw_replicas(self.line, slots[0], address);
                    }
                }
                ToWrite::Locked { by, is_own } => {
                    // The time of another freeze begins later.
                    frozen_since = None;
                    let since = locked_since.get_or_insert_with(Instant::now);
                    let is_over = is_own || since.elapsed() >= LOCK_PATIENCE;
                    // Without a holder, the lock was just released, or it is damaged.
                    let is_damaged = since.elapsed() >= 2 * LOCK_PATIENCE;
                    let by = by.or(is_damaged.then_some(self.client.instance()));
                    if let (Some(by), true) = (by, is_over) {
                        return Err(PoolError::BeingWritten { address, by });
                    }
                }
                ToWrite::Ready(_) => {}
            }
            std::thread::yield_now();
        }
    }

    fn guard_of_replicas(&self, slots: &[u64], address: Address, set: WriteSet) -> WriteGuard<'_> {
        let mut own = [0; MOST_REPLICAS];
        for (own, slot) in own.iter_mut().zip(&slots[..set.replicas()]) {
            *own = *slot;
            self.slots.set(self.slots.get() | 1 << slot);
        }
        let first = set
            .first()
            .expect("the lock is that of a slice with a replica");
        WriteGuard {
            guard: self.guard_of(own[0], address, first),
            chunk_bits: self.pool().coherent().chunk_bits(),
            written: Cell::new(0),
            replicas: Some(Replicas {
                set,
                slots: own,
                address,
            }),
        }
    }

    /// Returns slots for a write guard on a slice with replicas, and the number of free ones.
    fn free_slots(&self) -> ([u64; MOST_REPLICAS], usize) {
        let (mut slots, mut free) = ([0; MOST_REPLICAS], 0);
        let is_free = |slot: &u64| self.slots.get() & 1 << slot == 0;
        for (place, slot) in slots.iter_mut().zip((0..LINE_SLOTS).filter(is_free)) {
            *place = slot;
            free += 1;
        }
        (slots, free)
    }

    fn thaw_after(&self) -> Duration {
        THAW_AFTER * (self.slice_bytes() >> 21).max(1) as u32
    }
}

/// The memory of a slice, to read and write it. The slice is not moved while the guard lives.
///
/// Words are stored by atomics: Relaxed, or Release if the slice has replicas. They are in the
/// slice if a later [`confirm`](Self::confirm) succeeds: in each live replica.
#[derive(Debug)]
pub struct WriteGuard<'r> {
    guard: Guard<'r>,
    chunk_bits: u32,
    /// A bit for each chunk that was stored to.
    written: Cell<u64>,
    replicas: Option<Replicas>,
}

/// The replicas that a guard writes, and the slots with their announcements.
#[derive(Debug)]
struct Replicas {
    set: WriteSet,
    slots: [u64; MOST_REPLICAS],
    address: Address,
}

impl<'r> Deref for WriteGuard<'r> {
    type Target = Guard<'r>;

    #[inline(always)]
    fn deref(&self) -> &Guard<'r> {
        &self.guard
    }
}

impl WriteGuard<'_> {
    /// Returns the bit of the chunk of a byte of the slice.
    #[inline(always)]
    fn chunk(&self, byte: u64) -> u64 {
        1 << (byte >> self.chunk_bits)
    }

    fn mark(&self, chunks: u64) {
        self.written.set(self.written.get() | chunks);
    }

    /// Returns the word `index` behind the guard's address. If the slice has replicas, it is the
    /// word of a live replica, or 0 if none is alive; [`confirm`](Self::confirm) then fails. If
    /// not, it is unconfirmed.
    ///
    /// # Panics
    /// As [`Guard::load`].
    #[inline(always)]
    pub fn load(&self, index: u64) -> u64 {
        let Some(replicas) = &self.replicas else {
            return self.guard.load(index);
        };
        self.guard.demand_word(index);
        let coherent = self.guard.reader.pool().coherent();
        coherent.load_replica(&replicas.set, self.guard.byte + index * 8)
    }

    /// Copies bytes from `byte` behind the guard's address, and confirms them.
    ///
    /// # Errors
    /// As [`Guard::read`].
    pub fn read(&self, byte: u64, into: &mut [u8]) -> Result<(), PoolError> {
        let Some(replicas) = &self.replicas else {
            return self.guard.read(byte, into);
        };
        let at = self.guard.demand(byte, into.len() as u64)?;
        let coherent = self.guard.reader.pool().coherent();
        coherent.copy_out_replica(&replicas.set, at, into);
        self.confirm()
    }

    /// Confirms the accesses until now.
    ///
    /// # Errors
    /// If the servers of all replicas have died, or the allocation was freed: the bytes that were
    /// read are void, and those that were written may be lost.
    #[inline]
    pub fn confirm(&self) -> Result<(), PoolError> {
        let coherent = self.guard.reader.pool().coherent();
        match &self.replicas {
            None => self.guard.confirm(),
            Some(replicas) => coherent.confirm_replicas(&replicas.set, replicas.address),
        }
    }

    /// Stores the word `index` behind the guard's address, unconfirmed.
    ///
    /// # Panics
    /// As [`Guard::load`].
    #[inline(always)]
    pub fn store(&self, index: u64, word: u64) {
        let guard = &self.guard;
        guard.demand_word(index);
        self.mark(self.chunk(guard.byte + index * 8));
        if let Some(replicas) = &self.replicas {
            return replicas.set.store(guard.byte + index * 8, word);
        }
        let (memory, at) = (guard.translated.memory, guard.first + index * 8);
        // SAFETY: as in `load`.
        unsafe { memory.store_unchecked(at, word, Ordering::Relaxed) }
    }

    /// Copies bytes to `byte` behind the guard's address, and confirms them. Bytes behind the last
    /// one keep their values.
    ///
    /// # Errors
    /// As [`Guard::read`].
    pub fn write(&self, byte: u64, from: &[u8]) -> Result<(), PoolError> {
        let (guard, len) = (&self.guard, from.len() as u64);
        let at = guard.demand(byte, len)?;
        if len == 0 {
            return self.confirm();
        }
        let (first, last) = (self.chunk(at), self.chunk(at + len - 1));
        // The bits from the first to the last one.
        self.mark((last - first) | last);
        let (whole, last) = from.split_at(from.len() & !7);
        if let Some(replicas) = &self.replicas {
            replicas.set.copy_in(at, whole);
            if !last.is_empty() {
                let at = at + whole.len() as u64;
                let coherent = guard.reader.pool().coherent();
                // No other guard writes the slice.
                let word = coherent.load_replica(&replicas.set, at);
                replicas.set.store(at, with_first(word, last));
            }
            return self.confirm();
        }
        let (memory, at) = (guard.translated.memory, guard.translated.at + at);
        memory.copy_in(at, whole);
        if !last.is_empty() {
            let at = at + whole.len() as u64;
            let mut word: u64 = memory.load(at, Ordering::Relaxed);
            loop {
                let (new, order) = (with_first(word, last), Ordering::Relaxed);
                match memory.compare_exchange(at, word, new, order, order) {
                    Ok(_) => break,
                    Err(found) => word = found,
                }
            }
        }
        self.confirm()
    }
}

/// Returns a word with these first bytes.
fn with_first(word: u64, first: &[u8]) -> u64 {
    let mut bytes = word.to_ne_bytes();
    bytes[..first.len()].copy_from_slice(first);
    u64::from_ne_bytes(bytes)
}

impl Drop for WriteGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // The chunks are marked before the announcement is withdrawn: a mover that finds it
        // withdrawn also sees the marks.
        let (written, guard) = (self.written.get(), &self.guard);
        let (reader, coherent) = (guard.reader, guard.reader.pool().coherent());
        if let Some(Replicas { set, slots, .. }) = &self.replicas {
            coherent.end_write(reader.line, slots, set, written);
            let used = &slots[..set.replicas()];
            let used = used.iter().fold(0, |bits, slot| bits | 1 << slot);
            reader.slots.set(reader.slots.get() & !used);
        } else if written != 0 {
            coherent.mark_written(guard.translated.slice, written);
        }
    }
}
