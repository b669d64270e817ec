//! Traces: reading returns the written events, a position can be copied, and damaged or cut traces
//! cause errors and no worse.

use crate::traces::{about, event, written};
use outlive_machine::program::{
    self, EventCountId, LockId, Next, Op, Reference, Thread, Update, Word,
};
use outlive_machine::trace::{
    About, AtomicKind, Encoding, Event, Flaw, Order, Parts, Replay, Trace, TraceError, TraceWriter,
    TracedLock,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

fn encoding() -> impl Strategy<Value = Encoding> {
    prop_oneof![Just(Encoding::Plain), Just(Encoding::Deflate)]
}

/// Reads all of a trace, in every way; it ends for any contents.
fn read_all(bytes: Vec<u8>) -> Result<usize, TraceError> {
    let trace = Trace::from_bytes(bytes)?;
    let image = trace.image()?;
    assert!(
        image
            .runs
            .iter()
            .all(|(word, run)| word.0 + run.len() as u64 <= image.words)
    );
    let mut events = 0;
    for mut thread in trace.threads(Replay::default())? {
        while thread.next() != Next::Ended {
            events += 1;
        }
    }
    Ok(events)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(
        threads in prop::collection::vec(prop::collection::vec(event(), 0..400), 3),
        encoding in encoding(),
    ) {
        let trace = Trace::from_bytes(written(&threads, encoding)).unwrap();
        prop_assert_eq!(trace.about(), &about());
        let image = trace.image().unwrap();
        prop_assert_eq!(image.words, 1 << 20);
        let mut memory = vec![0; 30_000];
        for (word, run) in image.runs {
            memory[word.0 as usize..][..run.len()].copy_from_slice(&run);
        }
        prop_assert_eq!(&memory[..7], &[0, 0, 0, 1, 0, u64::MAX, 0]);
        prop_assert!(memory[100..20_100].iter().all(|value| *value == 7) && memory[20_100] == 0);
        for (thread, events) in threads.iter().enumerate() {
            let read: Vec<_> = trace.events(thread as u32).map(Result::unwrap).collect();
            prop_assert_eq!(&read, events);
        }
        prop_assert_eq!(trace.events(3).count(), 0);
        let survey = trace.survey().unwrap();
        prop_assert_eq!(survey.total.events, threads.iter().map(|events| events.len() as u64).sum::<u64>());
    }

    #[test]
    fn a_changed_byte_is_found(
        events in prop::collection::vec(event(), 1..200),
        encoding in encoding(),
        at in any::<prop::sample::Index>(),
        change in 1..=255u8,
    ) {
        let mut bytes = written(&[events], encoding);
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        let error = read_all(bytes).expect_err("every byte counts");
        // The error has the location, if the file begins as a trace; no error says that it was cut.
        let right = match error {
            TraceError::Foreign => at < 8,
            TraceError::Version { .. } => (8..12).contains(&at),
            TraceError::Damaged { .. } => at >= 12,
            _ => false,
        };
        prop_assert!(right, "byte {}: {}", at, error);
    }

    #[test]
    fn a_cut_trace_is_found(events in prop::collection::vec(event(), 1..50), at in any::<prop::sample::Index>()) {
        let mut bytes = written(&[events], Encoding::Plain);
        let bytes_left = at.index(bytes.len());
        bytes.truncate(bytes_left);
        let error = read_all(bytes).expect_err("it was cut");
        let length = bytes_left as u64;
        prop_assert!(matches!(error, TraceError::Truncated { length: found } if found == length), "{}", error);
    }

    #[test]
    fn what_follows_a_trace_is_found(events in prop::collection::vec(event(), 1..50), more in prop::collection::vec(any::<u8>(), 1..100)) {
        let mut bytes = written(&[events], Encoding::Deflate);
        let (end, follow) = (bytes.len() as u64, more.len() as u64);
        bytes.extend(more);
        let error = read_all(bytes).expect_err("there is more");
        let surplus = Flaw::Follows { bytes: follow };
        let right = matches!(error, TraceError::Damaged { offset, what } if offset == end && what == surplus);
        prop_assert!(right, "{}", error);
    }

    #[test]
    fn any_contents_with_fitting_checksums_are_read_or_refused(
        contents in prop::collection::vec(any::<u8>(), 0..200),
        kind in 1..=3u8,
        deflated in any::<bool>(),
        items in 0..20u32,
        plain in 0..400u32,
    ) {
        let _ = read_all(forged(&contents, kind, deflated, items, plain));
    }
}

/// A trace with one block of these contents, with matching checksums.
fn forged(contents: &[u8], kind: u8, deflated: bool, items: u32, plain: u32) -> Vec<u8> {
    let mut bytes = b"OutTrace\x01\0\0\0\0\0\0\0".to_vec();
    let mut places = Vec::new();
    let whole = TraceWriter::new(Vec::new(), 3, Encoding::Plain)
        .unwrap()
        .finish(&about())
        .unwrap();
    // The about block is the only one there.
    let about_block = &whole[16..whole.len() - 48];
    for block in [about_block.to_vec(), {
        let mut block = b"TBLK".to_vec();
        block.extend([kind, u8::from(deflated), 0, 0, 0, 0, 0, 0]);
        let plain = if deflated {
            plain
        } else {
            contents.len() as u32
        };
        for number in [contents.len() as u32, plain, items, 0] {
            block.extend(number.to_le_bytes());
        }
        let mut sum = crc32fast::Hasher::new();
        sum.update(&block);
        sum.update(contents);
        block.extend(sum.finalize().to_le_bytes());
        block.extend(contents);
        block
    }] {
        places.extend((bytes.len() as u64).to_le_bytes());
        places.extend([0, 0, 0, 0, block[4], 0, 0, 0]);
        bytes.extend(block);
    }
    let end = bytes.len() as u64;
    places.extend(end.to_le_bytes());
    places.extend(2u64.to_le_bytes());
    let sum = crc32fast::hash(&places);
    bytes.extend(places);
    bytes.extend(sum.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(b"ecarTtuO");
    bytes
}

#[test]
fn forged_traces_can_be_whole() {
    // A fence and a store: otherwise the property above would show nothing.
    assert_eq!(read_all(forged(&[6, 3, 4, 9], 3, false, 2, 0)).unwrap(), 2);
    let error = read_all(forged(&[6, 3, 4, 9], 3, false, 1, 0)).unwrap_err();
    let surplus = Flaw::Surplus { items: 1 };
    assert!(
        matches!(error, TraceError::Damaged { what, .. } if what == surplus),
        "{error}"
    );
    let error = read_all(forged(&[6, 3, 4], 3, false, 2, 0)).unwrap_err();
    let ends = Flaw::Ends { item: 1 };
    assert!(
        matches!(error, TraceError::Damaged { what, .. } if what == ends),
        "{error}"
    );
}

/// Returns the flaw for which a trace with such a block is refused.
fn refused(contents: &[u8], kind: u8, items: u32) -> Flaw {
    match read_all(forged(contents, kind, false, items, 0)) {
        Err(TraceError::Damaged { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn there_is_one_way_to_write_it() {
    let item = |field| Flaw::Item { item: 0, field };
    // Three instructions, in the high bits, and as a number.
    assert_eq!(read_all(forged(&[1 | 3 << 5], 3, false, 1, 0)).unwrap(), 1);
    assert_eq!(refused(&[1, 3], 3, 1), item("instructions"));
    // A store of 9 in one byte, and in two.
    assert_eq!(read_all(forged(&[3, 4, 9], 3, false, 1, 0)).unwrap(), 1);
    assert_eq!(refused(&[3 | 1 << 5, 4, 9, 0], 3, 1), item("value"));
    assert_eq!(refused(&[], 1, 2), Flaw::Field("items"));
}

#[test]
fn an_index_takes_no_more_memory_than_it_has_entries() {
    let mut bytes = written(&[vec![Event::Fence]], Encoding::Plain);
    let footer = bytes.split_off(bytes.len() - 32);
    let end = u64::from_le_bytes(footer[..8].try_into().unwrap());
    // 4 TiB of entries, nearly all of them holes.
    let entries = 1u64 << 38;
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().write_all_at(&bytes, 0).unwrap();
    let footer = [&footer[..8], &entries.to_le_bytes(), &footer[16..]].concat();
    let written = file.as_file().write_all_at(&footer, end + entries * 16);
    written.expect("a file system whose files can be long and have holes");
    let error = Trace::open(file.path()).unwrap_err();
    let kind = Flaw::Field("kind of a block");
    assert!(
        matches!(error, TraceError::Damaged { what, .. } if what == kind),
        "{error}"
    );
}

#[test]
fn a_trace_says_little_about_itself() {
    let lengthy = About {
        origin: vec![("notes".into(), "-".repeat(1 << 26))],
        ..about()
    };
    let writer = TraceWriter::new(Vec::new(), 3, Encoding::Plain).unwrap();
    let error = writer.finish(&lengthy).unwrap_err();
    assert!(
        matches!(error, TraceError::Unwritable(Flaw::Lengthy)),
        "{error}"
    );
}

#[test]
fn nobody_holds_so_many_locks_that_it_takes_ages_to_read() {
    let held = |locks: u32| {
        let mut writer = TraceWriter::new(Vec::new(), 1, Encoding::Deflate).unwrap();
        for lock in (0..locks).map(LockId) {
            writer.event(0, Event::Lock { lock, turn: 0 }).unwrap();
        }
        let about = About {
            words: u64::from(locks) * 8,
            threads: 1,
            locks: (0..locks.into())
                .map(|lock| TracedLock {
                    word: Word(lock * 8),
                    order: Some(EventCountId(lock as u32)),
                })
                .collect(),
            event_counts: vec![true; locks as usize],
            ..About::default()
        };
        read_all(writer.finish(&about).unwrap())
    };
    assert!(held(1024).is_ok());
    let error = held(30_000).unwrap_err();
    assert!(
        matches!(
            error,
            TraceError::Damaged {
                offset: 16,
                what: Flaw::Holds
            }
        ),
        "{error}"
    );
}

#[test]
fn what_cannot_stand_in_a_trace_is_not_written() {
    let mut writer = TraceWriter::new(Vec::new(), 1, Encoding::Plain).unwrap();
    for event in [
        Event::Compute(0),
        Event::StorePart {
            word: Word(0),
            mask: 0xff,
            value: 1,
        },
        Event::Atomic {
            word: Word(0),
            mask: 1,
            kind: AtomicKind::Add,
            read: 256,
            written: 0,
        },
    ] {
        assert!(matches!(
            writer.event(0, event),
            Err(TraceError::Unwritable(_))
        ));
    }
    assert!(matches!(
        writer.event(1, Event::Fence),
        Err(TraceError::Unwritable(_))
    ));
    assert!(matches!(
        writer.finish(&about()),
        Err(TraceError::Unwritable(_))
    ));
}

/// Returns the operations of the first thread.
fn ops(threads: &[Vec<Event>], replay: Replay) -> Vec<Op> {
    let trace = Trace::from_bytes(written(threads, Encoding::Deflate)).unwrap();
    let mut thread = trace.threads(replay).unwrap().swap_remove(0);
    let next = || match thread.next() {
        Next::Op(op) => Some(op),
        Next::Ended => None,
        Next::Waits => panic!("a trace waits for nothing"),
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn a_replay_keeps_to_the_order_that_it_is_asked_for() {
    let (free, kept) = (EventCountId(0), EventCountId(1));
    let lock = LockId(0);
    let events = [
        vec![
            Event::Lock { lock, turn: 4 },
            Event::Unlock(lock),
            Event::Await(kept, 2),
            Event::Advance(free),
        ],
        vec![Event::Advance(kept), Event::Advance(free)],
    ];
    let needed = [Op::Lock(lock), Op::Unlock(lock), Op::Await(kept, 2)];
    assert_eq!(ops(&events, Replay::default()), needed);
    let recorded = Replay {
        order: Order::Recorded,
        ..Replay::default()
    };
    let all = [
        Op::Await(free, 4),
        Op::Lock(lock),
        Op::Unlock(lock),
        Op::Advance(free),
        Op::Await(kept, 2),
        Op::Advance(free),
    ];
    assert_eq!(ops(&events, recorded), all);
    // The event counts of one thread alone are in order anyway.
    assert_eq!(ops(&events[..1], recorded), needed[..2]);
}

/// Returns the final values of memory after these threads, over some interleavings.
fn ends(threads: &[Vec<Event>], replay: Replay, word: Word) -> BTreeSet<u64> {
    let trace = Trace::from_bytes(written(threads, Encoding::Plain)).unwrap();
    let (image, synchronisation) = (trace.image().unwrap(), trace.about().synchronisation());
    let end = |seed| {
        let threads = trace.threads(replay).unwrap();
        let order = program::Order::TotalStore;
        let mut machine = Reference::new(&image, &synchronisation, threads, order, seed);
        machine.run().unwrap();
        machine.word(word)
    };
    (0..40).map(end).collect()
}

#[test]
fn only_the_recorded_order_of_locks_leaves_what_the_program_left() {
    let (lock, word) = (LockId(0), Word(9));
    let section = |turn| {
        vec![
            Event::Lock { lock, turn },
            Event::Store { word, value: turn },
            Event::Unlock(lock),
        ]
    };
    let threads = [section(1), section(0), section(2)];
    let recorded = Replay {
        order: Order::Recorded,
        ..Replay::default()
    };
    assert_eq!(ends(&threads, recorded, word), [2].into());
    assert_eq!(ends(&threads, Replay::default(), word), [0, 1, 2].into());
}

#[test]
fn only_exact_parts_keep_what_others_write_to_the_same_word() {
    let word = Word(9);
    let part = |mask, value| vec![Event::StorePart { word, mask, value }];
    // The second had seen the first's store.
    let threads = [part(0x0f, 1), part(0xf0, 1 | 1 << 32)];
    let exact = Replay {
        parts: Parts::Exact,
        ..Replay::default()
    };
    assert_eq!(ends(&threads, exact, word), [1 | 1 << 32].into());
    assert_eq!(
        ends(&threads, Replay::default(), word),
        [1, 1 | 1 << 32].into()
    );
}

#[test]
fn atomics_come_to_the_same_in_any_order() {
    let word = Word(9);
    let atomic = |kind, mask, read, written| {
        vec![Event::Atomic {
            word,
            mask,
            kind,
            read,
            written,
        }]
    };
    // A byte that goes below zero next to another one; and a byte that is swapped.
    let threads = [
        atomic(AtomicKind::Add, 1, 0, 0xff),
        atomic(AtomicKind::Swapped, 2, 0x700, 0x300),
        atomic(AtomicKind::Exchange, 2, 0, 0x700),
    ];
    assert_eq!(ends(&threads, Replay::default(), word), [0x3ff].into());
}

#[test]
fn parts_of_a_word_are_exact_if_that_is_asked_for() {
    let part = |word, mask, value| Event::StorePart {
        word: Word(word),
        mask,
        value,
    };
    let threads = [
        vec![part(5, 0x0f, 7), part(6, 0x0f, 7)],
        vec![part(5, 0xf0, 1 << 40 | 7)],
    ];
    let whole = [
        Op::StorePart(Word(5), 7, 0x0f),
        Op::StorePart(Word(6), 7, 0x0f),
    ];
    assert_eq!(ops(&threads, Replay::default()), whole);
    let exact = Replay {
        parts: Parts::Exact,
        ..Replay::default()
    };
    let only_where_needed = [
        Op::Atomic(Word(5), Update::And(0xffff_ffff_0000_0000)),
        Op::Atomic(Word(5), Update::Or(7)),
        Op::StorePart(Word(6), 7, 0x0f),
    ];
    assert_eq!(ops(&threads, exact), only_where_needed);
}

#[test]
fn a_copied_position_goes_on_alone() {
    let events: Vec<_> = (0..50_000)
        .map(|value| Event::Store {
            word: Word(value % 64),
            value,
        })
        .collect();
    let trace = Trace::from_bytes(written(&[events], Encoding::Deflate)).unwrap();
    let mut thread = trace.threads(Replay::default()).unwrap().swap_remove(0);
    let rest = |thread: &mut dyn Thread| {
        let next = || Some(thread.next()).filter(|next| *next != Next::Ended);
        std::iter::from_fn(next).collect::<Vec<_>>()
    };
    for _ in 0..30_000 {
        thread.next();
    }
    let mut copy = thread.clone();
    let first = rest(&mut thread);
    assert_eq!(first.len(), 20_000);
    assert_eq!(first, rest(&mut copy));
}
