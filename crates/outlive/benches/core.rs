//! A benchmark of ten seconds for the core: locks, heap and map, of one thread in a real pod.
//!
//! The studies (`outlive-lab study list`) compare with other systems and measure the goals. This is
//! for a first impression: `cargo bench -p outlive --bench core`.

use criterion::{Criterion, criterion_group, criterion_main};
use outlive::heap::LocalHeap;
use outlive::membership::{Member, ProcessOptions};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::pod::{Pod, PodOptions};
use outlive::structures::Map;
use outlive::sync::RecoverableMutex;
use std::hint::black_box;
use std::time::Duration;

/// The pod's file, removed at the end.
struct Place(String);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Pod::destroy_forcibly(&self.0);
    }
}

/// Calls `body` with a member of a new pod, its heap, and a cell for each bench.
fn in_a_pod(body: impl FnOnce(&Pod, &Member, &LocalHeap<'_>, [Offset; 2])) {
    let place = Place(format!("/dev/shm/outlive-bench-{}", std::process::id()));
    let pod = Pod::create(&place.0, PodOptions::new().size(64 << 20)).expect("a pod");
    let process = pod.join(ProcessOptions::on_host(0)).expect("to join");
    let member = process.enter(None, "bench").expect("to enter");
    let heap = member.heap(&pod).expect("a heap");
    let cells = [2, 3].map(|number| heap.pending_cell(number));
    body(&pod, &member, &heap, cells);
}

fn locks(criterion: &mut Criterion) {
    in_a_pod(|pod, member, heap, [cell, _]| {
        let at = heap.allocate_into(256, cell).expect("space");
        for word in (0..256).step_by(8) {
            pod.segment()
                .memory()
                .store(at + word, 0u64, Ordering::Relaxed);
        }
        let mutex = RecoverableMutex::<u64>::at(pod.segment().memory(), at);
        criterion.bench_function("lock, add and unlock", |bench| {
            bench.iter(|| *mutex.lock(member).expect("a lock") += 1);
        });
        heap.free_from(cell, 0).expect("to free");
    });
}

fn allocations(criterion: &mut Criterion) {
    in_a_pod(|_, _, heap, [cell, _]| {
        for bytes in [64, 64 << 10] {
            criterion.bench_function(&format!("allocate and free {bytes} bytes"), |bench| {
                bench.iter(|| {
                    black_box(heap.allocate_into(bytes, cell).expect("space"));
                    heap.free_from(cell, 0).expect("to free");
                });
            });
        }
    });
}

fn map(criterion: &mut Criterion) {
    in_a_pod(|_, _, heap, [_, cell]| {
        let map = Map::<u64, u64>::create(heap, cell).expect("space");
        for key in 0..1000u64 {
            map.insert(heap, &key, &key).expect("space");
        }
        let mut key = 0;
        criterion.bench_function("get", |bench| {
            bench.iter(|| {
                key = (key + 7) % 1000;
                black_box(map.get(heap, &key))
            });
        });
        criterion.bench_function("insert and remove", |bench| {
            bench.iter(|| {
                map.insert(heap, &4711, &1).expect("space");
                black_box(map.remove(heap, &4711))
            });
        });
        map.destroy(heap, cell).expect("no other thread uses it");
    });
}

criterion_group! {
    name = core;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_millis(1500));
    targets = locks, allocations, map
}
criterion_main!(core);
