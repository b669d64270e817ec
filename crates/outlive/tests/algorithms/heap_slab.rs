//! The heap of small objects: against a model with deaths, its errors, its check, and many threads
//! at once.

use crate::pod::{DATA, IDS, Pod, SIZE};
use outlive::heap::buddy::{AllocateError, FreeError, OpenError, RegionError};
use outlive::heap::{self, Heap, HeapFinding, HeapRepair, LocalHeap};
use outlive::membership::Member;
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::recovery::{OperationKind, OwnLog};
use outlive::sync;
use proptest::prelude::*;
use std::collections::BTreeMap;

const STATE: Offset = Offset::new(SIZE);
const SLAB: u64 = 32 << 10;
const CELLS: u64 = 200;

fn pod_with(bytes: u64, domain: PersistenceDomain) -> (Pod<Native>, Heap) {
    let state = Heap::<Native>::state_bytes(bytes).unwrap();
    let region = (STATE + state).raw().next_multiple_of(4096);
    let memory = Native::leaked((region + bytes).next_multiple_of(4096), domain);
    let mut pod = Pod::new(memory);
    let heap = Heap::create(memory, STATE, Offset::new(region), bytes).expect("a heap");
    pod.recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(pod.logs)), heap);
    (pod, heap)
}

fn cell(index: u64) -> Offset {
    assert!(index < CELLS);
    DATA + index * 8
}

fn held(pod: &Pod<Native>, index: u64) -> u64 {
    pod.memory.load(cell(index), Ordering::Relaxed)
}

fn set(pod: &Pod<Native>, at: Offset, value: u64) {
    pod.memory.store(at, value, Ordering::Relaxed);
}

/// The table's entry for a slab.
fn entry(slab: u64) -> Offset {
    STATE + 0x180 + slab * 0x280
}

#[track_caller]
fn assert_sound(pod: &Pod<Native>, heap: Heap) {
    let cells = (0..CELLS).map(|index| held(pod, index));
    let blocks = cells.filter(|word| *word != 0).map(Offset::from_raw);
    let report = heap.check_reachable(blocks);
    assert!(report.is_clean(), "{report}");
    assert!(heap.check().is_clean());
    assert_eq!(heap.check_members(pod.logs, pod.generations), []);
}

#[test]
fn blocks_of_every_size_do_not_overlap_and_come_back() {
    for domain in [PersistenceDomain::Flushed, PersistenceDomain::WriteBack] {
        let (pod, heap) = pod_with(64 * SLAB, domain);
        let member = pod.join(0);
        let local = LocalHeap::of(heap, &member, &pod.recoverers);
        let sizes = [
            0, 1, 16, 17, 100, 128, 129, 1000, 4097, 8192, 8193, 20_000, 40_000,
        ];
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (index, bytes) in (0..).zip(sizes) {
            for copy in 0..3 {
                let block = local.allocate_into(bytes, cell(3 * index + copy)).unwrap();
                assert!(block.raw().is_multiple_of(16));
                let end = block.raw() + bytes.max(1);
                let apart = |(from, to): &(u64, u64)| end <= *from || *to <= block.raw();
                assert!(taken.iter().all(apart));
                taken.push((block.raw(), end));
            }
        }
        assert_sound(&pod, heap);
        for index in 0..3 * sizes.len() as u64 {
            let block = local.free_from(cell(index), 7 + index).unwrap();
            assert_eq!(held(&pod, index), 7 + index);
            set(&pod, cell(index), block.raw());
            let again = local.free_from(cell(index), 0);
            assert_eq!(again, Err(FreeError::NotAllocated { block }));
            assert_eq!(held(&pod, index), block.raw());
            set(&pod, cell(index), 0);
        }
        assert_sound(&pod, heap);
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (pod, heap) = pod_with(4 * SLAB, PersistenceDomain::Flushed);
    let (member, stranger) = (pod.join(0), pod.join(1));
    let local = LocalHeap::of(heap, &member, &pod.recoverers);
    let block = local.allocate_into(100, cell(0)).unwrap();
    let holds = block.raw();
    let occupied = AllocateError::CellOccupied {
        cell: cell(0),
        holds,
    };
    assert_eq!(local.allocate_into(1, cell(0)), Err(occupied));
    let bad = Offset::new(DATA.raw() + 4);
    assert!(matches!(
        local.allocate_into(1, bad),
        Err(AllocateError::BadCell(_))
    ));
    assert!(matches!(
        local.free_from(bad, 0),
        Err(FreeError::BadCell(_))
    ));
    let empty = FreeError::CellEmpty { cell: cell(1) };
    assert_eq!(local.free_from(cell(1), 0), Err(empty));
    for (wrong, inside) in [
        (block + 16, true),
        (block + 112, false),
        (DATA, false),
        (heap.buddy().region() + SLAB - 16, false),
        (heap.buddy().region() + 2 * SLAB, false),
    ] {
        for way in [&local, &LocalHeap::of(heap, &stranger, &pod.recoverers)] {
            set(&pod, cell(1), wrong.raw());
            let refused = way.free_from(cell(1), 0).unwrap_err();
            assert_eq!(
                matches!(refused, FreeError::Inside { .. }),
                inside,
                "{refused}"
            );
            assert_eq!(held(&pod, 1), wrong.raw());
        }
    }
    set(&pod, cell(1), 0);
    assert_sound(&pod, heap);
    // Another member's free, twice, before any collection.
    let other = LocalHeap::of(heap, &stranger, &pod.recoverers);
    other.free_from(cell(0), 0).unwrap();
    for way in [&local, &other] {
        set(&pod, cell(0), holds);
        let again = way.free_from(cell(0), 0);
        assert_eq!(again, Err(FreeError::NotAllocated { block }));
    }
    set(&pod, cell(0), 0);
    assert_sound(&pod, heap);
}

#[test]
fn a_full_heap_says_what_is_free() {
    let (pod, heap) = pod_with(2 * SLAB, PersistenceDomain::Flushed);
    let member = pod.join(0);
    let local = LocalHeap::of(heap, &member, &pod.recoverers);
    for index in 0..8 {
        local.allocate_into(8192, cell(index)).unwrap();
    }
    for bytes in [8192, 16, 16_000] {
        let full = local.allocate_into(bytes, cell(8)).unwrap_err();
        let AllocateError::HeapFull { asked, free, .. } = full else {
            panic!("{full}");
        };
        assert_eq!((asked, free), (bytes, 0));
    }
    // A slab that becomes empty is recut, or given back for a large block.
    for index in 0..4 {
        local.free_from(cell(index), 0).unwrap();
    }
    local.allocate_into(16, cell(8)).unwrap();
    assert_sound(&pod, heap);
    local.free_from(cell(8), 0).unwrap();
    local.allocate_into(SLAB, cell(8)).unwrap();
    assert_sound(&pod, heap);
}

#[test]
fn slabs_go_back_but_for_one_of_a_class() {
    let (pod, heap) = pod_with(64 * SLAB, PersistenceDomain::Flushed);
    let member = pod.join(0);
    let local = LocalHeap::of(heap, &member, &pod.recoverers);
    for index in 0..40 {
        local.allocate_into(8000, cell(index)).unwrap();
    }
    assert_eq!(heap.buddy().free_bytes(), 54 * SLAB);
    for index in 0..40 {
        local.free_from(cell(index), 0).unwrap();
    }
    // The current slab, and one that is kept.
    assert_eq!(heap.buddy().free_bytes(), 62 * SLAB);
    assert_sound(&pod, heap);
}

#[test]
fn the_next_way_of_a_member_and_its_next_incarnation_find_its_slabs() {
    let (pod, heap) = pod_with(2 * SLAB, PersistenceDomain::Flushed);
    let member = pod.join(0);
    for index in 0..8 {
        let local = LocalHeap::of(heap, &member, &pod.recoverers);
        local.allocate_into(8192, cell(index)).unwrap();
    }
    LocalHeap::of(heap, &member, &pod.recoverers)
        .free_from(cell(3), 0)
        .unwrap();
    pod.leave(member);
    let member = pod.join(0);
    let local = LocalHeap::of(heap, &member, &pod.recoverers);
    local.allocate_into(8192, cell(3)).unwrap();
    assert_sound(&pod, heap);
}

/// A heap handle, with small and large blocks in the member's pending-allocation cells.
fn with_full_hands<'m>(pod: &'m Pod<Native>, heap: Heap, member: &'m Member) -> LocalHeap<'m> {
    let way = LocalHeap::of(heap, member, &pod.recoverers);
    for (pending, bytes) in [(0, 100), (3, 8000), (7, SLAB)] {
        way.allocate_into(bytes, way.pending_cell(pending)).unwrap();
    }
    way
}

#[test]
fn who_leaves_or_panics_with_full_hands_leaves_nothing_in_them() {
    let (pod, heap) = pod_with(16 * SLAB, PersistenceDomain::Flushed);
    let panics = core::panic::AssertUnwindSafe(|| {
        let member = pod.act_as(0);
        let _way = with_full_hands(&pod, heap, &member);
        panic!("on purpose");
    });
    drop(pod.join(0));
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_sound(&pod, heap);
    // The member lives on.
    let member = pod.act_as(0);
    drop(with_full_hands(&pod, heap, &member));
    assert_sound(&pod, heap);
    // A block of an operation is left to its handler, or to the program.
    let way = with_full_hands(&pod, heap, &member);
    let log = OwnLog::of(&member);
    let operation = log.begin(OperationKind::new(99), &[]);
    drop(way);
    assert_ne!(in_hand(&pod, 0), 0);
    operation.abandon(&[]);
    drop(LocalHeap::of(heap, &member, &pod.recoverers));
    assert_sound(&pod, heap);
    pod.leave(member);
    let heir = pod.join(0);
    drop(with_full_hands(&pod, heap, &heir));
}

#[test]
fn slabs_of_who_left_are_found_before_new_ones_are_cut() {
    const SLABS: u64 = 20;
    let (pod, heap) = pod_with(64 * SLAB, PersistenceDomain::Flushed);
    let slabs = || -> u64 {
        let classes = heap.check().statistics.classes;
        classes.iter().map(|class| class.slabs).sum()
    };
    let (leaver, other) = (pod.join(0), pod.join(1));
    let others = LocalHeap::of(heap, &other, &pod.recoverers);
    // Twice: a scan that found no slab does not hide later ones.
    for times in 0..2 {
        let member = if times == 0 {
            pod.act_as(0)
        } else {
            pod.join(0)
        };
        let leavers = LocalHeap::of(heap, &member, &pod.recoverers);
        let before = slabs();
        for index in 0..4 * SLABS {
            leavers.allocate_into(8000, cell(index)).unwrap();
        }
        let last = 4 * SLABS - 1;
        leavers.free_from(cell(last), 0).unwrap();
        drop(leavers);
        pod.leave(member);
        let there = slabs();
        assert!(there >= before + SLABS - 1);
        others.allocate_into(8000, cell(last)).unwrap();
        assert_eq!(slabs(), there, "a new slab was cut");
        for index in 0..4 * SLABS {
            others.free_from(cell(index), 0).unwrap();
        }
        // All slabs that remain are in use by one live member, for many rounds.
        for index in 0..cells_of(there) {
            others.allocate_into(8000, cell(index)).unwrap();
        }
        for index in 0..cells_of(there) {
            others.free_from(cell(index), 0).unwrap();
        }
    }
    drop(leaver);
}

/// Returns the number of cells that `slabs` slabs fill.
fn cells_of(slabs: u64) -> u64 {
    (4 * slabs + 40).min(CELLS)
}

/// Returns the content of the first pending-allocation cell of an id.
fn in_hand(pod: &Pod<Native>, id: u32) -> u64 {
    let pending = pod.logs.of(id).room() + 0xC0;
    pod.memory.load(pending, Ordering::Relaxed)
}

#[test]
fn damage_is_found_and_mended_as_far_as_that_is_safe() {
    let (pod, heap) = pod_with(4 * SLAB, PersistenceDomain::Flushed);
    let member = pod.join(0);
    let local = LocalHeap::of(heap, &member, &pod.recoverers);
    let block = local.allocate_into(8192, cell(0)).unwrap();
    assert_eq!(block, heap.buddy().region());
    let finding = || heap.check().findings;
    assert_eq!(heap.repair(), []);

    let (local_at, remote_at) = (entry(0) + 0x80, entry(0) + 0x180);
    set(&pod, local_at, 0x31);
    let at = local_at;
    assert_eq!(finding(), [HeapFinding::NoBlock { at, bits: 0x30 }]);
    assert_eq!(heap.repair(), [HeapRepair::Bits { at, bits: 0x30 }]);
    // Not wrong: a collection was cut short.
    set(&pod, remote_at, 0x2);
    assert_eq!(finding(), []);
    let at = remote_at;
    assert_eq!(heap.repair(), [HeapRepair::Collected { at, bits: 2 }]);
    set(&pod, entry(1), member.instance().to_word());
    assert!(matches!(finding()[..], [HeapFinding::NoSlab { .. }]));
    assert!(matches!(heap.repair()[..], [HeapRepair::Entry { .. }]));
    set(&pod, entry(1) + 0x10, 1);
    assert!(matches!(finding()[..], [HeapFinding::OwesNothing { .. }]));
    assert!(matches!(heap.repair()[..], [HeapRepair::Debt { .. }]));
    assert_sound(&pod, heap);

    set(&pod, entry(0) + 8, 32);
    assert!(matches!(
        finding()[..],
        [HeapFinding::BadClass { class: 32, .. }]
    ));
    assert!(matches!(
        local.free_from(cell(0), 0),
        Err(FreeError::Corrupt(_))
    ));
    set(&pod, entry(0) + 8, 31);
    set(&pod, entry(0), 5 << 32);
    let members = heap.check_members(pod.logs, pod.generations);
    assert!(matches!(members[..], [HeapFinding::BadOwner { .. }]));
    set(&pod, entry(0), member.instance().to_word());
    let leak = heap.check_reachable([]).findings;
    assert_eq!(leak, [HeapFinding::Leak { block, bytes: 8192 }]);
    let dangling = heap.check_reachable([block, block, block + 8192]).findings;
    assert_eq!(dangling.len(), 2, "{dangling:?}");
}

#[test]
fn damaged_and_impossible_heaps_are_refused() {
    let (pod, heap) = pod_with(4 * SLAB, PersistenceDomain::Flushed);
    let memory = pod.memory;
    assert_eq!(Heap::open(memory, STATE).unwrap().state(), heap.state());
    let nothing = Heap::open(memory, DATA);
    assert!(matches!(nothing, Err(OpenError::NotOne { .. })));
    let outside = Heap::open(memory, Offset::new(memory.size()));
    assert!(matches!(outside, Err(OpenError::Region { .. })));
    for word in 0..4 {
        let at = STATE + word * 8;
        let before: u64 = memory.load(at, Ordering::Relaxed);
        set(&pod, at, before ^ 1 << 40);
        assert!(Heap::open(memory, STATE).is_err(), "word {word}");
        set(&pod, at, before);
    }
    let region = heap.buddy().region();
    let overlap = Heap::create(memory, STATE, STATE, SLAB);
    assert!(matches!(overlap, Err(RegionError::Overlap { .. })));
    for (at, bytes) in [
        (region, u64::MAX),
        (region, 100 * SLAB),
        (region + 8, SLAB),
        (region, 0),
    ] {
        assert!(Heap::create(memory, STATE, at, bytes).is_err());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { who: u32, cell: u64, bytes: u64 },
    Free { who: u32, cell: u64 },
    Hand { who: u32, bytes: u64 },
    NewWay { who: u32 },
    Die { who: u32, recoverer: u32 },
    Leave { who: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0..IDS - 1;
    let bytes = prop_oneof![
        4 => 7000u64..=8192, 2 => 0u64..300, 1 => 300u64..7000, 1 => 8193u64..40_000
    ];
    let step = prop_oneof![
        10 => (who.clone(), 0..40u64, bytes.clone())
            .prop_map(|(who, cell, bytes)| Step::Allocate { who, cell, bytes }),
        9 => (who.clone(), 0..40u64).prop_map(|(who, cell)| Step::Free { who, cell }),
        1 => (who.clone(), bytes).prop_map(|(who, bytes)| Step::Hand { who, bytes }),
        1 => who.clone().prop_map(|who| Step::NewWay { who }),
        1 => (who.clone(), 0..IDS).prop_map(|(who, recoverer)| Step::Die { who, recoverer }),
        1 => who.prop_map(|who| Step::Leave { who }),
    ];
    prop::collection::vec(step, 0..200)
}

fn follows_the_model(steps: &[Step]) {
    let (pod, heap) = pod_with(14 * SLAB, PersistenceDomain::Flushed);
    let pod: &'static Pod<Native> = Box::leak(Box::new(pod));
    let member = |id| &*Box::leak(Box::new(pod.act_as(id)));
    (0..IDS).for_each(|id| drop(pod.join(id)));
    let way = |member: &'static Member<Native>| LocalHeap::of(heap, member, &pod.recoverers);
    let mut ways: Vec<LocalHeap<'_>> = (0..IDS).map(|id| way(member(id))).collect();
    // The start and the end of each block.
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let enter = |model: &mut BTreeMap<u64, u64>, block: Offset, bytes: u64| {
        let end = block.raw() + bytes.max(1);
        let before = model.range(..end).next_back();
        assert!(
            before.is_none_or(|(_, to)| *to <= block.raw()),
            "an overlap"
        );
        model.insert(block.raw(), end);
    };
    for step in steps {
        match *step {
            Step::Allocate {
                who,
                cell: at,
                bytes,
            } => {
                let before = held(pod, at);
                match ways[who as usize].allocate_into(bytes, cell(at)) {
                    Ok(block) => {
                        assert_eq!((before, held(pod, at)), (0, block.raw()));
                        enter(&mut model, block, bytes);
                    }
                    Err(AllocateError::CellOccupied { .. }) => assert_ne!(before, 0),
                    Err(AllocateError::HeapFull { .. }) => assert_eq!(held(pod, at), 0),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Free { who, cell: at } => {
                let before = held(pod, at);
                match ways[who as usize].free_from(cell(at), 0) {
                    Ok(block) => {
                        assert_eq!((before, held(pod, at)), (block.raw(), 0));
                        assert!(model.remove(&block.raw()).is_some());
                    }
                    Err(error) => assert!(before == 0, "{error}"),
                }
            }
            Step::Hand { who, bytes } => {
                let way = &ways[who as usize];
                if let Ok(block) = way.allocate_into(bytes, way.pending_cell(0)) {
                    enter(&mut model, block, bytes);
                }
            }
            Step::NewWay { who } => {
                let before = ways.remove(who as usize);
                let member = before.member();
                // The block in its pending-allocation cell ends with it.
                model.remove(&pod.memory.load(before.pending_cell(0), Ordering::Relaxed));
                drop(before);
                ways.insert(who as usize, way(member));
            }
            Step::Die { who, recoverer } => {
                let pending = ways[who as usize].pending_cell(0);
                model.remove(&pod.memory.load(pending, Ordering::Relaxed));
                pod.declare_dead(who);
                let by = ways[recoverer as usize].member();
                if recoverer != who {
                    pod.recoverers.recover(by, who).unwrap();
                    pod.join(who);
                } else {
                    let stranger = {
                        pod.recoverers
                            .recover(ways[IDS as usize - 1].member(), who)
                            .unwrap();
                        pod.stranger(who)
                    };
                    outlive::recovery::OwnLog::open(&stranger).unwrap();
                }
                ways[who as usize] = way(member(who));
            }
            Step::Leave { who } => {
                let way_of = &ways[who as usize];
                if pod
                    .memory
                    .load::<u64>(way_of.pending_cell(0), Ordering::Relaxed)
                    != 0
                {
                    let block = way_of.free_from(way_of.pending_cell(0), 0).unwrap();
                    model.remove(&block.raw());
                }
                pod.leave(pod.act_as(who));
                pod.join(who);
                ways[who as usize] = way(member(who));
            }
        }
    }
    let report = heap.check_reachable(model.keys().copied().map(Offset::from_raw));
    assert!(report.is_clean(), "{report}");
    assert_eq!(heap.check_members(pod.logs, pod.generations), []);
    // Everything is reusable: when all slabs are orphans or empty, a block of half the region can
    // be allocated.
    for index in 0..40 {
        if held(pod, index) != 0 {
            ways[3].free_from(cell(index), 0).unwrap();
        }
    }
    for way in &ways[..3] {
        if pod
            .memory
            .load::<u64>(way.pending_cell(0), Ordering::Relaxed)
            != 0
        {
            way.free_from(way.pending_cell(0), 0).unwrap();
        }
        pod.leave(pod.act_as(way.instance().id));
    }
    ways[3].allocate_into(8 * SLAB, cell(50)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_heap_follows_a_model_through_deaths(steps in steps()) {
        follows_the_model(&steps);
    }
}

#[test]
fn threads_free_what_others_allocated_and_nothing_is_given_twice() {
    const ROUNDS: u64 = 30_000;
    let (pod, heap) = pod_with(256 * SLAB, PersistenceDomain::Flushed);
    let (memory, logs, generations) = (pod.memory, pod.logs, pod.generations);
    (0..IDS).for_each(|id| drop(pod.join(id)));
    // Each cell belongs to one thread at a time: taken by exchange.
    let slots = 64u64;
    std::thread::scope(|scope| {
        for id in 0..IDS {
            scope.spawn(move || {
                let pod = Pod::new(memory);
                let recoverers =
                    heap::recoverers_of(heap::recoverers(sync::recoverers(logs)), heap);
                let member = pod.act_as(id);
                let local = LocalHeap::of(heap, &member, &recoverers);
                let mut state = 0x9E37_79B9_7F4A_7C15u64 ^ u64::from(id);
                for _ in 0..ROUNDS {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let bytes = 16 + (state >> 20) % 500;
                    let pending = local.pending_cell(0);
                    let block = local.allocate_into(bytes, pending).unwrap();
                    let words = bytes / 8;
                    // The whole block is this thread's: its stores stay.
                    memory.store(block, block.raw() ^ words, Ordering::Relaxed);
                    for word in 1..words {
                        memory.store(block + word * 8, block.raw(), Ordering::Relaxed);
                    }
                    memory.store(pending, 0u64, Ordering::Relaxed);
                    let slot = cell(100 + (state >> 40) % slots);
                    let old: u64 = memory.exchange(slot, block.raw(), Ordering::AcqRel);
                    if old == 0 {
                        continue;
                    }
                    let old = Offset::from_raw(old);
                    let words = memory.load::<u64>(old, Ordering::Relaxed) ^ old.raw();
                    assert!((2..65).contains(&words), "{words}");
                    for word in 1..words {
                        let found: u64 = memory.load(old + word * 8, Ordering::Relaxed);
                        assert_eq!(found, old.raw(), "handed out twice");
                    }
                    memory.store(pending, old.raw(), Ordering::Relaxed);
                    local.free_from(pending, 0).unwrap();
                }
            });
        }
    });
    assert_eq!(heap.check_members(logs, generations), []);
    assert_sound(&pod, heap);
}
