//! Runs in which nodes die.

use super::*;

/// A node dies half-way: protected configurations lose nothing, and losses of others are reported.
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

/// A death after the end has no effect: the result is checked.
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

/// Threads that wait for dead ones are named in the result.
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
    // The run ends when they wait, not at the next dump.
    let mut without_dumps = description.clone();
    without_dumps.logging_unit.dump_period = Time::from_picos(1 << 40);
    let lone = Run {
        crashes: run.crashes.clone(),
        ..Run::new(&without_dumps, 1)
    };
    assert!(outcome(&lone, &subject()).end < end * 2);
    // Another node dies when they have waited for a long time.
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

/// A death after the end does not change earlier events or times.
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
    // The threads are on the first two of four nodes; the other nodes recover their lines.
    let run = Run {
        crashes: (0..2)
            .map(|node| Crash {
                at,
                node: NodeId::new(node),
            })
            .collect(),
        ..Run::new(&description, 1)
    };
    let two = outlive_kernels::by_name("ycsb", 2, Scale::Test).expect("a workload");
    let after = outcome(&run, &Subject::program(two));
    let fallout = after.fallout.expect("nodes were to die");
    assert!(fallout.is_whole(), "{fallout:?}");
    assert_eq!((fallout.living, after.finished), (Living::Nobody, false));
}

/// The messages of a recovery are counted separately, so that all rates add up to all messages.
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

/// Threads that wait before any death do not wait because of a death.
#[test]
fn a_deadlock_is_one_though_somebody_is_to_die() {
    let mut writer = TraceWriter::new(Vec::new(), 2, Encoding::Deflate).unwrap();
    for thread in 0..2 {
        for lock in [LockId(thread), LockId(1 - thread)] {
            writer.event(thread, Event::Lock { lock, turn: 0 }).unwrap();
            writer.event(thread, Event::Compute(100_000)).unwrap();
        }
    }
    let about = About {
        words: 16,
        threads: 2,
        locks: [0, 8]
            .map(|word| TracedLock {
                word: Word(word),
                order: None,
            })
            .to_vec(),
        ..About::default()
    };
    let trace = Trace::from_bytes(writer.finish(&about).unwrap()).unwrap();
    let subject = Subject::trace(&trace, Replay::default()).unwrap();
    let description = machine(Protocol::Proactive);
    let of = |crashes: &[u64]| {
        let crash = |micros| Crash {
            at: Time::from_micros(micros),
            node: NodeId::new(0),
        };
        let run = Run {
            crashes: crashes.iter().copied().map(crash).collect(),
            ..Run::new(&description, 1)
        };
        run.of(&subject, &mut unwatched)
    };
    let plain = of(&[]).unwrap_err();
    assert!(matches!(plain, RunError::Stuck(_)), "{plain:?}");
    assert_eq!(of(&[1_000_000]).unwrap_err(), plain);
    // A death before the deadlock is a death.
    let fallout = of(&[1]).unwrap().fallout.expect("a node was to die");
    assert_eq!((fallout.deaths.len(), fallout.living), (1, Living::Ended));
}

/// A program ends even if a dead thread was to end it.
#[test]
fn a_program_does_not_go_on_for_ever_without_the_dead() {
    let description = machine(Protocol::Proactive);
    let subject = subject("ocean-cp");
    let end = outcome(&Run::new(&description, 1), &subject).end;
    let run = Run {
        crashes: vec![Crash {
            at: end / 2,
            node: NodeId::new(0),
        }],
        ..Run::new(&description, 1)
    };
    let fallout = outcome(&run, &subject).fallout.expect("a node was to die");
    assert!(fallout.is_whole());
    let Living::GaveUp(why) = &fallout.living else {
        panic!("{:?}", fallout.living);
    };
    assert!(why.contains("has changed in each of 100 sweeps"), "{why}");
}
