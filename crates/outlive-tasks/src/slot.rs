//! The vector of workers: a slot for each that works at the same time.
//!
//! ```text
//!  header:  magic | capacity | size of chunks | smallest array        used: slots that were ever claimed, or about to be
//!
//!  slot:    0x000  owner      who works here, and whether it is a guest; or nobody | buffer  the array of its deque
//!           0x080  top        where others steal
//!           0x100  bottom     where the owner pushes and pops
//!           0x180  running    its last task | heartbeat | chunks  the head of a list | fresh  a chunk on its way there
//!           0x200  arrays     a cell for each size of an array
//! ```
//!
//! What different threads write is 128 bytes apart. `owner` and `buffer` change rarely and are read by thieves; `top`
//! is the thieves'; the rest is the owner's.
//!
//! # Who works here
//!
//! `owner` moves by compare-and-swap from nobody or from an instance that is gone, whose log has been settled *before*:
//! its steps in the heap ended in cells of this slot. So there is one writer at any time, and plain stores suffice
//! for all but `owner` and `top`. That it works besides those whom the pool wants, as a *guest*, stands in the same word:
//! whoever claims a slot says both at once, and whoever dies has said both or nothing. Where one of those has died whom the pool
//! wants no guest follows. A slot is never taken back: its deque and its chunks wait for the next owner, and meanwhile are stolen
//! from.
//!
//! | death of the owner | what is left | who goes on |
//! | --- | --- | --- |
//! | after the claim | what the predecessor had left | the next owner; anybody, for tasks |
//! | in the middle of a task | `running` leads to it, its status names the slot | anybody, by compare-and-swap of the status |
//! | after a task was noted in `running`, before it left a deque | the task, found twice | the status has one runner |
//! | while it pushed | entries beyond `bottom`: none. Children of a task that commits | whoever takes over the commit |
//! | between the steps of a pop | `bottom` below `top` by one, or the last task in `running` only | the next owner mends; anybody, for the task |
//! | while an array or a chunk was on its way | it stands in a cell | the next owner uses it |
//! | with children of a task that was not committed | `New` descriptors in its chunks | the next owner frees them |
//!
//! # The descriptors of a commit stay
//!
//! Whoever commits a task walks the chain of its children, and whoever takes over the commit walks it again from its
//! head. So the children's descriptors must not get another life meanwhile. They are in the chunks of the slot whose
//! owner spawned them, and only a slot's owner gives descriptors another life: he who commits does not do so
//! meanwhile, and a dead one's slot gets no new owner while the task in `running` is being committed by somebody else
//! who lives (see [`Engine::claim`](crate::Engine::claim)).

use crate::EngineError;
use crate::deque::Array;
use crate::descriptor::{Task, damaged};
use crate::supply;
use outlive::heap::LocalHeap;
use outlive::membership::{Generations, Instance};
use outlive::memory::{Memory, Native, Offset, Ordering};

/// Their first word. Its last character is their format's number: 2 since an owner's word says whether it is a guest.
const MAGIC: u64 = u64::from_le_bytes(*b"outtask2");
/// The first word of those whose owners could not say so: a guest there would be taken for somebody else.
const FIRST_MAGIC: u64 = u64::from_le_bytes(*b"outtasks");
/// The message for a pool of the first format, which is not opened.
pub(crate) const OF_FORMAT_1: &str = "it is of format 1, and this Outlive reads format 2: end what runs there with the program that \
     began it, and create the pool again";
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

/// In an owner's word: it is a guest. No instance has that bit: ids are below 2^16.
const GUEST: u64 = 1 << 31;
const _: () = assert!((Generations::<Native>::MOST as u64) <= GUEST);

/// How a pool's slots are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many workers there can be at a time.
    pub capacity: u32,
    /// The size of a chunk of descriptors in bytes: a power of two.
    pub chunk: u64,
    /// The logarithm of the number of entries in a deque's first array.
    pub smallest: u32,
}

impl Default for Settings {
    /// 64 workers, chunks of 8 KiB, 256 entries.
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

/// Who works in a slot, or worked there and is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// Who it is.
    pub worker: Instance,
    /// Whether it works besides those whom the pool wants, and counts for none of them.
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

/// What can be seen of a slot from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// Who works there.
    pub owner: Option<Occupant>,
    /// How many entries its deque has, about.
    pub queued: u64,
    /// The last task that its owner had or tried to have, with its status.
    pub running: Option<(Offset, crate::Status)>,
    /// How often its heart has beaten.
    pub heartbeat: u64,
}

impl<M: Memory> Slots<M> {
    /// How many slots there can be: a status has twelve bits for them.
    pub const MOST: u32 = 0xFFE;
    /// What the place of slots is aligned to.
    pub const ALIGN: u64 = 128;

    /// How many bytes so many slots take.
    pub const fn bytes(capacity: u32) -> u64 {
        FIRST + capacity as u64 * STRIDE
    }

    /// Makes slots of the zeroed memory at `at`, before anybody else sees it.
    ///
    /// # Errors
    /// If they do not fit there, or the settings cannot be.
    ///
    /// # Crash
    /// Cut short, it leaves a place that [`open`](Self::open) refuses.
    pub fn create(memory: M, at: Offset, settings: Settings) -> Result<Self, EngineError> {
        if !settings.is_sane() {
            let why = "so many slots, or chunks or arrays of that size, are not possible";
            return Err(EngineError::NoSlots { at, why });
        }
        let slots = Self::placed(memory, at, settings)?;
        let store = |place, word: u64| memory.store(at + place, word, Ordering::Relaxed);
        store(CAPACITY, settings.capacity.into());
        store(CHUNK, settings.chunk);
        store(SMALLEST, settings.smallest.into());
        // Release: whoever finds the first word finds the others.
        memory.store(at, MAGIC, Ordering::Release);
        Ok(slots)
    }

    /// The slots at `at`.
    ///
    /// # Errors
    /// If there are none, they are of another format, or their header is damaged.
    pub fn open(memory: M, at: Offset) -> Result<Self, EngineError> {
        let no = |why| EngineError::NoSlots { at, why };
        Offset::checked(at.raw(), FIRST, Self::ALIGN, memory.size())
            .map_err(|_| no("the place is outside the memory, or not aligned"))?;
        // Acquire: the words that were written before.
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

    /// The memory.
    #[inline(always)]
    pub fn memory(self) -> M {
        self.memory
    }

    /// Where they stand.
    #[cfg(test)]
    pub(crate) fn at(self) -> Offset {
        self.at
    }

    /// How they were made.
    pub fn settings(self) -> Settings {
        self.settings
    }

    /// How many slots somebody has ever had, or was about to claim: those from there on are as they were made.
    #[inline]
    pub fn used(self) -> u32 {
        // Acquire: nothing is read that rests on it, but whoever has seen a task of a slot sees the slot.
        let used: u64 = self.memory.load(self.at + USED, Ordering::Acquire);
        used.min(self.settings.capacity.into()) as u32
    }

    /// Sees to it that slot `number` is among the [used](Self::used), before anybody has it.
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

    /// The slot of that number.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub fn slot(self, number: u32) -> Slot<M> {
        assert!(number < self.settings.capacity, "slot {number} of too few");
        Slot {
            memory: self.memory,
            at: self.at + (FIRST + u64::from(number) * STRIDE),
        }
    }

    /// What can be seen of slot `number`.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if its running slot leads nowhere.
    ///
    /// # Panics
    /// If there is no such slot.
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

    /// Whether no deque has an entry and no running slot a task that is ready or held. If nobody is looking for tasks
    /// meanwhile, there is none that a worker could find.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if a running slot leads nowhere.
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
    /// Looks whether everybody who is said to work in a slot, or to have worked there, is somebody: a word that names nobody
    /// can never be claimed, or sends whoever tries to a log that there is not.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] with the first word that is none of a slot's owner: it has no generation, an id beyond those of
    /// the pod, or a generation that its id has not come to.
    pub fn check_owners(self, generations: Generations<M>) -> Result<(), EngineError> {
        for number in 0..self.settings.capacity {
            let slot = self.slot(number);
            // Acquire: before its id's generation is read, which an owner has had.
            let word = slot.load(OWNER, Ordering::Acquire);
            let can_be = |Occupant { worker, .. }: Occupant| {
                let state = generations.state(worker.id);
                worker.id < generations.capacity()
                    && state.map_or(true, |it| worker.generation <= it.generation)
            };
            if word != Instance::NOBODY && !Occupant::from_word(word).is_some_and(can_be) {
                let what = "owner of a worker slot: no member of the pod is or was called so";
                return Err(damaged(slot.owner_at(), word, what));
            }
        }
        Ok(())
    }

    /// The blocks of the heap that the slots hold: chunks, arrays, long arguments. For checks, while nobody works.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if a list is damaged.
    pub fn blocks(self) -> Result<Vec<Offset>, EngineError> {
        let mut blocks = Vec::new();
        for number in 0..self.settings.capacity {
            let slot = self.slot(number);
            blocks.extend(crate::deque::arrays_of(self.memory, slot));
            blocks.extend(supply::blocks_of(self.memory, slot, self.settings.chunk)?);
        }
        Ok(blocks)
    }

    /// Every descriptor in the slots' chunks, with its status: for checks, while nobody works.
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

    /// Frees all blocks that the slots hold. For whoever takes a pool apart, which nobody uses any more. The slots are as
    /// they were made then.
    ///
    /// # Errors
    /// If a block cannot be freed, or a list is damaged.
    ///
    /// # Crash
    /// Some are free and found no more; to be called again.
    pub fn dismantle(self, heap: &LocalHeap<'_, M>) -> Result<(), EngineError> {
        let memory = self.memory;
        for number in 0..self.settings.capacity {
            let slot = self.slot(number);
            // First what says that there is something.
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

    /// Who works here.
    #[inline]
    pub fn owner(self) -> Option<Instance> {
        self.occupant().map(|occupant| occupant.worker)
    }

    /// Who works here, and whether as a guest: from one word.
    #[inline]
    pub fn occupant(self) -> Option<Occupant> {
        // Acquire: what the one before had done.
        Occupant::from_word(self.load(OWNER, Ordering::Acquire))
    }

    pub(crate) fn claim(self, from: Option<Occupant>, to: Occupant) -> bool {
        let from = from.map_or(Instance::NOBODY, Occupant::to_word);
        // AcqRel: acquire, for what the last owner did; release, for whoever meets the new one's tasks.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.memory
            .compare_exchange(self.at + OWNER, from, to.to_word(), order.0, order.1)
            .is_ok()
    }

    pub(crate) fn give_up(self) {
        // Release: all that was done here, for the next owner.
        self.memory
            .store(self.at + OWNER, Instance::NOBODY, Ordering::Release);
    }

    /// Wrong: its owner says that it is a guest when it has the slot already. For the proofs that see it.
    pub(crate) fn say_guest(self, worker: Instance) {
        let guest = Occupant {
            worker,
            is_guest: true,
        };
        self.memory
            .store(self.at + OWNER, guest.to_word(), Ordering::Relaxed);
    }

    /// The last task that its owner had or tried to have.
    pub(crate) fn running(self, memory: M) -> Result<Option<Task<M>>, EngineError> {
        // Acquire: not needed for the task, whose status is asked; for who is told that the owner is dead, nothing is
        // newer than this.
        match self.load(RUNNING, Ordering::Acquire) {
            0 => Ok(None),
            word => Task::checked(memory, self.at + RUNNING, word).map(Some),
        }
    }

    /// Notes the task that the owner is about to have: before it leaves wherever it is.
    #[inline(always)]
    pub(crate) fn note(self, task: u64) {
        // Relaxed: what makes the task leave its place is a release store or swap, which comes after; and whoever looks
        // here for a dead owner has acquired its death.
        self.memory
            .store(self.at + RUNNING, task, Ordering::Relaxed);
    }

    /// How often its heart has beaten.
    pub fn heartbeat(self) -> u64 {
        self.load(HEARTBEAT, Ordering::Relaxed)
    }

    /// Where its heartbeat stands: a word that its owner stores to.
    pub fn heartbeat_at(self) -> Offset {
        self.at + HEARTBEAT
    }

    /// How many entries its deque has, about.
    pub fn queued(self) -> u64 {
        let top = self.load(TOP, Ordering::Acquire);
        let bottom = self.load(BOTTOM, Ordering::Acquire);
        (bottom.wrapping_sub(top) as i64).max(0) as u64
    }

    /// Where it stands who works here.
    pub(crate) fn owner_at(self) -> Offset {
        self.at + OWNER
    }

    #[inline(always)]
    pub(crate) fn top_at(self) -> Offset {
        self.at + TOP
    }

    #[inline(always)]
    pub(crate) fn bottom_at(self) -> Offset {
        self.at + BOTTOM
    }

    #[inline(always)]
    pub(crate) fn buffer_at(self) -> Offset {
        self.at + BUFFER
    }

    pub(crate) fn chunks_at(self) -> Offset {
        self.at + CHUNKS
    }

    pub(crate) fn fresh_at(self) -> Offset {
        self.at + FRESH
    }

    pub(crate) fn array_at(self, log2: u32) -> Offset {
        assert!(log2 < Array::SIZES, "an array of 2^{log2} entries");
        self.at + ARRAYS + u64::from(log2) * 8
    }

    /// The head of the list of its chunks.
    pub(crate) fn chunks(self) -> u64 {
        // Acquire: the chunk was made before it was linked.
        self.load(CHUNKS, Ordering::Acquire)
    }
}

/// A word of a list that is not an offset of anything.
pub(crate) fn check_block<M: Memory>(
    memory: M,
    at: Offset,
    word: u64,
    bytes: u64,
    what: &'static str,
) -> Result<Offset, EngineError> {
    Offset::checked(word, bytes, 8, memory.size()).map_err(|_| damaged(at, word, what))
}
