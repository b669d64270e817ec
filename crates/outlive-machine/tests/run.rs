//! Runs from beginning to end: they repeat, looks change nothing, results are checked, and traces run as programs do.

use outlive_machine::cluster::{self, Cluster, Statistics, Workload};
use outlive_machine::description::{Description, Protocol, Synchronising};
use outlive_machine::engine::Time;
use outlive_machine::line::LineAddress;
use outlive_machine::program::{
    Barrier, BarrierId, LockId, Neighbour, Order, Recording, Reference, Scale, Word, workloads,
};
use outlive_machine::protocol::NodeId;
use outlive_machine::run::{
    Crash, Fallout, Living, Measures, Outcome, Placement, Run, RunError, Subject, unwatched,
};
use outlive_machine::trace::{
    About, AtomicKind, Encoding, Event, Parts, Replay, Trace, TraceWriter, TracedLock,
};
use std::ops::ControlFlow;

const THREADS: usize = 4;

/// A small machine with this configuration. Logs are dumped often enough to be dumped in a short run.
fn machine(protocol: Protocol) -> Description {
    let text = format!(
        r#"
        [system]
        compute_nodes = 4
        memory_nodes = 2
        cores_per_node = 1
        [l3]
        size = "64 KiB"
        [logging_unit]
        dump_period = "20 us"
        [ours.coherence]
        protocol = "{}"
        "#,
        protocol.name()
    );
    text.parse().expect("a machine that can be")
}

fn subject(name: &str) -> Subject {
    Subject::program(workloads::by_name(name, THREADS, Scale::Test).expect("a workload"))
}

fn outcome(run: &Run<'_>, subject: &Subject) -> Outcome {
    run.of(subject, &mut unwatched)
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_workload_is_checked_in_every_configuration_and_repeats() {
    for (name, _) in workloads::ALL {
        let subject = subject(name);
        for protocol in Protocol::ALL {
            let description = machine(*protocol);
            let first = outcome(&Run::new(&description, 7), &subject);
            assert!(first.finished && first.checked, "{name}, {protocol:?}");
            let replicates = first.statistics.total().replicated > 0;
            assert_eq!(replicates, protocol.replicates(), "{name}, {protocol:?}");
            if *protocol == Protocol::Proactive {
                assert_eq!(first, outcome(&Run::new(&description, 7), &subject));
            }
        }
    }
}

#[test]
fn what_is_seen_on_the_way_is_what_a_shorter_run_ends_with() {
    let description = machine(Protocol::Proactive);
    let subject = subject("ocean-cp");
    let plain = outcome(&Run::new(&description, 1), &subject);
    let looks = [plain.end / 3, plain.end / 2, plain.end * 2];
    let run = Run {
        looks: looks.to_vec(),
        ..Run::new(&description, 1)
    };
    let watched = outcome(&run, &subject);
    assert_eq!(
        watched.statistics, plain.statistics,
        "a look changes nothing"
    );
    // Nothing is to be seen after the end.
    let seen: Vec<Time> = watched.looks.iter().map(|look| look.at).collect();
    assert_eq!(seen, looks[..2]);
    for look in &watched.looks {
        let run = Run {
            until: Some(look.at),
            ..Run::new(&description, 1)
        };
        let cut = outcome(&run, &subject);
        assert_eq!(
            (cut.finished, cut.checked, cut.end),
            (false, false, look.at)
        );
        assert_eq!(cut.statistics, look.statistics);
        assert_eq!(look.owned.len(), 4);
        let owned = look.owned.iter();
        assert!(owned.clone().all(|owned| owned.dirty <= owned.recorded));
        assert!(owned.map(|owned| owned.dirty).sum::<u64>() > 0);
    }
    let late = Run {
        until: Some(plain.end * 2),
        ..Run::new(&description, 1)
    };
    let late = outcome(&late, &subject);
    assert_eq!((late.finished, late.statistics), (true, plain.statistics));
}

#[test]
fn operations_are_counted_as_the_machine_without_time_counts_them() {
    let description = machine(Protocol::WriteBack);
    let run = Run {
        counting: true,
        ..Run::new(&description, 1)
    };
    for name in ["ocean-ncp", "barnes"] {
        let workload = workloads::by_name(name, THREADS, Scale::Test).unwrap();
        let mut reference = Reference::of(&workload, Recording::Off, 1);
        let expected = reference.run().unwrap();
        let outcome = outcome(&run, &Subject::program(workload));
        let counts = outcome.counts.expect("they were asked for");
        // Who comes first under a lock may have a store more to do.
        let close = |ours: f64, reference: f64| (ours / reference - 1.0).abs() < 0.002;
        for (ours, reference) in [
            (counts.store_fraction(), expected.store_fraction()),
            (
                counts.shared_store_fraction(),
                expected.shared_store_fraction(),
            ),
            (counts.instructions() as f64, expected.instructions() as f64),
        ] {
            assert!(close(ours, reference), "{name}: {counts:?}, {expected:?}");
        }
        // The machine counts the same instructions, and those by which it makes locks and barriers.
        let (own, machine) = (
            counts.instructions(),
            outcome.statistics.total().instructions,
        );
        assert!(
            machine >= own && machine < own + own / 10,
            "{name}: {machine}, {own}"
        );
    }
}

/// Every workload computes the same, and what one thread alone touches costs the network and the logs nothing.
#[test]
fn what_one_thread_alone_touches_may_be_local() {
    let description = machine(Protocol::Proactive);
    let local = Run {
        placement: Placement::Touched,
        counting: true,
        ..Run::new(&description, 1)
    };
    let counting = Run {
        placement: Placement::Allocated,
        ..local.clone()
    };
    for &(name, _) in workloads::ALL {
        let (all, some) = (
            outcome(&counting, &subject(name)),
            outcome(&local, &subject(name)),
        );
        assert!(all.checked && some.checked, "{name}");
        let counts = some.counts.unwrap();
        let stores = |outcome: &Outcome| {
            let total = outcome.statistics.total();
            (total.shared_stores, total.stores)
        };
        assert!(stores(&some).0 <= stores(&all).0, "{name}");
        // In ocean the order of threads changes nothing, so no line turns out to be somebody else's as well.
        if name == "ocean-cp" {
            assert_eq!((all.strays, some.strays), (None, Some(0)));
            // Who comes first under a lock may have a store more to do.
            let others = all.counts.unwrap();
            assert!(
                counts.stores.abs_diff(others.stores) < 8,
                "{counts:?}, {others:?}"
            );
            let expected = counts.stores_to_touched_by_several;
            let found = stores(&some).0;
            assert!(
                found >= expected && found < expected + expected / 4,
                "{found}, {expected}"
            );
        }
        let again = outcome(&local, &subject(name));
        assert_eq!(again, some, "{name}");
    }
}

/// A node dies half-way: what protects loses nothing, and what does not is seen to.
#[test]
fn nodes_may_die_in_a_run() {
    let protocols = [
        Protocol::WriteBack,
        Protocol::WriteThrough,
        Protocol::Baseline,
        Protocol::Proactive,
        Protocol::Adaptive,
    ];
    for protocol in protocols {
        let description = machine(protocol);
        let plain = outcome(&Run::new(&description, 1), &subject("ycsb"));
        let crash = |node, at| Crash {
            at,
            node: NodeId::new(node),
        };
        let run = Run {
            crashes: vec![crash(2, plain.end / 2), crash(1, plain.end * 9)],
            ..Run::new(&description, 1)
        };
        let after = outcome(&run, &subject("ycsb"));
        let fallout = after.fallout.as_ref().expect("a node was to die");
        assert_eq!((fallout.deaths.len(), fallout.recoveries), (1, 1));
        let died = fallout.deaths[0];
        assert_eq!(died.crash, crash(2, plain.end / 2));
        assert!(fallout.recovered.is_some_and(|over| over > died.crash.at));
        assert!(fallout.commits > 0 && fallout.restored >= died.owned.dirty);
        assert_eq!(
            (fallout.living.clone(), after.finished),
            (Living::Ended, true)
        );
        match protocol {
            Protocol::WriteBack => assert!(!fallout.lost.is_empty()),
            _ => assert_eq!(fallout.lost, [""; 0], "{protocol:?}"),
        }
        assert_eq!(outcome(&run, &subject("ycsb")), after);
    }
}

#[test]
fn who_cannot_die_does_not() {
    let mut description = machine(Protocol::Proactive);
    let crash = |node| Crash {
        at: Time::from_micros(1),
        node: NodeId::new(node),
    };
    let run = |description: &Description, placement, node| {
        let run = Run {
            crashes: vec![crash(node)],
            placement,
            ..Run::new(description, 1)
        };
        run.of(&subject("ycsb"), &mut unwatched).unwrap_err()
    };
    let absent = run(&description, Placement::Allocated, 4);
    assert!(matches!(absent, RunError::NoSuchNode { nodes: 4, .. }));
    let local = run(&description, Placement::Touched, 0);
    assert_eq!(local, RunError::CannotCrash);
    // Where nothing is replicated, locks are as safe as all else.
    let mut nothing = machine(Protocol::WriteBack);
    for (without, can) in [
        (Synchronising::LeftOut, true),
        (Synchronising::Events, false),
    ] {
        nothing.ours.core.synchronisation = without;
        let run = Run {
            crashes: vec![crash(0)],
            ..Run::new(&nothing, 1)
        };
        let error = run.of(&subject("ycsb"), &mut unwatched).err();
        assert_eq!(error != Some(RunError::CannotCrash), can, "{error:?}");
    }
    description.ours.core.synchronisation = Synchronising::Events;
    let events = run(&description, Placement::Allocated, 0);
    assert_eq!(events, RunError::CannotCrash);
}

/// A death after the end is none: the result is checked.
#[test]
fn who_is_to_die_too_late_leaves_the_result_whole() {
    let description = machine(Protocol::WriteBack);
    let plain = outcome(&Run::new(&description, 1), &subject("ycsb"));
    let crash = |node| Crash {
        at: plain.end * 9,
        node: NodeId::new(node),
    };
    let mut run = Run {
        crashes: vec![crash(2)],
        ..Run::new(&description, 1)
    };
    let after = outcome(&run, &subject("ycsb"));
    assert!(after.checked && after.finished && after.end == plain.end);
    let fallout = after.fallout.expect("a node was to die");
    assert!(fallout.is_whole() && fallout.promised && fallout.together == 0);
    run.crashes = vec![crash(2), crash(1), crash(2)];
    assert_eq!(
        run.of(&subject("ycsb"), &mut unwatched).err(),
        Some(RunError::DiesTwice {
            node: NodeId::new(2)
        })
    );
}

/// Who waits for what the dead were to do is named.
#[test]
fn the_living_may_wait_for_the_dead() {
    let description = machine(Protocol::Proactive);
    let subject = || subject("bodytrack");
    let end = outcome(&Run::new(&description, 1), &subject()).end;
    let run = Run {
        crashes: vec![Crash {
            at: end / 3,
            node: NodeId::new(0),
        }],
        ..Run::new(&description, 1)
    };
    let after = outcome(&run, &subject());
    let fallout = after.fallout.expect("a node was to die");
    assert_eq!(fallout.lost, [""; 0]);
    let Living::Wait(threads) = &fallout.living else {
        panic!("{:?}", fallout.living);
    };
    assert!(threads[0].starts_with("thread 1 waits for "), "{threads:?}");
    // It ends when they wait, not when it would be time for a dump.
    let mut without_dumps = description.clone();
    without_dumps.logging_unit.dump_period = Time::from_picos(1 << 40);
    let lone = Run {
        crashes: run.crashes.clone(),
        ..Run::new(&without_dumps, 1)
    };
    assert!(outcome(&lone, &subject()).end < end * 2);
    // Another dies when they have long stood still.
    let later = Crash {
        at: end * 1000,
        node: NodeId::new(2),
    };
    let both = Run {
        crashes: vec![run.crashes[0], later],
        ..Run::new(&description, 1)
    };
    let after = outcome(&both, &subject());
    let fallout = after.fallout.expect("nodes were to die");
    assert_eq!(fallout.deaths[1].crash, later);
    assert!(fallout.is_whole() && fallout.recovered.is_some_and(|over| over > later.at));
    assert!(after.end > later.at);
}

#[test]
fn nothing_is_whole_where_nobody_lives() {
    for protocol in [Protocol::Proactive, Protocol::WriteThrough] {
        let description = machine(protocol);
        let at = Time::from_micros(20);
        let nodes = (0..4).map(NodeId::new);
        let run = Run {
            crashes: nodes.map(|node| Crash { at, node }).collect(),
            ..Run::new(&description, 1)
        };
        let after = outcome(&run, &subject("ycsb"));
        let fallout = after.fallout.expect("nodes were to die");
        assert_eq!(
            (fallout.living.clone(), after.finished),
            (Living::Nobody, false)
        );
        assert!(!fallout.is_whole() && fallout.recovered.is_none());
        assert!(!fallout.promised && fallout.together == 4);
        assert!(after.end >= at);
    }
}

/// Nor does it change what came before, or the times.
#[test]
fn a_death_after_the_program_s_end_is_as_if_it_were_not() {
    let description = machine(Protocol::Proactive);
    let crash = |micros, node| Crash {
        at: Time::from_micros(micros),
        node: NodeId::new(node),
    };
    let after = |crashes| {
        let run = Run {
            crashes,
            ..Run::new(&description, 1)
        };
        let after = outcome(&run, &subject("ycsb"));
        (after.end, after.fallout)
    };
    let first = crash(20, 3);
    let alone = after(vec![first]);
    assert!(alone.1.as_ref().is_some_and(Fallout::is_whole));
    assert_eq!(alone, after(vec![first, crash(1_000_000, 2)]));
}

#[test]
fn where_all_threads_have_died_nobody_comes_to_an_end() {
    let description = machine(Protocol::Proactive);
    let at = Time::from_micros(20);
    // The threads are on the first two of four nodes; the others recover what they had.
    let run = Run {
        crashes: (0..2)
            .map(|node| Crash {
                at,
                node: NodeId::new(node),
            })
            .collect(),
        ..Run::new(&description, 1)
    };
    let two = workloads::by_name("ycsb", 2, Scale::Test).expect("a workload");
    let after = outcome(&run, &Subject::program(two));
    let fallout = after.fallout.expect("nodes were to die");
    assert!(fallout.is_whole(), "{fallout:?}");
    assert_eq!((fallout.living, after.finished), (Living::Nobody, false));
}

#[test]
fn measures_are_what_was_counted_by_what_it_took() {
    let description = machine(Protocol::Proactive);
    let plain = outcome(&Run::new(&description, 1), &subject("ocean-cp"));
    let at = plain.end / 2;
    let run = Run {
        looks: vec![at],
        ..Run::new(&description, 1)
    };
    let outcome = outcome(&run, &subject("ocean-cp"));
    let whole = outcome.measures(&description);
    let first = Measures::of(&outcome.looks[0].statistics, at, &description);
    let earlier = (&outcome.looks[0].statistics, at);
    let second = Measures::between(earlier, (&outcome.statistics, outcome.end), &description);
    let same = |one: f64, other: f64| (one - other).abs() <= 1e-9 * one.abs().max(1e-9);
    let rates: [fn(&Measures) -> f64; 7] = [
        |measures| measures.instructions_per_cycle,
        |measures| measures.access_rate,
        |measures| measures.replication_rate,
        |measures| measures.dump_rate,
        |measures| measures.recovery_rate,
        |measures| measures.truncation_rate,
        |measures| measures.buffer_full,
    ];
    let part = at.as_seconds() / outcome.end.as_seconds();
    for rate in rates {
        let sum = rate(&first) * part + rate(&second) * (1.0 - part);
        assert!(same(rate(&whole), sum), "{whole:?}: {first:?}, {second:?}");
    }
    let bytes = |statistics: &Statistics| statistics.messages.total().bytes as f64;
    let sent = whole.access_rate
        + whole.replication_rate
        + whole.dump_rate
        + whole.recovery_rate
        + whole.truncation_rate;
    assert!(same(
        sent * outcome.end.as_seconds(),
        bytes(&outcome.statistics)
    ));
    let factor = whole.dump_factor.expect("logs were dumped");
    assert!(factor > 1.0, "{factor}");
    let share = whole.replicated_oldest.expect("stores were replicated");
    assert!((0.0..=1.0).contains(&share) && whole.largest_log > 0);
    // Without replication there is none of that.
    let plain = machine(Protocol::WriteBack);
    let measures = self::outcome(&Run::new(&plain, 1), &subject("ocean-cp")).measures(&plain);
    assert_eq!(
        (measures.dump_factor, measures.replicated_oldest),
        (None, None)
    );
    assert_eq!((measures.replication_rate, measures.largest_log), (0.0, 0));
}

/// What a recovery sends is counted apart, so that all rates together are all that is sent.
#[test]
fn what_a_recovery_sends_is_measured() {
    let description = machine(Protocol::Proactive);
    let (threads, image, synchronisation) = Neighbour::all(1, THREADS as u32, 6, 60);
    let workload = Workload {
        threads,
        image,
        synchronisation,
    };
    let mut simulation = Cluster::simulation(&description, workload, 1).unwrap();
    while simulation.handled() < 1_000 {
        assert!(simulation.step());
    }
    let before = (simulation.machine().statistics(), simulation.now());
    cluster::crash(&mut simulation, NodeId::new(1), 0);
    cluster::run(&mut simulation).unwrap();
    let (after, now) = (simulation.machine().statistics(), simulation.now());
    let early = Measures::of(&before.0, before.1, &description);
    assert_eq!(early.recovery_rate, 0.0);
    let whole = Measures::of(&after, now, &description);
    assert!(whole.recovery_rate > 0.0, "{whole:?}");
    let rates = [
        whole.access_rate,
        whole.replication_rate,
        whole.dump_rate,
        whole.recovery_rate,
        whole.truncation_rate,
    ];
    let sent = rates.iter().sum::<f64>() * now.as_seconds();
    assert!((sent / after.messages.total().bytes as f64 - 1.0).abs() < 1e-9);
}

/// Where what the trace does is to be seen.
const SUM: Word = Word(64);
const OWN: u64 = 128;

/// Threads that count together under a lock, meet at a barrier, and write to lines of their own; the lock's turns as they came
/// in the recorded run: each thread in its turn, again and again.
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
    // The first thread came second: to the locks, and to the word whose order is to be kept.
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
    // What stands in the words of locks and barriers is the machine's affair.
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
    // A trace says nothing of what must come out.
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

#[test]
fn who_watches_hears_of_progress_and_may_end_a_run() {
    let description = machine(Protocol::WriteThrough);
    let (run, subject) = (Run::new(&description, 1), subject("ocean-cp"));
    let mut heard = Vec::new();
    let whole = run.of(&subject, &mut |progress| {
        heard.push(*progress);
        ControlFlow::Continue(())
    });
    let whole = whole.unwrap();
    assert!(heard.len() > 2 && heard.is_sorted_by_key(|progress| progress.now));
    let (first, last) = (heard[0], heard[heard.len() - 1]);
    assert_eq!((first.events, first.instructions), (0, 0));
    let instructions = whole.statistics.total().instructions;
    assert_eq!(
        (last.events, last.instructions),
        (whole.events, instructions)
    );
    for told in 0..heard.len() {
        let mut left = told;
        let stopped = run.of(&subject, &mut |_| match left {
            0 => ControlFlow::Break(()),
            _ => {
                left -= 1;
                ControlFlow::Continue(())
            }
        });
        assert_eq!(stopped.unwrap_err(), RunError::Stopped, "at {told}");
    }
}

#[test]
fn a_line_is_followed_and_one_that_is_not_there_is_an_error() {
    let description = machine(Protocol::Baseline);
    let subject = subject("ocean-cp");
    let run = |line| Run {
        follow: Some(LineAddress(line)),
        ..Run::new(&description, 1)
    };
    let outcome = outcome(&run(1), &subject);
    assert!(
        outcome.life.iter().any(|line| line.contains("CN")),
        "{:?}",
        outcome.life
    );
    let error = run(1 << 40).of(&subject, &mut unwatched).unwrap_err();
    assert!(error.to_string().contains("is none of them"), "{error}");
}

#[test]
fn what_cannot_run_is_an_error() {
    // More threads than cores.
    let mut description = machine(Protocol::WriteBack);
    description.system.compute_nodes = 3;
    description.logging_unit.replication_factor = 2;
    let error = Run::new(&description, 1).of(&subject("ycsb"), &mut unwatched);
    let error = error.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("4 threads (of a trace, with the main one) do not fit on 3 cores"),
        "{error}"
    );
    // Two threads that both take the lock for good.
    let mut writer = TraceWriter::new(Vec::new(), 2, Encoding::Plain).unwrap();
    for turn in 0..2 {
        let lock = LockId(0);
        writer
            .event(turn as u32, Event::Lock { lock, turn })
            .unwrap();
    }
    let about = About {
        words: 64,
        threads: 2,
        locks: vec![TracedLock {
            word: Word(0),
            order: None,
        }],
        ..About::default()
    };
    let trace = Trace::from_bytes(writer.finish(&about).unwrap()).unwrap();
    let subject = Subject::trace(&trace, Replay::default()).unwrap();
    let stuck = Run::new(&description, 1).of(&subject, &mut unwatched);
    assert!(matches!(stuck, Err(RunError::Stuck(_))), "{stuck:?}");
}

/// Two threads with a lock, a barrier whose two lines stand on two pages, and a store to each of four pages.
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
    // Larger than any host's memory, and than a gibibyte by a word.
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
