//! Blocks are freed when no thread can be reading them, and not before; a sleeping reader costs
//! little.

use crate::pod::{IDS, Pod};
use crate::reclaim::{bytes_for, create, heap, local, put, read, retired, take};
use outlive::heap::{LocalHeap, SecondWay};
use outlive::membership::Status;
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::recovery::Recovered;

/// A pod in which all ids have joined, and a heap of `region` bytes.
fn pod_with(region: u64) -> Pod<Native> {
    let bytes = bytes_for::<Native>(region);
    let pod = create(Native::leaked(bytes, PersistenceDomain::Flushed), region);
    (0..IDS).for_each(|id| drop(pod.join(id)));
    pod
}

#[test]
fn a_block_stays_while_somebody_reads_it_and_goes_afterwards() {
    let pod = pod_with(1 << 20);
    let (me, other) = (pod.act_as(0), pod.act_as(1));
    let mine = local(&pod, &me);
    let others = local(&pod, &other);
    put(&mine, 0, 7);

    let pin = others.pin();
    let (block, payload) = read(&pin, pod.memory, 0).expect("a block");
    assert_eq!((payload, take(pod.memory, 0)), (7, Some(block)));
    assert!(!mine.is_last_retired(block));
    mine.retire(block);
    assert!(mine.is_last_retired(block));
    assert_ne!(pod.memory.load::<u64>(block + 8, Ordering::Relaxed), 0);
    assert_eq!((mine.reclaim(), retired(&pod, 0)), (1, 1));
    // Neither an inner pin nor one that comes later matters.
    drop(others.pin());
    let third = pod.act_as(2);
    let thirds = local(&pod, &third);
    let late = thirds.pin();
    assert_eq!((read(&late, pod.memory, 0), mine.reclaim()), (None, 1));
    drop(pin);
    // The later pin began when the block was not dated yet: it does not hold the block back for
    // ever.
    drop(late);
    assert_eq!((mine.reclaim(), retired(&pod, 0)), (0, 0));
}

#[test]
fn a_second_way_is_refused_and_takes_nothing_from_the_first() {
    let pod = pod_with(1 << 20);
    let (me, other) = (pod.act_as(0), pod.act_as(1));
    let mine = local(&pod, &me);
    let others = local(&pod, &other);
    put(&mine, 0, 7);
    let pin = others.pin();
    assert!(read(&pin, pod.memory, 0).is_some());
    for _ in 0..2 {
        let again = core::panic::AssertUnwindSafe(|| {
            drop(local(&pod, &other));
        });
        assert!(std::panic::catch_unwind(again).is_err());
        let again = LocalHeap::try_of(heap(pod.memory), &other, &pod.recoverers).map(drop);
        let member = other.instance();
        assert_eq!(again, Err(SecondWay { member }));
    }
    mine.retire(take(pod.memory, 0).expect("a block"));
    assert_eq!(mine.reclaim(), 1, "a block that is read was freed");
    drop(pin);
    assert_eq!(mine.reclaim(), 0);
    drop(others);
    drop(local(&pod, &other));
}

#[test]
fn nothing_is_taken_off_the_list_under_a_pin() {
    let pod = pod_with(1 << 20);
    let me = pod.act_as(0);
    let mine = local(&pod, &me);
    let block = put(&mine, 0, 7);
    let pin = mine.pin();
    // Too young to be held back by this pin itself.
    let young = take(pod.memory, 0).expect("a block");
    pod.memory.store(young, u64::MAX - 1, Ordering::Relaxed);
    mine.retire(young);
    assert_eq!(mine.reclaim(), 1);
    assert!(mine.is_last_retired(block));
    drop(pin);
    assert_eq!(mine.reclaim(), 0);
}

#[test]
fn a_damaged_list_stops_nobody() {
    for damage in [3, 8, 1 << 40, u64::MAX, u64::MAX - 7] {
        for in_a_block in [false, true] {
            let pod = pod_with(1 << 20);
            let (me, gone) = (pod.act_as(0), pod.act_as(1));
            let mine = local(&pod, &me);
            let gones = local(&pod, &gone);
            for (way, index) in [(&mine, 0), (&mine, 1), (&gones, 2), (&gones, 3)] {
                put(way, index, 7);
                way.retire(take(pod.memory, index).expect("a block"));
            }
            for id in 0..2 {
                let head = pod.logs.of(id).room() + 0x80;
                let first: u64 = pod.memory.load(head, Ordering::Relaxed);
                let at = if in_a_block {
                    Offset::new(first + 16)
                } else {
                    head
                };
                pod.memory.store(at, damage, Ordering::Relaxed);
            }
            assert_eq!(mine.reclaim(), 1, "{damage:#x}");
            // The same in a handle's drop, a recovery, and a scan of departed members' lists.
            drop(gones);
            pod.declare_dead(1);
            pod.recoverers.recover(&me, 1).unwrap();
            mine.reclaim();
            assert_eq!(heap(pod.memory).check_retired(pod.logs).len(), 2);
            drop(mine);
        }
    }
}

/// The documented bound: the blocks that existed when the reader fell asleep, 128 births of the
/// other member, and blocks that the other has not checked yet.
#[test]
fn a_reader_that_sleeps_holds_back_a_bounded_number_of_blocks() {
    const LINKED: u64 = 100;
    let pod = pod_with(64 << 20);
    let (me, other) = (pod.act_as(0), pod.act_as(1));
    let mine = local(&pod, &me);
    let sleeper = local(&pod, &other);
    for index in 0..LINKED {
        put(&mine, index, index);
    }
    let pin = sleeper.pin();
    let (asleep_at, _) = read(&pin, pod.memory, 3).expect("a block");
    let mut most = 0;
    for round in 0..100_000u64 {
        let busy = mine.pin();
        let old = take(pod.memory, round % LINKED).expect("a block");
        mine.retire(old);
        put(&mine, round % LINKED, round);
        drop(busy);
        if round % 1000 == 0 {
            most = most.max(retired(&pod, 0) as u64);
        }
    }
    let held = LINKED + 128;
    assert!(mine.reclaim() <= held, "{} are held back", retired(&pod, 0));
    assert!(most <= 2 * held + 64 + 1, "{most} at a time");
    println!(
        "100000 retired; at most {most} were not freed, {} held back",
        retired(&pod, 0)
    );
    // The block that it reads is unchanged.
    assert_eq!(pod.memory.load::<u64>(asleep_at + 24, Ordering::Relaxed), 3);
    // It wakes up, and its later reads are protected.
    assert!(read(&pin, pod.memory, 3).is_some());
    drop(pin);
    assert_eq!(mine.reclaim(), 0);
}

#[test]
fn a_dead_reader_counts_until_it_is_recovered() {
    let pod = pod_with(1 << 20);
    let (me, dead) = (pod.act_as(0), pod.act_as(1));
    let mine = local(&pod, &me);
    let deads = local(&pod, &dead);
    let block = put(&mine, 0, 7);
    let pin = deads.pin();
    assert_eq!(read(&pin, pod.memory, 0), Some((block, 7)));
    std::mem::forget(pin);
    std::mem::forget(deads);
    pod.declare_dead(1);
    mine.retire(take(pod.memory, 0).expect("a block"));
    assert_eq!(mine.reclaim(), 1);
    let recovered = pod.recoverers.recover(&me, 1).unwrap();
    assert!(matches!(recovered, Recovered::Completed { .. }));
    assert_eq!(mine.reclaim(), 0);
}

/// A member leaves, or dies, while a block that it has retired is being read.
fn leaves_a_block(dies: bool) -> Pod<Native> {
    let pod = pod_with(1 << 20);
    let (reader, goes) = (pod.act_as(1), pod.act_as(0));
    let readers = local(&pod, &reader);
    let gone = local(&pod, &goes);
    for index in 0..3 {
        put(&gone, index, 7);
    }
    let pin = readers.pin();
    assert!(read(&pin, pod.memory, 0).is_some());
    (0..3).for_each(|index| gone.retire(take(pod.memory, index).expect("a block")));
    if dies {
        std::mem::forget(gone);
        pod.declare_dead(0);
        pod.recoverers.recover(&reader, 0).unwrap();
        assert_eq!(pod.status(0), Status::Recovered);
    } else {
        drop(gone);
        pod.leave(goes);
    }
    assert_eq!(retired(&pod, 0), 3);
    // Another member reclaims, but cannot free the blocks yet.
    let other = pod.act_as(2);
    let others = local(&pod, &other);
    assert_eq!((others.reclaim(), retired(&pod, 0)), (0, 3));
    drop(pin);
    assert_eq!((others.reclaim(), retired(&pod, 0)), (0, 0));
    assert_eq!(pod.logs.of(0).claimant(), None);
    drop(others);
    drop(readers);
    pod
}

#[test]
fn what_those_leave_who_are_gone_is_freed_by_others() {
    leaves_a_block(false);
    leaves_a_block(true);
}

#[test]
fn the_next_incarnation_has_what_the_last_one_left() {
    let pod = pod_with(1 << 20);
    let (reader, goes) = (pod.act_as(1), pod.act_as(0));
    let readers = local(&pod, &reader);
    let gone = local(&pod, &goes);
    let block = put(&gone, 0, 7);
    let pin = readers.pin();
    assert!(read(&pin, pod.memory, 0).is_some());
    gone.retire(take(pod.memory, 0).expect("a block"));
    drop(gone);
    pod.leave(goes);
    let next = pod.join(0);
    // It has no heap yet: no member may scan its list, and the list is not forgotten.
    let other = pod.act_as(2);
    let others = local(&pod, &other);
    others.reclaim();
    let nexts = local(&pod, &next);
    assert!(nexts.is_last_retired(block));
    drop(pin);
    drop(nexts.pin());
    assert_eq!(retired(&pod, 0), 0);
}

#[test]
fn threads_read_and_retire_at_once() {
    const ROUNDS: u64 = 20_000;
    let pod = pod_with(64 << 20);
    {
        let me = pod.act_as(0);
        let mine = local(&pod, &me);
        for index in 0..8 {
            put(&mine, index, index);
        }
    }
    std::thread::scope(|scope| {
        for id in 0..3 {
            let pod = &pod;
            scope.spawn(move || {
                let me = pod.act_as(id);
                let mine = local(pod, &me);
                for round in 0..ROUNDS {
                    let pin = mine.pin();
                    let index = (round * 7 + u64::from(id)) % 8;
                    if let Some((block, payload)) = read(&pin, pod.memory, index) {
                        assert_eq!(payload % 8, index, "read from {block} after it was freed");
                    }
                    if round % 3 == 0
                        && let Some(old) = take(pod.memory, index)
                    {
                        mine.retire(old);
                        put(&mine, index, index + 8 * round);
                    }
                }
            });
        }
    });
    // Members that finished first may have left blocks for their next heap handle.
    for id in 0..IDS {
        let me = pod.act_as(id);
        let mine = local(&pod, &me);
        assert_eq!((mine.reclaim(), retired(&pod, id)), (0, 0));
    }
}
