//! The heap of small objects: against a model with deaths, its errors, and many threads at once.

mod pod;

use outlive::heap::buddy::FreeError;
use outlive::heap::{self, Heap, LocalHeap};
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::sync;
use pod::{DATA, Pod, SIZE};

const STATE: Offset = Offset::new(SIZE);
const SLAB: u64 = 32 << 10;

fn pod_with(bytes: u64, domain: PersistenceDomain) -> (Pod<Native>, Heap) {
    let state = Heap::<Native>::state_bytes(bytes).unwrap();
    let region = (STATE + state).raw().next_multiple_of(4096);
    let memory = Native::leaked((region + bytes).next_multiple_of(4096), domain);
    let mut pod = Pod::new(memory);
    let heap = Heap::create(memory, STATE, Offset::new(region), bytes).expect("a heap");
    pod.recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(pod.logs)), heap);
    (pod, heap)
}

fn cell(index: u64) -> Offset {
    assert!(index < 256);
    DATA + index * 8
}

fn held(pod: &Pod<Native>, index: u64) -> u64 {
    pod.memory.load(cell(index), Ordering::Relaxed)
}

#[test]
fn blocks_of_every_size_do_not_overlap_and_come_back() {
    for domain in [PersistenceDomain::Flushed, PersistenceDomain::WriteBack] {
        let (pod, heap) = pod_with(64 * SLAB, domain);
        let member = pod.join(0);
        let local = LocalHeap::of(heap, &member, &pod.recoverers);
        let sizes = [
            0, 1, 16, 17, 100, 128, 129, 1000, 4097, 8192, 8193, 20_000, 40_000,
        ];
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (index, bytes) in (0..).zip(sizes) {
            for copy in 0..3 {
                let block = local.allocate_into(bytes, cell(3 * index + copy)).unwrap();
                assert!(block.raw().is_multiple_of(16));
                let end = block.raw() + bytes.max(1);
                assert!(
                    taken
                        .iter()
                        .all(|(from, to)| end <= *from || *to <= block.raw())
                );
                taken.push((block.raw(), end));
            }
        }
        for index in 0..3 * sizes.len() as u64 {
            let block = local.free_from(cell(index), 7 + index).unwrap();
            assert_eq!(held(&pod, index), 7 + index);
            pod.memory
                .store(cell(index), block.raw(), Ordering::Relaxed);
            let again = local.free_from(cell(index), 0);
            assert_eq!(again, Err(FreeError::NotAllocated { block }));
            assert_eq!(held(&pod, index), block.raw());
        }
    }
}
