//! A heap of a few slabs in a pod, the operations that are cut short in it, and the checks
//! afterwards.

#![allow(dead_code)] // each proof and test uses its part of this

use super::pod::{DATA, HeapPod, IDS, SIZE};
use outlive::heap::LocalHeap;
use outlive::heap::buddy::AllocateError;
use outlive::membership::Member;
use outlive::memory::{Memory, Offset, Ordering};

pub const SLAB: u64 = 32 << 10;
/// The size of the largest class: four blocks a slab.
pub const QUARTER: u64 = 8 << 10;
/// The size of the smallest blocks that do not come from slabs.
pub const LARGE: u64 = 16 << 10;
pub const STATE: Offset = Offset::new(SIZE);
/// Leaves enough for the state of eight slabs.
pub const REGION: Offset = Offset::new(SIZE + (12 << 10));
/// Counts the blocks that are owed to the buddy allocator; for broken variants.
pub const OWED: Offset = Offset::new(STATE.raw() + 0x140);
/// The count for which no block is left owed.
pub const PAID: Offset = Offset::new(STATE.raw() + 0x148);
pub const CELLS: u64 = 24;
/// The value that a cell gets when its block is freed.
pub const FREED: u64 = 7;

/// Returns the size of a memory with a heap of `slabs` slabs.
pub const fn bytes(slabs: u64) -> u64 {
    REGION.raw() + slabs * SLAB
}

/// Returns the table's entry for a slab; for broken variants.
pub fn entry(slab: u64) -> Offset {
    STATE + 0x180 + slab * 0x280
}

/// A pod and its heap.
pub type World<M> = HeapPod<M>;

/// Opens the pod over a memory in which the heap has been created.
pub fn pod<M: Memory>(memory: M) -> World<M> {
    HeapPod::open(memory, STATE)
}

/// Creates the heap in zeroed memory, and opens its pod.
pub fn create<M: Memory>(memory: M, slabs: u64) -> World<M> {
    HeapPod::create(memory, STATE, REGION, slabs * SLAB)
}

/// Ends a heap handle, and leaves the blocks in the member's pending-allocation cells.
pub fn forsake<M: Memory>(pod: &World<M>, way: LocalHeap<'_, M>) {
    let keeper = pod.logs.of(way.instance().id).room() + 0x88;
    std::mem::forget(way);
    pod.memory.store(keeper, 0u64, Ordering::Relaxed);
}

pub fn cell(index: u64) -> Offset {
    assert!(index < CELLS);
    DATA + index * 8
}

/// Returns the block in a cell.
pub fn held<M: Memory>(pod: &World<M>, index: u64) -> Option<Offset> {
    let word: u64 = pod.memory.load(cell(index), Ordering::Relaxed);
    (word != 0 && word != FREED).then(|| Offset::from_raw(word))
}

/// Checks that exactly the cells' blocks are allocated, and nothing of dead members is left.
pub fn demand_sound<M: Memory>(pod: &World<M>) -> Result<(), String> {
    pod.demand_sound((0..CELLS).filter_map(|index| held(pod, index)))?;
    for id in 0..IDS {
        if !pod.status(id).may_write() {
            pod.assert_settled(id);
        }
    }
    Ok(())
}

crate::cases! {
    /// The operation during which the victim, number 0, dies.
    pub enum Case {
        /// Allocates a small block into cell 10, from a slab with free space.
        Allocate,
        /// Frees cell 0 of its own slab.
        FreeOwn,
        /// Frees cell 1 of another member's slab.
        FreeRemote,
        /// Frees cell 1 of the slab of a member that is dead and not recovered.
        FreeOfTheDead,
        /// Allocates into cell 10 when there is no slab yet.
        Cut,
        /// Allocates into cell 10 when another member has freed two blocks of a full slab.
        Collect,
        /// Allocates into cell 10 from the slab of a member that died and has been recovered.
        Adopt,
        /// The same with a member that died in the middle of a free, and has not been recovered.
        AdoptBeforeRecovery,
        /// Allocates into cell 10 from a dead member's empty slab that had blocks of another class.
        Recut,
        /// Frees cells 0, 1 and 2, each the last block of its slab.
        GiveBack,
        /// Allocates a large block into cell 10.
        AllocateLarge,
        /// Frees the large block of cell 0.
        FreeLarge,
        /// Allocates a large block into cell 10; dead members' empty slabs must be given back
        /// first.
        AllocateLargeWhenFull,
        /// Allocates a small and a large block into its pending-allocation cells.
        Hands,
        /// Allocates a large block into cell 10, where a dead instance's large block is owed.
        Pay,
        /// Fails to allocate into cell 10.
        Full,
    }
    broken {
        /// The cell is written, then the bit is set.
        PublishesFirst,
        /// The bit is set without a note, then the cell is written.
        ForgetsTheNote,
        /// The cell is emptied, then the bit is cleared, without a note.
        FreesWithoutNote,
    }
}

impl Case {
    /// Returns the number of slabs that fit into the region.
    pub const fn slabs(self) -> u64 {
        match self {
            Self::Recut | Self::Full | Self::AllocateLargeWhenFull => 2,
            Self::GiveBack
            | Self::PublishesFirst
            | Self::ForgetsTheNote
            | Self::FreesWithoutNote => 4,
            Self::Collect | Self::FreeOwn | Self::Allocate | Self::FreeRemote => 2,
            _ => 3,
        }
    }

    /// Does everything that precedes the operation.
    pub fn prepare<M: Memory>(self, memory: M) {
        let pod = create(memory, self.slabs());
        let victim = pod.join(0);
        let other = pod.join(3);
        drop([pod.join(1), pod.join(2)]);
        let (mine, theirs) = (pod.local(&victim), pod.local(&other));
        let into = |way: &LocalHeap<'_, M>, index, bytes| {
            way.allocate_into(bytes, cell(index))
                .expect("there is free space");
        };
        let die = |id| {
            pod.declare_dead(id);
            pod.recoverers.recover(&pod.act_as(2), id).unwrap();
        };
        match self {
            Self::Cut | Self::AllocateLarge | Self::Hands => {}
            Self::Allocate
            | Self::FreeOwn
            | Self::PublishesFirst
            | Self::ForgetsTheNote
            | Self::FreesWithoutNote => (0..2).for_each(|index| into(&mine, index, QUARTER)),
            Self::FreeRemote | Self::FreeOfTheDead => {
                (0..3).for_each(|index| into(&theirs, index, QUARTER));
                if self == Self::FreeOfTheDead {
                    pod.declare_dead(3);
                }
            }
            Self::Collect => {
                (0..4).for_each(|index| into(&mine, index, QUARTER));
                for index in 1..3 {
                    theirs.free_from(cell(index), FREED).unwrap();
                }
            }
            Self::Adopt => {
                (0..3).for_each(|index| into(&theirs, index, QUARTER));
                // The adopter collects blocks that other members have freed.
                mine.free_from(cell(1), FREED).unwrap();
                die(3);
            }
            Self::AdoptBeforeRecovery => {
                (0..3).for_each(|index| into(&theirs, index, QUARTER));
                die_in_a_free(&pod, 3, 1);
            }
            Self::Recut => {
                into(&theirs, 0, 100);
                theirs.free_from(cell(0), FREED).unwrap();
                into(&theirs, 1, 1000);
                die(3);
            }
            Self::GiveBack => {
                for index in 0..3 {
                    // Each is the only block in its slab.
                    (12..16).for_each(|filler| into(&mine, filler, QUARTER));
                    mine.free_from(cell(12), 0).unwrap();
                    into(&mine, index, QUARTER);
                    (13..16).for_each(|filler| empty(&mine, filler));
                    if index < 2 {
                        // So the next one is in another slab.
                        (16 + 3 * index..19 + 3 * index).for_each(|at| into(&mine, at, QUARTER));
                    }
                }
                (16..22).for_each(|filler| empty(&mine, filler));
            }
            Self::FreeLarge => into(&mine, 0, LARGE),
            Self::AllocateLargeWhenFull => {
                into(&theirs, 0, 100);
                into(&theirs, 1, 1000);
                theirs.free_from(cell(0), FREED).unwrap();
                die(3);
            }
            Self::Pay => {
                theirs.allocate_into(LARGE, theirs.pending_cell(0)).unwrap();
                die(3);
            }
            Self::Full => {
                into(&theirs, 0, 100);
                into(&theirs, 1, LARGE);
                into(&theirs, 2, LARGE);
            }
        }
    }

    /// Runs the operation.
    pub fn operate<M: Memory>(self, pod: &World<M>, victim: &Member<M>) {
        let way = pod.local(victim);
        let store = |at, value: u64| pod.memory.store(at, value, Ordering::Release);
        match self {
            Self::Allocate
            | Self::Cut
            | Self::Collect
            | Self::Adopt
            | Self::AdoptBeforeRecovery => {
                way.allocate_into(QUARTER, cell(10)).unwrap();
            }
            Self::Recut => {
                way.allocate_into(QUARTER, cell(10)).unwrap();
            }
            Self::FreeOwn => {
                way.free_from(cell(0), FREED).unwrap();
            }
            Self::FreeRemote | Self::FreeOfTheDead => {
                way.free_from(cell(1), FREED).unwrap();
            }
            Self::GiveBack => (0..3).for_each(|index| {
                way.free_from(cell(index), FREED).unwrap();
            }),
            Self::AllocateLarge | Self::AllocateLargeWhenFull | Self::Pay => {
                way.allocate_into(LARGE, cell(10)).unwrap();
            }
            Self::FreeLarge => {
                way.free_from(cell(0), FREED).unwrap();
            }
            Self::Hands => {
                way.allocate_into(100, way.pending_cell(0)).unwrap();
                way.allocate_into(LARGE, way.pending_cell(7)).unwrap();
            }
            Self::Full => {
                let full = way.allocate_into(QUARTER, cell(10));
                assert!(
                    matches!(full, Err(AllocateError::HeapFull { .. })),
                    "{full:?}"
                );
            }
            Self::PublishesFirst => {
                store(cell(10), (REGION + 2 * QUARTER).raw());
                store(entry(0) + 0x80, 0b111);
            }
            Self::ForgetsTheNote => {
                store(entry(0) + 0x80, 0b111);
                store(cell(10), (REGION + 2 * QUARTER).raw());
            }
            Self::FreesWithoutNote => {
                store(cell(0), 0);
                store(entry(0) + 0x80, 0b10);
            }
        }
    }

    /// Recovers all dead members, as `id`, and allocates a block into a cell of its own: from
    /// memory that they left, if there is space.
    pub fn recover<M: Memory>(self, pod: &World<M>, id: u32) {
        let survivor = pod.act_as(id);
        pod.recoverers.recover_all(&survivor).unwrap();
        let full = pod
            .local(&survivor)
            .allocate_into(QUARTER, cell(10 + u64::from(id)));
        assert!(
            matches!(
                full,
                Ok(_) | Err(AllocateError::HeapFull { .. } | AllocateError::CellOccupied { .. })
            ),
            "{full:?}"
        );
    }

    /// Checks the heap after all dead members have been recovered.
    pub fn check<M: Memory>(self, pod: &World<M>, returned: bool) -> Result<(), String> {
        demand_sound(pod)?;
        let demand = |what: bool, why: &str| what.then_some(()).ok_or(why.to_owned());
        let freed = |index| held(pod, index).is_none();
        match self {
            _ if !returned => Ok(()),
            Self::Hands | Self::Full => demand(freed(10), "something was allocated"),
            Self::FreeOwn | Self::FreeLarge => demand(freed(0), "a free is lost"),
            Self::FreeRemote | Self::FreeOfTheDead => demand(freed(1), "a free is lost"),
            Self::GiveBack => {
                demand(freed(0) && freed(1) && freed(2), "a free is lost")?;
                let slabs: u64 = pod
                    .heap
                    .check()
                    .statistics
                    .classes
                    .iter()
                    .map(|all| all.slabs)
                    .sum();
                demand(slabs <= 2, "no slab was given back")
            }
            _ => demand(!freed(10), "an allocation is lost"),
        }
    }
}

fn empty<M: Memory>(way: &LocalHeap<'_, M>, index: u64) {
    way.free_from(cell(index), 0).unwrap();
}

/// Lets `id` die as it frees the block of cell `index` of its own slab: the step is noted, the cell
/// has changed.
fn die_in_a_free<M: Memory>(pod: &World<M>, id: u32, index: u64) {
    let (step, block) = (pod.logs.of(id).room(), held(pod, index).unwrap());
    let store = |at, value: u64| pod.memory.store(at, value, Ordering::Relaxed);
    store(step + 8, cell(index).raw());
    store(step + 16, FREED);
    store(step, 2 << 60 | block.raw());
    store(cell(index), FREED);
    pod.declare_dead(id);
}
