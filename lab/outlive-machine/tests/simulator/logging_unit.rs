//! Logging units: times against closed forms, order under any reordering of the fabric, and
//! fetching against a naive model.

use outlive_machine::description::{Bytes, Description};
use outlive_machine::engine::{Random, Time};
use outlive_machine::line::LineAddress;
use outlive_machine::logging::{
    Commit, Epoch, LogEntry, LoggingError, LoggingUnit, Numbering, Repl, ReplicaGroups, Requester,
    Val,
};
use outlive_machine::program::Word;
use outlive_machine::protocol::NodeId;
use proptest::prelude::*;

const CYCLE: Time = Time::from_nanos(2);
const SRAM: Time = Time::from_nanos(4);
const DRAM: Time = Time::from_nanos(45);
const HERE: NodeId = NodeId::new(0);

fn unit(description: &Description) -> LoggingUnit {
    LoggingUnit::new(description, ReplicaGroups::new(description), HERE)
}

/// A description with units that write `width` entries in a cycle.
fn wide(width: u32) -> Description {
    let mut description = Description::default();
    description.ours.replication.entries_per_cycle = width;
    description
}

fn requester(node: usize, core: u8) -> Requester {
    Requester {
        node: NodeId::new(node),
        core,
    }
}

fn repl(requester: Requester, sequence: u32, line: u64, mask: u8) -> Repl {
    let values = std::array::from_fn(|place| u64::from(sequence) << 8 | place as u64);
    Repl {
        requester,
        sequence,
        line: LineAddress(line),
        mask,
        values,
    }
}

fn val(repl: &Repl, numbering: &mut Numbering) -> Val {
    Val {
        requester: repl.requester,
        sequence: repl.sequence,
        timestamp: numbering.timestamp(HERE),
        commit: numbering.commit(),
        epoch: Epoch(1),
    }
}

#[test]
fn a_unit_writes_a_whole_repl_in_a_cycle_unless_it_is_said_to_be_narrower() {
    let default = Description::default().ours.replication.entries_per_cycle;
    assert_eq!(default, 8);
    // At 500 MHz: eight entries take the cycles that this width needs, and then the next REPL
    // comes.
    for (width, cycles) in [(1, 8), (2, 4), (3, 3), (4, 2), (7, 2), (8, 1), (100, 1)] {
        let mut unit = unit(&wide(width));
        for sequence in 0..4 {
            let whole = repl(requester(1, 0), sequence, 4, 0xff);
            let logged = unit.log(Time::ZERO, &whole).unwrap();
            let done = u64::from(sequence + 1) * cycles * 2;
            assert_eq!(logged.busy_until, Time::from_nanos(done), "{width}");
            assert_eq!(logged.ack, Time::from_nanos(done - 2 + 4), "{width}");
        }
    }
}

#[test]
fn an_unloaded_repl_is_acknowledged_after_its_entries() {
    for (words, width) in (1..=8u64).flat_map(|words| [(words, 1), (words, 3), (words, 8)]) {
        let mask = (0xff_u16 >> (8 - words)) as u8;
        let cycles = words.div_ceil(u64::from(width));
        for (arrives, edge) in [(100_000, 100_000), (100_001, 102_000), (101_999, 102_000)] {
            let mut unit = unit(&wide(width));
            let logged = unit
                .log(
                    Time::from_picos(arrives),
                    &repl(requester(1, 0), 0, 4, mask),
                )
                .unwrap();
            let edge = Time::from_picos(edge);
            assert_eq!(logged.ack, edge + CYCLE * (cycles - 1) + SRAM);
            assert_eq!(logged.busy_until, edge + CYCLE * cycles);
            assert_eq!(logged.spilled, 0);
            assert_eq!(unit.counts().waited, edge - Time::from_picos(arrives));
            let mut numbering = Numbering::default();
            let arrives = logged.busy_until + Time::from_picos(1);
            let validated = unit
                .validate(
                    arrives,
                    &val(&repl(requester(1, 0), 0, 4, mask), &mut numbering),
                )
                .unwrap();
            assert_eq!(validated.done, logged.busy_until + CYCLE + SRAM);
            assert_eq!(u64::from(validated.moved), words);
            // Its places are free when the last entry is read, as many in a cycle as are written.
            let free = validated.done + CYCLE * (cycles - 1) + SRAM;
            assert_eq!(u64::from(unit.sram_len(free - Time::from_picos(1))), words);
            assert_eq!(unit.sram_len(free), 0);
        }
    }
}

#[test]
fn a_busy_unit_serves_messages_one_after_another() {
    for width in [1, 2, 8] {
        let mut unit = unit(&wide(width));
        let (mut before, mut entries, mut waited) = (0, 0, Time::ZERO);
        for sequence in 0..40 {
            let words = u64::from(sequence % 3 + 1);
            let cycles = words.div_ceil(u64::from(width));
            let mask = (1 << words) - 1;
            let logged = unit
                .log(Time::ZERO, &repl(requester(2, 1), sequence, 9, mask))
                .unwrap();
            assert_eq!(logged.ack, CYCLE * (before + cycles - 1) + SRAM);
            waited += CYCLE * before;
            before += cycles;
            entries += words;
            assert_eq!(logged.busy_until, CYCLE * before);
        }
        assert_eq!(unit.counts().waited, waited);
        assert_eq!(unit.counts().logged, entries);
        assert_eq!(u64::from(unit.counts().peak_sram), entries);
    }
}

#[test]
fn what_the_sram_has_no_room_for_goes_to_dram_and_is_not_refused() {
    let mut unit = unit(&wide(1));
    // 4 KiB in entries of 24 B.
    let room = 170;
    for sequence in 0..room {
        let logged = unit
            .log(Time::ZERO, &repl(requester(1, 0), sequence, 3, 1))
            .unwrap();
        assert_eq!(logged.spilled, 0);
    }
    let logged = unit
        .log(Time::ZERO, &repl(requester(1, 0), room, 3, 0b11))
        .unwrap();
    assert_eq!(logged.spilled, 2);
    assert_eq!(logged.ack, CYCLE * (u64::from(room) + 1) + DRAM);
    let counts = unit.counts();
    assert_eq!(
        (counts.spilled, counts.peak_spill, counts.peak_sram),
        (2, 2, room)
    );

    // Two entries leave the SRAM, which makes space for two of the next three.
    let mut numbering = Numbering::default();
    let mut now = Time::from_nanos(1_000);
    for sequence in 0..2 {
        let val = val(&repl(requester(1, 0), sequence, 3, 1), &mut numbering);
        assert_eq!(unit.validate(now, &val).unwrap().done, now + SRAM);
        now += CYCLE;
    }
    let late = Time::from_nanos(2_000);
    let logged = unit.log(late, &repl(requester(1, 1), 0, 5, 0b111)).unwrap();
    assert_eq!(logged.spilled, 1);
    assert_eq!(logged.ack, late + CYCLE * 2 + DRAM);
    // A VAL of an entry in DRAM takes an access there.
    let spilled = val(&repl(requester(1, 0), room, 3, 0b11), &mut numbering);
    let later = Time::from_nanos(3_000);
    assert_eq!(unit.validate(later, &spilled).unwrap().done, later + DRAM);
    assert_eq!(unit.log_len(), 4);
    assert_eq!(unit.sram_len(later), room);
}

#[test]
fn a_log_fills_in_the_time_that_its_entries_take() {
    // The paper's 18 MiB at 500 MHz, as fast as a unit can: with whole lines it takes 0.39 ms. With
    // single words it is 3.15 ms, longer than from dump to dump. One entry in a cycle makes whole
    // lines take 1.77 ms.
    for (words, width, nanos) in [(8u64, 8, 393_216), (1, 8, 3_145_728), (8, 1, 1_769_472)] {
        let mut unit = unit(&wide(width));
        assert_eq!(unit.log_capacity(), 786_432);
        let mut numbering = Numbering::default();
        let (mut now, mut sequence) = (Time::ZERO, 0);
        loop {
            let repl = repl(
                requester(1, 0),
                sequence,
                u64::from(sequence),
                (0xff >> (8 - words)) as u8,
            );
            let logged = unit.log(now, &repl).unwrap();
            let validated = unit
                .validate(logged.busy_until, &val(&repl, &mut numbering))
                .unwrap();
            now = logged.busy_until + CYCLE;
            sequence += 1;
            if validated.full {
                break;
            }
        }
        let cycles = words.div_ceil(u64::from(width));
        assert_eq!(now, CYCLE * (unit.log_capacity() / words * (cycles + 1)));
        assert_eq!(now, Time::from_nanos(nanos));
        assert_eq!(unit.log_len() as u64, unit.log_capacity());
        // The unit continues, and reports the full log once.
        let more = repl(requester(1, 0), sequence, 1, 0xff);
        unit.log(now, &more).unwrap();
        let validated = unit.validate(now, &val(&more, &mut numbering)).unwrap();
        assert!(!validated.full);
        let counts = unit.counts();
        assert_eq!(
            (counts.past_full, counts.peak_log),
            (8, unit.log_capacity() + 8)
        );
        assert_eq!(counts.spilled, 0, "moving keeps up with logging");
    }
}

/// The stores of one core: line and mask, and the delay of the VAL.
fn stores() -> impl Strategy<Value = Vec<(usize, u8, u64, u8, u64)>> {
    prop::collection::vec((1..5usize, 0..3u8, 0..6u64, 1..=255u8, 0..30u64), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// REPLs come in any order before their VALs, and VALs in any order.
    #[test]
    fn a_log_has_each_nodes_entries_in_the_order_of_its_commits(stores in stores(), seed: u64, sram in 1..40u64) {
        let mut description = Description::default();
        description.logging_unit.sram_size = Bytes(24 * sram);
        let mut unit = unit(&description);
        let mut random = Random::new(seed);
        let mut numberings = vec![Numbering::default(); 5];
        let (mut all, mut expected) = (Vec::new(), vec![Vec::new(); 5]);
        for (sequence, (node, core, line, mask, late)) in stores.into_iter().enumerate() {
            let repl = repl(requester(node, core), sequence as u32, line, mask);
            let val = val(&repl, &mut numberings[node]);
            for place in (0..8).filter(|place| mask & 1 << place != 0) {
                expected[node].push((val.commit, Word(line * 8 + place), repl.values[place as usize]));
            }
            // A REPL comes before its VAL; both may be late.
            let sent = sequence as u64;
            let arrives = sent + random.below(10);
            all.push((arrives, 0, repl, val));
            all.push((arrives + 1 + late, 1, repl, val));
        }
        all.sort_by_key(|(time, kind, ..)| (*time, *kind));
        let mut moved = 0;
        for (time, kind, repl, val) in all {
            let now = Time::from_nanos(time * 3);
            if kind == 0 {
                let logged = unit.log(now, &repl).unwrap();
                prop_assert!(logged.ack >= now + SRAM && logged.busy_until > now);
            } else {
                moved += unit.validate(now, &val).unwrap().moved as usize;
            }
            let (fork, counts) = (unit.clone(), unit.counts());
            prop_assert_eq!(fork.log_len(), moved);
            prop_assert!(u64::from(counts.peak_sram) <= sram);
            prop_assert_eq!(counts.moved, moved as u64);
        }
        let mut found = vec![Vec::new(); 5];
        for entry in unit.log_entries() {
            found[entry.requester.node.index()].push((entry.commit, entry.word, entry.value));
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(unit.sram_len(Time::from_micros(9)), 0);
    }

    /// Also in the middle of a run, when validated entries wait in the SRAM and others are not
    /// validated.
    #[test]
    fn fetching_finds_what_a_naive_model_has(
        stores in stores(), seed: u64, asked in prop::collection::vec(0..8u64, 0..8), stop in 0..240usize,
    ) {
        let mut unit = unit(&Description::default());
        let mut random = Random::new(seed);
        let mut numberings = vec![Numbering::default(); 5];
        let mut all = Vec::new();
        for (sequence, (node, core, line, mask, late)) in stores.into_iter().enumerate() {
            let repl = repl(requester(node, core), sequence as u32, line, mask);
            let val = val(&repl, &mut numberings[node]);
            let arrives = sequence as u64 + random.below(10);
            all.push((arrives, 0, repl, val));
            all.push((arrives + 1 + late, 1, repl, val));
        }
        all.sort_by_key(|(time, kind, ..)| (*time, *kind));
        // Every validated entry, in a naive model.
        let mut model: Vec<LogEntry> = Vec::new();
        for (time, kind, repl, val) in all.into_iter().take(stop) {
            let now = Time::from_nanos(time);
            if kind == 0 {
                unit.log(now, &repl).unwrap();
                continue;
            }
            unit.validate(now, &val).unwrap();
            for place in (0..8).filter(|place| repl.mask & 1 << place != 0) {
                model.push(LogEntry {
                    requester: repl.requester,
                    commit: val.commit,
                    epoch: val.epoch,
                    word: Word(repl.line.0 * 8 + place),
                    value: repl.values[place as usize],
                });
            }
        }
        let asked: Vec<_> = asked.into_iter().map(LineAddress).collect();
        let fetched = unit.fetch(&asked);
        let mut lines = asked.clone();
        lines.sort();
        lines.dedup();
        prop_assert_eq!(fetched.iter().map(|versions| versions.line).collect::<Vec<_>>(), lines);
        for versions in fetched {
            for node in 0..5 {
                let of_node = |entries: &[LogEntry]| -> Vec<LogEntry> {
                    let here = |entry: &&LogEntry| entry.requester.node.index() == node && entry.word.line() == versions.line;
                    entries.iter().filter(here).copied().collect()
                };
                let found = of_node(&versions.updates);
                prop_assert!(found.windows(2).all(|pair| pair[0].commit >= pair[1].commit), "from latest to earliest");
                let (mut found, mut naive) = (found, of_node(&model));
                found.sort();
                naive.sort();
                prop_assert_eq!(found, naive);
            }
            prop_assert!(versions.updates.iter().all(|entry| entry.word.line() == versions.line));
        }
    }
}

#[test]
fn what_cannot_be_is_an_error_and_changes_nothing() {
    let mut unit = unit(&Description::default());
    let one = repl(requester(1, 0), 5, 2, 1);
    unit.log(Time::ZERO, &one).unwrap();
    let before = format!("{unit:?}");
    let at = |core| requester(1, core);
    assert_eq!(
        unit.log(Time::ZERO, &repl(at(0), 6, 2, 0)),
        Err(LoggingError::NoWords { requester: at(0) })
    );
    assert_eq!(
        unit.log(Time::ZERO, &one),
        Err(LoggingError::Twice {
            requester: at(0),
            sequence: 5
        })
    );
    assert_eq!(
        unit.log(Time::ZERO, &repl(at(4), 0, 2, 1)),
        Err(LoggingError::OutOfRange {
            requester: at(4),
            word: Word(16)
        })
    );
    assert!(
        unit.log(Time::ZERO, &repl(at(0), 7, LogEntry::WORDS / 8, 1))
            .is_err()
    );
    let of = |sequence, timestamp| Val {
        requester: at(0),
        sequence,
        timestamp,
        commit: Commit(timestamp),
        epoch: Epoch(0),
    };
    assert_eq!(
        unit.validate(Time::ZERO, &of(6, 1)),
        Err(LoggingError::Unknown {
            requester: at(0),
            sequence: 6
        })
    );
    assert!(
        unit.validate(Time::ZERO, &of(5, 0)).is_err(),
        "they count from 1"
    );
    assert_eq!(format!("{unit:?}"), before);

    // A later VAL has come, the one before it has not: a caller that forgets the node now has not
    // waited for all that it sent.
    unit.validate(Time::ZERO, &of(5, 2)).unwrap();
    unit.log(Time::ZERO, &repl(at(1), 0, 2, 1)).unwrap();
    let before = format!("{unit:?}");
    let again = Val {
        requester: at(1),
        ..of(0, 2)
    };
    assert_eq!(
        unit.validate(Time::ZERO, &again),
        Err(LoggingError::TimestampTwice {
            requester: at(1),
            timestamp: 2
        })
    );
    assert_eq!(
        unit.forget(Time::ZERO, NodeId::new(1)),
        Err(LoggingError::Gap {
            node: NodeId::new(1),
            missing: 1
        })
    );
    assert_eq!(format!("{unit:?}"), before);
}

#[test]
fn what_a_dead_node_has_not_validated_is_dropped_whole() {
    let mut unit = unit(&Description::default());
    let mut numbering = Numbering::default();
    for sequence in 0..200 {
        unit.log(Time::ZERO, &repl(requester(1, 0), sequence, 3, 1))
            .unwrap();
        unit.log(Time::ZERO, &repl(requester(2, 0), sequence, 3, 1))
            .unwrap();
    }
    for sequence in 0..20 {
        let val = val(&repl(requester(1, 0), sequence, 3, 1), &mut numbering);
        unit.validate(Time::from_nanos(9), &val).unwrap();
    }
    let late = Time::from_micros(1);
    unit.forget(late, NodeId::new(1)).unwrap();
    assert_eq!(unit.counts().forgotten, 180);
    assert_eq!(unit.log_len(), 20);
    // Of the 170 entries in SRAM, each node had half.
    assert_eq!(unit.sram_len(late), 85);
    let mut numbering = Numbering::default();
    for sequence in 0..200 {
        let val = val(&repl(requester(2, 0), sequence, 3, 1), &mut numbering);
        assert_eq!(unit.validate(late, &val).unwrap().moved, 1);
    }
    assert_eq!(unit.sram_len(Time::from_micros(9)), 0);
}
