//! The segments of a pod in one process: a table from segment numbers to mapped memory.
//!
//! Segment 0 is a plain memory of the table's type: [`Segments::first`] returns it, and an access
//! to it costs what it costs without a table. An [`Offset`] with a larger segment number is
//! [resolved](Segments::resolve) to the memory of its segment and an offset in it, by one load and
//! one comparison of the slot of its number. Afterwards, any number of accesses use the result.
//!
//! # Attachments
//!
//! A number is attached with a *generation*, which distinguishes the segments that have the number
//! one after another. Generations of a number only rise, so a process that has kept a number and
//! its generation never resolves them to a later segment.
//!
//! ```text
//! slot of a number:  null --attach--> record --detach or lose--> null --attach a later one--> ...
//! ```
//!
//! # Memory ordering and lifetimes
//!
//! A record is written before the Release store of its address into the slot, and never changed
//! afterwards. A reader loads the slot with Acquire, and so sees the whole record. Records are
//! freed with the table only (48 bytes for each attachment), so a reader never meets a freed one.
//!
//! The table never unmaps memory. A reader that resolved an offset before a detachment may use the
//! result after it, so the code that detaches keeps the memory mapped until it has proof that no
//! such reader is left. (The contract of [`Native::new`](crate::Native::new) says the same: memory
//! stays mapped until no copy of the handle is used any more.)

use crate::{Memory, Native, Offset, SegmentNumber};
use core::fmt;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of segment numbers, 12 bits.
const NUMBERS: usize = 1 << 12;

/// The memory of an attached segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached<M: Memory = Native> {
    memory: M,
    at: Offset,
    bytes: u64,
    number: SegmentNumber,
    generation: u64,
}

impl<M: Memory> Attached<M> {
    /// Returns the memory that contains the segment.
    #[inline(always)]
    pub fn memory(&self) -> M {
        self.memory
    }

    /// Returns the size of the segment in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of the segment.
    pub fn number(&self) -> SegmentNumber {
        self.number
    }

    /// Returns the generation of the segment's number.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the place in [`memory`](Self::memory) of `len` bytes at byte `byte` of the segment.
    ///
    /// # Errors
    /// If not all of them are in the segment.
    #[inline]
    pub fn place(&self, byte: u64, len: u64) -> Result<Offset, SegmentError> {
        if byte <= self.bytes && len <= self.bytes - byte {
            Ok(self.at + byte)
        } else {
            Err(SegmentError::Outside {
                number: self.number,
                byte,
                len,
                size: self.bytes,
            })
        }
    }
}

/// The reason why a place in a segment cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentError {
    /// No segment with this number is attached to this process.
    Absent {
        /// The number.
        number: SegmentNumber,
    },
    /// The segment was lost with the host that had its memory.
    Lost {
        /// The number.
        number: SegmentNumber,
        /// The generation of the number that was lost.
        generation: u64,
    },
    /// The number has another segment than the one that is accessed.
    Replaced {
        /// The number.
        number: SegmentNumber,
        /// The generation of the segment that is accessed.
        asked: u64,
        /// The generation of the attached segment.
        found: u64,
    },
    /// The bytes are not all in the segment.
    Outside {
        /// The number.
        number: SegmentNumber,
        /// The first byte.
        byte: u64,
        /// The number of bytes.
        len: u64,
        /// The size of the segment.
        size: u64,
    },
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent { number } => write!(
                f,
                "segment {} is not attached to this process; attach it first",
                number.get()
            ),
            Self::Lost { number, generation } => write!(
                f,
                "segment {}, generation {generation}, was lost with its host",
                number.get()
            ),
            Self::Replaced {
                number,
                asked,
                found,
            } => write!(
                f,
                "segment {} has generation {found} now, and generation {asked} is accessed; read \
                 the segment's number and generation again",
                number.get()
            ),
            Self::Outside {
                number,
                byte,
                len,
                size,
            } => write!(
                f,
                "{len} bytes at {byte:#x} are outside segment {}, which has {size} bytes",
                number.get()
            ),
        }
    }
}

impl core::error::Error for SegmentError {}

/// The reason why a segment cannot be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// Segment 0 is attached for good.
    First,
    /// A segment with this number is attached.
    Attached {
        /// The number.
        number: SegmentNumber,
        /// Its generation.
        generation: u64,
    },
    /// The generation is not larger than that of the number's previous segment.
    Old {
        /// The number.
        number: SegmentNumber,
        /// The generation to be attached.
        generation: u64,
        /// The generation of the previous segment.
        previous: u64,
    },
    /// The segment is not all inside the memory, or not aligned to 128 bytes.
    Outside {
        /// The place of the segment in the memory.
        at: Offset,
        /// The size of the segment.
        bytes: u64,
        /// The size of the memory.
        size: u64,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("segment 0 is attached for good; use a number from 1 on"),
            Self::Attached { number, generation } => write!(
                f,
                "segment {} is attached with generation {generation}; detach it first",
                number.get()
            ),
            Self::Old {
                number,
                generation,
                previous,
            } => write!(
                f,
                "segment {} had generation {previous}, so generation {generation} is not a later \
                 one",
                number.get()
            ),
            Self::Outside { at, bytes, size } => write!(
                f,
                "a segment of {bytes} bytes at {at} is outside a memory of {size} bytes, or not \
                 aligned to 128 bytes"
            ),
        }
    }
}

impl core::error::Error for AttachError {}

/// The segments of a pod that are attached to this process.
///
/// ```
/// use outlive_memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
/// use outlive_memory::{SegmentError, SegmentNumber, Segments};
///
/// # let leaked = |bytes| Native::leaked(bytes, PersistenceDomain::Flushed);
/// # let (first, lent) = (leaked(4096), leaked(8192));
/// let segments = Segments::new(first);
/// let number = SegmentNumber::new(3).unwrap();
/// let word = Offset::in_segment(number, 64);
/// assert_eq!(segments.resolve(word, 8), Err(SegmentError::Absent { number }));
///
/// segments.attach(number, 1, lent)?;
/// let (memory, at) = segments.resolve(word, 8)?;
/// memory.store(at, 7u64, Ordering::Release);
///
/// segments.lose(number, 1);
/// let lost = SegmentError::Lost { number, generation: 1 };
/// assert_eq!(segments.resolve(word, 8), Err(lost));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Segments<M: Memory = Native> {
    first: M,
    slots: Box<[AtomicPtr<Attached<M>>; NUMBERS]>,
    /// For each number, the last generation that was attached, and in the lowest bit whether that
    /// was lost.
    last: Box<[AtomicU64; NUMBERS]>,
    /// All records, also detached ones. The lock is held while slots change.
    records: Mutex<Vec<NonNull<Attached<M>>>>,
}

// SAFETY: the records are plain values of a type that may be used by any thread. They are written
// before their addresses are published and freed by `drop`, which has exclusive access.
unsafe impl<M: Memory> Send for Segments<M> {}
// SAFETY: as for `Send`.
unsafe impl<M: Memory> Sync for Segments<M> {}

impl<M: Memory> Segments<M> {
    /// Returns a table in which `first` is segment 0, and no other segment is attached.
    pub fn new(first: M) -> Self {
        Self {
            first,
            slots: array(|| AtomicPtr::new(null_mut())),
            last: array(|| AtomicU64::new(0)),
            records: Mutex::default(),
        }
    }

    /// Returns segment 0.
    #[inline(always)]
    pub fn first(&self) -> M {
        self.first
    }

    /// Attaches all of `memory` as segment `number`. See [`attach_part`](Self::attach_part).
    ///
    /// # Errors
    /// Returns the errors of [`attach_part`](Self::attach_part).
    pub fn attach(
        &self,
        number: SegmentNumber,
        generation: u64,
        memory: M,
    ) -> Result<(), AttachError> {
        self.attach_part(number, generation, memory, Offset::new(0), memory.size())
    }

    /// Attaches the `bytes` bytes at `at` in `memory` as segment `number`. Waits for other threads
    /// that attach and detach segments; never delays readers.
    ///
    /// # Errors
    /// If the number is 0 or has a segment, the generation is not larger than that of the number's
    /// previous segment, or the bytes are not all in the memory.
    ///
    /// # Panics
    /// If `generation` has more than 63 bits.
    pub fn attach_part(
        &self,
        number: SegmentNumber,
        generation: u64,
        memory: M,
        at: Offset,
        bytes: u64,
    ) -> Result<(), AttachError> {
        assert!(generation < 1 << 63, "a generation has at most 63 bits");
        let size = memory.size();
        let is_inside = at.raw() <= size && bytes <= size - at.raw();
        if !is_inside || !at.raw().is_multiple_of(128) {
            return Err(AttachError::Outside { at, bytes, size });
        }
        if number == SegmentNumber::FIRST {
            return Err(AttachError::First);
        }
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = self.slot(number);
        if let Some(attached) = read(slot) {
            let generation = attached.generation;
            return Err(AttachError::Attached { number, generation });
        }
        let last = &self.last[usize::from(number.get())];
        // Relaxed: the word is written under the lock.
        let previous = last.load(Ordering::Relaxed) >> 1;
        if generation <= previous {
            return Err(AttachError::Old {
                number,
                generation,
                previous,
            });
        }
        let record = Box::into_raw(Box::new(Attached {
            memory,
            at,
            bytes,
            number,
            generation,
        }));
        records.push(NonNull::new(record).expect("a box is not null"));
        last.store(generation << 1, Ordering::Relaxed);
        // Release: a reader that sees the address sees the record.
        slot.store(record, Ordering::Release);
        Ok(())
    }

    /// Detaches segment `number`, which has left, if its generation is `generation`. Returns its
    /// record, or `None` if it is not attached. The caller keeps the memory mapped until no thread
    /// uses a handle that it has resolved before.
    pub fn detach(&self, number: SegmentNumber, generation: u64) -> Option<Attached<M>> {
        self.remove(number, generation, false)
    }

    /// Detaches segment `number`, which was lost with its host, if its generation is `generation`.
    /// It is [`Lost`](SegmentError::Lost) from now on, even if it was not attached. Otherwise does
    /// the same as [`detach`](Self::detach).
    pub fn lose(&self, number: SegmentNumber, generation: u64) -> Option<Attached<M>> {
        self.remove(number, generation, true)
    }

    fn remove(&self, number: SegmentNumber, generation: u64, is_lost: bool) -> Option<Attached<M>> {
        let _records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &self.last[usize::from(number.get())];
        let word = generation << 1 | u64::from(is_lost);
        // A later segment has the number already.
        if last.load(Ordering::Relaxed) >> 1 > generation {
            return None;
        }
        // Before the slot: a reader that finds the slot empty reports the loss.
        last.fetch_max(word, Ordering::Release);
        let slot = self.slot(number);
        let attached = *read(slot)?;
        // Relaxed: nothing is published.
        slot.store(null_mut(), Ordering::Relaxed);
        Some(attached)
    }

    /// Returns the segment `number`, attached with `generation`. Wait-free: one load, and
    /// comparisons that are always predicted.
    ///
    /// # Errors
    /// If no segment is attached under the number, or one with another generation.
    #[inline]
    pub fn get(
        &self,
        number: SegmentNumber,
        generation: u64,
    ) -> Result<&Attached<M>, SegmentError> {
        match read(self.slot(number)) {
            Some(attached) if attached.generation == generation => Ok(attached),
            other => Err(self.missing(number, Some(generation), other)),
        }
    }

    /// Returns the memory that has the `len` bytes at `offset`, and their place in it. Wait-free:
    /// for segment 0 one comparison, for another segment one load, and comparisons that are always
    /// predicted.
    ///
    /// # Errors
    /// If the segment is not attached, is lost, or does not have all the bytes.
    #[inline]
    pub fn resolve(&self, offset: Offset, len: u64) -> Result<(M, Offset), SegmentError> {
        let number = offset.segment();
        if number == SegmentNumber::FIRST {
            return self.in_first(offset, len);
        }
        match read(self.slot(number)) {
            Some(attached) => Ok((attached.memory, attached.place(offset.byte(), len)?)),
            None => Err(self.missing(number, None, None)),
        }
    }

    #[inline]
    fn in_first(&self, offset: Offset, len: u64) -> Result<(M, Offset), SegmentError> {
        let size = self.first.size();
        match Offset::checked(offset.raw(), len, 1, size) {
            Ok(at) => Ok((self.first, at)),
            Err(_) => Err(SegmentError::Outside {
                number: SegmentNumber::FIRST,
                byte: offset.byte(),
                len,
                size,
            }),
        }
    }

    #[inline(always)]
    fn slot(&self, number: SegmentNumber) -> &AtomicPtr<Attached<M>> {
        // The mask shows the compiler that a number has 12 bits.
        &self.slots[usize::from(number.get()) & (NUMBERS - 1)]
    }

    #[cold]
    fn missing(
        &self,
        number: SegmentNumber,
        asked: Option<u64>,
        attached: Option<&Attached<M>>,
    ) -> SegmentError {
        let last = self.last[usize::from(number.get())].load(Ordering::Acquire);
        let (last, is_lost) = (last >> 1, last & 1 == 1);
        let found = attached.map_or(last, |it| it.generation);
        match asked {
            Some(asked) if asked < found => SegmentError::Replaced {
                number,
                asked,
                found,
            },
            _ if is_lost && asked.is_none_or(|asked| asked == last) => SegmentError::Lost {
                number,
                generation: last,
            },
            // A generation that is not attached yet.
            _ => SegmentError::Absent { number },
        }
    }
}

/// Returns the record whose address is in `slot`.
#[inline(always)]
fn read<M: Memory>(slot: &AtomicPtr<Attached<M>>) -> Option<&Attached<M>> {
    // SAFETY: null, or the address of a record, which `attach_part` wrote before it stored the
    // address, and which lives as long as the table, which the slot is a part of.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

fn array<T>(new: impl Fn() -> T) -> Box<[T; NUMBERS]> {
    let all: Vec<T> = (0..NUMBERS).map(|_| new()).collect();
    match all.try_into() {
        Ok(all) => all,
        Err(_) => unreachable!("it has {NUMBERS} elements"),
    }
}

impl<M: Memory> Drop for Segments<M> {
    fn drop(&mut self) {
        let records = self.records.get_mut();
        for record in records.unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: it came from a box, and no reference to it outlives the table.
            drop(unsafe { Box::from_raw(record.as_ptr()) });
        }
    }
}

impl<M: Memory> fmt::Debug for Segments<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attached = self.slots.iter().filter_map(read);
        f.debug_struct("Segments")
            .field("first", &self.first)
            .field("attached", &attached.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
