//! The directory: where the names and the leases of a pod begin.
//!
//! ```text
//!   0  cell of the map from names to objects | magic | number of ids | number of the next object
//!  64  for each id, a word that leads to its first block of leases
//! ```
//!
//! It is created once, by compare-and-swap of the heap's root word, and stays, as do blocks of
//! leases: the next incarnation of an id uses them again. Only the current incarnation of an id, or
//! the member that recovers it, writes to its leases.

use super::record::{PENDING_CELL, Record, State, clear_pending};
use super::{Contents, Object, ObjectError};
use crate::heap::{Heap, LocalHeap};
use crate::membership::InstanceId;
use crate::structures::{Map, allocate_pending};
use outlive_memory::{Memory, Native, Offset, Ordering, crash_points};
use std::collections::BTreeSet;

const MAGIC_AT: u64 = 8;
const IDS: u64 = 16;
const NEXT_NUMBER: u64 = 24;
const LEASES: u64 = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"outdirec");

/// The bytes of a block of leases: a link to the next, and slots.
pub(super) const BLOCK: u64 = 256;
/// The tags of a slot: its lease is being given up; its object is being retired.
pub(super) const GIVEN_UP: u64 = 1;
pub(super) const RETIRING: u64 = 2;
pub(super) const TAGS: u64 = 3;

crash_points! {
    /// The crash points of the creation of the directory.
    pub enum DirectoryPoint for "objects.directory" {
        /// The directory is written; the pending-allocation cell leads to it.
        Filled,
        /// The heap's root word leads to the directory.
        Published,
    }
}

/// The directory of a pod's named objects.
#[derive(Clone, Copy, Debug)]
pub struct Directory<M: Memory = Native> {
    memory: M,
    at: Offset,
    ids: u32,
    names: Map<str, u64, M>,
}

impl<M: Memory> Directory<M> {
    /// Opens the directory of a heap, or creates it. One of several concurrent callers creates it.
    ///
    /// # Errors
    /// If it is damaged, or there is no memory.
    ///
    /// # Crash
    /// The directory exists, or not; nothing leaks.
    pub fn open_or_create(heap: &LocalHeap<'_, M>) -> Result<Self, ObjectError> {
        let (memory, root) = (heap.memory(), heap.heap().root());
        if memory.load::<u64>(root, Ordering::Acquire) == 0 {
            let ids = heap.logs().capacity();
            let bytes = LEASES + u64::from(ids) * 8;
            let at = allocate_pending(heap, bytes, PENDING_CELL)?;
            memory.copy_in(at, &vec![0; bytes as usize]);
            memory.store(at + MAGIC_AT, MAGIC, Ordering::Relaxed);
            memory.store(at + IDS, u64::from(ids), Ordering::Relaxed);
            memory.persist(at, bytes);
            memory.crash_point(DirectoryPoint::Filled);
            // Release: it is written.
            let order = (Ordering::Release, Ordering::Acquire);
            match memory.compare_exchange(root, 0, at.raw(), order.0, order.1) {
                Ok(_) => {
                    memory.persist(root, 8);
                    memory.crash_point(DirectoryPoint::Published);
                    clear_pending(heap);
                }
                Err(_) => drop(heap.free_or_owe(heap.pending_cell(PENDING_CELL), 0)?),
            }
        }
        let at = Self::place(heap.heap())?.ok_or(ObjectError::Damaged {
            at: root,
            what: "the root word of the heap has become 0",
        })?;
        Map::<str, u64, M>::open_or_create(heap, at)?;
        Self::open(heap.heap())?.ok_or(ObjectError::Damaged {
            at,
            what: "the map of names is gone",
        })
    }

    /// Opens the directory of a heap. Returns `None` if the heap has no directory, or the directory
    /// has no map of names yet.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn open(heap: Heap<M>) -> Result<Option<Self>, ObjectError> {
        let memory = heap.memory();
        let Some(at) = Self::place(heap)? else {
            return Ok(None);
        };
        let names: u64 = memory.load(at, Ordering::Acquire);
        if names == 0 {
            return Ok(None);
        }
        Ok(Some(Self {
            memory,
            at,
            ids: memory.load::<u64>(at + IDS, Ordering::Relaxed) as u32,
            names: Map::open(memory, Offset::from_raw(names))?,
        }))
    }

    /// Returns the contents at `at` of an object with the fingerprint of `T`; `None` if no such
    /// object is there, or it is being destroyed. A program that stores the place of an object
    /// beside the memory that the object owns checks in this way whether the object still exists.
    ///
    /// The caller needs no handle, so the object may be destroyed, and its block be used for
    /// others, during the call and afterwards. But as long as an object exists at `at`, this
    /// returns its contents. So the caller compares them with a value that only the contents of its
    /// object can have.
    pub fn contents_at<T: Object<M>>(&self, at: Offset) -> Option<Contents<M>> {
        let record = Record::with_contents(self.memory, at)?;
        let exists = { record.state() }.is_some_and(|it| !matches!(it, State::Claimed(_)));
        let is_of_type = record.fingerprint() == T::fingerprint();
        (exists && is_of_type).then(|| Contents {
            memory: self.memory,
            at,
            bytes: record.content_bytes(),
        })
    }

    fn place(heap: Heap<M>) -> Result<Option<Offset>, ObjectError> {
        let (memory, root) = (heap.memory(), heap.root());
        let word: u64 = memory.load(root, Ordering::Acquire);
        if word == 0 {
            return Ok(None);
        }
        let damaged = |what| ObjectError::Damaged {
            at: Offset::from_raw(word),
            what,
        };
        let at = Offset::checked(word, LEASES, 16, memory.size());
        let at = at.map_err(|_| damaged("no directory can be there"))?;
        if memory.load::<u64>(at + MAGIC_AT, Ordering::Relaxed) != MAGIC {
            return Err(damaged("there is no directory"));
        }
        let ids: u64 = memory.load(at + IDS, Ordering::Relaxed);
        let bytes = ids
            .checked_mul(8)
            .and_then(|bytes| bytes.checked_add(LEASES));
        let inside = bytes.map(|bytes| Offset::checked(word, bytes, 16, memory.size()));
        match inside {
            Some(Ok(at)) if ids <= 1 << 16 => Ok(Some(at)),
            _ => Err(damaged("its number of ids is wrong")),
        }
    }

    /// Returns whether it is the directory of `heap`.
    pub(super) fn is_of(&self, heap: Heap<M>) -> bool {
        let root: u64 = heap.memory().load(heap.root(), Ordering::Relaxed);
        root == self.at.raw()
    }

    /// Returns whether a member of `id` has leases.
    pub(crate) fn has_leases(&self, id: InstanceId) -> bool {
        let memory = self.memory;
        self.slots(id)
            .any(|slot| memory.load::<u64>(slot, Ordering::Relaxed) != 0)
    }

    pub(super) fn memory(&self) -> M {
        self.memory
    }

    pub(super) fn ids(&self) -> u32 {
        self.ids
    }

    /// Returns the offset of the map from names to objects.
    pub(super) fn names_at(&self) -> Offset {
        self.names.offset()
    }

    /// Returns the offset of the damaged link to a block of leases of `id`, if there is one. The
    /// link is not zero, and does not lead to a block.
    pub(super) fn bad_link(&self, id: InstanceId) -> Option<Offset> {
        let last = self.links(id).last();
        last.filter(|(_, to)| *to != 0).map(|(at, _)| at)
    }

    /// Returns the map from names to objects.
    pub(super) fn names(&self) -> Map<str, u64, M> {
        self.names
    }

    /// Takes the next object number.
    pub(super) fn next_number(&self) -> u64 {
        let at = self.at + NEXT_NUMBER;
        // Relaxed: only uniqueness matters.
        let number = self.memory.fetch_add(at, 1u64, Ordering::Relaxed);
        self.memory.persist(at, 8);
        number
    }

    /// Returns whether `name` leads to the object at `at`.
    pub(super) fn leads_to(&self, heap: &LocalHeap<'_, M>, name: &str, at: Offset) -> bool {
        self.names.get(heap, name) == Some(at.raw())
    }

    /// Returns the words that lead to blocks of leases of `id`, in their order, each with the value
    /// that it has; the last of them is 0 or damaged.
    fn links(&self, id: InstanceId) -> impl Iterator<Item = (Offset, u64)> + use<M> {
        let memory = self.memory;
        let mut link = (id < self.ids).then(|| self.at + LEASES + u64::from(id) * 8);
        // A damaged chain may be a ring. An anchor, which moves on after 1, 2, 4, ... links, is met
        // again in a ring (Brent).
        let mut anchor = Offset::from_raw(0);
        (1u64..).map_while(move |count| {
            let at = link?;
            if at == anchor {
                return None;
            }
            if count.is_power_of_two() {
                anchor = at;
            }
            // Acquire: the block was cleared before it was linked.
            let block: u64 = memory.load(at, Ordering::Acquire);
            let next = Offset::checked(block, BLOCK, 16, memory.size());
            link = next.ok().filter(|next| !next.is_null());
            Some((at, block))
        })
    }

    /// Returns the slots of `id`.
    pub(super) fn slots(&self, id: InstanceId) -> impl Iterator<Item = Offset> + use<M> {
        // Each block is the place of the link to the one after it.
        let blocks = self.links(id).skip(1).map(|(block, _)| block);
        blocks.flat_map(|block| (1..BLOCK / 8).map(move |slot| block + slot * 8))
    }

    /// Returns the id of the member for each lease of the object at `at` that is not being given
    /// up, except the lease in slot `but`.
    pub(super) fn users(
        &self,
        at: Offset,
        but: Offset,
    ) -> impl Iterator<Item = InstanceId> + use<M> {
        let (memory, this) = (self.memory, *self);
        (0..self.ids).flat_map(move |id| {
            let slots = this.slots(id).filter(move |slot| {
                // Acquire: the uses of a lease that is given up come before.
                *slot != but && memory.load::<u64>(*slot, Ordering::Acquire) == at.raw()
            });
            slots.map(move |_| id)
        })
    }

    /// Returns a free slot of the caller's, in a new block if need be.
    pub(super) fn free_slot(&self, heap: &LocalHeap<'_, M>) -> Result<Offset, ObjectError> {
        let (memory, id) = (self.memory, heap.instance().id);
        // Relaxed: the caller's own words.
        let is_free = |slot: &Offset| memory.load::<u64>(*slot, Ordering::Relaxed) == 0;
        if let Some(slot) = self.slots(id).find(is_free) {
            return Ok(slot);
        }
        let (link, last) = self.links(id).last().ok_or(ObjectError::Damaged {
            at: self.at,
            what: "it has no leases for this member's id",
        })?;
        if last != 0 {
            let what = "no block of leases can be there";
            return Err(ObjectError::Damaged { at: link, what });
        }
        let block = allocate_pending(heap, BLOCK, PENDING_CELL)?;
        memory.copy_in(block, &[0; BLOCK as usize]);
        memory.persist(block, BLOCK);
        memory.crash_point(super::LeasePoint::Filled);
        // Release: it is cleared.
        memory.store(link, block.raw(), Ordering::Release);
        memory.persist(link, 8);
        memory.crash_point(super::LeasePoint::Linked);
        clear_pending(heap);
        Ok(block + 8)
    }

    /// Returns the id whose slot is at `at`, if it is one.
    pub(super) fn holder(&self, at: Offset) -> Option<InstanceId> {
        (0..self.ids).find(|id| self.slots(*id).any(|slot| slot == at))
    }

    /// Returns the blocks of the directory, of the map of names, and of the leases.
    pub(super) fn own_blocks(&self) -> BTreeSet<Offset> {
        let links = (0..self.ids).flat_map(|id| self.links(id));
        let leases = links.filter(|(_, block)| *block != 0);
        let leases = leases.map(|(_, block)| Offset::from_raw(block));
        let own = leases.chain([self.at]);
        own.chain(self.names.blocks()).collect()
    }

    /// Returns the offsets to which slots lead, tagged or not.
    pub(super) fn leased(&self) -> impl Iterator<Item = u64> + use<M> {
        let (memory, this) = (self.memory, *self);
        let slots = (0..self.ids).flat_map(move |id| this.slots(id));
        let words = slots.map(move |slot| memory.load::<u64>(slot, Ordering::Acquire) & !TAGS);
        words.filter(|word| *word != 0)
    }

    /// Returns whether a link to a block of leases of `id`, or one of its slots, leads to `block`.
    pub(super) fn keeps(&self, id: InstanceId, block: u64) -> bool {
        let leased =
            |slot: Offset| self.memory.load::<u64>(slot, Ordering::Relaxed) & !TAGS == block;
        self.links(id).any(|(_, to)| to == block) || self.slots(id).any(leased)
    }
}
