//! The four standalone operations, and the outcome of one after a crash.
//!
//! Each is one redo transaction under the lock: the change of the tree, the store to the cell, and
//! "done, with this block" in the operation descriptor.

use super::{AllocateError, Buddy, FreeError, Locked};
use crate::membership::Member;
use crate::recovery::kinds::CoreOperation;
use crate::recovery::{
    Operation, OperationKind, OwnLog, Progress, RecoverError, RecoverOperation, Recoverers,
    Recovering, Redo, RunningOperation,
};
use outlive_memory::{Link, Memory, Offset, Ordering};

outlive_memory::crash_points! {
    /// The crash points of an allocation.
    pub enum BuddyAllocatePoint for "buddy.allocate" {
        /// The lock is held; the operation has not begun.
        Locked,
        /// The operation has begun; no block is chosen yet.
        Begun,
        /// All records are appended: the tree's, the cell's, the result's.
        Logged,
        /// The block is the caller's.
        Allocated,
        /// The lock is released.
        Unlocked,
    }
}

outlive_memory::crash_points! {
    /// The crash points of a free.
    pub enum BuddyFreePoint for "buddy.free" {
        /// The lock is held; the operation has not begun.
        Locked,
        /// The operation has begun; nothing is logged yet.
        Begun,
        /// All records are appended: the tree's, the cell's, the result's.
        Logged,
        /// The block is free.
        Freed,
        /// The lock is released.
        Unlocked,
    }
}

/// The operations of a buddy allocator, as descriptors name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BuddyOperation {
    /// [`Buddy::allocate`].
    Allocate,
    /// [`Buddy::allocate_into`].
    AllocateInto,
    /// [`Buddy::free`].
    Free,
    /// [`Buddy::free_from`].
    FreeFrom,
}

impl BuddyOperation {
    /// All operations.
    pub const ALL: [Self; 4] = [
        Self::Allocate,
        Self::AllocateInto,
        Self::Free,
        Self::FreeFrom,
    ];

    /// Returns the kind by which descriptors name the operation.
    pub const fn kind(self) -> OperationKind {
        match self {
            Self::Allocate => CoreOperation::BuddyAllocate.kind(),
            Self::AllocateInto => CoreOperation::BuddyAllocateInto.kind(),
            Self::Free => CoreOperation::BuddyFree.kind(),
            Self::FreeFrom => CoreOperation::BuddyFreeFrom.kind(),
        }
    }

    /// Returns the operation that descriptors of `kind` name, if it is one of these.
    pub fn of_kind(kind: OperationKind) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|operation| operation.kind() == kind)
    }
}

/// The outcome of an operation, as its descriptor records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The operation runs, or its owner's recovery has not settled it yet.
    Running(BuddyOperation),
    /// The operation did not take effect, and never will.
    NotDone(BuddyOperation),
    /// The operation took effect.
    Done {
        /// The operation.
        operation: BuddyOperation,
        /// The block that was allocated or freed.
        block: Offset,
        /// Its size in bytes.
        bytes: u64,
        /// The cell that it was published in or freed from.
        cell: Option<Offset>,
    },
}

impl Outcome {
    /// Returns the outcome of `operation`, if it is one of a buddy allocator.
    pub fn of(operation: &Operation) -> Option<Self> {
        let what = BuddyOperation::of_kind(operation.kind)?;
        Some(match operation.progress {
            Progress::Running => Self::Running(what),
            Progress::Undone => Self::NotDone(what),
            Progress::Done => {
                let with_cell = matches!(
                    what,
                    BuddyOperation::AllocateInto | BuddyOperation::FreeFrom
                );
                Self::Done {
                    operation: what,
                    block: Offset::from_raw(operation.result[0]),
                    bytes: operation.result[1],
                    cell: with_cell.then(|| Offset::from_raw(operation.arguments[2])),
                }
            }
        })
    }

    /// Returns the metadata offset of the allocator that `operation` worked on.
    pub fn allocator(operation: &Operation) -> Option<Offset> {
        BuddyOperation::of_kind(operation.kind)?;
        Some(Offset::from_raw(operation.arguments[0]))
    }
}

/// Settles an operation that its owner's death interrupted.
struct NotCommitted;

impl<M: Memory> RecoverOperation<M> for NotCommitted {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        // The completion of the operation is a record of its own transaction, and committed
        // transactions have been replayed. The operation still runs, so it was not done.
        dead.running(operation).abandon(&[]);
        Ok(())
    }
}

/// Adds the recovery handlers for the operations of buddy allocators.
pub fn recoverers<M: Memory>(recoverers: Recoverers<M>) -> Recoverers<M> {
    BuddyOperation::ALL
        .into_iter()
        .fold(recoverers, |recoverers, operation| {
            recoverers.operation(operation.kind(), NotCommitted)
        })
}

impl<M: Memory> Buddy<M> {
    /// Allocates a block of at least `bytes`, uninitialised, and returns its start. Its size is
    /// `bytes` rounded up to a power of two of units, at least one.
    ///
    /// # Errors
    /// See [`AllocateError`]; nothing has changed in that case.
    ///
    /// # Crash
    /// It takes effect or not, and the caller's [last operation](crate::recovery::Log::operation),
    /// or the one that its next incarnation inherits, says which: see [`Outcome`].
    pub fn allocate(
        &self,
        member: &Member<M>,
        recoverers: &Recoverers<M>,
        bytes: u64,
    ) -> Result<Offset, AllocateError> {
        self.allocate_for(member, recoverers, bytes, None)
    }

    /// Allocates a block of at least `bytes` and writes its offset into the 8-byte word at `cell`,
    /// which is 0 before, in one step.
    ///
    /// The cell is the caller's: no other thread writes to it during the call or, should the caller
    /// die in it, before the caller has been recovered. Any thread may read it; one that reads the
    /// offset (with acquire) finds the block allocated.
    ///
    /// # Errors
    /// See [`AllocateError`]; nothing has changed in that case.
    ///
    /// # Crash
    /// After recovery the cell holds a block that is allocated, or 0 and nothing was allocated.
    pub fn allocate_into(
        &self,
        member: &Member<M>,
        recoverers: &Recoverers<M>,
        bytes: u64,
        cell: Offset,
    ) -> Result<Offset, AllocateError> {
        self.allocate_for(member, recoverers, bytes, Some(cell))
    }

    /// Frees the block that starts at `block` and returns its size in bytes. The block must not be
    /// used any more.
    ///
    /// # Errors
    /// See [`FreeError`]; nothing has changed in that case. A block that was freed before and has
    /// not been allocated since is refused.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`allocate`](Self::allocate).
    pub fn free(
        &self,
        member: &Member<M>,
        recoverers: &Recoverers<M>,
        block: Offset,
    ) -> Result<u64, FreeError> {
        let (_, bytes) = self.free_what(member, recoverers, What::Block(block))?;
        Ok(bytes)
    }

    /// Frees the block that the word at `cell` holds and clears the cell, in one step. Returns the
    /// offset of the block. The cell is the caller's, as in [`allocate_into`](Self::allocate_into).
    /// Tags in it are ignored.
    ///
    /// # Errors
    /// See [`FreeError`]; nothing has changed in that case.
    ///
    /// # Crash
    /// After recovery the cell holds the block, which is allocated, or 0 and the block is free.
    pub fn free_from(
        &self,
        member: &Member<M>,
        recoverers: &Recoverers<M>,
        cell: Offset,
    ) -> Result<Offset, FreeError> {
        let cell = Offset::checked(cell.raw(), 8, 8, self.memory.size());
        let cell = cell.map_err(FreeError::BadCell)?;
        let (block, _) = self.free_what(member, recoverers, What::HeldBy(cell))?;
        Ok(block)
    }

    #[inline]
    fn allocate_for(
        &self,
        member: &Member<M>,
        recoverers: &Recoverers<M>,
        bytes: u64,
        cell: Option<Offset>,
    ) -> Result<Offset, AllocateError> {
        let order = self.order(bytes)?;
        if let Some(cell) = cell {
            Offset::checked(cell.raw(), 8, 8, self.memory.size())
                .map_err(AllocateError::BadCell)?;
        }
        let (memory, own) = (self.memory, OwnLog::of(member));
        if let Some(sequence) = running(own) {
            return Err(AllocateError::OperationRuns { sequence });
        }
        let locked = self.lock(member, recoverers)?;
        memory.crash_point(BuddyAllocatePoint::Locked);
        let mut redo = locked.redo()?;
        if let Some(cell) = cell {
            // Relaxed: the cell is the caller's.
            let holds: u64 = memory.load(cell, Ordering::Relaxed);
            if holds != 0 {
                return Err(AllocateError::CellOccupied { cell, holds });
            }
        }
        let operation = match cell {
            None => BuddyOperation::Allocate,
            Some(_) => BuddyOperation::AllocateInto,
        };
        let arguments = [self.metadata().raw(), bytes, cell.map_or(0, Offset::raw)];
        let running = own.begin(operation.kind(), &arguments);
        memory.crash_point(BuddyAllocatePoint::Begun);
        let logged = self.log_allocation(&locked, &running, &mut redo, order, bytes, cell);
        let block = match logged {
            Ok(block) => block,
            Err(error) => {
                running.abandon(&[]);
                return Err(error);
            }
        };
        memory.crash_point(BuddyAllocatePoint::Logged);
        redo.commit();
        memory.crash_point(BuddyAllocatePoint::Allocated);
        drop(locked);
        memory.crash_point(BuddyAllocatePoint::Unlocked);
        Ok(block)
    }

    #[inline]
    fn log_allocation(
        &self,
        locked: &Locked<'_, M>,
        running: &RunningOperation<'_, M>,
        redo: &mut Redo<'_, M>,
        order: u32,
        bytes: u64,
        cell: Option<Offset>,
    ) -> Result<Offset, AllocateError> {
        let block = locked.take(redo, order, bytes)?;
        if let Some(cell) = cell {
            redo.store(cell, Link::new(block).to_word())?;
        }
        running.finish_by(redo, &[block.raw(), self.block_bytes(order)])?;
        Ok(block)
    }

    #[inline]
    fn free_what(
        &self,
        member: &Member<M>,
        recoverers: &Recoverers<M>,
        what: What,
    ) -> Result<(Offset, u64), FreeError> {
        let (memory, own) = (self.memory, OwnLog::of(member));
        if let Some(sequence) = running(own) {
            return Err(FreeError::OperationRuns { sequence });
        }
        let locked = self.lock(member, recoverers)?;
        memory.crash_point(BuddyFreePoint::Locked);
        let mut redo = locked.redo()?;
        let (operation, block, cell) = match what {
            What::Block(block) => (BuddyOperation::Free, block, None),
            What::HeldBy(cell) => {
                // Relaxed: the cell is the caller's.
                let link = Link::from_word(memory.load(cell, Ordering::Relaxed));
                if link.is_null() {
                    return Err(FreeError::CellEmpty { cell });
                }
                (BuddyOperation::FreeFrom, link.offset(), Some(cell))
            }
        };
        let arguments = [
            self.metadata().raw(),
            block.raw(),
            cell.map_or(0, Offset::raw),
        ];
        let running = own.begin(operation.kind(), &arguments);
        memory.crash_point(BuddyFreePoint::Begun);
        let logged = locked.free(&mut redo, block).and_then(|bytes| {
            if let Some(cell) = cell {
                redo.store(cell, Link::NULL.to_word())?;
            }
            running.finish_by(&mut redo, &[block.raw(), bytes])?;
            Ok(bytes)
        });
        let bytes = match logged {
            Ok(bytes) => bytes,
            Err(error) => {
                running.abandon(&[]);
                return Err(error);
            }
        };
        memory.crash_point(BuddyFreePoint::Logged);
        redo.commit();
        memory.crash_point(BuddyFreePoint::Freed);
        drop(locked);
        memory.crash_point(BuddyFreePoint::Unlocked);
        Ok((block, bytes))
    }
}

/// The block to free.
#[derive(Clone, Copy)]
enum What {
    Block(Offset),
    HeldBy(Offset),
}

/// Returns the number of the caller's operation that still runs: its descriptor must not be
/// displaced, because its recovery needs it. (A damaged descriptor belongs to no operation.)
#[inline]
fn running<M: Memory>(own: OwnLog<'_, M>) -> Option<u64> {
    let last = own.log().operation().ok()??;
    (last.instance == own.instance() && !last.is_done()).then_some(last.sequence)
}
