//! Random programs on caches of a few lines, which force every race: values, rights, inclusion.

use crate::support;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support::tiny::Tiny;
use outlive_machine::cluster::{self, Breakage, Cluster, Workload};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Simulation;
use outlive_machine::line::LineAddress;
use outlive_machine::logging::LoggingCounts;
use outlive_machine::program::{Image, Synchronisation, Walker, Word};

fn tiny(protocol: Protocol, quantum: &'static str, reorder: &'static str) -> Description {
    with_logs(protocol, quantum, reorder, "2.5 ms", "18 MiB", 3)
}

/// A machine with this dump period, log size and replication factor.
fn with_logs(
    protocol: Protocol,
    quantum: &'static str,
    reorder: &'static str,
    period: &'static str,
    log: &'static str,
    factor: u32,
) -> Description {
    let tiny = Tiny {
        factor,
        period,
        log,
        quantum,
        reorder,
        ..Tiny::new(protocol)
    };
    tiny.description()
}

/// A machine with judges and random threads.
fn walkers(
    description: &Description,
    seed: u64,
    lines: u64,
    ops: u32,
) -> Simulation<Cluster<Walker>> {
    let words = lines * 8;
    let workload = Workload {
        threads: (0..8).map(|n| Walker::new(seed, n, ops, words)).collect(),
        image: Image {
            words: words + 8,
            runs: vec![(Word(3), vec![5, 6, 7])],
        },
        synchronisation: Synchronisation::default(),
    };
    let mut simulation = support::judged(description, workload, seed);
    if let Some(line) = std::env::var("FOLLOW")
        .ok()
        .and_then(|line| line.parse().ok())
    {
        simulation.machine_mut().follow(LineAddress(line));
    }
    simulation
}

/// Runs random threads and checks the machine's state every `every` events; returns the accesses
/// and a digest.
fn walk(description: &Description, seed: u64, lines: u64, ops: u32, every: u64) -> (u64, String) {
    let words = lines * 8;
    let mut simulation = walkers(description, seed, lines, ops);
    let mut events = 0u64;
    while simulation.step() {
        events += 1;
        if events.is_multiple_of(every) {
            simulation
                .machine()
                .check()
                .unwrap_or_else(|what| panic!("event {events}: {what}"));
        }
    }
    support::finish(&mut simulation);
    let machine = simulation.machine();
    let added: u64 = (0..8).map(|n| machine.thread(n).added()).sum();
    assert_eq!(machine.word(Word(words)), added, "every addition counts");
    let statistics = machine.statistics();
    let total = statistics.total();
    assert!(total.commits > 0 && total.forwarded > 0);
    let seen: Vec<u64> = (0..8).map(|n| machine.thread(n).seen()).collect();
    (
        total.loads + total.stores + total.atomics,
        format!("{events} {statistics:?} {seen:?}"),
    )
}

const TIMINGS: [(&str, &str); 3] = [("20 ns", "2 ns"), ("1 ns", "300 ns"), ("100 ns", "0 ns")];

#[test]
fn values_and_rights_hold_at_every_event() {
    for protocol in Protocol::ALL {
        for seed in 0..6 {
            let (quantum, reorder) = TIMINGS[seed as usize % 3];
            let description = tiny(*protocol, quantum, reorder);
            let lines = [1, 3, 12, 40][seed as usize % 4];
            walk(&description, seed, lines, 400, 1);
        }
    }
}

#[test]
fn logs_hold_what_was_committed_however_often_they_are_dumped() {
    for protocol in Protocol::ALL.iter().filter(|one| one.replicates()) {
        for seed in 0..12 {
            let (quantum, reorder) = TIMINGS[seed as usize % 3];
            // Dumps begin by the clock, or because the logs are full.
            let (period, log) =
                [("7 us", "18 MiB"), ("2.5 ms", "2 KiB"), ("1 us", "480 B")][seed as usize / 3 % 3];
            // Each factor with each reordering.
            let factor = 1 + (seed + seed / 3) as u32 % 3;
            let description = with_logs(*protocol, quantum, reorder, period, log, factor);
            let mut simulation = walkers(&description, seed, 20, 1_000);
            support::finish(&mut simulation);
            let statistics = simulation.machine().statistics();
            let sum = |count: fn(&LoggingCounts) -> u64| {
                statistics.logging.iter().map(count).sum::<u64>()
            };
            assert!(
                sum(|unit| unit.cleared) > 100,
                "{protocol:?} {seed}: {statistics}"
            );
            let total = statistics.total();
            assert_eq!(sum(|unit| unit.repls), total.replicated * u64::from(factor));
            assert_eq!(sum(|unit| unit.vals), sum(|unit| unit.repls));
            assert_eq!(sum(|unit| unit.moved), sum(|unit| unit.logged));
        }
    }
}

/// Returns the judges' complaint about a broken machine, if they notice it.
fn noticed(broken: Breakage, seed: u64) -> Option<String> {
    let description = tiny(Protocol::Proactive, "20 ns", "500 ns");
    let mut simulation = walkers(&description, seed, 20, 200);
    simulation.machine_mut().break_it(broken);
    let caught = catch_unwind(AssertUnwindSafe(|| support::finish(&mut simulation))).err()?;
    Some(caught.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn stores_that_are_committed_before_all_replicas_have_them_are_noticed() {
    for seed in 0..4 {
        let how = noticed(Breakage::CommitsBeforeLastAck, seed).expect("it is noticed");
        assert!(how.contains("commits a store to"), "{how}");
    }
}

#[test]
fn replicas_that_are_never_told_of_the_commit_are_noticed() {
    for seed in 0..4 {
        let how = noticed(Breakage::ForgetsVal, seed).expect("it is noticed");
        assert!(how.contains("are not validated"), "{how}");
    }
}

#[test]
fn contents_that_leave_a_node_before_the_vals_of_its_commits_are_noticed() {
    for seed in 0..4 {
        let how = noticed(Breakage::ValsLeaveLate, seed).expect("it is noticed");
        assert!(
            how.contains("before the VALs of its committed stores"),
            "{how}"
        );
    }
}

#[test]
fn loads_that_do_not_see_their_own_core_s_stores_are_noticed() {
    for seed in 0..4 {
        let how = noticed(Breakage::ForwardsNothing, seed).expect("it is noticed");
        assert!(how.contains("not the value that core"), "{how}");
    }
}

#[test]
fn values_hold_over_a_million_accesses() {
    let mut accesses = 0;
    for seed in 100..118 {
        let (protocols, seeds) = (Protocol::ALL.len(), seed as usize);
        let protocol = Protocol::ALL[seeds % protocols];
        // Each protocol with each reordering.
        let (quantum, reorder) = [("20 ns", "2 ns"), ("5 ns", "500 ns")][seeds / protocols % 2];
        let description = tiny(protocol, quantum, reorder);
        let lines = [2, 7, 20, 64][seed as usize % 4];
        accesses += walk(&description, seed, lines, 8_000, 997).0;
    }
    assert!(accesses > 800_000, "{accesses}");
}

#[test]
fn a_run_repeats_to_the_byte() {
    for protocol in Protocol::ALL {
        let description = with_logs(*protocol, "20 ns", "50 ns", "5 us", "2 KiB", 3);
        let one = walk(&description, 7, 20, 1_000, u64::MAX);
        assert_eq!(one, walk(&description, 7, 20, 1_000, u64::MAX));
        assert_ne!(one, walk(&description, 8, 20, 1_000, u64::MAX));
    }
}

#[test]
fn a_clone_goes_on_as_the_original_does() {
    for protocol in Protocol::ALL {
        let description = with_logs(*protocol, "20 ns", "50 ns", "5 us", "2 KiB", 3);
        let mut original = walkers(&description, 3, 20, 1_500);
        for _ in 0..5_000 {
            assert!(original.step());
        }
        let mut fork = original.clone();
        let forked_at = fork.machine().statistics();
        let end = cluster::run(&mut original).unwrap();
        assert_eq!(
            fork.machine().statistics(),
            forked_at,
            "the original has left it alone"
        );
        assert_eq!(cluster::run(&mut fork).unwrap(), end);
        let digest = |simulation: &Simulation<Cluster<Walker>>| {
            let machine = simulation.machine();
            let seen: Vec<u64> = (0..8).map(|n| machine.thread(n).seen()).collect();
            format!(
                "{} {seen:?} {:?}",
                simulation.handled(),
                machine.statistics()
            )
        };
        assert_eq!(digest(&original), digest(&fork));
    }
}
