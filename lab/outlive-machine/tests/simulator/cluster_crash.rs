//! Nodes die at any event of small machines, and the results of their recoveries are checked.

use crate::support;
use crate::support::tiny::Tiny;
use outlive_machine::cluster::{self, Breakage, MessageKind, Workload};
use outlive_machine::crash::{Goal, Points, Report, Sweep, SweepError};
use outlive_machine::description::{Bytes, Description, OwnUnit, Protocol, Synchronising};
use outlive_machine::program::{Image, Neighbour, Op, Script, Synchronisation, Word};
use outlive_machine::protocol::NodeId;

/// A machine with caches of a few lines, and with this replication factor and dump period.
fn machine(
    protocol: Protocol,
    nodes: u32,
    cores: u32,
    factor: u32,
    period: &'static str,
) -> Description {
    let tiny = Tiny {
        nodes,
        cores,
        factor,
        period,
        ..Tiny::new(protocol)
    };
    tiny.description()
}

fn replicating() -> impl Iterator<Item = Protocol> + Clone {
    let all = Protocol::ALL.iter().copied();
    all.filter(|protocol| protocol.replicates())
}

/// Threads that share `lines` lines, two locks and a barrier.
fn neighbours(seed: u64, threads: u32, lines: u64, ops: u32) -> Workload<Neighbour> {
    let (threads, image, synchronisation) = Neighbour::all(seed, threads, lines, ops);
    Workload {
        threads,
        image,
        synchronisation,
    }
}

fn sound(report: &Report, what: &str) {
    println!(
        "{what}: {} points of {} events, {} recoveries, {} stores, {} lines restored",
        report.points, report.events, report.recoveries, report.stores, report.restored
    );
    let failures = report
        .failures
        .iter()
        .map(|failed| format!("{}: {}", failed.point, failed.what));
    let failures: Vec<String> = failures.collect();
    assert_eq!(report.failed, 0, "{what}: {}", failures.join("\n"));
}

#[test]
fn nothing_is_lost_whichever_node_dies_at_whichever_event() {
    for protocol in replicating() {
        let description = machine(protocol, 3, 1, 2, "5 us");
        let sweep = Sweep {
            points: Points::Every,
            ..Sweep::new(&description, 1)
        };
        let report = sweep.run(&|| neighbours(1, 3, 3, 18), &|_| {}).unwrap();
        sound(&report, protocol.name());
        assert!(
            report.recoveries >= report.points && report.restored > 100,
            "{report:?}"
        );
    }
}

#[test]
fn nothing_is_lost_in_larger_machines() {
    for (seed, protocol) in (0..8).zip(replicating().cycle()) {
        let factor = 2 + seed as u32 / 4;
        let period = ["3 us", "2.5 ms"][seed as usize % 2];
        let description = machine(protocol, 4, 2, factor, period);
        let sweep = Sweep {
            points: Points::Drawn(120),
            ..Sweep::new(&description, seed)
        };
        let lines = [2, 6, 16][seed as usize % 3];
        let report = sweep
            .run(&|| neighbours(seed, 8, lines, 120), &|_| {})
            .unwrap();
        sound(&report, &format!("{} {seed}", protocol.name()));
    }
}

#[test]
fn two_may_die_at_once_or_in_a_recovery_if_each_store_has_three_replicas() {
    for (seed, protocol) in (0..8).zip(replicating().cycle()) {
        let description = machine(protocol, 4, 1, 3, "4 us");
        let sweep = Sweep {
            points: Points::Drawn(150),
            deaths: 2,
            ..Sweep::new(&description, seed)
        };
        let report = sweep.run(&|| neighbours(seed, 4, 4, 60), &|_| {}).unwrap();
        sound(&report, &format!("{} {seed}", protocol.name()));
        assert!(
            report.recoveries > report.points,
            "some are dealt with one after the other"
        );
    }
}

/// Here, the second node sometimes dies in the last dump of a recovery, and the next recovery finds
/// that dump in progress.
#[test]
fn a_recovery_does_not_wait_for_a_dump_that_nobody_begins() {
    let description = machine(Protocol::Proactive, 6, 1, 3, "2 us");
    let sweep = Sweep {
        points: Points::Drawn(6_000),
        deaths: 2,
        ..Sweep::new(&description, 2)
    };
    let report = sweep.run(&|| neighbours(2, 6, 8, 60), &|_| {}).unwrap();
    sound(&report, "six nodes");
}

/// A machine whose logs are always full, so that one dump follows another. Its fabric may hold a
/// message back for longer than a dump.
fn always_dumping() -> Description {
    let tiny = Tiny {
        nodes: 3,
        cores: 1,
        factor: 2,
        log: "4 KiB",
        reorder: "30 us",
        ..Tiny::new(Protocol::Proactive)
    };
    let mut description = tiny.description();
    (description.l3.size, description.l3.ways) = (Bytes::kibi(64), 16);
    description.system.memory_nodes = 1;
    description
}

fn swept_while_dumping(broken: Option<Breakage>) -> Report {
    let description = always_dumping();
    let sweep = Sweep {
        points: Points::Drawn(2_000),
        broken,
        ..Sweep::new(&description, 1)
    };
    let report = sweep.run(&|| neighbours(1, 3, 40, 400), &|_| {});
    report.unwrap()
}

#[test]
fn nothing_is_lost_where_one_dump_follows_another() {
    sound(&swept_while_dumping(None), "always dumping");
}

#[test]
fn a_dump_while_directories_are_repaired_is_noticed() {
    let report = swept_while_dumping(Some(Breakage::DumpsInRepair));
    println!("{} of {} noticed", report.failed, report.points);
    assert!(report.failed > 0, "{report:?}");
}

#[test]
fn after_a_recovery_stores_have_as_many_replicas_as_before() {
    for (seed, protocol) in (0..8).zip(replicating().cycle()) {
        let mut description = machine(protocol, 4, 1, 2, "4 us");
        // Until one node is left. With the own unit skipped, that node has not logged the stores
        // that the last but one has not logged.
        let deaths = 3;
        if seed >= 4 {
            description.ours.replication.own_unit = OwnUnit::Skipped;
        }
        let sweep = Sweep {
            points: Points::Drawn(120),
            deaths,
            apart: true,
            ..Sweep::new(&description, seed)
        };
        let report = sweep.run(&|| neighbours(seed, 4, 4, 60), &|_| {}).unwrap();
        sound(&report, &format!("{} {seed}", protocol.name()));
        assert_eq!(report.recoveries, deaths as u64 * report.points);
    }
}

/// If all nodes, or all other nodes, log a store, the survivor has logged it or has stored it.
#[test]
fn all_but_one_of_few_nodes_may_die_at_once_if_all_of_them_log_a_store() {
    let cases = [(OwnUnit::Skipped, 1), (OwnUnit::Counts, 0)];
    for (seed, protocol) in (0..4).zip(replicating().cycle()) {
        for (nodes, (own_unit, fewer)) in (2..=4).flat_map(|nodes| cases.map(|case| (nodes, case)))
        {
            let mut description = machine(protocol, nodes, 1, nodes - fewer, "4 us");
            description.ours.replication.own_unit = own_unit;
            assert_eq!(description.check(), Ok(()));
            let sweep = Sweep {
                points: Points::Drawn(80),
                deaths: nodes as usize - 1,
                ..Sweep::new(&description, seed)
            };
            let workload = || neighbours(seed, nodes, 4, 60);
            let report = sweep.run(&workload, &|_| {}).unwrap();
            let what = format!("{} {seed}, {nodes} nodes, {own_unit:?}", protocol.name());
            sound(&report, &what);
        }
    }
}

#[test]
fn nothing_is_lost_while_memory_nodes_ask_each_other_what_may_be_dropped() {
    for (seed, protocol) in (0..4).zip(replicating().cycle()) {
        let mut description = machine(protocol, 4, 1, 3, "2 us");
        description.system.memory_nodes = 4;
        let mut simulation = support::judged(&description, neighbours(seed, 4, 12, 90), seed);
        support::finish(&mut simulation);
        let messages = simulation.machine().statistics().messages;
        let asked = messages.of(MessageKind::StandingsAsked).messages;
        let sweep = Sweep {
            points: Points::Drawn(150),
            deaths: 2,
            ..Sweep::new(&description, seed)
        };
        let report = sweep.run(&|| neighbours(seed, 4, 12, 90), &|_| {}).unwrap();
        sound(
            &report,
            &format!("{} {seed}, {asked} asked", protocol.name()),
        );
        assert!(asked > 20, "{asked}");
    }
}

#[test]
fn a_machine_that_leaves_locks_out_is_not_swept() {
    for (protocol, without) in [
        (Protocol::Proactive, Synchronising::LeftOut),
        (Protocol::Proactive, Synchronising::Events),
        (Protocol::WriteBack, Synchronising::Events),
    ] {
        let mut description = machine(protocol, 3, 1, 2, "5 us");
        description.ours.core.synchronisation = without;
        let swept = Sweep::new(&description, 1).run(&|| neighbours(1, 3, 40, 400), &|_| {});
        assert_eq!(swept, Err(SweepError::LeftOut));
    }
}

#[test]
fn what_is_written_through_is_there() {
    let description = machine(Protocol::WriteThrough, 3, 2, 2, "2.5 ms");
    let sweep = Sweep {
        points: Points::Drawn(1_500),
        ..Sweep::new(&description, 3)
    };
    let report = sweep.run(&|| neighbours(3, 6, 4, 30), &|_| {}).unwrap();
    sound(&report, "wt");
}

#[test]
fn write_back_loses_committed_stores() {
    let description = machine(Protocol::WriteBack, 3, 1, 2, "2.5 ms");
    let sweep = Sweep {
        points: Points::Drawn(500),
        goal: Goal::Recovered,
        ..Sweep::new(&description, 1)
    };
    let report = sweep.run(&|| neighbours(1, 3, 3, 18), &|_| {}).unwrap();
    assert!(report.failed > report.points / 4, "{report:?}");
    assert!(
        report
            .failures
            .iter()
            .all(|failed| failed.what.contains("had left")),
        "{report:?}"
    );
}

/// Four threads that each write a few lines, which no thread touches afterwards, and go on reading
/// others.
fn once_written() -> Workload<Script> {
    let ops = |thread: u64| {
        let own = (0..2).map(move |line| Op::Store(Word((thread * 16 + line) * 8), line + 1));
        let read = (0..4_000).map(|at| Op::Load(Word((64 + at % 3) * 8)));
        own.chain(read).collect::<Vec<Op>>()
    };
    Workload {
        threads: (0..4).map(|thread| Script::new(ops(thread))).collect(),
        image: Image {
            words: 128 * 8,
            ..Image::default()
        },
        synchronisation: Synchronisation::default(),
    }
}

/// If a program need not end, lines that it does not touch any more are checked as well.
#[test]
fn what_a_living_node_has_is_known_after_a_recovery() {
    let description = machine(Protocol::Proactive, 4, 1, 3, "2 us");
    let swept = |broken| {
        let sweep = Sweep {
            points: Points::Drawn(200),
            goal: Goal::Recovered,
            broken,
            ..Sweep::new(&description, 1)
        };
        sweep.run(&once_written, &|_| {}).unwrap()
    };
    sound(&swept(None), "the machine without a fault");
    let report = swept(Some(Breakage::ForgetsTheLiving));
    let seen =
        |what: &str| what.contains("and its directory says") || what.contains("was stored last");
    assert!(
        report.failed > 20 && report.failures.iter().all(|failed| seen(&failed.what)),
        "{report:?}"
    );
}

/// Nor may a core stand still as if its end did not matter.
#[test]
fn a_core_that_sleeps_on_after_a_recovery_is_noticed() {
    let description = machine(Protocol::Proactive, 4, 1, 3, "2 us");
    let swept = |broken| {
        let sweep = Sweep {
            points: Points::Drawn(200),
            goal: Goal::Recovered,
            broken,
            ..Sweep::new(&description, 1)
        };
        sweep.run(&|| neighbours(3, 4, 4, 60), &|_| {}).unwrap()
    };
    sound(&swept(None), "the machine without a fault");
    let report = swept(Some(Breakage::LeavesCoresAsleep));
    let seen = |what: &str| what.contains("which waits for no other thread");
    assert!(
        report.failed > 20 && report.failures.iter().all(|failed| seen(&failed.what)),
        "{report:?}"
    );
}

#[test]
fn a_run_in_which_a_node_dies_repeats_to_the_byte() {
    for protocol in replicating() {
        let description = machine(protocol, 4, 2, 3, "4 us");
        let run = || {
            let mut simulation = support::judged(&description, neighbours(5, 8, 6, 60), 5);
            while simulation.handled() < 3_000 {
                assert!(simulation.step());
            }
            let mut fork = simulation.clone();
            for simulation in [&mut simulation, &mut fork] {
                cluster::crash(simulation, NodeId::new(1), 3);
                support::finish(simulation);
            }
            let told = |simulation: &outlive_machine::engine::Simulation<_>| {
                let machine: &cluster::Cluster<Neighbour> = simulation.machine();
                format!("{} {:?}", simulation.handled(), machine.statistics())
            };
            assert_eq!(told(&simulation), told(&fork));
            told(&simulation)
        };
        assert_eq!(run(), run());
    }
}

/// Returns whether a broken machine is noticed; prints the number of such crashes and the first.
fn noticed(broken: Breakage, apart: bool) -> bool {
    let (mut failed, mut first) = (0, None);
    for seed in 0..4 {
        let protocol = [Protocol::Proactive, Protocol::Adaptive][seed as usize % 2];
        // Two deaths at once need three replicas, two consecutive ones need two.
        let description = machine(protocol, 4, 1, 3 - u32::from(apart), "2 us");
        let sweep = Sweep {
            points: Points::Drawn(150),
            deaths: 2,
            apart,
            broken: Some(broken),
            ..Sweep::new(&description, seed)
        };
        let report = sweep.run(&|| neighbours(seed, 4, 4, 60), &|_| {}).unwrap();
        failed += report.failed;
        first = first.or(report.failures.into_iter().next());
    }
    let first = first.map(|first| format!("{}: {}", first.point, first.what));
    println!(
        "{broken:?}: {failed} noticed, first {}",
        first.unwrap_or_default()
    );
    failed > 0
}

#[test]
fn whatever_a_recovery_does_not_do_is_noticed() {
    let breakages = [
        (Breakage::DoesNotDrain, false),
        (Breakage::KeepsPins, false),
        (Breakage::KeepsAtomics, false),
        (Breakage::DoesNotStartOver, false),
        (Breakage::DropsAStore, false),
        (Breakage::FreesLivingLocks, false),
        (Breakage::ForgetsNothing, false),
        (Breakage::SearchesNoUnits, false),
        (Breakage::SearchesNoArchives, false),
        (Breakage::TruncatesOwned, false),
        (Breakage::TruncatesRecalled, false),
        (Breakage::IgnoresEpochs, false),
        (Breakage::LeavesUpgrades, false),
        (Breakage::SavesNothing, true),
        (Breakage::KeepsGroups, true),
    ];
    let escaped: Vec<_> = breakages
        .into_iter()
        .filter(|(broken, apart)| !noticed(*broken, *apart))
        .collect();
    assert!(escaped.is_empty(), "not noticed: {escaped:?}");
}
