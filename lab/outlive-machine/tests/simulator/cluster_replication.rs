//! Replicated stores: their latency, their messages, and the rate at which they fill a log.

use crate::support;
use crate::support::latency::{Parts, about, after_pause, machine, run};
use outlive_machine::cluster::{Cluster, MessageKind, Purpose, Workload};
use outlive_machine::description::{Coalescing, Description, OwnUnit, Protocol, Synchronising};
use outlive_machine::engine::Time;
use outlive_machine::line::LineAddress;
use outlive_machine::logging::{LoggingCounts, ReplicaGroups};
use outlive_machine::parts::{Content, Fabric, WireSizes};
use outlive_machine::program::{Image, LockId, Op, Script, Synchronisation, Word};
use outlive_machine::protocol::NodeId;

fn replicating() -> impl Iterator<Item = Protocol> {
    let all = Protocol::ALL.iter().copied();
    all.filter(|protocol| protocol.replicates())
}

/// A machine with `factor` replicas. The units' clocks tick everywhere: no message waits for one.
fn with(protocol: Protocol, factor: u32) -> Description {
    let protocol = protocol.name();
    machine(&format!(
        "[logging_unit]\nreplication_factor = {factor}\nfrequency = \"1 THz\"\n[ours.coherence]\nprotocol = \"{protocol}\""
    ))
}

/// Returns words in lines that the first node's unit logs, or does not log.
fn words(description: &Description, own: bool) -> impl Iterator<Item = Word> {
    let groups = ReplicaGroups::new(description);
    let lines = (10..).map(LineAddress);
    let here = move |line: &LineAddress| groups.members(*line).contains(NodeId::new(0)) == own;
    lines.filter(here).map(|line| Word(line.0 * Word::PER_LINE))
}

/// The time from a store's replication to the last acknowledgement: the REPLs pass the caches as a
/// miss does and leave one after another, and the acknowledgements come as far apart.
fn trip(description: &Description) -> Time {
    let sizes = WireSizes::new(&description.ours.wire);
    let fabric = Fabric::new(description, 0);
    let repl = sizes.bytes(Content::Words(1));
    let others = u64::from(description.logging_unit.replication_factor) - 1;
    // At 160 GB/s a byte takes 6.25 ps.
    let behind = Time::from_picos((others * repl * 25).div_ceil(4));
    Parts::new(description).l3
        + behind
        + fabric.unloaded(repl)
        + description.logging_unit.sram_latency
        + fabric.unloaded(sizes.bytes(Content::Nothing))
}

#[test]
fn an_unloaded_store_takes_the_sum_of_its_parts() {
    for protocol in replicating() {
        for factor in 1..=4 {
            let description = with(protocol, factor);
            let parts = Parts::new(&description);
            let word = words(&description, false).next().unwrap();
            let line = parts.l3 + parts.remote();
            // The store retires a cycle after it begins, and is the oldest at once.
            let copies = parts.cycles(1) + trip(&description);
            let sum = match protocol {
                Protocol::Baseline => line + trip(&description),
                _ => line.max(copies),
            };
            let store = after_pause(&description, &[], Op::Store(word, 1), vec![]);
            about(store, &parts, sum);
            // With its line there, the store takes the replication's time, in either order.
            let before = [Op::Store(word, 1)];
            let again = after_pause(&description, &before, Op::Store(word, 2), vec![]);
            about(again, &parts, copies);
        }
    }
}

#[test]
fn a_store_that_only_its_own_node_logs_waits_for_the_unit_alone() {
    for protocol in replicating() {
        let description = with(protocol, 1);
        let parts = Parts::new(&description);
        let word = words(&description, true).next().unwrap();
        let before = [Op::Store(word, 1)];
        let store = after_pause(&description, &before, Op::Store(word, 2), vec![]);
        // The unit is at the node's port.
        let sum = parts.cycles(1) + parts.l3 + description.logging_unit.sram_latency;
        about(store, &parts, sum);
    }
}

#[test]
fn stores_are_replicated_one_after_another_or_all_at_once() {
    for protocol in replicating() {
        let description = with(protocol, 3);
        let lines: Vec<Word> = words(&description, false).take(20).collect();
        let fetch = lines.iter().map(|word| Op::Store(word.offset(1), 1));
        let stores = lines.iter().map(|word| Op::Store(*word, 1));
        let pause = [Op::Compute(120_000)];
        let idle = run(&description, vec![fetch.clone().chain(pause).collect()]);
        let busy = run(
            &description,
            vec![fetch.chain(pause).chain(stores).collect()],
        );
        let took = busy.0.finished.unwrap() - idle.0.finished.unwrap();
        let one = trip(&description);
        let serial = matches!(protocol, Protocol::Baseline | Protocol::Parallel);
        let (least, most) = match serial {
            true => (one * 20, one * 20 + one / 2),
            false => (one, one * 2 + one / 2),
        };
        assert!(
            took >= least && took <= most,
            "{protocol:?}: {took}, one takes {one}"
        );
        let total = busy.0.total();
        assert_eq!(total.replicated, 40, "each line twice");
        if serial {
            assert_eq!(total.replicated_oldest, 40);
        } else {
            assert!(total.replicated_oldest < 10, "{}", total.replicated_oldest);
        }
    }
}

#[test]
fn a_store_is_three_messages_for_each_replica() {
    for protocol in replicating() {
        for factor in 1..=4 {
            for (own, unit) in [
                (false, OwnUnit::Counts),
                (true, OwnUnit::Counts),
                (false, OwnUnit::Skipped),
                (true, OwnUnit::Skipped),
            ] {
                let mut description = with(protocol, factor);
                description.ours.replication.own_unit = unit;
                let stores: Vec<Op> = words(&description, own)
                    .take(30)
                    .map(|word| Op::Store(word, 5))
                    .collect();
                let (statistics, _) = run(&description, vec![stores]);
                // Messages to a node's own unit pass no link.
                let told = own && unit == OwnUnit::Counts;
                let sent = 30 * u64::from(factor - u32::from(told));
                for kind in [MessageKind::Repl, MessageKind::ReplAck, MessageKind::Val] {
                    assert_eq!(
                        statistics.messages.of(kind).messages,
                        sent,
                        "{protocol:?} {kind:?}"
                    );
                }
                let replication = statistics.messages.for_purpose(Purpose::Replication);
                assert_eq!(replication.messages, 3 * sent);
                // Header 16, mask 1, word 8; header; header, timestamp 4, commit 4, epoch 4: in
                // slots of 16.
                assert_eq!(replication.bytes, (32 + 16 + 32) * sent);
                let logged: u64 = statistics.logging.iter().map(|unit| unit.logged).sum();
                assert_eq!(logged, 30 * u64::from(factor));
            }
        }
    }
}

#[test]
fn stores_that_were_coalesced_are_one_message() {
    for protocol in replicating() {
        let mut description = with(protocol, 3);
        let first = words(&description, false).next().unwrap();
        // Another store is the oldest, and waits for its line.
        let mut stores = vec![Op::Store(words(&description, false).nth(9).unwrap(), 1)];
        stores.extend((0..8).map(|n| Op::Store(first.offset(n), n)));
        let (statistics, _) = run(&description, vec![stores.clone()]);
        let total = statistics.total();
        let (entries, joined) = match protocol {
            // At most nine stores wait at a time: that is few.
            Protocol::Uncoalesced | Protocol::Adaptive => (9, 0),
            _ => (2, 7),
        };
        assert_eq!(
            (total.replicated, total.shared_coalesced),
            (entries, joined),
            "{protocol:?}"
        );
        let repls = statistics.messages.of(MessageKind::Repl);
        assert_eq!(repls.messages, 3 * entries);
        let logged: u64 = statistics.logging.iter().map(|unit| unit.logged).sum();
        assert_eq!(logged, 27, "an entry for each store, however they came");
        description.ours.core.coalescing = Coalescing::Never;
        let total = run(&description, vec![stores]).0.total();
        assert_eq!((total.replicated, total.shared_coalesced), (9, 0));
    }
}

#[test]
fn proactive_without_coalescing_is_the_uncoalesced_protocol() {
    let stores = (0..400).map(|n| Op::Store(Word(n * 3 % 256), n));
    let ops: Vec<Op> = stores.collect();
    let mut description = with(Protocol::Uncoalesced, 3);
    let uncoalesced = run(&description, vec![ops.clone(); 8]).0;
    description.ours.core.coalescing = Coalescing::Never;
    description.ours.coherence.protocol = Protocol::Proactive;
    assert_eq!(run(&description, vec![ops.clone(); 8]).0, uncoalesced);
    description.ours.core.coalescing = Coalescing::Lines;
    assert_ne!(run(&description, vec![ops; 8]).0, uncoalesced);
}

#[test]
fn adaptive_coalesces_once_more_stores_wait_than_are_eager() {
    // Without locks, this is the only rule.
    let mut description = with(Protocol::Adaptive, 3);
    let entries = description.ours.core.store_buffer;
    description.ours.core.eager_part = entries / 2;
    let first = words(&description, false).next().unwrap();
    let mut stores = vec![Op::Store(words(&description, false).nth(9).unwrap(), 1)];
    stores.extend((0..8).map(|n| Op::Store(first.offset(n), n)));
    let total = run(&description, vec![stores.clone()]).0.total();
    // The oldest store, the next, and then all others in one.
    assert_eq!((total.replicated, total.shared_coalesced), (3, 6));
    // The oldest is always replicated, so a limit of one makes no difference.
    description.ours.core.eager_part = entries;
    let adaptive = run(&description, vec![stores.clone(); 8]).0;
    description.ours.coherence.protocol = Protocol::Proactive;
    assert_eq!(run(&description, vec![stores; 8]).0, adaptive);
}

/// A lock that a thread takes and releases `count` times, with a store in between.
fn locking(count: usize) -> Workload<Script> {
    let turn = [
        Op::Lock(LockId(0)),
        Op::Store(Word(8), 1),
        Op::Unlock(LockId(0)),
    ];
    Workload {
        threads: vec![Script::new(turn.repeat(count))],
        image: Image {
            words: 64,
            ..Image::default()
        },
        synchronisation: Synchronisation {
            locks: vec![Word(0)],
            ..Synchronisation::default()
        },
    }
}

#[test]
fn locks_are_replicated_unless_they_are_left_out() {
    for protocol in replicating() {
        for (words, each) in [
            (Synchronising::Replicated, 3),
            (Synchronising::LeftOut, 1),
            (Synchronising::Events, 1),
        ] {
            let mut description = with(protocol, 3);
            description.ours.core.synchronisation = words;
            let mut simulation = support::judged(&description, locking(10), 1);
            support::finish(&mut simulation);
            let machine = simulation.machine();
            assert_eq!(machine.statistics().total().replicated, 10 * each);
            assert_eq!((machine.word(Word(0)), machine.word(Word(8))), (0, 1));
        }
    }
}

#[test]
fn adaptive_replicates_a_lock_while_its_line_is_on_the_way() {
    let end = |protocol| {
        let mut description = with(protocol, 3);
        // Neither the lock's line nor that of the store before it is there.
        let workload = Workload {
            threads: vec![Script::new([Op::Store(Word(8), 1), Op::Lock(LockId(0))])],
            ..locking(0)
        };
        description.ours.replication.own_unit = OwnUnit::Skipped;
        let mut simulation = support::judged(&description, workload, 1);
        support::finish(&mut simulation);
        let trip = trip(&description);
        (simulation.machine().statistics().finished.unwrap(), trip)
    };
    let (adaptive, trip) = end(Protocol::Adaptive);
    let (proactive, _) = end(Protocol::Proactive);
    let (baseline, _) = end(Protocol::Baseline);
    // Proactive replicates the lock when its line is here, which is a trip more; baseline also the
    // store before it.
    assert!(adaptive + trip / 2 < proactive, "{adaptive} {proactive}");
    assert!(proactive + trip / 2 < baseline, "{proactive} {baseline}");
}

#[test]
#[should_panic(expected = "no node may fail")]
fn a_machine_that_leaves_locks_out_cannot_be_crashed() {
    let mut description = with(Protocol::Proactive, 3);
    description.ours.core.synchronisation = Synchronising::LeftOut;
    let mut simulation = support::judged(&description, locking(10), 1);
    outlive_machine::cluster::crash(&mut simulation, NodeId::new(0), 0);
}

#[test]
fn stores_to_parts_of_a_word_are_coalesced_unless_they_write_the_same_bytes() {
    let description = with(Protocol::Proactive, 3);
    let first = words(&description, false).next().unwrap();
    let other = words(&description, false).nth(9).unwrap();
    let part = |value: u64, bytes| Op::StorePart(first, value, bytes);
    let cases = [
        // Two halves; four quarters; a half twice; a byte of a word that was written whole.
        (vec![part(1, 0x0f), part(2 << 32 | 1, 0xf0)], 1, 2 << 32 | 1),
        (
            vec![part(1, 0x03), part(2, 0x0c), part(3, 0x30), part(4, 0xc0)],
            1,
            4,
        ),
        (vec![part(1, 0x0f), part(2, 0x0f)], 2, 2),
        (vec![Op::Store(first, 1), part(2, 0x01)], 2, 2),
        (
            vec![
                part(1, 0x01),
                Op::Store(first.offset(1), 9),
                part(2, 0x02),
                part(3, 0x01),
            ],
            2,
            3,
        ),
    ];
    for (stores, entries, last) in cases {
        // Another store is the oldest, and waits for its line; a load finds the youngest.
        let mut ops = vec![Op::Store(other, 1)];
        ops.extend(&stores);
        ops.push(Op::Load(first));
        let workload = support::one_thread(ops);
        let mut simulation = support::judged(&description, workload, 1);
        support::finish(&mut simulation);
        let machine = simulation.machine();
        assert_eq!(
            machine.statistics().total().replicated,
            1 + entries,
            "{stores:?}"
        );
        assert_eq!(machine.thread(0).results(), [last]);
        assert_eq!(machine.word(first), last);
    }
}

/// A machine with space for `room` log entries, with a core that stores `stores` times to one word.
fn filling(room: u64, stores: u64) -> (outlive_machine::engine::Simulation<Cluster<Script>>, Time) {
    let mut description = with(Protocol::Baseline, 3);
    description.logging_unit.log_size.0 = room * description.ours.replication.log_entry.0;
    let word = words(&description, false).next().unwrap();
    let workload = support::one_thread((0..stores).map(|n| Op::Store(word, n)));
    (
        support::judged(&description, workload, 1),
        trip(&description),
    )
}

#[test]
fn a_log_is_full_after_as_many_stores_as_it_has_room_for() {
    let (mut simulation, one) = filling(200, 250);
    let asked = |simulation: &outlive_machine::engine::Simulation<Cluster<Script>>| {
        simulation
            .machine()
            .statistics()
            .messages
            .of(MessageKind::DumpAsked)
            .messages
    };
    while asked(&simulation) == 0 {
        assert!(simulation.step(), "it is full before the end");
    }
    let entries = simulation.machine().statistics().logging;
    assert_eq!(entries.iter().map(|unit| unit.peak_log).max(), Some(200));
    // The first store gets its line at the same time, and the last VAL goes half of a trip.
    let (least, most) = (one * 200, one * 200 + one * 3);
    let now = simulation.now();
    assert!(now >= least && now <= most, "{now}, one takes {one}");
    support::finish(&mut simulation);
    let statistics = simulation.machine().statistics();
    assert_eq!(
        statistics.messages.of(MessageKind::DumpBegin).messages,
        16,
        "one round"
    );
    let sum = |count: fn(&LoggingCounts) -> u64| statistics.logging.iter().map(count).sum::<u64>();
    // One of the three saves; later entries are left in all three logs.
    assert!(sum(|unit| unit.saved) >= 200);
    assert_eq!(sum(|unit| unit.moved), 3 * 250);
    let truncated = statistics.truncated.iter().map(|gone| gone.bytes);
    let bytes: u64 = statistics.archives.iter().sum::<u64>() + truncated.sum::<u64>();
    assert_eq!(sum(|unit| unit.dumped_bytes), bytes);
    let pieces = statistics.messages.of(MessageKind::DumpPiece);
    assert_eq!(pieces.messages, bytes.div_ceil(64));
    assert_eq!(pieces.bytes, 80 * pieces.messages);
}

#[test]
fn logs_are_dumped_by_the_clock_while_threads_run() {
    let mut description = with(Protocol::Proactive, 3);
    description.logging_unit.dump_period = Time::from_micros(5);
    let stores = (0..2_000).map(|n| Op::Store(Word(n * 8 % 4_096), n));
    let workload = support::one_thread(stores);
    let mut simulation = support::judged(&description, workload, 1);
    support::finish(&mut simulation);
    let machine = simulation.machine();
    let end = machine.statistics().finished.unwrap();
    let rounds = end.picos() / 5_000_000;
    let begun = machine
        .statistics()
        .messages
        .of(MessageKind::DumpBegin)
        .messages;
    assert!(rounds > 1, "{end}");
    assert_eq!(begun, 16 * rounds);
    let archived: usize = (0..16)
        .map(|memory| machine.archive(memory).unwrap().entries().unwrap().len())
        .sum();
    let logged: usize = (0..16)
        .map(|node| machine.logging_unit(NodeId::new(node)).unwrap().log_len())
        .sum();
    let statistics = machine.statistics();
    let sum = |count: fn(&LoggingCounts) -> u64| statistics.logging.iter().map(count).sum::<u64>();
    assert_eq!(sum(|unit| unit.moved), 3 * 2_000);
    assert_eq!(sum(|unit| unit.cleared) + logged as u64, 3 * 2_000);
    let dropped: u64 = statistics.truncated.iter().map(|gone| gone.entries).sum();
    assert_eq!(sum(|unit| unit.saved), archived as u64 + dropped);
    assert!(archived as u64 + dropped > 500, "{archived}, {dropped}");
}

#[test]
fn threads_that_wait_for_ever_are_told_though_dumps_would_go_on() {
    let mut description = with(Protocol::Parallel, 3);
    description.logging_unit.dump_period = Time::from_micros(1);
    let workload = Workload {
        threads: vec![Script::new(vec![Op::Await(
            outlive_machine::program::EventCountId(0),
            1,
        )])],
        image: Image {
            words: 64,
            ..Image::default()
        },
        synchronisation: Synchronisation {
            event_counts: 1,
            ..Synchronisation::default()
        },
    };
    let mut simulation = Cluster::simulation(&description, workload, 1).unwrap();
    assert!(outlive_machine::cluster::run(&mut simulation).is_err());
}
