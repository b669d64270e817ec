//! A worker's deque: its owner pushes and pops at the bottom, other workers steal at the top (Chase
//! and Lev, SPAA '05; MODC §4).
//!
//! ```text
//!  entries:  index  top <= i < bottom, at i modulo the size of the array; an entry is the offset of a task
//! ```
//!
//! # No task is lost
//!
//! A task leaves the deque by a store of `bottom` (pop) or a swap of `top` (steal). *Before* that,
//! the taking worker notes it in its [running slot](crate::engine::slot). So at any instruction the
//! task is in the deque or in a running slot, or in both. A task in both is harmless: the
//! [`status`](super::status) decides which worker runs it. A worker notes the next task only when
//! it is done with the last one.
//!
//! # No task is hidden
//!
//! A pop and a steal may take the same task, but they must agree on the number of entries: with
//! `bottom` below `top`, the next pushed entry would be invisible. So the owner lowers `bottom`,
//! makes a sequentially consistent fence and reads `top`; a thief reads `top`, makes the fence and
//! reads `bottom`. If the owner reads an old `top`, its fence was before that of the thief with the
//! newer one, and this thief sees the lowered `bottom`. So the two do not take one entry unless it
//! is the last, for which both swap `top`. (Lê et al., PPoPP '13, without their consume.)
//!
//! Orderings: every store of `bottom` is a release, so that its reader sees the entries, the tasks
//! and the array. This includes the stores of pop: a relaxed store would end the release sequence
//! of earlier pushes. A thief's swap of `top` is a release after its read of the entry; the owner
//! reads `top` with acquire before it overwrites an old entry. The array's word is stored with
//! release, and loaded by thieves with acquire. All other accesses are relaxed.
//!
//! # Growth
//!
//! The owner allocates an array of twice the size into its slot's cell for that size, copies the
//! entries between `top` and `bottom`, and makes it the buffer by one store. Thieves may still read
//! the old array, which the owner no longer writes. Old arrays, which together are smaller than the
//! new one, are freed [at the end of a phase](Deque::free_old), when no thread steals. Size and
//! offset of the array are one word, which is loaded once, checked, then used.
//!
//! | death in | state left | continued by |
//! | --- | --- | --- |
//! | push: entries written, `bottom` not stored | nothing visible | the new holder of the commit |
//! | pop: noted | the task, also in the deque | any worker |
//! | pop: lowered | task only noted; `bottom` may be `top - 1` | any worker; next owner repairs |
//! | steal: noted, or `top` swapped | the task in the thief's running slot | any worker |
//! | growth: allocated, copied | an array in the cell of the next size | the next growth uses it |

use crate::EngineError;
use crate::engine::descriptor::damaged;
use crate::engine::slot::Slot;
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// Crash points of a push.
    pub enum PushPoint for "deque.push" {
        /// An entry is written beyond the bottom.
        Written,
        /// The bottom is raised.
        Pushed,
    }
}

outlive::memory::crash_points! {
    /// Crash points of a pop.
    pub enum PopPoint for "deque.pop" {
        /// The task is noted, and still in the deque.
        Noted,
        /// The bottom is lowered.
        Lowered,
        /// The entry was the last one, and the top is raised.
        Raced,
        /// The bottom is equal to the top.
        Repaired,
    }
}

outlive::memory::crash_points! {
    /// Crash points of a steal.
    pub enum StealPoint for "deque.steal" {
        /// The task is noted, and still in the deque.
        Noted,
        /// The task is noted, and no longer in the deque.
        Stolen,
    }
}

outlive::memory::crash_points! {
    /// Crash points of the growth of a deque.
    pub enum GrowPoint for "deque.grow" {
        /// The new array is in its cell.
        Allocated,
        /// The new array has all entries.
        Copied,
        /// The new array is the buffer.
        Replaced,
        /// An old array is free.
        Freed,
    }
}

/// An array of entries, as the word `buffer` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    at: Offset,
    log2: u32,
}

impl Array {
    /// The number of sizes: 2^0 to 2^31 entries.
    pub(crate) const SIZES: u32 = 32;
    /// The binary logarithm of the smallest size.
    pub(crate) const SMALLEST: u32 = 1;

    fn to_word(self) -> u64 {
        // Blocks of the heap are aligned to 16.
        self.at.raw() >> 4 << 8 | u64::from(self.log2)
    }

    fn bytes(log2: u32) -> u64 {
        8 << log2
    }

    /// Returns the array that `word`, loaded from `from`, describes.
    #[inline(always)]
    fn checked<M: Memory>(memory: M, from: Offset, word: u64) -> Result<Self, EngineError> {
        let log2 = word as u8 as u32;
        if (Self::SMALLEST..Self::SIZES).contains(&log2) {
            let at = Offset::checked(word >> 8 << 4, Self::bytes(log2), 8, memory.size());
            if let Ok(at) = at
                && !at.is_null()
            {
                return Ok(Self { at, log2 });
            }
        }
        Err(damaged(from, word, "array of a deque"))
    }

    #[inline(always)]
    fn entry(self, index: u64) -> Offset {
        self.at + (index & ((1 << self.log2) - 1)) * 8
    }

    fn capacity(self) -> u64 {
        1 << self.log2
    }
}

/// The result of an attempt to steal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stolen {
    /// The deque was empty.
    Nothing,
    /// Another thread took the entry first; the deque may have more.
    Lost,
    /// An entry, which is noted in the thief's running slot, and no longer in the deque.
    Entry(u64),
}

/// Steals from the deque of `victim`, with or without an owner, for the owner of `thief`.
/// Lock-free: if it has [lost](Stolen::Lost), another thread has won.
///
/// # Errors
/// [`EngineError::Damaged`] if the deque has no array.
///
/// # Crash
/// The task is in the deque, or in the running slot of `thief`, or in both.
#[inline]
pub fn steal<M: Memory>(memory: M, victim: Slot<M>, thief: Slot<M>) -> Result<Stolen, EngineError> {
    // Relaxed: the fence follows.
    let top: u64 = memory.load(victim.top_at(), Ordering::Relaxed);
    // Against the fence of `pop`: see the top of the file.
    memory.fence(Ordering::SeqCst);
    // Acquire: entries, tasks and array.
    let bottom: u64 = memory.load(victim.bottom_at(), Ordering::Acquire);
    if top.wrapping_sub(bottom) as i64 >= 0 {
        return Ok(Stolen::Nothing);
    }
    // Acquire: `bottom` may be older than the array; this load then brings its entries.
    let word: u64 = memory.load(victim.buffer_at(), Ordering::Acquire);
    let array = Array::checked(memory, victim.buffer_at(), word)?;
    // Relaxed: acquired with `bottom` or the array.
    let entry: u64 = memory.load(array.entry(top), Ordering::Relaxed);
    // Relaxed: the owner had read a `top` before it made the array, and an older one is not read
    // here. So if `top` is unchanged, the entry was in the deque when the array was made, or was
    // pushed later: it is valid. Without this check a slow thief could note a word from before that
    // memory was an array, and die with it.
    if memory.load::<u64>(victim.top_at(), Ordering::Relaxed) != top {
        return Ok(Stolen::Lost);
    }
    thief.note(entry);
    memory.crash_point(StealPoint::Noted);
    // Release: after the note, and after the read of the entry, which the owner may then overwrite.
    let order = (Ordering::Release, Ordering::Relaxed);
    let next = top.wrapping_add(1);
    match memory.compare_exchange(victim.top_at(), top, next, order.0, order.1) {
        Ok(_) => {
            memory.crash_point(StealPoint::Stolen);
            Ok(Stolen::Entry(entry))
        }
        Err(_) => Ok(Stolen::Lost),
    }
}

/// The owner's side of a deque.
///
/// Its private state is in the slot, too: the next owner continues from there.
#[derive(Debug)]
pub struct Deque<M: Memory = Native> {
    memory: M,
    slot: Slot<M>,
    array: Array,
    /// The same as in the slot, except between the steps of a pop.
    bottom: u64,
    /// The end of the entries that are written; those from `bottom` on are not published.
    end: u64,
    /// A `top` that was read earlier: the current one is not below it.
    top: u64,
}

impl<M: Memory> Deque<M> {
    /// Takes over the deque of `slot` as its new owner. If the deque has no array yet, allocates
    /// one of `1 << smallest` entries.
    ///
    /// # Errors
    /// If the heap has no block for an array, or the deque is damaged.
    ///
    /// # Crash
    /// The next owner continues.
    pub fn adopt(
        slot: Slot<M>,
        heap: &LocalHeap<'_, M>,
        smallest: u32,
    ) -> Result<Self, EngineError> {
        let memory = heap.memory();
        // Relaxed, as all words of the slot here: acquired with the claim.
        let load = |at| memory.load::<u64>(at, Ordering::Relaxed);
        // Acquire: thieves raise `top`, which only grows; an entry below it may be overwritten.
        let top: u64 = memory.load(slot.top_at(), Ordering::Acquire);
        let mut bottom = load(slot.bottom_at());
        if top.wrapping_sub(bottom) as i64 > 0 {
            // The last owner died in a pop.
            bottom = top;
            memory.store(slot.bottom_at(), bottom, Ordering::Release);
        }
        let array = match load(slot.buffer_at()) {
            0 => {
                let array = Self::array_of(memory, slot, heap, smallest)?;
                // Release: see `grow`.
                memory.store(slot.buffer_at(), array.to_word(), Ordering::Release);
                array
            }
            word => Array::checked(memory, slot.buffer_at(), word)?,
        };
        Ok(Self {
            memory,
            slot,
            array,
            bottom,
            end: bottom,
            top,
        })
    }

    /// Returns an array of that size: the one that is left in its cell, or a new one.
    fn array_of(
        memory: M,
        slot: Slot<M>,
        heap: &LocalHeap<'_, M>,
        log2: u32,
    ) -> Result<Array, EngineError> {
        let cell = slot.array_at(log2);
        let at = match memory.load::<u64>(cell, Ordering::Relaxed) {
            0 => heap.allocate_into(Array::bytes(log2), cell)?,
            left => {
                crate::engine::slot::check_block(memory, cell, left, Array::bytes(log2), "array")?
            }
        };
        memory.crash_point(GrowPoint::Allocated);
        Ok(Array { at, log2 })
    }

    /// Returns the approximate number of entries.
    #[inline]
    pub fn len(&self) -> u64 {
        let top: u64 = self.memory.load(self.slot.top_at(), Ordering::Relaxed);
        (self.bottom.wrapping_sub(top) as i64).max(0) as u64
    }

    /// Returns whether the deque is empty, approximately.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reserves space, so that `more` entries can be put without growth.
    ///
    /// # Errors
    /// If the heap has no block for a larger array; nothing is changed then.
    #[inline]
    pub fn reserve(&mut self, heap: &LocalHeap<'_, M>, more: u64) -> Result<(), EngineError> {
        while self.end.wrapping_add(more).wrapping_sub(self.top) > self.array.capacity() {
            // Acquire: the thieves have read the entries that are overwritten.
            let top: u64 = self.memory.load(self.slot.top_at(), Ordering::Acquire);
            if top == self.top {
                self.grow(heap)?;
            }
            self.top = top;
        }
        Ok(())
    }

    /// Writes an entry behind the last one. It is invisible before [`publish`](Self::publish).
    ///
    /// # Errors
    /// If the deque must grow and the heap has no block for it; nothing is changed then.
    #[inline(always)]
    pub fn put(&mut self, heap: &LocalHeap<'_, M>, entry: u64) -> Result<(), EngineError> {
        if self.end.wrapping_sub(self.top) >= self.array.capacity() {
            self.reserve(heap, 1)?;
        }
        // Relaxed: published by the store of `bottom`.
        self.memory
            .store(self.array.entry(self.end), entry, Ordering::Relaxed);
        self.end = self.end.wrapping_add(1);
        self.memory.crash_point(PushPoint::Written);
        Ok(())
    }

    /// Publishes the entries that were put, by one store.
    #[inline(always)]
    pub fn publish(&mut self) {
        if self.end != self.bottom {
            self.bottom = self.end;
            // Release: entries, tasks and array, for thieves.
            self.memory
                .store(self.slot.bottom_at(), self.bottom, Ordering::Release);
            self.memory.crash_point(PushPoint::Pushed);
        }
    }

    /// Takes the entry that was pushed last, and notes it in the running slot. Wait-free.
    ///
    /// # Crash
    /// The task is in the deque, or in the running slot, or in both.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<u64> {
        debug_assert_eq!(self.bottom, self.end, "all pushed entries are published");
        let (memory, slot) = (self.memory, self.slot);
        // Relaxed: an older `top` shows too many entries, which is checked below.
        let top: u64 = memory.load(slot.top_at(), Ordering::Relaxed);
        if top.wrapping_sub(self.bottom) as i64 >= 0 {
            return None;
        }
        let bottom = self.bottom.wrapping_sub(1);
        // Relaxed: written by the owner only.
        let entry: u64 = memory.load(self.array.entry(bottom), Ordering::Relaxed);
        slot.note(entry);
        memory.crash_point(PopPoint::Noted);
        // Release: after the note; and see the top of the file.
        memory.store(slot.bottom_at(), bottom, Ordering::Release);
        memory.crash_point(PopPoint::Lowered);
        // Against the fence of `steal`: see the top of the file.
        memory.fence(Ordering::SeqCst);
        let top: u64 = memory.load(slot.top_at(), Ordering::Relaxed);
        let left = bottom.wrapping_sub(top) as i64;
        if left > 0 {
            self.bottom = bottom;
            self.end = bottom;
            return Some(entry);
        }
        self.pop_last(top, left, entry)
    }

    /// Takes the last entry, or finds that thieves have taken it.
    #[inline(never)]
    fn pop_last(&mut self, top: u64, left: i64, entry: u64) -> Option<u64> {
        let (memory, slot) = (self.memory, self.slot);
        // Relaxed: it publishes nothing, and no read depends on it.
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let won = left == 0 && {
            let next = top.wrapping_add(1);
            let won = memory.compare_exchange(slot.top_at(), top, next, order.0, order.1);
            memory.crash_point(PopPoint::Raced);
            won.is_ok()
        };
        // Release: as all stores of `bottom`.
        memory.store(slot.bottom_at(), self.bottom, Ordering::Release);
        memory.crash_point(PopPoint::Repaired);
        won.then_some(entry)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, heap: &LocalHeap<'_, M>) -> Result<(), EngineError> {
        let (memory, old) = (self.memory, self.array);
        let new = Self::array_of(memory, self.slot, heap, old.log2 + 1)?;
        let mut index = self.top;
        while index != self.end {
            // Relaxed: written by the owner only; published below.
            let entry: u64 = memory.load(old.entry(index), Ordering::Relaxed);
            memory.store(new.entry(index), entry, Ordering::Relaxed);
            index = index.wrapping_add(1);
        }
        memory.crash_point(GrowPoint::Copied);
        // Release: the entries of the array, for a thief that has an older `bottom`.
        memory.store(self.slot.buffer_at(), new.to_word(), Ordering::Release);
        memory.crash_point(GrowPoint::Replaced);
        self.array = new;
        Ok(())
    }

    /// Frees the arrays that the deque has outgrown. Must be called only at the end of a phase,
    /// when no steal that began before the last growth is still running.
    ///
    /// # Errors
    /// If one cannot be freed.
    ///
    /// # Crash
    /// An array is free or in its cell.
    pub fn free_old(&mut self, heap: &LocalHeap<'_, M>) -> Result<(), EngineError> {
        for log2 in Array::SMALLEST..Array::SIZES {
            let cell = self.slot.array_at(log2);
            // Relaxed: written by the owner only.
            if log2 != self.array.log2 && self.memory.load::<u64>(cell, Ordering::Relaxed) != 0 {
                heap.free_from(cell, 0)?;
                self.memory.crash_point(GrowPoint::Freed);
            }
        }
        Ok(())
    }
}

/// Returns the blocks of the arrays of `slot`, for checks of the heap.
pub(crate) fn arrays_of<M: Memory>(memory: M, slot: Slot<M>) -> impl Iterator<Item = Offset> {
    (Array::SMALLEST..Array::SIZES)
        .map(move |log2| memory.load::<u64>(slot.array_at(log2), Ordering::Acquire))
        .filter(|array| *array != 0)
        .map(Offset::from_raw)
}
