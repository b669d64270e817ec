//! A destroyed map or list leaves nothing; one that is not destroyed keeps everything.

use crate::structures::{LIST, MAP, World, local, world};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::recovery::{OperationKind, OwnLog};
use outlive::structures::{Action, DestroyError, List, Map, OpenError, Outcome};

/// Asserts that nothing is allocated except `blocks`.
#[track_caller]
fn assert_only(pod: &World<Native>, blocks: impl IntoIterator<Item = Offset>) {
    let report = pod.heap.check_reachable(blocks);
    assert!(report.is_clean(), "{report}");
}

fn held(pod: &World<Native>, cell: Offset) -> u64 {
    pod.memory.load(cell, Ordering::Acquire)
}

/// Entries of every kind: values in their nodes, in blocks, in blocks of the buddy allocator.
fn fill(map: Map<str, [u8]>, heap: &LocalHeap<'_>) {
    for n in 0..5000u32 {
        map.insert(heap, &n.to_string(), &n.to_ne_bytes()).unwrap();
    }
    for n in (0..5000u32).step_by(7) {
        map.replace(heap, &n.to_string(), &vec![1; n as usize])
            .unwrap();
    }
    map.replace(heap, "17", &[9; 40_000]).unwrap();
    for n in (0..5000u32).step_by(3) {
        map.remove(heap, &n.to_string()).unwrap();
    }
}

#[test]
fn everything_comes_back_whoever_made_it() {
    let pod = world(16 << 20);
    let (member, other) = (pod.join(0), pod.join(1));
    let (heap, others) = (local(&pod, &member), local(&pod, &other));
    for round in 0..3 {
        let map = Map::<str, [u8]>::create(&others, MAP).unwrap();
        fill(map, if round == 0 { &others } else { &heap });
        let list = List::<i64, str>::create(&heap, LIST).unwrap();
        for n in -20..20 {
            list.insert(&others, &n, &"x".repeat(n.unsigned_abs() as usize))
                .unwrap();
        }
        let (of_map, of_list) = (map.blocks().len() as u64, list.blocks());
        assert_eq!(map.destroy(&heap, MAP), Ok(of_map));
        assert_eq!(
            (held(&pod, MAP), held(&pod, LIST)),
            (0, list.offset().raw())
        );
        heap.reclaim();
        others.reclaim();
        assert_only(&pod, of_list);
        assert_eq!(list.destroy(&heap, LIST), Ok(41));
        assert_only(&pod, []);
        let last = Outcome::of(&pod.logs.of(0).operation().unwrap().unwrap()).unwrap();
        assert_eq!(
            (last.action, last.took_effect),
            (Action::Destroy, Some(true))
        );
    }
}

#[test]
fn who_has_removed_something_frees_it_although_all_else_is_gone() {
    let pod = world(1 << 20);
    let (member, other) = (pod.join(0), pod.join(1));
    let (heap, others) = (local(&pod, &member), local(&pod, &other));
    let map = Map::<u64, u64>::create(&heap, MAP).unwrap();
    (0..9).for_each(|key| map.insert(&heap, &key, &key).unwrap());
    let pin = others.pin();
    assert_eq!(map.remove(&heap, &3), Some(3));
    assert_eq!(heap.reclaim(), 1);
    map.destroy(&others, MAP).unwrap();
    drop(pin);
    assert_eq!(heap.reclaim(), 0);
    assert_only(&pod, []);
}

#[test]
fn what_is_not_to_be_destroyed_is_left_as_it_is() {
    let pod = world(1 << 20);
    let (member, other) = (pod.join(0), pod.join(1));
    let heap = local(&pod, &member);
    let map = Map::<u64, u64>::create(&heap, MAP).unwrap();
    (0..9).for_each(|key| map.insert(&heap, &key, &key).unwrap());
    let all = map.blocks();
    let refused = |cell| {
        let refused = map.destroy(&heap, cell).unwrap_err();
        assert_only(&pod, all.iter().copied());
        assert_eq!(map.get(&heap, &3), Some(3));
        refused
    };
    // Another cell.
    assert!(matches!(
        refused(LIST),
        DestroyError::Elsewhere { holds: 0, .. }
    ));
    // An operation on it in which a member died, until that is settled.
    let insert = OperationKind::new(0x201);
    let arguments = [map.offset().raw(), all[1].raw()];
    let running = OwnLog::of(&other).begin(insert, &arguments);
    drop(running);
    let by = other.instance();
    assert_eq!(refused(MAP), DestroyError::InUse { by });
    pod.declare_dead(1);
    let error = refused(MAP);
    assert_eq!(error, DestroyError::InUse { by });
    assert!(error.to_string().contains("recover it"), "{error}");
    pod.recoverers.recover(&member, 1).unwrap();
    // Damage.
    let node = map.blocks()[1] + 32;
    let sort: u64 = pod.memory.load(node, Ordering::Relaxed);
    pod.memory.store(node, 0u64, Ordering::Relaxed);
    assert!(matches!(
        map.destroy(&heap, MAP).unwrap_err(),
        DestroyError::Damaged { count: 1.., .. }
    ));
    pod.memory.store(node, sort, Ordering::Relaxed);
    assert_only(&pod, all.iter().copied());
    // Once only.
    let blocks = all.len() as u64;
    assert_eq!(map.destroy(&heap, MAP), Ok(blocks));
    assert!(matches!(
        map.destroy(&heap, MAP),
        Err(DestroyError::Elsewhere { holds: 0, .. })
    ));
    let gone = Map::<u64, u64>::open(pod.memory, map.offset()).map(drop);
    assert!(matches!(gone, Err(OpenError::NotOne { .. })), "{gone:?}");
    assert_only(&pod, []);
}
