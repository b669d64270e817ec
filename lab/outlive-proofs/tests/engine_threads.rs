//! The engine with real threads: every task of a tree is run once, a pool that is taken apart
//! leaves nothing, and damage is reported.

use outlive::heap::{self, Heap, LocalHeap};
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::sync;
use outlive_proofs::pod::{DATA, Pod, SIZE};
use outlive_tasks::{Engine, EngineError, Settings, Slots, Spec, State, Task};
use std::sync::atomic::AtomicU64;

const SLOTS: Offset = Offset::new(SIZE);
const STATE: Offset = Offset::new(SIZE + (16 << 10));
const REGION: Offset = Offset::new(1 << 20);
const BYTES: u64 = 32 << 20;
/// The depth of the tree.
const DEPTH: u8 = 14;

struct World {
    pod: Pod<Native>,
    heap: Heap,
    slots: Slots,
}

fn world() -> World {
    let memory = Native::leaked(REGION.raw() + BYTES, PersistenceDomain::Flushed);
    let heap = Heap::create(memory, STATE, REGION, BYTES).unwrap();
    let settings = Settings {
        capacity: 4,
        smallest: 1,
        ..Settings::default()
    };
    let slots = Slots::create(memory, SLOTS, settings).unwrap();
    let mut pod = Pod::new(memory);
    pod.recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(pod.logs)), heap);
    World { pod, heap, slots }
}

/// Works until `all` tasks are done: each spawns two, down to depth 1, every seventh with long
/// arguments.
fn work(world: &World, id: u32, done: &AtomicU64, all: u64) {
    let member = world.pod.join(id);
    let local = LocalHeap::of(world.heap, &member, &world.pod.recoverers);
    let mut engine = Engine::claim(world.slots, &local, &world.pod.recoverers, &mut ()).unwrap();
    let root = Task::new(world.pod.memory, DATA);
    while done.load(Ordering::Relaxed) < all {
        let next = match engine.next(&mut ()).unwrap() {
            None => engine.start(root).unwrap(),
            found => found,
        };
        let Some(mut run) = next else {
            std::hint::spin_loop();
            continue;
        };
        let arguments = run.arguments().unwrap();
        let depth = arguments[0];
        if depth > 1 {
            let mut long = [0; 200];
            long[0] = depth - 1;
            let is_long = done.load(Ordering::Relaxed).is_multiple_of(7);
            let arguments = if is_long { &long[..] } else { &long[..1] };
            for _ in 0..2 {
                engine.spawn(&mut run, &Spec::new(0, arguments)).unwrap();
            }
        }
        engine.complete(&mut run, &mut ()).unwrap();
        done.fetch_add(1, Ordering::Relaxed);
    }
    engine.end_of_phase().unwrap();
    engine.give_up().unwrap();
}

#[test]
fn a_tree_is_run_once_by_three_threads_and_leaves_nothing() {
    let world = world();
    let last = world.pod.join(3);
    let local = LocalHeap::of(world.heap, &last, &world.pod.recoverers);
    let root = Task::new(world.pod.memory, DATA);
    let spec = Spec::new(0, &[DEPTH]);
    root.prepare_root(&local, &spec, State::Ready).unwrap();
    let (done, all) = (AtomicU64::new(0), (1 << DEPTH) - 1);
    std::thread::scope(|scope| {
        for id in 0..3 {
            let (world, done) = (&world, &done);
            scope.spawn(move || work(world, id, done, all));
        }
    });
    assert_eq!(done.into_inner(), all);
    assert!(world.slots.is_quiet().unwrap());
    let tasks = world.slots.tasks().unwrap();
    assert!(tasks.iter().all(|(_, status)| status.state().is_over()));
    let blocks = world.slots.blocks().unwrap();
    let report = world.heap.check_reachable(blocks);
    assert!(report.is_clean(), "{report}");
    world.slots.dismantle(&local).unwrap();
    assert!(world.slots.blocks().unwrap().is_empty());
    let report = world.heap.check_reachable([]);
    assert!(report.is_clean(), "{report}");
}

#[test]
fn damaged_words_are_refused() {
    let world = world();
    let (memory, member) = (world.pod.memory, world.pod.join(0));
    let local = LocalHeap::of(world.heap, &member, &world.pod.recoverers);
    let claim = |number| {
        let claimed =
            Engine::claim_slot(world.slots, number, &local, &world.pod.recoverers, &mut ());
        claimed.map(|engine| engine.expect("the slot can be claimed"))
    };
    let mut victim = claim(1).unwrap();
    let root = Task::new(memory, DATA);
    let spec = Spec::new(0, &[]);
    root.prepare_root(&local, &spec, State::Ready).unwrap();
    let mut run = victim.start(root).unwrap().unwrap();
    victim.spawn(&mut run, &spec).unwrap();
    victim.complete(&mut run, &mut ()).unwrap();
    victim.give_up().unwrap();
    // The array of a deque: outside the memory, or of no size.
    let buffer = SLOTS + (0x100 + 0x300 + 8);
    let sound: u64 = memory.load(buffer, Ordering::Relaxed);
    let mut thief = claim(0).unwrap();
    for word in [0, sound & !0xFF, sound | 0xFF, u64::MAX >> 4 << 8 | 3] {
        memory.store(buffer, word, Ordering::Relaxed);
        let found = thief.next(&mut ());
        assert!(
            matches!(found, Err(EngineError::Damaged { .. })),
            "{found:?}"
        );
        assert!(word == 0 || claim(1).is_err());
    }
    memory.store(buffer, sound, Ordering::Relaxed);
    // An invalid status.
    let task = world.slots.tasks().unwrap();
    let (ready, status) = task
        .iter()
        .find(|(_, status)| status.state() == State::Ready)
        .unwrap();
    memory.store(ready.offset(), status.to_word() | 0xF, Ordering::Relaxed);
    assert!(matches!(
        thief.next(&mut ()),
        Err(EngineError::Damaged { .. })
    ));
    // A header.
    memory.store(SLOTS + 16, 1000u64, Ordering::Relaxed);
    let opened = Slots::open(memory, SLOTS);
    assert!(matches!(opened, Err(EngineError::NoSlots { .. })));
}
