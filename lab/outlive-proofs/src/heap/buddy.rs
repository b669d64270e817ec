//! A small buddy heap in a pod, the operations that are cut short in it, and the checks afterwards.

#![allow(dead_code)] // each proof and test uses its part of this

use super::pod::{DATA, IDS, Pod, SIZE};
use outlive::heap;
use outlive::heap::buddy::{AllocateError, Buddy, BuddyOperation, Outcome};
use outlive::membership::{Member, Status};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::recovery::OwnLog;
use outlive::sync;

pub const UNIT: u64 = 64;
/// Not a power of two, and more units than a word has bits.
pub const UNITS: u64 = 70;
pub const REGION: Offset = Offset::new(SIZE);
pub const METADATA: Offset = Offset::new(2048 + 256);
pub const BYTES: u64 = SIZE + 8192;
const CELLS: u64 = 8;
/// The tests' own notes: the sequence number of the last operation before, and the block to be
/// freed.
const BEFORE: Offset = Offset::new(2048 + 128);
const MINE: Offset = Offset::new(2048 + 136);

pub fn pod<M: Memory>(memory: M) -> Pod<M> {
    let mut pod = Pod::new(memory);
    pod.recoverers = heap::recoverers(sync::recoverers(pod.logs));
    pod
}

pub fn heap<M: Memory>(pod: &Pod<M>) -> Buddy<M> {
    Buddy::open(pod.memory, METADATA).expect("a heap")
}

pub fn cell(index: u64) -> Offset {
    assert!(index < CELLS);
    DATA + index * 8
}

pub fn held<M: Memory>(pod: &Pod<M>, index: u64) -> Option<Offset> {
    let word: u64 = pod.memory.load(cell(index), Ordering::Relaxed);
    (word != 0).then(|| Offset::from_raw(word))
}

/// The operation during which the victim, number 0, dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Allocates a block that only the descriptor holds; the large tree was halved five times.
    Allocate,
    /// Allocates into cell 3 by halving.
    AllocateInto,
    /// Allocates into cell 3 a block that is free as it is.
    AllocateIntoExact,
    /// Fails to allocate into cell 3 more than there is.
    AllocateTooMuch,
    /// Frees a block that no cell holds; it is joined with its buddy, and so on.
    Free,
    /// Frees the block of cell 0.
    FreeFrom,
    /// Allocates two blocks into cells 3 and 4 and frees cell 0, in a transaction of the caller's.
    Transaction,
    /// Allocates into cell 3, where a dead instance was about to free cell 1 and holds the lock.
    AfterADeath,
    /// Broken: the cell is written before the transaction is committed.
    PublishesFirst,
    /// Broken: the cell is written after the block is allocated.
    PublishesAfterwards,
    /// Broken: the block of cell 0 is freed, then the cell is cleared.
    ClearsAfterwards,
}

impl Case {
    pub const SOUND: [Self; 8] = [
        Self::Allocate,
        Self::AllocateInto,
        Self::AllocateIntoExact,
        Self::AllocateTooMuch,
        Self::Free,
        Self::FreeFrom,
        Self::Transaction,
        Self::AfterADeath,
    ];
    pub const BROKEN: [Self; 3] = [
        Self::PublishesFirst,
        Self::PublishesAfterwards,
        Self::ClearsAfterwards,
    ];

    /// Does everything that precedes the operation.
    pub fn prepare<M: Memory>(self, memory: M) {
        let pod = pod(memory);
        let victim = pod.join(0);
        (1..IDS).for_each(|id| drop(pod.join(id)));
        let heap = Buddy::create(memory, METADATA, REGION, UNITS * UNIT, UNIT).expect("a heap");
        let into = |index, units: u64| {
            heap.allocate_into(&victim, &pod.recoverers, units * UNIT, cell(index))
                .expect("there is free space")
        };
        // 70 is 64, 4 and 2. A unit and its buddy are taken, then four; one large block remains.
        into(0, 1);
        into(1, 3);
        match self {
            Self::AllocateInto | Self::Transaction | Self::AfterADeath => drop(into(2, 1)),
            Self::Free | Self::FreeFrom => {}
            _ => drop(into(2, 2)),
        }
        if self == Self::Free {
            let mine = heap.allocate(&victim, &pod.recoverers, UNIT).unwrap();
            memory.store(MINE, mine.raw(), Ordering::Relaxed);
        }
        if self == Self::AfterADeath {
            // Number 3 dies with the lock, its operation begun and its transaction not committed.
            let third = pod.act_as(3);
            let locked = heap.lock(&third, &pod.recoverers).unwrap();
            let mut redo = locked.redo().unwrap();
            let kind = BuddyOperation::FreeFrom.kind();
            let _ = OwnLog::of(&third).begin(kind, &[METADATA.raw(), 0, cell(1).raw()]);
            locked.free(&mut redo, held(&pod, 1).unwrap()).unwrap();
            std::mem::forget(redo);
            std::mem::forget(locked);
            pod.declare_dead(3);
        }
        let last = pod.logs.of(0).operation().unwrap().expect("an operation");
        memory.store(BEFORE, last.sequence, Ordering::Relaxed);
    }

    /// Runs the operation.
    pub fn operate<M: Memory>(self, pod: &Pod<M>, victim: &Member<M>) {
        let (heap, by) = (heap(pod), &pod.recoverers);
        match self {
            Self::Allocate => {
                heap.allocate(victim, by, UNIT).unwrap();
            }
            Self::AllocateInto | Self::AfterADeath => {
                heap.allocate_into(victim, by, UNIT, cell(3)).unwrap();
            }
            Self::AllocateIntoExact => {
                heap.allocate_into(victim, by, 32 * UNIT, cell(3)).unwrap();
            }
            Self::AllocateTooMuch => {
                let refused = heap.allocate_into(victim, by, 64 * UNIT, cell(3));
                let largest_free = 32 * UNIT;
                let asked = 64 * UNIT;
                let full = AllocateError::Full {
                    asked,
                    largest_free,
                };
                assert_eq!(refused, Err(full));
            }
            Self::Free => {
                let mine = Offset::from_raw(pod.memory.load(MINE, Ordering::Relaxed));
                assert_eq!(heap.free(victim, by, mine), Ok(UNIT));
            }
            Self::FreeFrom => {
                heap.free_from(victim, by, cell(0)).unwrap();
            }
            Self::Transaction => {
                let locked = heap.lock(victim, by).unwrap();
                let mut redo = locked.redo().unwrap();
                let first = locked.allocate(&mut redo, UNIT).unwrap();
                redo.store(cell(3), first.raw()).unwrap();
                locked.free(&mut redo, held(pod, 0).unwrap()).unwrap();
                redo.store(cell(0), 0u64).unwrap();
                let second = locked.allocate(&mut redo, 2 * UNIT).unwrap();
                redo.store(cell(4), second.raw()).unwrap();
                redo.commit();
            }
            Self::PublishesFirst => {
                let locked = heap.lock(victim, by).unwrap();
                let mut redo = locked.redo().unwrap();
                let block = locked.allocate(&mut redo, UNIT).unwrap();
                pod.memory.store(cell(3), block.raw(), Ordering::Relaxed);
                redo.commit();
            }
            Self::PublishesAfterwards => {
                let block = heap.allocate(victim, by, UNIT).unwrap();
                pod.memory.store(cell(3), block.raw(), Ordering::Relaxed);
            }
            Self::ClearsAfterwards => {
                heap.free(victim, by, held(pod, 0).unwrap()).unwrap();
                pod.memory.store(cell(0), 0u64, Ordering::Relaxed);
            }
        }
    }

    /// Checks the heap after all dead members have been recovered.
    pub fn check<M: Memory>(self, pod: &Pod<M>, returned: bool) -> Result<(), String> {
        let demand = |what: bool, why: &str| what.then_some(()).ok_or(why.to_owned());
        let heap = heap(pod);
        let last = pod.logs.of(0).operation().map_err(|e| e.to_string())?;
        let last = last.ok_or("the victim's operations are gone")?;
        let before: u64 = pod.memory.load(BEFORE, Ordering::Relaxed);
        let outcome = match last.sequence - before {
            0 => None,
            1 => Outcome::of(&last),
            _ => return Err(format!("{} operations were begun", last.sequence - before)),
        };
        let mut reached: Vec<Offset> = (0..CELLS).filter_map(|at| held(pod, at)).collect();
        let three = held(pod, 3);
        match (self, outcome) {
            (_, Some(Outcome::Running(_))) => return Err("the operation was not settled".into()),
            (Self::Allocate, Some(Outcome::Done { block, bytes, .. })) => {
                demand(bytes == UNIT, "the size is wrong")?;
                reached.push(block);
            }
            (Self::Allocate, _) if returned => {
                return Err("the allocation that returned is unknown".into());
            }
            (Self::AllocateInto | Self::AllocateIntoExact | Self::AfterADeath, outcome) => {
                let done = match outcome {
                    Some(Outcome::Done {
                        block, cell: at, ..
                    }) => {
                        demand(at == Some(cell(3)), "the wrong cell")?;
                        Some(block)
                    }
                    _ => None,
                };
                demand(done == three, "cell and descriptor differ")?;
                demand(!returned || done.is_some(), "an allocation is lost")?;
            }
            (Self::AllocateTooMuch, outcome) => {
                let refused = BuddyOperation::AllocateInto;
                let not_done = outcome == Some(Outcome::NotDone(refused));
                demand(!returned || not_done, "the refusal is not recorded")?;
                demand(three.is_none(), "something was allocated")?;
            }
            (Self::Free, outcome) => {
                let freed = matches!(outcome, Some(Outcome::Done { .. }));
                demand(!returned || freed, "a free is lost")?;
                if !freed {
                    let mine: u64 = pod.memory.load(MINE, Ordering::Relaxed);
                    reached.push(Offset::from_raw(mine));
                }
            }
            (Self::FreeFrom, outcome) => {
                let freed = matches!(outcome, Some(Outcome::Done { .. }));
                let cleared = held(pod, 0).is_none();
                demand(freed == cleared, "cell and descriptor differ")?;
                demand(!returned || freed, "a free is lost")?;
            }
            (Self::Transaction, _) => {
                let cells = [
                    three.is_some(),
                    held(pod, 4).is_some(),
                    held(pod, 0).is_none(),
                ];
                demand(cells == [cells[0]; 3], "the transaction is torn")?;
                demand(!returned || cells[0], "the transaction is lost")?;
            }
            _ => {}
        }
        let report = heap.check_reachable(reached);
        demand(report.is_clean(), &report.to_string())?;
        demand(heap.own_lock().holder().is_none(), "the lock is held")?;
        for id in 0..IDS {
            if pod.status(id) != Status::Live {
                let log = pod.logs.of(id);
                let settled = log.claimant().is_none() && log.locks().next().is_none();
                demand(settled && !log.redo_committed(), "a log is not settled")?;
                demand(
                    pod.status(id) == Status::Recovered,
                    "an id is not recovered",
                )?;
            }
        }
        Ok(())
    }
}
