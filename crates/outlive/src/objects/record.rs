//! The block of an object.
//!
//! ```text
//!   0  header of reclamation
//!  24  state: unlinked, live, or the slot that has claimed it
//!  32  magic | class
//!  40  sizes: of the contents, of the name and of the type
//!  64  fingerprint of the type
//!  80  contents, then name, then type, each aligned to 8 bytes
//! ```
//!
//! All but the header of reclamation, the state and the contents is written before the block is
//! leased, and does not change.

use super::ObjectError;
use super::object::{Class, Object};
use crate::heap::LocalHeap;
use crate::recovery::kinds::PendingAllocation;
use crate::structures::take_into_hand;
use outlive_memory::{Memory, Offset, Ordering};

/// The pending-allocation cell of objects, of the directory, and of blocks of leases.
pub(super) const HAND: u64 = PendingAllocation::Object as u64;

const STATE: u64 = 24;
const CLASS: u64 = 32;
const SIZES: u64 = 40;
const FINGERPRINT: u64 = 64;
const CONTENTS: u64 = 80;
const MAGIC: u64 = u64::from_le_bytes(*b"outobj\0\0");
/// The class is in the highest byte of its word.
const CLASS_SHIFT: u32 = 56;

/// The object is not linked, or not yet, and no slot has claimed it.
pub(super) const UNLINKED: u64 = 1;
/// The object is linked, about to be linked, or its entry was just removed.
pub(super) const LIVE: u64 = 2;

/// Returns the state of an object that `slot` has claimed.
pub(super) fn claimed(slot: Offset) -> u64 {
    slot.raw() << 2 | 3
}

/// An object's block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<M: Memory> {
    memory: M,
    at: Offset,
}

/// Clears the pending-allocation cell.
pub(super) fn clear_hand<M: Memory>(heap: &LocalHeap<'_, M>) {
    let (memory, hand) = (heap.memory(), heap.hand(HAND));
    // Release: another word leads to the block.
    memory.store(hand, 0u64, Ordering::Release);
    memory.persist(hand, 8);
}

impl<M: Memory> Record<M> {
    /// Allocates the block of an object into the pending-allocation cell, and describes the object,
    /// unlinked and with zeroed contents.
    pub fn describe<T: Object<M>>(
        heap: &LocalHeap<'_, M>,
        name: &str,
    ) -> Result<Self, ObjectError> {
        let (memory, of) = (heap.memory(), T::describe());
        let contents = T::BYTES.next_multiple_of(8);
        let [name_bytes, of_bytes] = [name, &of].map(|text| text.len().next_multiple_of(8));
        let bytes = CONTENTS + contents + (name_bytes + of_bytes) as u64;
        let at = take_into_hand(heap, bytes, HAND)?;
        let mut block = vec![0u8; bytes as usize];
        let mut put = |at: u64, word: u64| {
            block[at as usize..][..8].copy_from_slice(&word.to_ne_bytes());
        };
        put(0, heap.era());
        put(STATE, UNLINKED);
        put(CLASS, MAGIC | (T::CLASS as u64) << CLASS_SHIFT);
        put(SIZES, T::BYTES);
        put(SIZES + 8, name.len() as u64);
        put(SIZES + 16, of.len() as u64);
        put(FINGERPRINT, T::fingerprint());
        let text = (CONTENTS + contents) as usize;
        block[text..][..name.len()].copy_from_slice(name.as_bytes());
        block[text + name_bytes..][..of.len()].copy_from_slice(of.as_bytes());
        memory.copy_in(at, &block);
        memory.persist(at, bytes);
        Ok(Self { memory, at })
    }

    /// Returns the object at `at`, which was described there.
    pub fn of(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    /// Returns the object at `at`, a value of the map or of a slot.
    pub fn checked(memory: M, at: u64) -> Result<Self, ObjectError> {
        let damaged = |what| ObjectError::Damaged {
            at: Offset::from_raw(at),
            what,
        };
        let place = Offset::checked(at, CONTENTS, 16, memory.size());
        let this = Self::of(
            memory,
            place.map_err(|_| damaged("no object can be there"))?,
        );
        let sound =
            this.word(CLASS) << 8 >> 8 == MAGIC && this.class().is_some() && this.bytes().is_some();
        match sound {
            true => Ok(this),
            false => Err(damaged("it is not the block of an object")),
        }
    }

    pub fn at(self) -> Offset {
        self.at
    }

    fn word(self, at: u64) -> u64 {
        // Relaxed: written before the block was leased.
        self.memory.load(self.at + at, Ordering::Relaxed)
    }

    /// Returns its state (acquire).
    pub fn state(self) -> u64 {
        self.memory.load(self.at + STATE, Ordering::Acquire)
    }

    /// Sets the state of an object that no other member knows, or that is about to be linked.
    pub fn set_state(self, state: u64) {
        // Release: the contents are made.
        self.memory.store(self.at + STATE, state, Ordering::Release);
        self.memory.persist(self.at + STATE, 8);
    }

    /// Changes the state from `before`; returns the state that it has then.
    pub fn change_state(self, before: u64, after: u64) -> u64 {
        // AcqRel: a claimant sees the uses of all before it.
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let at = self.at + STATE;
        let changed = (self.memory).compare_exchange(at, before, after, order.0, order.1);
        self.memory.persist(at, 8);
        changed.map_or_else(|other| other, |_| after)
    }

    /// Changes live to unlinked; returns the state after that.
    pub fn unlink(self) -> u64 {
        self.change_state(LIVE, UNLINKED)
    }

    pub fn class(self) -> Option<Class> {
        Class::from_number((self.word(CLASS) >> CLASS_SHIFT) as u8)
    }

    /// Returns whether it is a `T`, but for its description.
    pub fn has_form_of<T: Object<M>>(self) -> bool {
        self.content_bytes() == T::BYTES && self.word(FINGERPRINT) == T::fingerprint()
    }

    fn content_bytes(self) -> u64 {
        self.word(SIZES)
    }

    pub fn contents(self) -> Offset {
        self.at + CONTENTS
    }

    /// Returns the number of its bytes, if it is inside the memory.
    fn bytes(self) -> Option<u64> {
        let mut bytes = CONTENTS;
        for size in [0, 8, 16] {
            let part = self.word(SIZES + size).checked_next_multiple_of(8)?;
            bytes = bytes.checked_add(part)?;
        }
        let inside = Offset::checked(self.at.raw(), bytes, 8, self.memory.size());
        inside.ok().map(|_| bytes)
    }

    fn text(self, from: u64, len: u64) -> Result<String, ObjectError> {
        let damaged = |what| ObjectError::Damaged { at: self.at, what };
        self.bytes().ok_or_else(|| damaged("its sizes are wrong"))?;
        // In range, as are the sizes.
        let at = self.contents() + self.content_bytes().next_multiple_of(8) + from;
        let mut text = vec![0; len as usize];
        self.memory.copy_out(at, &mut text);
        String::from_utf8(text).map_err(|_| damaged("a text is not UTF-8"))
    }

    /// Returns its name.
    pub fn name(self) -> Result<String, ObjectError> {
        self.text(0, self.word(SIZES + 8))
    }

    /// Returns its type, in words.
    pub fn kind(self) -> Result<String, ObjectError> {
        self.bytes().ok_or(ObjectError::Damaged {
            at: self.at,
            what: "its sizes are wrong",
        })?;
        let name = self.word(SIZES + 8).next_multiple_of(8);
        self.text(name, self.word(SIZES + 16))
    }
}
