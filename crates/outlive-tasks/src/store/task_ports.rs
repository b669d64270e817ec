//! How a task gets its ports, and all blocks of a pool.

use super::jobs::Root;
use super::layout::{DESKS_IN_ALL, Hand, Layout};
use super::names::Ports;
use super::staging::StagingSlot;
use crate::engine::supply;
use crate::{EngineError, PoolError, Task};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Offset, Ordering};

/// The bit in the word of a task's outputs that is set when the ports are written. Before that,
/// their block is uninitialised.
pub const WRITTEN: u64 = 1;

/// Returns the ports of a task, if it has any and they are written.
#[inline]
pub fn ports_of<M: Memory>(memory: M, task: Task<M>) -> Option<Ports<M>> {
    let word = task.inputs();
    (word != 0 && task.outputs() == WRITTEN).then(|| Ports::at(memory, Offset::from_raw(word)))
}

/// Frees the block of ports that were never written, because the worker that allocated it died.
pub fn free_unwritten<M: Memory>(heap: &LocalHeap<'_, M>, task: Task<M>) -> Result<(), PoolError> {
    if task.inputs() != 0 && task.outputs() != WRITTEN {
        heap.free_from(task.inputs_at(), 0)?;
    }
    Ok(())
}

/// Allocates and writes the ports of a task that has none and is not yet visible to other workers.
///
/// # Crash
/// The block is the task's, and the task's words say whether it is written.
pub fn give_ports<M: Memory>(
    hand: Hand<'_, M>,
    task: Task<M>,
    inputs: &[Offset],
    outputs: &[Offset],
) -> Result<Ports<M>, EngineError> {
    let memory = hand.heap.memory();
    // A descriptor whose ports were freed still says that they are written.
    memory.store(task.outputs_at(), 0u64, Ordering::Relaxed);
    let bytes = Ports::<M>::bytes(inputs.len(), outputs.len());
    // The allocation is a release: it comes after that store.
    let at = hand.heap.allocate_into(bytes, task.inputs_at())?;
    let ports = Ports::write(memory, at, task.offset().raw(), inputs, outputs);
    ports.set_life(task.status()?.sequence());
    // Release: the contents of the ports.
    memory.store(task.outputs_at(), WRITTEN, Ordering::Release);
    Ok(ports)
}

/// Gives a task ports by names, with an additional output for the job's result. Can be repeated.
///
/// # Crash
/// The outcome is that of a crash in [`give_ports`].
pub fn give_named_ports<M: Memory>(
    layout: Layout<M>,
    hand: Hand<'_, M>,
    task: Task<M>,
    reads: &[Vec<u8>],
    writes: &[Vec<u8>],
) -> Result<(), EngineError> {
    // The pin keeps the cells valid until the ports name them; then `keep` checks them.
    let _pin = hand.heap.pin();
    let cells = || -> Result<(Vec<Offset>, Vec<Offset>), EngineError> {
        let cell = |key: &Vec<u8>| Ok(layout.names.cell(hand.heap, key)?.offset());
        let of = |keys: &[Vec<u8>]| {
            keys.iter()
                .map(cell)
                .collect::<Result<Vec<_>, EngineError>>()
        };
        let mut outputs = of(writes)?;
        outputs.push(Offset::from_raw(0));
        Ok((of(reads)?, outputs))
    };
    let (mut inputs, mut outputs) = cells()?;
    loop {
        let ports = match ports_of(layout.memory, task) {
            None => give_ports(hand, task, &inputs, &outputs)?,
            Some(ports) => ports.rewrite(task.offset().raw(), &inputs, &outputs),
        };
        if ports.keep() {
            return Ok(());
        }
        // A name's data is being removed, after which the name leads to another cell. If the
        // remover is dead, its removal is finished here.
        while cells()? == (inputs.clone(), outputs.clone()) {
            settle_removals(layout, hand)?;
            layout.memory.spin_hint();
        }
        (inputs, outputs) = cells()?;
    }
}

/// Finishes the removals of dead members, which would hold up users of the removed names.
fn settle_removals<M: Memory>(layout: Layout<M>, hand: Hand<'_, M>) -> Result<(), EngineError> {
    match StagingSlot::settle_those_of_the_gone(layout, hand) {
        Err(PoolError::Engine(error)) => Err(error),
        Err(PoolError::Free(error)) => Err(error.into()),
        Err(PoolError::Recover(error)) => Err(error.into()),
        Err(PoolError::Full(error)) => Err(error.into()),
        // No other error occurs there.
        _ => Ok(()),
    }
}

/// Returns every task that has ports, written or not.
fn ported<M: Memory>(layout: Layout<M>) -> Result<Vec<Task<M>>, PoolError> {
    let mut all = Vec::new();
    for number in 0..layout.slots.used() {
        let slot = layout.slots.slot(number);
        let chunk = layout.slots.settings().chunk;
        supply::each(layout.memory, slot, chunk, |task| {
            // A descriptor that was never used has no inputs.
            if task.inputs() != 0 {
                all.push(task);
            }
            Ok::<(), PoolError>(())
        })?;
    }
    Ok(all)
}

/// Returns every heap block of the pool, while no worker works.
pub fn blocks_of<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
) -> Result<Vec<Offset>, PoolError> {
    let mut blocks = vec![layout.at, layout.text_block()];
    blocks.extend(layout.names.blocks(heap));
    blocks.extend(layout.jobs.blocks());
    blocks.extend(layout.errors.blocks());
    blocks.extend(layout.slots.blocks()?);
    for task in ported(layout)? {
        match ports_of(layout.memory, task) {
            Some(ports) => blocks.extend(ports.blocks()),
            None => blocks.push(Offset::from_raw(task.inputs())),
        }
    }
    for number in 0..layout.roots {
        let root = Root::of(layout, number);
        blocks.extend(root.blocks()?);
        let task = root.task();
        let block: u64 = layout.memory.load(task.block_at(), Ordering::Relaxed);
        if block != 0 {
            blocks.push(Offset::from_raw(block));
        }
    }
    blocks.extend(Ports::abandoned(layout.memory, layout.abandoned_at()));
    for number in 0..DESKS_IN_ALL {
        blocks.extend(StagingSlot::at(layout, number).block(heap));
    }
    Ok(blocks)
}

/// Frees the ports of all tasks in the slots' descriptors, and the blocks of the roots. For the
/// last user of the pool. Can be repeated.
pub fn free_all_ports<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
) -> Result<(), PoolError> {
    for task in ported(layout)? {
        if let Some(ports) = ports_of(layout.memory, task) {
            ports.clear(heap)?;
        }
        heap.free_from(task.inputs_at(), 0)?;
    }
    for number in 0..layout.roots {
        Root::of(layout, number).dismantle(heap)?;
    }
    Ok(Ports::free_abandoned(heap, layout.abandoned_at())?)
}
