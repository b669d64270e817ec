//! What those left who are gone, and whoever looks after it dies at that, wherever.

mod pod;
mod reclaim;
#[path = "../../outlive-prove/src/fixtures/weakened.rs"]
mod weakened;

use outlive::heap::{HeapFinding, LocalHeap};
use outlive::memory::{Memory, Offset, Ordering, PersistenceDomain};
use outlive::recovery::OwnLog;
use pod::{Countdown, IDS, Pod, cut, sweep};
use reclaim::{BLOCK, bytes_for, create, heap, link, pod as pod_of, put, read, retired, take};
use std::collections::BTreeSet;
use weakened::{Weakened, Weakness};

const REGION: u64 = 256 << 10;

/// Number 0 retires a block of number 3's slab while number 1 reads it, and leaves it there. Everybody else
/// lives.
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

/// Number 2 looks after what number 0 has left, and dies at its access `n`; whether it died.
fn revisitor_dies(pod: &Pod<Countdown>, n: u64) -> bool {
    let (memory, revisitor) = (pod.memory, pod.act_as(2));
    // A recovery that fails does not take its caller along, so that a death in there does not come out.
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

/// Takes blocks until there is none; the one that is had twice.
fn take_all<M: Memory>(local: &LocalHeap<'_, M>, had: &mut BTreeSet<Offset>) -> Option<Offset> {
    let (memory, hand) = (local.memory(), local.hand(3));
    while let Ok(block) = local.allocate_into(BLOCK, hand) {
        memory.store(hand, 0u64, Ordering::Relaxed);
        if !had.insert(block) {
            return Some(block);
        }
    }
    None
}

/// The one whose slab it is takes all there is, the next incarnation of who left comes, and again all
/// is taken. In which of the revisitor's deaths a block was given to two.
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
        assert!(!damage.iter().any(none), "access {n}: {damage:?} {:?} {:?}", pod.logs.of(0).claimant(), pod.logs.of(0).owner());
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
    // A collector that does not look at the step of an id that is gone, as it once did not.
    let blind = |memory| Weakened::new(memory, Weakness::Blind(Offset::new(4096 + 0x1800), 8));
    let found = given_to_two(blind);
    assert!(!found.is_empty());
    println!("a collector that is blind to the steps of those who left: {found:?}");
}
