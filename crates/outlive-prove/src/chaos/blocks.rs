//! Large blocks: allocated into cells and freed from them.
//!
//! A cell holds a block or nothing, so whether an allocation or a free took effect is seen there. Each
//! block is marked with its owner at both ends; a block that two workers have shows two owners.

use super::ledger::{Intent, Tally, What};
use super::stage::{LARGE_CELLS, Stage};
use super::worker::Hands;
use outlive::heap::buddy::AllocateError;
use outlive_memory::{Memory, Offset, Ordering};

fn mark(worker: u32, cell: u64) -> u64 {
    0xB10C_0000_0000_0000 | u64::from(worker) << 16 | cell
}

/// How many bytes the block of `cell` has been asked for: by its number, so that it is known later.
pub fn bytes_of(cell: u64) -> u64 {
    4096 << (cell % 6) | 64
}

fn cell(hands: &Hands<'_>, intent: Intent) -> Offset {
    hands.stage.large_cell(hands.worker, intent.which)
}

fn ends(block: Offset, cell: u64) -> [Offset; 2] {
    [block, block + (bytes_of(cell) - 8)]
}

fn put_marks(hands: &Hands<'_>, intent: Intent, block: Offset) {
    for at in ends(block, intent.which) {
        let mark = mark(hands.worker, intent.which);
        hands.stage.memory.store(at, mark, Ordering::Relaxed);
    }
}

fn check_marks(stage: Stage, worker: u32, cell: u64, block: Offset) -> Result<(), String> {
    for at in ends(block, cell) {
        let found: u64 = stage.memory.load(at, Ordering::Relaxed);
        if found != mark(worker, cell) {
            return Err(format!(
                "the block at {block} belongs to cell {cell} of worker {worker} and is marked {found:#x}"
            ));
        }
    }
    Ok(())
}

/// Allocates or frees as `intent` says.
pub fn perform(hands: &Hands<'_>, intent: Intent) -> Result<bool, String> {
    let (member, cell) = (hands.member, cell(hands, intent));
    if intent.what == What::Allocate {
        let bytes = bytes_of(intent.which);
        return match hands
            .buddy
            .allocate_into(member, hands.recoverers, bytes, cell)
        {
            Ok(block) => {
                put_marks(hands, intent, block);
                Ok(true)
            }
            Err(AllocateError::Full { .. }) => Ok(false),
            Err(error) => Err(error.to_string()),
        };
    }
    let block: u64 = hands.stage.memory.load(cell, Ordering::Relaxed);
    check_marks(
        hands.stage,
        hands.worker,
        intent.which,
        Offset::from_raw(block),
    )?;
    let freed = hands.buddy.free_from(member, hands.recoverers, cell);
    freed.map(|_| true).map_err(|error| error.to_string())
}

/// Whether `intent`, which a former incarnation had, took effect. A block that was allocated is marked.
pub fn ask(hands: &Hands<'_>, intent: Intent) -> Result<bool, String> {
    let block: u64 = hands
        .stage
        .memory
        .load(cell(hands, intent), Ordering::Acquire);
    if intent.what == What::Allocate && block != 0 {
        put_marks(hands, intent, Offset::from_raw(block));
    }
    Ok((intent.what == What::Allocate) == (block != 0))
}

/// What is wrong with the cells of `worker`; adds the blocks in them to `blocks`.
pub fn audit(stage: Stage, worker: u32, tally: &Tally, blocks: &mut Vec<Offset>) -> Vec<String> {
    let mut wrong = Vec::new();
    for cell in 0..LARGE_CELLS {
        let block: u64 = stage
            .memory
            .load(stage.large_cell(worker, cell), Ordering::Acquire);
        let expected = tally.large & 1 << cell != 0;
        if expected != (block != 0) {
            wrong.push(format!(
                "cell {cell} of worker {worker} holds {block:#x}, and by its tally it should {}",
                if expected { "hold a block" } else { "be empty" }
            ));
        }
        if block != 0 {
            let block = Offset::from_raw(block);
            wrong.extend(check_marks(stage, worker, cell, block).err());
            blocks.push(block);
        }
    }
    let there = u64::from(tally.large.count_ones());
    if tally.allocated - tally.freed != there {
        wrong.push(format!(
            "worker {worker} allocated {} and freed {} and has {there}",
            tally.allocated, tally.freed
        ));
    }
    wrong
}
