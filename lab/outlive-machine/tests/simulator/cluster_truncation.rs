//! Logs in memory nodes that are truncated: their sizes, the messages for that, and that a clone
//! continues identically.

use crate::support;
use crate::support::tiny::Tiny;
use outlive_machine::cluster::{Cluster, MessageKind, Purpose, Statistics, Workload};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Simulation;
use outlive_machine::program::{Image, Op, Synchronisation, Thread, Walker, Word};

fn machine(memory_nodes: u32) -> Description {
    let tiny = Tiny {
        period: "5 us",
        ..Tiny::new(Protocol::Proactive)
    };
    let mut description = tiny.description();
    description.system.memory_nodes = memory_nodes;
    description
}

/// Threads that each do `ops` operations with the same lines.
fn walkers(ops: u32) -> Workload<Walker> {
    let words = 24 * 8;
    Workload {
        threads: (0..8).map(|n| Walker::new(3, n, ops, words)).collect(),
        image: Image {
            words: words + 8,
            ..Image::default()
        },
        synchronisation: Synchronisation::default(),
    }
}

fn bytes(statistics: &Statistics) -> u64 {
    statistics.archives.iter().sum()
}

fn asked(statistics: &Statistics) -> u64 {
    let asked = statistics.messages.of(MessageKind::StandingsAsked).messages;
    let told = statistics.messages.of(MessageKind::StandingsTold).messages;
    assert!(told <= asked);
    asked
}

/// Runs to the end. Returns the largest size of its archives between two dumps, and the statistics.
fn run<T: Thread>(description: &Description, workload: Workload<T>) -> (u64, Statistics) {
    let mut simulation = support::judged(description, workload, 1);
    let mut most = 0;
    while simulation.step() {
        if simulation.handled().is_multiple_of(64) {
            let archives = (0..description.system.memory_nodes as usize)
                .filter_map(|m| simulation.machine().archive(m));
            most = most.max(archives.map(|archive| archive.bytes()).sum());
        }
    }
    support::finish(&mut simulation);
    let statistics = simulation.machine().statistics();
    let dropped: u64 = statistics.truncated.iter().map(|gone| gone.bytes).sum();
    let dumped: u64 = statistics
        .logging
        .iter()
        .map(|unit| unit.dumped_bytes)
        .sum();
    assert_eq!(bytes(&statistics) + dropped, dumped);
    (most, statistics)
}

#[test]
fn a_run_that_is_ten_times_as_long_has_no_larger_archives() {
    for memory_nodes in [1, 2, 4] {
        let description = machine(memory_nodes);
        let (short, _) = run(&description, walkers(300));
        let (long, statistics) = run(&description, walkers(3_000));
        let dumped: u64 = statistics
            .logging
            .iter()
            .map(|unit| unit.dumped_bytes)
            .sum();
        println!(
            "{memory_nodes} memory nodes: {short} B, {long} B of {dumped}, {} asked",
            asked(&statistics)
        );
        assert!(
            dumped > 10 * long && long < 2 * short,
            "{short} {long} {dumped}"
        );
        let entries: u64 = statistics.truncated.iter().map(|gone| gone.entries).sum();
        let saved: u64 = statistics.logging.iter().map(|unit| unit.saved).sum();
        assert!(entries * 10 > saved * 9, "{entries} of {saved}");
        // Directories next to the archive are asked without a message.
        assert_eq!(asked(&statistics) == 0, memory_nodes == 1);
        let truncation = statistics.messages.for_purpose(Purpose::Truncation);
        assert_eq!(truncation.messages, 2 * asked(&statistics));
    }
}

#[test]
fn a_node_that_keeps_what_it_writes_lets_nobody_be_asked_after_a_while() {
    let run_through = |times: u64| {
        let stores = (0..times * 32).map(|n| Op::Store(Word(n % 32), n));
        let (_, statistics) = run(&machine(2), support::one_thread(stores));
        statistics
    };
    let (few, many) = (run_through(200), run_through(800));
    println!("{} {}", asked(&few), asked(&many));
    assert_eq!(asked(&few), asked(&many));
    let dropped: u64 = many.truncated.iter().map(|gone| gone.entries).sum();
    let saved: u64 = many.logging.iter().map(|unit| unit.saved).sum();
    assert!(dropped * 10 > saved * 9, "{dropped} of {saved}");
}

#[test]
fn a_clone_goes_on_alike_while_answers_are_under_way() {
    let mut simulation = support::judged(&machine(4), walkers(400), 1);
    let under_way = |simulation: &Simulation<Cluster<Walker>>| {
        let messages = simulation.machine().statistics().messages;
        messages.of(MessageKind::StandingsAsked).messages
            > messages.of(MessageKind::StandingsTold).messages
    };
    while !under_way(&simulation) {
        assert!(simulation.step(), "a directory is asked");
    }
    let mut fork = simulation.clone();
    support::finish(&mut simulation);
    support::finish(&mut fork);
    let told = |simulation: &Simulation<Cluster<Walker>>| {
        let statistics = simulation.machine().statistics();
        format!("{} {statistics:?}", simulation.handled())
    };
    assert_eq!(told(&simulation), told(&fork));
}
