//! The buddy allocator against a model, its errors, its check, and many threads at once.

use crate::pod::{DATA, IDS, Pod, SIZE};
use outlive::heap;
use outlive::heap::buddy::{
    AllocateError, Buddy, Finding, FreeError, OpenError, Outcome, RegionError,
};
use outlive::membership::Member;
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::recovery::{OperationKind, OwnLog};
use outlive::sync;
use proptest::prelude::*;
use std::collections::BTreeMap;

const METADATA: Offset = Offset::new(SIZE);
const UNIT: u64 = 64;

/// A pod with a heap of `units`, none of them touched.
fn pod_with(units: u64, domain: PersistenceDomain) -> (Pod<Native>, Buddy) {
    let metadata = Buddy::<Native>::metadata_bytes(units * UNIT, UNIT).unwrap();
    let region = (METADATA + metadata).raw().next_multiple_of(4096);
    let memory = Native::leaked((region + units * UNIT).next_multiple_of(4096), domain);
    let mut pod = Pod::new(memory);
    pod.recoverers = heap::recoverers(sync::recoverers(pod.logs));
    let heap = Buddy::create(memory, METADATA, Offset::new(region), units * UNIT, UNIT);
    (pod, heap.expect("a heap"))
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { bytes: u64 },
    AllocateInto { bytes: u64 },
    Free { pick: usize },
    FreeFrom,
    FreeBadly { at: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![
        0u64..300,
        (0u32..16, 0u64..64).prop_map(|(k, less)| (UNIT << k) - less)
    ];
    let step = prop_oneof![
        4 => bytes.clone().prop_map(|bytes| Step::Allocate { bytes }),
        1 => bytes.prop_map(|bytes| Step::AllocateInto { bytes }),
        4 => any::<usize>().prop_map(|pick| Step::Free { pick }),
        1 => Just(Step::FreeFrom),
        1 => (0u64..20_000).prop_map(|at| Step::FreeBadly { at: at * 16 }),
    ];
    prop::collection::vec(step, 0..120)
}

/// The blocks in use by their start, with which the allocator must agree.
struct Model {
    units: u64,
    region: u64,
    blocks: BTreeMap<u64, u64>,
}

impl Model {
    /// The largest aligned block of a power of two of units that is free.
    fn largest_free(&self) -> u64 {
        let mut largest = 0;
        for order in 0..=self.units.ilog2() {
            let bytes = UNIT << order;
            let fits = (0..self.units >> order).any(|index| {
                let (start, end) = (index * bytes, (index + 1) * bytes);
                let overlaps = |(at, len): (&u64, &u64)| *at < end && start < at + len;
                !self.blocks.iter().any(overlaps)
            });
            if fits {
                largest = bytes;
            }
        }
        largest
    }

    fn allocated(&mut self, asked: u64, got: Result<Offset, AllocateError>) -> Option<Offset> {
        let bytes = asked.next_multiple_of(UNIT).max(UNIT).next_power_of_two();
        match got {
            Ok(block) => {
                let at = block.raw() - self.region;
                assert!(at.is_multiple_of(bytes) && at + bytes <= self.units * UNIT);
                let before = self.blocks.range(..at + bytes).next_back();
                assert!(
                    before.is_none_or(|(start, len)| start + len <= at),
                    "an overlap"
                );
                self.blocks.insert(at, bytes);
                Some(block)
            }
            Err(AllocateError::Full { largest_free, .. }) => {
                assert_eq!(largest_free, self.largest_free());
                assert!(largest_free < bytes);
                None
            }
            Err(AllocateError::TooLarge { most, .. }) => {
                assert!(asked > most && most == UNIT << self.units.ilog2());
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn follows_the_model(units: u64, steps: &[Step], domain: PersistenceDomain) {
    let (pod, heap) = pod_with(units, domain);
    let (member, by) = (pod.join(0), &pod.recoverers);
    let region = heap.region().raw();
    let mut model = Model {
        units,
        region,
        blocks: BTreeMap::new(),
    };
    let last = || {
        pod.logs
            .of(0)
            .operation()
            .unwrap()
            .as_ref()
            .and_then(Outcome::of)
    };
    for step in steps {
        match *step {
            Step::Allocate { bytes } => {
                if let Some(got) = model.allocated(bytes, heap.allocate(&member, by, bytes)) {
                    assert!(matches!(last(), Some(Outcome::Done { block, .. }) if block == got));
                }
            }
            Step::AllocateInto { bytes } => {
                let holds: u64 = pod.memory.load(DATA, Ordering::Relaxed);
                let got = heap.allocate_into(&member, by, bytes, DATA);
                if holds != 0 && bytes <= heap.largest_block() {
                    let (cell, refused) = (DATA, got);
                    assert_eq!(refused, Err(AllocateError::CellOccupied { cell, holds }));
                } else if let Some(block) = model.allocated(bytes, got) {
                    assert_eq!(pod.memory.load::<u64>(DATA, Ordering::Relaxed), block.raw());
                }
            }
            Step::Free { pick } if !model.blocks.is_empty() => {
                let (&at, &bytes) = model.blocks.iter().nth(pick % model.blocks.len()).unwrap();
                let block = Offset::new(region + at);
                if pod.memory.load::<u64>(DATA, Ordering::Relaxed) == block.raw() {
                    continue;
                }
                assert_eq!(heap.free(&member, by, block), Ok(bytes));
                model.blocks.remove(&at);
                let twice = heap.free(&member, by, block);
                assert_eq!(twice, Err(FreeError::NotAllocated { block }));
            }
            Step::Free { .. } => {}
            Step::FreeFrom => {
                let holds: u64 = pod.memory.load(DATA, Ordering::Relaxed);
                match heap.free_from(&member, by, DATA) {
                    Ok(block) => {
                        assert_eq!(block.raw(), holds);
                        assert!(model.blocks.remove(&(holds - region)).is_some());
                        assert_eq!(pod.memory.load::<u64>(DATA, Ordering::Relaxed), 0);
                    }
                    Err(error) => {
                        assert_eq!(holds, 0);
                        assert_eq!(error, FreeError::CellEmpty { cell: DATA });
                    }
                }
            }
            Step::FreeBadly { at } => {
                if model.blocks.contains_key(&at) {
                    continue;
                }
                let block = Offset::new(region + at);
                let inside = model.blocks.range(..at).next_back();
                let inside = inside.filter(|(start, len)| at < *start + *len);
                let expected = match inside {
                    _ if at >= units * UNIT || !at.is_multiple_of(UNIT) => None,
                    Some((start, bytes)) => Some(FreeError::Inside {
                        block,
                        start: Offset::new(region + start),
                        bytes: *bytes,
                    }),
                    None => Some(FreeError::NotAllocated { block }),
                };
                match (heap.free(&member, by, block), expected) {
                    (Err(error), Some(expected)) => assert_eq!(error, expected),
                    (Err(FreeError::Outside { .. }), None) => {}
                    (other, _) => panic!("{other:?}"),
                }
            }
        }
        let used: u64 = model.blocks.values().sum();
        assert_eq!(heap.free_bytes(), units * UNIT - used);
        assert_eq!(heap.largest_free(), model.largest_free());
    }
    let starts = model.blocks.keys().map(|at| Offset::new(region + at));
    let report = heap.check_reachable(starts);
    assert!(report.is_clean(), "{report}");
    let counted: u64 = report.statistics.allocated.iter().sum();
    assert_eq!(counted, model.blocks.len() as u64);

    // Everything joins to the initial blocks: one for each bit of the number of units.
    for at in model.blocks.keys() {
        heap.free(&member, by, Offset::new(region + at)).unwrap();
    }
    let report = heap.check_reachable([]);
    assert!(report.is_clean(), "{report}");
    for (order, blocks) in report.statistics.free.iter().enumerate() {
        assert_eq!(*blocks, units >> order & 1);
    }
    assert_eq!(report.statistics, heap.statistics());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn blocks_never_overlap_and_join_to_what_there_was(
        units in prop_oneof![1u64..5, 60u64..70, 1u64..300, 4000u64..4200],
        steps in steps(),
    ) {
        follows_the_model(units, &steps, PersistenceDomain::Flushed);
    }

    /// Damage to any word of the metadata causes no panic, and nothing outside is followed.
    #[test]
    fn damage_is_reported_or_harmless(
        place in 0u64..60, value in prop_oneof![Just(0u64), Just(u64::MAX), any::<u64>(), (0u32..64).prop_map(|bit| 1 << bit)],
    ) {
        let (pod, heap) = pod_with(150, PersistenceDomain::Flushed);
        let (member, by) = (pod.join(0), &pod.recoverers);
        let blocks: Vec<Offset> = (1..6).map(|n| heap.allocate(&member, by, n * UNIT).unwrap()).collect();
        // The counters, the words of the tree, the sizes; other tests cover the lock and the
        // header.
        let at = METADATA + 0x80 + place / 10 * 64 + place % 8 * 8;
        let sizes = METADATA + (0x80 + 64 + 256);
        for byte in 0..8 {
            if at >= sizes {
                pod.memory.store(at + byte, (value >> (8 * byte)) as u8, Ordering::Relaxed);
            }
        }
        if at < sizes {
            pod.memory.store(at, value, Ordering::Relaxed);
        }
        let report = heap.check_reachable(blocks.iter().copied());
        prop_assert!(report.to_string().contains("findings"));
        let _ = (heap.free_bytes(), heap.largest_free());
        let sound = report.is_clean();
        for n in [1, 3, 9, 70] {
            let outcome = heap.allocate(&member, by, n * UNIT);
            prop_assert!(!sound || !matches!(outcome, Err(AllocateError::Corrupt(_))));
        }
        for block in blocks {
            let outcome = heap.free(&member, by, block);
            prop_assert!(!sound || outcome.is_ok());
        }
        let _ = heap.check();
        OwnLog::of(&member).close().unwrap();
    }

    #[test]
    fn whatever_bytes_are_opened_nothing_panics(
        words in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..1 << 20], 4), sealed: bool,
    ) {
        let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
        let header = METADATA.raw() % 4096 + 4096;
        let (at, magic) = (Offset::new(header), u64::from_le_bytes(*b"outbuddy"));
        memory.store(at + 0x40, magic, Ordering::Relaxed);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&magic.to_le_bytes());
        for (index, word) in (1u64..).zip(&words) {
            memory.store(at + 0x40 + index * 8, *word, Ordering::Relaxed);
            if index < 4 {
                hasher.update(&word.to_le_bytes());
            }
        }
        if sealed {
            memory.store(at + 0x60, u64::from(hasher.finalize()), Ordering::Relaxed);
        }
        match Buddy::open(memory, at) {
            Ok(heap) => prop_assert!(!heap.check().is_clean(), "nothing of a tree is there"),
            Err(error) => prop_assert!(error.to_string().contains("buddy allocator")),
        }
    }
}

#[test]
fn write_back_memory_makes_no_difference() {
    let steps: Vec<Step> = (0..40)
        .flat_map(|n| {
            [
                Step::Allocate { bytes: n * 40 },
                Step::Free {
                    pick: n as usize * 7,
                },
                Step::Allocate { bytes: 64 },
            ]
        })
        .collect();
    follows_the_model(777, &steps, PersistenceDomain::WriteBack);
}

#[test]
fn a_region_is_opened_as_it_was_created_or_refused() {
    let (pod, heap) = pod_with(100, PersistenceDomain::Flushed);
    let again = Buddy::open(pod.memory, METADATA).unwrap();
    assert_eq!((again.region(), again.bytes()), (heap.region(), 6400));
    assert_eq!((again.unit(), again.largest_block()), (64, 4096));
    let nothing = Buddy::open(pod.memory, DATA);
    assert!(matches!(nothing, Err(OpenError::NotOne { magic: 0, .. })));
    pod.memory
        .store(METADATA + 0x50, 1u64 << 40, Ordering::Relaxed);
    let damaged = Buddy::open(pod.memory, METADATA);
    assert!(
        matches!(damaged, Err(OpenError::Checksum { .. })),
        "{damaged:?}"
    );

    let memory = pod.memory;
    let create =
        |at, region, bytes, unit| Buddy::create(memory, at, region, bytes, unit).unwrap_err();
    let (data, region) = (DATA, heap.region());
    assert!(matches!(
        create(data, region, 4096, 100),
        RegionError::BadUnit { unit: 100 }
    ));
    assert!(matches!(
        create(data, region, 63, 64),
        RegionError::BadSize { units: 0, .. }
    ));
    assert!(matches!(
        create(data, region, 1 << 37, 64),
        RegionError::BadSize { .. }
    ));
    assert!(matches!(
        create(data, region, 1 << 20, 64),
        RegionError::Outside(_)
    ));
    assert!(matches!(
        create(data + 8, region, 4096, 64),
        RegionError::Outside(_)
    ));
    assert!(matches!(
        create(region, region, 4096, 64),
        RegionError::Overlap { .. }
    ));
}

#[test]
fn an_operation_that_would_displace_another_or_nest_is_refused() {
    let (pod, heap) = pod_with(100, PersistenceDomain::Flushed);
    let (member, by) = (pod.join(0), &pod.recoverers);
    let own = OwnLog::of(&member);
    let mine = own.begin(OperationKind::new(70), &[]);
    let refused = heap.allocate(&member, by, 64);
    assert_eq!(refused, Err(AllocateError::OperationRuns { sequence: 1 }));
    let refused = heap.free(&member, by, heap.region());
    assert_eq!(refused, Err(FreeError::OperationRuns { sequence: 1 }));
    // In its own transaction it is allowed.
    {
        let locked = heap.lock(&member, by).unwrap();
        let mut redo = locked.redo().unwrap();
        let block = locked.allocate(&mut redo, 64).unwrap();
        assert!(matches!(
            heap.allocate(&member, by, 64),
            Err(AllocateError::OperationRuns { .. })
        ));
        mine.finish_by(&mut redo, &[block.raw()]).unwrap();
        redo.commit();
    }
    assert_eq!(heap.free_bytes(), 99 * 64);
    let locked = heap.lock(&member, by).unwrap();
    assert!(matches!(
        heap.allocate(&member, by, 64),
        Err(AllocateError::Lock(_))
    ));
    // A failed operation leaves the transaction as it was; a dropped transaction changes nothing.
    let mut redo = locked.redo().unwrap();
    let first = locked.allocate(&mut redo, 64).unwrap();
    locked.allocate(&mut redo, 4096).unwrap();
    let records = redo.len();
    assert!(matches!(
        locked.allocate(&mut redo, 4096),
        Err(AllocateError::Full { .. })
    ));
    assert!(matches!(
        locked.free(&mut redo, first + 64),
        Err(FreeError::NotAllocated { .. })
    ));
    assert_eq!(redo.len(), records);
    locked.free(&mut redo, first).unwrap();
    drop(redo);
    drop(locked);
    assert_eq!(heap.free_bytes(), 99 * 64);
    assert!(heap.check().is_clean());
    let cell = Offset::new(pod.memory.size());
    assert!(matches!(
        heap.allocate_into(&member, by, 1, cell),
        Err(AllocateError::BadCell(_))
    ));
    assert!(matches!(
        heap.free_from(&member, by, cell),
        Err(FreeError::BadCell(_))
    ));
}

/// A transaction takes as many operations as its log holds; one that does not fit changes nothing.
#[test]
fn a_transaction_that_is_full_is_as_it_was_before() {
    let (pod, heap) = pod_with(1000, PersistenceDomain::Flushed);
    let (member, by) = (pod.join(0), &pod.recoverers);
    let locked = heap.lock(&member, by).unwrap();
    let mut redo = locked.redo().unwrap();
    let mut blocks = Vec::new();
    loop {
        let before = redo.len();
        match locked.allocate(&mut redo, 64) {
            Ok(block) => blocks.push(block),
            Err(AllocateError::Log(_)) => {
                assert_eq!(redo.len(), before);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(blocks.len() > 20, "{}", blocks.len());
    redo.commit();
    drop(locked);
    let report = heap.check_reachable(blocks);
    assert!(report.is_clean(), "{report}");
}

#[test]
fn what_is_wrong_is_reported_with_its_place() {
    let found = |spoil: &dyn Fn(&Pod<Native>, &Buddy)| {
        let (pod, heap) = pod_with(150, PersistenceDomain::Flushed);
        let member = pod.join(0);
        let blocks = [1, 4].map(|n| heap.allocate(&member, &pod.recoverers, n * 64).unwrap());
        spoil(&pod, &heap);
        let report = heap.check_reachable(blocks);
        println!("{report}\n");
        report.findings
    };
    // 150 is 128, 16, 4 and 2: the blocks are at 148 and 144.
    // 150 bits of order 0 are three words and a summary; 75 of order 1 are two and a summary.
    let (bits, summary) = (METADATA + 0xC0, METADATA + (0xC0 + 24));
    let sizes = METADATA + 0xC0 + 128;
    let region = |heap: &Buddy, unit: u64| heap.region() + unit * 64;
    assert_eq!(found(&|_, _| ()), []);

    let allocated_and_free = found(&|pod, _| {
        pod.memory.fetch_or(bits, 1u64, Ordering::Relaxed);
    });
    assert!(
        allocated_and_free
            .iter()
            .any(|finding| matches!(finding, Finding::Overlap { .. }))
    );
    let summary_lost = found(&|pod, _| pod.memory.store(summary, 0u64, Ordering::Relaxed));
    assert!(matches!(summary_lost[..], [Finding::Summary { at, found: 0, .. }] if at == summary));
    let beyond = found(&|pod, _| {
        pod.memory
            .fetch_or(bits + 16, 1u64 << 60, Ordering::Relaxed);
    });
    assert!(
        beyond
            .iter()
            .any(|finding| matches!(finding, Finding::BeyondEnd { bits, .. } if *bits == 1 << 60))
    );
    let forgotten = found(&|pod, _| pod.memory.store(sizes + 144, 0u8, Ordering::Relaxed));
    assert!(
        matches!(
            forgotten[..],
            [Finding::Lost { bytes: 256, .. }, Finding::Dangling { .. }]
        ),
        "{forgotten:?}"
    );
    let odd = found(&|pod, _| pod.memory.store(sizes + 3, 2u8, Ordering::Relaxed));
    assert!(
        odd.iter()
            .any(|finding| matches!(finding, Finding::BadSize { size: 2, .. }))
    );
    let extra = found(&|pod, _| pod.memory.store(sizes + 64, 1u8, Ordering::Relaxed));
    assert!(
        extra
            .iter()
            .any(|finding| matches!(finding, Finding::Overlap { .. }))
    );
    assert!(
        extra
            .iter()
            .any(|finding| matches!(finding, Finding::Leak { bytes: 64, .. }))
    );
    let miscounted = found(&|pod, _| {
        pod.memory
            .fetch_add(METADATA + 0x80, 1u64, Ordering::Relaxed);
    });
    assert!(matches!(miscounted[..], [Finding::FreeCount { .. }]));

    let (pod, heap) = pod_with(150, PersistenceDomain::Flushed);
    let member = pod.join(0);
    let block = heap.allocate(&member, &pod.recoverers, 64).unwrap();
    let twice = heap
        .check_reachable([block, region(&heap, 9), block])
        .findings;
    let dangling = Finding::Dangling {
        block: region(&heap, 9),
    };
    assert_eq!(twice, [dangling, Finding::ReachedTwice { block, times: 2 }]);
    let leak = heap.check_reachable([]).findings;
    assert_eq!(leak, [Finding::Leak { block, bytes: 64 }]);
}

/// Two free buddies that a damaged tree does not join.
#[test]
fn free_buddies_are_reported() {
    let (pod, heap) = pod_with(2, PersistenceDomain::Flushed);
    let tree = METADATA + 0xC0;
    pod.memory.store(tree, 0b11u64, Ordering::Relaxed);
    pod.memory.store(tree + 8, 0u64, Ordering::Relaxed);
    pod.memory.store(METADATA + 0x88, 1u64, Ordering::Relaxed);
    let block = heap.region();
    let expected = [Finding::NotJoined { block, bytes: 64 }];
    assert_eq!(heap.check().findings, expected);
}

/// Every thread owns what it allocated: it marks each block, and finds its mark when it frees it.
#[test]
fn threads_never_share_a_block() {
    let (pod, heap) = pod_with(2000, PersistenceDomain::Flushed);
    let work = |id: u32| {
        let member: Member = pod.join(id);
        let (memory, mut seed) = (pod.memory, u64::from(id) + 1);
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let (cells, mut done) = (DATA + u64::from(id) * 256, 0);
        for _ in 0..4000 {
            let cell = cells + random() % 32 * 8;
            let holds: u64 = memory.load(cell, Ordering::Relaxed);
            if holds == 0 {
                let bytes = 64 << (random() % 6);
                match heap.allocate_into(&member, &pod.recoverers, bytes, cell) {
                    Ok(block) => {
                        for at in [block, block + (bytes - 8)] {
                            memory.store(at, cell.raw(), Ordering::Relaxed);
                        }
                        memory.store(block + 16, bytes, Ordering::Relaxed);
                        done += 1;
                    }
                    Err(AllocateError::Full { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            } else {
                let block = Offset::from_raw(holds);
                let bytes: u64 = memory.load(block + 16, Ordering::Relaxed);
                for at in [block, block + (bytes - 8)] {
                    assert_eq!(memory.load::<u64>(at, Ordering::Relaxed), cell.raw());
                }
                assert_eq!(heap.free_from(&member, &pod.recoverers, cell), Ok(block));
            }
        }
        pod.leave(member);
        done
    };
    let allocations: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..IDS).map(|id| scope.spawn(move || work(id))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!(allocations > 4000, "{allocations}");
    let held = (0..u64::from(IDS) * 32).filter_map(|index| {
        let word: u64 = pod.memory.load(DATA + index * 8, Ordering::Relaxed);
        (word != 0).then(|| Offset::from_raw(word))
    });
    let report = heap.check_reachable(held);
    assert!(report.is_clean(), "{report}");
}
