//! A machine replays every possible trace, or reports why it cannot: threads that wait forever,
//! locks that a thread without them releases, events that nothing precedes.

use crate::traces;
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Time;
use outlive_machine::program::ReferenceError;
use outlive_machine::protocol::NodeId;
use outlive_machine::run::{Crash, Placement, Run, RunError, Subject, unwatched};
use outlive_machine::trace::{Encoding, Event, Order, Parts, Replay, Trace};
use proptest::prelude::*;

fn machine(protocol: Protocol, synchronising: &str) -> Description {
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
        [ours.core]
        synchronisation = "{synchronising}"
        "#,
        protocol.name()
    );
    text.parse().expect("a machine that can be")
}

/// Events of a thread, limited so that not nearly all threads wait forever.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = traces::event().prop_map(|event| match event {
        Event::Await(count, turn) => Event::Await(count, turn % 2),
        Event::Lock { lock, turn } => Event::Lock {
            lock,
            turn: turn % 2,
        },
        other => other,
    });
    prop::collection::vec(event, 0..60)
}

/// Runs to the end or until all threads wait forever, whichever happens.
fn runs(run: &Run<'_>, subject: &Subject) {
    match run.of(subject, &mut unwatched) {
        Ok(_) | Err(RunError::Stuck(_) | RunError::Untimed(ReferenceError::Deadlock(_))) => {}
        Err(error) => panic!("{error}"),
    }
}

fn subject(threads: &[Vec<Event>], replay: Replay) -> Option<Subject> {
    let trace = Trace::from_bytes(traces::written(threads, Encoding::Plain)).unwrap();
    Subject::trace(&trace, replay).ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_can_be_written_runs_or_is_refused(
        threads in prop::collection::vec(events(), 3),
        protocol in prop::sample::select(Protocol::ALL),
        synchronising in prop::sample::select(&["replicated", "events", "left-out"]),
        recorded in any::<bool>(),
        exact in any::<bool>(),
        touched in any::<bool>(),
    ) {
        let replay = Replay {
            order: if recorded { Order::Recorded } else { Order::Needed },
            parts: if exact { Parts::Exact } else { Parts::Whole },
        };
        let description = machine(protocol, synchronising);
        let placement = if touched { Placement::Touched } else { Placement::Allocated };
        let run = Run { placement, ..Run::new(&description, 3) };
        if let Some(subject) = subject(&threads, replay) {
            runs(&run, &subject);
        }
    }

    #[test]
    fn and_with_nodes_that_die(
        threads in prop::collection::vec(events(), 3),
        protocol in prop::sample::select(Protocol::ALL),
        node in 0..3usize,
        at in 0..20_000u64,
    ) {
        let description = machine(protocol, "replicated");
        let crash = Crash { node: NodeId::new(node), at: Time::from_nanos(at) };
        let run = Run { crashes: vec![crash], ..Run::new(&description, 3) };
        if let Some(subject) = subject(&threads, Replay::default()) {
            runs(&run, &subject);
        }
    }
}
