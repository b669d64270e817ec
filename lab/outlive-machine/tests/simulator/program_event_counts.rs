//! Event counts carry an order into a machine: a thread that awaits one continues when other
//! threads have advanced it N times, and sees their stores.

use outlive_machine::cluster::{self, Cluster, Workload};
use outlive_machine::description::Description;
use outlive_machine::program::{
    EventCountId, Image, Op, Order, Reference, ReferenceError, Script, Synchronisation, Word,
    outcomes,
};
use outlive_machine::protocol::NodeId;

const COUNT: EventCountId = EventCountId(0);

fn memory() -> (Image, Synchronisation) {
    let image = Image {
        words: 8,
        runs: vec![],
    };
    let synchronisation = Synchronisation {
        event_counts: 1,
        ..Synchronisation::default()
    };
    (image, synchronisation)
}

#[test]
fn who_awaits_sees_what_was_stored_before_the_advance() {
    let (image, synchronisation) = memory();
    let loads = |waits: bool| {
        let writer = |word| Script::new([Op::Store(Word(word), 7), Op::Advance(COUNT)]);
        let awaited = if waits { 2 } else { 0 };
        let reader = Script::new([
            Op::Await(COUNT, awaited),
            Op::Load(Word(0)),
            Op::Load(Word(1)),
        ]);
        let threads = vec![writer(0), writer(1), reader];
        let all = outcomes(&image, &synchronisation, threads, Order::TotalStore).unwrap();
        let of_reader = all
            .into_iter()
            .map(|mut outcome| outcome.loads.swap_remove(2));
        of_reader.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(loads(true), [vec![7, 7]].into());
    assert_eq!(loads(false).len(), 4);
}

/// The machine reports the time that threads waited.
#[test]
fn time_awaited_is_told() {
    let (image, synchronisation) = memory();
    let waited = |compute| {
        let workload = Workload {
            threads: vec![
                Script::new([Op::Compute(compute), Op::Advance(COUNT)]),
                Script::new([Op::Await(COUNT, 1), Op::Compute(10)]),
            ],
            image: image.clone(),
            synchronisation: synchronisation.clone(),
        };
        let description = Description::default();
        let mut simulation = Cluster::simulation(&description, workload, 1).unwrap();
        cluster::run(&mut simulation).unwrap();
        simulation.machine().statistics().total().meeting_ticks
    };
    let (short, long) = (waited(1_000), waited(41_000));
    assert!(short > 0);
    // One instruction in a tick, except for some at the ends of the reorder buffer.
    assert!((long - short).abs_diff(40_000) < 1_000, "{short}, {long}");
}

/// The order is kept unless a thread dies that had not ended: then its waiters are released.
#[test]
fn an_order_outlives_nodes_without_threads() {
    let (image, synchronisation) = memory();
    let text = "system.cores_per_node = 1\nours.coherence.protocol = \"proactive\"";
    let description: Description = text.parse().unwrap();
    let waited = |dies: usize| {
        let workload = Workload {
            threads: vec![
                Script::new([Op::Compute(400_000), Op::Advance(COUNT)]),
                Script::new([Op::Await(COUNT, 1), Op::Compute(10)]),
            ],
            image: image.clone(),
            synchronisation: synchronisation.clone(),
        };
        let mut simulation = Cluster::simulation(&description, workload, 1).unwrap();
        for _ in 0..10 {
            assert!(simulation.step());
        }
        cluster::crash(&mut simulation, NodeId::new(dies), 0);
        cluster::run(&mut simulation).unwrap();
        simulation.machine().statistics().total().meeting_ticks
    };
    let (orderly, released) = (waited(5), waited(0));
    assert!(orderly > 350_000, "{orderly}");
    assert!(released < 200_000, "{released}");
}

#[test]
fn who_awaits_for_ever_is_named() {
    let (image, synchronisation) = memory();
    let threads = vec![
        Script::new([Op::Advance(COUNT)]),
        Script::new([Op::Await(COUNT, 2)]),
    ];
    let mut machine = Reference::new(&image, &synchronisation, threads, Order::Sequential, 1);
    let error = machine.run().unwrap_err();
    assert!(matches!(error, ReferenceError::Deadlock(_)));
    let text = error.to_string();
    assert!(
        text.contains("thread 1 waits for event count 0 to be 2, which is 1"),
        "{text}"
    );
}

#[test]
fn an_event_count_that_is_not_there_is_an_error() {
    let (image, _) = memory();
    let threads = vec![Script::new([Op::Await(COUNT, 0)])];
    let mut machine = Reference::new(
        &image,
        &Synchronisation::default(),
        threads,
        Order::Sequential,
        1,
    );
    assert!(matches!(
        machine.run(),
        Err(ReferenceError::NoSuchObject { .. })
    ));
}
