//! Once they are created, the queue and the parts allocate nothing; neither does logging, once a
//! log has reached its greatest length.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use outlive_machine::description::Description;
use outlive_machine::engine::{EventQueue, Random, Time};
use outlive_machine::line::LineAddress;
use outlive_machine::logging::{
    Begin, Begun, Clear, Epoch, LoggingUnit, Numbering, Repl, ReplicaGroups, Requester, Stored, Val,
};
use outlive_machine::parts::{CacheArray, Fabric, Memory, Port, Victim};
use outlive_machine::protocol::{NodeId, NodeSet};

struct Counting;

thread_local! {
    // Without a destructor and with a constant initial value, so that its use allocates nothing.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory is the system allocator's, of this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the number of this thread's allocations during `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn allocations_are_counted() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn a_steady_queue_allocates_nothing() {
    let mut queue = EventQueue::with_capacity(1_000);
    let mut random = Random::new(1);
    let hold = |queue: &mut EventQueue<u64>, random: &mut Random| {
        // A thousand pending, at times from picoseconds to hours away, many at one time.
        while queue.len() < 1_000 {
            let (bits, cut) = (random.bits(), 20 + random.below(44));
            queue.schedule(Time::from_picos(bits >> cut), bits);
        }
        queue.pop();
    };
    assert_eq!(
        allocations(|| (0..100_000).for_each(|_| hold(&mut queue, &mut random))),
        0
    );
    let mut fork = queue.clone();
    assert_eq!(
        allocations(|| (0..100_000).for_each(|_| hold(&mut fork, &mut random))),
        0
    );
}

#[test]
fn parts_allocate_nothing() {
    let description = Description::default();
    let mut cache: CacheArray<u8> = CacheArray::described(&description.l1);
    let mut fabric = Fabric::new(&description, 1);
    let mut dram = Memory::new(
        description.cxl.dram_latency,
        description.ours.memory.dram_banks,
    );
    let mut random = Random::new(2);
    let work = |at: u64| {
        let line = LineAddress(random.below(10_000));
        match cache.find(line) {
            Some(slot) => cache.touch(slot),
            None => {
                let slot = match cache.victim(line) {
                    Victim::Free(slot) => slot,
                    Victim::Taken(slot) => {
                        cache.remove(slot);
                        slot
                    }
                };
                cache.fill(slot, line, 1, [at; 8]);
            }
        }
        let now = Time::from_picos(at * 300);
        let at_switch = fabric.leave(now, Port((at % 32) as u16), 80);
        let at_memory = fabric.forward(at_switch, Port((at * 7 % 32) as u16), 80);
        dram.access(at_memory, line);
    };
    assert_eq!(allocations(|| (0..50_000).for_each(work)), 0);
}

#[test]
fn logging_allocates_nothing_in_the_steady_state() {
    let description = Description::default();
    let here = NodeId::new(0);
    let mut unit = LoggingUnit::new(&description, ReplicaGroups::new(&description), here);
    let mut random = Random::new(3);
    let mut numbering = Numbering::default();
    let requester = Requester {
        node: NodeId::new(1),
        core: 0,
    };
    // About 400 REPLs wait for their VALs, more than fit into the SRAM, and the VALs come in pairs,
    // the later one first.
    let (mut sequence, mut now) = (0, Time::ZERO);
    let mut log = |unit: &mut LoggingUnit, stores: u32| {
        for _ in 0..stores {
            now += Time::from_nanos(10);
            let line = LineAddress(random.below(1_000));
            let repl = Repl {
                requester,
                sequence,
                line,
                mask: 3,
                values: [now.picos(); 8],
            };
            unit.log(now, &repl).unwrap();
            sequence += 1;
            if sequence < 400 || sequence % 2 == 1 {
                continue;
            }
            let mut val = |sequence| Val {
                requester,
                sequence,
                timestamp: numbering.timestamp(here),
                commit: numbering.commit(),
                epoch: Epoch(1),
            };
            let [first, second] = [sequence - 400, sequence - 399].map(&mut val);
            unit.validate(now, &second).unwrap();
            unit.validate(now, &first).unwrap();
        }
    };
    log(&mut unit, 20_000);
    // A round of this unit alone clears the entries that it saves, which are all.
    let members = NodeSet::only(here);
    let begin = Begin { round: 1, members };
    let Begun::Save(share) = unit.begin(&begin).unwrap() else {
        panic!("the unit has entries to save")
    };
    assert!(share.entries > 30_000);
    let stored = Stored {
        node: here,
        round: 1,
    };
    let saved = unit.stored(&stored).unwrap();
    let clear = Clear {
        round: 1,
        members,
        saved: vec![(here, saved.through)],
    };
    unit.clear(&clear).unwrap();
    assert_eq!(unit.log_len(), 0);
    assert_eq!(allocations(|| log(&mut unit, 19_000)), 0);
    let counts = unit.counts();
    assert!(counts.spilled > 0 && counts.early_vals > 0 && unit.log_len() > 30_000);
}
