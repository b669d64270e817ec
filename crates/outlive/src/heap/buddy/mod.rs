//! The buddy allocator: blocks of `2^k` units from one region, for the whole pod (LUPIN §3.6).
//!
//! A request is rounded up to a power of two of units. The smallest free block that is large enough
//! is halved until it fits; a freed block is joined with its buddy while that is free. Free blocks
//! are bits of a binary tree, kept with their summaries in words apart from the region (modules
//! `tree` and `shape`). The contents of blocks are never touched, so the time does not depend on
//! their size. A region need not be a power of two: its end is a row of smaller trees.
//!
//! ```text
//!  metadata:  lock | header | counters | bits and summaries of each order | a size byte for each unit
//!  region:    only the blocks
//! ```
//!
//! # Why no block leaks and none is allocated twice
//!
//! One recoverable lock, [logged](crate::sync::Tatas), guards the metadata. Under it an operation
//! only reads; every store it makes, to the tree, to the caller's cell and to its own operation
//! descriptor, is a record of one redo transaction. So a death leaves one of three states:
//!
//! * *before the commit word*: nothing has happened. The descriptor, if there is one, says that the
//!   operation runs, and its handler settles that it was not done. The lock is released.
//! * *between commit and retirement*: the holder of the claim on the dead instance's log applies
//!   the records, under the lock that the dead instance still holds. The checksum in the commit
//!   word distinguishes a whole transaction from one that lost words.
//! * *after*: the operation took effect; the lock is released by its owner or for it.
//!
//! In each of them tree, cell and descriptor agree: a block is allocated if and only if the cell
//! holds it and the descriptor says so. If the offset of a block was only *returned*, the caller's
//! next incarnation finds the block in the [inherited](crate::recovery::Log::inherited) operation,
//! as [`Outcome`] reads it. No other instance can get the lock in between, because only the holder
//! of the claim releases a dead owner's (the paper's lock transfer).
//!
//! All accesses to the metadata are relaxed: the lock orders them.
//!
//! # Three ways to allocate
//!
//! * [`allocate_into`](Buddy::allocate_into) a cell: allocated and published in one step;
//! * [`allocate`](Buddy::allocate): the operation descriptor holds the block;
//! * [`lock`](Buddy::lock) and [`Locked::allocate`] in the caller's own redo transaction, together
//!   with its other stores: for allocators above this one.
//!
//! [`check`](Buddy::check) walks all metadata and reports faults.

mod check;
mod error;
mod operation;
mod shape;
mod tree;

pub use check::{Finding, Report, Statistics};
pub use error::{AllocateError, CorruptTree, FreeError, OpenError, RegionError};
pub use operation::{BuddyAllocatePoint, BuddyFreePoint, BuddyOperation, Outcome, recoverers};

use crate::membership::Member;
use crate::recovery::{Recoverers, Redo, RedoError};
use crate::sync::{LockError, Tatas, TatasGuard};
use outlive_memory::{Memory, Native, Offset, Ordering};
use shape::{MOST_ORDERS, Places, Shape};
use tree::{Broken, Change};

const MAGIC: u64 = u64::from_le_bytes(*b"outbuddy");

/// A handle to a buddy allocator.
///
/// Operations wait for a live holder of its lock, or for a live thread that recovers a dead holder;
/// otherwise they are wait-free. One takes at most about a hundred redo records, and a few if no
/// block is halved or joined. They make no system call unless they wait, and never touch the
/// blocks.
///
/// ```
/// # use outlive::membership::{Generations, Instance, Level, Member, State, Status};
/// # use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
/// # use outlive::recovery::{Logs, OwnLog};
/// use outlive::{heap, heap::buddy::Buddy, sync};
/// # let memory = Native::leaked(1 << 20, PersistenceDomain::Flushed);
/// # let generations = Generations::new(memory, Offset::new(0), 4);
/// # let logs = Logs::new(memory, Offset::new(4096), 4);
/// # let live = State { generation: 1, host: 0, level: Some(Level::Thread), status: Status::Live };
/// # // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
/// # assert!(unsafe { generations.assume_state(0, State::FREE, live) });
/// # // SAFETY: this thread alone acts as 0.1, and no thread raises its generation.
/// # let member = unsafe { Member::assume(memory, generations, Instance::new(0, 1), logs.at(0), None) };
/// # OwnLog::open(&member).unwrap();
/// let recoverers = heap::recoverers(sync::recoverers(logs));
/// let (metadata, region) = (Offset::new(1 << 16), Offset::new(1 << 17));
/// let heap = Buddy::create(memory, metadata, region, 100 * 4096, 4096)?;
///
/// // The cell holds the block, or there is no block: whenever this thread dies.
/// let cell = Offset::new(2048);
/// let block = heap.allocate_into(&member, &recoverers, 10_000, cell)?;
/// assert_eq!(memory.load::<u64>(cell, Ordering::Relaxed), block.raw());
/// assert_eq!(heap.free_bytes(), 96 * 4096);
///
/// heap.free_from(&member, &recoverers, cell)?;
/// assert_eq!(memory.load::<u64>(cell, Ordering::Relaxed), 0);
/// assert!(heap.check().is_clean());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Buddy<M: Memory = Native> {
    memory: M,
    places: Places,
    payload: Offset,
    unit_shift: u32,
    shape: Shape,
}

impl<M: Memory> Buddy<M> {
    /// The smallest unit in bytes: a cache line.
    pub const LEAST_UNIT: u64 = 64;
    /// The maximum number of units of a region.
    pub const MOST_UNITS: u64 = 1 << (MOST_ORDERS - 1);

    /// Returns the bytes of metadata that a region of `bytes` in blocks of at least `unit` bytes
    /// needs: about 1.3 for each unit.
    ///
    /// # Errors
    /// If such a region cannot be managed.
    pub fn metadata_bytes(bytes: u64, unit: u64) -> Result<u64, RegionError> {
        Ok(Places::TREE + shape_of(bytes, unit)?.bytes())
    }

    /// Creates an allocator for the `bytes` at `payload`, all free, with its metadata at `metadata`
    /// in zeroed memory. `unit`, the size of the smallest block, is a power of two. A remainder at
    /// the end of the region, less than a unit, is not used.
    ///
    /// The process that creates a pod calls this before any other process sees the memory.
    ///
    /// # Errors
    /// If the region cannot be managed or is not in the memory, if `metadata` is not aligned to a
    /// cache line, or if `payload` is not aligned to the unit or to 4096 bytes, whichever is less.
    ///
    /// # Crash
    /// An interrupted creation leaves metadata that [`open`](Self::open) refuses.
    pub fn create(
        memory: M,
        metadata: Offset,
        payload: Offset,
        bytes: u64,
        unit: u64,
    ) -> Result<Self, RegionError> {
        let this = Self::describe(memory, metadata, payload, bytes, unit)?;
        let (places, shape) = (this.places, &this.shape);
        // Each set bit of the number of units is one block; the blocks follow one another, the
        // largest first.
        let (mut orders, mut unit_index) = (0u64, 0);
        for order in (0..shape.orders()).rev() {
            if shape.units() & 1 << order == 0 {
                continue;
            }
            let mut index = unit_index >> order;
            for level in shape.levels(order) {
                let at = places.word(level.first + index / 64);
                memory.store(at, 1u64 << (index % 64), Ordering::Relaxed);
                memory.write_back(at, 8);
                index /= 64;
            }
            orders |= 1 << order;
            unit_index += 1 << order;
        }
        memory.store(places.orders(), orders, Ordering::Relaxed);
        memory.store(places.free_units(), shape.units(), Ordering::Relaxed);
        let header = [payload.raw(), bytes, unit];
        let words = header.into_iter().chain([checksum(header)]);
        for (index, word) in (1u64..).zip(words) {
            memory.store(places.header() + index * 8, word, Ordering::Relaxed);
        }
        memory.persist(places.lock(), Places::TREE);
        // Release: a reader that finds the first word finds all others.
        memory.store(places.header(), MAGIC, Ordering::Release);
        memory.persist(places.header(), 8);
        Ok(this)
    }

    /// Opens the allocator with its metadata at `metadata`.
    ///
    /// # Errors
    /// If there is no allocator, or its header is damaged. The tree is not walked:
    /// [`check`](Self::check) does that, and an operation that meets damage reports it.
    pub fn open(memory: M, metadata: Offset) -> Result<Self, OpenError> {
        let at = metadata;
        Offset::checked(metadata.raw(), Places::TREE, 64, memory.size()).map_err(|outside| {
            let source = RegionError::Outside(outside);
            OpenError::Region { at, source }
        })?;
        let header = Places(metadata).header();
        // Acquire: the words written before the first one.
        let magic: u64 = memory.load(header, Ordering::Acquire);
        if magic != MAGIC {
            return Err(OpenError::NotOne { at, magic });
        }
        let word = |index: u64| memory.load::<u64>(header + index * 8, Ordering::Relaxed);
        let (words, found) = ([word(1), word(2), word(3)], word(4));
        let expected = checksum(words);
        if found != expected {
            return Err(OpenError::Checksum {
                at,
                expected,
                found,
            });
        }
        let [payload, bytes, unit] = words;
        Self::describe(memory, metadata, Offset::from_raw(payload), bytes, unit)
            .map_err(|source| OpenError::Region { at, source })
    }

    fn describe(
        memory: M,
        metadata: Offset,
        payload: Offset,
        bytes: u64,
        unit: u64,
    ) -> Result<Self, RegionError> {
        let shape = shape_of(bytes, unit)?;
        let own = Places::TREE + shape.bytes();
        let size = memory.size();
        let inside = |at: Offset, len, align| {
            Offset::checked(at.raw(), len, align, size).map_err(RegionError::Outside)
        };
        inside(metadata, own, 64)?;
        inside(payload, bytes, unit.min(4096))?;
        if metadata < payload + bytes && payload < metadata + own {
            return Err(RegionError::Overlap { metadata, payload });
        }
        Ok(Self {
            memory,
            places: Places(metadata),
            payload,
            unit_shift: unit.trailing_zeros(),
            shape,
        })
    }

    /// Returns the offset of the allocator's metadata.
    pub fn metadata(&self) -> Offset {
        self.places.0
    }

    /// Returns the start of the allocator's region. A block of `n` bytes starts at a multiple of
    /// `n` from here.
    pub fn region(&self) -> Offset {
        self.payload
    }

    /// Returns the number of bytes that the allocator manages: whole units.
    pub fn bytes(&self) -> u64 {
        self.shape.units() << self.unit_shift
    }

    /// Returns the size of the smallest block in bytes.
    pub fn unit(&self) -> u64 {
        1 << self.unit_shift
    }

    /// Returns the size of the largest possible block, in bytes.
    pub fn largest_block(&self) -> u64 {
        self.block_bytes(self.shape.orders() - 1)
    }

    /// Returns the number of free bytes, a snapshot: running operations may be counted or not.
    pub fn free_bytes(&self) -> u64 {
        let units: u64 = self
            .memory
            .load(self.places.free_units(), Ordering::Relaxed);
        units << self.unit_shift
    }

    /// Returns the size of the largest free block in bytes, a snapshot; 0 if nothing is free.
    pub fn largest_free(&self) -> u64 {
        let orders: u64 = self.memory.load(self.places.orders(), Ordering::Relaxed);
        let largest = orders.checked_ilog2();
        largest.map_or(0, |order| {
            1u64.checked_shl(order + self.unit_shift).unwrap_or(0)
        })
    }

    /// Returns the lock: to wait for it differently, to see its holder, or to
    /// [audit](crate::sync::audit_own_locks) it after a host's death.
    pub fn own_lock(&self) -> Tatas<M> {
        Tatas::new(self.memory, self.places.lock())
    }

    /// Takes the lock, for operations in the caller's own redo transaction.
    ///
    /// # Errors
    /// If the lock is not available.
    pub fn lock<'b>(
        &'b self,
        member: &'b Member<M>,
        recoverers: &Recoverers<M>,
    ) -> Result<Locked<'b, M>, LockError> {
        let guard = self.own_lock().lock(member, recoverers)?;
        Ok(Locked { buddy: self, guard })
    }

    /// Takes the lock as [`lock`](Self::lock) does, or returns `None` if a live instance holds it.
    ///
    /// # Errors
    /// If the lock is not available.
    pub fn try_lock<'b>(
        &'b self,
        member: &'b Member<M>,
        recoverers: &Recoverers<M>,
    ) -> Result<Option<Locked<'b, M>>, LockError> {
        let guard = self.own_lock().try_lock(member, recoverers)?;
        Ok(guard.map(|guard| Locked { buddy: self, guard }))
    }

    /// Returns the size of the allocated block that starts at `block`, if one does. The caller has
    /// that block, or exclusive use of the segment.
    pub(super) fn allocated_at(&self, block: Offset) -> Option<u64> {
        let unit = self.unit_of(block).ok()?;
        // Relaxed: it was written before the block was known, and stays until the block is freed.
        let size: u8 = self
            .memory
            .load(self.places.size(&self.shape, unit), Ordering::Relaxed);
        let order = u32::from(size.checked_sub(1)?);
        (order < self.shape.orders()).then(|| self.block_bytes(order))
    }

    #[inline(always)]
    fn block_bytes(&self, order: u32) -> u64 {
        1 << (order + self.unit_shift)
    }

    #[inline(always)]
    fn block_at(&self, unit: u64) -> Offset {
        self.payload + (unit << self.unit_shift)
    }

    /// Returns the order that `asked` bytes need.
    fn order(&self, asked: u64) -> Result<u32, AllocateError> {
        let most = self.largest_block();
        if asked > most {
            return Err(AllocateError::TooLarge { asked, most });
        }
        Ok(Shape::order_of(asked.div_ceil(self.unit())))
    }

    /// Returns the unit at which `block` starts.
    fn unit_of(&self, block: Offset) -> Result<u64, FreeError> {
        let outside = FreeError::Outside {
            block,
            first: self.payload,
            end: self.payload + self.bytes(),
            unit: self.unit(),
        };
        let from = block.raw().checked_sub(self.payload.raw());
        match from.map(|from| (from >> self.unit_shift, from & (self.unit() - 1))) {
            Some((unit, 0)) if unit < self.shape.units() => Ok(unit),
            _ => Err(outside),
        }
    }
}

/// The allocator while the caller holds its lock. Dropping it releases the lock.
///
/// ```no_run
/// # use outlive::{heap::buddy::Buddy, membership::Member, memory::Offset, recovery::Recoverers};
/// # fn example(heap: Buddy, member: Member, recoverers: Recoverers, list: Offset)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// let locked = heap.lock(&member, &recoverers)?;
/// let mut change = locked.redo()?;
/// let block = locked.allocate(&mut change, 1 << 16)?;
/// change.store(list, block.raw())?;
/// change.commit(); // allocated and listed, or neither
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct Locked<'b, M: Memory = Native> {
    buddy: &'b Buddy<M>,
    guard: TatasGuard<'b, M>,
}

impl<M: Memory> Locked<'_, M> {
    /// Begins a redo transaction of the holder, which cannot outlive the hold on the lock.
    ///
    /// # Errors
    /// If another transaction is open.
    pub fn redo(&self) -> Result<Redo<'_, M>, RedoError> {
        self.guard.redo()
    }

    /// Allocates a block of at least `bytes` as part of `redo`, a transaction of the lock's holder
    /// that is [committed](Redo::commit) or dropped before the lock is released. Wait-free.
    ///
    /// # Errors
    /// See [`AllocateError`]; `redo` is then unchanged.
    pub fn allocate(&self, redo: &mut Redo<'_, M>, bytes: u64) -> Result<Offset, AllocateError> {
        let order = self.buddy.order(bytes)?;
        self.take(redo, order, bytes)
    }

    /// Frees the block at `block` as part of `redo`, as [`allocate`](Self::allocate) does, and
    /// returns its size in bytes. Wait-free.
    ///
    /// # Errors
    /// See [`FreeError`]; `redo` is then unchanged.
    pub fn free(&self, redo: &mut Redo<'_, M>, block: Offset) -> Result<u64, FreeError> {
        let buddy = self.buddy;
        let unit = buddy.unit_of(block)?;
        let before = redo.len();
        let change = buddy.change(redo);
        let size = change.size(unit);
        let Some(order) = size.checked_sub(1).map(u32::from) else {
            return Err(buddy.not_a_start(&change, block, unit));
        };
        let fits = order < buddy.shape.orders()
            && unit.trailing_zeros() >= order
            && unit + (1 << order) <= buddy.shape.units();
        if !fits {
            return Err(FreeError::Corrupt(CorruptTree {
                at: buddy.places.size(&buddy.shape, unit),
                what: "no block of this size can start here",
            }));
        }
        match change.give(unit, order) {
            Ok(()) => Ok(buddy.block_bytes(order)),
            Err(broken) => {
                redo.truncate(before);
                Err(match broken {
                    Broken::Corrupt(tree) => tree.into(),
                    Broken::Log(log) => log.into(),
                })
            }
        }
    }

    fn take(
        &self,
        redo: &mut Redo<'_, M>,
        order: u32,
        asked: u64,
    ) -> Result<Offset, AllocateError> {
        let buddy = self.buddy;
        let before = redo.len();
        let change = buddy.change(redo);
        let Some(from) = change.fitting(order) else {
            let largest_free = change.largest().map_or(0, |order| buddy.block_bytes(order));
            return Err(AllocateError::Full {
                asked,
                largest_free,
            });
        };
        match change.take(order, from) {
            Ok(unit) => Ok(buddy.block_at(unit)),
            Err(broken) => {
                redo.truncate(before);
                Err(match broken {
                    Broken::Corrupt(tree) => tree.into(),
                    Broken::Log(log) => log.into(),
                })
            }
        }
    }
}

impl<M: Memory> Buddy<M> {
    fn change<'r, 'm>(&'r self, redo: &'r mut Redo<'m, M>) -> Change<'r, 'm, M> {
        Change::new(self.memory, self.places, &self.shape, redo)
    }

    /// Returns the reason why `block`, at whose `unit` no block starts, cannot be freed.
    #[cold]
    fn not_a_start(&self, change: &Change<'_, '_, M>, block: Offset, unit: u64) -> FreeError {
        for order in 1..self.shape.orders() {
            let start = unit >> order << order;
            let within = u32::from(change.size(start)).saturating_sub(1);
            if start != unit && order <= within && within < self.shape.orders() {
                return FreeError::Inside {
                    block,
                    start: self.block_at(start),
                    bytes: self.block_bytes(within),
                };
            }
        }
        FreeError::NotAllocated { block }
    }
}

fn shape_of(bytes: u64, unit: u64) -> Result<Shape, RegionError> {
    if !unit.is_power_of_two() || unit < Buddy::<Native>::LEAST_UNIT {
        return Err(RegionError::BadUnit { unit });
    }
    let units = bytes / unit;
    // A region larger than an offset can span cannot be managed either.
    if units == 0 || units > Buddy::<Native>::MOST_UNITS || bytes > Offset::SPAN {
        return Err(RegionError::BadSize { bytes, unit, units });
    }
    Ok(Shape::new(units))
}

fn checksum(header: [u64; 3]) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&MAGIC.to_le_bytes());
    for word in header {
        hasher.update(&word.to_le_bytes());
    }
    hasher.finalize().into()
}
