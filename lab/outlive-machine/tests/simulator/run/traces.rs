//! Runs of traces end with the memory of the recorded program.

use super::*;
use outlive_machine::program::{Barrier, BarrierId, Order};
use outlive_machine::trace::{AtomicKind, Parts};

/// The words that the trace changes.
const SUM: Word = Word(64);
const OWN: u64 = 128;
/// Threads that count together under a lock, meet at a barrier, and write to lines of their own.
/// The turns of the lock are as recorded: each thread in its turn, again and again.
fn trace() -> Trace {
    const TURNS: u64 = 20;
    let lock = LockId(0);
    let mut writer = TraceWriter::new(Vec::new(), THREADS as u32, Encoding::Deflate).unwrap();
    writer.image(SUM, &[1000]).unwrap();
    for thread in 0..THREADS as u64 {
        let mut event = |event| writer.event(thread as u32, event).unwrap();
        for step in 0..TURNS {
            let turn = step * THREADS as u64 + thread;
            event(Event::Compute(30));
            event(Event::Lock { lock, turn });
            let value = 1000 + turn;
            event(Event::Load {
                word: SUM,
                value: Some(value),
            });
            let value = value + 1;
            event(Event::Store { word: SUM, value });
            event(Event::Unlock(lock));
            let word = Word(OWN + thread * 64 + step);
            event(Event::Store { word, value: turn });
        }
        event(Event::Barrier(BarrierId(0)));
        let word = Word(OWN + (thread + 1) % THREADS as u64 * 64);
        event(Event::Load { word, value: None });
    }
    let about = About {
        words: 1024,
        threads: THREADS as u32,
        locks: vec![TracedLock {
            word: Word(0),
            order: Some(outlive_machine::program::EventCountId(0)),
        }],
        barriers: vec![Barrier {
            counter: Word(16),
            threads: THREADS as u32,
        }],
        event_counts: vec![false],
        ..About::default()
    };
    Trace::from_bytes(writer.finish(&about).unwrap()).unwrap()
}

const EXACT: Replay = Replay {
    order: outlive_machine::trace::Order::Recorded,
    parts: Parts::Exact,
};

#[test]
fn locks_that_are_held_while_a_turn_is_awaited_keep_to_their_order() {
    let (outer, inner) = (LockId(0), LockId(1));
    let count = outlive_machine::program::EventCountId(2);
    let mut writer = TraceWriter::new(Vec::new(), 2, Encoding::Plain).unwrap();
    // The first thread came second: to the locks, and to the word with the order that is kept.
    for thread in 0..2 {
        let turn = 1 - thread;
        let events = [
            Event::Lock { lock: outer, turn },
            Event::Lock { lock: inner, turn },
            Event::Await(count, turn),
            Event::Store {
                word: SUM,
                value: thread,
            },
            Event::Advance(count),
            Event::Unlock(inner),
            Event::Unlock(outer),
        ];
        for event in events {
            writer.event(thread as u32, event).unwrap();
        }
    }
    let lock = |number: u32| TracedLock {
        word: Word(u64::from(number) * 8),
        order: Some(outlive_machine::program::EventCountId(number)),
    };
    let about = About {
        words: 1024,
        threads: 2,
        locks: vec![lock(0), lock(1)],
        event_counts: vec![false, false, true],
        ..About::default()
    };
    let trace = Trace::from_bytes(writer.finish(&about).unwrap()).unwrap();
    for seed in 0..20 {
        let threads = trace.threads(Replay::default()).unwrap();
        let (image, synchronisation) = (trace.image().unwrap(), about.synchronisation());
        let mut machine =
            Reference::new(&image, &synchronisation, threads, Order::Sequential, seed);
        machine.run().unwrap();
        assert_eq!(machine.word(SUM), 0);
    }
}

#[test]
fn a_trace_leaves_in_every_configuration_what_it_left_when_it_was_recorded() {
    let trace = trace();
    let synchronisation = trace.about().synchronisation();
    let threads = trace.threads(EXACT).unwrap();
    let image = trace.image().unwrap();
    let mut reference = Reference::new(&image, &synchronisation, threads, Order::TotalStore, 3);
    reference.run().unwrap();
    assert_eq!(reference.word(SUM), 1080);
    // The contents of the words of locks and barriers are up to the machine.
    let expected: Vec<u64> = (SUM.0..1024)
        .map(|word| reference.word(Word(word)))
        .collect();
    let subject = Subject::trace(&trace, EXACT)
        .unwrap()
        .with_check(move |memory| {
            let wrong =
                (SUM.0..1024).find(|word| memory(Word(*word)) != expected[(word - SUM.0) as usize]);
            wrong.map_or(Ok(()), |word| {
                Err(format!("word {word} is {}", memory(Word(word))))
            })
        });
    for protocol in Protocol::ALL {
        let description = machine(*protocol);
        for seed in 0..3 {
            let outcome = outcome(&Run::new(&description, seed), &subject);
            assert!(outcome.checked, "{protocol:?}");
        }
    }
    // A trace does not define the right result.
    let description = machine(Protocol::WriteBack);
    let unchecked = outcome(
        &Run::new(&description, 1),
        &Subject::trace(&trace, EXACT).unwrap(),
    );
    assert!(unchecked.finished && !unchecked.checked);
    let wrong = Subject::trace(&trace, EXACT)
        .unwrap()
        .with_check(|_| Err("the sum".into()));
    let wrong = Run::new(&description, 1).of(&wrong, &mut unwatched);
    assert_eq!(
        wrong.unwrap_err().to_string(),
        "the result of the trace is wrong: the sum"
    );
}

/// Two threads with a lock, a barrier with its two lines on two pages, and a store to each of four
/// pages.
fn on_pages(pages: [u64; 4], words: u64) -> Trace {
    let page = pages.map(|page| Word(page * 512));
    let mut writer = TraceWriter::new(Vec::new(), 2, Encoding::Plain).unwrap();
    writer.image(page[3].offset(510), &[3, 4]).unwrap();
    for thread in 0..2 {
        let (lock, turn, word) = (LockId(0), thread.into(), page[0].offset(8));
        let read = 5 * u64::from(thread);
        let events = [
            Event::Lock { lock, turn },
            Event::Load {
                word: page[3].offset(511),
                value: Some(4),
            },
            Event::Atomic {
                word,
                mask: 0xff,
                kind: AtomicKind::Add,
                read,
                written: read + 5,
            },
            Event::Unlock(lock),
            Event::Barrier(BarrierId(0)),
            Event::StorePart {
                word: page[2].offset(u64::from(thread) + 8),
                mask: 1,
                value: 9,
            },
            Event::Release(word),
        ];
        for event in events {
            writer.event(thread, event).unwrap();
        }
    }
    let about = About {
        words,
        threads: 2,
        locks: vec![TracedLock {
            word: page[0],
            order: None,
        }],
        barriers: vec![Barrier {
            counter: page[1].offset(504),
            threads: 2,
        }],
        ..About::default()
    };
    Trace::from_bytes(writer.finish(&about).unwrap()).unwrap()
}

#[test]
fn pages_of_a_vast_memory_that_nothing_touches_are_left_out() {
    // Larger than any host's memory, and larger than a gibibyte by one word.
    for (far, words) in [
        ([1 << 30, 1 << 31, (1 << 31) + 1, 1 << 37], 1 << 47),
        ([7, 1000, 1001, 200_000], (1 << 27) + 1),
    ] {
        for protocol in [Protocol::WriteBack, Protocol::Proactive] {
            let description = machine(protocol);
            let runs = |trace: &Trace, lines| {
                let subject = Subject::trace(trace, EXACT).unwrap().with_check(|word| {
                    let last = (0..4 * 512).rev().find(|at| word(Word(*at)) != 0);
                    let sum = word(Word(8));
                    match (last, sum) {
                        (Some(2047), 10) => Ok(()),
                        _ => Err(format!("{last:?}, {sum}")),
                    }
                });
                let beyond = Run {
                    follow: Some(LineAddress(lines)),
                    ..Run::new(&description, 1)
                };
                let error = beyond.of(&subject, &mut unwatched).unwrap_err();
                assert!(matches!(error, RunError::NoSuchLine { .. }), "{error}");
                outcome(&Run::new(&description, 1), &subject)
            };
            let near = runs(&on_pages([0, 1, 2, 3], 4 * 512), 4 * 64);
            assert!(near.checked);
            assert_eq!(runs(&on_pages(far, words), 4 * 64), near);
        }
    }
}
