//! The block of an object.
//!
//! ```text
//!    0  header of reclamation
//!   24  state: unlinked, live, being renamed, or claimed
//!   32  magic | class
//!   40  bytes of the contents | bytes of the type's description
//!   56  fingerprint of the type | number of the object
//!   72  version of the name; its lowest bit selects one of the two names
//!   80  two names: each a length (8 bytes), then 256 bytes for at most 255 of text
//!  608  contents (aligned to 16), then the type's description (aligned to 8)
//! ```
//!
//! Everything is written before the block is leased, with zeroed contents and an empty second name.
//! Afterwards only these change: the state, the version, the name that the version does not select,
//! and the contents.

use super::ObjectError;
use super::error::MOST_NAME;
use super::object::{Class, Object};
use crate::heap::LocalHeap;
use crate::recovery::kinds::PendingAllocation;
use crate::structures::{allocate_pending, entries_of};
use outlive_memory::{Memory, Offset, Ordering};

/// The pending-allocation cell of objects, of the directory, and of blocks of leases.
pub(super) const PENDING_CELL: u64 = PendingAllocation::Object as u64;

const STATE: u64 = 24;
const CLASS: u64 = 32;
const CONTENT_BYTES: u64 = 40;
const TYPE_BYTES: u64 = 48;
const FINGERPRINT: u64 = 56;
const NUMBER: u64 = 64;
const VERSION: u64 = 72;
const NAMES: u64 = 80;
const NAME: u64 = 8 + 256;
const CONTENTS: u64 = NAMES + 2 * NAME;
const MAGIC: u64 = u64::from_le_bytes(*b"outobj\0\0");
/// The class is in the highest byte of its word.
const CLASS_SHIFT: u32 = 56;

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The object has no name (not yet, or no longer), and no slot has claimed it.
    Unlinked,
    /// It has the name that this version selects, or is about to get its first.
    Live(u64),
    /// The owner of this slot, which leases it, renames or unlinks the object.
    NameLocked(Offset),
    /// The owner of this slot, which leased it, destroys it.
    Claimed(Offset),
}

impl State {
    const UNLINKED: u64 = 1;

    fn to_word(self) -> u64 {
        match self {
            Self::Unlinked => Self::UNLINKED,
            Self::Live(version) => version << 2 | 2,
            Self::NameLocked(slot) => slot.raw() << 2,
            Self::Claimed(slot) => slot.raw() << 2 | 3,
        }
    }

    fn of_word(word: u64) -> Option<Self> {
        Some(match word & 3 {
            2 => Self::Live(word >> 2),
            3 => Self::Claimed(Offset::from_raw(word >> 2)),
            0 if word != 0 => Self::NameLocked(Offset::from_raw(word >> 2)),
            _ if word == Self::UNLINKED => Self::Unlinked,
            _ => return None,
        })
    }

    /// Returns whether the object can be leased: a lease that was stored before this state was read
    /// is valid.
    pub fn can_be_leased(self) -> bool {
        matches!(self, Self::Live(_) | Self::NameLocked(_))
    }
}

/// An object's block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<M: Memory> {
    memory: M,
    at: Offset,
}

/// Clears the pending-allocation cell.
pub(super) fn clear_pending<M: Memory>(heap: &LocalHeap<'_, M>) {
    let (memory, pending) = (heap.memory(), heap.pending_cell(PENDING_CELL));
    // Release: another word leads to the block.
    memory.store(pending, 0u64, Ordering::Release);
    memory.persist(pending, 8);
}

impl<M: Memory> Record<M> {
    /// Allocates the block of an object into the pending-allocation cell, and describes the object,
    /// unlinked and with zeroed contents.
    pub fn describe<T: Object<M>>(
        heap: &LocalHeap<'_, M>,
        name: &str,
        number: u64,
        content_bytes: u64,
    ) -> Result<Self, ObjectError> {
        let (memory, of) = (heap.memory(), T::describe());
        let padded = content_bytes.checked_next_multiple_of(8);
        let bytes = padded.and_then(|padded| padded.checked_add(CONTENTS + of.len() as u64 + 8));
        // On overflow the size saturates, and the heap refuses it.
        let bytes = bytes.unwrap_or(u64::MAX);
        let at = allocate_pending(heap, bytes, PENDING_CELL)?;
        let this = Self { memory, at };
        // The contents are zeroed first: a block that was used before may have the contents of
        // another object, and a member that reads them without a lease would find that object. See
        // `Directory::contents_at`.
        let mut done = 0;
        while done < content_bytes {
            let part = (content_bytes - done).min(ZEROS.len() as u64);
            memory.copy_in(at + CONTENTS + done, &ZEROS[..part as usize]);
            done += part;
        }
        let words = [
            (0, heap.era()),
            (STATE, State::Unlinked.to_word()),
            (CLASS, MAGIC | (T::CLASS as u64) << CLASS_SHIFT),
            (CONTENT_BYTES, content_bytes),
            (TYPE_BYTES, of.len() as u64),
            (FINGERPRINT, T::fingerprint()),
            (NUMBER, number),
            (VERSION, 0),
            (NAMES + NAME, 0),
        ];
        for (place, word) in words {
            // Relaxed: the lease, and the insertion into the map, publish it.
            memory.store(at + place, word, Ordering::Relaxed);
        }
        this.write_name(0, name);
        memory.copy_in(this.type_at(), of.as_bytes());
        memory.persist(at, bytes);
        Ok(this)
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
        let sound = this.word(CLASS) << 8 >> 8 == MAGIC
            && this.class().is_some()
            && this.extent().is_some();
        match sound {
            true => Ok(this),
            false => Err(damaged("it is not the block of an object")),
        }
    }

    /// Returns the object whose contents are at `at`, if one is there.
    pub fn with_contents(memory: M, at: Offset) -> Option<Self> {
        Self::checked(memory, at.raw().checked_sub(CONTENTS)?).ok()
    }

    pub fn at(self) -> Offset {
        self.at
    }

    fn word(self, at: u64) -> u64 {
        // Relaxed: written before the object was linked.
        self.memory.load(self.at + at, Ordering::Relaxed)
    }

    /// Returns the object's state (acquire); `None` if it is damaged.
    pub fn state(self) -> Option<State> {
        State::of_word(self.memory.load(self.at + STATE, Ordering::Acquire))
    }

    /// Sets the state, for the only member that may change it.
    pub fn set_state(self, state: State) {
        let at = self.at + STATE;
        // Release: the contents are made, the name is changed.
        self.memory.store(at, state.to_word(), Ordering::Release);
        self.memory.persist(at, 8);
    }

    /// Changes the state from `before` to `after`. Returns whether the state was `before`.
    pub fn change_state(self, before: State, after: State) -> bool {
        let at = self.at + STATE;
        let (before, after) = (before.to_word(), after.to_word());
        // AcqRel: a claimant sees the uses of all before it.
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let changed = (self.memory).compare_exchange(at, before, after, order.0, order.1);
        self.memory.persist(at, 8);
        changed.is_ok()
    }

    pub fn class(self) -> Option<Class> {
        Class::from_number((self.word(CLASS) >> CLASS_SHIFT) as u8)
    }

    /// Returns the fingerprint of the object's type.
    pub fn fingerprint(self) -> u64 {
        self.word(FINGERPRINT)
    }

    /// Returns the number that no other object of the directory has had.
    pub fn number(self) -> u64 {
        self.word(NUMBER)
    }

    pub fn content_bytes(self) -> u64 {
        self.word(CONTENT_BYTES)
    }

    pub fn contents(self) -> Offset {
        self.at + CONTENTS
    }

    fn type_at(self) -> Offset {
        self.contents() + self.content_bytes().next_multiple_of(8)
    }

    /// Returns the sizes in bytes of the object's contents and of its type's description, each
    /// loaded once. Returns `None` if they are not inside the memory, or the contents of a
    /// structure have no [first word](Self::first_word).
    pub fn extent(self) -> Option<(u64, u64)> {
        let (contents, kind) = (self.word(CONTENT_BYTES), self.word(TYPE_BYTES));
        if contents < 8 && self.class() == Some(Class::Structure) {
            return None;
        }
        let bytes = contents.checked_next_multiple_of(8)?.checked_add(kind)?;
        let bytes = bytes.checked_add(CONTENTS)?;
        let inside = Offset::checked(self.at.raw(), bytes, 8, self.memory.size());
        inside.ok().map(|_| (contents, kind))
    }

    pub fn damaged(self, what: &'static str) -> ObjectError {
        ObjectError::Damaged { at: self.at, what }
    }

    /// Returns the object's type, in words.
    pub fn kind(self) -> Result<String, ObjectError> {
        let Some((contents, bytes)) = self.extent() else {
            return Err(self.damaged("its sizes are wrong"));
        };
        let mut text = vec![0; bytes as usize];
        let at = self.contents() + contents.next_multiple_of(8);
        self.memory.copy_out(at, &mut text);
        String::from_utf8(text).map_err(|_| self.damaged("its type is not UTF-8"))
    }

    /// Returns the approximate number of entries of a structure, and `None` for other objects.
    pub fn entries(self) -> Result<Option<u64>, ObjectError> {
        if self.class() != Some(Class::Structure) {
            return Ok(None);
        }
        let header = Offset::from_raw(self.first_word());
        Ok(Some(entries_of(self.memory, header)?))
    }

    /// Returns the first word of the object's contents, which have at least 8 bytes: for a
    /// structure, the offset of its header.
    pub fn first_word(self) -> u64 {
        // Acquire: the structure was created before the object was linked.
        self.memory.load(self.contents(), Ordering::Acquire)
    }

    /// Returns the version of the object's name (acquire).
    pub fn version(self) -> u64 {
        self.memory.load(self.at + VERSION, Ordering::Acquire)
    }

    /// Raises the version to `version`, which makes the other name the object's name. Only for its
    /// renamer.
    pub fn set_version(self, version: u64) {
        // Release: the name is written, and the map leads from it to the object.
        self.memory
            .store(self.at + VERSION, version, Ordering::Release);
        self.memory.persist(self.at + VERSION, 8);
    }

    fn name_at(self, version: u64) -> Offset {
        self.at + NAMES + (version & 1) * NAME
    }

    /// Writes the name that `version` selects, for the creator or the renamer.
    pub fn write_name(self, version: u64, name: &str) {
        let (memory, at) = (self.memory, self.name_at(version));
        // Release: a reader that reads any byte of this name under an older version with the same
        // lowest bit finds a newer version when it checks again.
        memory.fence(Ordering::Release);
        memory.store(at, name.len() as u64, Ordering::Relaxed);
        memory.copy_in(at + 8, name.as_bytes());
        memory.persist(at, NAME);
    }

    /// Reads the name that `version` selects. Returns its length. The bytes may be torn if a
    /// renamer writes them at the same time; the caller checks the version again.
    fn read_name(self, version: u64, into: &mut [u8; MOST_NAME]) -> Option<usize> {
        let at = self.name_at(version);
        let len: u64 = self.memory.load(at, Ordering::Relaxed);
        let len = usize::try_from(len).ok().filter(|len| *len <= MOST_NAME)?;
        self.memory.copy_out(at + 8, &mut into[..len]);
        Some(len)
    }

    /// Calls `with` with the bytes of its name and its version; `None` for a name that is damaged.
    fn with_name<R>(self, with: impl Fn(Option<&[u8]>, u64) -> R) -> R {
        let mut bytes = [0; MOST_NAME];
        let mut version = self.version();
        for _ in 0..MOST_RENAMES {
            let len = self.read_name(version, &mut bytes);
            // Acquire: after the reads of the name.
            self.memory.fence(Ordering::Acquire);
            // Relaxed: the fence orders it.
            let now: u64 = self.memory.load(self.at + VERSION, Ordering::Relaxed);
            if now == version {
                return with(len.map(|len| &bytes[..len]), version);
            }
            self.memory.spin_hint();
            version = self.version();
        }
        with(None, version)
    }

    /// Returns the object's name, and the version of the name.
    pub fn name(self) -> Result<(String, u64), ObjectError> {
        self.with_name(|bytes, version| {
            let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
            match text {
                Some(text) => Ok((text.to_owned(), version)),
                None => Err(self.damaged("its name is too long, or not UTF-8")),
            }
        })
    }

    /// Returns whether `name` is the object's name.
    pub fn is_named(self, name: &str) -> Result<bool, ObjectError> {
        self.with_name(|bytes, _| match bytes {
            Some(bytes) => Ok(bytes == name.as_bytes()),
            None => Err(self.damaged("its name is too long")),
        })
    }

    /// Returns the name that `version` does not select: one that it had before, or was to have;
    /// `None` if it is not a text. For its renamer.
    pub fn other_name(self, version: u64) -> Option<String> {
        let mut bytes = [0; MOST_NAME];
        let len = self.read_name(version ^ 1, &mut bytes)?;
        String::from_utf8(bytes[..len].to_vec()).ok()
    }
}

const ZEROS: [u8; 1024] = [0; 1024];

/// The number of renamings during which a name is read again. More come only from a block that is
/// no object any more.
const MOST_RENAMES: u32 = 1 << 16;
