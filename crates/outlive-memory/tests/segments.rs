//! Segments are attached, resolved, lost and replaced, also while other threads resolve them.

use outlive_memory::{
    AttachError, Memory, Native, Offset, Ordering, PersistenceDomain, SegmentError, SegmentNumber,
    Segments,
};
use std::sync::atomic::{AtomicBool, AtomicU64};

fn memory(bytes: u64) -> Native {
    Native::leaked(bytes, PersistenceDomain::Flushed)
}

fn number(number: u16) -> SegmentNumber {
    SegmentNumber::new(number).expect("12 bits")
}

#[test]
fn a_number_is_absent_attached_lost_and_replaced() {
    let segments = Segments::new(memory(4096));
    let two = number(2);
    let place = Offset::in_segment(two, 128);
    let absent = SegmentError::Absent { number: two };
    assert_eq!(segments.resolve(place, 8), Err(absent));
    assert_eq!(segments.get(two, 5), Err(absent));

    let lent = memory(8192);
    segments.attach(two, 5, lent).unwrap();
    assert_eq!(segments.resolve(place, 8), Ok((lent, Offset::new(128))));
    assert_eq!(segments.get(two, 5).unwrap().bytes(), 8192);
    assert_eq!(segments.get(two, 6), Err(absent));
    let attached = AttachError::Attached {
        number: two,
        generation: 5,
    };
    assert_eq!(segments.attach(two, 6, lent), Err(attached));

    // Another generation is not detached.
    assert!(segments.lose(two, 4).is_none());
    assert!(segments.lose(two, 5).is_some());
    let lost = SegmentError::Lost {
        number: two,
        generation: 5,
    };
    assert_eq!(segments.resolve(place, 8), Err(lost));
    assert_eq!(segments.get(two, 5), Err(lost));
    let old = AttachError::Old {
        number: two,
        generation: 5,
        previous: 5,
    };
    assert_eq!(segments.attach(two, 5, lent), Err(old));

    let next = memory(4096);
    segments.attach(two, 6, next).unwrap();
    assert_eq!(segments.resolve(place, 8), Ok((next, Offset::new(128))));
    let replaced = SegmentError::Replaced {
        number: two,
        asked: 5,
        found: 6,
    };
    assert_eq!(segments.get(two, 5), Err(replaced));
    assert!(segments.detach(two, 6).is_some());
    assert_eq!(segments.resolve(place, 8), Err(absent));
}

#[test]
fn a_loss_is_known_without_an_attachment() {
    let segments = Segments::new(memory(4096));
    assert!(segments.lose(number(7), 1).is_none());
    let lost = SegmentError::Lost {
        number: number(7),
        generation: 1,
    };
    assert_eq!(segments.get(number(7), 1), Err(lost));
}

#[test]
fn bytes_outside_a_segment_are_an_error() {
    let segments = Segments::new(memory(4096));
    let lent = memory(8192);
    assert_eq!(segments.attach(number(0), 1, lent), Err(AttachError::First));
    for (at, bytes) in [(4096, 4097), (8320, 0), (64, 128), (128, u64::MAX)] {
        let attached = segments.attach_part(number(1), 1, lent, Offset::new(at), bytes);
        assert!(matches!(attached, Err(AttachError::Outside { .. })));
    }
    { segments.attach_part(number(1), 1, lent, Offset::new(4096), 4096) }.unwrap();
    for (number, size) in [(number(0), 4096u64), (number(1), 4096)] {
        for byte in [0, 8, size - 8, size - 7, size, Offset::SPAN - 1] {
            let resolved = segments.resolve(Offset::in_segment(number, byte), 8);
            assert_eq!(resolved.is_ok(), byte <= size - 8, "{number:?} {byte}");
            // It is an access, and not a panic.
            if let Ok((memory, at)) = resolved
                && byte.is_multiple_of(8)
            {
                memory.store(at, byte, Ordering::Relaxed);
            }
        }
    }
    assert_eq!(lent.load::<u64>(Offset::new(8184), Ordering::Relaxed), 4088);
}

/// An access to segment 0 is the same code with a table as without: the table returns the plain
/// memory, which is base and bound and knows no table. Prints times, of which no claim is made.
#[test]
fn the_first_segment_is_a_plain_memory() {
    let plain = memory(4096);
    let segments = Segments::new(plain);
    let first: Native = segments.first();
    assert_eq!(first, plain);
    assert_eq!(size_of::<Native>(), 2 * size_of::<usize>());
    let place = Offset::new(64);
    assert_eq!(segments.resolve(place, 8), Ok((plain, place)));

    segments.attach(number(1), 1, memory(4096)).unwrap();
    let time = |access: &dyn Fn(Offset) -> u64| {
        let began = std::time::Instant::now();
        let sum = (0..1_000_000u64).fold(0, |sum, i| sum + access(Offset::new(i % 512 * 8)));
        assert_eq!(sum, 0);
        began.elapsed().as_nanos() as f64 / 1e6
    };
    let bare = time(&|at| plain.load(at, Ordering::Relaxed));
    let of_table = time(&|at| segments.first().load(at, Ordering::Relaxed));
    let resolved = time(&|at| {
        let at = Offset::in_segment(number(1), at.byte());
        let (memory, at) = segments.resolve(at, 8).expect("attached");
        memory.load(at, Ordering::Relaxed)
    });
    println!("plain {bare:.2} ns, first {of_table:.2} ns, resolved {resolved:.2} ns");
}

/// Each generation's memory contains its generation. A reader that resolves a number and a
/// generation never reads the memory of another one.
#[test]
fn readers_never_meet_another_generation() {
    const GENERATIONS: u64 = 300;
    let segments = Segments::new(memory(4096));
    let now = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let reader = || {
            let mut reads = 0u64;
            while !is_over.load(Ordering::Acquire) || reads == 0 {
                let generation = now.load(Ordering::Acquire);
                match segments.get(number(1), generation) {
                    Ok(attached) => {
                        let at = attached.place(0, 8).expect("inside");
                        let found: u64 = attached.memory().load(at, Ordering::Relaxed);
                        assert_eq!(found, generation);
                        reads += 1;
                    }
                    Err(SegmentError::Absent { .. }) => assert_eq!(generation, 0),
                    Err(SegmentError::Lost { .. } | SegmentError::Replaced { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                std::hint::spin_loop();
            }
            reads
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        for generation in 1..=GENERATIONS {
            let lent = memory(4096);
            lent.store(Offset::new(0), generation, Ordering::Relaxed);
            segments.attach(number(1), generation, lent).unwrap();
            now.store(generation, Ordering::Release);
            std::thread::yield_now();
            if generation < GENERATIONS {
                assert!(segments.lose(number(1), generation).is_some());
            }
        }
        // The last one stays, so each reader meets a memory at last.
        is_over.store(true, Ordering::Release);
        readers.map(|reader| reader.join().expect("no reader fails"))
    });
    assert!(reads.iter().all(|reads| *reads > 0));
}
