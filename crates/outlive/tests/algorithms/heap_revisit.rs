//! Blocks left by departed members, when the member that frees them dies at any access.

#[allow(dead_code)] // one weakness is enough here
#[path = "../../../../lab/outlive-prove/src/weakened.rs"]
mod weakened;

use crate::pod::{Countdown, IDS, Pod, cut, sweep};
use crate::reclaim::{
    BLOCK, bytes_for, create, heap, link, pod as pod_of, put, read, retired, take,
};
use outlive::heap::{HeapFinding, LocalHeap};
use outlive::membership::{State, Status};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::recovery::{OwnLog, RecoverError, RecoverRoom, Recovering};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weakened::{Weakened, Weakness};

const REGION: u64 = 256 << 10;

/// Number 0 retires a block of number 3's slab while number 1 reads it, and leaves it there. All
/// others live.
fn leaves_a_block() -> (Pod<Countdown>, Offset) {
    let memory = Countdown::of_size(bytes_for::<Countdown>(REGION));
    let pod = create(memory, REGION);
    (0..IDS).for_each(|id| drop(pod.join(id)));
    let (leaver, reader, owner) = (pod.act_as(0), pod.act_as(1), pod.act_as(3));
    let owners = LocalHeap::of(heap(memory), &owner, &pod.recoverers);
    let block = put(&owners, 0, 7);
    let readers = LocalHeap::of(heap(memory), &reader, &pod.recoverers);
    let leavers = LocalHeap::of(heap(memory), &leaver, &pod.recoverers);
    let pin = readers.pin();
    assert!(read(&pin, memory, 0).is_some());
    leavers.retire(take(memory, 0).expect("it is linked"));
    drop(leavers);
    drop(pin);
    drop((owners, readers));
    pod.leave(leaver);
    assert_eq!(retired(&pod, 0), 1);
    (pod, block)
}

/// Number 2 scans the list that number 0 left, and dies at its access `n`. Returns whether it died.
fn revisitor_dies(pod: &Pod<Countdown>, n: u64) -> bool {
    let (memory, revisitor) = (pod.memory, pod.act_as(2));
    // A failed recovery does not propagate to its caller, so a death inside it is not reported.
    let survived = link(100);
    cut(n, || {
        let revisitors = LocalHeap::of(heap(memory), &revisitor, &pod.recoverers);
        revisitors.reclaim();
        memory.store(survived, 1u64, Ordering::Relaxed);
    });
    let died = memory.load::<u64>(survived, Ordering::Relaxed) == 0;
    if died {
        pod.declare_dead(2);
    }
    died
}

/// Takes blocks until none is left; returns the first block that was allocated twice.
fn take_all<M: Memory>(local: &LocalHeap<'_, M>, had: &mut BTreeSet<Offset>) -> Option<Offset> {
    let (memory, pending) = (local.memory(), local.pending_cell(3));
    while let Ok(block) = local.allocate_into(BLOCK, pending) {
        memory.store(pending, 0u64, Ordering::Relaxed);
        if !had.insert(block) {
            return Some(block);
        }
    }
    None
}

/// The slab's owner takes all blocks, the next incarnation of the leaver joins, and all are taken
/// again. Returns the deaths of the revisitor after which a block was allocated twice.
fn given_to_two<M: Memory>(of_the_owner: impl Fn(Countdown) -> M) -> Vec<u64> {
    let mut twice = Vec::new();
    let accesses = sweep(|n| {
        let (pod, block) = leaves_a_block();
        let died = revisitor_dies(&pod, n);
        let (view, mut had) = (of_the_owner(pod.memory), BTreeSet::new());
        let viewed = pod_of(view);
        let owner = viewed.act_as(3);
        let owners = LocalHeap::of(heap(view), &owner, &viewed.recoverers);
        let mut given = take_all(&owners, &mut had);
        let damage = heap(pod.memory).check_members(pod.logs, pod.generations);
        let none = |finding: &HeapFinding| matches!(finding, HeapFinding::BadStep { .. });
        assert!(!damage.iter().any(none), "access {n}: {damage:?}");
        let heir = pod.stranger(0);
        pod.recoverers.recover(&heir, 0).unwrap();
        OwnLog::open(&heir).unwrap();
        given = given.or_else(|| take_all(&owners, &mut had));
        if let Some(given) = given {
            assert_eq!(given, block);
            twice.push(n);
        }
        died
    });
    assert!(accesses > 50, "only {accesses} accesses");
    twice
}

#[test]
fn a_block_that_a_dead_revisitor_was_freeing_is_given_to_nobody_else() {
    assert_eq!(given_to_two(|memory| memory), []);
    // A collector that ignores the step of a departed id, an earlier bug.
    let blind = |memory| Weakened::new(memory, Weakness::Blind(Offset::new(4096 + 0x1800), 8));
    let found = given_to_two(blind);
    assert!(!found.is_empty());
    println!("a collector that ignores the steps of departed members: {found:?}");
}

#[test]
fn somebody_is_led_to_the_log_that_a_dead_revisitor_held() {
    sweep(|n| {
        let (pod, _) = leaves_a_block();
        let died = revisitor_dies(&pod, n);
        let owner = pod.act_as(3);
        if n.is_multiple_of(2) {
            pod.recoverers.recover_all(&owner).unwrap();
        }
        // This member was notified of no death, or has lost the notification.
        LocalHeap::of(heap(pod.memory), &owner, &pod.recoverers).reclaim();
        assert_eq!(pod.logs.of(0).claimant(), None, "access {n}");
        assert_eq!(retired(&pod, 0), 0, "access {n}");
        died
    });
}

/// A module that fails as long as the flag is set.
struct Fails(Arc<AtomicBool>);

impl<M: Memory> RecoverRoom<M> for Fails {
    fn settle(&self, _: &Recovering<'_, M>) -> Result<(), RecoverError> {
        Ok(())
    }

    fn release(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError> {
        assert!(!self.0.load(Relaxed), "{} is in a bad way", dead.owner());
        Ok(())
    }
}

#[test]
fn a_visit_that_fails_leaves_the_log_to_another() {
    let (mut pod, _) = leaves_a_block();
    let fails = Arc::new(AtomicBool::new(true));
    pod.recoverers = pod_of(pod.memory).recoverers.room(Fails(fails.clone()));
    let (visitor, leaver) = (pod.act_as(2), pod.act_as(0));
    for _ in 0..2 {
        let failed = pod.recoverers.revisit(&visitor, 0);
        let message = failed.unwrap_err().to_string();
        assert!(message.contains("in a bad way"), "{message}");
        assert_eq!(pod.logs.of(0).claimant(), Some(leaver.instance()));
    }
    // Its next incarnation has to recover it first.
    let heir = pod.stranger(0);
    assert!(OwnLog::open(&heir).is_err());
    fails.store(false, Relaxed);
    pod.recoverers.recover(&heir, 0).unwrap();
    assert!(OwnLog::open(&heir).is_ok());
}

/// A module during which the next incarnation joins, and dies before it can open the log.
struct SomebodyJoins;

impl<M: Memory> RecoverRoom<M> for SomebodyJoins {
    fn settle(&self, _: &Recovering<'_, M>) -> Result<(), RecoverError> {
        Ok(())
    }

    fn release(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError> {
        let (id, generations) = (dead.owner().id, dead.member().generations());
        let before = generations.state(id).expect("a state");
        let state = |raised, status| State {
            generation: before.generation + raised,
            status,
            ..before
        };
        let (joining, died) = (state(1, Status::Joining), state(2, Status::Dead));
        // SAFETY: no thread acts as the incarnation that this ends; one acts as the one it begins.
        assert!(unsafe { generations.assume_state(id, before, joining) });
        // SAFETY: no thread acts as the incarnation that this ends; one acts as the one it begins.
        assert!(unsafe { generations.assume_state(id, joining, died) });
        Ok(())
    }
}

#[test]
fn who_dies_while_the_log_is_visited_does_not_stay_dead() {
    let (mut pod, _) = leaves_a_block();
    pod.recoverers = pod_of(pod.memory).recoverers.room(SomebodyJoins);
    let visitor = pod.act_as(2);
    pod.recoverers.revisit(&visitor, 0).unwrap();
    assert_eq!(pod.status(0), Status::Recovered);
    // The same during its recovery.
    drop(pod.join(0));
    pod.declare_dead(0);
    pod.recoverers.recover(&visitor, 0).unwrap();
    assert_eq!(pod.status(0), Status::Recovered);
}
