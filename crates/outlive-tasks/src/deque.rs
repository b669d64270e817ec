//! A worker's deque: it pushes and pops at the bottom, others steal at the top (Chase and Lev, SPAA '05; MODC §4).
//!
//! ```text
//!  entries:  index  top <= i < bottom, at i modulo the size of the array; an entry is the offset of a task
//! ```
//!
//! # Nothing is lost
//!
//! A task leaves the deque by a store of `bottom` (pop) or a swap of `top` (steal). *Before* that, whoever takes it
//! notes it in his [running slot](crate::slot). So at any instruction it is found in the deque or in a running slot, or in
//! both, and that is harmless: the [status](crate::status) decides who runs it. A worker notes the next task only when it
//! is done with the last one.
//!
//! # Nothing is hidden
//!
//! It would do no harm if pop and steal took the same task. It would if they disagreed about how many there are: with
//! `bottom` below `top`, what is pushed next is seen by nobody. So the owner lowers `bottom`, makes a sequentially
//! consistent fence and reads `top`; a thief reads `top`, makes the fence and reads `bottom`. If the owner reads an old
//! `top`, its fence was before the fence of whoever read the newer one, who then sees the lowered `bottom`: the two do
//! not take one entry unless it is the last, for which both swap `top`. (Lê et al., PPoPP '13, without their
//! consume.)
//!
//! Orderings: every store of `bottom` is a release (also those of pop: a store that is not ends the release
//! sequence of the pushes before), so that who reads it has the entries, the tasks and the array. A thief's swap of `top`
//! is a release after its read of the entry; the owner reads `top` with acquire before it writes an entry
//! over an old one. The rest is relaxed.
//!
//! # Growth
//!
//! The owner allocates an array of twice the size into its slot's cell for that size, copies what is between `top` and
//! `bottom` and makes it the buffer by one store. Thieves may read the old one meanwhile, which stays as it is: the
//! owner writes to it no more. Old arrays, which together are smaller than the new one, are freed
//! [at the end of a phase](Deque::free_old), when nobody steals. Size and place of the array are one word, loaded once,
//! checked, then used.
//!
//! | death | what is left | who goes on |
//! | --- | --- | --- |
//! | push: entries written, `bottom` not stored | nothing that anybody sees | whoever takes over the commit pushes again |
//! | pop: noted | the task, also in the deque | anybody |
//! | pop: `bottom` lowered | the task in the running slot; `bottom` may be below `top` by one | anybody; the next owner mends `bottom` |
//! | steal: noted, or `top` swapped | the task in the thief's running slot | anybody |
//! | growth: allocated, copied | an array in the cell of the next size | the next growth uses it |

use crate::EngineError;
use crate::descriptor::damaged;
use crate::slot::Slot;
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// Where a push may be cut short.
    pub enum PushPoint for "deque.push" {
        /// An entry is written beyond the bottom.
        Written,
        /// The bottom is raised.
        Pushed,
    }
}

outlive::memory::crash_points! {
    /// Where a pop may be cut short.
    pub enum PopPoint for "deque.pop" {
        /// The task is noted; it is in the deque still.
        Noted,
        /// The bottom is lowered.
        Lowered,
        /// It was the last one, and the top is raised.
        Raced,
        /// The bottom is where the top is.
        Mended,
    }
}

outlive::memory::crash_points! {
    /// Where a steal may be cut short.
    pub enum StealPoint for "deque.steal" {
        /// The task is noted; it is in the deque still.
        Noted,
        /// It is not.
        Stolen,
    }
}

outlive::memory::crash_points! {
    /// Where the growth of a deque may be cut short.
    pub enum GrowPoint for "deque.grow" {
        /// The new array is in its cell.
        Allocated,
        /// It has all entries.
        Copied,
        /// It is the buffer.
        Replaced,
        /// An old one is free.
        Freed,
    }
}

/// An array of entries, as the word `buffer` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    at: Offset,
    log2: u32,
}

impl Array {
    /// How many sizes there are: 2^0 to 2^31 entries.
    pub(crate) const SIZES: u32 = 32;
    /// The logarithm of the smallest size.
    pub(crate) const SMALLEST: u32 = 1;

    fn to_word(self) -> u64 {
        // Blocks of the heap are aligned to 16.
        self.at.raw() >> 4 << 8 | u64::from(self.log2)
    }

    fn bytes(log2: u32) -> u64 {
        8 << log2
    }

    /// The array that `word`, found at `from`, names; `None` if it names none.
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

/// What came of an attempt to steal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stolen {
    /// There was nothing.
    Nothing,
    /// Somebody was quicker; there may be more.
    Lost,
    /// This word: an entry, which is noted in the thief's running slot, and in the deque no more.
    Entry(u64),
}

/// Steals from the deque of `victim`, whoever owns it or not, for the owner of `thief`. Lock-free: if it has
/// [lost](Stolen::Lost), another has won.
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
    // Acquire: `bottom` may be an older one than the array, whose entries then come with it.
    let word: u64 = memory.load(victim.buffer_at(), Ordering::Acquire);
    let array = Array::checked(memory, victim.buffer_at(), word)?;
    // Relaxed: came with `bottom` or the array.
    let entry: u64 = memory.load(array.entry(top), Ordering::Relaxed);
    // Relaxed: the owner that made the array had read a `top` before, and an older one is not read here. So if it is
    // still the same, the entry was in the deque when the array was made, or came later: it is one. Without this, a
    // slow thief would note what stood in that memory before it was an array, and might die with that.
    if memory.load::<u64>(victim.top_at(), Ordering::Relaxed) != top {
        return Ok(Stolen::Lost);
    }
    thief.note(entry);
    memory.crash_point(StealPoint::Noted);
    // Release: after the note, and after the entry was read, which the owner may then write over.
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

/// Wrong: steals, and notes it afterwards. For the proofs that see it.
pub(crate) fn steal_and_note<M: Memory>(
    memory: M,
    victim: Slot<M>,
    thief: Slot<M>,
) -> Result<Option<u64>, EngineError> {
    let top: u64 = memory.load(victim.top_at(), Ordering::Relaxed);
    memory.fence(Ordering::SeqCst);
    let bottom: u64 = memory.load(victim.bottom_at(), Ordering::Acquire);
    if top.wrapping_sub(bottom) as i64 >= 0 {
        return Ok(None);
    }
    let word: u64 = memory.load(victim.buffer_at(), Ordering::Acquire);
    let array = Array::checked(memory, victim.buffer_at(), word)?;
    let entry: u64 = memory.load(array.entry(top), Ordering::Relaxed);
    let order = (Ordering::Release, Ordering::Relaxed);
    let swap = memory.compare_exchange(victim.top_at(), top, top + 1, order.0, order.1);
    if swap.is_err() {
        return Ok(None);
    }
    thief.note(entry);
    Ok(Some(entry))
}

/// The owner's side of a deque.
///
/// What it keeps for itself stands in the slot too: the next owner goes on from there.
#[derive(Debug)]
pub struct Deque<M: Memory = Native> {
    memory: M,
    slot: Slot<M>,
    array: Array,
    /// As in the slot, but between the steps of a pop.
    bottom: u64,
    /// An entry is written up to here, and not published.
    end: u64,
    /// A `top` that was read once: the present one is not below.
    top: u64,
}

impl<M: Memory> Deque<M> {
    /// Goes on with the deque of `slot`, as its new owner; with an array of `1 << smallest` entries if it has none yet.
    ///
    /// # Errors
    /// If there is no room for an array, or the deque is damaged.
    ///
    /// # Crash
    /// The next owner goes on.
    pub fn adopt(
        slot: Slot<M>,
        heap: &LocalHeap<'_, M>,
        smallest: u32,
    ) -> Result<Self, EngineError> {
        let memory = heap.memory();
        // Relaxed, as all words of the slot here: acquired with the claim.
        let load = |at| memory.load::<u64>(at, Ordering::Relaxed);
        // Acquire: `top` is the thieves', and only grows; an entry that one of them has left may be written over.
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

    /// The array of that size: one that was left in its cell, or a new one.
    fn array_of(
        memory: M,
        slot: Slot<M>,
        heap: &LocalHeap<'_, M>,
        log2: u32,
    ) -> Result<Array, EngineError> {
        let cell = slot.array_at(log2);
        let at = match memory.load::<u64>(cell, Ordering::Relaxed) {
            0 => heap.allocate_into(Array::bytes(log2), cell)?,
            left => crate::slot::check_block(memory, cell, left, Array::bytes(log2), "array")?,
        };
        memory.crash_point(GrowPoint::Allocated);
        Ok(Array { at, log2 })
    }

    /// How many entries there are, about.
    #[inline]
    pub fn len(&self) -> u64 {
        let top: u64 = self.memory.load(self.slot.top_at(), Ordering::Relaxed);
        (self.bottom.wrapping_sub(top) as i64).max(0) as u64
    }

    /// Whether there is none, about.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sees to it that `more` entries can be put without growth.
    ///
    /// # Errors
    /// If there is no room; nothing is changed then.
    #[inline]
    pub fn reserve(&mut self, heap: &LocalHeap<'_, M>, more: u64) -> Result<(), EngineError> {
        while self.end.wrapping_add(more).wrapping_sub(self.top) > self.array.capacity() {
            // Acquire: the thieves have read the entries that are written over.
            let top: u64 = self.memory.load(self.slot.top_at(), Ordering::Acquire);
            if top == self.top {
                self.grow(heap)?;
            }
            self.top = top;
        }
        Ok(())
    }

    /// Writes an entry behind the last one. Nobody sees it before [`publish`](Self::publish).
    ///
    /// # Errors
    /// If the deque has to grow and there is no room; nothing is changed then.
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

    /// Publishes what was put, by one store.
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

    /// Takes the entry that was pushed last, and has it noted in the running slot. Wait-free.
    ///
    /// # Crash
    /// The task is in the deque, or in the running slot, or in both.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<u64> {
        debug_assert_eq!(self.bottom, self.end, "what was put is published");
        let (memory, slot) = (self.memory, self.slot);
        // Relaxed: an older `top` shows more than there is, and that is looked into below.
        let top: u64 = memory.load(slot.top_at(), Ordering::Relaxed);
        if top.wrapping_sub(self.bottom) as i64 >= 0 {
            return None;
        }
        let bottom = self.bottom.wrapping_sub(1);
        // Relaxed: the owner's own.
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

    /// The last entry, or none any more: thieves have come by.
    #[inline(never)]
    fn pop_last(&mut self, top: u64, left: i64, entry: u64) -> Option<u64> {
        let (memory, slot) = (self.memory, self.slot);
        // Relaxed: nothing is published, nothing read that rests on it.
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let won = left == 0 && {
            let next = top.wrapping_add(1);
            let won = memory.compare_exchange(slot.top_at(), top, next, order.0, order.1);
            memory.crash_point(PopPoint::Raced);
            won.is_ok()
        };
        // Release: as all stores of `bottom`.
        memory.store(slot.bottom_at(), self.bottom, Ordering::Release);
        memory.crash_point(PopPoint::Mended);
        won.then_some(entry)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, heap: &LocalHeap<'_, M>) -> Result<(), EngineError> {
        let (memory, old) = (self.memory, self.array);
        let new = Self::array_of(memory, self.slot, heap, old.log2 + 1)?;
        let mut index = self.top;
        while index != self.end {
            // Relaxed: the owner's own; published below.
            let entry: u64 = memory.load(old.entry(index), Ordering::Relaxed);
            memory.store(new.entry(index), entry, Ordering::Relaxed);
            index = index.wrapping_add(1);
        }
        memory.crash_point(GrowPoint::Copied);
        // Release: its entries, for a thief that has an older `bottom`.
        memory.store(self.slot.buffer_at(), new.to_word(), Ordering::Release);
        memory.crash_point(GrowPoint::Replaced);
        self.array = new;
        Ok(())
    }

    /// Frees the arrays that the deque has grown out of. For when nobody steals that began before it last grew: at the
    /// end of a phase.
    ///
    /// # Errors
    /// If one cannot be freed.
    ///
    /// # Crash
    /// An array is free or in its cell.
    pub fn free_old(&mut self, heap: &LocalHeap<'_, M>) -> Result<(), EngineError> {
        for log2 in Array::SMALLEST..Array::SIZES {
            let cell = self.slot.array_at(log2);
            // Relaxed: the owner's own.
            if log2 != self.array.log2 && self.memory.load::<u64>(cell, Ordering::Relaxed) != 0 {
                heap.free_from(cell, 0)?;
                self.memory.crash_point(GrowPoint::Freed);
            }
        }
        Ok(())
    }
}

/// The blocks of the arrays of `slot`: for checks of the heap.
pub(crate) fn arrays_of<M: Memory>(memory: M, slot: Slot<M>) -> impl Iterator<Item = Offset> {
    (Array::SMALLEST..Array::SIZES)
        .map(move |log2| memory.load::<u64>(slot.array_at(log2), Ordering::Acquire))
        .filter(|array| *array != 0)
        .map(Offset::from_raw)
}
