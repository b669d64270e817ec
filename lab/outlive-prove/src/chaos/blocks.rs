//! Blocks: allocated into cells and freed from them.
//!
//! A cell holds a block or is empty, which tells whether an allocation or a free took effect. Each
//! block is marked with its owner at both ends, so a block of two workers shows two owners. Every
//! other large block comes from the buddy allocator itself, the others from the worker's heap
//! handle.

use super::ledger::{Intent, Tally, What};
use super::stage::{LARGE_CELLS, SMALL_CELLS, Stage};
use super::worker::Hands;
use outlive::heap::buddy::AllocateError;
use outlive_memory::{Memory, Offset, Ordering};

/// A cell of one worker, for one block.
#[derive(Clone, Copy, Debug)]
struct Cell {
    worker: u32,
    small: bool,
    number: u64,
}

impl Cell {
    fn of(hands: &Hands<'_>, intent: Intent) -> Self {
        Self {
            worker: hands.worker,
            small: matches!(intent.what, What::AllocateSmall | What::FreeSmall),
            number: intent.which,
        }
    }

    fn at(self, stage: Stage) -> Offset {
        if self.small {
            stage.small_cell(self.worker, self.number)
        } else {
            stage.large_cell(self.worker, self.number)
        }
    }

    /// Returns the offset of its block, or 0 if it is empty.
    fn block(self, stage: Stage) -> u64 {
        stage.memory.load(self.at(stage), Ordering::Acquire)
    }

    /// Returns the size of its blocks in bytes, which a later incarnation knows by its number.
    fn bytes(self) -> u64 {
        if self.small {
            16 << (self.number % 8) | (self.number & 24)
        } else {
            16384 << (self.number % 4) | 64
        }
    }

    fn is_from_the_buddy(self) -> bool {
        !self.small && self.number.is_multiple_of(2)
    }

    fn mark(self) -> u64 {
        let kind = if self.small { 1 } else { 2 };
        0xB10C << 48 | u64::from(self.worker) << 32 | kind << 16 | self.number
    }

    fn ends(self, block: Offset) -> [Offset; 2] {
        [block, block + (self.bytes() / 8 * 8 - 8)]
    }

    fn put_marks(self, stage: Stage, block: Offset) {
        for at in self.ends(block) {
            stage.memory.store(at, self.mark(), Ordering::Relaxed);
        }
    }

    fn check_marks(self, stage: Stage, block: Offset) -> Result<(), String> {
        for at in self.ends(block) {
            let found: u64 = stage.memory.load(at, Ordering::Relaxed);
            if found != self.mark() {
                return Err(format!(
                    "the block at {block} belongs to {self:?}, but is marked {found:#x}"
                ));
            }
        }
        Ok(())
    }
}

/// Maps an error to `false` if the allocation was refused because the heap is full: it had no
/// effect and is not a failure. The buddy allocator returns `Full` then, a heap handle `HeapFull`.
pub fn no_room(error: AllocateError) -> Result<bool, String> {
    match error {
        AllocateError::Full { .. } | AllocateError::HeapFull { .. } => Ok(false),
        error => Err(error.to_string()),
    }
}

fn allocates(intent: Intent) -> bool {
    matches!(intent.what, What::Allocate | What::AllocateSmall)
}

/// Allocates or frees as `intent` says.
pub fn perform(hands: &Hands<'_>, intent: Intent) -> Result<bool, String> {
    let (stage, cell) = (hands.stage, Cell::of(hands, intent));
    let (member, recoverers, at) = (hands.member, hands.recoverers, cell.at(stage));
    let heap = hands.heap.heap();
    if allocates(intent) {
        let allocated = if cell.is_from_the_buddy() {
            let buddy = heap.buddy();
            buddy.allocate_into(member, recoverers, cell.bytes(), at)
        } else {
            hands.heap.allocate_into(cell.bytes(), at)
        };
        return match allocated {
            Ok(block) => {
                cell.put_marks(stage, block);
                Ok(true)
            }
            Err(error) => no_room(error),
        };
    }
    cell.check_marks(stage, Offset::from_raw(cell.block(stage)))?;
    let freed = if cell.is_from_the_buddy() {
        heap.buddy().free_from(member, recoverers, at).map(|_| ())
    } else {
        hands.heap.free_from(at, 0).map(|_| ())
    };
    freed.map(|()| true).map_err(|error| error.to_string())
}

/// Returns whether an inherited `intent` took effect. Marks a block that was allocated.
pub fn ask(hands: &Hands<'_>, intent: Intent) -> Result<bool, String> {
    let cell = Cell::of(hands, intent);
    let block = cell.block(hands.stage);
    if allocates(intent) && block != 0 {
        cell.put_marks(hands.stage, Offset::from_raw(block));
    }
    Ok(allocates(intent) == (block != 0))
}

/// Returns the faults in the cells of `worker`, and adds the blocks in them to `blocks`.
pub fn audit(stage: Stage, worker: u32, tally: &Tally, blocks: &mut Vec<Offset>) -> Vec<String> {
    let mut wrong = Vec::new();
    let cells = |small, count: u64| {
        (0..count).map(move |number| Cell {
            worker,
            small,
            number,
        })
    };
    for cell in cells(false, LARGE_CELLS).chain(cells(true, SMALL_CELLS)) {
        let block = cell.block(stage);
        let bits = if cell.small { tally.small } else { tally.large };
        let expected = bits & 1 << cell.number != 0;
        if expected != (block != 0) {
            wrong.push(format!(
                "{cell:?} holds {block:#x}, but by its worker's tally it should {}",
                if expected { "hold a block" } else { "be empty" }
            ));
        }
        if block != 0 {
            let block = Offset::from_raw(block);
            wrong.extend(cell.check_marks(stage, block).err());
            blocks.push(block);
        }
    }
    for (allocated, freed, bits) in [
        (tally.allocated, tally.freed, tally.large),
        (tally.small_allocated, tally.small_freed, tally.small),
    ] {
        let there = u64::from(bits.count_ones());
        if allocated - freed != there {
            wrong.push(format!(
                "worker {worker} allocated {allocated} blocks and freed {freed}, but has {there}"
            ));
        }
    }
    wrong
}
