//! A dead worker's unit is taken over only when everything that the dead worker left to be carried
//! out has been settled.

use outlive::heap::{self, Heap, LocalHeap};
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::recovery::{Logs, OwnLog, Recovered};
use outlive::sync;
use outlive_tasks::{Engine, Settings, Slots, Spec, Task};

#[test]
fn a_unit_is_taken_over_after_its_workers_log_is_settled_even_if_the_id_lives_again() {
    let memory = Native::leaked(1 << 21, PersistenceDomain::Flushed);
    let generations = Generations::new(memory, Offset::new(64), 4);
    let logs = Logs::new(memory, Offset::new(4096), 4);
    let (state, region) = (Offset::new(1 << 18), Offset::new(1 << 20));
    let heap = Heap::create(memory, state, region, 1 << 20).unwrap();
    let recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(logs)), heap);
    let settings = Settings {
        capacity: 2,
        ..Settings::default()
    };
    let slots = Slots::create(memory, Offset::new(1 << 17), settings).unwrap();
    let join = |id: u32, status| {
        let before = generations.state(id).unwrap();
        let next = State {
            generation: before.generation + 1,
            host: 0,
            level: Some(Level::Thread),
            status,
        };
        // SAFETY: no thread acts as the incarnation that this ends; one acts as the one it begins.
        assert!(unsafe { generations.assume_state(id, before, next) });
        let instance = Instance::new(id, next.generation);
        // SAFETY: nothing else is a member here, and the test has one thread.
        unsafe { Member::assume(memory, generations, instance, logs.at(id), None) }
    };
    let (root, cell) = (Task::new(memory, Offset::new(2048)), Offset::new(1032));
    // Another worker works, too, and needs nothing of the allocator any more.
    let other = join(1, Status::Live);
    OwnLog::open(&other).unwrap();
    let other_heap = LocalHeap::of(heap, &other, &recoverers);
    let claimed = Engine::claim_slot(slots, 1, &other_heap, &recoverers, &mut ()).unwrap();
    let mut others = claimed.expect("no member has had it");
    // The first worker has the unit's task and dies while it allocates, with the allocator's lock.
    let first = join(0, Status::Live);
    OwnLog::open(&first).unwrap();
    let local = LocalHeap::of(heap, &first, &recoverers);
    let mut engine = Engine::claim(slots, &local, &recoverers, &mut ()).unwrap();
    let spec = Spec::new(0, &[7]);
    root.prepare_root(&local, &spec, outlive_tasks::State::Ready)
        .unwrap();
    assert!(engine.start(root).unwrap().is_some());
    drop(local);
    let locked = heap.buddy().lock(&first, &recoverers).unwrap();
    let mut redo = locked.redo().unwrap();
    let block = locked.allocate(&mut redo, 4096).unwrap();
    redo.store(cell, block.raw()).unwrap();
    core::mem::forget(redo);
    core::mem::forget(locked);
    core::mem::forget(first);
    let live = generations.state(0).unwrap();
    let dead = State {
        generation: live.generation + 1,
        status: Status::Dead,
        ..live
    };
    // SAFETY: no thread acts as the incarnation that this ends; one acts as the one it begins.
    assert!(unsafe { generations.assume_state(0, live, dead) });
    // The next incarnation of the first worker has joined, and stalls before it recovers the first.
    let next = join(0, Status::Live);
    assert_eq!(logs.of(0).locks().count(), 1);
    let run = others
        .next(&mut ())
        .unwrap()
        .expect("the dead member's run");
    assert_eq!(
        (run.attempt(), &run.arguments().unwrap()[..]),
        (1, &[7][..])
    );
    let left = logs.of(0);
    assert_eq!(
        left.locks().count(),
        0,
        "the dead member's lock is still held"
    );
    assert_eq!(
        left.claimant(),
        None,
        "the dead member's log is not settled"
    );
    assert_eq!(memory.load::<u64>(cell, Ordering::Relaxed), 0);
    // Nothing is left for the next incarnation, which continues normally.
    let recovered = recoverers.recover(&next, 0).unwrap();
    assert_eq!(recovered, Recovered::NothingLeft);
    assert!(OwnLog::open(&next).is_ok());
    drop(other_heap);
    core::mem::forget(next);
    core::mem::forget(other);
}
