//! The lock on the name of an object whose holder is dead, or lives beside dead members.

use crate::object_world;
use crate::object_world::{World, objects};
use crate::object_world::{assert_no_leak, world};
use outlive::heap::LocalHeap;
use outlive::membership::InstanceId;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::objects::{Counter, ObjectError};
use outlive::recovery::{RecoverError, RecoverRoom, Recovering};
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The offset of the state in the block of an object.
const STATE: u64 = 24;
/// The size of a lease.
const LEASE_BYTES: u64 = 8;

/// Returns the state of an object whose name the owner of the lease at `slot` has locked.
fn name_locked_by(slot: Offset) -> u64 {
    slot.raw() << 2
}

/// Creates an object, leases it, and locks its name, as `heap`'s member, which has id 0. Returns
/// where the object's state is.
fn leave_locked(world: &World<Native>, heap: &LocalHeap<'_>) -> Offset {
    let memory = world.memory;
    std::mem::forget(
        objects(heap)
            .create::<Counter>(object_world::KEPT, 5)
            .unwrap(),
    );
    let at = object_world::names(world.heap)
        .get(heap, object_world::KEPT)
        .unwrap();
    let leases = object_world::leases(world.heap, 0);
    let slot = { 1..32 }
        .map(|slot| leases + slot * LEASE_BYTES)
        .find(|slot| memory.load::<u64>(*slot, Ordering::Acquire) == at);
    let state = Offset::from_raw(at) + STATE;
    memory.store(state, name_locked_by(slot.unwrap()), Ordering::Release);
    state
}

/// Delays a recovery that has claimed the log until another thread has tried to use the name.
struct Slow(Barrier, AtomicBool);

impl RecoverRoom<Native> for &'static Slow {
    fn settle(&self, _: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        self.0.wait();
        for _ in 0..1000 {
            if self.1.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn release(&self, _: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        Ok(())
    }
}

/// A member that waits for the name lock of a dead member also waits while a third member recovers
/// the dead one.
#[test]
fn a_name_lock_whose_holder_another_member_recovers_is_no_damage() {
    let slow: &'static Slow = Box::leak(Box::new(Slow(Barrier::new(2), AtomicBool::new(false))));
    let world = world().with(|recoverers, _| recoverers.room(slow));
    let member = world.act_as(0);
    let heap = world.local(&member);
    leave_locked(&world, &heap);
    std::mem::forget(heap);
    world.declare_dead(0);
    std::thread::scope(|scope| {
        scope.spawn(|| world.recoverers.recover(&world.act_as(1), 0).unwrap());
        scope.spawn(|| {
            slow.0.wait();
            let member = world.act_as(2);
            let heap = world.local(&member);
            let unlinked = objects(&heap).unlink(object_world::KEPT);
            slow.1.store(true, Ordering::Relaxed);
            assert_eq!(unlinked, Ok(()));
        });
    });
}

/// Refuses to recover one id, while the flag is set.
struct Failing(InstanceId, AtomicBool);

impl RecoverRoom<Native> for &'static Failing {
    fn settle(&self, dead: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        match dead.owner().id == self.0 && self.1.load(Ordering::Relaxed) {
            true => Err(RecoverError::Handler("not yet".into())),
            false => Ok(()),
        }
    }

    fn release(&self, _: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        Ok(())
    }
}

/// A member that needs a name lock gets the error of the recovery of the dead holder. Nothing is
/// changed, and the next recovery begins again.
#[test]
fn a_recovery_that_fails_leaves_the_name_locked() {
    let failing: &'static Failing = Box::leak(Box::new(Failing(0, AtomicBool::new(true))));
    let world = world().with(|recoverers, _| recoverers.room(failing));
    {
        let member = world.act_as(0);
        let heap = world.local(&member);
        leave_locked(&world, &heap);
        std::mem::forget(heap);
    }
    world.declare_dead(0);
    let member = world.act_as(1);
    let heap = world.local(&member);
    let mine = objects(&heap);
    for _ in 0..2 {
        let unlinked = mine.unlink(object_world::KEPT);
        let is_it = matches!(
            unlinked,
            Err(ObjectError::Recover(RecoverError::Handler(_)))
        );
        assert!(is_it, "{unlinked:?}");
        let renamed = mine.rename(object_world::KEPT, object_world::MOVED);
        assert!(
            matches!(renamed, Err(ObjectError::Recover(_))),
            "{renamed:?}"
        );
        // Finding an object needs no lock, and other objects can be used.
        assert_eq!(mine.open::<Counter>(object_world::KEPT).unwrap().get(), 5);
        drop(mine.create::<Counter>(object_world::MADE, 1).unwrap());
        mine.unlink(object_world::MADE).unwrap();
    }
    failing.1.store(false, Ordering::Relaxed);
    assert_eq!(mine.unlink(object_world::KEPT), Ok(()));
    assert_eq!(mine.list().unwrap(), []);
    drop(heap);
    assert_no_leak(&world);
}

/// A member that waits for a live holder of a name lock waits although another member, which is
/// dead, cannot be recovered.
#[test]
fn a_name_lock_is_waited_for_beside_a_recovery_that_fails() {
    let failing: &'static Failing = Box::leak(Box::new(Failing(2, AtomicBool::new(true))));
    let world = world().with(|recoverers, _| recoverers.room(failing));
    let member = world.act_as(0);
    let heap = world.local(&member);
    let state = leave_locked(&world, &heap);
    world.declare_dead(2);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let member = world.act_as(1);
            let heap = world.local(&member);
            objects(&heap).unlink(object_world::KEPT)
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiter.is_finished());
        // Live, under the first name.
        world.memory.store(state, 2u64, Ordering::Release);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    failing.1.store(false, Ordering::Relaxed);
    objects(&heap).give_up_all();
    drop(heap);
    world.recoverers.recover_all(&world.act_as(3)).unwrap();
    assert_no_leak(&world);
}
