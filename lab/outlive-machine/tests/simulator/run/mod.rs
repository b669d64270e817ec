//! Whole runs: they repeat, observations change nothing, results are checked, and traces run as
//! programs do.

mod deaths;

use outlive_machine::cluster::{self, Cluster, Statistics, Workload};
use outlive_machine::description::{Description, Protocol, Synchronising};
use outlive_machine::engine::Time;
use outlive_machine::line::LineAddress;
use outlive_machine::program::{LockId, Neighbour, Recording, Reference, Scale, Word};
use outlive_machine::protocol::NodeId;
use outlive_machine::run::{
    Crash, Fallout, Living, Measures, Outcome, Placement, Run, RunError, Subject, unwatched,
};
use outlive_machine::trace::{About, Encoding, Event, Replay, Trace, TraceWriter, TracedLock};
use std::ops::ControlFlow;

const THREADS: usize = 4;

/// A small machine with this configuration, which dumps logs often enough for a short run.
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
    Subject::program(outlive_kernels::by_name(name, THREADS, Scale::Test).expect("a workload"))
}

fn outcome(run: &Run<'_>, subject: &Subject) -> Outcome {
    run.of(subject, &mut unwatched)
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_workload_is_checked_in_every_configuration_and_repeats() {
    for (name, _) in outlive_kernels::ALL {
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
        "watching changes nothing"
    );
    // There are no observations after the end.
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
        let workload = outlive_kernels::by_name(name, THREADS, Scale::Test).unwrap();
        let mut reference = Reference::of(&workload, Recording::Off, 1);
        let expected = reference.run().unwrap();
        let outcome = outcome(&run, &Subject::program(workload));
        let counts = outcome.counts.expect("they were asked for");
        // The order of threads under a lock may cause one store more or less.
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
        // The machine counts the same instructions, and those of its locks and barriers.
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

/// Every workload has the same result, and data that only one thread touches cost the network and
/// the logs nothing.
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
    for &(name, _) in outlive_kernels::ALL {
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
        // In ocean the order of threads changes nothing, so no line turns out to be another
        // thread's as well.
        if name == "ocean-cp" {
            assert_eq!((all.strays, some.strays), (None, Some(0)));
            // The order of threads under a lock may cause one store more or less.
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
    // Without replication, these measures do not exist.
    let plain = machine(Protocol::WriteBack);
    let measures = self::outcome(&Run::new(&plain, 1), &subject("ocean-cp")).measures(&plain);
    assert_eq!(
        (measures.dump_factor, measures.replicated_oldest),
        (None, None)
    );
    assert_eq!((measures.replication_rate, measures.largest_log), (0.0, 0));
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
    assert!(error.to_string().contains("does not exist"), "{error}");
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
