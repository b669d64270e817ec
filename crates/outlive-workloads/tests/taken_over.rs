//! A dead one's unit is taken over when nothing that the dead one left is still to be carried out, and no sooner.

use outlive::heap::{self, buddy::Buddy};
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::recovery::{Logs, OwnLog, Recovered};
use outlive::sync;
use outlive_workloads::work_list::{SharedList, Units, WorkList};

#[test]
fn a_unit_is_taken_over_after_its_claimants_log_is_settled_even_if_the_id_lives_again() {
    let memory = Native::leaked(1 << 20, PersistenceDomain::Flushed);
    let generations = Generations::new(memory, Offset::new(64), 4);
    let logs = Logs::new(memory, Offset::new(4096), 4);
    let recoverers = heap::recoverers(sync::recoverers(logs));
    let join = |id: u32, status| {
        let before = generations.state(id).unwrap();
        let next = State {
            generation: before.generation + 1,
            host: 0,
            level: Some(Level::Thread),
            status,
        };
        assert!(generations.transition(id, before, next));
        let instance = Instance::new(id, next.generation);
        // SAFETY: nothing else is a member here, and the test is one thread.
        unsafe { Member::assume(memory, generations, instance, logs.at(id), None) }
    };
    let (state, region) = (Offset::new(1 << 18), Offset::new(1 << 19));
    let buddy = Buddy::create(memory, state, region, 1 << 18, 4096).unwrap();
    let units = Units::new(memory, Offset::new(2048), 1);
    let (called_off, cell) = (Offset::new(1024), Offset::new(1032));
    // The first is given the unit and dies while it allocates, with the allocator's lock.
    let first = join(0, Status::Live);
    OwnLog::open(&first).unwrap();
    let mut list = SharedList::new(units, &first, &recoverers, called_off);
    assert_eq!(list.next().unwrap(), Some(0));
    let locked = buddy.lock(&first, &recoverers).unwrap();
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
    assert!(generations.transition(0, live, dead));
    // Its next incarnation has joined, and stalls before it recovers the first.
    let next = join(0, Status::Live);
    let other = join(1, Status::Live);
    OwnLog::open(&other).unwrap();
    let mut list = SharedList::new(units, &other, &recoverers, called_off);
    assert_eq!(list.next().unwrap(), Some(0));
    let left = logs.of(0);
    assert_eq!(left.locks().count(), 0, "the dead one's lock is still held");
    assert_eq!(left.claimant(), None, "the dead one's log is not settled");
    assert_eq!(memory.load::<u64>(cell, Ordering::Relaxed), 0);
    // There is nothing left for the next incarnation, which goes on as it would have.
    let recovered = recoverers.recover(&next, 0).unwrap();
    assert_eq!(recovered, Recovered::NothingLeft);
    assert!(OwnLog::open(&next).is_ok());
    core::mem::forget(next);
    core::mem::forget(other);
}
