//! Traces of all possible contents.

use outlive_machine::program::{Barrier, BarrierId, ConditionId, EventCountId, LockId, Word};
use outlive_machine::trace::{About, AtomicKind, Encoding, Event, TraceWriter, TracedLock};
use proptest::prelude::*;

pub fn about() -> About {
    About {
        words: 1 << 20,
        threads: 3,
        locks: vec![
            TracedLock {
                word: Word(64),
                order: Some(EventCountId(0)),
            },
            TracedLock {
                word: Word(72),
                order: None,
            },
        ],
        conditions: vec![Word(80)],
        barriers: vec![Barrier {
            counter: Word(88),
            threads: 3,
        }],
        event_counts: vec![false, true],
        origin: vec![("program".into(), "a test".into())],
        ..About::default()
    }
}

fn bits(mask: u8) -> u64 {
    (0..8)
        .filter(|byte| mask & (1 << byte) != 0)
        .map(|byte| 0xff << (8 * byte))
        .sum()
}

pub fn event() -> impl Strategy<Value = Event> {
    let word = || prop_oneof![0..64u64, 0..1u64 << 20].prop_map(Word);
    let value = || prop_oneof![0..300u64, any::<u64>()];
    let lock = || (0..2u32).prop_map(LockId);
    let count = || (0..2u32).prop_map(EventCountId);
    let kind = prop::sample::select(vec![
        AtomicKind::Exchange,
        AtomicKind::Add,
        AtomicKind::Or,
        AtomicKind::And,
        AtomicKind::Xor,
        AtomicKind::Nand,
        AtomicKind::Swapped,
    ]);
    let condition = ConditionId(0);
    prop_oneof![
        (1..1000u32).prop_map(Event::Compute),
        (word(), prop::option::of(value())).prop_map(|(word, value)| Event::Load { word, value }),
        (word(), value()).prop_map(|(word, value)| Event::Store { word, value }),
        (word(), 1..255u8, value()).prop_map(|(word, mask, value)| Event::StorePart {
            word,
            mask,
            value
        }),
        (word(), 1..=255u8, kind, value(), value()).prop_map(
            |(word, mask, kind, read, written)| Event::Atomic {
                word,
                mask,
                kind,
                read: read & bits(mask),
                written: written & bits(mask),
            }
        ),
        Just(Event::Fence),
        any::<u64>().prop_map(Event::PrivateLoad),
        any::<u64>().prop_map(Event::PrivateStore),
        (lock(), value()).prop_map(|(lock, turn)| Event::Lock { lock, turn }),
        lock().prop_map(Event::Unlock),
        Just(Event::Barrier(BarrierId(0))),
        lock().prop_map(move |lock| Event::WaitBegin { condition, lock }),
        (lock(), value()).prop_map(move |(lock, turn)| Event::WaitEnd {
            condition,
            lock,
            turn
        }),
        Just(Event::Signal(condition)),
        Just(Event::Broadcast(condition)),
        word().prop_map(Event::Acquire),
        word().prop_map(Event::Release),
        (count(), value()).prop_map(|(count, value)| Event::Await(count, value)),
        count().prop_map(Event::Advance),
        Just(Event::RegionBegin),
        Just(Event::RegionEnd),
    ]
}

pub fn written(threads: &[Vec<Event>], encoding: Encoding) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), 3, encoding).unwrap();
    writer.image(Word(3), &[1, 0, u64::MAX]).unwrap();
    writer.image(Word(100), &vec![7; 20_000]).unwrap();
    for (thread, events) in threads.iter().enumerate() {
        for event in events {
            writer.event(thread as u32, *event).unwrap();
        }
    }
    writer.finish(&about()).unwrap()
}
