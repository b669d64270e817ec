//! Operations of the buddy allocator are cut at every access, and so is their recovery; a third
//! member must then find all or nothing. Broken variants must each be detected.

use crate::buddy;
use crate::buddy::{BYTES, Case, REGION, UNIT, UNITS, cell, heap, held};
use crate::pod::{Countdown, Pod, cut, declared, points_of, sweep};
use outlive::heap::buddy::{BuddyAllocatePoint, BuddyFreePoint};
use outlive::membership::Status;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::recovery::RecoverPoint;
use outlive::sync::TatasUnlockPoint;
use std::collections::BTreeSet;

/// Lets the victim die after `accesses` accesses; returns whether the operation returned before.
fn killed(pod: &Pod<Countdown>, case: Case, accesses: u64) -> bool {
    pod.memory.reset();
    case.prepare(pod.memory);
    let victim = pod.act_as(0);
    let returned = cut(accesses, || case.operate(pod, &victim)).is_some();
    pod.declare_dead(0);
    returned
}

/// Crash points: operation and name.
type Points = BTreeSet<(&'static str, &'static str)>;

/// Cuts `case` at every access, and its recovery at each of its accesses, every `stride`-th time.
/// Returns how often, or the first error.
fn swept(case: Case, stride: u64) -> Result<(u64, Points), String> {
    let pod = buddy::pod(Countdown::of_size(BYTES));
    let (mut images, mut passed, mut wrong) = (0, BTreeSet::new(), None);
    sweep(|n| {
        let mut returned = false;
        let mut recovered = |m| {
            let mut alone = true;
            let points = points_of(|| {
                returned = killed(&pod, case, n);
                images += 1;
                let first = pod.act_as(1);
                alone = cut(m, || pod.recoverers.recover_all(&first).unwrap()).is_some();
                if !alone {
                    pod.declare_dead(1);
                }
                pod.recoverers.recover_all(&pod.act_as(2)).unwrap();
            });
            passed = &passed | &points;
            if let Err(why) = case.check(&pod, returned) {
                wrong.get_or_insert(format!("{case:?} cut at {n}, recovery at {m}: {why}"));
            }
            goes_on(&pod, case);
            !alone && wrong.is_none()
        };
        if n.is_multiple_of(stride) {
            sweep(&mut recovered);
        } else {
            recovered(u64::MAX);
        }
        !returned && wrong.is_none()
    });
    wrong.map_or(Ok((images, passed)), Err)
}

/// The next incarnation frees every block, and the region is whole again.
fn goes_on(pod: &Pod<Countdown>, case: Case) {
    if pod.status(0) != Status::Recovered || !Case::SOUND.contains(&case) {
        return;
    }
    let (heir, heap) = (pod.join(0), heap(pod));
    let last = pod.logs.of(0).inherited().unwrap().expect("an operation");
    let outcome = outlive::heap::buddy::Outcome::of(&last).expect("of this module");
    for at in 0..8 {
        if held(pod, at).is_some() {
            heap.free_from(&heir, &pod.recoverers, cell(at)).unwrap();
        }
    }
    // A remaining block is the caller's: it knows it from the inherited result, or by itself.
    if let outlive::heap::buddy::Outcome::Done { block, .. } = outcome
        && heap.free_bytes() < heap.bytes()
    {
        heap.free(&heir, &pod.recoverers, block).unwrap();
    } else if heap.free_bytes() < heap.bytes() {
        assert_eq!(case, Case::Free);
        return;
    }
    assert_eq!(heap.free_bytes(), UNITS * UNIT);
    assert_eq!(heap.largest_free(), 64 * UNIT);
    assert!(heap.check_reachable([]).is_clean());
}

#[test]
fn every_operation_is_all_or_nothing_wherever_its_owner_and_its_recoverer_die() {
    let mut passed = BTreeSet::new();
    for case in Case::SOUND {
        let (images, points) = swept(case, 4).unwrap_or_else(|wrong| panic!("{wrong}"));
        println!("{case:?}: {images} images");
        assert!(images > 500, "{images}");
        passed = &passed | &points;
    }
    let wanted = &declared::<BuddyAllocatePoint>() | &declared::<BuddyFreePoint>();
    let wanted = &(&wanted | &declared::<RecoverPoint>()) | &declared::<TatasUnlockPoint>();
    assert!(wanted.is_subset(&passed), "{:?}", &wanted - &passed);
}

#[test]
fn cells_that_are_written_apart_from_the_transaction_are_found() {
    let findings = [
        (Case::PublishesFirst, "no allocated block starts there"),
        (Case::PublishesAfterwards, "has leaked"),
        (Case::ClearsAfterwards, "no allocated block starts there"),
    ];
    for (case, finding) in findings {
        let wrong = swept(case, 1 << 20).expect_err("a broken variant");
        assert!(wrong.contains(finding), "{wrong}");
    }
}

const COMMIT: u64 = 0x308;
const RECORDS: u64 = 0x400;

/// Returns the first cut after which a committed transaction is in the dead member's log.
fn committed(pod: &Pod<Countdown>, case: Case) -> u64 {
    let found = (0..5000).find(|&n| {
        killed(pod, case, n);
        pod.logs.of(0).redo_committed()
    });
    found.expect("a commit")
}

fn word(pod: &Pod<Countdown>, at: u64) -> u64 {
    pod.memory.load(pod.logs.at(0) + at, Ordering::Relaxed)
}

fn set(pod: &Pod<Countdown>, at: u64, value: u64) {
    pod.memory
        .store(pod.logs.at(0) + at, value, Ordering::Relaxed);
}

/// The host's caches are lost with the victim: all but one word of the log had been written back.
/// Without a checksum (here: with a matching one), half a transaction would be applied.
#[test]
fn a_commit_of_which_a_word_was_lost_is_none_and_without_the_checksum_would_be_found() {
    let pod = buddy::pod(Countdown::of_size(BYTES));
    for case in [Case::AllocateInto, Case::FreeFrom, Case::Allocate] {
        let n = committed(&pod, case);
        // Every record that the transaction changed keeps its old value.
        killed(&pod, case, 0);
        let count = {
            killed(&pod, case, n);
            word(&pod, COMMIT) & 0xFFFF_FFFF
        };
        assert!(count >= 4, "{count}");
        let places: Vec<u64> = (0..count * 2).map(|index| RECORDS + index * 8).collect();
        killed(&pod, case, 0);
        let stale: Vec<u64> = places.iter().map(|at| word(&pod, *at)).collect();
        let (mut lost, mut found) = (0, 0);
        for (at, stale) in places.iter().zip(&stale) {
            for checked in [true, false] {
                killed(&pod, case, n);
                if word(&pod, *at) == *stale {
                    continue;
                }
                set(&pod, *at, *stale);
                if !checked {
                    forge(&pod);
                }
                assert_eq!(pod.logs.of(0).redo_committed(), !checked);
                let recovered = pod.recoverers.recover_all(&pod.act_as(1));
                let sound = recovered.is_ok() && case.check(&pod, false).is_ok();
                if checked {
                    assert!(sound, "{case:?} without {at:#x}");
                    lost += 1;
                } else {
                    found += u32::from(!sound);
                }
            }
        }
        assert!(
            lost > 3 && found > 2,
            "{case:?}: {lost} lost, {found} found"
        );
    }
}

/// Makes the commit word match the present records.
fn forge(pod: &Pod<Countdown>) {
    let count = word(pod, COMMIT) & 0xFFFF_FFFF;
    let mut hasher = crc32fast::Hasher::new();
    let owner = pod.logs.of(0).owner().expect("an owner").to_word();
    for word in [owner, word(pod, 0x300), count] {
        hasher.update(&word.to_le_bytes());
    }
    for index in 0..count * 2 {
        hasher.update(&word(pod, RECORDS + index * 8).to_le_bytes());
    }
    set(pod, COMMIT, u64::from(hasher.finalize()) << 32 | count);
}

/// A second recoverer without the claim applies records that it read before the first one finished
/// and other members continued: their blocks are allocated twice.
#[test]
fn a_recovery_without_the_claim_is_found() {
    let pod = buddy::pod(Countdown::of_size(BYTES));
    for case in [Case::AllocateIntoExact, Case::FreeFrom] {
        for late in [false, true] {
            let n = committed(&pod, case);
            killed(&pod, case, n);
            let count = word(&pod, COMMIT) & 0xFFFF_FFFF;
            let record = |index| {
                (
                    word(&pod, RECORDS + index * 16),
                    word(&pod, RECORDS + index * 16 + 8),
                )
            };
            let read: Vec<(u64, u64)> = (0..count).map(record).collect();
            pod.recoverers.recover_all(&pod.act_as(1)).unwrap();
            let (other, heap) = (pod.act_as(2), heap(&pod));
            heap.allocate_into(&other, &pod.recoverers, UNIT, cell(5))
                .unwrap();
            heap.allocate_into(&other, &pod.recoverers, 2 * UNIT, cell(6))
                .unwrap();
            if late {
                for (target, value) in read {
                    let (at, size) = (Offset::from_raw(target), target >> 60);
                    match size {
                        0 => pod.memory.store(at, value as u8, Ordering::Relaxed),
                        _ => pod.memory.store(at, value, Ordering::Relaxed),
                    }
                }
            }
            let reached = (0..8).filter_map(|at| held(&pod, at));
            let report = heap.check_reachable(reached);
            assert_eq!(report.is_clean(), !late, "{case:?}: {report}");
        }
    }
}

/// The region stays as it was marked.
#[test]
fn the_blocks_are_never_touched() {
    let pod = buddy::pod(Countdown::of_size(BYTES));
    pod.memory.reset();
    Case::Free.prepare(pod.memory);
    let mark = vec![0xA5u8; (UNITS * UNIT) as usize];
    pod.memory.copy_in(REGION, &mark);
    Case::Free.operate(&pod, &pod.act_as(0));
    let heap = heap(&pod);
    heap.allocate(&pod.act_as(0), &pod.recoverers, 64 * UNIT)
        .unwrap();
    let mut out = vec![0; mark.len()];
    pod.memory.copy_out(REGION, &mut out);
    assert_eq!(out, mark);
}
