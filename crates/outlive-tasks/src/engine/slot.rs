//! The worker slots: one for each worker that works at the same time.
//!
//! ```text
//!  header:  magic | capacity | size of chunks | smallest array        used: no slot from this number on was ever claimed
//!
//!  slot:    0x000  owner      the worker, and whether it is a guest; or 0           | buffer  the array of its deque
//!           0x080  top        the end of the deque at which other workers steal
//!           0x100  bottom     the end at which the owner pushes and pops
//!           0x180  running    the last task | heartbeat | chunks  the head of a list | fresh  a chunk that is not linked yet
//!           0x200  arrays     a cell for each size of an array
//! ```
//!
//! Words written by different threads are 128 bytes apart. `owner` and `buffer` change rarely and
//! are read by thieves. `top` is mostly written by thieves, and the other words by the owner.
//!
//! # Ownership
//!
//! A compare-and-swap replaces `owner` if it is empty, or an instance that is gone (dead or
//! departed) and whose log was settled *before*: its operations in the heap complete in cells of
//! this slot. So there is one writer at any time, and plain stores suffice for all words but
//! `owner` and `top`. The same word says whether the worker is a *guest*: an additional worker,
//! which does not count toward the number that the pool requests. A claim writes both atomically,
//! so a worker that dies has recorded both or neither. A guest does not claim the slot of a dead
//! worker that was not a guest. A slot is never taken back: its deque and its chunks wait for the
//! next owner, and can be stolen from until then.
//!
//! | death of the owner | state left | continued by |
//! | --- | --- | --- |
//! | after the claim | the predecessor's state | the next owner; any worker, for tasks |
//! | in a task | `running` leads to it, its status to the slot | any worker, by CAS of the status |
//! | task noted, and still in a deque | the task, found twice | the status has one runner |
//! | in a push | unpublished entries; children of a commit | the new holder of the commit |
//! | in a pop | `bottom` one below `top`, or task only noted | next owner repairs; any worker |
//! | while it allocated an array or a chunk | the block is in its cell | the next owner uses it |
//! | with children of a task that was not committed | `New` descriptors in its chunks | the next owner frees them |
//!
//! # Descriptors stay during a commit
//!
//! A worker that commits a task walks the chain of its children, and a worker that takes over the
//! commit walks it again from its head. So the children's descriptors must not get another life
//! before the commit ends. They are in the chunks of the slot of the spawning worker, and only a
//! slot's owner gives descriptors another life. The committing worker does not do so during the
//! commit. The slot of a dead worker gets no new owner while another live worker commits the task
//! in `running` (see [`Engine::claim`](crate::Engine::claim)).

use crate::EngineError;
use crate::engine::deque::Array;
use crate::engine::descriptor::{Task, damaged};
use crate::engine::supply;
use outlive::heap::LocalHeap;
use outlive::membership::{Generations, Instance};
use outlive::memory::{Memory, Native, Offset, Ordering};

/// The first word of the slots. Its last character is the number of their format: 2 since the
/// owner's word says whether it is a guest.
const MAGIC: u64 = u64::from_le_bytes(*b"outtask2");
/// The first word of format 1: its readers would take the word of a guest for another instance.
const FIRST_MAGIC: u64 = u64::from_le_bytes(*b"outtasks");
/// The message for a pool of format 1, which is not opened.
pub(crate) const OF_FORMAT_1: &str = "it has format 1, but this Outlive reads format 2: \
    finish its jobs with the program that began them, and create the pool again";
const CAPACITY: u64 = 0x08;
const CHUNK: u64 = 0x10;
const SMALLEST: u64 = 0x18;
const USED: u64 = 0x80;
const FIRST: u64 = 0x100;

const OWNER: u64 = 0x000;
const BUFFER: u64 = 0x008;
const TOP: u64 = 0x080;
const BOTTOM: u64 = 0x100;
const RUNNING: u64 = 0x180;
const HEARTBEAT: u64 = 0x188;
const CHUNKS: u64 = 0x190;
const FRESH: u64 = 0x198;
const ARRAYS: u64 = 0x200;
const STRIDE: u64 = 0x300;

/// In an owner's word: the owner is a guest. No instance has that bit: ids are below 2^16.
const GUEST: u64 = 1 << 31;
const _: () = assert!((Generations::<Native>::MOST as u64) <= GUEST);

/// The parameters of a pool's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The maximum number of workers at a time.
    pub capacity: u32,
    /// The size of a chunk of descriptors in bytes: a power of two.
    pub chunk: u64,
    /// The logarithm of the number of entries in a deque's first array.
    pub smallest: u32,
}

impl Default for Settings {
    /// Returns settings for 64 workers, chunks of 8 KiB, and deques that begin with 256 entries.
    fn default() -> Self {
        Self {
            capacity: 64,
            chunk: 8 << 10,
            smallest: 8,
        }
    }
}

impl Settings {
    fn is_sane(self) -> bool {
        (1..=Slots::<Native>::MOST).contains(&self.capacity)
            && (512..=1 << 30).contains(&self.chunk)
            && self.chunk.is_power_of_two()
            && (Array::SMALLEST..=16).contains(&self.smallest)
    }
}

/// The worker slots of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Slots<M: Memory = Native> {
    memory: M,
    at: Offset,
    settings: Settings,
}

/// The owner of a slot: a worker that works in it, or that has died or left without giving it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The worker's instance.
    pub worker: Instance,
    /// Whether the occupant is an additional worker, which the pool did not request and does not
    /// count.
    pub is_guest: bool,
}

impl Occupant {
    fn to_word(self) -> u64 {
        self.worker.to_word() | if self.is_guest { GUEST } else { 0 }
    }

    fn from_word(word: u64) -> Option<Self> {
        Some(Self {
            worker: Instance::from_word(word & !GUEST)?,
            is_guest: word & GUEST != 0,
        })
    }
}

/// The state of a slot, as a thread other than its owner reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// The owner of the slot.
    pub owner: Option<Occupant>,
    /// The approximate number of entries in the slot's deque.
    pub queued: u64,
    /// The last task that the slot's owner held or tried to take, with its status.
    pub running: Option<(Offset, crate::Status)>,
    /// The number of heartbeats.
    pub heartbeat: u64,
}

impl<M: Memory> Slots<M> {
    /// The maximum number of slots: a status has twelve bits for the slot.
    pub const MOST: u32 = 0xFFE;
    /// The alignment of the slots in bytes.
    pub const ALIGN: u64 = 128;

    /// Returns the size of `capacity` slots in bytes.
    pub const fn bytes(capacity: u32) -> u64 {
        FIRST + capacity as u64 * STRIDE
    }

    /// Creates slots in the zeroed memory at `at`, before any other thread accesses it.
    ///
    /// # Errors
    /// If they do not fit there, or the settings are invalid.
    ///
    /// # Crash
    /// An interrupted creation leaves memory that [`open`](Self::open) refuses.
    pub fn create(memory: M, at: Offset, settings: Settings) -> Result<Self, EngineError> {
        if !settings.is_sane() {
            let why = "the number of slots, or the size of chunks or arrays, is out of range";
            return Err(EngineError::NoSlots { at, why });
        }
        let slots = Self::placed(memory, at, settings)?;
        let store = |place, word: u64| memory.store(at + place, word, Ordering::Relaxed);
        store(CAPACITY, settings.capacity.into());
        store(CHUNK, settings.chunk);
        store(SMALLEST, settings.smallest.into());
        // Release: a reader that finds the first word finds the others.
        memory.store(at, MAGIC, Ordering::Release);
        Ok(slots)
    }

    /// Opens the slots at `at`.
    ///
    /// # Errors
    /// If there are none, or they have another format or a damaged header.
    pub fn open(memory: M, at: Offset) -> Result<Self, EngineError> {
        let no = |why| EngineError::NoSlots { at, why };
        Offset::checked(at.raw(), FIRST, Self::ALIGN, memory.size())
            .map_err(|_| no("the place is outside the memory, or not aligned"))?;
        // Acquire: the words that were written before the first one.
        match memory.load::<u64>(at, Ordering::Acquire) {
            MAGIC => {}
            FIRST_MAGIC => return Err(no(OF_FORMAT_1)),
            _ => return Err(no("their first word is missing, or of a newer format")),
        }
        let load = |place| memory.load::<u64>(at + place, Ordering::Relaxed);
        let small = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
        let settings = Settings {
            capacity: small(load(CAPACITY)),
            chunk: load(CHUNK),
            smallest: small(load(SMALLEST)),
        };
        if !settings.is_sane() {
            return Err(no("their header is damaged"));
        }
        Self::placed(memory, at, settings)
    }

    fn placed(memory: M, at: Offset, settings: Settings) -> Result<Self, EngineError> {
        let bytes = Self::bytes(settings.capacity);
        let why = "they do not fit into the memory there, or are not aligned";
        Offset::checked(at.raw(), bytes, Self::ALIGN, memory.size())
            .map_err(|_| EngineError::NoSlots { at, why })?;
        Ok(Self {
            memory,
            at,
            settings,
        })
    }

    /// Returns the memory that contains the slots.
    #[inline(always)]
    pub fn memory(self) -> M {
        self.memory
    }

    #[cfg(test)]
    pub(crate) fn at(self) -> Offset {
        self.at
    }

    /// Returns the settings with which the slots were created.
    pub fn settings(self) -> Settings {
        self.settings
    }

    /// Returns the number of slots that were ever claimed, or are about to be. Slots with this or a
    /// higher number are still as they were created.
    #[inline]
    pub fn used(self) -> u32 {
        // Acquire: no read depends on it, but a worker that has seen a task of a slot also sees the
        // slot.
        let used: u64 = self.memory.load(self.at + USED, Ordering::Acquire);
        used.min(self.settings.capacity.into()) as u32
    }

    /// Adds slot `number` to the [used](Self::used) ones, before it gets an owner.
    pub(crate) fn use_slot(self, number: u32) {
        let (at, want) = (self.at + USED, u64::from(number) + 1);
        let mut used: u64 = self.memory.load(at, Ordering::Relaxed);
        while used < want {
            // Release: pairs with `used`.
            let order = (Ordering::Release, Ordering::Relaxed);
            match self
                .memory
                .compare_exchange(at, used, want, order.0, order.1)
            {
                Ok(_) => break,
                Err(now) => used = now,
            }
        }
    }

    /// Returns slot `number`.
    ///
    /// # Panics
    /// If it does not exist.
    #[inline(always)]
    pub fn slot(self, number: u32) -> Slot<M> {
        assert!(
            number < self.settings.capacity,
            "worker slot {number} does not exist"
        );
        Slot {
            memory: self.memory,
            at: self.at + (FIRST + u64::from(number) * STRIDE),
        }
    }

    /// Returns a view of slot `number`.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if its running slot contains an invalid word.
    ///
    /// # Panics
    /// If the slot does not exist.
    pub fn look(self, number: u32) -> Result<SlotView, EngineError> {
        let slot = self.slot(number);
        let running = match slot.running(self.memory)? {
            Some(task) => Some((task.offset(), task.status()?)),
            None => None,
        };
        Ok(SlotView {
            owner: slot.occupant(),
            queued: slot.queued(),
            running,
            heartbeat: slot.heartbeat(),
        })
    }

    /// Returns whether no deque has an entry, and no running slot a task that is ready or held. If
    /// no worker searches for tasks at the same time, no task can be found then.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if a running slot contains an invalid word.
    pub fn is_quiet(self) -> Result<bool, EngineError> {
        for number in 0..self.used() {
            let view = self.look(number)?;
            let busy = view.running.is_some_and(|(_, status)| {
                status.state().is_held() || status.state() == crate::State::Ready
            });
            if busy || view.queued > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<M: Memory> Slots<M> {
    /// Checks that every owner of a slot is or was a member of the pod. A slot with any other owner
    /// could never be claimed, or its claim would need a log that does not exist.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] with the first invalid owner: one without a generation, with an id
    /// beyond those of the pod, or with a generation that its id has not reached.
    pub fn check_owners(self, generations: Generations<M>) -> Result<(), EngineError> {
        for number in 0..self.settings.capacity {
            let slot = self.slot(number);
            // Acquire: read before its id's generation, which had reached the owner's by then.
            let word = slot.load(OWNER, Ordering::Acquire);
            let can_be = |Occupant { worker, .. }: Occupant| {
                let state = generations.state(worker.id);
                worker.id < generations.capacity()
                    && state.map_or(true, |it| worker.generation <= it.generation)
            };
            if word != Instance::NONE && !Occupant::from_word(word).is_some_and(can_be) {
                let what = "owner of a worker slot: the pod never had such a member";
                return Err(damaged(slot.owner_at(), word, what));
            }
        }
        Ok(())
    }

    /// Returns the blocks of the heap that the slots own: chunks, arrays, long arguments. For
    /// checks, while no worker is active.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if a list is damaged.
    pub fn blocks(self) -> Result<Vec<Offset>, EngineError> {
        let mut blocks = Vec::new();
        for number in 0..self.settings.capacity {
            let slot = self.slot(number);
            blocks.extend(crate::engine::deque::arrays_of(self.memory, slot));
            blocks.extend(supply::blocks_of(self.memory, slot, self.settings.chunk)?);
        }
        Ok(blocks)
    }

    /// Returns every descriptor in the slots' chunks, with its status. For checks, while no worker
    /// is active.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if a list or a status is damaged.
    pub fn tasks(self) -> Result<Vec<(Task<M>, crate::Status)>, EngineError> {
        let mut tasks = Vec::new();
        for number in 0..self.settings.capacity {
            for task in supply::tasks_of(self.memory, self.slot(number), self.settings.chunk)? {
                tasks.push((task, task.status()?));
            }
        }
        Ok(tasks)
    }

    /// Frees all blocks that the slots own, to dismantle a pool that is no longer in use.
    /// Afterwards the slots are as they were created.
    ///
    /// # Errors
    /// If a block cannot be freed, or a list is damaged.
    ///
    /// # Crash
    /// Some blocks are free and no longer referenced. Call it again.
    pub fn dismantle(self, heap: &LocalHeap<'_, M>) -> Result<(), EngineError> {
        let memory = self.memory;
        for number in 0..self.settings.capacity {
            let slot = self.slot(number);
            // First the words that refer to tasks and to the array.
            slot.note(0);
            memory.store(slot.bottom_at(), 0u64, Ordering::Relaxed);
            memory.store(slot.top_at(), 0u64, Ordering::Relaxed);
            memory.store(slot.buffer_at(), 0u64, Ordering::Relaxed);
            for log2 in Array::SMALLEST..Array::SIZES {
                let cell = slot.array_at(log2);
                if memory.load::<u64>(cell, Ordering::Relaxed) != 0 {
                    heap.free_from(cell, 0)?;
                }
            }
            supply::dismantle(heap, slot, self.settings.chunk)?;
            slot.give_up();
        }
        Ok(())
    }
}

/// One worker's slot.
#[derive(Clone, Copy, Debug)]
pub struct Slot<M: Memory = Native> {
    memory: M,
    at: Offset,
}

impl<M: Memory> Slot<M> {
    #[inline(always)]
    fn load(self, at: u64, order: Ordering) -> u64 {
        self.memory.load(self.at + at, order)
    }

    /// Returns the owner of the slot.
    #[inline]
    pub fn owner(self) -> Option<Instance> {
        self.occupant().map(|occupant| occupant.worker)
    }

    /// Returns the owner of the slot, and whether it is a guest: both from one word.
    #[inline]
    pub fn occupant(self) -> Option<Occupant> {
        // Acquire: the effects of the previous owner.
        Occupant::from_word(self.load(OWNER, Ordering::Acquire))
    }

    #[doc(hidden)]
    pub fn claim(self, from: Option<Occupant>, to: Occupant) -> bool {
        let from = from.map_or(Instance::NONE, Occupant::to_word);
        // AcqRel: acquire, for the effects of the last owner; release, for workers that find tasks
        // of the new one.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.memory
            .compare_exchange(self.at + OWNER, from, to.to_word(), order.0, order.1)
            .is_ok()
    }

    pub(crate) fn give_up(self) {
        // Release: the effects of this owner, for the next one.
        self.memory
            .store(self.at + OWNER, Instance::NONE, Ordering::Release);
    }

    /// Returns the last task that the slot's owner held or tried to take.
    #[doc(hidden)]
    pub fn running(self, memory: M) -> Result<Option<Task<M>>, EngineError> {
        // Acquire: not needed for the task, whose status is checked. A reader that has acquired the
        // owner's death sees the last value.
        match self.load(RUNNING, Ordering::Acquire) {
            0 => Ok(None),
            word => Task::checked(memory, self.at + RUNNING, word).map(Some),
        }
    }

    /// Notes the task that the owner is about to take, before the owner removes it from a deque.
    #[inline(always)]
    #[doc(hidden)]
    pub fn note(self, task: u64) {
        // Relaxed: a later release store or swap makes the task leave its place, and a worker that
        // reads this word of a dead owner has acquired its death.
        self.memory
            .store(self.at + RUNNING, task, Ordering::Relaxed);
    }

    /// Returns the offset of the word in which the owner notes the task that it is about to take.
    #[doc(hidden)]
    pub fn running_at(self) -> Offset {
        self.at + RUNNING
    }

    /// Returns the number of heartbeats.
    pub fn heartbeat(self) -> u64 {
        self.load(HEARTBEAT, Ordering::Relaxed)
    }

    /// Returns the offset of the heartbeat, a word that the owner stores to.
    pub fn heartbeat_at(self) -> Offset {
        self.at + HEARTBEAT
    }

    /// Returns the approximate number of entries in the deque.
    pub fn queued(self) -> u64 {
        let top = self.load(TOP, Ordering::Acquire);
        let bottom = self.load(BOTTOM, Ordering::Acquire);
        (bottom.wrapping_sub(top) as i64).max(0) as u64
    }

    /// Returns the offset of the owner's word.
    pub(crate) fn owner_at(self) -> Offset {
        self.at + OWNER
    }

    #[inline(always)]
    pub(crate) fn top_at(self) -> Offset {
        self.at + TOP
    }

    #[inline(always)]
    #[doc(hidden)]
    pub fn bottom_at(self) -> Offset {
        self.at + BOTTOM
    }

    #[inline(always)]
    pub(crate) fn buffer_at(self) -> Offset {
        self.at + BUFFER
    }

    pub(crate) fn chunks_at(self) -> Offset {
        self.at + CHUNKS
    }

    #[doc(hidden)]
    pub fn fresh_at(self) -> Offset {
        self.at + FRESH
    }

    pub(crate) fn array_at(self, log2: u32) -> Offset {
        assert!(log2 < Array::SIZES, "an array cannot have 2^{log2} entries");
        self.at + ARRAYS + u64::from(log2) * 8
    }

    /// Returns the head of the list of chunks.
    pub(crate) fn chunks(self) -> u64 {
        // Acquire: the chunk was initialised before it was linked.
        self.load(CHUNKS, Ordering::Acquire)
    }
}

/// Checks `word`, which was loaded from a list at `at`, and returns the offset of the block.
pub(crate) fn check_block<M: Memory>(
    memory: M,
    at: Offset,
    word: u64,
    bytes: u64,
    what: &'static str,
) -> Result<Offset, EngineError> {
    Offset::checked(word, bytes, 8, memory.size()).map_err(|_| damaged(at, word, what))
}
